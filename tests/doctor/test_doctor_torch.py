"""`d2l-gpu doctor` on machines whose PyTorch, driver or GPUs are not as they should."""

import os
import signal
from types import SimpleNamespace

import pytest

from d2l_gpu import doctor
from d2l_gpu.common.frameworks import Framework
from d2l_gpu.doctor import build, facts, nvidia, pytorch
from tests.helpers.broken_machines import look, look_once, until_begun
from tests.helpers.recorded_machines import files_of, pretend
from tests.helpers.waiting import runs, wait_until

ONE, TWO = ["NVIDIA Test 9000"], ["NVIDIA Test 9000"] * 2
NEW, OLD = {"driver": "580.65", "cuda": "13.0"}, {"driver": "470.82", "cuda": "11.4"}


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch, tmp_path):
    """A machine without GPUs, whatever runs the tests has."""
    for names in build.HIDING.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("D2L_GPU_VIRTUAL", raising=False)
    monkeypatch.setattr(nvidia, "path", lambda: None)
    pretend(monkeypatch, tmp_path / "without", {})
    monkeypatch.setattr("sys.platform", "linux")


@pytest.fixture
def smi(plant, monkeypatch, no_gpus):
    """A function that plants an nvidia-smi; the real one is not found, in any case."""

    def program(script: str) -> None:
        plant.program("nvidia-smi", script)
        monkeypatch.setattr(nvidia, "path", lambda: str(plant.programs / "nvidia-smi"))

    def working(gpus, driver, cuda) -> None:
        plant.nvidia_smi(gpus, driver, cuda)
        monkeypatch.setattr(nvidia, "path", lambda: str(plant.programs / "nvidia-smi"))

    program.working = working
    return program


# ------------------------------------------------------------------ PyTorch


def test_old_pytorch_is_too_old(plant):
    plant.torch("2.4.1")
    finding = look_once("pytorch")
    assert finding.status == "problem"
    assert finding.what == "PyTorch 2.4.1 is too old: 2.10 or newer is needed."
    assert "pip install --upgrade 'torch>=2.10'" in finding.what_to_do


def test_other_framework_does_without_pytorch(monkeypatch):
    facts = SimpleNamespace(torch=SimpleNamespace(installed=False))
    here = Framework("toy", "Toy", "json")
    absent = Framework("none", "None", "no_such_module")
    monkeypatch.setattr(pytorch, "FRAMEWORKS", (here, absent))
    (finding,) = pytorch.check_torch(facts)
    assert finding.status == "note"
    assert finding.what == (
        "PyTorch is not installed. You can use Toy without it: "
        "d2l-gpu lab --framework toy"
    )


@pytest.mark.parametrize("version", ["2.10.0", "2.13.0+cpu", "2.14.0a0+git1234", "3.0"])
def test_new_pytorch_is_new_enough(plant, version):
    plant.torch(version)
    finding = look_once("pytorch")
    assert (finding.status, finding.what) == ("ok", f"PyTorch {version}.")


def test_pytorch_that_raises_is_named_with_its_version(plant):
    plant.module("torch", "raise ImportError('libcudart.so.13: cannot open it')")
    plant.package("torch", "2.13.0")
    finding = look_once("pytorch")
    assert finding.status == "problem"
    assert finding.what == (
        "PyTorch 2.13.0 is installed, but cannot be imported (ImportError: "
        "libcudart.so.13: cannot open it)."
    )
    assert "--force-reinstall" in finding.what_to_do


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "killed by SIGSEGV",
        ),
        ("import os; os._exit(3)", "exited with code 3"),
        ("raise SystemExit(1)", "SystemExit: 1"),
        ("import something_else", "No module named 'something_else'"),
        ("", "has no attribute '__version__'"),  # what a half removal leaves behind
    ],
)
def test_pytorch_that_ends_python_does_not_end_the_doctor(plant, code, words):
    if "SIGSEGV" in code and not hasattr(signal, "SIGKILL"):
        pytest.skip("Windows has no such signal")
    plant.module("torch", code)
    plant.package("torch", "2.13.0")
    finding = look_once("pytorch")
    assert finding.status == "problem"
    assert words in finding.what
    for name in ("build", "devices", "virtual-gpus"):
        finding = look_once(name)
        assert finding.status == "note"
        assert "PyTorch cannot be used" in finding.what


