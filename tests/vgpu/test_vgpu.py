"""Virtual GPUs as a user of PyTorch sees them."""

import copy
import gc
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from d2l_gpu import vgpu
from d2l_gpu.vgpu.sim.machine import HOST
from tests.helpers.fresh_process import run_program

MIB = 2**20


pytestmark = pytest.mark.virtual_gpus(2, memory="256MiB")


def gpu(i):
    return torch.device("vgpu", i)


def most_memory_used():
    """The most memory that this process has had so far, in bytes."""
    resource = pytest.importorskip("resource")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def same(virtual, plain):
    """Equal to the last bit, NaNs included."""
    virtual = virtual.cpu()
    assert virtual.dtype == plain.dtype
    assert virtual.shape == plain.shape
    assert virtual.numpy().tobytes() == plain.numpy().tobytes()
    return True


# ------------------------------------------------------------------ placement


def test_a_tensor_lives_where_it_was_created():
    X = torch.ones(2, 3, device="vgpu:1")
    assert X.device == gpu(1)
    assert (X + 1).device == gpu(1)
    assert str(X.device) == "vgpu:1"
    assert X.is_vgpu and not torch.ones(1).is_vgpu


def test_printing_looks_like_printing_a_tensor_of_a_gpu():
    X = torch.tensor([[1.5, 2], [3, 4]], device="vgpu:1")
    assert (
        repr(X)
        == "tensor([[1.5000, 2.0000],\n        [3.0000, 4.0000]], device='vgpu:1')"
    )
    W = nn.Parameter(torch.ones(1, device="vgpu:0"))
    assert repr(W) == (
        "Parameter containing:\ntensor([1.], device='vgpu:0', requires_grad=True)"
    )
    assert "grad_fn=<MulBackward0>" in repr(W * 2)
    assert f"{X[0, 0]:.1f}" == "1.5"


@pytest.mark.parametrize("make", ["ones", "zeros", "empty", "rand", "randn"])
def test_factories_take_the_device(make):
    X = getattr(torch, make)(3, 2, device="vgpu:1")
    assert (X.device, X.shape) == (gpu(1), (3, 2))


def test_what_is_made_of_a_tensor_is_on_its_device():
    X = torch.ones(2, dtype=torch.float64, device=gpu(1))
    for Y in (
        X.new_ones(3),
        X.new_tensor([1]),
        X.new_tensor(torch.ones(2)),
        torch.zeros_like(X),
        X.new(2, 3),
        X.new([1, 2]),
        X.new(),
    ):
        assert (Y.device, Y.dtype) == (X.device, X.dtype)
    assert X.new(2, 3).shape == (2, 3)
    assert X.new([1, 2]).tolist() == [1, 2]


def test_a_tensor_is_made_of_a_list_of_numbers_on_devices():
    a, b = torch.tensor(3, device=gpu(0)), torch.tensor(4, device=gpu(1))
    with vgpu.record_copies() as copies:
        X = torch.tensor([[a, 1], [b, 2]], device="vgpu:1")
    assert (X.device, X.tolist()) == (gpu(1), [[3, 1], [4, 2]])
    ways = [(each.source, each.target) for each in copies]
    assert ways == [(0, HOST), (1, HOST), (HOST, 1)]
    assert torch.as_tensor([a, b]).tolist() == torch.LongTensor([a, b]).tolist()
    assert torch.ones(1, device=gpu(1)).new_tensor([a, b]).device == gpu(1)
    with pytest.raises(ValueError, match="only one element tensors"):
        torch.tensor([torch.ones(2, device=gpu(1))])


def test_a_name_without_an_index_is_the_current_device():
    with torch.vgpu.device(1):
        assert torch.ones(1, device="vgpu").device == gpu(1)
        assert torch.accelerator.current_device_index() == 1
    assert torch.ones(1, device="vgpu").device == gpu(0)
    torch.accelerator.set_device_index(1)
    assert torch.arange(3, device="vgpu").device == gpu(1)


