"""Programs that say ``cuda``, on a machine without: what they ask must fit.

Each test has a Python of its own, since the name stays once it is given.
"""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.fresh_process import NO_GPUS, PATH, run_fresh
from tests.helpers.paths import PROGRAMS
from tests.helpers.waiting import PATIENCE

TUTORIAL = PROGRAMS / "as_cuda" / "tutorial_2020.py"

START = """
import torch
from torch import nn
from d2l_gpu import vgpu
vgpu.enable(2, memory='64MiB', as_cuda=True)

def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f'no {kind.__name__}: {text}')
"""


def fresh(code: str) -> str:
    return run_fresh(START + code)


# ------------------------------------------------------------------ names


def test_a_tensor_answers_cuda_and_is_printed_as_what_it_is():
    printed = fresh("""
x = torch.ones(2, device='cuda:1')
assert x.device == torch.device('cuda:1') and x.device.type == 'cuda'
assert x.is_cuda and x.get_device() == 1 and not torch.ones(1).is_cuda
assert (x * 2).device == x.device and (x * 2)[0].device == x.device
assert nn.Linear(2, 2, device='cuda:1').weight.is_cuda
assert torch.testing.assert_close(x, torch.ones(2, device='cuda:1')) is None
print(x)
print(nn.Parameter(x))
""")
    assert printed == (
        "tensor([1., 1.], device='vgpu:1')\n"
        "Parameter containing:\ntensor([1., 1.], device='vgpu:1', requires_grad=True)\n"
    )


def test_errors_say_vgpu():
    fresh("""
x, y = torch.ones(2, 2, device='cuda:0'), torch.ones(2, 2, device='cuda:1')
raises(RuntimeError, 'at least two devices, vgpu:0 and vgpu:1!', lambda: x + y)
raises(RuntimeError, 'is on vgpu:1, different from other tensors on vgpu:0 (when '
       'checking argument in method wrapper_VGPU_', lambda: x @ y)
raises(TypeError, "can't convert vgpu:1 device type tensor to numpy", y.numpy)
raises(RuntimeError, 'there is no vgpu:2', lambda: torch.ones(1, device='cuda:2'))
raises(RuntimeError, 'there is no vgpu:2', lambda: torch.ones(1).to('cuda:2'))
raises(RuntimeError, 'there is no vgpu:2', lambda: torch.ones(1).cuda(2))
raises(torch.OutOfMemoryError, 'Simulated memory of a virtual GPU',
       lambda: torch.ones(2**26, device='cuda'))
w = torch.ones(2, device='cuda:0', requires_grad=True)
raises(RuntimeError, 'expected device vgpu:0 but got vgpu:1',
       lambda: (w * 2).backward(torch.ones(2, device='cuda:1')))
""")


def test_every_way_to_name_a_device():
    fresh("""
import numpy as np
host, there = torch.ones(2, 2), torch.ones(2, 2, device='cuda:1')
for device in ('cuda:1', torch.device('cuda:1'), torch.device('cuda', 1), 1, 'vgpu:1'):
    made = [
        *(f(2, 2, device=device) for f in (torch.ones, torch.rand, torch.empty)),
        *(f(host, device=device) for f in (torch.zeros_like, torch.rand_like)),
        *(f([1.0], device=device) for f in (torch.tensor, torch.as_tensor)),
        torch.asarray(np.ones(2), device=device),
        torch.as_tensor(np.ones(2), device=device),
        torch.arange(3, device=device),
        torch.full((2,), 1.0, device=device),
        torch.randint(3, (2,), device=device),
        torch.randperm(3, device=device),
        torch.linspace(0, 1, 3, device=device),
        torch.normal(0.0, 1.0, (2,), device=device),
        host.new_zeros(2, device=device),
        host.new_tensor([1.0], device=device),
        torch.zeros_like(torch.ones(2, device='cuda:0'), device=device),
        torch.ones(2, device='cuda:0').new_full((2,), 1.0, device=device),
        host.to(device),
        host.to(device=device),
        host.to(device, torch.float64),
        host.to(device, torch.float64, True),
        host.to(device=device, dtype=torch.float16, non_blocking=True),
        host.to(torch.ones(1, device=device)),
        host.cuda(device),
        nn.Linear(2, 2).to(device).weight,
        nn.Linear(2, 2).to(device=device, dtype=torch.float64).weight,
        nn.Linear(2, 2, device=device).weight,
        nn.Linear(2, 2).cuda(device).weight,
        nn.LazyLinear(2, device=device)(there),
        nn.LazyLinear(2).to(device)(there),
    ]
    assert {x.device for x in made} == {torch.device('cuda:1')}, (device, made)
    assert there.to(device) is there
    assert nn.LazyLinear(2, device=device).weight.device == there.device
assert there.new_tensor([1]).device == there.new(3).device == there.device
assert there.new_ones(2).device == torch.empty_like(there).device == there.device
assert there.to('cpu').device == there.cpu().device == torch.device('cpu')
assert torch.zeros_like(there, device='cpu').device.type == 'cpu'
assert host.to(torch.float64).device.type == 'cpu' and host.to('cpu') is host
assert nn.LazyLinear(2).to(torch.float64)(host.double()).device.type == 'cpu'
raises(RuntimeError, 'nonsense', lambda: host.to('nonsense'))
""")


