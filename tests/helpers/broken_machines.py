"""Machines on which something is wrong: planted packages, programs and kernels."""

import json
import os
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from d2l_gpu import doctor
from d2l_gpu.doctor import Finding
from tests.helpers.waiting import PATIENCE


def look(name: str, timeout: float = PATIENCE) -> list[Finding]:
    """Return what a check finds, having seen that it keeps the form of all of them."""
    findings = list(doctor.examine([name], timeout))
    assert findings
    for finding in findings:
        assert finding.name == name
        assert finding.status in (doctor.OK, doctor.NOTE, doctor.PROBLEM)
        assert finding.what[-1] in ".!", finding.what
        assert "\n" not in finding.what + finding.what_to_do
        assert "The check itself failed" not in finding.what
        assert finding.status != doctor.PROBLEM or finding.what_to_do
    return findings


def look_once(name: str, timeout: float = PATIENCE) -> Finding:
    """Return the only thing that a check finds."""
    (finding,) = look(name, timeout)
    return finding


def until_begun(file: Path, attempt: Callable[[float], Any]) -> Any:
    """Return what comes of waiting for something that hangs, and writes a file first.

    A machine that is busy with other tests may not come to that in a short time.
    """
    for limit in (2.0, 8.0, 32.0, 128.0):
        result = attempt(limit)
        if file.exists() and file.read_text():
            return result
    raise AssertionError(f"{file} was never written")


class Plant:
    """A place for modules, packages' metadata and programs that are not real.

    Attributes:
        modules: the folder in which Python looks first.
        programs: the folder in which the shell looks first.
    """

    def __init__(self, root: Path):
        self.modules, self.programs = root / "modules", root / "programs"
        self.modules.mkdir(parents=True)
        self.programs.mkdir()

    def module(self, name: str, code: str) -> None:
        """Plant a module; its name may have dots."""
        path = self.modules.joinpath(*name.split("."))
        path.mkdir(parents=True)
        (path / "__init__.py").write_text(textwrap.dedent(code))

    def package(self, name: str, version: str, requires: Sequence[str] = ()) -> None:
        """Plant what pip writes down of a package that it has installed."""
        folder = self.modules / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = [f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (folder / "METADATA").write_text("\n".join(lines))

    def program(self, name: str, script: str) -> None:
        """Plant a program, a script of the shell."""
        if os.name == "nt":
            pytest.skip("Windows runs no scripts of this shell")
        path = self.programs / name
        path.write_text("#!/bin/sh\n" + textwrap.dedent(script))
        path.chmod(0o755)

    def nvidia_smi(self, gpus: Sequence[str], driver: str, cuda: str) -> None:
        """Plant an nvidia-smi that works, on a machine with these GPUs."""
        rows = "\n".join(f"echo '{gpu}, {driver}'" for gpu in gpus)
        table = f"| NVIDIA-SMI {driver}   Driver Version: {driver}"
        table += f"   CUDA Version: {cuda} |"
        self.program(
            "nvidia-smi",
            f'case "$*" in *query-gpu*)\n{rows};;\n*) echo "{table}";; esac',
        )

    def torch(
        self,
        version: str,
        cuda: str | None = None,
        gpus: int = 0,
        reason: str = "No CUDA GPUs are available",
        more: str = "",
    ) -> None:
        """Plant a PyTorch that says of itself what the checks ask first.

        Args:
            version: of PyTorch.
            cuda: the version for which it was built; None for the CPU.
            gpus: how many it sees.
            reason: why it sees none.
            more: code of the module.
        """
        self.module(
            "torch",
            f"""
            from . import version

            __version__ = {version!r}

            class accelerator:
                is_available = staticmethod(lambda: {gpus} > 0)
                device_count = staticmethod(lambda: {gpus})

                def current_accelerator():
                    class device:
                        type = "cuda"
                    return device

            class cuda:
                def init():
                    raise RuntimeError({reason!r})
            """
            + textwrap.indent(textwrap.dedent(more), " " * 12),
        )
        (self.modules / "torch" / "version.py").write_text(f"cuda = {cuda!r}\n")
        self.package("torch", version)

    def kernel(self, argv: Sequence[str]) -> dict[str, str]:
        """Plant a kernel python3, and return the environment that lets Jupyter see it.

        Where Jupyter looks first, as for what users have installed for themselves.
        """
        folder = self.modules.parent / "jupyter"
        spec = folder / "kernels" / "python3"
        spec.mkdir(parents=True)
        spec.joinpath("kernel.json").write_text(
            json.dumps({"argv": argv, "display_name": "?", "language": "python"})
        )
        return {"JUPYTER_PATH": str(folder)}
