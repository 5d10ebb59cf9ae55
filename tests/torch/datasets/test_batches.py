"""Batches by indexing: the right examples, in an order that nothing else decides."""

import copy
import itertools
import pickle
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.torch.datasets.batches import choose_epoch
from tests.helpers.fresh_process import run_program
from tests.helpers.properties import sizes

IMAGES = torch.from_numpy(
    np.random.default_rng(0).integers(0, 256, (23, 2, 6, 4), np.uint8)
)
LABELS = torch.arange(23)  # says which example it is
KiB = 2**10


def batches(batch_size: int = 5, **options) -> d2l.Batches:
    return d2l.Batches(IMAGES, LABELS, batch_size, **options)


def order(data) -> list[int]:
    """The examples of an epoch, in their order."""
    return torch.cat([y for _, y in data]).tolist()


# ---------------------------------------------------------------- what a batch is


def test_batches_are_the_examples_in_their_order():
    data = batches()
    assert (len(data), data.num_examples, data.batch_size) == (5, 23, 5)
    assert data.batch_sizes == [5, 5, 5, 5, 3]
    assert data.device == torch.device("cpu")
    assert data.resident
    parts = list(data)
    assert [len(y) for _, y in parts] == data.batch_sizes
    X, y = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    assert X.dtype == torch.float32
    assert torch.equal(X, IMAGES.float() / 255)
    assert y.dtype == torch.int64
    assert torch.equal(y, LABELS)


