"""What the doctor makes of machines, from what their files and their tools say."""

import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from d2l_gpu.common import processor
from d2l_gpu.doctor import build, facts, nvidia
from d2l_gpu.doctor.nvidia import Driver
from d2l_gpu.vgpu import host_memory_left
from tests.helpers.broken_machines import look_once
from tests.helpers.properties import sizes
from tests.helpers.recorded_machines import (
    MACHINES,
    files_of,
    plant_nvidia_smi,
    pretend,
)

KB = 1024
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
NO_MODULE = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA"


@dataclass(frozen=True)
class Machine:
    """What is right to say of a machine.

    Attributes:
        cards: GPUs of NVIDIA on the bus.
        left: bytes of memory that can be used.
        cpu: the name of its processor; None if its files do not say.
        driver: what nvidia-smi says; its refusal only begins so. None: there is none.
        status: with which nvidia-smi exits.
        amd: GPUs of AMD that can compute.
        finding: status and words of what the doctor finds with PyTorch for CUDA 12.8.
    """

    cards: int
    left: int
    cpu: str | None
    finding: tuple[str, str]
    driver: Driver | None = None
    status: int = 0
    amd: int = 0


EXPECTED = {
    "a100-server": Machine(
        2,
        1040120304 * KB,
        "AMD EPYC 7742 64-Core Processor",
        ("problem", "The machine has 2 GPUs (NVIDIA A100-SXM4-80GB …), but PyTorch"),
        Driver(True, ["NVIDIA A100-SXM4-80GB"] * 2, "550.54.15", "12.4"),
    ),
    "cloud-container": Machine(
        1,
        8589934592 - 2147467264,
        "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz",
        ("problem", f"The NVIDIA driver does not work; nvidia-smi says: {MISMATCH}"),
        Driver(True, refusal=MISMATCH),
        status=18,
    ),
    "desktop": Machine(
        2,
        29540180 * KB,
        "AMD Ryzen 9 3900X 12-Core Processor",
        ("problem", "The NVIDIA driver 470.199.02 is too old for this PyTorch: it "),
        Driver(True, ["NVIDIA GeForce GTX 1070"] * 2, "470.199.02", "11.4"),
    ),
    "laptop": Machine(
        1,
        9182736 * KB,
        "11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz",
        ("problem", "There is an NVIDIA GPU on the bus, but no driver"),
    ),
    "mi100-server": Machine(
        0,
        515402148 * KB,
        "AMD EPYC 7763 64-Core Processor",
        ("ok", "the machine has no NVIDIA GPU"),
        amd=2,
    ),
    "raspberry-pi": Machine(
        0, 3301220 * KB, None, ("ok", "the machine has no NVIDIA GPU")
    ),
    "t4-without-module": Machine(
        1,
        12201448 * KB,
        "Intel(R) Xeon(R) CPU @ 2.20GHz",
        ("problem", f"The NVIDIA driver does not work; nvidia-smi says: {NO_MODULE}"),
        Driver(True, refusal=NO_MODULE),
        status=9,
    ),
    "virtual-machine": Machine(
        0,
        21941320 * KB,
        "Intel(R) Xeon(R) Processor",
        ("ok", "the machine has no NVIDIA GPU"),
    ),
    "wsl": Machine(
        0,
        31305136 * KB,
        "13th Gen Intel(R) Core(TM) i9-13900K",
        ("problem", "The machine has NVIDIA GeForce RTX 4090, but PyTorch"),
        Driver(True, ["NVIDIA GeForce RTX 4090"], "552.22", "12.4"),
    ),
}


@pytest.fixture(params=sorted(EXPECTED))
def machine(request, monkeypatch, tmp_path, plant) -> Machine:
    """One machine after the other, and what is right to say of it."""
    for names in build.HIDING.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("D2L_GPU_VIRTUAL", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    expected = EXPECTED[request.param]
    pretend(monkeypatch, tmp_path / "machine", files_of(request.param))
    if not plant_nvidia_smi(plant, request.param, expected.status):
        monkeypatch.setattr(nvidia, "path", lambda: None)  # of the machine that tests
    return expected


def test_every_machine_is_known():
    assert {folder.name for folder in MACHINES.iterdir()} == set(EXPECTED)


def test_gpus_processor_and_memory_are_those_of_the_machine(machine):
    assert nvidia.cards() == machine.cards
    assert build._amd_gpus() == machine.amd
    assert host_memory_left() == machine.left
    unknown = platform.processor() or platform.machine()
    assert processor.cpu_name() == (machine.cpu or unknown)


def test_the_driver_is_the_one_of_the_machine(machine):
    if machine.driver is None:
        assert facts.Facts(60).nvidia == Driver(found=False)
        return
    said = {}
    for more in nvidia.look_at_driver():
        said |= more
    refusal = said.pop("refusal", "")
    assert refusal.startswith(machine.driver.refusal)
    assert bool(refusal) == bool(machine.driver.refusal)
    assert Driver(True, **said, refusal=machine.driver.refusal) == machine.driver


def test_the_doctor_finds_what_is_wrong_with_the_machine(machine, plant):
    plant.torch("2.13.0", cuda="12.8")
    finding = look_once("build")
    status, words = machine.finding
    assert finding.status == status
    assert words in finding.what


# Displays as VGA knows them, 3D controllers, other displays; a bridge, audio, others.
CLASSES = 0x030000, 0x030200, 0x038000, 0x068000, 0x040300, 0x120000


@settings(max_examples=60)
@example([(0x10DE, kind, True) for kind in CLASSES[:3]])
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0x10DE, 0x10DE, 0x1002, 0x8086, 0x1A03]),
            st.sampled_from(CLASSES) | sizes(most=0xFFFFFF),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_displays_of_any_kind_are_gpus_and_nothing_else_is(devices):
    files = {}
    for i, (vendor, kind, whole) in enumerate(devices):
        device = f"/sys/bus/pci/devices/0000:{i:02x}:00.0"
        files[f"{device}/vendor"] = f"0x{vendor:04x}\n"
        if whole:  # a device that is just being removed has no more files
            files[f"{device}/class"] = f"0x{kind:06x}\n"
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as root:
        pretend(patch, Path(root), files)
        found = nvidia.cards()
    expected = [
        whole and vendor == 0x10DE and kind >> 16 == 0x03
        for vendor, kind, whole in devices
    ]
    assert found == sum(expected)