def test_a_name_without_an_index_is_the_current_device():
    fresh("""
def made():
    return [
        torch.ones(2, device='cuda'), torch.tensor([1], device='cuda'),
        torch.ones(2).to('cuda'), torch.ones(2).to(device=torch.device('cuda')),
        torch.ones(2).cuda(), nn.Linear(2, 2).to('cuda').weight,
        nn.Linear(2, 2).cuda().bias, torch.ones(2).new_tensor([1], device='cuda'),
        torch.zeros_like(torch.ones(2), device='cuda'),
    ]

assert {x.get_device() for x in made()} == {0}
with torch.cuda.device(1):
    assert {x.get_device() for x in made()} == {1}
torch.cuda.set_device('cuda:1')
assert torch.cuda.current_device() == 1
assert {x.get_device() for x in made()} == {1}
""")


def test_default_devices():
    fresh("""
torch.set_default_device('cuda')
torch.cuda.set_device(1)
assert torch.ones(2).get_device() == torch.tensor([1.0]).get_device() == 1
assert nn.Linear(2, 2).weight.is_cuda
assert torch.get_default_device() == torch.device('cuda:1')
assert torch.ones(1, device='cpu').device.type == 'cpu'
torch.set_default_device(None)
with torch.device('cuda:0'):
    assert torch.rand(2).get_device() == torch.tensor([1]).get_device() == 0
assert torch.ones(1).device.type == torch.tensor([1]).device.type == 'cpu'
""")


def test_types_of_tensors():
    fresh("""
x = torch.ones(2, device='cuda:1')
assert x.type() == 'torch.cuda.FloatTensor' and torch.ones(2).type().count('.') == 1
assert isinstance(x, torch.cuda.FloatTensor)
assert not isinstance(torch.ones(2), torch.cuda.FloatTensor)
assert not isinstance(x, torch.cuda.LongTensor)
y = x.type('torch.cuda.LongTensor')
assert y.dtype is torch.int64 and y.get_device() == 1
assert torch.ones(2).type(torch.cuda.HalfTensor).is_cuda
assert x.type(torch.float64).dtype is torch.float64
assert torch.cuda.FloatTensor([1, 2]).tolist() == [1, 2]
torch.set_default_tensor_type('torch.cuda.DoubleTensor')
assert torch.ones(2).is_cuda and torch.ones(2).dtype is torch.float64
""")


def test_parameters_are_moved_by_setting_their_data():
    fresh("""
w = nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([w], lr=1.0)
(w * 2).sum().backward()
w.data = w.data.cuda(1)
w.grad.data = w.grad.data.cuda(1)
assert type(w.detach()) is type(torch.ones(1, device='cuda'))
assert isinstance(w, nn.Parameter) and w.is_leaf and w.requires_grad
(w * 2).sum().backward()
assert w.grad.tolist() == [4, 4] and w.grad.get_device() == w.get_device() == 1
optimizer.step()
assert w.tolist() == [-3, -3]
x = torch.ones(2)
x.data = torch.zeros(3)
assert x.shape == (3,) and not x.is_cuda
x.data = x.data.cuda()
assert x.is_cuda and not x.requires_grad and x.grad is None
""")


def test_annotations_for_compilers_and_profilers():
    run_fresh("""
        import torch
        from d2l_gpu import vgpu
        vgpu.enable(2, as_cuda=True)
        # TorchScript knows functions by their identity.
        assert torch.jit._builtins._find_builtin(torch.tensor) == 'aten::tensor'
        torch.cuda.nvtx.range_push('a'), torch.cuda.nvtx.range_pop()
    """)


