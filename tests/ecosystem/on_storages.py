"""Storages, copies, files, pinned memory, and memory shared between processes."""

import copy
import io

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.ecosystem.support import (
    batch,
    close,
    folder,
    main,
    mlp,
    raises,
    same_gradients,
    same_parameters,
    train,
)

NEEDS = ("torch",)


# ------------------------------------------------------------------ storages


def check_a_storage_knows_its_place():
    """The storage of a tensor on a GPU knows its bytes and device, and moves."""
    X = torch.arange(6.0, device="cuda:1")
    storage = X.untyped_storage()
    assert isinstance(storage, torch.UntypedStorage)
    assert storage.nbytes() == len(storage) == X.nbytes == 24
    assert storage.device == torch.device("cuda:1") == X[2:].untyped_storage().device
    assert storage.is_cuda and storage.get_device() == 1
    host = storage.cpu()
    assert host.device == torch.device("cpu") and host.nbytes() == 24
    close(torch.empty(0).set_(host), torch.arange(6.0), "cpu")
    other = host.cuda(0)
    assert other.device == torch.device("cuda:0")
    close(torch.empty(0, device="cuda:0").set_(other), torch.arange(6.0), "cuda:0")
    assert X.storage().tolist() == list(range(6))


def check_storages_are_copied_into_each_other():
    """Storage.copy_ copies bytes between devices, and all views see it."""
    X = torch.zeros(2, 3, device="cuda:0")
    view = X.t()
    source = torch.arange(6.0)
    X.untyped_storage().copy_(source.untyped_storage())
    close(view, source.reshape(2, 3).t(), "cuda:0")
    Y = torch.zeros(6, device="cuda:1")
    Y.untyped_storage().copy_(X.untyped_storage(), non_blocking=True)
    close(Y, source, "cuda:1")
    back = torch.zeros(6)
    back.untyped_storage().copy_(Y.untyped_storage())
    close(back, source, "cpu")
    Y.untyped_storage().fill_(0)
    assert not Y.any()


def check_memory_is_given_back_and_taken_again():
    """Resizing a storage to nothing frees its memory, and to its size gets it again."""
    before = torch.cuda.memory_allocated()
    X = torch.ones(1000, 1000, device="cuda")
    nbytes = X.untyped_storage().nbytes()
    assert torch.cuda.memory_allocated() - before >= nbytes == 4_000_000
    X.untyped_storage().resize_(0)
    assert torch.cuda.memory_allocated() == before
    assert X.untyped_storage().size() == 0 and X.shape == (1000, 1000)
    X.untyped_storage().resize_(nbytes)
    X.copy_(torch.full((1000, 1000), 3.0))
    close(X.sum(), torch.tensor(3e6), "cuda:0")
    storage = torch.UntypedStorage(16, device="cuda:1")
    Y = torch.tensor([], device="cuda:1").set_(storage, 0, (2, 2))
    Y.copy_(torch.eye(2))
    close(Y, torch.eye(2), "cuda:1")
    assert Y.data_ptr() == storage.data_ptr()


def check_addresses_tell_what_is_shared():
    """Addresses of tensors on GPUs tell views from copies, and count in bytes."""
    X = torch.arange(6.0, device="cuda")
    assert X.data_ptr() == X.view(2, 3).data_ptr() == X.detach().data_ptr()
    assert X[2:].data_ptr() == X.data_ptr() + 8
    assert X[2:].untyped_storage().data_ptr() == X.untyped_storage().data_ptr()
    assert X[2:].storage_offset() == 2
    assert X.clone().data_ptr() != X.data_ptr() != X.to("cuda:1").data_ptr()
    assert X.to("cuda:0").data_ptr() == X.cuda().data_ptr() == X.data_ptr()
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to("cuda")
    net[1].weight = net[0].weight
    by_storage = {p.untyped_storage()._cdata for p in net.parameters()}
    assert len(by_storage) == 3  # one weight and two biases
    assert X.untyped_storage()._cdata == X[1:].untyped_storage()._cdata
    assert X[1:]._base is X


# ------------------------------------------------------------------ copies


