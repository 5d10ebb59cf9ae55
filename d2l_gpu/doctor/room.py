"""Room: main memory, and space on the disks."""

import contextlib
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from d2l_gpu.common.processor import size_text
from d2l_gpu.common.settings import data_folder

from .facts import Facts
from .findings import NOTE, OK, PROBLEM, Finding

# The lesson that needs most, training on several processes, was seen to take 2.6 GiB;
# a single process with PyTorch and Matplotlib takes half of one.
MEMORY_NEEDED, MEMORY_WANTED = 2**30, 3 * 2**30
# The notebooks and their report are a few MiB, the data 30.
SPACE_NEEDED, SPACE_WANTED = 100 * 2**20, 2**30


def check_memory(facts: Facts) -> list[Finding]:
    """Has the machine enough memory left?"""
    left = _memory_left()
    if left is None:
        return [
            Finding("memory", OK, "The system does not say how much memory is left.")
        ]
    what = f"{size_text(left)} of main memory is available"
    if left >= MEMORY_WANTED:
        return [Finding("memory", OK, f"{what}.")]
    short = left < MEMORY_NEEDED
    needed = MEMORY_NEEDED if short else MEMORY_WANTED
    share = "the lessons need" if short else "the largest lesson takes"
    return [
        Finding(
            "memory",
            PROBLEM if short else NOTE,
            f"{what}, but {share} {size_text(needed)}.",
            "Close other programs, or the kernels of other notebooks.",
        )
    ]


def _memory_left() -> int | None:
    # Here, for the sake of a Python that is too old to load it, and is to be told so.
    from d2l_gpu.vgpu import host_memory_left

    return host_memory_left()


def check_disk(facts: Facts) -> list[Finding]:
    """Is there space where packages, notebooks, data and temporary files go?"""
    findings = list(_unwritable())
    for folder, uses in _file_systems().items():
        left = shutil.disk_usage(folder).free
        what = f"{size_text(left)} left at {folder}, for {_and(uses)}"
        if left >= SPACE_WANTED:
            findings.append(Finding("disk", OK, f"{what}."))
            continue
        findings.append(
            Finding(
                "disk",
                PROBLEM if left < SPACE_NEEDED else NOTE,
                f"Only {what}.",
                "Free some space there" + _elsewhere(uses),
            )
        )
    return findings


def _unwritable() -> Iterator[Finding]:
    trouble = why_unwritable(Path.cwd())
    if trouble:
        yield Finding(
            "disk",
            PROBLEM,
            f"Nothing can be written to the working folder {Path.cwd()} ({trouble}).",
            "Change to a folder of your own: cd",
        )


def _file_systems() -> dict[Path, list[str]]:
    """Return a folder of each file system that is used, and what it is used for."""
    places = [
        ("packages", Path(sysconfig.get_path("purelib"))),
        ("the working folder", Path.cwd()),
        ("temporary files", Path(tempfile.gettempdir())),
    ]
    with contextlib.suppress(ImportError):  # other checks name what is missing
        places.append(("downloaded data", data_folder()))
    folders: dict[int, Path] = {}
    uses: dict[Path, list[str]] = {}
    for use, place in places:
        folder = nearest(place)
        folder = folders.setdefault(folder.stat().st_dev, folder)
        uses.setdefault(folder, []).append(use)
    return uses


def nearest(path: Path) -> Path:
    """Return a path, or the nearest above it that exists."""
    for each in (path, *path.parents):
        with contextlib.suppress(PermissionError):  # of a folder that may not be read
            if each.exists():
                return each
    return path


def why_unwritable(folder: Path) -> str:
    """Return why no file can be written into a folder, empty if one can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"d2l")
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def _elsewhere(uses: list[str]) -> str:
    if "downloaded data" in uses:
        return ", or keep data elsewhere by setting the variable D2L_GPU_DATA."
    if "temporary files" in uses:
        return ", or keep temporary files elsewhere by setting the variable TMPDIR."
    return "."


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + words[-1:])
