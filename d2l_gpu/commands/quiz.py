"""``d2l-gpu quiz``: quizzes to print, with their answers."""

import argparse
from pathlib import Path

from d2l_gpu.commands.arguments import add_edition, page_name
from d2l_gpu.course import lesson_names, notebooks_dir, select_lessons


def _run(options: argparse.Namespace) -> int:
    from d2l_gpu.quizzes.printed import print_quizzes
    from d2l_gpu.quizzes.quiz import NoQuiz, find_quiz, lessons_with_quiz

    notebooks = notebooks_dir(options.language, options.framework)
    named = select_lessons(options.lessons, lesson_names(notebooks))
    lessons = named if options.lessons else lessons_with_quiz(notebooks)
    if not lessons:
        raise NoQuiz(f"no lesson has a quiz for {options.framework!r}")
    language = notebooks.parent.name
    quizzes = [find_quiz(options.framework, each, language) for each in lessons]
    return print_quizzes(quizzes, options.output, options.shuffle)


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    quiz = commands.add_parser(
        "quiz",
        help="write quizzes as pages to print, with the answers on another page",
        description="Write two pages: the quizzes of some lessons for your students, "
        "and the same with the answers and explanations for you. To try a quiz "
        "yourself, call d2l.quiz('03') in a notebook.",
    )
    quiz.set_defaults(command=_run)
    quiz.add_argument(
        "lessons",
        nargs="*",
        metavar="lesson",
        help="number or name, such as 03, copying or 03_copying (default: all that "
        "have a quiz)",
    )
    add_edition(quiz)
    quiz.add_argument(
        "--output",
        type=page_name,
        default=Path("quiz.html"),
        metavar="FILE",
        help="the page for your students; the answers are beside it, in a file whose "
        "name ends in -key (default: ./%(default)s)",
    )
    quiz.add_argument(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="put the options of each question in another order; the same number "
        "always gives the same order, and is printed on both pages",
    )
