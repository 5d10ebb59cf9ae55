import pytest
import torch
from all_reduce import all_reduce, split

from d2l_gpu import vgpu


@pytest.mark.virtual_gpus(4)
def test_every_device_has_the_sum(virtual_gpus):
    tensors = [torch.full((3,), i + 1.0, device=d) for i, d in enumerate(virtual_gpus)]
    all_reduce(tensors)
    assert [tensor.device for tensor in tensors] == virtual_gpus
    assert all(tensor.tolist() == [10, 10, 10] for tensor in tensors)


def test_a_batch_crosses_once(virtual_gpus):
    X = torch.arange(8.0)
    with vgpu.record_copies() as copies:
        parts = split(X, virtual_gpus)
    assert torch.cat([part.cpu() for part in parts]).equal(X)
    assert [(copy.nbytes, copy.target) for copy in copies] == [(16, 0), (16, 1)]


@pytest.mark.virtual_gpus(1, memory="1MiB")
def test_a_batch_too_large_for_the_device(virtual_gpus):
    with pytest.raises(torch.OutOfMemoryError):
        split(torch.ones(2**20), virtual_gpus)
