"""The storages of virtual tensors, and what moves a tensor to another device."""

import copy
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


PLACES = ["cpu", "vgpu:0", "vgpu:1"]


@pytest.mark.parametrize("there", PLACES)
@pytest.mark.parametrize("here", PLACES)
@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_storages_are_copied_into_each_other(here, there, size):
    X = torch.arange(float(size), device=here)
    Y = torch.zeros(size, device=there)
    for _ in range(2):
        Y.untyped_storage().copy_(X.untyped_storage())
        assert Y.tolist() == X.tolist() == list(range(size))
        Y.untyped_storage().fill_(0)
        assert Y.tolist() == [0] * size
    with pytest.raises(RuntimeError, match="size does not match"):
        Y.untyped_storage().copy_(torch.ones(size + 1).untyped_storage())


def test_a_copy_between_storages_is_in_the_log():
    X, Y = torch.ones(6, device="vgpu:0"), torch.ones(6, device="vgpu:1")
    with vgpu.record_copies() as copies:
        Y.untyped_storage().copy_(X.untyped_storage())
    assert [copy.nbytes for copy in copies] == [24]


def test_a_storage_is_made_with_its_account():
    storage = torch.UntypedStorage(1024, device="vgpu:1")
    assert torch.vgpu.memory_allocated(1) == 1024
    other = storage.clone()
    assert other != storage == storage.untyped()
    assert torch.vgpu.memory_allocated(1) == 2048
    del storage, other
    assert torch.vgpu.memory_allocated(1) == 0
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        torch.UntypedStorage(2 * 2**20, device="vgpu:1")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy])
def test_copies_share_what_they_share_on_the_cpu(copying, place):
    X = torch.arange(6.0, device=place, requires_grad=True)
    X.grad, X.note = torch.ones(6, device=place), ["kept"]
    whole, part = copying([X, X.detach()[2:4]])
    assert part.data_ptr() == whole.data_ptr() + 8
    other = copying(X)
    shallow = copying is copy.copy
    assert (other.device, other.requires_grad) == (X.device, True)
    assert other.note == ["kept"] and (other.note is X.note) is shallow
    assert (other.data_ptr() == X.data_ptr()) is shallow
    if not shallow:
        assert other.grad.tolist() == [1] * 6
    with torch.no_grad():
        other.zero_()
    assert X.tolist() == ([0] * 6 if shallow else [0, 1, 2, 3, 4, 5])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy])
def test_copies_of_parameters_are_parameters(copying, place):
    net = nn.Linear(3, 3).to(place)
    net.bias = nn.Parameter(torch.ones(3, device=place), requires_grad=False)
    net(torch.ones(3, device=place)).sum().backward()
    for X in net.parameters():
        other = copying(X)
        assert isinstance(other, nn.Parameter) and other.device == X.device
        assert other.requires_grad is X.requires_grad
        assert other.grad is None or copying is copy.copy
        assert (other.data_ptr() == X.data_ptr()) is (copying is copy.copy)
        assert other.tolist() == X.tolist()


@pytest.mark.skipif(torch.cuda.is_available(), reason="memory is really pinned")
def test_factories_mark_pinned_memory_and_views_share_the_mark():
    for X in (
        torch.empty(4, pin_memory=True),
        torch.tensor([1.0, 2.0], pin_memory=True),
        torch.zeros_like(torch.ones(4), pin_memory=True),
        torch.ones(4).pin_memory(),
    ):
        assert X.is_pinned() and X[1:].is_pinned()
        assert X.untyped_storage().is_pinned()
        assert not X.clone().is_pinned()
    assert not torch.empty(4, pin_memory=False).is_pinned()


def test_dlpack_passes_a_tensor_on_without_a_copy():
    X = torch.arange(6.0, device="vgpu:1")
    for Y in (
        torch.from_dlpack(X),
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(X)),
    ):
        assert Y.device == X.device
        Y += 1
    assert X.tolist() == [2, 3, 4, 5, 6, 7]
    assert torch.from_dlpack(torch.ones(2).numpy()).tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("place", ["cpu", "vgpu:1"])
def test_storages_are_made_as_on_the_cpu(place):
    assert torch.UntypedStorage(device=place).tolist() == []
    assert torch.UntypedStorage(3, device=place).nbytes() == 3
    assert torch.UntypedStorage([1, 2, 255], device=place).tolist() == [1, 2, 255]
    typed = torch.TypedStorage([1.5, 2.5], dtype=torch.float64, device=place)
    assert typed.tolist() == [1.5, 2.5]
    assert typed.device == torch.device(place)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("function", [torch.tensor, torch.as_tensor, torch.asarray])
@pytest.mark.parametrize("place", ["cpu", "vgpu:1"])
def test_a_tensor_is_made_around_a_storage(function, place):
    function = getattr(torch, function.__name__)
    X = torch.arange(6.0, device=place)
    for storage in (X.storage(), X.untyped_storage()):
        Y = function(storage, dtype=torch.float32)
        assert Y.data_ptr() == X.data_ptr()
        assert Y.device == X.device
        assert Y.tolist() == X.tolist()
    assert function(X.untyped_storage()).dtype is torch.int64
    assert function(X.storage()).dtype is torch.float32
    with pytest.raises(RuntimeError, match="Expected a Storage of type"):
        function(X.storage(), dtype=torch.int32)


@pytest.mark.parametrize("place", ["cpu", "vgpu:1"])
def test_asarray_takes_what_dlpack_passes(place):
    X = torch.arange(6.0, device=place)
    shared = torch.asarray(torch.utils.dlpack.to_dlpack(X))
    assert shared.data_ptr() == X.data_ptr()
    apart = torch.asarray(torch.utils.dlpack.to_dlpack(X), copy=True)
    assert apart.data_ptr() != X.data_ptr()
    assert apart.tolist() == X.tolist()


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("place", ["cpu", "vgpu:1"])
def test_deep_copies_of_tensors_and_storages_keep_what_they_share(place):
    X = torch.arange(6.0, device=place)
    Y, typed, untyped = copy.deepcopy([X, X.storage(), X.untyped_storage()])
    Y.add_(1)
    assert typed.tolist() == Y.tolist() == [1, 2, 3, 4, 5, 6]
    assert untyped.data_ptr() == Y.data_ptr() != X.data_ptr()
    assert type(typed) is torch.TypedStorage
    assert copy.deepcopy(X.storage()).tolist() == X.tolist() == [0, 1, 2, 3, 4, 5]