# ------------------------------------------------------------------ torch.cuda


def test_torch_cuda_answers_for_virtual_gpus():
    fresh("""
cuda = torch.cuda
assert cuda.is_available() and cuda.device_count() == 2 and not cuda.is_initialized()
assert 'virtual' in cuda.get_device_name(0)
assert cuda.get_device_properties('cuda:1').total_memory == 64 * 2**20
assert cuda.get_device_capability() == (0, 0) and cuda.get_arch_list() == []
assert cuda.can_device_access_peer(0, 1) and cuda.is_bf16_supported()
assert cuda.mem_get_info(1) == (2**26, 2**26)
x = torch.ones(256, device='cuda:1')
assert cuda.is_initialized()
assert cuda.memory_allocated('cuda:1') == cuda.memory.memory_allocated(1) == 1024
assert cuda.memory_allocated() == 0 and cuda.memory_reserved(x.device) == 1024
del x
assert cuda.max_memory_allocated(1) == 1024
cuda.reset_peak_memory_stats(1)
assert cuda.max_memory_allocated(1) == 0 == cuda.memory_cached(1)
cuda.empty_cache(), cuda.ipc_collect(), cuda.init(), cuda.synchronize(0)
assert 'Simulated memory of vgpu:1' in cuda.memory_summary(1)

cuda.manual_seed_all(3)
state = cuda.get_rng_state()
first = torch.rand(3, device='cuda')
cuda.random.set_rng_state(state)
assert torch.equal(first, torch.rand(3, device='cuda:0'))
with torch.random.fork_rng(devices=[0]):
    second = torch.rand(3, device='cuda')
assert torch.equal(second, torch.rand(3, device='cuda'))

stream = cuda.Stream(device='cuda:1')
with cuda.stream(stream):
    assert cuda.current_stream() == stream and cuda.current_device() == 1
    end = stream.record_event()
assert isinstance(stream, cuda.Stream) and isinstance(end, cuda.Event)
assert cuda.current_device() == 0 and stream.device == torch.device('cuda:1')
cuda.current_stream().wait_stream(stream)
start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
start.record(), end.record(), end.synchronize()
assert start.elapsed_time(end) >= 0 and end.query()

generator = torch.Generator(device='cuda:1').manual_seed(3)
assert generator.device == torch.device('cuda:1')
assert torch.rand(2, device='cuda:1', generator=generator).get_device() == 1
assert torch.Generator('cuda').device == torch.device('cuda:0')

assert torch.accelerator.current_accelerator().type == 'cuda'
torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = True
torch.backends.cuda.matmul.allow_tf32 = True
nn.LSTM(2, 2).cuda()  # asks for cuDNN
""")


def test_what_needs_a_real_gpu_is_refused_with_a_sentence():
    fresh("""
x = torch.ones(2, device='cuda')
raises(NotImplementedError, 'Virtual GPUs hold strided tensors only',
       lambda: x.to_sparse())
for name, call in {
    'CUDAGraph': torch.cuda.CUDAGraph,
    'graph': lambda: torch.cuda.graph(None),
    'make_graphed_callables': lambda: torch.cuda.make_graphed_callables(None, ()),
    'utilization': torch.cuda.utilization,
    'nccl.all_reduce': lambda: torch.cuda.nccl.all_reduce([x]),
    'jiterator._create_jit_fn': lambda: torch.cuda.jiterator._create_jit_fn('f'),
}.items():
    raises(NotImplementedError, f'Virtual GPUs have no torch.cuda.{name}: ', call)
""")


def test_the_name_stays_and_devices_can_be_set_up_anew():
    fresh("""
vgpu.enable(3)
assert torch.ones(1, device='cuda:2').device == torch.device('cuda:2')
assert torch.cuda.device_count() == 3
vgpu.enable(1, as_cuda=True)
assert torch.cuda.device_count() == 1
""")


def test_without_it_the_name_means_nothing():
    run_fresh("""
        import torch
        from d2l_gpu import vgpu
        vgpu.enable(2)
        assert torch.ones(1, device='vgpu').device.type == 'vgpu'
        assert not torch.cuda.is_available()
        try:
            torch.ones(1, device='cuda')
        except (AssertionError, RuntimeError) as error:
            assert 'CUDA' in str(error) or 'NVIDIA' in str(error)
        else:
            raise AssertionError
    """)