def check_shallow_copies_share_memory():
    """copy.copy of a tensor on a GPU shares its memory, as it does on the CPU."""
    X = torch.zeros(3, device="cuda")
    other = copy.copy(X)
    assert other is not X and other.data_ptr() == X.data_ptr()
    other.add_(1)
    close(X, torch.ones(3), "cuda:0")
    parameter = nn.Parameter(torch.zeros(3, device="cuda"))
    assert copy.copy(parameter).data_ptr() == parameter.data_ptr()
    assert isinstance(copy.copy(parameter), nn.Parameter)


def check_deep_copies_keep_what_is_shared():
    """copy.deepcopy makes new memory, but copies of views still share it."""
    X = torch.arange(6.0, device="cuda:1")
    X.note = "kept"
    whole, part = copy.deepcopy([X, X[2:4]])
    assert whole.device == part.device == torch.device("cuda:1")
    assert whole.data_ptr() != X.data_ptr()
    assert whole.note == "kept"
    part.zero_()
    close(whole, torch.tensor([0.0, 1.0, 0.0, 0.0, 4.0, 5.0]), "cuda:1")
    close(X, torch.arange(6.0), "cuda:1")
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to("cuda:1")
    net[1].weight = net[0].weight
    net(torch.ones(1, 2, device="cuda:1")).sum().backward()
    other = copy.deepcopy(net)
    assert other[1].weight is other[0].weight is not net[0].weight
    close(other[0].weight, net[0].weight, "cuda:1")
    assert other[0].weight.grad is None  # PyTorch copies no gradients of parameters


def check_tensors_are_passed_by_dlpack():
    """DLPack passes tensors of a GPU on without copying, and says where they are."""
    X = torch.arange(6.0, device="cuda:1").reshape(2, 3)
    kind, index = X.__dlpack_device__()
    assert (int(kind), index) == (2, 1)  # kDLCUDA
    Y = torch.from_dlpack(X)
    assert Y.device == torch.device("cuda:1")
    assert Y.data_ptr() == X.data_ptr() and Y.shape == (2, 3)
    Y.zero_()
    assert not X.any()
    capsule = torch.utils.dlpack.to_dlpack(X[:, 1:])
    Z = torch.utils.dlpack.from_dlpack(capsule)
    X.fill_(2.0)
    close(Z, torch.full((2, 2), 2.0), "cuda:1")
    raises(TypeError, lambda: np.asarray(X), "Use Tensor.cpu()")


# ------------------------------------------------------------------ files


def check_every_way_to_name_where_a_file_is_loaded():
    """torch.load puts tensors where map_location says, in all its forms."""
    X, Y = torch.arange(3.0, device="cuda:0"), torch.arange(4, device="cuda:1")
    file = io.BytesIO()
    torch.save({"X": X, "inside": [Y, {"view": X[1:]}]}, file)
    for where, of_x, of_y in (
        (None, "cuda:0", "cuda:1"),
        ("cpu", "cpu", "cpu"),
        ("cuda:1", "cuda:1", "cuda:1"),
        ("cuda", "cuda:0", "cuda:0"),
        (torch.device("cuda", 1), "cuda:1", "cuda:1"),
        ({"cuda:0": "cuda:1"}, "cuda:1", "cuda:1"),
        ({"cuda:1": "cpu"}, "cuda:0", "cpu"),
        (lambda storage, place: storage, "cpu", "cpu"),
        (lambda storage, place: storage.cuda(1), "cuda:1", "cuda:1"),
        (lambda storage, place: None, "cuda:0", "cuda:1"),
    ):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        close(loaded["X"], X, of_x)
        close(loaded["inside"][0], Y, of_y)
        close(loaded["inside"][1]["view"], X[1:], of_x)


def check_files_keep_what_is_shared():
    """Tensors of a GPU that share memory are saved once, and share it when loaded."""
    X = torch.arange(1000.0, device="cuda:0")
    file = io.BytesIO()
    torch.save({"whole": X, "part": X[10:20]}, file)
    assert file.getbuffer().nbytes < 1.8 * X.nbytes
    for where in None, "cuda:1", "cpu":
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        loaded["part"].zero_()
        assert not loaded["whole"][10:20].any(), where
        close(loaded["whole"][20:], X[20:], where or "cuda:0")
    net = mlp().to("cuda:1")
    net[0].weight = nn.Parameter(net[0].weight.detach().t().contiguous().t())
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    assert torch.load(file)["0.weight"].stride() == net[0].weight.stride() == (1, 16)


