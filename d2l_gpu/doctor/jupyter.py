"""Jupyter: what the course needs of it, and which Python its kernels are."""

import shutil
import sys
import sysconfig
import time
from pathlib import Path

from d2l_gpu.common.requirements import install_words, module_of, requirements
from d2l_gpu.common.settings import OURS

from . import kernels
from .facts import Facts
from .findings import (
    NOTE,
    OK,
    PROBLEM,
    Finding,
    command,
    pip,
    release,
    this_python,
)
from .probe_process import ask
from .probes import import_modules
from .python import hiding
from .pytorch import installed_version

EXTRA = "course"

# Other checks look at these.
ELSEWHERE = ("numpy", "torch")

SECONDS_TO_END_A_KERNEL = 20.0


def check_course(facts: Facts) -> list[Finding]:
    """Are the packages there that the notebooks and the command d2l-gpu need?"""
    if not installed_version(OURS):
        return [
            _course(
                f"{OURS} is found here, but it is not installed in {sys.prefix}, so "
                "notebooks will not find it.",
                f"Install it: {pip('install', *install_words(EXTRA))}",
            )
        ]
    needed = requirements(EXTRA)
    for name in ELSEWHERE:
        needed.pop(name, None)
    missing = [name for name in needed if not installed_version(name)]
    old = [
        f"{name} {installed_version(name)} (at least {least})"
        for name, least in needed.items()
        if name not in missing and release(installed_version(name)) < release(least)
    ]
    install = pip("install", *install_words(EXTRA))
    findings = []
    if missing:
        what = f"Not installed: {', '.join(missing)}."
        findings.append(_course(what, f"Install what the course needs: {install}"))
    if old:
        findings.append(_course(f"Too old: {', '.join(old)}.", f"Upgrade: {install}"))
    there = [name for name in needed if name not in missing]
    findings += _not_importing(facts, there)
    if findings:
        return findings
    what = (
        f"The {len(needed)} packages that the course needs are installed, and can be "
        "imported."
    )
    return [Finding("course", OK, what)]


def _course(what: str, what_to_do: str) -> Finding:
    return Finding("course", PROBLEM, what, what_to_do)


def _not_importing(facts: Facts, packages: list[str]) -> list[Finding]:
    modules = {module_of(name): name for name in packages}
    answer = facts.ask(import_modules, *modules)
    troubles = {name: answer.said.get(name, "") for name in modules}
    if answer.trouble and (doing := answer.said.get("doing")):
        troubles[doing] = answer.trouble
    return [
        _course(
            f"{modules[name]} is installed, but cannot be imported ({trouble}).",
            f"Install it again: {pip('install', '--force-reinstall', modules[name])}",
        )
        for name, trouble in troubles.items()
        if trouble
    ]


# ------------------------------------------------------------------ kernels


def check_jupyter(facts: Facts) -> list[Finding]:
    """Is the Jupyter that a terminal finds that of this environment?"""
    # Also where pip puts programs with --user.
    schemes = sysconfig.get_scheme_names()
    here = {Path(sysconfig.get_path("scripts", each)).resolve() for each in schemes}
    found = shutil.which("jupyter-lab") or shutil.which("jupyter")
    if found is None or Path(found).parent.resolve() in here:
        what = "No JupyterLab from another environment is in the way."
        return [Finding("jupyter", OK, what)]
    return [
        Finding(
            "jupyter",
            NOTE,
            f"The command jupyter belongs to another environment, {found}.",
            "Activate this environment, or start JupyterLab with its Python: "
            + command(this_python(), "-m", "jupyterlab"),
        )
    ]


def check_kernelspec(facts: Facts) -> list[Finding]:
    """Is the kernel that notebooks ask for, python3, this Python?"""
    answer = facts.kernelspec
    said = answer.said
    if "argv" not in said:
        return [_not_known(answer.trouble)]
    where = f"the kernel python3 in {said['folder']}"
    program = said["argv"][0] if said["argv"] else "nothing"
    if not said.get("there", True):
        what = f"Notebooks cannot start: {where} runs {program}, which does not exist."
        return [_kernelspec(PROBLEM, what)]
    if "prefix" not in said:
        why = said.get("refusal") or answer.trouble
        what = f"Notebooks may not start: {where} runs {program}, which does not answer"
        return [_kernelspec(PROBLEM, f"{what} ({why}).")]
    if kernels.is_this(said["prefix"]):
        what = "Notebooks run with this Python, as the kernel python3."
        return [Finding("kernelspec", OK, what)]
    missing = [name for name in kernels.WANTED if name not in said["knows"]]
    if missing:
        what = f"Notebooks would run with another Python, {program}, which does not"
        what = f"{what} have {' and '.join(missing)}: {where}."
        return [_kernelspec(PROBLEM, what)]
    what = f"Notebooks run with another Python, {program}, which has the course"
    return [_kernelspec(NOTE, f"{what}, too: {where}.")]


def _kernelspec(status: str, what: str) -> Finding:
    remove = command(this_python(), "-m", "jupyter", "kernelspec", "remove", "python3")
    return Finding(
        "kernelspec",
        status,
        what,
        "Open the course with d2l-gpu lab, which uses this Python, or remove that "
        f"kernel, so that each environment uses its own: {remove}",
    )


def _not_known(trouble: str) -> Finding:
    if not installed_version("jupyter_client"):
        what = "Not checked: Jupyter is not installed."
        return Finding("kernelspec", NOTE, what)
    what = f"Jupyter does not say which Python runs notebooks ({trouble})."
    again = pip("install", "--force-reinstall", "jupyter_client", "ipykernel")
    return Finding("kernelspec", PROBLEM, what, f"Install it again: {again}")


def check_kernel(facts: Facts) -> list[Finding]:
    """Does a kernel start, and know the course?"""
    said = facts.kernelspec.said
    if not kernels.is_this(said.get("prefix", "")):
        what = "Not started: this Python has no kernel to start (see above)."
        return [Finding("kernel", NOTE, what)]
    # Kernels are no part of the process that is ended when time is up: that one ends
    # them itself, and gets the time for it.
    deadline = time.time() + facts.timeout
    limit = facts.timeout + SECONDS_TO_END_A_KERNEL
    answer = ask(kernels.start_kernel, limit, deadline)
    if answer.said.get("knows") is True:
        return [Finding("kernel", OK, "A kernel starts, and finds the course.")]
    if "knows" in answer.said:
        what = (
            "A kernel starts, but does not find d2l_gpu, which is not installed here."
        )
        to_do = f"Install it: {pip('install', *install_words(EXTRA))}"
    else:
        what = f"A kernel does not start ({answer.trouble.rstrip('.')})."
        again = pip("install", "--force-reinstall", "ipykernel", "jupyter_client")
        to_do = f"Install Jupyter's kernel again: {again}"
        if any(hiding(Path.cwd())):
            to_do = "First rename the files that the check `names` has found."
    return [Finding("kernel", PROBLEM, what, to_do)]