def test_the_current_device_belongs_to_a_thread():
    torch.vgpu.set_device(1)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.vgpu.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]


# ------------------------------------------------------------------ across devices


def test_a_number_on_the_cpu_may_stand_beside_a_device():
    X = torch.ones(2, device=gpu(1))
    assert (X * torch.tensor(2.0)).tolist() == [2, 2]
    assert (3 * X).device == gpu(1)


def test_indices_may_come_from_the_cpu():
    X = torch.arange(4, device=gpu(0))
    assert X[torch.tensor([0, 2])].tolist() == [0, 2]


def test_to_copies_only_where_something_changes():
    X = torch.ones(2, device=gpu(0))
    assert X.to(gpu(0)) is X
    assert X.cuda(0) is X
    assert X.to(gpu(0), copy=True) is not X
    Z = X.to(gpu(1))
    Z += 1
    assert X.tolist() == [1, 1]
    assert torch.ones(1).cuda(1).device == gpu(1)
    assert torch.ones(1).cuda().device == gpu(0)


def test_numpy_is_refused_as_on_a_gpu():
    X = torch.ones(2, device=gpu(1))
    with pytest.raises(TypeError, match=r"can't convert vgpu:1 device type tensor"):
        X.numpy()
    with pytest.raises(TypeError):
        np.asarray(X)
    assert X.cpu().numpy().tolist() == X.numpy(force=True).tolist() == [1, 1]


def test_the_log_says_what_crossed():
    X = torch.ones(2, 3)
    with vgpu.record_copies() as log:
        Y = X.to(gpu(0))
        Z = Y.to(gpu(1))
        Z.to(gpu(1))
        Z + 1
        Z.sum().item()
        Z.cpu()
        X.copy_(Y)
        Y.copy_(X.pin_memory(), non_blocking=True)
    assert log == [
        vgpu.Copy(24, -1, 0),
        vgpu.Copy(24, 0, 1, blocking=False),
        vgpu.Copy(4, 1, -1),
        vgpu.Copy(24, 1, -1),
        vgpu.Copy(24, 0, -1),
        vgpu.Copy(24, -1, 0, pinned=True, blocking=False),
    ]


def test_pinned_memory_is_a_copy_with_a_mark():
    X = torch.ones(2)
    assert not X.is_pinned()
    Y = X.pin_memory()
    assert Y.is_pinned() and Y is not X and not X.is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        X.to(gpu(0)).pin_memory()


# ------------------------------------------------------------------ views and memory


def test_a_peak_that_is_reset_is_what_is_in_use():
    X = torch.ones(256, device=gpu(1))
    torch.ones(1024, device=gpu(1))
    assert torch.vgpu.max_memory_allocated(1) == X.nbytes + 4096
    torch.vgpu.reset_peak_memory_stats(1)
    assert torch.vgpu.max_memory_allocated(1) == X.nbytes


def test_views_share_their_values():
    X = torch.zeros(2, 3, device=gpu(1))
    X[0] = 1
    X.T.add_(1)
    assert X.tolist() == [[2, 2, 2], [1, 1, 1]]