def test_a_machine_with_cuda_is_refused():
    run_fresh("""
        import torch
        from d2l_gpu import vgpu
        torch.cuda.is_available = lambda: True
        try:
            vgpu.enable(2, as_cuda=True)
        except RuntimeError as error:
            assert 'since this machine has CUDA devices: hide them' in str(error)
        else:
            raise AssertionError
        assert not hasattr(torch, 'vgpu')  # refused before anything was changed
    """)


def test_use_virtual_gpus_as_cuda():
    printed = run_fresh("""
        import torch
        from d2l_gpu import torch as d2l
        d2l.use_virtual_gpus(2, memory='64MiB', as_cuda=True)
        d2l.use_virtual_gpus(2, memory='64MiB', as_cuda=True)
        x = torch.ones(1, device=d2l.gpu(1))
        assert x.device == d2l.gpu(1) == d2l.try_gpu(1) == torch.device('cuda:1')
        try:
            d2l.use_virtual_gpus(2, memory='64MiB')
        except RuntimeError as error:
            assert 'cannot be changed' in str(error)
        else:
            raise AssertionError
        assert [row[:2] for row in d2l.devices().rows] == [
            ['cpu', 'real'], ['vgpu:0', 'virtual'], ['vgpu:1', 'virtual']]
    """)
    line, again = printed.splitlines()
    assert line == again
    assert line == (
        "Using 2 virtual GPUs, vgpu:0 and vgpu:1, which answer to the names cuda:0 and "
        "cuda:1: computed on the CPU, memory simulated."
    )


# ------------------------------------------------------------------ mixed precision


def test_autocast_reaches_virtual_tensors():
    fresh("""
w, x = torch.rand(4, 4, device='cuda'), torch.rand(4, 4, device='cuda')
for context, dtype in (
    (torch.autocast('cuda'), torch.float16),
    (torch.autocast('cuda', dtype=torch.bfloat16), torch.bfloat16),
    (torch.amp.autocast('cuda', torch.bfloat16), torch.bfloat16),
    (torch.autocast(x.device.type), torch.float16),
):
    with context:
        assert torch.is_autocast_enabled() and torch.is_autocast_enabled('cuda')
        assert torch.get_autocast_dtype('cuda') is dtype
        assert not torch.is_autocast_enabled('cpu')
        assert (w @ x).dtype is dtype
        with torch.autocast('cuda', enabled=False):
            assert (w @ x).dtype is torch.float32
    assert not torch.is_autocast_enabled() and (w @ x).dtype is torch.float32
with torch.autocast('cpu'):
    assert (w @ x).dtype is torch.float32
    assert torch.is_autocast_enabled('cpu') and not torch.is_autocast_enabled('cuda')
""")


@pytest.mark.parametrize("device", ["cuda", "vgpu"])
def test_grad_scaler_skips_a_step_with_infinite_gradients(device):
    as_cuda = device == "cuda"
    run_fresh(f"""
        import torch
        from d2l_gpu import vgpu
        vgpu.enable(2, as_cuda={as_cuda})
        scaler = torch.amp.GradScaler({device!r}, init_scale=1024.0, growth_interval=1)
        weights = [torch.ones(2, device=f'{device}:{{i}}', requires_grad=True)
                   for i in range(2)]
        optimizer = torch.optim.SGD(weights, lr=0.5)
        assert scaler.is_enabled()

        def step(factor):
            optimizer.zero_grad()
            loss = (weights[0] * factor).sum() + weights[1].sum().to('{device}:0')
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()

        step(3.0)
        assert weights[0].grad.tolist() == [3.0, 3.0]
        assert weights[0].tolist() == [-0.5, -0.5] and weights[1].tolist() == [0.5, 0.5]
        assert scaler.get_scale() == 2048.0
        step(float('inf'))
        assert weights[0].tolist() == [-0.5, -0.5] and weights[1].tolist() == [0.5, 0.5]
        assert scaler.get_scale() == 1024.0
    """)


# ------------------------------------------------------------------ data parallel


