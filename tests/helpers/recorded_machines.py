"""Machines as their files and tools describe them: ``tests/machines``.

A machine is a folder. ``files.txt`` has files of Linux, as ``tail -n +1 FILE…`` prints
them; ``nvidia-smi.txt`` and ``nvidia-smi-query.txt`` are what that tool prints, alone
and when it is asked for names and driver. ``virtual-machine`` was recorded, the others
are written in the formats that such machines use, and leave out what nobody reads.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from d2l_gpu.common import processor
from d2l_gpu.doctor import build, nvidia
from d2l_gpu.vgpu import host_memory
from tests.helpers.broken_machines import Plant
from tests.helpers.paths import REPOSITORY

MACHINES = REPOSITORY / "tests" / "machines"
READERS: tuple[ModuleType, ...] = (build, nvidia, processor, host_memory)


def files_of(name: str) -> dict[str, str]:
    """Return the files of a machine, by their paths."""
    text = (MACHINES / name / "files.txt").read_text("utf-8")
    _, *parts = re.split(r"^==> (/\S+) <==\n", text, flags=re.MULTILINE)
    # An empty line comes between two files.
    contents = [part.removesuffix("\n") for part in parts[1:-1:2]] + parts[-1:]
    return dict(zip(parts[::2], contents, strict=True))


def pretend(
    monkeypatch: pytest.MonkeyPatch, root: Path, files: Mapping[str, str]
) -> None:
    """Let those who read files of the system find these, and no others.

    Args:
        root: an empty folder, where they are written.
        files: their contents, by their paths.
    """
    if os.name == "nt" and files:
        pytest.skip("names of PCI devices are no names of files on Windows")
    for path, content in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    for module in READERS:
        monkeypatch.setattr(module, "Path", lambda path: root / str(path).lstrip("/"))


def plant_nvidia_smi(plant: Plant, name: str, status: int = 0) -> bool:
    """Plant the machine's nvidia-smi, if it has one; return whether it has.

    Args:
        status: with which it exits.
    """
    alone = MACHINES / name / "nvidia-smi.txt"
    if alone.exists():
        query = alone.with_name("nvidia-smi-query.txt")
        plant.program(
            "nvidia-smi",
            f'case "$*" in *query-gpu*) cat "{query}";; *) cat "{alone}";; esac\n'
            f"exit {status}",
        )
    return alone.exists()
