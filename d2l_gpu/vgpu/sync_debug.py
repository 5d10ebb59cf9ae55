"""Tell a program where the host waits for a device: ``set_sync_debug_mode``.

An operator waits if its result is on the host (``item()``, a copy that blocks) or if
the shape of its result depends on values (``nonzero``, an index that is a mask). A call
that asks to wait, such as ``synchronize()``, isn't reported, as in ``torch.cuda``.
"""

import sys
import warnings
from pathlib import Path

import torch

MODES = ("default", "warn", "error")
SENTENCE = "called a synchronizing operation: the host waits for {device}"  # as CUDA
_NOT_PROGRAMS = tuple(str(Path(x).parent) for x in (torch.__file__, __file__))


class _Mode:
    """The mode of the process, a position in ``MODES``."""

    number = 0


mode = _Mode()


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Choose what happens where the host waits for a device.

    Args:
        debug_mode: ``"default"`` or 0 for nothing, ``"warn"`` or 1 for a warning that
            names the program's own line, ``"error"`` or 2 for an error.
    Raises:
        RuntimeError: there is no such mode; or, later, the host has to wait.
    """
    if debug_mode in MODES:
        debug_mode = MODES.index(debug_mode)
    if debug_mode not in range(len(MODES)):
        raise RuntimeError(
            "invalid value of debug_mode, expected one of `default`, `warn`, `error`"
        )
    mode.number = debug_mode


def get_sync_debug_mode() -> int:
    """Return what happens where the host waits for a device: 0, 1 or 2."""
    return mode.number


def report(device: torch.device) -> None:
    """Warn or raise, in a mode other than the default.

    Raises:
        RuntimeError: the mode is "error".
    """
    sentence = SENTENCE.format(device=device)
    if mode.number == 2:
        raise RuntimeError(sentence)
    warn_program(sentence)


def warn_program(sentence: str) -> None:
    """Warn, and name the program's own line."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_NOT_PROGRAMS):
        frame = frame.f_back
    place = frame.f_code.co_filename, frame.f_lineno
    warnings.warn_explicit(sentence, UserWarning, *place)