@pytest.mark.parametrize("device", ["cuda", "vgpu"])
def test_data_parallel_has_the_gradients_of_one_device(device):
    as_cuda = device == "cuda"
    run_fresh(f"""
        import copy, torch
        from torch import nn
        from d2l_gpu import vgpu
        vgpu.enable(2, as_cuda={as_cuda})
        torch.manual_seed(0)
        # Halves are summed in another order, so not to the last bit.
        plain = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
        X, y = torch.randn(9, 5).double(), torch.randn(9, 3).double()
        nn.functional.mse_loss(plain(X), y).backward()

        seen = []
        net = copy.deepcopy(plain).to('{device}:0')
        net.zero_grad()
        net[0].register_forward_hook(
            lambda module, inputs, output: seen.append((
                output.get_device(), len(output),
                torch.accelerator.current_device_index(),
            ))
        )
        parallel = nn.DataParallel(net)
        assert parallel.device_ids == [0, 1]
        for inputs in (X.to('{device}:0'), X):  # scattered from a GPU, and from the CPU
            net.zero_grad()
            outputs = parallel(inputs)
            assert outputs.device == torch.device('{device}:0') and len(outputs) == 9
            nn.functional.mse_loss(outputs, y.to('{device}:0')).backward()
            for a, b in zip(net.parameters(), plain.parameters()):
                assert a.grad.device == torch.device('{device}:0')
                torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-12, atol=1e-14)
        assert sorted(set(seen)) == [(0, 5, 0), (1, 4, 1)]

        with torch.no_grad():
            both = nn.parallel.data_parallel(net, X, [1, 0][::-1], output_device=1)
        assert both.get_device() == 1
        torch.testing.assert_close(both.cpu(), plain(X).detach())
        replicas = nn.parallel.replicate(net, [0, 1])
        assert [r[0].weight.get_device() for r in replicas] == [0, 1]
        parts = nn.parallel.scatter(X, [0, 1])
        assert [len(part) for part in parts] == [5, 4]
        outputs = nn.parallel.parallel_apply(replicas, parts)
        gathered = nn.parallel.gather(outputs, 'cpu')
        assert gathered.device.type == 'cpu' and gathered.requires_grad
        gathered.sum().backward()
    """)


