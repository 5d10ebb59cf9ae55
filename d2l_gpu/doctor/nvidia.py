"""What ``nvidia-smi`` tells about NVIDIA's GPUs and their driver."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .findings import one_line, release

NVIDIA = "0x10de"  # the vendor's number on the PCI bus


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver.

    Attributes:
        found: whether ``nvidia-smi`` is there.
        gpus: the models of the GPUs.
        version: of the driver.
        cuda: the newest CUDA that it supports, as ``12.4``; empty if it does not say.
        refusal: what ``nvidia-smi`` says where it fails.
        hung: why it did not answer.
    """

    found: bool
    gpus: list[str] = field(default_factory=list)
    version: str = ""
    cuda: str = ""
    refusal: str = ""
    hung: str = ""

    @property
    def works(self) -> bool:
        return bool(self.gpus)

    def runs(self, cuda: str) -> bool:
        """Whether programs built with this CUDA run: of one major version, all do.

        Source: NVIDIA, CUDA Compatibility, "Minor version compatibility",
            https://docs.nvidia.com/deploy/cuda-compatibility/ (read in 2026).
        """
        if not self.cuda:
            return True  # nothing says that they do not
        return release(cuda)[:1] <= release(self.cuda)[:1]


def path() -> str | None:
    """Return where ``nvidia-smi`` is, None if it is not on the path."""
    return shutil.which("nvidia-smi")


def look_at_driver() -> Iterator[dict]:
    """Ask ``nvidia-smi``: a probe, since it hangs where the driver does."""
    query = ["--query-gpu=name,driver_version", "--format=csv,noheader"]
    listed = _run(path(), *query)
    rows = [line.rsplit(",", 1) for line in listed.stdout.splitlines() if "," in line]
    if listed.returncode or not rows:
        said = listed.stdout.strip() or listed.stderr.strip()
        yield {"refusal": one_line(said) or f"exit code {listed.returncode}"}
        return
    yield {"gpus": [name.strip() for name, _ in rows], "version": rows[0][1].strip()}
    # Only the table that it draws without arguments has this; newer ones say "CUDA UMD
    # Version".
    drawn = _run(path()).stdout
    newest = re.search(r"CUDA(?: \w+)? Version\s*:\s*(\d+\.\d+)", drawn)
    yield {"cuda": newest.group(1) if newest else ""}


def _run(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def cards() -> int:
    """Return how many NVIDIA GPUs are on the PCI bus; 0 where only Linux would tell."""
    count = 0
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
        except OSError:
            continue
        count += vendor == NVIDIA and kind.startswith("0x03")  # displays, 3D
    return count
