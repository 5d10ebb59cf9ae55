"""PyTorch and NumPy: installed, new enough, able to work with each other."""

import importlib.metadata
import os
import sys

from d2l_gpu.common.frameworks import FRAMEWORKS, Framework

from .facts import Facts
from .findings import NOTE, OK, PROBLEM, Finding, dotted, pip, release
from .probes import look_at_numpy

OLDEST_TORCH = (2, 10)
OLDEST_NUMPY = (2,)

BUILDS = "https://download.pytorch.org/whl/"
CHOOSE = "https://pytorch.org/get-started/locally/"

# Builds of PyTorch by the major version of CUDA that they need of the driver. There
# are others in between, which run wherever these do (read in 2026 at CHOOSE).
CUDA_BUILDS = {12: "cu126", 13: "cu130"}


def check_torch(facts: Facts) -> list[Finding]:
    """Is PyTorch there, new enough, and can it be imported?"""
    torch = facts.torch
    oldest = dotted(OLDEST_TORCH)
    if not torch.installed and (others := _other_frameworks()):
        names = ", ".join(each.title for each in others)
        commands = " or ".join(f"d2l-gpu lab --framework {each.tag}" for each in others)
        what = f"PyTorch is not installed. You can use {names} without it: {commands}"
        return [Finding("pytorch", NOTE, what)]
    if not torch.installed:
        what = "PyTorch is not installed."
        return [_problem(what, f"Install it: {install_torch(facts)}")]
    if not torch.version:
        return [_does_not_import(facts)]
    if release(torch.version) < OLDEST_TORCH:
        what = f"PyTorch {torch.version} is too old: {oldest} or newer is needed."
        return [_problem(what, f"Upgrade it: {install_torch(facts, '--upgrade')}")]
    return [Finding("pytorch", OK, f"PyTorch {torch.version}.")]


def _other_frameworks() -> list[Framework]:
    return [each for each in FRAMEWORKS if each.tag != "pytorch" and each.is_installed]


def _problem(what: str, what_to_do: str) -> Finding:
    return Finding("pytorch", PROBLEM, what, what_to_do)


def _does_not_import(facts: Facts) -> Finding:
    trouble = facts.torch.trouble
    version = installed_version("torch")
    name = f"PyTorch {version}" if version else "PyTorch"
    again = install_torch(facts, "--force-reinstall", "--no-cache-dir")
    to_do = f"Install it again: {again}"
    if sys.platform == "win32" and "WinError" in trouble:
        to_do = (
            "Install Microsoft's C++ runtime, which PyTorch needs, from "
            "https://aka.ms/vs/17/release/vc_redist.x64.exe. If it is already there: "
            f"{again}"
        )
    if "no answer" in trouble:
        to_do = (
            "Try again: the first import after an installation takes a long time. If "
            f"that does not help, install it again: {again}"
        )
    return _problem(f"{name} is installed, but cannot be imported ({trouble}).", to_do)


def torch_is_usable(facts: Facts) -> bool:
    """Whether PyTorch imports and is new enough for what the course does with it."""
    return release(facts.torch.version) >= OLDEST_TORCH


def not_looked_at(name: str) -> Finding:
    """Return the finding of a check that has no PyTorch to ask."""
    return Finding(name, "note", "Not checked: PyTorch cannot be used (see above).")


def check_numpy(facts: Facts) -> list[Finding]:
    """Is NumPy there, new enough, and does PyTorch exchange arrays with it?"""
    answer = facts.ask(look_at_numpy)
    upgrade = pip("install", "--upgrade", f"numpy>={dotted(OLDEST_NUMPY)}")
    again = pip("install", "--force-reinstall", f"numpy>={dotted(OLDEST_NUMPY)}")
    version = answer.said.get("version", "")
    if not answer.said.get("installed", True):
        what, to_do = "NumPy is not installed.", f"Install it: {upgrade}"
    elif not version:
        what = f"NumPy is installed, but cannot be imported ({answer.trouble})."
        to_do = f"Install it again: {again}"
    elif release(version) < OLDEST_NUMPY:
        what = f"NumPy {version} is too old: 2 or newer is needed."
        to_do = f"Upgrade it: {upgrade}"
    elif torch_is_usable(facts) and (trouble := _array_trouble(facts)):
        what = f"NumPy {version} and PyTorch cannot exchange arrays ({trouble})."
        to_do = f"Install NumPy again: {again}"
    else:
        what = f"NumPy {version}."
        if torch_is_usable(facts):
            what = f"NumPy {version} and PyTorch exchange arrays."
        return [Finding("numpy", OK, what)]
    return [Finding("numpy", PROBLEM, what, to_do)]


def _array_trouble(facts: Facts) -> str:
    torch = facts.torch
    return torch.array_trouble or (torch.trouble if torch.doing == "arrays" else "")


# ------------------------------------------------------------------ commands


def install_torch(facts: Facts, *options: str) -> str:
    """Return the command that installs the build of PyTorch that suits the machine.

    Args:
        facts: what GPUs and which driver there are.
        options: for pip install.
    """
    wanted = f"torch>={dotted(OLDEST_TORCH)}"
    return pip("install", *options, wanted, *_index(_suitable_build(facts)))


def _suitable_build(facts: Facts) -> str:
    """Return which build suits, empty for the one that pip takes by itself."""
    if sys.platform == "darwin":
        return ""
    if facts.nvidia.works:
        driver = release(facts.nvidia.cuda)[:1] or (max(CUDA_BUILDS),)
        fitting = [major for major in CUDA_BUILDS if major <= driver[0]]
        return CUDA_BUILDS[max(fitting, default=min(CUDA_BUILDS))]
    # By itself pip takes this one on Windows, and on Linux one of several gigabytes.
    return "" if os.name == "nt" else "cpu"


def installed_build() -> str:
    """Return the build of the installed PyTorch, as ``cpu``; empty for PyPI's."""
    return installed_version("torch").partition("+")[2]


def _index(build: str) -> list[str]:
    return ["--index-url", BUILDS + build] if build else []


def install_torchvision(torch_version: str) -> str:
    """Return the command that installs the torchvision for this PyTorch.

    The versions 2.n of PyTorch and 0.(n + 15) of torchvision belong together:
    https://github.com/pytorch/vision#installation (read in 2026).
    """
    numbers = release(torch_version)
    wanted = "torchvision"
    if len(numbers) > 1 and numbers[0] == 2:
        wanted += f"==0.{numbers[1] + 15}.*"
    # Without its requirements: one of them is a PyTorch, which is to stay.
    options = ("--force-reinstall", "--no-deps")
    return pip("install", *options, wanted, *_index(torch_version.partition("+")[2]))


def installed_version(name: str) -> str:
    """Return the version of an installed package, empty if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
