"""``d2l-gpu copy``: copy the notebooks, for another program."""

import argparse

from d2l_gpu.commands.arguments import add_edition, add_lessons, add_output
from d2l_gpu.commands.needs import lessons_named
from d2l_gpu.common.messages import say
from d2l_gpu.course import notebooks_dir


def _run(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = lessons_named(options, notebooks)
    from d2l_gpu.course.copies import copy_notebooks

    copies = copy_notebooks(notebooks, lessons, options.output, outputs=options.outputs)
    say(f"{len(copies)} notebooks in {options.output}")
    return 0


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    copy = commands.add_parser(
        "copy",
        help="copy the notebooks, to open them with another program",
        description="Copy the notebooks of the course to a folder, for VS Code, "
        "PyCharm or a server of your own. Notebooks that you have changed are kept.",
    )
    copy.set_defaults(command=_run)
    add_lessons(copy)
    add_edition(copy)
    add_output(copy)
    copy.add_argument(
        "--without-outputs",
        dest="outputs",
        action="store_false",
        help="leave out what cells print and draw, so that a class can predict it",
    )
