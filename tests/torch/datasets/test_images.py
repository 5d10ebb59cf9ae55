"""Both data sets give the same kind of batches, and nothing damaged gets into them."""

import dataclasses
import gzip
import re
import sys

import numpy as np
import pytest
import torch

from d2l_gpu import torch as d2l
from d2l_gpu.common.requirements import install
from d2l_gpu.torch.datasets import images as datasets
from tests.helpers.file_server import md5, serving


def idx(values: np.ndarray) -> bytes:
    """The bytes of an IDX file, not compressed."""
    sizes = np.array(values.shape, ">u4").tobytes()
    return bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes()


RANDOM = np.random.default_rng(0)
IMAGES = {n: RANDOM.integers(0, 256, (n, 28, 28), np.uint8) for n in (20, 6)}
LABELS = {n: RANDOM.integers(0, 10, n, np.uint8) for n in (20, 6)}
TRAIN_IMAGES, TRAIN_LABELS, *_ = NAMES = list(datasets.FASHION_MNIST.files)
CONTENTS = [idx(IMAGES[20]), idx(LABELS[20]), idx(IMAGES[6]), idx(LABELS[6])]


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A mirror of a small data set, in the place of the authors' mirrors."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("D2L_GPU_DATA", str(tmp_path))
    with serving() as server:
        serve(server, monkeypatch, dict(zip(NAMES, CONTENTS, strict=True)))
        yield server


def serve(server, monkeypatch, contents: dict[str, bytes], compress=gzip.compress):
    server.files |= {name: compress(content) for name, content in contents.items()}
    files = {name: md5(content) for name, content in server.files.items()}
    source = dataclasses.replace(
        datasets.FASHION_MNIST, mirrors=(f"{server.url}missing/", server.url)
    )
    source = dataclasses.replace(source, files=files, sha256={})
    monkeypatch.setattr(datasets, "FASHION_MNIST", source)


def joined(batches) -> tuple[torch.Tensor, torch.Tensor]:
    X, y = zip(*batches, strict=True)
    return torch.cat(X), torch.cat(y)


def pairs(images, labels) -> set[tuple[bytes, int]]:
    """Each image with its label, in no order."""
    return {(bytes(i), int(label)) for i, label in zip(images, labels, strict=True)}


# ---------------------------------------------------------------- Fashion-MNIST


def test_fashion_mnist_is_read_from_its_files(server, tmp_path):
    train, test = d2l.load_data_fashion_mnist(8)
    assert (train.num_examples, test.num_examples) == (20, 6)
    assert (len(train), len(test)) == (3, 1)
    ((X, y),) = test
    assert X.shape == (6, 1, 28, 28)
    assert torch.equal(X * 255, torch.from_numpy(IMAGES[6]).unsqueeze(1).float())
    assert torch.equal(y, torch.from_numpy(LABELS[6]).long())
    # The training images are there once each, in another order, with their labels.
    X, y = joined(train)
    images = (X * 255).round().byte().numpy()
    assert pairs(images, y) == pairs(IMAGES[20], LABELS[20])
    assert not np.array_equal(images[:, 0], IMAGES[20])
    cached = {path.name for path in (tmp_path / "fashion-mnist").iterdir()}
    assert cached == set(NAMES)


def test_size_device_and_seed_reach_the_batches(server):
    train, test = d2l.load_data_fashion_mnist(8, (14, 7), device="cpu", seed=3)
    for batches in (train, test):
        X, _ = next(iter(batches))
        assert X.shape[1:] == (1, 14, 7)
    again, _ = d2l.load_data_fashion_mnist(20, seed=3)
    other, _ = d2l.load_data_fashion_mnist(20)
    train, _ = d2l.load_data_fashion_mnist(20, seed=3)
    labels = [next(iter(batches))[1].tolist() for batches in (train, again, other)]
    assert labels[0] == labels[1] != labels[2]


def test_data_are_downloaded_once(server):
    d2l.load_data_fashion_mnist(8)
    asked = len(server.requests)
    assert asked == 8  # each file at both mirrors
    d2l.load_data_fashion_mnist(8)
    assert len(server.requests) == asked


