"""``d2l-gpu bundle``: an archive that installs the course without a network."""

import argparse
from pathlib import Path

from d2l_gpu.commands.arguments import add_edition, add_lessons
from d2l_gpu.commands.needs import NOTEBOOKS, lacks, lessons_named
from d2l_gpu.course import notebooks_dir

MODULES = (*NOTEBOOKS, "jupyterlab", "packaging")


def _run(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = lessons_named(options, notebooks)
    if lacks(options, MODULES):
        return 1
    from d2l_gpu.course.bundle import make_bundle

    return make_bundle(notebooks, lessons, options.output, options.data)


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    bundle = commands.add_parser(
        "bundle",
        help="make an archive that installs the course without a network",
        description="Make one archive of the course and all the packages it needs, in "
        "the versions installed here, for other computers with the same system and "
        "Python. Unpack it there, and run `python install.py`, which needs no "
        "network.",
    )
    bundle.set_defaults(command=_run)
    add_lessons(bundle)
    add_edition(bundle)
    bundle.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="PATH",
        help="a folder for the archive, or a file name that ends in .zip (default: "
        "this folder)",
    )
    bundle.add_argument(
        "--data",
        action=argparse.BooleanOptionalAction,
        help="include Fashion-MNIST, 30 MB; it must be on this computer already, "
        "since this command never downloads it (default: include it if it is "
        "there)",
    )