def test_data_parallel_carries_buffers_autocast_and_errors():
    fresh("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

    def forward(self, x, fail=False):
        if fail:
            raise ValueError('from a replica')
        assert not torch.is_autocast_enabled() or self.linear(x).dtype is torch.float16
        return {'out': self.norm(self.linear(x)), 'where': x}

net = nn.DataParallel(Net()).cuda()
x = torch.rand(6, 3)
before = net.module.norm.running_mean.clone()
result = net(x)
assert result['where'].tolist() == x.tolist()
assert not torch.equal(net.module.norm.running_mean, before)  # device 0 keeps its own
with torch.autocast('cuda'):
    net(x.cuda())
raises(ValueError, 'from a replica', lambda: net(x, fail=True))
net.to('cuda:1')
raises(RuntimeError, 'on device cuda:0 (device_ids[0]) but found', lambda: net(x))
""")


def test_comm():
    fresh("""
from torch.cuda import comm
x, y = torch.arange(6.0).view(3, 2), torch.ones(3, 2, device='cuda:1')
assert [t.get_device() for t in comm.broadcast(x, [0, 1])] == [0, 1]
assert [t.shape[1] for t in comm.scatter(x, ['cuda:0', 'cuda:1'], [1, 1], 1)] == [1, 1]
raises(RuntimeError, 'one chunk size for each of 2 devices, but got 1',
       lambda: comm.scatter(x, [0, 1], [3]))
assert comm.gather([x.cuda(0), y], destination=1).get_device() == 1
assert comm.gather([x.cuda(0), y], destination='cpu').tolist()[3:] == [[1, 1]] * 3
total = comm.reduce_add([x.cuda(0), y], 1)
assert total.get_device() == 1 and torch.equal(total.cpu(), x + 1)
out = [torch.empty(1, 2, device='cuda:0'), torch.empty(2, 2, device='cuda:1')]
comm.scatter(x, out=out)
assert torch.equal(comm.gather(out, out=torch.empty(3, 2, device='cuda:1')).cpu(), x)
comm.broadcast(x[:1], out=out[:1])
assert out[0].tolist() == [[0, 1]]
[[a], [b]] = comm.broadcast_coalesced([y], [1, 0])
assert a.data_ptr() == y.data_ptr() and b.get_device() == 0
with vgpu.record_copies() as copies:
    comm.broadcast(y, [0, 1])
assert [(c.nbytes, c.source, c.target) for c in copies] == [(24, 1, 0)]
""")


# ------------------------------------------------------------------ files and loaders


def test_files_are_loaded_where_the_program_says():
    fresh("""
import io

def saved(x, zipped=True):
    file = io.BytesIO()
    torch.save({'w': x, 'n': [x * 2]}, file, _use_new_zipfile_serialization=zipped)
    return file

def loaded(file, rule=None, **more):
    file.seek(0)
    values = torch.load(file, rule, **more)
    assert values['w'].device == values['n'][0].device
    assert values['w'].tolist() == [1, 1] and values['n'][0].tolist() == [2, 2]
    return str(values['w'].device)

own = saved(torch.ones(2, device='cuda:1'))
# What a program wrote on a real GPU: storages tagged with its name.
torch.serialization.register_package(1, lambda storage: 'cuda:1', lambda *_: None)
real, old = saved(torch.ones(2)), saved(torch.ones(2), zipped=False)
for file in (own, real, old):
    assert loaded(file) == 'cuda:1'
    assert loaded(file, 'cuda:0') == 'cuda:0'
    assert loaded(file, torch.device('cuda')) == 'cuda:0'
    assert loaded(file, 'cpu') == 'cpu'
    assert loaded(file, {'cuda:1': 'cuda:0'}) == 'cuda:0'
    assert loaded(file, {'cuda:1': 'cpu'}) == 'cpu'
    assert loaded(file, lambda storage, location: storage) == 'cpu'
    assert loaded(file, lambda storage, location: storage.cuda(0)) == 'cuda:0'
    assert loaded(file, lambda storage, location: None) == 'cuda:1'
    assert loaded(file, 'cuda:0', weights_only=False) == 'cuda:0'
raises(RuntimeError, 'there is no vgpu:7', lambda: loaded(own, 'cuda:7'))
raises(NotImplementedError, 'tensors, not storages', torch.UntypedStorage(1).cuda)
""")


def test_whole_modules_are_loaded_where_the_program_says():
    fresh("""
import io
for there in (False, True):
    file = io.BytesIO()
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    torch.save(module.cuda(1) if there else module, file)
    for rule, device in (
        ('cuda:0', 'cuda:0'), ('cpu', 'cpu'), (None, 'cuda:1' if there else 'cpu')
    ):
        file.seek(0)
        loaded = torch.load(file, rule, weights_only=False)
        for x in (*loaded.parameters(), *loaded.buffers()):
            assert x.device == torch.device(device)
        assert isinstance(loaded[0].weight, nn.Parameter)
        assert torch.equal(loaded[0].weight.cpu(), module[0].weight.cpu())
""")


def test_a_loader_pins_memory():
    fresh("""
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.arange(8.0), torch.arange(8))
for X, y in DataLoader(data, batch_size=4, pin_memory=True):
    assert X.is_pinned() and y.is_pinned() and X.device.type == 'cpu'
    assert X.to('cuda:1', non_blocking=True).tolist() == X.tolist()
""")


# ------------------------------------------------------------------ python -m


def run(*arguments, env=(), **options):
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | PATH | NO_GPUS | dict(env),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        **options,
    )


def run_virtual(*arguments, **options):
    return run("-m", "d2l_gpu.vgpu", *map(str, arguments), **options)


def test_a_tutorial_of_2020_runs_unmodified():
    done = run_virtual("--gpus", 2, TUTORIAL, "--epochs", 6, "--workers", 1)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    # The replicas run in threads.
    assert sorted(lines[4:6]) == [
        "  in forward: (4, 20) cuda:0",
        "  in forward: (4, 20) cuda:1",
    ]
    assert lines[:4] + lines[6:] == [
        "GPUs: 2 virtual GPU, computed on the CPU",
        "model parallel",
        "  loss fell: True",
        "data parallel",
        "  loss fell: True",
        "loaded on: cuda:1 True 1",
        "tensor: tensor([1.], device='vgpu:1')",
        "memory in use: True",
    ]
    assert done.stderr.splitlines()[0] == (
        "python -m d2l_gpu.vgpu: 2 virtual GPUs, simulated on the CPU, answer to the "
        "name cuda."
    )


def test_the_tutorial_fails_without():
    done = run(TUTORIAL)
    assert done.returncode == 1
    assert done.stderr == "This tutorial needs CUDA.\n"


def test_profilers_record_the_cpu():
    code = """
for options in ({'use_device': 'cuda'}, {'use_cuda': True}):
    with torch.autograd.profiler.profile(**options) as log:
        torch.ones(2, device='cuda') + 1
    assert any(e.key == 'aten::add' for e in log.key_averages())
