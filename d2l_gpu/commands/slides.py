"""``d2l-gpu slides``: slides of lessons, with notes for the speaker."""

import argparse

from d2l_gpu.commands.arguments import add_edition, add_lessons, add_output
from d2l_gpu.commands.needs import lessons_named, missing
from d2l_gpu.common.requirements import install
from d2l_gpu.course import notebooks_dir

_MODULES = ("latex2mathml", "nbconvert", "nbformat")


def _run(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = lessons_named(options, notebooks)
    # Nothing is executed, so neither the framework nor what lessons import is needed.
    if missing(options, _MODULES, install("jupyter")):
        return 1
    from d2l_gpu.course.slides.write import make_slides

    make_slides(notebooks, lessons, options.output, live=options.live)
    return 0


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    slides = commands.add_parser(
        "slides",
        help="make slides of lessons, with notes for the speaker",
        description="Write a page of slides for each lesson, which needs no network. "
        "Open it in a browser: S shows the speaker's notes, T switches between light "
        "and dark, F fills the screen, O shows all slides, and ?print-pdf at the end "
        "of the address is for printing.",
    )
    slides.set_defaults(command=_run)
    add_lessons(slides)
    add_edition(slides)
    add_output(slides, "slides", "slides")
    slides.add_argument(
        "--live",
        action="store_true",
        help="write a notebook for each lesson, too, whose cells JupyterLab shows as "
        "slides and runs; it needs the extension jupyterlab-rise",
    )