@pytest.mark.all
def test_pytorch_that_hangs_does_not_hang_the_doctor(plant):
    plant.module("torch", "import time; time.sleep(600)")
    finding = look_once("pytorch", timeout=2)
    assert finding.status == "problem"
    assert "(no answer within 2 s)" in finding.what


# ------------------------------------------------------------------ NumPy


def test_numpy_1_is_too_old(plant):
    plant.module("numpy", "__version__ = '1.26.4'")
    finding = look_once("numpy")
    assert finding.status == "problem"
    assert finding.what == "NumPy 1.26.4 is too old: 2 or newer is needed."
    assert "pip install --upgrade 'numpy>=2'" in finding.what_to_do


def test_numpy_that_does_not_import_is_a_problem(plant):
    plant.module("numpy", "raise ImportError('multiarray is broken')")
    finding = look_once("numpy")
    assert finding.status == "problem"
    assert "cannot be imported (ImportError: multiarray is broken)" in finding.what


def test_numpy_that_pytorch_cannot_use_is_a_problem(plant):
    plant.module("numpy", "__version__ = '2.4.0'\ndef ones(n): pass")
    plant.torch(
        "2.13.0",
        more="""
        def from_numpy(array):
            raise RuntimeError("Numpy is not available")
        """,
    )
    finding = look_once("numpy")
    assert finding.status == "problem"
    assert finding.what == (
        "NumPy 2.4.0 and PyTorch cannot exchange arrays "
        "(RuntimeError: Numpy is not available)."
    )


# ------------------------------------------------------------------ NVIDIA


def test_cpu_build_on_a_machine_without_gpu_is_fine(plant):
    plant.torch("2.13.0+cpu")
    finding = look_once("build")
    assert finding.status == "ok"
    assert "lessons use virtual GPUs" in finding.what


def test_cpu_build_on_a_machine_with_a_gpu_is_a_problem(plant, smi):
    plant.torch("2.13.0+cpu")
    smi.working(ONE, **NEW)
    finding = look_once("build")
    assert finding.status == "problem"
    assert finding.what == (
        "The machine has NVIDIA Test 9000, but this PyTorch is a build for CPU, "
        "which cannot use NVIDIA GPUs."
    )
    assert "--force-reinstall 'torch>=2.10'" in finding.what_to_do
    assert finding.what_to_do.endswith("/whl/cu130")


def test_recommended_build_suits_the_driver(plant, smi):
    plant.torch("2.13.0+cpu")
    smi.working(ONE, driver="550.54", cuda="12.4")
    assert look_once("build").what_to_do.endswith("/whl/cu126")


def test_reader_who_wants_virtual_gpus_has_no_problem_with_real_ones(
    plant, smi, monkeypatch
):
    plant.torch("2.13.0+cpu")
    smi.working(ONE, **NEW)
    monkeypatch.setenv("D2L_GPU_VIRTUAL", "4")
    assert look_once("build").status == "note"
    monkeypatch.setenv("D2L_GPU_VIRTUAL", "0")
    assert look_once("build").status == "problem"


@pytest.mark.parametrize("cuda", [None, "12.8"])
def test_driver_that_does_not_work_is_a_problem(plant, smi, cuda):
    plant.torch("2.13.0", cuda=cuda)
    smi(
        """
        echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA \
driver. Make sure that it is installed and running."
        exit 9
        """
    )
    finding = look_once("build")
    assert finding.status == "problem"
    assert "couldn't communicate with the NVIDIA driver" in finding.what
    assert finding.what_to_do.startswith("Restart the machine")


def test_tool_that_finds_no_devices_is_a_problem(plant, smi):
    plant.torch("2.13.0", cuda="12.8")
    smi("echo 'No devices were found'")
    assert "nvidia-smi says: No devices were found" in look_once("build").what


@pytest.mark.all
def test_driver_that_hangs_is_a_problem(plant, smi, tmp_path):
    plant.torch("2.13.0", cuda="12.8")
    smi(f"echo $$ >{tmp_path}/pid\nexec sleep 600")
    finding = until_begun(tmp_path / "pid", lambda limit: look_once("build", limit))
    assert finding.status == "problem"
    words = "The NVIDIA driver hangs: nvidia-smi gave no answer within "
    assert finding.what.startswith(words)
    wait_until(lambda: not runs(int((tmp_path / "pid").read_text())))


