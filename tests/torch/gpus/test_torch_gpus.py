"""Names of devices, and the decision between real and virtual ones.

Decisions hold for a process, so each is tried in a process of its own.
"""

import pytest
import torch

from d2l_gpu import torch as d2l
from d2l_gpu.common.requirements import install
from tests.helpers import attempts
from tests.helpers.fresh_process import (
    run_fresh,
    run_program_without_torch,
    run_without_torch,
)

PRELUDE = "import torch\nfrom d2l_gpu import torch as d2l\n"

# A machine with real GPUs, as far as the decision asks for them.
PRETEND = """
def pretend(count, kind="cuda"):
    torch.accelerator.is_available = lambda: count > 0
    torch.accelerator.device_count = lambda: count
    torch.accelerator.current_accelerator = lambda: torch.device(kind)
    torch.cuda.get_device_name = lambda device: "Tesla T4"
"""


def fresh(code, **environment):
    return run_fresh(
        PRELUDE + PRETEND + attempts.PRINTED + code, **environment
    ).splitlines()


def test_names_need_no_device():
    assert d2l.cpu() == torch.device("cpu")
    lines = fresh("print(d2l.gpu(), d2l.gpu(1), d2l.gpu(7))")
    assert lines == ["cuda:0 cuda:1 cuda:7"]


@pytest.mark.parametrize("function", [d2l.gpu, d2l.try_gpu])
@pytest.mark.parametrize("index", [True, 1.5, "0", None])
def test_an_index_is_an_integer(function, index):
    with pytest.raises(
        TypeError, match="A GPU's index must be an integer such as 0, but got"
    ):
        function(index)


@pytest.mark.parametrize("function", [d2l.gpu, d2l.try_gpu])
def test_an_index_is_not_negative(function):
    with pytest.raises(ValueError, match="counted from 0, so there is no GPU -1"):
        function(-1)


def test_without_a_gpu_there_is_always_the_cpu():
    assert fresh("print(d2l.num_gpus(), d2l.try_gpu(), d2l.try_all_gpus())") == [
        "0 cpu [device(type='cpu')]"
    ]


def test_virtual_gpus_where_real_ones_are_too_few():
    lines = fresh(
        """
d2l.require_gpus(2)
d2l.require_gpus(1)
print(d2l.num_gpus(), d2l.try_all_gpus(), d2l.try_gpu(2))
attempt(d2l.gpu, 2)
attempt(d2l.require_gpus, 3)
print(torch.ones(1, device=d2l.gpu(1)))
"""
    )
    line = "Using 2 virtual GPUs, vgpu:0 and vgpu:1: computed on the CPU, memory simul"
    assert lines[0] == lines[1] == line + "ated."
    assert lines[2] == (
        "2 [device(type='vgpu', index=0), device(type='vgpu', index=1)] cpu"
    )
    assert lines[3].startswith(
        "ValueError: gpu(2) does not exist: this process uses 2 GPUs"
    )
    assert lines[4].startswith(
        "RuntimeError: This process has used 2 GPUs since the first call, and cannot "
        "switch to 3"
    )
    assert lines[5] == "tensor([1.], device='vgpu:1')"


def test_exactly_the_required_real_gpus_are_visible():
    lines = fresh(
        """
pretend(16)
print(d2l.num_gpus(), d2l.gpu(9))
d2l.require_gpus(2)
print(d2l.num_gpus(), d2l.try_gpu(2), d2l.try_all_gpus())
attempt(d2l.gpu, 2)
attempt(d2l.use_virtual_gpus, 2)
"""
    )
    assert lines[:3] == [
        "16 cuda:9",
        "Using 2 GPUs, cuda:0 and cuda:1: Tesla T4.",
        "2 cpu [device(type='cuda', index=0), device(type='cuda', index=1)]",
    ]
    assert lines[3] == (
        "ValueError: gpu(2) does not exist: this process uses 2 GPUs, cuda:0 "
        "and cuda:1."
    )
    assert lines[4].startswith("RuntimeError: Using 2 GPUs, cuda:0 and cuda:1: Tesla")


def test_one_real_gpu_is_not_mixed_with_virtual_ones():
    lines = fresh("pretend(1)\nd2l.require_gpus(2)\nprint(d2l.gpu(0), d2l.gpu(1))")
    assert lines[1] == "vgpu:0 vgpu:1"


def test_the_variable_forces_virtual_gpus():
    code = "pretend(16)\nattempt(d2l.require_gpus, 5)\nd2l.require_gpus(4)"
    lines = fresh(code, D2L_GPU_VIRTUAL="4")
    assert lines == [
        "RuntimeError: This lesson needs 5 GPUs, but D2L_GPU_VIRTUAL=4 allows only 4: "
        "set it to at least 5, or unset it.",
        "Using 4 virtual GPUs, vgpu:0, vgpu:1, vgpu:2 and vgpu:3: computed on the CPU, "
        "memory simulated.",
    ]


def test_the_variable_forbids_virtual_gpus():
    code = """
attempt(d2l.require_gpus, 2)
attempt(d2l.use_virtual_gpus, 2)
pretend(2)
d2l.require_gpus(2)
"""
    lines = fresh(code, D2L_GPU_VIRTUAL="0")
    assert lines == [
        "RuntimeError: This lesson needs 2 GPUs, but the machine has 0, and "
        "D2L_GPU_VIRTUAL=0 forbids virtual ones: unset it to use them.",
        "RuntimeError: D2L_GPU_VIRTUAL=0 forbids virtual GPUs: unset it to use them.",
        "Using 2 GPUs, cuda:0 and cuda:1: Tesla T4.",
    ]


