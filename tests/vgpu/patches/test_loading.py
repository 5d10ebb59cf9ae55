"""Files of tensors on virtual GPUs: where they come back, and what they share."""

import io
import pickle
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from d2l_gpu import vgpu
from d2l_gpu.vgpu.sim.machine import HOST
from tests.helpers.fresh_process import run_fresh
from tests.helpers.properties import sizes

pytestmark = pytest.mark.virtual_gpus(2, memory="256MiB")

WAYS = {
    "zip": lambda thing, file: torch.save(thing, file),
    "first format": lambda thing, file: torch.save(
        thing, file, _use_new_zipfile_serialization=False
    ),
}


def gpu(i):
    return torch.device("vgpu", i)


def saved(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue()


def test_a_file_comes_back_where_it_was_or_where_it_is_mapped():
    net = nn.Linear(2, 1).to(gpu(1))
    data = saved(net.state_dict())
    for location, device in [(None, gpu(1)), ("vgpu:0", gpu(0)), ("cpu", "cpu")]:
        state = torch.load(io.BytesIO(data), weights_only=True, map_location=location)
        assert state["weight"].device == torch.device(device)
        assert torch.equal(state["weight"].cpu(), net.weight.detach().cpu())
    plain = saved({"x": torch.ones(2)})
    state = torch.load(io.BytesIO(plain), weights_only=True, map_location=gpu(1))
    assert state["x"].device == gpu(1)


@pytest.mark.parametrize("needs", [True, False])
def test_what_needs_a_gradient_needs_one_when_it_is_loaded(needs):
    X = torch.ones(2, requires_grad=needs)
    for thing in (X, nn.Parameter(torch.ones(2), needs)):
        for place in ("cpu", "vgpu:0"):
            data = io.BytesIO(saved(thing.detach().to(place).requires_grad_(needs)))
            assert torch.load(data, map_location="vgpu:1").requires_grad is needs


def test_plain_pytorch_reads_the_file(tmp_path):
    path = tmp_path / "net.pt"
    torch.save(nn.Linear(2, 1).to(gpu(1)).state_dict(), path)
    out = run_fresh(
        f"""
        import torch
        state = torch.load({str(path)!r}, weights_only=True, map_location="cpu")
        print({{k: tuple(v.shape) for k, v in state.items()}})
        """
    )
    assert out == "{'weight': (1, 2), 'bias': (1,)}\n"


def test_a_file_from_a_larger_machine_is_refused_in_the_words_of_pytorch():
    data = saved(torch.ones(2, device=gpu(1)))
    vgpu.enable(1)
    words = re.escape(
        "Attempting to deserialize object on VGPU device 1 but "
        "torch.vgpu.device_count() is 1. Please use torch.load with map_location"
    )
    with pytest.raises(RuntimeError, match=words):
        torch.load(io.BytesIO(data), weights_only=True)
    # PyTorch's own check, which real devices go through, says the same.
    with pytest.raises(RuntimeError, match=words):
        torch.serialization._validate_device("vgpu:1", "vgpu")


# ------------------------------------------------------------------ memory

PIECES = st.lists(st.tuples(sizes(0, 11), sizes(1, 11), sizes(1, 4)), max_size=4)


@given(pieces=PIECES, way=st.sampled_from(sorted(WAYS)), there=st.sampled_from([0, 1]))
def test_what_shares_memory_goes_on_to_share_it(pieces, way, there):
    whole = torch.arange(64.0, device=gpu(1))
    views = [whole.as_strided((size,), (step,), at) for at, size, step in pieces]
    file = io.BytesIO()
    WAYS[way]([whole, *views], file)
    used = torch.vgpu.memory_allocated(there)
    file.seek(0)
    loaded, *parts = torch.load(file, map_location=f"vgpu:{there}")
    assert torch.vgpu.memory_allocated(there) - used == 512
    assert all(x.device == gpu(there) for x in (loaded, *parts))
    assert [x.stride() for x in parts] == [x.stride() for x in views]
    loaded.neg_()
    for view, part in zip(views, parts, strict=True):
        assert part.tolist() == (-view).tolist()


def test_a_memory_crosses_the_link_once():
    X = torch.ones(1000, device=gpu(0))
    file = io.BytesIO()
    with vgpu.record_copies() as copies:
        torch.save([X, X[:10], X.view(10, 100), nn.Parameter(X)], file)
        file.seek(0)
        torch.load(file, map_location="vgpu:1")
    places = [(each.source, each.target, each.nbytes) for each in copies]
    assert places == [(0, HOST, X.nbytes), (HOST, 1, X.nbytes)]


def test_pickled_tensors_and_modules_come_back_where_they_were():
    net = nn.Linear(3, 2).to(gpu(1))
    X, other = pickle.loads(pickle.dumps([torch.arange(3.0, device=gpu(0)), net]))
    assert (X.device, other.weight.device) == (gpu(0), gpu(1))
    assert X.tolist() == [0, 1, 2]
    assert isinstance(other.weight, nn.Parameter)
    assert torch.equal(other.weight, net.weight)


def test_what_does_not_fit_is_refused_and_leaves_nothing():
    data = saved([torch.ones(2**20), torch.ones(64 * 2**20)])
    before = torch.vgpu.memory_allocated(1)
    with pytest.raises(torch.OutOfMemoryError):
        torch.load(io.BytesIO(data), map_location="vgpu:1")
    assert torch.vgpu.memory_allocated(1) == before


def test_storages_are_saved_too():
    storage = torch.arange(6.0, device=gpu(1)).untyped_storage()
    assert torch.is_storage(storage)
    for place in "vgpu:1", "vgpu:0", "cpu":
        data = io.BytesIO(saved(storage))
        loaded = torch.load(data, map_location=place).untyped()
        assert loaded.device == torch.device(place)
        assert loaded.tolist() == storage.tolist()


def test_a_function_says_where_storages_go():
    data = saved([torch.ones(2, device=gpu(1)), torch.ones(3)])
    seen = []

    def place(storage, location):
        seen.append(location)
        return storage.cuda(0) if location == "cpu" else None

    there, here = torch.load(io.BytesIO(data), map_location=place)
    assert seen == ["vgpu:1", "cpu"]
    assert (there.device, here.device) == (gpu(1), gpu(0))


@pytest.mark.parametrize("change", [torch.conj, lambda X: X.conj().imag])
@pytest.mark.parametrize("source", ["cpu", "vgpu:0"])
def test_what_is_conjugated_or_negated_lazily_stays_so(change, source):
    X = change(torch.tensor([1 + 2j, 3 - 4j]))
    data = saved(change(torch.tensor([1 + 2j, 3 - 4j], device=source)))
    for place in "cpu", "vgpu:1":
        loaded = torch.load(io.BytesIO(data), map_location=place)
        assert (loaded.is_conj(), loaded.is_neg()) == (X.is_conj(), X.is_neg())
        assert loaded.tolist() == X.tolist()
        assert (loaded * 2).tolist() == (X * 2).tolist()