def test_every_byte_becomes_the_number_that_division_gives():
    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    ((X, _),) = d2l.Batches(images, LABELS[:1], 1)
    expected = np.arange(256, dtype=np.float32) / np.float32(255)
    assert np.array_equal(X.flatten().numpy(), expected)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_batch_may_be_changed_by_who_has_it(shuffle):
    data = batches(shuffle=shuffle)
    before = [(X.clone(), y.clone()) for X, y in data]
    data.set_epoch(0)
    for X, y in data:
        X.zero_()
        y.zero_()
    data.set_epoch(0)
    for one, other in zip(before, data, strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


# ---------------------------------------------------------------- order


def test_each_epoch_has_an_order_of_its_own():
    data = batches(shuffle=True)
    orders = [order(data) for _ in range(3)]
    assert len({tuple(epoch) for epoch in [*orders, range(23)]}) == 4


def test_the_order_is_that_of_seed_and_epoch_and_disturbs_nothing():
    data = batches(shuffle=True, seed=4)
    for epoch in range(2):
        torch.manual_seed(epoch)
        states = torch.get_rng_state(), np.random.get_state()[1].tolist()
        expected = np.random.default_rng([4, epoch]).permutation(23).tolist()
        assert order(data) == expected
        assert torch.equal(torch.get_rng_state(), states[0])
        assert np.random.get_state()[1].tolist() == states[1]
    assert order(batches(shuffle=True, seed=5)) != order(batches(shuffle=True, seed=4))


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_epoch_can_begin_in_its_middle(shuffle, monkeypatch):
    data = batches(shuffle=shuffle)
    data.set_epoch(2)
    whole = [y.tolist() for _, y in data]
    following = order(data)
    made = []
    resized = sys.modules["d2l_gpu.torch.datasets.batches"]._resized
    monkeypatch.setattr(
        "d2l_gpu.torch.datasets.batches._resized",
        lambda X, size: made.append(len(X)) or resized(X, size),
    )
    for first in range(6):
        made.clear()
        data.set_epoch(2, batch=first)
        assert (data.epoch, data.batch, len(data)) == (2, first, 5)
        assert data.batch_sizes == [5, 5, 5, 5, 3][first:]
        pairs = list(zip(data, data.batch_sizes, strict=True))
        assert [y.tolist() for (_, y), _ in pairs] == whole[first:]
        assert [len(y) for (_, y), _ in pairs] == [n for _, n in pairs] == made
        assert (data.epoch, data.batch) == (3, 0)
        assert order(data) == following


def test_parts_and_copies_begin_where_the_whole_does():
    data = batches(shuffle=True)
    data.set_epoch(1, 3)
    shards = [data.shard(i, 2) for i in range(2)]
    moved = data.to("cpu")
    expected = order(data)
    assert order(moved) == expected
    assert sorted(order(shards[0]) + order(shards[1])) == sorted(expected)


def test_iterators_at_the_same_time_do_not_disturb_each_other():
    expected = batches(shuffle=True)
    first, second = order(expected), order(expected)
    data = batches(shuffle=True)
    one, other = iter(data), iter(data)
    data.set_epoch(7)  # neither has begun to run
    pairs = list(zip(other, one, strict=True))
    assert order(pair[1] for pair in pairs) == first
    assert order(pair[0] for pair in pairs) == second
    next(iter(data))  # one that stops early
    data.set_epoch(0)
    assert order(data) == first


def test_a_copy_goes_on_by_itself():
    data = batches(shuffle=True)
    order(data)
    for other in (
        data.to("cpu"),
        data.shard(0, 1),
        copy.deepcopy(data),
        pickle.loads(pickle.dumps(data)),
    ):
        assert other.epoch == 1
        data.set_epoch(1)
        expected = order(data)
        assert order(other) == expected
        assert (data.epoch, other.epoch) == (2, 2)
        data.set_epoch(1)


# ---------------------------------------------------------------- size


@pytest.mark.parametrize("size", [(3, 2), (12, 8), (12, 2), (3, 9), [3, 2], 5])
def test_images_are_resized_and_smoothed_where_they_shrink(size):
    data = batches(resize=size)
    pair = (5, 5) if size == 5 else tuple(size)
    assert data.resize == pair
    X, _ = next(iter(data))
    expected = F.interpolate(
        IMAGES[:5].float() / 255,
        pair,
        mode="bilinear",
        antialias=pair not in [(12, 8), (6, 4)],
    )
    assert X.shape == (5, 2, *pair)
    assert torch.equal(X, expected)


def test_the_size_that_images_have_changes_nothing():
    X, _ = next(iter(batches(resize=(6, 4))))
    assert torch.equal(X, IMAGES[:5].float() / 255)


def test_resized_images_stay_between_black_and_white():
    # Without a limit, rounding makes some of these brighter than white.
    white = torch.full((1, 1, 9, 9), 255, dtype=torch.uint8)
    raw, bounded = [], []
    for size in range(1, 40):
        sizes = (size, size + 3)
        ((X, _),) = d2l.Batches(white, LABELS[:1], 1, resize=sizes)
        bounded.append(X.max().item())
        raw.append(
            F.interpolate(white / 255, sizes, mode="bilinear", antialias=True)
            .max()
            .item()
        )
    assert max(raw) > 1
    assert max(bounded) == 1


# ---------------------------------------------------------------- shards


@given(
    n=sizes(1),
    batch_size=sizes(1, 29),
    counts=st.lists(sizes(1, 5), min_size=1, max_size=2),
    shuffle=st.booleans(),
    epoch=sizes(most=3),
    resize=st.sampled_from([None, 3]),
)
def test_all_ranks_together_see_each_example_once_in_every_epoch(
    n, batch_size, counts, shuffle, epoch, resize
):
    images, labels = IMAGES[:n].clone(), LABELS[:n].clone()
    whole = d2l.Batches(images, labels, batch_size, shuffle=shuffle, resize=resize)
    ranks = [whole]
    for count in counts:
        ranks = [rank.shard(i, count) for rank in ranks for i in range(count)]
    seen = []
    for number in (epoch, epoch + 1, epoch):  # the last one is chosen anew
        if number <= epoch:
            choose_epoch(whole, number)
            for rank in ranks:
                choose_epoch(rank, number)
        batch_sizes = whole.batch_sizes
        assert len(whole) == len(batch_sizes) == -(-n // batch_size)
        assert all(rank.batch_sizes == batch_sizes for rank in ranks)
        examples = []
        for (X, y), size, *parts in zip(whole, batch_sizes, *ranks, strict=True):
            assert X.dtype == torch.float32 and y.dtype == torch.int64
            assert torch.equal(torch.cat([part[0] for part in parts]), X)
            assert torch.equal(torch.cat([part[1] for part in parts]), y)
            lengths = [len(part[1]) for part in parts]
            assert size == sum(lengths) == len(y) > 0
            if len(counts) == 1:
                assert max(lengths) - min(lengths) <= 1
            if resize is None:
                assert torch.equal(X, images[y].float() / 255)
            examples += y.tolist()
        assert sorted(examples) == list(range(n))
        assert shuffle or examples == sorted(examples)
        seen.append(examples)
    assert seen[0] == seen[2]
    assert torch.equal(images, IMAGES[:n]) and torch.equal(labels, LABELS[:n])


def test_attributes_of_a_shard_describe_whole_batches():
    part = batches().shard(1, 2)
    assert (len(part), part.batch_size, part.num_examples) == (5, 5, 23)
    assert part.batch_sizes == [5, 5, 5, 5, 3]


def test_sums_of_shards_over_the_size_of_the_batch_are_its_mean():
    # What batch_sizes is for: 5 examples on 3 ranks, 3 on 7.
    weight = torch.randn(48, requires_grad=True, generator=torch.manual_seed(0))

    def losses(X):
        return (X.flatten(1) @ weight).square()

    for count in (3, 7):
        shards = [batches().shard(index, count) for index in range(count)]
        sizes = shards[0].batch_sizes
        for (X, _), size, *parts in zip(batches(), sizes, *shards, strict=True):
            (expected,) = torch.autograd.grad(losses(X).mean(), weight)
            grads = [
                torch.autograd.grad(losses(part).sum() / size, weight)[0]
                for part, _ in parts
            ]
            torch.testing.assert_close(sum(grads), expected)


def test_a_shard_of_a_shard_is_a_part_of_it():
    parts = [batches(11).shard(i, 2).shard(j, 2) for i in range(2) for j in range(2)]
    for (_, y), *pieces in zip(batches(11), *parts, strict=True):
        halves = y.tensor_split(2)
        expected = [part for half in halves for part in half.tensor_split(2)]
        assert [p[1].tolist() for p in pieces] == [part.tolist() for part in expected]


# ---------------------------------------------------------------- devices


def test_a_device_is_not_looked_for_before_the_first_batch():
    out = run_program("batches/no_device_before_the_first_batch.py")
    assert out == "cuda:1 False\nTrue\n"


@pytest.mark.virtual_gpus(2)
def test_nothing_is_copied_before_the_first_batch(virtual_gpus):
    with d2l.transfers() as log:
        data = batches(device=virtual_gpus[0]).shard(0, 2).to(virtual_gpus[1])
        iter(data)
    assert log == []
    assert torch.vgpu.max_memory_allocated(1) == 0
    next(iter(data))
    assert torch.vgpu.max_memory_allocated(1) > 0


@pytest.mark.virtual_gpus(2)
@pytest.mark.parametrize("memory", [None, "tight"])
def test_batches_are_the_same_on_every_device(virtual_gpus, memory, monkeypatch):
    if memory:
        monkeypatch.setattr(torch.vgpu, "mem_get_info", lambda device: (100, 100))
    for options in ({"shuffle": True}, {"resize": 9}, {"resize": 3, "shuffle": True}):
        here, there = batches(**options), batches(**options).to(virtual_gpus[1])
        assert there.resident is (memory is None)
        for _ in range(2):
            for (X, y), (there_X, there_y) in zip(here, there, strict=True):
                assert there_X.device == there_y.device == virtual_gpus[1]
                assert torch.equal(X, there_X.cpu())
                assert torch.equal(y, there_y.cpu())


@pytest.mark.virtual_gpus(2)
def test_resident_data_cross_once_and_then_only_the_order_does(virtual_gpus):
    data = batches(shuffle=True, device=virtual_gpus[1], resize=8)
    with d2l.transfers() as log:
        for _ in data:
            pass
    assert data.resident
    host, device = d2l.cpu(), virtual_gpus[1]
    assert log == [
        (IMAGES.nbytes, host, device),
        (LABELS.nbytes, host, device),
        (4 * 23, host, device),
    ]
    with d2l.transfers() as log:
        for _ in range(3):
            for _ in data:
                pass
    assert log == [(4 * 23, host, device)] * 3


@pytest.mark.virtual_gpus(2)
def test_nothing_crosses_in_an_epoch_in_order(virtual_gpus):
    data = batches(device=virtual_gpus[0])
    next(iter(data))
    with d2l.transfers() as log:
        for X, y in data:
            X + y.view(-1, 1, 1, 1)
    assert log == []


@pytest.mark.virtual_gpus(2)
def test_shards_share_what_is_on_their_device(virtual_gpus):
    whole = batches(shuffle=True, device=virtual_gpus[0])
    shards = [whole.shard(i, 2) for i in range(2)]
    with d2l.transfers() as log:
        for data in (*shards, whole, whole.to(virtual_gpus[0])):
            next(iter(data))
    assert sum(nbytes == IMAGES.nbytes for nbytes, *_ in log) == 1
    with d2l.transfers() as log:
        next(iter(shards[1].to(virtual_gpus[1])))
    assert log[0] == (IMAGES.nbytes, d2l.cpu(), virtual_gpus[1])


@pytest.mark.virtual_gpus(2, memory="256KiB")
@pytest.mark.parametrize("shuffle", [False, True])
def test_images_that_do_not_fit_cross_as_bytes(virtual_gpus, shuffle):
    # 130 KiB and their labels are more than half of 256 KiB.
    images = IMAGES[:1, :1].expand(5460, 1, 6, 4).contiguous()
    labels = torch.zeros(len(images), dtype=torch.int64)
    data = d2l.Batches(images, labels, 100, shuffle=shuffle, device=virtual_gpus[0])
    assert not data.resident
    with d2l.transfers() as log:
        X, _ = next(iter(data))
    assert X.dtype == torch.float32
    assert [nbytes for nbytes, *_ in log] == [100 * 6 * 4, 100 * 8]
    assert torch.vgpu.max_memory_allocated(0) < 64 * KiB


@pytest.mark.virtual_gpus(2, memory="144KiB")
def test_data_stay_on_the_device_up_to_half_of_what_is_free(virtual_gpus):
    # Each example takes a byte and the eight of its label.
    most = 72 * KiB // 9
    assert most * 9 == 72 * KiB
    for n, resident in ((most, True), (most + 1, False)):
        images = torch.zeros(n, 1, 1, 1, dtype=torch.uint8)
        data = d2l.Batches(images, torch.zeros(n, dtype=torch.int64), 10)
        assert data.to(virtual_gpus[0]).resident is resident
        assert data.resident
    taken = torch.zeros(1024, dtype=torch.uint8, device=virtual_gpus[0])
    images, labels = images[:most], torch.zeros(most, dtype=torch.int64)
    assert not d2l.Batches(images, labels, 10, device=taken.device).resident
    assert d2l.Batches(images, labels, 10, device=virtual_gpus[1]).resident


@pytest.mark.virtual_gpus(2)
def test_data_that_are_on_the_device_already_stay_there(virtual_gpus, monkeypatch):
    monkeypatch.setattr(torch.vgpu, "mem_get_info", lambda device: (0, 0))
    on_device = [tensor.to(virtual_gpus[0]) for tensor in (IMAGES, LABELS)]
    data = d2l.Batches(*on_device, 5, device=virtual_gpus[0])
    with d2l.transfers() as log:
        for _ in data:
            pass
    assert data.resident
    assert log == []
    assert order(data.to("cpu")) == list(range(23))


def test_a_device_that_does_not_tell_its_free_memory_keeps_no_data(monkeypatch):
    class Silent:
        pass

    class Apple:
        recommended_max_memory = staticmethod(lambda: 10_000)
        current_allocated_memory = staticmethod(lambda: 7_000)

    monkeypatch.setattr(torch, "get_device_module", lambda device: Silent)
    assert not batches(device="xpu:0").resident
    monkeypatch.setattr(torch, "get_device_module", lambda device: Apple)
    assert IMAGES.nbytes + LABELS.nbytes == 1288
    assert batches(device="mps").resident
    Apple.current_allocated_memory = staticmethod(lambda: 8_000)
    assert not batches(device="mps").resident


@pytest.mark.virtual_gpus(1)
def test_what_is_pickled_has_nothing_of_a_device(virtual_gpus):
    data = batches(device=virtual_gpus[0], shuffle=True)
    before = len(pickle.dumps(data))
    next(iter(data))
    assert len(pickle.dumps(data)) == before
    other = pickle.loads(pickle.dumps(data))
    assert other.device == virtual_gpus[0]
    assert order(other) == order(data)


def test_a_network_learns_the_digits():
    torch.manual_seed(0)
    train, test = d2l.load_data_digits(128, resize=8)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for X, y in itertools.chain.from_iterable(train for _ in range(10)):
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
    assert d2l.evaluate_accuracy_gpu(net, test) > 0.9


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("images", "labels", "kind", "message"),
    [
        (
            IMAGES.numpy(),
            LABELS,
            TypeError,
            "images must be a tensor .* but got a ndarray",
        ),
        (IMAGES.float(), LABELS, TypeError, r"uint8 .*, but got dtype torch\.float32"),
        (IMAGES, LABELS.int(), TypeError, r"int64 .*, but got dtype torch\.int32"),
        (IMAGES, LABELS.tolist(), TypeError, "labels must be .* but got a list"),
        (
            IMAGES[:, 0],
            LABELS,
            ValueError,
            r"\(n, c, h, w\), but got shape \(23, 6, 4\)",
        ),
        (IMAGES, LABELS.view(-1, 1), ValueError, r"\(n,\), but got shape \(23, 1\)"),
        (IMAGES, LABELS[:22], ValueError, "23 images and 22 labels"),
        (IMAGES[:0], LABELS[:0], ValueError, "There is nothing .* shape \\(0, 2, 6, "),
        (IMAGES[:, :, :0], LABELS, ValueError, "There is nothing"),
    ],
)
def test_data_that_are_no_images_with_labels_are_refused(images, labels, kind, message):
    with pytest.raises(kind, match=message):
        d2l.Batches(images, labels, 5)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("batch_size", [0, -1, 2.0, True, "5", None]),
        ("seed", [-1, 1.5, None, False]),
        ("resize", [0, -3, 2.5, True, "28", (1,), (1, 2, 3), (0, 2), (2, 1.5), ()]),
    ],
)
def test_senseless_settings_are_refused(name, values):
    for value in values:
        with pytest.raises(ValueError, match=name) as caught:
            batches(**{name: value})
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("index", "count", "message"),
    [
        (2, 2, "no shard 2 of 2: shards are counted from 0 to 1"),
        (-1, 2, "no shard -1 of 2"),
        (0.0, 2, "no shard 0.0 of 2"),
        (0, 0, "shards must be a positive integer, but got 0"),
        (0, True, "shards must be a positive integer, but got True"),
    ],
)
def test_senseless_shards_are_refused(index, count, message):
    with pytest.raises(ValueError, match=message):
        batches().shard(index, count)


@pytest.mark.parametrize("epoch", [-1, 1.0, True, None])
def test_senseless_epochs_are_refused(epoch):
    with pytest.raises(ValueError, match="counted from 0"):
        batches().set_epoch(epoch)


@pytest.mark.parametrize("batch", [-1, 6, 1.0, True, None])
def test_batches_that_make_no_sense(batch):
    data = batches()
    with pytest.raises(ValueError, match=rf"of 5 batches .* but got batch {batch!r}\."):
        data.set_epoch(1, batch)
    assert (data.epoch, data.batch) == (0, 0)


# ---------------------------------------------------------------- choosing an epoch


def test_an_epoch_is_chosen_wherever_the_order_depends_on_it():
    data = batches(shuffle=True)
    choose_epoch(data, 3)
    assert data.epoch == 3
    dataset = torch.utils.data.TensorDataset(torch.arange(8))
    sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=2, rank=0)
    choose_epoch(torch.utils.data.DataLoader(dataset, sampler=sampler), 5)
    assert sampler.epoch == 5
    choose_epoch([1, 2], 7)  # nothing to choose
