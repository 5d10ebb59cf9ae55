"""``d2l-gpu grade``: check the exercises in the notebooks of a class."""

import argparse
import sys
from pathlib import Path

from d2l_gpu.commands.arguments import (
    add_output,
    exercises_and_lessons,
    number_of_notebooks,
    number_of_seconds,
)
from d2l_gpu.commands.needs import NOTEBOOKS, lacks
from d2l_gpu.common.frameworks import FRAMEWORKS
from d2l_gpu.common.messages import say
from d2l_gpu.common.processor import usable_cores

_MODULES = ("cloudpickle", *NOTEBOOKS)


def _run(options: argparse.Namespace) -> int:
    if lacks(options, _MODULES):
        return 1
    from d2l_gpu.exercises.own import chosen_file
    from d2l_gpu.exercises.variants.draw import choose
    from d2l_gpu.grading.class_list import read_class_list
    from d2l_gpu.grading.plan import Settings
    from d2l_gpu.grading.points import given_points
    from d2l_gpu.grading.run import grade_class

    if options.variant:
        choose(options.variant)
    points = given_points(options.points, options.all_or_nothing)
    points_file = Path(options.points)
    settings = Settings(
        framework=options.framework,
        lesson=options.lesson,
        only=options.only,
        own=chosen_file(options.exercises),
        points=points,
        cell_seconds=options.timeout,
        notebook_seconds=options.notebook_timeout,
        jobs=options.jobs or usable_cores(),
        again=options.again,
        class_list=read_class_list(options.students) if options.students else None,
        points_from=points_file if points_file.is_file() else None,
    )
    try:
        return grade_class(options.submissions, options.output, settings)
    except KeyboardInterrupt:
        say(
            "\ninterrupted; what has been graded is kept, and the same command goes on "
            "from there",
            file=sys.stderr,
        )
        return 130


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    grade = commands.add_parser(
        "grade",
        help="check the exercises in the notebooks of a class",
        description="Run the notebooks of a class, each in a process of its own with "
        "limited time and memory, check their answers, and write tables "
        "(grades.csv, grades.json), a page that shows where the class is stuck "
        "(grades.html), and feedback for each student. Notebooks that have been graded "
        "aren't graded again, so you can interrupt this command with Ctrl-C.",
        epilog="docs/teaching.md says what the limits keep out, and what they don't.",
    )
    grade.set_defaults(command=_run)
    grade.add_argument(
        "submissions",
        type=Path,
        help="folder with a notebook, or a folder of notebooks, for each student",
    )
    add_output(grade, "grades", "grades")
    grade.add_argument(
        "--points",
        default="1",
        metavar="NUMBER or FILE",
        help="points for each exercise, or a TOML file with the points of exercises, "
        'with lines such as "03.1" = 2 (default: %(default)s)',
    )
    grade.add_argument(
        "--students",
        type=Path,
        metavar="FILE",
        help="a CSV file with everyone in the class, such as a gradebook exports, to "
        "see who handed in nothing",
    )
    grade.add_argument(
        "--all-or-nothing",
        action="store_true",
        help="no points for an answer that passes only some of its checks",
    )
    grade.add_argument(
        "--only",
        type=exercises_and_lessons,
        action="extend",
        default=[],
        metavar="EXERCISES",
        help="the exercises or lessons that count, such as 03.1,03.2,07 (default: all "
        "of the notebooks' lessons)",
    )
    grade.add_argument(
        "--exercises",
        metavar="FILE",
        help="a Python file with exercises of your own",
    )
    grade.add_argument(
        "--variant",
        metavar="NAME",
        help="the variant of the exercises that you gave out, such as 3f9a1c72",
    )
    grade.add_argument(
        "--lesson",
        help="lesson of all notebooks, by number or name, such as 03 or copying "
        "(default: what they tell)",
    )
    grade.add_argument(
        "--language",
        help="language of the pages, and of what students are told (default: yours)",
    )
    grade.add_argument(
        "--framework",
        choices=[each.tag for each in FRAMEWORKS],
        help="framework of all notebooks (default: what they import)",
    )
    grade.add_argument(
        "--jobs",
        type=number_of_notebooks,
        metavar="N",
        help="how many notebooks to grade at a time (default: one for each core)",
    )
    grade.add_argument(
        "--timeout",
        type=number_of_seconds,
        default=120,
        metavar="SECONDS",
        help="time limit for each cell, in seconds (default: %(default)s)",
    )
    grade.add_argument(
        "--notebook-timeout",
        type=number_of_seconds,
        default=600,
        metavar="SECONDS",
        help="time limit for all cells of a notebook, in seconds (default: "
        "%(default)s)",
    )
    grade.add_argument(
        "--again",
        action="store_true",
        help="grade everything again, even what hasn't changed",
    )
