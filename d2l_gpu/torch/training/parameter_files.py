"""Parameters in files: written completely or not at all, read without running code."""

import io
import pickle
import re
import zipfile
from pathlib import Path

import torch
from torch import nn

from d2l_gpu.common.arguments import refuse_folder
from d2l_gpu.common.files import replacing

# How PyTorch 2.10 to 2.13 says that a file asks for a class or a function.
_CODE = re.compile(
    r"(?:global|class|function)\s+<?(?:class\s+)?'?([\w.]*)", re.IGNORECASE
)


class UnsafeContent(pickle.UnpicklingError):
    """A file asks for a class or a function: reading it could run any code."""

    def __init__(self, name: str):
        super().__init__(
            f"it asks for {name or 'a program'}, and could run any code when it is read"
        )


def save_parameters(net: nn.Module, path: str | Path) -> None:
    """Save a network's parameters and buffers to a file.

    The file gets its name only when it is complete. Until then, and if writing fails,
    any earlier file of that name stays.

    Args:
        net: the network, on any device.
        path: name of the file.
    Raises:
        OSError: the file can't be written, or the path is a folder.
    """
    refuse_folder(path)
    write_durably(Path(path), saved(net.state_dict()))


def load_parameters(net: nn.Module, path: str | Path) -> None:
    """Load parameters and buffers from a file into a network on any device.

    Only tensors and plain containers are read (``weights_only=True``). If the file
    can't be used, the network stays as it was.

    Args:
        net: the network; its parameters stay on their devices.
        path: a file from ``save_parameters`` or ``torch.save(net.state_dict(), …)``.
    Raises:
        FileNotFoundError: there is no such file.
        OSError: the file can't be read, or the path is a folder.
        ValueError: the file is damaged, holds more than parameters, or doesn't hold
            this network's.
    """
    path = Path(path)
    refuse_folder(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file {path}: check its name, or save the parameters first."
        )
    # Read the file first, so that later errors are about its content, not the disk.
    content = path.read_bytes()
    try:
        _compare_checksums(content)
        state = loaded(content)
    except UnsafeContent as error:
        raise ValueError(
            f"The file {path} holds more than parameters and is not read ({error}): "
            "use one that save_parameters has written."
        ) from None
    except Exception:  # of any kind: a changed byte may mean anything
        raise ValueError(
            f"The file {path} is damaged or holds no parameters: save them again."
        ) from None
    if not fits(net, state):
        raise ValueError(
            f"The file {path} holds the parameters of another network: names or shapes "
            f"differ from those of this {type(net).__name__}."
        )
    net.load_state_dict(state)


def fits(net: nn.Module, state: object) -> bool:
    """Return whether a state has the same names and shapes as a network's."""
    return isinstance(state, dict) and _shapes(state) == _shapes(net.state_dict())


def _shapes(state: dict) -> dict:
    return {
        name: tuple(value.shape) if isinstance(value, torch.Tensor) else None
        for name, value in state.items()
    }


# ------------------------------------------------------------------ content, files


def saved(state: dict) -> io.BytesIO:
    """Return the output of ``torch.save`` for a state, in memory.

    If ``torch.save`` wrote to a file itself, a full disk would be a RuntimeError about
    positions in an archive (torch 2.10 to 2.13).
    """
    content = io.BytesIO()
    torch.save(state, content)
    return content


def loaded(content: bytes | memoryview) -> object:
    """Return the state that was passed to ``saved``, with all tensors on the CPU.

    Only tensors and plain containers are read.

    Raises:
        UnsafeContent: there is something else in it.
        pickle.UnpicklingError: it is damaged.
    """
    try:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Not with PyTorch's message, which suggests to read the file nevertheless.
        if asked := _CODE.search(str(error)):
            raise UnsafeContent(asked[1]) from None
        raise pickle.UnpicklingError("it cannot be read") from None


def _compare_checksums(content: bytes) -> None:
    """Raise BadZipFile if what ``torch.save`` has written is no longer the same.

    ``torch.load`` leaves that out (torch 2.13). A checksum of 0 means that
    ``torch.save`` was told to write none, and files of before 1.6 are no archives.
    """
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for part in archive.infolist():
                if part.CRC:
                    archive.read(part)


def write_durably(path: Path, content: io.BytesIO) -> None:
    """Write a file that gets its name only when it is complete and on disk.

    If that fails, any earlier file stays, and nothing else is left behind. Only a
    process that is killed while writing leaves a file; it isn't hidden, so that
    ``Checkpoints`` and you can find it.

    Raises:
        OSError: the file can't be written.
    """
    with replacing(path, hidden=False, durable=True) as file:
        file.write(content.getbuffer())
