"""Writing files so that a reader never finds half of one.

Nothing but the standard library is imported: a rank runs this before its script.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PART = ".part"
"""How the name of a file ends that is not complete."""


@contextlib.contextmanager
def replacing(
    path: Path, *, hidden: bool = True, durable: bool = False
) -> Iterator[BinaryIO]:
    """Open a file that takes its name when it is complete.

    If that fails, what was there before stays and nothing else is left behind. Only a
    process that is killed meanwhile leaves a file beside it, whose name ends with
    ``PART``.

    Args:
        path: its name; the folder is there.
        hidden: whether the name begins with a point until then.
        durable: whether to wait until the disk has it, under its name.
    Returns:
        A context with the file, to be written to as bytes.
    Raises:
        OSError: the file cannot be written.
    """
    writer = f"{os.getpid()}"
    if threading.current_thread() is not threading.main_thread():
        # Threads of one process may write the same file at the same time.
        writer += f"-{threading.get_ident()}"
    part = path.with_name(f"{'.' * hidden}{path.name}.{writer}{PART}")
    try:
        with part.open("wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if durable and os.name == "posix":  # the new name is an entry of the folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file that appears under its name when it is complete.

    Args:
        path: its name; the folder is there.
        content: of the file, a text as UTF-8.
    Raises:
        OSError: the file cannot be written.
    """
    if isinstance(content, str):
        content = content.encode()
    with replacing(path) as file:
        file.write(content)


def write_atomically(path: Path, text: str) -> None:
    """Write a file for all to read: the old content, or the new, never a part.

    An old file keeps its permissions, and the folder is made if it is missing.

    Args:
        path: its name.
        text: its content, which is written as UTF-8.
    Raises:
        OSError: the file cannot be written.
    """
    content = text.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        Path(file.name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        file.write(content)
