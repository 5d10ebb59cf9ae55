"""Parameters in files: whole or not at all, and one clear sentence otherwise."""

import pytest
import torch
from torch import nn

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu


@pytest.fixture
def net():
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def values(net):
    return {name: value.tolist() for name, value in net.state_dict().items()}


def test_parameters_go_from_one_device_to_another(net, tmp_path):
    vgpu.enable(2)
    d2l.save_parameters(net.to("vgpu:0"), tmp_path / "net.pt")
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to("vgpu:1")
    d2l.load_parameters(other, tmp_path / "net.pt")
    assert values(other) == values(net)
    assert other[0].weight.device == torch.device("vgpu:1")
    del other
    net.to("cpu")


def test_a_failing_save_leaves_the_old_file(net, tmp_path, monkeypatch):
    path = tmp_path / "net.pt"
    d2l.save_parameters(net, path)
    before = path.read_bytes()

    def full(*args):
        args[1].write(b"half of it")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        d2l.save_parameters(net, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def refused(net, path, error, match):
    before = values(net)
    with pytest.raises(error, match=match):
        d2l.load_parameters(net, path)
    assert values(net) == before


def test_a_missing_file(net, tmp_path):
    refused(net, tmp_path / "no.pt", FileNotFoundError, r"There is no file .*no\.pt")


@pytest.mark.parametrize("part", [0, 1, 2, 3])
def test_a_truncated_file(net, tmp_path, part):
    path = tmp_path / "net.pt"
    d2l.save_parameters(net, path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * part // 4])
    refused(net, path, ValueError, "is damaged or holds no parameters")


def test_a_file_of_something_else(net, tmp_path):
    path = tmp_path / "net.pt"
    path.write_text("not a file of parameters")
    refused(net, path, ValueError, "is damaged or holds no parameters")
    torch.save(nn.Linear(3, 2), path)  # a pickled module could run a program
    refused(net, path, ValueError, "is damaged or holds no parameters")


def test_the_parameters_of_another_network(net, tmp_path):
    path = tmp_path / "net.pt"
    d2l.save_parameters(nn.Linear(3, 2), path)
    refused(net, path, ValueError, "holds the parameters of another network")
    d2l.save_parameters(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)), path)
    refused(net, path, ValueError, "names or shapes differ from those of this Sequen")
