"""The program nvidia-smi, as a program on virtual GPUs finds it."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from d2l_gpu.vgpu import monitor, nvidia_smi
from tests.helpers.fresh_process import PATH, run_without_torch
from tests.helpers.paths import REPOSITORY
from tests.helpers.waiting import PATIENCE

PROGRAM = REPOSITORY / "d2l_gpu" / "vgpu" / "children" / "bin" / "nvidia-smi"
NAME = "virtual GPU: computed on the CPU"


@pytest.fixture(params=[1, 2, 5])
def n(request, monkeypatch) -> int:
    """A number of virtual GPUs that another process has, with 3 GiB each."""
    settings = {"n": request.param, "memory": 3 * 2**30, "as_cuda": True}
    monkeypatch.setenv(monitor.VARIABLE, json.dumps(settings))
    monkeypatch.delitem(sys.modules, "d2l_gpu.vgpu.devices", raising=False)
    return request.param


def smi(capsys, *arguments: str) -> list[str]:
    nvidia_smi.main(arguments)
    return capsys.readouterr().out.splitlines()


def test_a_query_has_a_line_for_each_gpu(n, capsys):
    query = "--query-gpu=index,name,memory.total,memory.used,temperature.gpu"
    head = "index, name, memory.total [MiB], memory.used [MiB], temperature.gpu"
    for form, first, total in (
        ("csv", [head], "3072 MiB"),
        ("csv,noheader", [], "3072 MiB"),
        ("csv,nounits", [head], "3072"),
        ("csv,noheader,nounits", [], "3072"),
    ):
        expected = [f"{i}, {NAME}, {total}, [N/A], [N/A]" for i in range(n)]
        assert smi(capsys, query, f"--format={form}") == first + expected


def test_every_property_has_a_value_in_each_line(n, capsys):
    names = [*nvidia_smi._KNOWN, *nvidia_smi._UNKNOWN]
    query = f"--query-gpu={','.join(names)}"
    lines = smi(capsys, query, "--format=csv,noheader")
    assert len(lines) == n
    for line in lines:
        assert len(line.split(", ")) == len(names)


def test_gpus_can_be_listed_and_chosen(n, capsys):
    lines = smi(capsys, "-L")
    ids = [f"GPU-{monitor.uuid_of(i)}" for i in range(n)]
    assert lines == [f"GPU {i}: {NAME} (UUID: {ids[i]})" for i in range(n)]
    assert smi(capsys, "--list-gpus", "-i", ids[-1]) == lines[-1:]
    assert smi(capsys, "-L", f"--id={n - 1},0") == [lines[-1], lines[0]]


def test_without_arguments_it_prints_a_table_that_says_virtual(n, capsys):
    lines = smi(capsys)
    assert "Virtual GPUs, simulated on the CPU" in lines[1]
    assert len({len(line) for line in lines}) == 1
    rows = [line for line in lines if NAME in line]
    assert len(rows) == n and all("N/A / 3072 MiB" in row for row in rows)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--query-gpu=warmth", "--format=csv"], "there is no property 'warmth'"),
        (["--query-gpu=index"], "--query-gpu needs --format=csv"),
        (["--query-gpu=index", "--format=csv,loud"], "--query-gpu needs --format=csv"),
        (["-L", "-i", "7"], "there is no GPU '7'."),
        (["-q"], "unrecognized arguments: -q"),
    ],
)
def test_what_it_does_not_know_is_a_sentence(n, capsys, arguments, sentence):
    with pytest.raises(SystemExit, match="2"):
        nvidia_smi.main(arguments)
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert printed.err.startswith(f"nvidia-smi for virtual GPUs: {sentence}")


def test_without_virtual_gpus_it_says_so(monkeypatch, capsys):
    monkeypatch.delenv(monitor.VARIABLE, raising=False)
    monkeypatch.delitem(sys.modules, "d2l_gpu.vgpu.devices", raising=False)
    with pytest.raises(SystemExit, match="2"):
        nvidia_smi.main([])
    assert "there are none" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="Windows runs no scripts of this shell")
def test_a_program_finds_it_and_its_own_gpus(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import shutil, subprocess, torch\n"
        "print(shutil.which('nvidia-smi'))\n"
        "query = ['--query-gpu=index,name,memory.total', '--format=csv,noheader']\n"
        "for _ in range(2):\n"
        "    done = subprocess.run(['nvidia-smi', *query], capture_output=True)\n"
        "    print(done.stdout.decode() + done.stderr.decode(), end='')\n"
        "print(torch.cuda.get_device_name(1))\n"
    )
    command = [sys.executable, "-m", "d2l_gpu.vgpu", "--gpus", "3", "--memory", "1GiB"]
    done = subprocess.run(
        [*command, path],
        env=os.environ | PATH | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    lines = [f"{i}, {NAME}, 1024 MiB" for i in range(3)]
    assert done.stdout.splitlines() == [str(PROGRAM), *lines, *lines, NAME]


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_it_can_be_run():
    assert os.access(PROGRAM, os.X_OK)


def test_a_tool_without_pytorch_is_told_what_the_environment_says(tmp_path):
    (tmp_path / "pynvml.py").write_text(
        "nvmlLib, _nvmlGetFunctionPointer_cache = None, {}\n"
    )
    children = PROGRAM.parents[1]
    folders = [str(children), str(tmp_path), str(REPOSITORY)]
    printed = run_without_torch(
        "import ctypes, sys\n"
        "import pynvml\n"
        "count = ctypes.c_uint()\n"
        "assert pynvml.nvmlLib.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0\n"
        "print(count.value, 'torch' in sys.modules)",
        PYTHONPATH=os.pathsep.join(folders),
        **{monitor.VARIABLE: json.dumps({"n": 3, "memory": 2**30})},
    )
    assert printed == "3 False\n"
