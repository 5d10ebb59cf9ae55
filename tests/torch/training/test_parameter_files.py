"""Parameters in files: whole or not at all, and one clear sentence otherwise."""

import contextlib
import os
import tempfile
import traceback
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from tests.helpers.properties import sizes


@pytest.fixture
def net():
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def values(net):
    return {name: value.tolist() for name, value in net.state_dict().items()}


STATES = st.lists(
    st.tuples(
        st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64]),
        st.lists(sizes(most=3), max_size=3),
    ),
    max_size=4,
)


def filled(state, seed: int) -> nn.Module:
    """A module with such parameters and buffers, of any bits: NaN, infinity, -0."""
    net, generator = nn.Module(), torch.Generator().manual_seed(seed)
    for i, (dtype, shape) in enumerate(state):
        count = torch.Size(shape).numel() * dtype.itemsize
        content = torch.randint(256, (count,), dtype=torch.uint8, generator=generator)
        values = content.view(dtype).reshape(shape)
        if i % 2 and dtype.is_floating_point:
            net.register_parameter(f"p{i}", nn.Parameter(values))
        else:
            net.register_buffer(f"b{i}", values)
    return net


def bits_of(net) -> dict:
    return {
        name: (value.dtype, value.shape, value.reshape(-1).view(torch.uint8).tolist())
        for name, value in net.state_dict().items()
    }


@given(state=STATES)
def test_what_is_loaded_is_what_was_saved_last_to_the_bit(state):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.pt")
        for seed in range(2):  # the second over the first
            net = filled(state, seed)
            before = bits_of(net)
            d2l.save_parameters(net, path)
            other = filled(state, seed + 7)
            for _ in range(2):
                d2l.load_parameters(other, str(path))
                assert bits_of(other) == bits_of(net) == before
        assert [each.name for each in path.parent.iterdir()] == ["net.pt"]


@contextlib.contextmanager
def room_for(nbytes: int):
    """Let this process write no file of more bytes, as on a disk that is full."""
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@settings(max_examples=15)
@given(share=st.floats(0, 1), first=st.booleans())
def test_a_file_that_does_not_fit_on_the_disk_leaves_the_old_one(share, first):
    state = [(torch.float32, [3])] * 2
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.pt")
        d2l.save_parameters(filled(state, 0), path)
        old = path.read_bytes()
        if first:
            path.unlink()
        room = round(share * len(old))  # files of this network are equally long
        net = filled(state, 1)
        if room < len(old):
            with pytest.raises(OSError), room_for(room):
                d2l.save_parameters(net, path)
            found = {each.name: each.read_bytes() for each in path.parent.iterdir()}
            assert found == ({} if first else {"net.pt": old})
        with room_for(len(old)):
            d2l.save_parameters(net, path)
        other = filled(state, 2)
        d2l.load_parameters(other, path)
        assert bits_of(other) == bits_of(net)


def test_parameters_go_from_one_device_to_another(net, tmp_path):
    vgpu.enable(2)
    d2l.save_parameters(net.to("vgpu:0"), tmp_path / "net.pt")
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to("vgpu:1")
    d2l.load_parameters(other, tmp_path / "net.pt")
    assert values(other) == values(net)
    assert other[0].weight.device == torch.device("vgpu:1")
    del other
    net.to("cpu")


def refused(net, path, error, match):
    before = values(net)
    with pytest.raises(error, match=match):
        d2l.load_parameters(net, path)
    assert values(net) == before


def test_a_missing_file(net, tmp_path):
    refused(net, tmp_path / "no.pt", FileNotFoundError, r"There is no file .*no\.pt")


@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), bits=sizes(most=255))
def test_a_damaged_file_is_refused_or_does_no_harm(place, bits):
    state = [(torch.float32, [3, 2]), (torch.int64, []), (torch.float64, [5])]
    saved, net = filled(state, 0), filled(state, 1)
    before = bits_of(net)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.pt")
        d2l.save_parameters(saved, path)
        content = path.read_bytes()
        i = int(place * len(content))
        if not bits:  # cut off anywhere
            path.write_bytes(content[:i])
        else:  # or changed where values and names are
            i = int(place * content.index(b"PK\x01\x02"))
            changed = bytes([content[i] ^ bits])
            path.write_bytes(content[:i] + changed + content[i + 1 :])
        try:
            d2l.load_parameters(net, path)
        except ValueError:
            assert bits_of(net) == before
        else:
            assert bits and bits_of(net) == bits_of(saved)


def test_a_file_without_checksums_can_be_read(net, tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(net.state_dict(), tmp_path / "net.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    d2l.load_parameters(other, tmp_path / "net.pt")
    assert values(other) == values(net)


def test_a_file_of_something_else(net, tmp_path):
    path = tmp_path / "net.pt"
    path.write_text("not a file of parameters")
    refused(net, path, ValueError, "is damaged or holds no parameters")


class Exploit:
    def __reduce__(self):
        return os.system, ("echo no",)


@pytest.mark.parametrize("content", [nn.Linear(3, 2), {"0.weight": Exploit()}])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_could_run_code_is_not_read(net, tmp_path, content, zipped):
    path = tmp_path / "net.pt"
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    sentence = r"holds more than parameters and is not read \(it asks for [\w.]+, and"
    refused(net, path, ValueError, sentence)
    with pytest.raises(ValueError) as caught:
        d2l.load_parameters(net, path)
    assert "weights_only" not in "".join(traceback.format_exception(caught.value))


def test_a_folder_in_place_of_a_file(net, tmp_path):
    refused(net, tmp_path, IsADirectoryError, "is a folder: give the name of a file")
    with pytest.raises(IsADirectoryError, match="is a folder: give the name"):
        d2l.save_parameters(net, tmp_path)
    with pytest.raises(IsADirectoryError, match="is a folder: give the name"):
        d2l.launch(tmp_path, 2)
    assert list(tmp_path.iterdir()) == []


def test_the_parameters_of_another_network(net, tmp_path):
    path = tmp_path / "net.pt"
    d2l.save_parameters(nn.Linear(3, 2), path)
    refused(net, path, ValueError, "holds the parameters of another network")
    d2l.save_parameters(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)), path)
    refused(net, path, ValueError, "names or shapes differ from those of this Sequen")