def check_training_resumes_from_a_file_elsewhere():
    """A checkpoint of model and optimizer from one GPU continues on the other."""
    X, Y = batch()
    expected = mlp()
    optimizer = torch.optim.Adam(expected.parameters())

    def step(model, optimizer, device):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(X.to(device)), Y.to(device)).backward()
        optimizer.step()

    for _ in range(3):
        step(expected, optimizer, "cpu")
    model = mlp().to("cuda:0")
    optimizer = torch.optim.Adam(model.parameters())
    step(model, optimizer, "cuda:0")
    with folder() as path:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, path / "state.pt")
        state = torch.load(path / "state.pt", map_location="cuda:1", mmap=True)
        model = mlp().to("cuda:1")
        model.load_state_dict(state["model"], assign=True)
        optimizer = torch.optim.Adam(model.parameters())
        optimizer.load_state_dict(state["optimizer"])
        for _ in range(2):
            step(model, optimizer, "cuda:1")
        same_parameters(model, expected, "cuda:1", rtol=1e-3)
        moment = optimizer.state[model[0].weight]["exp_avg"]
        assert moment.device == torch.device("cuda:1")
        torch.save(model, path / "whole.pt")
        whole = torch.load(path / "whole.pt", weights_only=False)
        same_parameters(whole, model, "cuda:1")


# ------------------------------------------------------------------ the host's memory


def check_pinned_memory():
    """Tensors are made in pinned memory or moved there, and loaders pin batches."""
    for X in (
        torch.empty(4, pin_memory=True),
        torch.zeros(4, pin_memory=True),
        torch.tensor([1.0, 2.0], pin_memory=True),
        torch.arange(4.0).pin_memory(),
        torch.empty_like(torch.ones(4), pin_memory=True),
    ):
        assert X.is_pinned() and X.device == torch.device("cpu")
        assert X.view(-1).is_pinned()
        close(X.to("cuda", non_blocking=True), X, "cuda:0")
    assert not torch.ones(4).is_pinned()
    host = torch.empty(4, pin_memory=True)
    host.copy_(torch.arange(4.0, device="cuda"), non_blocking=True)
    torch.cuda.synchronize()
    close(host, torch.arange(4.0), "cpu")
    assert host.untyped_storage().is_pinned()
    data = TensorDataset(*batch())
    for workers in 0, 2:
        for x, y in DataLoader(data, 4, pin_memory=True, num_workers=workers):
            assert x.is_pinned() and y.is_pinned()
            assert x.cuda(non_blocking=True).device == torch.device("cuda:0")


def check_saved_tensors_wait_on_the_cpu():
    """Inside save_on_cpu, tensors saved for backward wait in the host's memory."""
    X, Y = batch(64)
    expected, model = mlp(), mlp().to("cuda")
    nn.functional.mse_loss(expected(X), Y).backward()
    x, y = X.cuda(), Y.cuda()
    used = []
    for pin in None, False, True:
        model.zero_grad()
        before = torch.cuda.memory_allocated()
        if pin is None:
            output = model(x)
        else:
            with torch.autograd.graph.save_on_cpu(pin_memory=pin):
                output = model(x)
        used.append(torch.cuda.memory_allocated() - before)
        nn.functional.mse_loss(output, y).backward()
        same_gradients(model, expected, "cuda:0")
        del output
    assert used[1] < used[0] and used[2] == used[1], used


def check_tensors_are_shared_with_another_process():
    """A tensor of a GPU sent to a spawned process is the same memory there."""
    X = torch.zeros(4, device="cuda:1")
    model = mlp().to("cuda:0")
    assert X.share_memory_() is X and X.is_shared()
    model.share_memory()
    context = mp.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    process = context.Process(target=change, args=(queue, done, model))
    process.start()
    queue.put(X)
    assert done.wait(60), "The process didn't finish."
    close(X, torch.arange(4.0), "cuda:1")
    expected = mlp()
    train(expected, *batch())
    same_parameters(model, expected, "cuda:0")
    process.join()
    assert process.exitcode == 0


def change(queue, done, model):
    X = queue.get()
    assert X.device == torch.device("cuda:1")
    X.copy_(torch.arange(4.0))
    train(model, *(t.to("cuda:0") for t in batch()))
    torch.cuda.synchronize()
    del X, model
    done.set()


if __name__ == "__main__":
    main(globals())
