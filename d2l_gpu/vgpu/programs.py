"""Run a user's script inside this process as Python itself would run it.

This needs nothing but Python. It doesn't import PyTorch, so a script can still set what
has to be set before that import.
"""

import runpy
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType


def run_script(path: Path) -> None:
    """Run a file as the module ``__main__``.

    We don't use ``runpy.run_path`` because it sets ``__file__`` and ``sys.argv[0]`` to
    the same value, and removes the module before the script's ``atexit`` functions run.

    Args:
        path: the script; its folder becomes the first entry of ``sys.path``.
    Raises:
        Exception: the script has raised it.
        SyntaxError: the script isn't Python.
    """
    if not sys.flags.safe_path:
        sys.path[0] = str(path.resolve().parent)
    name = str(path.absolute())
    main = ModuleType("__main__")
    main.__file__ = name
    main.__loader__ = SourceFileLoader("__main__", name)
    sys.modules["__main__"] = main
    code = compile(path.read_bytes(), name, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def is_ours(filename: str, *others: str) -> bool:
    """Return whether a frame of this file belongs to us rather than to the program.

    Args:
        filename: ``co_filename`` of the frame's code.
        others: files of the caller, which don't belong to the program either.
    """
    return filename in (__file__, runpy.__file__, "<frozen runpy>", *others)


def of_program(traceback: TracebackType | None, *others: str) -> TracebackType | None:
    """Return a traceback starting at the program's own first frame, None without any.

    Args:
        traceback: of an exception that the program raised.
        others: files of the caller, whose frames are left out too.
    """
    while traceback and is_ours(traceback.tb_frame.f_code.co_filename, *others):
        traceback = traceback.tb_next
    return traceback