@pytest.mark.parametrize(
    "overflow",
    [
        lambda X: torch.empty(2**40, device=gpu(1)),
        lambda X: torch.arange(0, 1, 1e-12, device=gpu(1)),
        lambda X: X @ X.T,
        lambda X: X * X.T,
        lambda X: X.repeat(1, 2**16),
        lambda X: X.expand(-1, 2**16).contiguous(),
        lambda X: nn.functional.pad(X, (0, 2**16)),
        lambda X: torch.cat([X.expand(-1, 2**16)] * 2),
        lambda X: torch.stack([X.expand(-1, 2**15)] * 4),
        lambda X: X.new_zeros(2**40),
        lambda X: torch.outer(X[:, 0], X[:, 0]),
        lambda X: torch.cdist(X, X),
        lambda X: torch.bmm(X[None], X.T[None]),
        lambda X: torch.addmm(X[:1], X, X.T),
        lambda X: nn.functional.conv2d(X.view(1, 1, 128, 256), X.view(-1, 1, 1, 1)),
        lambda X: nn.functional.conv2d(
            X[:1].view(1, 1, 1, 1), X[:1].view(1, 1, 1, 1), padding=2**15
        ),
        lambda X: nn.functional.conv_transpose2d(
            X.view(1, 1, 128, 256), X[:1].view(1, 1, 1, 1), stride=256
        ),
        lambda X: X.expand(-1, 2**16).softmax(1),
        lambda X: torch._foreach_add([X.expand(-1, 2**16)], 1),
        lambda X: X.expand(-1, 2**16).double(),
        lambda X: X.expand(-1, 2**16).to(gpu(1), copy=True),
        lambda X: torch.zeros(1).expand(2**36).to(gpu(1)),
    ],
)
def test_an_overflow_is_refused_before_it_is_allocated(overflow):
    X = torch.ones(2**15, 1, device=gpu(1))
    before = most_memory_used()
    with pytest.raises(torch.OutOfMemoryError, match="vgpu out of memory"):
        overflow(X)
    assert most_memory_used() - before < 128 * MIB  # the least of these takes 4 GiB
    assert torch.vgpu.memory_allocated(1) == X.nbytes


def test_running_out_of_memory_in_backward_leaves_the_process_alive():
    x = torch.ones(4, 2**22, device=gpu(1), requires_grad=True)  # 64 MiB
    y = (x * 1).sigmoid()
    ballast = torch.empty(60 * MIB, dtype=torch.uint8, device=gpu(1))
    with pytest.raises(torch.OutOfMemoryError, match="vgpu out of memory"):
        y.backward(torch.ones_like(x).div_(2))
    del ballast
    assert (x.detach() + 1).sum().item() == 2 * x.numel()


def test_a_training_loop_leaves_no_memory_behind():
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).to(gpu(1))
    optimizer = torch.optim.Adam(net.parameters())
    X = torch.ones(4, 8, device=gpu(1))
    gc.collect()
    gc.disable()
    try:
        sizes = []
        for _ in range(20):
            optimizer.zero_grad()
            net(X).sum().backward()
            optimizer.step()
            sizes.append(torch.vgpu.memory_allocated(1))
        assert len(set(sizes[1:])) == 1
        del net, optimizer, X
        assert torch.vgpu.memory_allocated(1) == 0
    finally:
        gc.enable()


def test_out_grows_and_resize_are_accounted_for():
    out = torch.empty(0, device=gpu(0))
    torch.add(torch.ones(1024, device=gpu(0)), 1, out=out)
    assert out.shape == (1024,)
    assert torch.vgpu.memory_allocated(0) == 4096
    out.resize_(2048)
    assert torch.vgpu.memory_allocated(0) == 8192
    a = torch.ones(2, 3, device=gpu(0))
    b = a.detach()
    b.t_()
    assert (a.shape, b.shape) == ((2, 3), (3, 2))


def test_devices_are_set_up_anew_only_when_empty():
    X = torch.ones(1, device=gpu(0))
    with pytest.raises(RuntimeError, match="512 bytes are still in use"):
        vgpu.enable(3)
    del X
    vgpu.enable(3)
    assert torch.vgpu.device_count() == 3


@given(counts=st.lists(st.integers(1, 5), min_size=2, max_size=4))
def test_there_are_as_many_devices_as_were_asked_for_last(counts):
    for n in counts:
        vgpu.enable(n)
        assert torch.vgpu.device_count() == n
        for i in range(6):
            if i < n:
                assert torch.ones(1, device=gpu(i)).device == gpu(i)
                continue
            with pytest.raises(RuntimeError, match="invalid device ordinal"):
                torch.ones(1, device=gpu(i))


@pytest.mark.parametrize("n", [0, -1])
def test_senseless_numbers_of_devices(n):
    with pytest.raises(ValueError, match=f"at least 1, but got {n}"):
        vgpu.enable(n)


# ------------------------------------------------------------------ values


