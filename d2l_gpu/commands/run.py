"""``d2l-gpu run``: execute the course and write a report."""

import argparse

from d2l_gpu.commands.arguments import (
    add_edition,
    add_lessons,
    add_output,
    number_of_seconds,
)
from d2l_gpu.commands.needs import NOTEBOOKS, lacks, lessons_named
from d2l_gpu.course import notebooks_dir


def _run(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = lessons_named(options, notebooks)
    if lacks(options, NOTEBOOKS):
        return 1
    # Only now, when it is known that they are there.
    from d2l_gpu.course.run import run_course

    return run_course(notebooks, lessons, options.output, options.timeout)


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    run = commands.add_parser(
        "run",
        help="execute the course and write a report",
        description="Copy the course's notebooks, execute them one after another, and "
        "write executed copies and an HTML report.",
    )
    run.set_defaults(command=_run)
    add_lessons(run)
    add_edition(run)
    add_output(run)
    run.add_argument(
        "--timeout",
        type=number_of_seconds,
        default=600,
        metavar="SECONDS",
        help="time limit for each cell, in seconds (default: %(default)s)",
    )
