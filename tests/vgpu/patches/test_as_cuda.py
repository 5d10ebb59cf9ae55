"""Programs that say ``cuda``, on a machine without: what they ask must fit.

Each test has a Python of its own, since the name stays once it is given.
"""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.fresh_process import NO_GPUS, PATH, run_fresh, run_program
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
    printed = run_program("as_cuda/a_tensor_answers_cuda.py")
    assert printed == (
        "tensor([1., 1.], device='vgpu:1')\n"
        "Parameter containing:\ntensor([1., 1.], device='vgpu:1', requires_grad=True)\n"
    )


@pytest.mark.all
def test_errors_say_vgpu():
    run_program("as_cuda/errors_say_vgpu.py")


def test_a_checkpoint_drops_the_same_elements_again():
    fresh("""
from torch.utils.checkpoint import checkpoint
gradients = []
for call in (lambda f, X: f(X)), (lambda f, X: checkpoint(f, X, use_reentrant=False)):
    torch.manual_seed(0)
    X = torch.ones(64, 64, device='cuda:1', requires_grad=True)
    call(lambda X: nn.functional.dropout(X).exp(), X).sum().backward()
    gradients.append(X.grad.cpu())
assert torch.equal(*gradients)
""")


def test_every_way_to_name_a_device():
    run_program("as_cuda/every_way_to_name_a_device.py")


@pytest.mark.all
def test_a_name_without_an_index_is_the_current_device():
    run_program("as_cuda/a_name_without_an_index_is_the_current_device.py")


@pytest.mark.all
def test_default_devices():
    run_program("as_cuda/default_devices.py")


@pytest.mark.all
def test_tensors_that_contain_others_say_cuda():
    run_program("as_cuda/wrappers_say_cuda.py")


@pytest.mark.all
def test_types_of_tensors():
    run_program("as_cuda/types_of_tensors.py")


@pytest.mark.all
def test_parameters_are_moved_by_setting_their_data():
    run_program("as_cuda/parameters_are_moved_by_setting_their_data.py")


@pytest.mark.all
def test_annotations_for_compilers_and_profilers():
    run_program("as_cuda/annotations_for_compilers_and_profilers.py")


# ------------------------------------------------------------------ torch.cuda


def test_torch_cuda_answers_for_virtual_gpus():
    run_program("as_cuda/torch_cuda_answers_for_virtual_gpus.py")


@pytest.mark.all
def test_what_needs_a_real_gpu_is_refused_with_a_sentence():
    run_program("as_cuda/what_needs_a_real_gpu.py")


@pytest.mark.all
def test_the_name_stays_and_devices_can_be_set_up_anew():
    run_program("as_cuda/the_name_stays.py")


def test_without_it_the_name_means_nothing():
    run_program("as_cuda/without_it_the_name_means_nothing.py")


def test_a_machine_with_cuda_is_refused():
    run_program("as_cuda/a_machine_with_cuda_is_refused.py")


def test_use_virtual_gpus_as_cuda():
    printed = run_program("as_cuda/use_virtual_gpus_as_cuda.py")
    line, again = printed.splitlines()
    assert line == again
    assert line == (
        "Using 2 virtual GPUs, vgpu:0 and vgpu:1, available as cuda:0 and "
        "cuda:1: computed on the CPU, memory simulated."
    )


# ------------------------------------------------------------------ mixed precision


def test_autocast_reaches_virtual_tensors():
    run_program("as_cuda/autocast_reaches_virtual_tensors.py")


@pytest.mark.parametrize(
    "device", ["cuda", pytest.param("vgpu", marks=pytest.mark.all)]
)
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


@pytest.mark.parametrize(
    "device", ["cuda", pytest.param("vgpu", marks=pytest.mark.all)]
)
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


@pytest.mark.all
def test_data_parallel_carries_buffers_autocast_and_errors():
    run_program("as_cuda/data_parallel_carries_more.py")


@pytest.mark.all
def test_comm():
    run_program("as_cuda/comm.py")


# ------------------------------------------------------------------ files and loaders


@pytest.mark.all
def test_files_are_loaded_where_the_program_says():
    run_program("as_cuda/files_are_loaded.py")