def test_values_are_those_of_the_cpu_with_the_same_seed():
    torch.manual_seed(0)
    virtual = torch.randn(100, device=gpu(1))
    torch.manual_seed(0)
    assert same(virtual, torch.randn(100))
    torch.vgpu.manual_seed(3)
    virtual = torch.rand(5, device=gpu(0))
    torch.manual_seed(3)
    assert same(virtual, torch.rand(5))


LOOKS = {
    "view": lambda x: x.view(2, 2),
    "slice": lambda x: x[1:],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "chunk": lambda x: x.chunk(2)[0],
    "clone": lambda x: x.clone(),
    "sum": lambda x: x.sum(),
    "in place": lambda x: x.add_(1),
    "requires_grad_": lambda x: x.requires_grad_(),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_inference_mode_makes_inference_tensors_of_what_it_would_on_the_cpu(look):
    def looked_at(device):
        def here(x):
            try:
                result = look(x)
            except RuntimeError as error:
                return str(error)
            return result.is_inference(), result.requires_grad, result.tolist()

        given = torch.arange(4.0, device=device)
        trained = torch.arange(4.0, device=device, requires_grad=True)
        with torch.inference_mode():
            made = torch.arange(4.0, device=device)
            inside = [here(x) for x in (given, trained, made)]
        return inside, [here(x) for x in (given, trained, made)]

    assert looked_at("vgpu:1") == looked_at("cpu")


def test_a_module_is_copied_and_read_in_inference_mode():
    net = nn.BatchNorm1d(2).to("vgpu:1")
    with torch.inference_mode():
        twin = copy.deepcopy(net)
        assert twin.state_dict()["weight"].device == torch.device("vgpu:1")
    assert twin.weight.requires_grad


def test_lazy_conjugates_and_negatives_are_resolved():
    x = torch.randn(3, dtype=torch.complex64)
    z = x.to(gpu(1))
    assert same((z.conj() * 2).resolve_conj(), (x.conj() * 2).resolve_conj())
    assert same(z.conj().imag.resolve_neg(), x.conj().imag.resolve_neg())
    assert same(z.conj().imag + 1, x.conj().imag + 1)
    assert z.conj().imag.is_neg() and not z.imag.is_neg()


def train(device, optimizer_class=torch.optim.SGD, **settings):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.LazyLinear(10),
    )
    net(torch.zeros(1, 1, 8, 8))
    X, y = torch.randn(32, 1, 8, 8), torch.randint(10, (32,))
    net.to(device)
    torch.manual_seed(1)  # for dropout: each device has its own generator
    optimizer = optimizer_class(net.parameters(), **settings)
    for i in range(0, 32, 8):
        optimizer.zero_grad()
        output = net(X[i : i + 8].to(device))
        nn.functional.cross_entropy(output, y[i : i + 8].to(device)).backward()
        optimizer.step()
    return net.state_dict()


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}),
        (torch.optim.Adam, {"lr": 1e-2}),
        (torch.optim.Adam, {"lr": 1e-2, "foreach": True}),
        (torch.optim.AdamW, {"lr": 1e-2, "foreach": False}),
    ],
)
def test_training_gives_bitwise_the_weights_of_the_cpu(optimizer, settings):
    plain = train("cpu", optimizer, **settings)
    virtual = train(gpu(1), optimizer, **settings)
    assert all(same(virtual[name], plain[name]) for name in plain)
    assert all(value.device == gpu(1) for value in virtual.values())


def test_two_threads_train_on_two_devices():
    plain = train("cpu")
    results = {}
    lock = threading.Lock()

    def work(i):
        with lock:  # the seed belongs to the process
            net = nn.Linear(3, 1).to(gpu(i))
        for _ in range(50):
            net.zero_grad()
            net(torch.ones(2, 3, device=gpu(i))).sum().backward()
        results[i] = net.weight.grad

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {i: g.device for i, g in results.items()} == {0: gpu(0), 1: gpu(1)}
    assert all(g.tolist() == [[2, 2, 2]] for g in results.values())
    assert plain


