"""PyTorch's build against the GPUs and the driver of the machine."""

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from d2l_gpu.common.settings import virtual_limit

from .facts import Facts
from .findings import NOTE, OK, PROBLEM, Finding, pip, unset
from .nvidia import cards
from .pytorch import CHOOSE, install_torch, not_looked_at

NO_MATTER = "lessons use virtual GPUs"
DRIVERS = "https://www.nvidia.com/drivers"

# Variables that hide GPUs, by the kind of build that obeys them.
HIDING = {
    "CUDA": ("CUDA_VISIBLE_DEVICES",),
    "ROCm": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "XPU": ("ZE_AFFINITY_MASK",),
}


def check_build(facts: Facts) -> list[Finding]:
    """Can this build of PyTorch use the GPUs that the machine has?"""
    if not facts.torch.version:
        return [not_looked_at("build")]
    kind = facts.torch.build.split()[0]
    if facts.torch.count:
        findings = [*_hidden(facts, kind)] or [_uses_gpus(facts)]
    elif kind == "CUDA":
        findings = [_cuda_without_gpus(facts)]
    else:
        findings = [_wrong_build(facts) or _OTHERS[kind](facts)]
    if _virtual_wanted():
        return [
            replace(finding, status=NOTE) if finding.status == PROBLEM else finding
            for finding in findings
        ]
    return findings


def _finding(status: str, what: str, what_to_do: str = "") -> Finding:
    return Finding("build", status, what, what_to_do)


def _virtual_wanted() -> bool:
    """Whether the reader has chosen virtual GPUs, so that real ones do not matter."""
    try:
        return bool(virtual_limit())
    except ValueError:  # another check says so
        return False


def _uses_gpus(facts: Facts) -> Finding:
    number = f"{facts.torch.count} GPU{'s' * (facts.torch.count > 1)}"
    return _finding(OK, f"Built for {facts.torch.build}, and sees {number}.")


def _reason(facts: Facts) -> str:
    return facts.torch.gpu_trouble or facts.torch.trouble or "it gives no reason"


# ------------------------------------------------------------------ NVIDIA


def _wrong_build(facts: Facts) -> Finding | None:
    """Say that NVIDIA's GPUs, or what should drive them, do not suit this build."""
    driver = facts.nvidia
    if driver.works:
        return _finding(
            PROBLEM,
            f"The machine has {_gpus(facts)}, but this PyTorch is a build for "
            f"{facts.torch.build}, which cannot use NVIDIA GPUs.",
            f"Install the build for CUDA: {install_torch(facts, '--force-reinstall')}",
        )
    return _failing(facts)


def _cuda_without_gpus(facts: Facts) -> Finding:
    driver, build = facts.nvidia, facts.torch.build
    failing = _failing(facts)
    if failing:
        return failing
    if driver.works and not driver.runs(facts.torch.cuda):
        return _finding(
            PROBLEM,
            f"The NVIDIA driver {driver.version} is too old for this PyTorch: it "
            f"supports CUDA {driver.cuda}, but PyTorch is a build for {build}.",
            f"Update the driver ({DRIVERS}), or install a build for an older CUDA "
            f"({CHOOSE}): {install_torch(facts, '--force-reinstall')}",
        )
    hidden = list(_hidden(facts, "CUDA"))
    if hidden:
        return hidden[0]
    if driver.works:
        return _finding(
            PROBLEM,
            f"The machine has {_gpus(facts)}, but PyTorch, a build for {build}, sees "
            f"no GPU ({_reason(facts)}).",
            f"Restart the machine; if that does not help, update the driver: {DRIVERS}",
        )
    if cards():
        return _finding(
            PROBLEM,
            "There is an NVIDIA GPU on the bus, but no driver: nvidia-smi is missing.",
            f"Install the driver ({DRIVERS}); inside a container, start the container "
            "with access to the GPU, for example: docker run --gpus all",
        )
    return _finding(
        OK, f"Built for {build}; the machine has no NVIDIA GPU, so {NO_MATTER}."
    )


