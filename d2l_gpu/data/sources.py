"""The data that the course downloads, listed without importing PyTorch."""

import contextlib
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

SECONDS_UNTIL_ABANDONED = 600  # after this long without a new byte


@dataclass(frozen=True)
class Source:
    """Where a data set's files come from.

    Attributes:
        folder: name of its subfolder in the data folder.
        mirrors: URLs of folders that hold all the files.
        files: file names and their MD5 checksums, in the order training images,
            training labels, test images, test labels.
    """

    folder: str
    mirrors: tuple[str, ...]
    files: Mapping[str, str]


# The authors' mirrors and checksums: https://github.com/zalandoresearch/fashion-mnist
# (read in 2026).
FASHION_MNIST = Source(
    "fashion-mnist",
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/"
        "fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
)


def checksum(path: Path) -> str:
    """Return the MD5 checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        # Some systems allow MD5 only if it's declared not to be for security.
        new = partial(hashlib.md5, usedforsecurity=False)
        return hashlib.file_digest(file, new).hexdigest()


def cached(name: str, md5: str, folder: Path) -> Path | None:
    """Return the path of a file if it is in a folder and its checksum is right.

    Args:
        name: name of the file.
        md5: its checksum, in hexadecimal.
        folder: where it is kept.
    Returns:
        The path, or None if the file is missing or damaged.
    Raises:
        OSError: the file can't be read.
    """
    path = folder / name
    return path if path.exists() and checksum(path) == md5 else None


def abandoned(target: Path) -> list[Path]:
    """Return a file's partial downloads that killed processes left behind."""
    parts = []
    for part in target.parent.glob(f"{target.name}.*.part"):
        with contextlib.suppress(OSError):  # another process may be removing it
            if time.time() - part.stat().st_mtime > SECONDS_UNTIL_ABANDONED:
                parts.append(part)
    return parts
