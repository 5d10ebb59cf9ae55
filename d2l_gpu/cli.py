"""The command ``d2l-gpu``, all of whose arguments are read here."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from d2l_gpu import __version__
from d2l_gpu.course import is_appendix, lesson_names, notebooks_dir, select_lessons

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
_BUNDLE_MODULES = ("jupyterlab", "packaging")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the name of the program; those of the process if None.

    Returns:
        0 if all went well, 1 if something failed or is not installed, 2 for wrong
        arguments, 130 if interrupted by Ctrl-C.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"d2l-gpu {options.name}: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"d2l-gpu {options.name}: {error}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = select_lessons(options.lessons, lesson_names(notebooks))
    if not options.lessons:
        lessons = [name for name in lessons if not is_appendix(name)]
    if _lacks(options, _COURSE_MODULES):
        return 1
    # Only now, when it is known that they are there.
    from d2l_gpu.course.run import run_course

    return run_course(notebooks, lessons, options.output, options.timeout)


def _bundle(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = select_lessons(options.lessons, lesson_names(notebooks))
    if not options.lessons:
        lessons = [name for name in lessons if not is_appendix(name)]
    if _lacks(options, (*_COURSE_MODULES, *_BUNDLE_MODULES)):
        return 1
    from d2l_gpu.course.bundle import make_bundle

    return make_bundle(notebooks, lessons, options.output, options.data)


def _lacks(options: argparse.Namespace, modules: Sequence[str]) -> bool:
    """Say which modules that a command needs are not installed, if any are not."""
    missing = [name for name in modules if not importlib.util.find_spec(name)]
    if missing:
        print(
            f"d2l-gpu {options.name}: {', '.join(missing)} not installed; "
            "get what the course needs with: pip install 'd2l-gpu[course]'",
            file=sys.stderr,
        )
    return bool(missing)


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
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="command", dest="name"
    )
    _add_run(commands)
    _add_bundle(commands)
    return parser


def _add_run(commands: argparse._SubParsersAction) -> None:
    run = commands.add_parser(
        "run",
        help="execute the course and write a report",
        description="Copy the notebooks of the course, execute them one after the "
        "other, and write executed copies and one HTML report.",
    )
    run.set_defaults(command=_run)
    run.add_argument(
        "lessons",
        nargs="*",
        metavar="lesson",
        help="number or name, as 03, copying or 03_copying; without any, all but the "
        "appendices",
    )
    _add_edition(run)
    _add_output(run)
    run.add_argument(
        "--timeout",
        type=_positive,
        default=600,
        metavar="SECONDS",
        help="the longest that one cell may take (default: %(default)s)",
    )


def _add_bundle(commands: argparse._SubParsersAction) -> None:
    bundle = commands.add_parser(
        "bundle",
        help="make an archive that installs the course without a network",
        description="Make one archive of the course and of all packages that it needs, "
        "in the versions that are installed here, for other computers with the same "
        "system and Python. Unpack it there, and run `python install.py`, which needs "
        "no network.",
    )
    bundle.set_defaults(command=_bundle)
    bundle.add_argument(
        "lessons",
        nargs="*",
        metavar="lesson",
        help="number or name, as 03, copying or 03_copying; without any, all but the "
        "appendices",
    )
    _add_edition(bundle)
    bundle.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="PATH",
        help="a folder for the archive, or its name, which ends in .zip (default: this "
        "folder)",
    )
    bundle.add_argument(
        "--data",
        action=argparse.BooleanOptionalAction,
        help="include Fashion-MNIST, 30 MB, which is never downloaded for it (default: "
        "if it has been downloaded before)",
    )


def _add_edition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--language",
        help="of the notebooks, as en (default: yours, if there is an edition)",
    )
    parser.add_argument("--framework", help="that the notebooks use (default: pytorch)")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("d2l-gpu-course"),
        metavar="DIR",
        help="where to put the notebooks (default: ./%(default)s)",
    )


if __name__ == "__main__":
    sys.exit(main())