def test_driver_that_is_too_old_for_the_build_is_a_problem(plant, smi):
    plant.torch("2.13.0", cuda="12.8", reason="too old (found version 11040)")
    smi.working(ONE, **OLD)
    finding = look_once("build")
    assert finding.status == "problem"
    assert finding.what == (
        "The NVIDIA driver 470.82 is too old for this PyTorch: it supports CUDA "
        "11.4, but PyTorch is a build for CUDA 12.8."
    )
    assert "https://www.nvidia.com/drivers" in finding.what_to_do


def test_driver_of_the_same_major_version_is_not_called_too_old(plant, smi):
    plant.torch("2.13.0", cuda="12.8", reason="system not yet initialized")
    smi.working(ONE, driver="535.10", cuda="12.2")
    finding = look_once("build")
    assert finding.status == "problem"
    assert "sees no GPU (RuntimeError: system not yet initialized)" in finding.what


def test_newer_tools_name_cuda_otherwise(plant, smi):
    plant.torch("2.13.0", cuda="14.1")
    smi(
        """
        case "$*" in *query-gpu*) echo 'NVIDIA Test 9000, 595.10';;
        *) echo '| Driver Version: 595.10   CUDA UMD Version : 13.2 |';; esac
        """
    )
    assert "it supports CUDA 13.2" in look_once("build").what


def test_cuda_build_without_any_gpu_is_fine(plant):
    # This is what pip installs on Linux by itself.
    plant.torch("2.13.0", cuda="13.0", reason="Found no NVIDIA driver on your system")
    finding = look_once("build")
    assert finding.status == "ok"
    assert "no NVIDIA GPU, so lessons use virtual GPUs" in finding.what


@pytest.mark.parametrize(("cuda", "status"), [("13.0", "problem"), (None, "note")])
def test_gpu_without_driver_is_named(plant, monkeypatch, tmp_path, cuda, status):
    plant.torch("2.13.0", cuda=cuda)
    pretend(monkeypatch, tmp_path / "laptop", files_of("laptop"))
    finding = look_once("build")
    assert finding.status == status
    assert "nvidia-smi is missing" in finding.what


def test_gpus_that_are_seen_are_fine(plant, smi):
    plant.torch("2.13.0", cuda="13.0", gpus=2)
    smi.working(TWO, **NEW)
    finding = look_once("build")
    assert finding.status == "ok"
    assert finding.what == "Built for CUDA 13.0, and sees 2 GPUs."


@pytest.mark.parametrize(("value", "seen"), [("", 0), ("-1", 0), ("1", 1)])
def test_hidden_gpus_are_named(plant, smi, monkeypatch, value, seen):
    plant.torch("2.13.0", cuda="13.0", gpus=seen)
    smi.working(TWO, **NEW)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    finding = look_once("build")
    assert finding.status == "note"
    assert f"CUDA_VISIBLE_DEVICES={value!r} hides {2 - seen} of 2 GPUs" in finding.what
    assert "CUDA_VISIBLE_DEVICES" in finding.what_to_do


def test_variable_that_hides_nothing_is_not_mentioned(plant, smi, monkeypatch):
    plant.torch("2.13.0", cuda="13.0", gpus=2)
    smi.working(TWO, **NEW)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert look_once("build").status == "ok"


# ------------------------------------------------------------------ other makers


def findings_of(check, **said):
    """Return what a check finds where PyTorch says this of itself."""
    known = facts.Facts(60)
    known.torch = facts.TorchFacts(**{"version": "2.13.0", **said})
    return check(known)


@pytest.mark.parametrize(
    ("said", "machine", "status", "words"),
    [
        (
            {"hip": "6.4", "count": 1},
            "mi100-server",
            "ok",
            "Built for ROCm 6.4, and sees 1 GPU.",
        ),
        ({"hip": "6.4"}, "laptop", "ok", "no AMD GPU"),
        (
            {"hip": "6.4", "gpu_trouble": "no"},
            "mi100-server",
            "problem",
            "AMD GPU, but ",
        ),
        ({"xpu": "20250302"}, "laptop", "note", "Intel GPUs, but sees none"),
        (
            {"xpu": "20250302", "count": 1},
            "laptop",
            "ok",
            "Built for XPU, and sees 1 GPU.",
        ),
        (
            {"mps": True, "count": 1},
            "raspberry-pi",
            "ok",
            "Built for MPS, and sees 1 GPU.",
        ),
        ({"mps": True}, "raspberry-pi", "note", "Apple's GPUs, but cannot use one"),
    ],
)
def test_builds_for_other_gpus(monkeypatch, tmp_path, said, machine, status, words):
    pretend(monkeypatch, tmp_path / machine, files_of(machine))
    (finding,) = findings_of(build.check_build, **said)
    assert finding.status == status
    assert words in finding.what