def test_senseless_arguments_are_refused_before_anything_is_downloaded(server):
    for wrong in ({"batch_size": 0}, {"resize": -1}, {"seed": "0"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            d2l.load_data_fashion_mnist(**({"batch_size": 8} | wrong))
    assert server.requests == []


def test_what_cannot_be_had_offers_the_digits(server, tmp_path):
    del server.files[TRAIN_LABELS]
    with pytest.raises(ConnectionError) as caught:
        d2l.load_data_fashion_mnist(8)
    message = str(caught.value)
    assert message.startswith(f"{TRAIN_LABELS} could not be downloaded")
    assert "404 Not Found" in message
    assert str(tmp_path / "fashion-mnist") in message
    assert message.endswith(", or use d2l.load_data_digits, which needs no network.")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\0\0\x0d\3" + CONTENTS[0][4:], "begins with the bytes 00 00 0d 03"),
        (CONTENTS[1], "begins with the bytes 00 00 08 01"),
        (b"\1" + CONTENTS[0][1:], "begins with the bytes 01 00 08 03"),
        (b"", "begins with the bytes "),
        (CONTENTS[0][:10], "begins with the bytes 00 00 08 03"),
        (CONTENTS[0][:-1], r"has 15,679 values, but its sizes \(20, 28, 28\)"),
        (CONTENTS[0] + b"\0", "has 15,681 values"),
        (
            bytes([0, 0, 8, 3]) + b"\xff" * 12,
            r".* make 79,228,162,458,924,1",
        ),
    ],
)
def test_what_is_no_idx_file_is_refused(server, monkeypatch, content, problem):
    serve(server, monkeypatch, {TRAIN_IMAGES: content})
    with pytest.raises(ValueError, match=rf"{TRAIN_IMAGES} {problem}"):
        d2l.load_data_fashion_mnist(8)


@pytest.mark.parametrize(
    "compress",
    [
        lambda content: content,
        lambda content: gzip.compress(content)[:-20],
        lambda content: b"\x1f\x8b\x08\0\0\0\0\0\0\0" + content,
    ],
)
def test_what_is_no_gzip_file_is_refused(server, monkeypatch, compress):
    serve(server, monkeypatch, {TRAIN_IMAGES: CONTENTS[0]}, compress)
    with pytest.raises(ValueError, match=f"{TRAIN_IMAGES} is not a complete gzip file"):
        d2l.load_data_fashion_mnist(8)


def test_images_and_labels_of_different_number_are_refused(server, monkeypatch):
    serve(server, monkeypatch, {TRAIN_LABELS: CONTENTS[3]})
    with pytest.raises(ValueError, match="20 images and 6 labels"):
        d2l.load_data_fashion_mnist(8)


def test_the_authors_checksums_are_those_of_the_files():
    assert len(set(datasets.FASHION_MNIST.files.values())) == 4
    assert all(len(value) == 32 for value in datasets.FASHION_MNIST.files.values())
    assert all(mirror.endswith("/") for mirror in datasets.FASHION_MNIST.mirrors)


def test_fashion_mnist_is_checked_with_more_than_md5():
    source = datasets.FASHION_MNIST
    assert source.sha256.keys() == source.files.keys()
    assert len(set(source.sha256.values())) == 4
    for value in source.sha256.values():
        assert re.fullmatch("[0-9a-f]{64}", value)


# ---------------------------------------------------------------- digits


def test_digits_have_the_interface_of_fashion_mnist():
    train, test = d2l.load_data_digits(256)
    assert (train.num_examples, test.num_examples) == (1437, 360)
    assert train.batch_sizes == [256] * 5 + [157]
    X, y = next(iter(train))
    assert X.shape == (256, 1, 28, 28)
    assert (X.min(), X.max()) == (0, 1)
    assert y.dtype == torch.int64


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    expected = load_digits()
    train, test = d2l.load_data_digits(100, 8)
    X, y = joined([*train, *test])
    images = (X * 16).round().byte().numpy()
    assert len(X) == len(expected.target)
    assert pairs(images, y) == pairs(expected.images.astype(np.uint8), expected.target)
    grey = np.rint(np.arange(17) * 255 / 16)
    assert np.array_equal((X * 255).round().unique(), grey)


def test_the_test_digits_are_the_same_for_ever_and_of_all_kinds():
    _, test = d2l.load_data_digits(360, seed=7)
    ((_, y),) = test
    assert y[:12].tolist() == [7, 9, 4, 7, 0, 2, 6, 1, 3, 1, 3, 7]
    assert y.bincount().min() >= 20


def test_digits_need_no_network_and_without_scikit_learn_say_so(monkeypatch):
    monkeypatch.setattr("socket.socket", None)
    d2l.load_data_digits(8)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=f"{re.escape(install('lessons'))}\\.$"):
        d2l.load_data_digits(8)
    with pytest.raises(ValueError, match="batch_size"):
        d2l.load_data_digits(0)


@pytest.mark.virtual_gpus(1)
def test_digits_go_to_a_device(virtual_gpus):
    for batches in d2l.load_data_digits(100, device=virtual_gpus[0]):
        X, y = next(iter(batches))
        assert X.device == y.device == virtual_gpus[0]
