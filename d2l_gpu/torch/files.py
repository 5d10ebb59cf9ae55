"""Parameters in files: written whole or not at all, read without running anything."""

import io
import os
import pickle
import tempfile
from pathlib import Path

import torch
from torch import nn


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
    path = Path(path)
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=path.name, suffix=".part", delete=False
    ) as file:
        try:
            torch.save(net.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())
            file.close()
            Path(file.name).replace(path)
        except BaseException:
            file.close()
            Path(file.name).unlink(missing_ok=True)
            raise


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
    content = io.BytesIO(path.read_bytes())
    try:
        state = torch.load(content, map_location="cpu", weights_only=True)
    except (RuntimeError, OSError, EOFError, ValueError, pickle.PickleError) as error:
        raise ValueError(
            f"The file {path} is damaged or holds no parameters: save them again."
        ) from error
    ours = net.state_dict()
    if not isinstance(state, dict) or {k: _shape(v) for k, v in state.items()} != {
        k: _shape(v) for k, v in ours.items()
    }:
        raise ValueError(
            f"The file {path} holds the parameters of another network: names or shapes "
            f"differ from those of this {type(net).__name__}."
        )
    net.load_state_dict(state)


def _shape(value):
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None