"""
    done = run("-c", START + code)
    assert done.returncode == 0, done.stderr
    assert "Failed to record CUDA event" not in done.stderr  # the profiler's own log


@pytest.fixture
def script(tmp_path):
    def write(code: str, name: str = "program.py") -> Path:
        path = tmp_path / name
        path.write_text(code)
        return path

    return write


WHERE = """
import atexit, sys, __main__
from neighbour import VALUE
atexit.register(lambda: print('at the end', __main__.VALUE))
print(sys.argv[1:], VALUE, __name__, __main__.__file__ == __file__)
print(sys.argv[0] == __file__, sys.path[0])
"""


def test_a_script_runs_as_python_would_run_it(script, tmp_path):
    script("VALUE = 3", "neighbour.py")
    path = script(WHERE)
    (tmp_path / "elsewhere").mkdir()
    for program, folder in ((path.name, "."), (path, "elsewhere")):
        place = {"cwd": tmp_path / folder}
        plain = run(program, "a", "--gpus", "7", **place)
        done = run_virtual("--gpus", 1, program, "a", "--gpus", "7", **place)
        assert plain.returncode == done.returncode == 0, done.stderr
        assert done.stdout == plain.stdout
        assert done.stderr.count("\n") == 1
        assert "1 virtual GPU, simulated on the CPU, answers to" in done.stderr


def test_a_module_runs_as_python_would_run_it(script, tmp_path):
    script("VALUE = 3", "neighbour.py")
    script(WHERE)
    plain = run("-m", "program", "a", "-m", "b", cwd=tmp_path)
    done = run_virtual("-m", "program", "a", "-m", "b", cwd=tmp_path)
    assert plain.returncode == done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout


def test_a_package_sees_cuda_when_it_is_imported(script, tmp_path):
    (tmp_path / "package").mkdir()
    script("import torch; SEEN = torch.cuda.is_available()", "package/__init__.py")
    script("from package import SEEN; print(SEEN)", "package/train.py")
    done = run_virtual("-m", "package.train", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    done = run_virtual("-m", "package.missing", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("ImportError: No module named package.missing\n")


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_that_the_program_starts_have_virtual_gpus(script, method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this system")
    path = script(f"""
import torch
import torch.multiprocessing as mp

AT_IMPORT = torch.cuda.device_count()

def work(rank, queue):
    x = torch.ones(2, device=f'cuda:{{rank}}')
    queue.put(f'{{AT_IMPORT}} {{x.device}} {{x}}')

if __name__ == '__main__':
    context = mp.get_context({method!r})
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(1, queue))
    process.start()
    print(queue.get())
    process.join()
    print(process.exitcode)
""")
    done = run_virtual("--gpus", 2, path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 cuda:1 tensor([1., 1.], device='vgpu:1')\n0\n"


def test_memory_of_the_virtual_gpus(script):
    path = script("import torch; print(torch.cuda.mem_get_info(1)[1])")
    assert run_virtual("--gpus", 2, "--memory", "64MiB", path).stdout == f"{2**26}\n"


@pytest.mark.parametrize(
    "ending", ["raise SystemExit(7)", "import sys; sys.exit('bye')", "1 / 0", "x ="]
)
def test_a_program_ends_as_it_would(script, ending):
    path = script(f"def f():\n    {ending}\nf()\n")
    plain, done = run(path), run_virtual(path)
    assert done.returncode == plain.returncode != 0
    label, _, rest = done.stderr.partition("\n")
    assert "simulated" in label
    assert rest == plain.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name the script to run, or -m and a module."),
        (["-m"], "name the script to run, or -m and a module."),
        (["missing.py"], "there is no file 'missing.py'."),
        (["-m", "missing.module"], "there is no module named 'missing.module'."),
        (["--gpus", "0", TUTORIAL], "The number of virtual GPUs is at least 1, not 0."),
        (["--gpus", "two", TUTORIAL], "argument --gpus: invalid int value: 'two'"),
        (["--memory", "lots", TUTORIAL], "Memory 'lots' is not understood"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    done = run_virtual(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    usage, error = done.stderr.splitlines()
    assert usage.startswith("usage: python -m d2l_gpu.vgpu [--gpus N]")
    assert error.startswith(f"python -m d2l_gpu.vgpu: error: {sentence}")
