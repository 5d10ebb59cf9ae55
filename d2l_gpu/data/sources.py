"""The data that the course downloads, listed without importing PyTorch."""

import contextlib
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
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
        sha256: their SHA-256 checksums, by file name, as far as they are known. MD5
            finds damage; only SHA-256 finds a file that was forged.
    """

    folder: str
    mirrors: tuple[str, ...]
    files: Mapping[str, str]
    sha256: Mapping[str, str] = field(default_factory=dict)


# The authors' mirrors and MD5 checksums:
# https://github.com/zalandoresearch/fashion-mnist (read in 2026). They publish no
# SHA-256. Those below are TensorFlow Datasets' and torchvision's, which agree:
# https://github.com/tensorflow/datasets/blob/333639b37af6c6fedf3610a4a2d42f1c6ef6f7d5/tensorflow_datasets/url_checksums/fashion_mnist.txt
# https://github.com/pytorch/vision/blob/1ec2509e8715d5373b194b688ee0cc75262baec9/torchvision/prototype/datasets/_builtin/mnist.py
# (read in 2026; those of the labels were also computed from the authors' repository).
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
    {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed27"
        "1626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc"
        "97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a4"
        "84bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3c"
        "d6d1c2608764d35dfb1850b086bf8dd5",
    },
)


def is_good(path: Path, md5: str, sha256: str = "") -> bool:
    """Return whether a file has the right checksums, in hexadecimal.

    Args:
        path: the file.
        md5: its MD5 checksum.
        sha256: its SHA-256 checksum, empty if it isn't known.
    Raises:
        OSError: the file can't be read.
    """
    with path.open("rb") as file:
        # Some systems allow MD5 only if it's declared not to be for security.
        new = partial(hashlib.md5, usedforsecurity=False)
        if hashlib.file_digest(file, new).hexdigest() != md5:
            return False
        file.seek(0)
        return sha256 in ("", hashlib.file_digest(file, "sha256").hexdigest())


def cached(name: str, md5: str, folder: Path, sha256: str = "") -> Path | None:
    """Return the path of a file if it is in a folder and its checksums are right.

    Args:
        name: name of the file.
        md5: its MD5 checksum, in hexadecimal.
        folder: where it is kept.
        sha256: its SHA-256 checksum, empty if it isn't known.
    Returns:
        The path, or None if the file is missing or damaged.
    Raises:
        OSError: the file can't be read.
    """
    path = folder / name
    return path if path.exists() and is_good(path, md5, sha256) else None


def abandoned(target: Path) -> list[Path]:
    """Return a file's partial downloads that killed processes left behind."""
    parts = []
    for part in target.parent.glob(f"{target.name}.*.part"):
        with contextlib.suppress(OSError):  # another process may be removing it
            if time.time() - part.stat().st_mtime > SECONDS_UNTIL_ABANDONED:
                parts.append(part)
    return parts
