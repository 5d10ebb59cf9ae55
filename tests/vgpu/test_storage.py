"""The storages of virtual tensors, and what moves a tensor to another device."""

import gc

import pytest
import torch
from torch import nn

from d2l_gpu import vgpu


@pytest.fixture(autouse=True)
def two_devices():
    gc.collect()
    vgpu.enable(2, memory="1MiB")
    yield
    torch.vgpu.set_device(0)


def test_a_storage_knows_its_device_and_its_memory():
    X = torch.arange(6.0, device="vgpu:1")
    storage = X.untyped_storage()
    assert storage.device == X.device
    assert storage.nbytes() == storage.size() == len(storage) == 24
    assert storage.data_ptr() == X[2:].untyped_storage().data_ptr() == X.data_ptr()
    assert isinstance(storage, torch.UntypedStorage)


def test_resizing_a_storage_keeps_the_account():
    X = torch.ones(256, device="vgpu:1")
    storage = X.untyped_storage()
    storage.resize_(0)
    assert torch.vgpu.memory_allocated(1) == 0
    storage.resize_(4096)
    assert torch.vgpu.memory_allocated(1) == 4096
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        storage.resize_(2 * 2**20)
    assert storage.nbytes() == 4096
    assert torch.vgpu.memory_allocated(1) == 4096
    del X, storage
    assert torch.vgpu.memory_allocated(1) == 0


def test_set_takes_the_storage_of_a_tensor():
    X = torch.arange(6.0, device="vgpu:1")
    Y = torch.empty(0, device="vgpu:1").set_(X.untyped_storage(), 2, (2, 2), (2, 1))
    assert Y.tolist() == [[2, 3], [4, 5]]
    Y[0, 0] = 7
    assert X[2].item() == 7


def test_to_a_name_without_an_index_is_to_the_current_device():
    torch.vgpu.set_device(1)
    one = torch.device("vgpu:1")
    assert torch.ones(1).to("vgpu").device == one
    assert torch.ones(1, device="vgpu:0").to(torch.device("vgpu")).device == one
    assert torch.ones(1).to(device="vgpu", dtype=torch.float64).device == one
    assert nn.Linear(1, 1).to("vgpu").weight.device == one
    assert torch.ones(1).to("vgpu:0").device == torch.device("vgpu:0")
    assert torch.ones(1).to(torch.float64).device.type == "cpu"


def test_data_can_be_set_to_data_on_a_device():
    net = nn.Linear(2, 1, bias=False)
    weight = net.weight
    values = weight.detach().clone()
    weight.data = weight.data.to("vgpu:1")
    assert weight is net.weight and isinstance(weight, nn.Parameter)
    assert weight.device == torch.device("vgpu:1") and weight.requires_grad
    assert torch.equal(weight.detach().cpu(), values)
    net(torch.ones(1, 2, device="vgpu:1")).sum().backward()
    assert weight.grad.tolist() == [[1, 1]]
    X = torch.ones(2)
    X.data = torch.zeros(3)
    assert X.tolist() == [0, 0, 0]


def test_a_failed_operator_keeps_no_memory():
    # The first of PyTorch's own operators on shapes alone imports modules, which keep
    # the frames of its callers until the garbage collector runs.
    torch.cat([torch.ones(2, device="meta")])
    gc.collect()
    gc.disable()
    try:
        X = torch.ones(2**17, device="vgpu:0")
        with pytest.raises(torch.OutOfMemoryError):
            torch.cat([X, X])
        del X
        assert torch.vgpu.memory_allocated(0) == 0
    finally:
        gc.enable()