def test_the_variable_has_to_be_a_number():
    lines = fresh("attempt(d2l.require_gpus, 2)", D2L_GPU_VIRTUAL="yes")
    assert lines[0].startswith("ValueError: D2L_GPU_VIRTUAL='yes' is not a number of")


def test_senseless_numbers_are_refused_and_decide_nothing():
    *refused, decided = fresh(
        "for n in 0, -2, True, 2.0:\n"
        "    attempt(d2l.use_virtual_gpus, n)\n"
        "    attempt(d2l.require_gpus, n)\n"
        "d2l.require_gpus(1)"
    )
    sentences = [
        "ValueError: The number of GPUs must be at least 1, but got 0.",
        "ValueError: The number of GPUs must be at least 1, but got -2.",
        "TypeError: The number of GPUs must be an integer such as 2, but got True",
        "TypeError: The number of GPUs must be an integer such as 2, but got 2.0",
    ]
    for i, sentence in enumerate(sentences):
        assert all(said.startswith(sentence) for said in refused[2 * i : 2 * i + 2])
    assert len(refused) == 2 * len(sentences)
    assert decided.startswith("Using 1 virtual GPU, vgpu:0: computed on the CPU")


def test_virtual_gpus_are_set_up_once():
    lines = fresh(
        """
attempt(d2l.use_virtual_gpus, 2, memory="lots")
d2l.use_virtual_gpus(3, memory="1GiB")
d2l.use_virtual_gpus(3, memory="1GiB")
d2l.require_gpus(2)
print(torch.accelerator.get_memory_info(2)[1])
attempt(d2l.use_virtual_gpus, 4)
"""
    )
    assert lines[0].startswith("ValueError: Cannot parse the memory size 'lots'")
    assert lines[1] == lines[2] == lines[3]
    assert lines[4] == str(2**30)
    assert lines[5].startswith("RuntimeError: Using 3 virtual GPUs, vgpu:0, vgpu:1 and")
    assert "restart Python" in lines[5]


def test_no_setting_changes_once_it_is_made():
    others = {
        "memory": "2GiB",
        "backing": "meta",
        "as_cuda": True,
        "model": "A100",
        "link": "PCIe3",
    }
    lines = fresh(
        "d2l.use_virtual_gpus(2)\n"
        + "".join(
            f"attempt(d2l.use_virtual_gpus, 2, {name}={value!r})\n"
            for name, value in others.items()
        )
        + "d2l.use_virtual_gpus(2)\n"
        + "print(d2l.current_simulator().label)"
    )
    made, *refused, again, label = lines
    assert len(refused) == len(others)
    for line in refused:
        assert line.startswith("RuntimeError: Using 2 virtual GPUs")
        assert "This can no longer be changed" in line
    assert again == made
    assert label == "simulated (V100)"


def test_sixteen_virtual_gpus():
    lines = fresh("d2l.require_gpus(16)\nprint(d2l.try_all_gpus()[-1])")
    assert lines[0].startswith("Using 16 virtual GPUs, vgpu:0 to vgpu:15: computed on")
    assert lines[1] == "vgpu:15"


def test_to_is_the_method():
    X = torch.ones(1)
    assert d2l.to(X, "cpu") is X
    assert d2l.to(X, dtype=torch.float64).dtype is torch.float64


def test_the_model_of_virtual_gpus_is_said_where_it_was_asked_for():
    code = """
d2l.use_virtual_gpus(2, backing="meta", model=["V100", "T4"], link="PCIe3")
print(d2l.current_simulator().label, d2l.current_simulator().link.name)
attempt(d2l.use_virtual_gpus, 2)
d2l.use_virtual_gpus(2, backing="meta", model=["V100", "T4"], link="PCIe3")
"""
    first, label, other, again = fresh(code)
    assert first == again
    assert first == (
        "Using 2 virtual GPUs, vgpu:0 and vgpu:1: shapes without values, memory "
        "simulated, time simulated (V100, T4, PCIe3)."
    )
    assert label == "simulated (V100, T4) PCIe3"
    assert "This can no longer be changed" in other


def test_a_model_that_is_not_there():
    (line,) = fresh('attempt(d2l.use_virtual_gpus, 2, model="V1000")')
    assert line.startswith("ValueError: There is no model 'V1000' in the catalogue")


@pytest.mark.all
def test_other_frameworks_are_not_needed():
    names = ["tensorflow", "keras", "jax", "mxnet", "matplotlib", "sklearn"]
    assert run_without_torch(
        f"""
        import sys
        for name in {names}:
            sys.modules[name] = None  # importing it would raise
        from d2l_gpu import torch as d2l
        d2l.require_gpus(2)
        print(d2l.num_gpus())
        """
    ).endswith("2\n")


def test_missing_pytorch_is_one_sentence():
    assert (
        run_program_without_torch("torch_gpus/missing_pytorch_is_one_sentence.py")
        == f"PyTorch is not installed: {install('course')}\n"
    )
