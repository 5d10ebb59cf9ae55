"""Running a user's script inside a process of ours, as Python itself would run it.

Needs nothing but Python: what a script does before it imports PyTorch still counts.
"""

import runpy
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType


def run_script(path: Path) -> None:
    """Run a file as the module ``__main__``.

    Not by ``runpy.run_path``, which gives ``__file__`` and ``sys.argv[0]`` one value,
    and takes the module away before functions run that the script left for the end.

    Args:
        path: the script; its folder becomes the first place to import from.
    Raises:
        Whatever the script raises; SyntaxError if it is no Python.
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
    """Return whether a frame of this file stands above the program, not in it.

    Args:
        filename: ``co_filename`` of the frame's code.
        others: files of the caller, which are as little the program's.
    """
    return filename in (__file__, runpy.__file__, "<frozen runpy>", *others)


def of_program(traceback: TracebackType | None, *others: str) -> TracebackType | None:
    """Return a traceback from the program's own first line on, None without any.

    Args:
        traceback: of an exception that the program raised.
        others: files of the caller, whose frames are left out, too.
    """
    while traceback and is_ours(traceback.tb_frame.f_code.co_filename, *others):
        traceback = traceback.tb_next
    return traceback