@pytest.mark.all
def test_whole_modules_are_loaded_where_the_program_says():
    run_program("as_cuda/whole_modules_are_loaded.py")


def test_a_loader_pins_memory():
    run_program("as_cuda/a_loader_pins_memory.py")


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


@pytest.mark.all
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
        "GPUs: 2 virtual GPU: computed on the CPU",
        "model parallel",
        "  loss fell: True",
        "data parallel",
        "  loss fell: True",
        "loaded on: cuda:1 True 1",
        "tensor: tensor([1.], device='vgpu:1')",
        "memory in use: True",
    ]
    assert done.stderr.splitlines()[0] == (
        "python -m d2l_gpu.vgpu: 2 virtual GPUs, simulated on the CPU, are available "
        "as cuda."
    )


@pytest.mark.all
def test_the_tutorial_fails_without():
    done = run(TUTORIAL)
    assert done.returncode == 1
    assert done.stderr == "This tutorial needs CUDA.\n"


@pytest.mark.all
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


@pytest.mark.all
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
        assert "1 virtual GPU, simulated on the CPU, is available as" in done.stderr


@pytest.mark.all
def test_a_module_runs_as_python_would_run_it(script, tmp_path):
    script("VALUE = 3", "neighbour.py")
    script(WHERE)
    plain = run("-m", "program", "a", "-m", "b", cwd=tmp_path)
    done = run_virtual("-m", "program", "a", "-m", "b", cwd=tmp_path)
    assert plain.returncode == done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout


@pytest.mark.all
def test_a_package_sees_cuda_when_it_is_imported(script, tmp_path):
    (tmp_path / "package").mkdir()
    script("import torch; SEEN = torch.cuda.is_available()", "package/__init__.py")
    script("from package import SEEN; print(SEEN)", "package/train.py")
    done = run_virtual("-m", "package.train", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    done = run_virtual("-m", "package.missing", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("ImportError: No module named package.missing\n")


@pytest.mark.all
def test_processes_of_processes_have_virtual_gpus_at_any_depth(script):
    path = script("""
import subprocess
import sys

import torch

depth = int(sys.argv[1]) if len(sys.argv) > 1 else 2
print(depth, torch.cuda.device_count(), flush=True)
if depth:
    subprocess.run([sys.executable, __file__, str(depth - 1)], check=True)
""")
    done = run_virtual("--gpus", "3", path)
    assert (done.returncode, done.stdout) == (0, "2 3\n1 3\n0 3\n"), done.stderr


@pytest.mark.all
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


@pytest.mark.all
def test_memory_of_the_virtual_gpus(script):
    path = script("import torch; print(torch.cuda.mem_get_info(1)[1])")
    assert run_virtual("--gpus", 2, "--memory", "64MiB", path).stdout == f"{2**26}\n"


@pytest.mark.parametrize(
    "ending",
    [
        "raise SystemExit(7)",
        "1 / 0",
        pytest.param("import sys; sys.exit('bye')", marks=pytest.mark.all),
        pytest.param("x =", marks=pytest.mark.all),
    ],
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
        (
            ["--gpus", "0", TUTORIAL],
            "The number of virtual GPUs must be at least 1, but got 0.",
        ),
        (["--gpus", "two", TUTORIAL], "argument --gpus: invalid int value: 'two'"),
        (["--memory", "lots", TUTORIAL], "Cannot parse the memory size 'lots'"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    done = run_virtual(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    usage, error = done.stderr.splitlines()
    assert usage.startswith("usage: python -m d2l_gpu.vgpu [--gpus N")
    assert error.startswith(f"python -m d2l_gpu.vgpu: error: {sentence}")


@pytest.mark.all
def test_workers_of_a_loader_may_be_forked_once_devices_have_been_used(script):
    path = script("""
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.manual_seed(1)
    torch.rand(2, device="cuda:1")
    data = TensorDataset(torch.arange(10.0))
    for _ in range(2):
        loader = DataLoader(data, 4, num_workers=2, pin_memory=True)
        print(sum(x.cuda(1).sum().item() for (x,) in loader))
""")
    done = run_virtual("--gpus", "2", path)
    assert (done.returncode, done.stdout) == (0, "45.0\n45.0\n"), done.stderr