def test_autocast_computes_products_in_fewer_bits_as_on_the_cpu():
    X, W = torch.randn(4, 3), torch.randn(3, 2)
    with torch.autocast("vgpu", dtype=torch.bfloat16):
        virtual = (X.to(gpu(1)) @ W.to(gpu(1))) * 2
        assert (W.to(gpu(1)) + 1).dtype is torch.float32
    assert virtual.dtype is torch.bfloat16
    assert same(virtual.float(), (X.bfloat16() @ W.bfloat16() * 2).float())
    assert (X.to(gpu(1)) @ W.to(gpu(1))).dtype is torch.float32


# ------------------------------------------------------------------ autograd


def test_gradients_live_where_their_tensors_live():
    x = torch.ones(3, device=gpu(1), requires_grad=True)
    (x**2).sum().backward()
    assert x.grad.device == gpu(1)
    assert x.grad.tolist() == [2, 2, 2]


def test_gradients_cross_with_the_copies():
    x = torch.ones(3, device=gpu(0), requires_grad=True)
    (x.to(gpu(1)) * 2).cpu().sum().backward()
    assert x.grad.device == gpu(0)
    assert x.grad.tolist() == [2, 2, 2]


def test_a_gradient_of_another_device_is_refused():
    x = torch.ones(3, device=gpu(0), requires_grad=True)
    with pytest.raises(RuntimeError, match="expected device vgpu:0 but got vgpu:1"):
        (x * 2).backward(torch.ones(3, device=gpu(1)))


def test_an_error_below_a_backward_node_is_raised_and_does_not_end_the_process():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad.to(gpu(1)) + grad

    x = torch.ones(3, device=gpu(0), requires_grad=True)
    with pytest.raises(RuntimeError, match="found at least two devices"):
        (Broken.apply(x) * 2).sum().backward()
    assert (x + 1).sum().item() == 6


# ------------------------------------------------------------------ modules


def test_a_module_keeps_its_parameter_objects_wherever_it_goes():
    net = nn.Linear(3, 1)
    weight = net.weight
    net(torch.ones(1, 3)).sum().backward()
    output = net(torch.ones(1, 3))  # holds the graph, and so the parameters
    for device in (gpu(0), gpu(1), torch.device("cpu"), gpu(1)):
        values, grads = weight.tolist(), weight.grad.tolist()
        net.to(device)
        assert net.weight is weight
        assert weight.device == weight.grad.device == device
        assert isinstance(weight, nn.Parameter) and weight.requires_grad
        assert (weight.tolist(), weight.grad.tolist()) == (values, grads)
        output = net(torch.ones(1, 3, device=device))
        assert output.device == device
    assert net.cuda(0) is net
    assert weight.device == gpu(0)
    assert net.vgpu(1).weight.device == gpu(1)


def test_moving_a_module_copies_each_parameter_once():
    net = nn.Linear(3, 2)
    with vgpu.record_copies() as log:
        net.to(gpu(1))
    assert log == [vgpu.Copy(24, -1, 1), vgpu.Copy(8, -1, 1)]


def test_buffers_move_and_shared_parameters_stay_shared():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    net[2].weight = net[0].weight
    net.to(gpu(1))
    assert net[1].running_mean.device == gpu(1)
    assert net[2].weight is net[0].weight
    assert net[0].weight.device == gpu(1)
    assert len(list(net.parameters())) == 5


def test_an_optimizer_made_before_the_move_still_trains():
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net.to(gpu(0))
    before = net.weight.detach().clone()
    net(torch.ones(1, 2, device=gpu(0))).sum().backward()
    optimizer.step()
    assert (before - net.weight).flatten().tolist() == pytest.approx([1, 1])


