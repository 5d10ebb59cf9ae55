"""Parameters in files: written whole or not at all, read without running anything."""

import io
import pickle
from pathlib import Path

import torch
from torch import nn

from d2l_gpu.common.files import replacing


def save_parameters(net: nn.Module, path: str | Path) -> None:
    """Write a network's parameters and buffers to a file.

    The file appears under its name when it is complete; until then, and if writing
    fails, what was there before stays.

    Args:
        net: the network; it may live on any device.
        path: name of the file.
    Raises:
        OSError: the file cannot be written.
    """
    write_durably(Path(path), saved(net.state_dict()))


def load_parameters(net: nn.Module, path: str | Path) -> None:
    """Read parameters and buffers from a file into a network, wherever it lives.

    Nothing but tensors and plain containers is read (``weights_only=True``). If the
    file cannot be used, the network stays as it was.

    Args:
        net: the network; its parameters stay on their devices.
        path: a file by ``save_parameters``, or by ``torch.save(net.state_dict(), …)``.
    Raises:
        FileNotFoundError: there is no such file; OSError: it cannot be read.
        ValueError: the file is damaged, holds something else than parameters, or those
            of another network.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file {path}: check its name, or save the parameters first."
        )
    # Read first: what is raised afterwards is about the content, not about the disk.
    content = path.read_bytes()
    try:
        state = loaded(content)
    except (RuntimeError, OSError, EOFError, ValueError, pickle.PickleError) as error:
        raise ValueError(
            f"The file {path} is damaged or holds no parameters: save them again."
        ) from error
    if not fits(net, state):
        raise ValueError(
            f"The file {path} holds the parameters of another network: names or shapes "
            f"differ from those of this {type(net).__name__}."
        )
    net.load_state_dict(state)


def fits(net: nn.Module, state: object) -> bool:
    """Return whether names and shapes in a state are those of a network."""
    return isinstance(state, dict) and _shapes(state) == _shapes(net.state_dict())


def _shapes(state: dict) -> dict:
    return {
        name: tuple(value.shape) if isinstance(value, torch.Tensor) else None
        for name, value in state.items()
    }


# ------------------------------------------------------------------ content, files


def saved(state: dict) -> io.BytesIO:
    """Return what ``torch.save`` makes of a state, in memory.

    Written to a file directly, a full disk would be a RuntimeError about positions in
    an archive (torch 2.10 to 2.13).
    """
    content = io.BytesIO()
    torch.save(state, content)
    return content


def loaded(content: bytes | memoryview) -> object:
    """Return what ``saved`` was given, with all tensors on the CPU.

    Nothing but tensors and plain containers is read.
    """
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def write_durably(path: Path, content: io.BytesIO) -> None:
    """Write a file that appears under its name when it is complete and on the disk.

    If that fails, what was there before stays and nothing else is left behind. What a
    killed process leaves is not hidden: ``Checkpoints`` looks for it, and so may you.

    Raises:
        OSError: the file cannot be written.
    """
    with replacing(path, hidden=False, durable=True) as file:
        file.write(content.getbuffer())
