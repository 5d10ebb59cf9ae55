"""The folder of downloaded data, and the files in it."""

import os
from pathlib import Path

from d2l_gpu.common.settings import DATA, data_folder
from d2l_gpu.data.sources import FASHION_MNIST, abandoned, is_good

from .facts import Facts
from .findings import NOTE, OK, PROBLEM, Finding, command
from .room import nearest, why_unwritable


def check_data(facts: Facts) -> list[Finding]:
    """Can data be kept, and are the files that are there whole?"""
    try:
        folder = data_folder()
    except ImportError as error:
        what = f"The data folder is unknown: {error.name} is not installed."
        return [Finding("data", NOTE, what)]
    files = {
        folder / FASHION_MNIST.folder / name: md5
        for name, md5 in FASHION_MNIST.files.items()
    }
    # Unlike Path.exists, this answers also where the folder may not be read.
    there = [path for path in files if os.access(path, os.F_OK)]
    wrong = {path: reason for path in there if (reason := _wrong(path, files[path]))}
    complete = len(there) == len(files) and not wrong
    findings = [_unusable(path, reason) for path, reason in wrong.items()]
    left_behind = [part for path in files for part in abandoned(path)]
    if left_behind:
        findings.append(
            Finding(
                "data",
                NOTE,
                f"Interrupted downloads have left {len(left_behind)} "
                f"file{'s' * (len(left_behind) > 1)} in {left_behind[0].parent}.",
                f"You can delete them: {_remove(*left_behind)}",
            )
        )
    if not complete:  # a folder with everything may be read-only, as a teacher's is
        findings += _folder_trouble(folder / FASHION_MNIST.folder)
    if findings:
        return findings
    what = f"Data are kept in {folder}; Fashion-MNIST is there."
    if not complete:
        what = (
            f"Data are kept in {folder}. Fashion-MNIST is not there yet: a lesson that "
            "needs it downloads 30 MB. The digits need no download."
        )
    return [Finding("data", OK, what)]


def _wrong(path: Path, md5: str) -> str:
    try:
        if is_good(path, md5, FASHION_MNIST.sha256.get(path.name, "")):
            return ""
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "is damaged: its checksum is not the one that the data's authors published"


def _unusable(path: Path, reason: str) -> Finding:
    return Finding(
        "data",
        PROBLEM,
        f"{path} {reason}.",
        f"Remove it; it will be downloaded again when it is needed: {_remove(path)}",
    )


def _folder_trouble(folder: Path) -> list[Finding]:
    above = nearest(folder)
    trouble = why_unwritable(above) if above.is_dir() else f"{above} is a file"
    if not trouble:
        return []
    return [
        Finding(
            "data",
            PROBLEM,
            f"Data cannot be saved in {folder} ({trouble}).",
            f"Name a folder of your own in the environment variable {DATA}.",
        )
    ]


def _remove(*paths: Path) -> str:
    return command("del" if os.name == "nt" else "rm", *map(str, paths))