@pytest.mark.parametrize("how", ["to", "device"])
def test_lazy_modules_become_real_on_their_device(how):
    torch.manual_seed(0)
    if how == "to":
        net = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d()).to(gpu(1))
    else:
        net = nn.Sequential(
            nn.LazyLinear(2, device=gpu(1)), nn.LazyBatchNorm1d(device=gpu(1))
        )
    weight = net[0].weight
    assert weight.device == gpu(1)
    assert copy.deepcopy(net[0]).weight.device == gpu(1)
    assert net(torch.ones(3, 4, device=gpu(1))).device == gpu(1)
    assert net[0].weight is weight
    assert (weight.shape, weight.device) == ((2, 4), gpu(1))
    assert net[1].running_mean.device == gpu(1)
    torch.manual_seed(0)
    plain = nn.LazyLinear(2)
    plain(torch.ones(3, 4))
    assert same(weight.detach(), plain.weight.detach())


def test_model_and_input_on_different_devices():
    net = nn.Linear(3, 1).to(gpu(0))
    with pytest.raises(
        RuntimeError,
        match=r"got mat1 is on vgpu:1, different from other tensors on vgp",
    ):
        net(torch.ones(2, 3, device=gpu(1)))


def test_optimizer_state_lives_with_its_parameters():
    net = nn.Linear(2, 1).to(gpu(1))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 2, device=gpu(1))).sum().backward()
    optimizer.step()
    state = optimizer.state[net.weight]
    assert state["exp_avg"].device == gpu(1)


# ------------------------------------------------------------------ copies and files


def test_deepcopy_is_a_copy_on_the_same_device():
    net = nn.Linear(2, 1).to(gpu(1))
    net(torch.ones(1, 2, device=gpu(1))).sum().backward()
    other = copy.deepcopy(net)
    assert net.weight.grad.tolist() == [[1, 1]]
    assert other.weight.grad is None  # PyTorch copies no gradients of parameters
    with torch.no_grad():
        other.weight.zero_()
    assert other.weight.device == gpu(1)
    assert isinstance(other.weight, nn.Parameter)
    assert net.weight.abs().sum() > 0


# ------------------------------------------------------------------ data loading


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_data_loader_go_to_a_device(workers):
    data = torch.utils.data.TensorDataset(torch.arange(10.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=workers)
    batches = [X.to(gpu(1)) for (X,) in loader]
    assert [len(X) for X in batches] == [4, 4, 2]
    assert torch.cat(batches).tolist() == list(range(10))


def test_a_data_set_on_a_device_is_batched_there():
    data = torch.utils.data.TensorDataset(torch.arange(10.0, device=gpu(1)))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    assert {X.device for (X,) in loader} == {gpu(1)}


# ------------------------------------------------------------------ torch.accelerator


def test_torch_accelerator_answers_for_virtual_gpus():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("vgpu")
    assert torch.accelerator.device_count() == 2
    X = torch.ones(256, device=gpu(1))
    assert torch.accelerator.memory_allocated(1) == 1024
    assert torch.accelerator.max_memory_allocated(gpu(1)) >= 1024
    free, total = torch.accelerator.get_memory_info(1)
    assert (free, total) == (256 * MIB - 1024, 256 * MIB)
    torch.accelerator.synchronize(gpu(1))
    with torch.accelerator.device_index(1):
        assert torch.accelerator.current_device_index() == 1
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.accelerator.synchronize(5)
    del X


# ------------------------------------------------------------------ what cannot be


def test_another_backend_in_the_one_place():
    out = run_program("vgpu/another_backend_in_the_one_place.py")
    assert out.startswith(
        "Virtual GPUs cannot be used here, because the backend 'other'"
    )


def test_an_old_pytorch_is_refused():
    from d2l_gpu.vgpu.backend import check_version

    check_version("2.10.0")
    check_version("3.0.1+cu999")
    for early in ("2.10.0.dev20251101+cpu", "2.10.0a0+git1234567", "2.10.0rc1"):
        check_version(early)
    with pytest.raises(
        RuntimeError, match=r"need PyTorch 2.10 or newer, but this is 2.9.1"
    ):
        check_version("2.9.1+cpu")


def test_importing_touches_nothing():
    out = run_program("vgpu/importing_touches_nothing.py")
    assert out == "True True privateuseone\n"