def test_hidden_amd_gpus_are_named(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path / "mi100-server", files_of("mi100-server"))
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    (finding,) = findings_of(build.check_build, hip="6.4", count=1)
    assert finding.status == "note"
    assert "HIP_VISIBLE_DEVICES='0' hides 1 of 2 GPUs" in finding.what


def test_build_for_intel_processors_on_apple_silicon(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    (finding,) = findings_of(build.check_build)
    assert finding.status == "note"
    assert "without support for Apple's GPUs" in finding.what


# ------------------------------------------------------------------ devices


CPU = ["cpu", "real", "Test CPU", "8.0 GiB"]
GPU = ["cuda:0", "real", "NVIDIA Test 9000", "8.0 GiB"]


def test_devices_are_listed_with_their_memory():
    (finding,) = findings_of(doctor.accelerators.check_devices, rows=[CPU, GPU])
    assert finding.status == "ok"
    assert finding.what == (
        "cpu: Test CPU, 8.0 GiB; cuda:0: NVIDIA Test 9000, 8.0 GiB."
    )


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        (
            {"device_troubles": {"cuda:0": "no kernel image is available"}},
            "problem",
            "cuda:0 is present, but cannot compute (no kernel image is available).",
        ),
        ({"free": {"cuda:0": 2**20}}, "note", "cuda:0 has only 1 MiB of memory left"),
        ({"trouble": "no answer within 2 s"}, "problem", "no answer within 2 s"),
        ({"helper_trouble": "RuntimeError: no"}, "problem", "RuntimeError: no"),
    ],
)
def test_gpus_that_do_not_compute_are_named(said, status, words):
    check = doctor.accelerators.check_devices
    first, second = findings_of(check, rows=[CPU, GPU], **said)
    assert first.status == "ok"
    assert second.status == status
    assert words in second.what
    assert second.what_to_do


def test_helper_that_does_not_import_is_a_problem(plant):
    plant.torch("2.13.0")  # of which the helper needs more than is planted
    finding = look_once("devices")
    assert finding.status == "problem"
    assert "The devices cannot be listed: " in finding.what


def test_virtual_gpus_that_do_not_work_are_a_problem(plant):
    plant.torch("2.13.0")
    finding = look_once("virtual-gpus")
    assert finding.status == "problem"
    assert finding.what.startswith("Virtual GPUs do not work: ")


def test_values_that_are_not_the_cpus_are_a_problem(monkeypatch):
    def wrong():
        yield {"equal": False, "memory": 1}

    monkeypatch.setattr(doctor.accelerators, "try_virtual_gpus", wrong)
    monkeypatch.setattr(facts, "ask", lambda probe, *_: facts.Answer(next(probe())))
    (finding,) = findings_of(doctor.accelerators.check_virtual_gpus)
    assert finding.status == "problem"
    assert "their results differ from the CPU's" in finding.what


# ------------------------------------------------------------------ the setting


@pytest.mark.parametrize(
    ("value", "gpus", "status", "words"),
    [
        (None, 0, "ok", "is not set"),
        ("4", 0, "ok", "forces virtual GPUs, at most 4"),
        ("0", 2, "ok", "forbids virtual GPUs"),
        ("0", 1, "note", "does not allow two GPUs"),
        ("1", 2, "note", "does not allow two GPUs"),
        ("two", 0, "problem", "D2L_GPU_VIRTUAL='two' is not a number of GPUs."),
        ("-1", 0, "problem", "D2L_GPU_VIRTUAL='-1' is not a number of GPUs."),
    ],
)
def test_setting_of_virtual_gpus(monkeypatch, value, gpus, status, words):
    if value is not None:
        monkeypatch.setenv("D2L_GPU_VIRTUAL", value)
    (finding,) = findings_of(doctor.accelerators.check_setting, count=gpus)
    assert finding.status == status
    assert words in finding.what
    assert status == "ok" or "D2L_GPU_VIRTUAL" in finding.what_to_do


def test_nonsense_setting_needs_no_pytorch_to_be_found(plant, monkeypatch):
    plant.module("torch", "raise ImportError")
    monkeypatch.setenv("D2L_GPU_VIRTUAL", "yes")
    assert look("setting")[0].status == "problem"
    assert os.environ["D2L_GPU_VIRTUAL"] == "yes"
