"""The command ``d2l-gpu``: run the course without opening a notebook."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from d2l_gpu import __version__
from d2l_gpu.course import lesson_names, notebooks_dir, select_lessons

# Imported by `d2l-gpu run` or by the notebooks; all of them are in the extra.
_COURSE_MODULES = (
    "ipykernel",
    "matplotlib",
    "nbclient",
    "nbconvert",
    "nbformat",
    "pooch",
    "sklearn",
    "tqdm",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the name of the program; those of the process if None.

    Returns:
        0 if all went well, 1 if a cell failed or something is not installed, 2 for
        wrong arguments, 130 if interrupted by Ctrl-C.
    """
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    try:
        notebooks = notebooks_dir()
        lessons = select_lessons(options.lessons, lesson_names(notebooks))
    except (FileNotFoundError, ValueError) as error:
        print(f"d2l-gpu run: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    missing = [name for name in _COURSE_MODULES if not importlib.util.find_spec(name)]
    if missing:
        print(
            f"d2l-gpu run: {', '.join(missing)} not installed; "
            "get what the course needs with: pip install 'd2l-gpu[course]'",
            file=sys.stderr,
        )
        return 1
    # Only now, when it is known that they are there.
    from d2l_gpu.course.run import run_course

    return run_course(notebooks, lessons, options.output, options.timeout)


def _positive(text: str) -> int:
    seconds = int(text)
    if seconds < 1:
        raise ValueError
    return seconds


# argparse names the type in its message: "invalid number of seconds value: 'x'"
_positive.__name__ = "number of seconds"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="d2l-gpu",
        description="GPUs for deep learning, a course that needs none.",
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {__version__}"
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="run")
    run = commands.add_parser(
        "run",
        help="execute the course and write a report",
        description="Copy the notebooks of the course, execute them one after the "
        "other, and write executed copies and one HTML report.",
    )
    run.add_argument(
        "lessons",
        nargs="*",
        metavar="lesson",
        help="number or name, as 03, copying or 03_copying; all if none is given",
    )
    run.add_argument(
        "--output",
        type=Path,
        default=Path("d2l-gpu-course"),
        metavar="DIR",
        help="where to put notebooks and report (default: ./%(default)s)",
    )
    run.add_argument(
        "--timeout",
        type=_positive,
        default=600,
        metavar="SECONDS",
        help="the longest that one cell may take (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