def _failing(facts: Facts) -> Finding | None:
    """Say that the driver is there and does not work."""
    driver = facts.nvidia
    if driver.hung:
        return _finding(
            PROBLEM,
            f"The NVIDIA driver hangs: nvidia-smi gave {driver.hung}.",
            "Restart the machine.",
        )
    if driver.refusal:
        return _finding(
            PROBLEM,
            f"The NVIDIA driver does not work; nvidia-smi says: "
            f"{driver.refusal.rstrip('.')}.",
            "Restart the machine, which is needed after an update of the driver or "
            f"the system; if that does not help, install the driver again: {DRIVERS}",
        )
    return None


def _gpus(facts: Facts) -> str:
    models = facts.nvidia.gpus
    return models[0] if len(models) == 1 else f"{len(models)} GPUs ({models[0]} …)"


def _hidden(facts: Facts, kind: str) -> Iterator[Finding]:
    """Say that a variable keeps PyTorch from seeing GPUs that are there."""
    has = len(facts.nvidia.gpus) if kind == "CUDA" else _amd_gpus()
    sees = facts.torch.count
    for variable in HIDING.get(kind, ()):
        if variable in os.environ and has > sees:
            yield _finding(
                NOTE,
                f"{variable}={os.environ[variable]!r} hides {has - sees} of {has} GPUs "
                f"from PyTorch; lessons that need more than {sees} use virtual ones.",
                f"To use all of them, unset it and start again: {unset(variable)}",
            )


# ------------------------------------------------------------------ others


def _rocm_without_gpus(facts: Facts) -> Finding:
    build, hidden = facts.torch.build, list(_hidden(facts, "ROCm"))
    if hidden:
        return hidden[0]
    if not _amd_gpus():
        return _finding(
            OK, f"Built for {build}; the machine has no AMD GPU, so {NO_MATTER}."
        )
    if not os.access("/dev/kfd", os.R_OK | os.W_OK):
        return _finding(
            PROBLEM,
            "There is an AMD GPU, but you are not allowed to open its device, "
            "/dev/kfd.",
            "Join the groups that are allowed to, and log in again: sudo usermod -a "
            "-G render,video $LOGNAME",
        )
    return _finding(
        PROBLEM,
        f"There is an AMD GPU, but PyTorch, a build for {build}, cannot use it "
        f"({_reason(facts)}).",
        "See whether ROCm supports this GPU: "
        "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/",
    )


def _amd_gpus() -> int:
    """Return how many GPUs Linux's driver for AMD offers for computing."""
    count = 0
    for path in Path("/sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id"):
        try:
            count += path.read_text().strip() not in ("", "0")  # 0 is a processor
        except OSError:
            continue
    return count


def _xpu_without_gpus(facts: Facts) -> Finding:
    return _finding(
        NOTE,
        f"Built for Intel GPUs, but sees none, so {NO_MATTER}.",
        "If there is one, install its driver: https://dgpu-docs.intel.com/",
    )


def _mps_without_gpus(facts: Facts) -> Finding:
    return _finding(
        NOTE,
        "Built for Apple's GPUs, but cannot use one on macOS "
        f"{platform.mac_ver()[0] or '(unknown)'}, so {NO_MATTER}.",
        "Update macOS; a virtual machine with macOS has no such GPU.",
    )


def _cpu(facts: Facts) -> Finding:
    if sys.platform == "darwin" and platform.machine() == "arm64":
        again = pip("install", "--force-reinstall", "torch")
        return _finding(
            NOTE,
            f"Built without support for Apple's GPUs, so {NO_MATTER}.",
            f"To use the GPU, install the usual build: {again}",
        )
    if cards():
        return _finding(
            NOTE,
            "There is an NVIDIA GPU on the bus, but no driver (nvidia-smi is missing), "
            f"and PyTorch is built for the CPU, so {NO_MATTER}.",
            f"To use the GPU, install its driver ({DRIVERS}), then run this again.",
        )
    return _finding(OK, f"Built for the CPU; no GPU was found here, so {NO_MATTER}.")


_OTHERS = {
    "ROCm": _rocm_without_gpus,
    "XPU": _xpu_without_gpus,
    "MPS": _mps_without_gpus,
    "CPU": _cpu,
}
