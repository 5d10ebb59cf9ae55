"""``d2l-gpu export``: assignments for nbgrader and otter-grader."""

import argparse

from d2l_gpu.commands.arguments import add_edition, add_lessons, folder
from d2l_gpu.commands.needs import lacks, lessons_named
from d2l_gpu.common.messages import say
from d2l_gpu.course import notebooks_dir, solutions_of


def _run(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = lessons_named(options, notebooks)
    if lacks(options, ("nbformat",)):
        return 1
    from d2l_gpu.assignments import nbgrader, otter
    from d2l_gpu.assignments.questions import read_assignment
    from d2l_gpu.grading.points import given_points

    points = given_points(options.points)
    if not options.lessons:  # then those that have any
        lessons = [
            name
            for name in lessons
            if solutions_of(notebooks / f"{name}.ipynb").is_file()
        ]
    paths = [notebooks / f"{name}.ipynb" for name in lessons]
    assignments = [read_assignment(path, options.framework) for path in paths]
    program = {"nbgrader": nbgrader, "otter": otter}[options.program]
    for path in program.write(assignments, options.output, points):
        print(path)
    say(program.next_step(assignments, options.output))
    return 0


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    export = commands.add_parser(
        "export",
        help="write the exercises as assignments for nbgrader or otter-grader",
        description="Write the exercises of lessons as assignments of nbgrader, or for "
        "otter-grader, which makes autograders for Gradescope. Their hidden tests "
        "ask this course's judge. docs/teaching.md says how to go on.",
    )
    export.set_defaults(command=_run)
    export.add_argument("program", choices=("nbgrader", "otter"))
    add_lessons(export)
    add_edition(export)
    export.add_argument(
        "--output",
        type=folder,
        required=True,
        metavar="DIR",
        help="folder of your course; files of the same names are overwritten",
    )
    export.add_argument(
        "--points",
        default="1",
        metavar="NUMBER or FILE",
        help="points for each exercise, or a TOML file with the points of exercises, "
        "as `d2l-gpu grade` takes it (default: %(default)s)",
    )
