"""Tools that ask NVIDIA's driver about GPUs."""

import subprocess

import gpustat
import pynvml
import torch

from tests.ecosystem.support import main

NEEDS = ("nvidia-ml-py", "gpustat")


def check_pynvml_counts_gpus():
    """pynvml finds the same GPUs as PyTorch, with their names and memory."""
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == torch.cuda.device_count() == 2
    X = torch.ones(2**20, device="cuda:1")
    for i in range(2):
        handle = pynvml.nvmlDeviceGetHandleByIndex(i)
        name = pynvml.nvmlDeviceGetName(handle)
        name = name.decode() if isinstance(name, bytes) else name
        assert name == torch.cuda.get_device_name(i)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        total = torch.cuda.get_device_properties(i).total_memory
        assert 0.9 * total <= memory.total <= 1.2 * total
        assert memory.used + memory.free <= memory.total
        assert 0 <= pynvml.nvmlDeviceGetUtilizationRates(handle).gpu <= 100
    assert memory.used >= X.nbytes
    pynvml.nvmlShutdown()


def check_nvidia_smi_lists_gpus():
    """The program nvidia-smi lists both GPUs, with names and memory."""
    columns = "--query-gpu=index,name,memory.total"
    done = subprocess.run(
        ["nvidia-smi", columns, "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split(", ") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["0", "1"], rows
    assert rows[0][1] == torch.cuda.get_device_name(0)
    assert rows[0][2].endswith("MiB")


def check_gpustat_shows_gpus():
    """gpustat shows both GPUs with their memory."""
    gpus = gpustat.new_query().gpus
    assert [gpu.index for gpu in gpus] == [0, 1]
    total = torch.cuda.get_device_properties(0).total_memory
    assert 0.9 * total <= gpus[0].memory_total * 2**20 <= 1.2 * total
    assert gpus[0].name == torch.cuda.get_device_name(0)


def check_pytorch_asks_the_driver():
    """torch.cuda says how busy and how warm a GPU is, and which processes use it.

    A GPU without some sensor, such as NVIDIA's own virtual ones, says that it has none.
    """
    assert 0 <= torch.cuda.utilization(0) <= 100
    assert 0 <= torch.cuda.memory_usage(1) <= 100
    for sensor, most in (
        ("temperature", 120),
        ("power_draw", 1e7),
        ("clock_rate", 1e5),
    ):
        try:
            assert 0 <= getattr(torch.cuda, sensor)(0) < most
        except pynvml.NVMLError_NotSupported as error:
            assert "Not Supported" in str(error)
    X = torch.ones(2**20, device="cuda")
    assert torch.cuda.device_memory_used(0) >= X.nbytes
    assert "GPU:0" in torch.cuda.list_gpu_processes(0)


if __name__ == "__main__":
    main(globals())
