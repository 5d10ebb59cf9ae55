"""What a network promises on any device: the same tests on the CPU and on two GPUs."""

import pytest
import torch
from mixture import Mixture, shard, statistics, train

pytestmark = pytest.mark.virtual_gpus(2)
DEVICES = ["cpu", "vgpu:0", "vgpu:1"]


@pytest.fixture(params=DEVICES)
def device(request) -> torch.device:
    return torch.device(request.param)


@pytest.fixture
def net() -> Mixture:
    torch.manual_seed(0)
    return Mixture(width=4, num_experts=3)


def batches(device, count=3):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        X = torch.randn(6, 4, generator=generator)
        yield X.to(device), (2 * X).to(device)


def test_the_output_is_the_same_everywhere(net, device):
    X, _ = next(batches("cpu"))
    expected = net(X)
    result = net.to(device)(X.to(device))
    assert result.device == device
    torch.testing.assert_close(result.cpu(), expected)


def test_all_parameters_move(net, device):
    net.to(device)
    assert {p.device for p in net.parameters()} == {device}


def test_training_waits_for_the_gpu_only_at_its_end(net, device):
    net.to(device)
    data = list(batches(device))
    if device.type == "cpu":
        assert train(net, data, 0.1) > 0
        return
    waits = []
    for part in data[:1], data:
        with pytest.warns(UserWarning, match="the host waits") as warned:
            torch.vgpu.set_sync_debug_mode("warn")
            train(net, part, 0.1)
            torch.vgpu.set_sync_debug_mode("default")
        waits.append(len(warned))
    assert waits == [1, 1]


def test_each_rank_uses_its_own_device(device):
    X = torch.arange(12.0).reshape(6, 2)
    if device.type == "cpu":
        parts = [shard(X, rank, 1, "cpu") for rank in range(1)]
    else:
        parts = [shard(X, rank, 2, device.type) for rank in range(2)]
        assert [part.device.index for part in parts] == [0, 1]
        # A rank must not take memory on the device of another.
        assert torch.vgpu.memory_allocated(0) == torch.vgpu.memory_allocated(1) == 512
    assert torch.equal(torch.cat([part.cpu() for part in parts]), X)


def test_a_file_is_read_on_the_device_that_asks_for_it(net, device, tmp_path):
    torch.save(
        net.to("cpu" if device.type == "cpu" else "vgpu:0").state_dict(),
        tmp_path / "net.pt",
    )
    means = statistics(tmp_path / "net.pt", device)
    assert means.device == device and len(means) == len(list(net.parameters()))
