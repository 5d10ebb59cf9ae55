"""The command ``d2l-gpu``, all of whose arguments are read here."""

import os
import sys

# With `python -m`, modules of the working folder come first. What a reader has there,
# such as a random.py, is not for this program, unless this package itself is there.
if (
    __name__ == "__main__"
    and not sys.flags.safe_path
    and __file__ != f"{sys.path[0]}{os.sep}d2l_gpu{os.sep}cli.py"
):
    del sys.path[0]

import argparse
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from d2l_gpu import __version__
from d2l_gpu.common.arguments import PORTS
from d2l_gpu.common.frameworks import FRAMEWORKS, framework
from d2l_gpu.common.processor import usable_cores
from d2l_gpu.common.requirements import install, modules
from d2l_gpu.common.settings import LANGUAGE
from d2l_gpu.course import (
    is_appendix,
    lesson_names,
    notebooks_dir,
    select_lessons,
    solutions_of,
)

# What the commands import on top of what the notebooks do, all of it in the extra
# `jupyter`. Each asks for its own only: on a hosted platform there is no JupyterLab.
_RUN_MODULES = ("ipykernel", "latex2mathml", "nbclient", "nbconvert", "nbformat")
_LAB_MODULES = ("ipykernel", "jupyterlab")
_BUNDLE_MODULES = (*_RUN_MODULES, "jupyterlab", "packaging")
_GRADE_MODULES = ("cloudpickle", *_RUN_MODULES)
_SLIDES_MODULES = ("latex2mathml", "nbconvert", "nbformat")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the name of the program; those of the process if None.

    Returns:
        0 if all went well, 1 if something failed or is not installed, 2 for wrong
        arguments, 130 if interrupted by Ctrl-C, which however is the ordinary way to
        end JupyterLab, and 0 then.
    """
    own = list(sys.argv[1:] if arguments is None else arguments)
    passed_on: list[str] = []
    if own[:1] == ["lab"] and "--" in own:
        # By hand, for argparse takes what follows as positional arguments.
        end = own.index("--")
        own, passed_on = own[:end], own[end + 1 :]
    options = _parser().parse_args(own)
    options.passed_on = passed_on
    if getattr(options, "language", None):
        # For the notebooks, too: `d2l.exercise` shows a text of the same edition.
        os.environ[LANGUAGE] = options.language
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
    lessons = _lessons(options, notebooks)
    if _lacks(options, _RUN_MODULES):
        return 1
    # Only now, when it is known that they are there.
    from d2l_gpu.course.run import run_course

    return run_course(notebooks, lessons, options.output, options.timeout)


def _doctor(options: argparse.Namespace) -> int:
    from d2l_gpu import doctor
    from d2l_gpu.doctor import output

    findings = doctor.examine(options.checks, options.timeout)
    if options.json:
        findings = list(findings)
        print(output.as_json(findings))
    else:
        findings = output.show(findings)
    return 1 if any(each.status == doctor.PROBLEM for each in findings) else 0


def _lab(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = lesson_names(notebooks)
    first = select_lessons([options.lesson or lessons[0]], lessons)[0]
    if _lacks(options, _LAB_MODULES):
        return 1
    from d2l_gpu.course.lab import open_lab

    return open_lab(
        notebooks,
        lessons,
        first,
        options.output,
        port=options.port,
        browser=options.browser,
        classic=options.classic,
        more=options.passed_on,
    )


def _copy(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = _lessons(options, notebooks)
    from d2l_gpu.course.copies import copy_notebooks

    copies = copy_notebooks(notebooks, lessons, options.output)
    print(f"{len(copies)} notebooks in {options.output}")
    return 0


def _bundle(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = _lessons(options, notebooks)
    if _lacks(options, _BUNDLE_MODULES):
        return 1
    from d2l_gpu.course.bundle import make_bundle

    return make_bundle(notebooks, lessons, options.output, options.data)


def _grade(options: argparse.Namespace) -> int:
    if _lacks(options, _GRADE_MODULES):
        return 1
    from d2l_gpu.exercises.own import chosen_file
    from d2l_gpu.exercises.variants.draw import choose
    from d2l_gpu.grading.points import Points, read_points
    from d2l_gpu.grading.run import Settings, grade_class

    if options.variant:
        choose(options.variant)
    points = read_points(options.points) if options.points else (1, {})
    settings = Settings(
        framework=options.framework,
        lesson=options.lesson,
        only=options.only,
        own=chosen_file(options.exercises),
        points=Points(*points, options.all_or_nothing),
        cell_seconds=options.timeout,
        notebook_seconds=options.notebook_timeout,
        jobs=options.jobs or usable_cores(),
        again=options.again,
    )
    try:
        return grade_class(options.submissions, options.output, settings)
    except KeyboardInterrupt:
        print(
            "\ninterrupted; what has been graded is kept, and the same command goes on "
            "from there",
            file=sys.stderr,
        )
        return 130


def _export(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = _lessons(options, notebooks)
    if _lacks(options, ("nbformat",)):
        return 1
    from d2l_gpu.assignments import nbgrader, otter
    from d2l_gpu.assignments.questions import read_assignment

    if not options.lessons:  # then those that have any
        lessons = [
            name
            for name in lessons
            if solutions_of(notebooks / f"{name}.ipynb").is_file()
        ]
    paths = [notebooks / f"{name}.ipynb" for name in lessons]
    assignments = [read_assignment(path, options.framework) for path in paths]
    write = {"nbgrader": nbgrader.write_course, "otter": otter.write_masters}
    for path in write[options.program](assignments, options.output, options.points):
        print(path)
    return 0


def _variant(options: argparse.Namespace) -> int:
    framework(options.framework)
    if options.framework != "pytorch":
        raise ValueError("only the lessons with PyTorch have variants")
    from d2l_gpu.exercises.variants import notebooks

    for path in notebooks.write(
        options.seed, options.lessons, options.output, options.language
    ):
        print(path)
    return 0


def _quiz(options: argparse.Namespace) -> int:
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


def _slides(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = _lessons(options, notebooks)
    # Nothing is executed, so neither the framework nor what lessons import is needed.
    if _missing(options, _SLIDES_MODULES, install("jupyter")):
        return 1
    from d2l_gpu.course.slides.write import make_slides

    make_slides(notebooks, lessons, options.output, live=options.live)
    return 0


def _progress(options: argparse.Namespace) -> int:
    from d2l_gpu.progress import certificate, table
    from d2l_gpu.progress.record import solved_exercises

    if options.name_shown and not options.output:
        raise ValueError("--name is for the page, so name its file too: --output FILE")
    try:
        solved = solved_exercises()
    except ImportError as error:
        print(f"d2l-gpu progress: {error}", file=sys.stderr)
        return 1
    editions = table.editions(solved, options.framework, options.language)
    if options.output:
        from d2l_gpu.common.files import write_atomically

        language = notebooks_dir(options.language, editions[0].framework).parent.name
        page = certificate.page(editions, options.name_shown, language)
        write_atomically(options.output, page)
    if options.json:
        table.show(table.as_json(editions))
    elif options.output:
        table.show(f"wrote {options.output}: {table.ABOUT}")
    else:
        table.show("\n\n".join(map(table.as_text, editions)))
        print(f"\nThis is {table.ABOUT}.")
    return 0


def _lessons(options: argparse.Namespace, notebooks: Path) -> list[str]:
    """Return the lessons that are named; if none is, all but the appendices."""
    lessons = select_lessons(options.lessons, lesson_names(notebooks))
    return [name for name in lessons if options.lessons or not is_appendix(name)]


def _lacks(options: argparse.Namespace, its_modules: Sequence[str]) -> bool:
    """Say which modules a command and the notebooks need that are not installed."""
    its = framework(options.framework or "pytorch")
    needed = [*modules("lessons"), *its_modules]
    if options.framework:  # or notebooks tell
        needed.append(its.module)
    return _missing(options, needed, its.install)


def _missing(options: argparse.Namespace, needed: Sequence[str], command: str) -> bool:
    """Say which of these modules aren't installed, and what installs them."""
    missing = [name for name in needed if not importlib.util.find_spec(name)]
    if missing:
        print(
            f"d2l-gpu {options.name}: {', '.join(missing)} not installed; install "
            f"what the course needs with: {command}",
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


def _cores(text: str) -> int:
    return _positive(text)


_cores.__name__ = "number of notebooks"


def _port(text: str) -> int:
    port = int(text)
    if port and port not in PORTS:
        raise ValueError
    return port


_port.__name__ = "port"


def _folder(text: str) -> Path:
    path = Path(text)
    try:
        is_file = path.exists() and not path.is_dir()
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{text} cannot be used ({error.strerror}); name a folder of your own"
        ) from None
    if is_file:
        raise argparse.ArgumentTypeError(
            f"{text} is a file; name a folder, which is created if it is missing"
        )
    return path


def _page(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in (".html", ".htm") or path.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text} isn't the name of a page; give one that ends in .html"
        )
    return path


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
    _add_doctor(commands)
    _add_lab(commands)
    _add_copy(commands)
    _add_bundle(commands)
    _add_grade(commands)
    _add_export(commands)
    _add_quiz(commands)
    _add_slides(commands)
    _add_variant(commands)
    _add_progress(commands)
    return parser


def _add_run(commands: argparse._SubParsersAction) -> None:
    run = commands.add_parser(
        "run",
        help="execute the course and write a report",
        description="Copy the course's notebooks, execute them one after another, and "
        "write executed copies and an HTML report.",
    )
    run.set_defaults(command=_run)
    _add_lessons(run)
    _add_edition(run)
    _add_output(run)
    run.add_argument(
        "--timeout",
        type=_positive,
        default=600,
        metavar="SECONDS",
        help="time limit for each cell, in seconds (default: %(default)s)",
    )


def _add_doctor(commands: argparse._SubParsersAction) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="find what is wrong with this machine, and say how to fix it",
        description="Check whether you can work through the course on this machine. "
        "Nothing is changed. You need neither a GPU nor a network. The exit code is 1 "
        "if there is a problem.",
    )
    doctor.set_defaults(command=_doctor)
    doctor.add_argument(
        "checks",
        nargs="*",
        metavar="check",
        help="name of a check, as in the report (default: all checks)",
    )
    doctor.add_argument(
        "--json",
        action="store_true",
        help="write JSON: a list of objects with name, status, what and what_to_do",
    )
    doctor.add_argument(
        "--timeout",
        type=_positive,
        default=120,
        metavar="SECONDS",
        help="how long to wait for each program that is asked, in seconds (default: "
        "%(default)s)",
    )


def _add_lab(commands: argparse._SubParsersAction) -> None:
    lab = commands.add_parser(
        "lab",
        help="work through the course in JupyterLab",
        usage="%(prog)s [options] [lesson] [-- JUPYTERLAB-OPTION ...]",
        description="Copy the notebooks of the course and open them in JupyterLab. "
        "Notebooks that you have changed are kept. Press Ctrl-C to stop.",
        epilog="Everything after -- is passed on to JupyterLab, as in: d2l-gpu lab 03 "
        "-- --allow-root",
    )
    lab.set_defaults(command=_lab)
    lab.add_argument(
        "lesson",
        nargs="?",
        help="lesson to open, by number or name, such as 03, copying or 03_copying "
        "(default: the first)",
    )
    _add_edition(lab)
    _add_output(lab)
    lab.add_argument(
        "--classic",
        action="store_true",
        help="show a single notebook, without the panels of JupyterLab",
    )
    lab.add_argument(
        "--no-browser",
        dest="browser",
        action="store_false",
        help="don't open a browser; JupyterLab prints the address, so you can open it "
        "yourself",
    )
    lab.add_argument(
        "--port",
        type=_port,
        help="port to listen on, 0 for any (default: 8888, or the next free one)",
    )


def _add_copy(commands: argparse._SubParsersAction) -> None:
    copy = commands.add_parser(
        "copy",
        help="copy the notebooks, to open them with another program",
        description="Copy the notebooks of the course to a folder, for VS Code, "
        "PyCharm or a server of your own. Notebooks that you have changed are kept.",
    )
    copy.set_defaults(command=_copy)
    _add_lessons(copy)
    _add_edition(copy)
    _add_output(copy)


def _add_bundle(commands: argparse._SubParsersAction) -> None:
    bundle = commands.add_parser(
        "bundle",
        help="make an archive that installs the course without a network",
        description="Make one archive of the course and all the packages it needs, in "
        "the versions installed here, for other computers with the same system and "
        "Python. Unpack it there, and run `python install.py`, which needs no "
        "network.",
    )
    bundle.set_defaults(command=_bundle)
    _add_lessons(bundle)
    _add_edition(bundle)
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


def _add_grade(commands: argparse._SubParsersAction) -> None:
    grade = commands.add_parser(
        "grade",
        help="check the exercises in the notebooks of a class",
        description="Run the notebooks of a class, each in a process of its own with "
        "limited time and memory, check their answers, and write grades.csv, "
        "grades.json, a page that shows where the class is stuck, and feedback for "
        "each student. Notebooks that have been graded aren't graded again, so you can "
        "interrupt this command with Ctrl-C.",
        epilog="docs/teaching.md says what the limits keep out, and what they don't.",
    )
    grade.set_defaults(command=_grade)
    grade.add_argument(
        "submissions",
        type=Path,
        help="folder with a notebook, or a folder of notebooks, for each student",
    )
    _add_output(grade, "grades", "grades")
    grade.add_argument(
        "--points",
        type=Path,
        metavar="FILE",
        help='a TOML file with the points of exercises, with lines such as "03.1" = '
        "2 (default: 1 for each)",
    )
    grade.add_argument(
        "--all-or-nothing",
        action="store_true",
        help="no points for an answer that passes only some of its checks",
    )
    grade.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="EXERCISE",
        help="the exercises that count, such as 03.1, or lessons, such as 03 (default: "
        "all of the notebooks' lessons)",
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
        "--framework",
        choices=[each.tag for each in FRAMEWORKS],
        help="framework of all notebooks (default: what they import)",
    )
    grade.add_argument(
        "--jobs",
        type=_cores,
        metavar="N",
        help="how many notebooks to grade at a time (default: one for each core)",
    )
    grade.add_argument(
        "--timeout",
        type=_positive,
        default=120,
        metavar="SECONDS",
        help="time limit for each cell, in seconds (default: %(default)s)",
    )
    grade.add_argument(
        "--notebook-timeout",
        type=_positive,
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


def _add_export(commands: argparse._SubParsersAction) -> None:
    export = commands.add_parser(
        "export",
        help="write the exercises as assignments for nbgrader or otter-grader",
        description="Write the exercises of lessons as assignments of nbgrader, or for "
        "otter-grader, which makes autograders for Gradescope. Their hidden tests "
        "ask this course's judge. docs/teaching.md says how to go on.",
    )
    export.set_defaults(command=_export)
    export.add_argument("program", choices=("nbgrader", "otter"))
    _add_lessons(export)
    _add_edition(export)
    export.add_argument(
        "--output",
        type=_folder,
        required=True,
        metavar="DIR",
        help="folder of your course; files of the same names are overwritten",
    )
    export.add_argument(
        "--points",
        type=float,
        default=1.0,
        help="points for each exercise (default: %(default)g)",
    )


def _add_quiz(commands: argparse._SubParsersAction) -> None:
    quiz = commands.add_parser(
        "quiz",
        help="write quizzes as pages to print, with the answers on another page",
        description="Write two pages: the quizzes of some lessons for your students, "
        "and the same with the answers and explanations for you. To try a quiz "
        "yourself, call d2l.quiz('03') in a notebook.",
    )
    quiz.set_defaults(command=_quiz)
    quiz.add_argument(
        "lessons",
        nargs="*",
        metavar="lesson",
        help="number or name, such as 03, copying or 03_copying (default: all that "
        "have a quiz)",
    )
    _add_edition(quiz)
    quiz.add_argument(
        "--output",
        type=_page,
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


def _add_slides(commands: argparse._SubParsersAction) -> None:
    slides = commands.add_parser(
        "slides",
        help="make slides of lessons, with notes for the speaker",
        description="Write a page of slides for each lesson, which needs no network. "
        "Open it in a browser: S shows the speaker's notes, T switches between light "
        "and dark, F fills the screen, O shows all slides, and ?print-pdf at the end "
        "of the address is for printing.",
    )
    slides.set_defaults(command=_slides)
    _add_lessons(slides)
    _add_edition(slides)
    _add_output(slides, "slides", "slides")
    slides.add_argument(
        "--live",
        action="store_true",
        help="write a notebook for each lesson, too, whose cells JupyterLab shows as "
        "slides and runs; it needs the extension jupyterlab-rise",
    )


def _add_variant(commands: argparse._SubParsersAction) -> None:
    variant = commands.add_parser(
        "variant",
        help="write notebooks whose exercises have other numbers, and their key",
        description="Write notebooks whose exercises have other numbers, sizes and "
        "data than the public ones, and a key for the teacher. The same seed makes the "
        "same variant on every machine.",
    )
    variant.set_defaults(command=_variant)
    variant.add_argument(
        "seed",
        help="any text that your students can't guess, such as 'spring, group 2, kiwi'",
    )
    variant.add_argument(
        "lessons",
        nargs="*",
        metavar="lesson",
        help="number or name, such as 03, copying or 03_copying (default: all that "
        "have variants)",
    )
    _add_edition(variant)
    variant.add_argument(
        "--output",
        type=_folder,
        metavar="DIR",
        help="where to put the folders students and key (default: ./variant-NAME)",
    )


def _add_progress(commands: argparse._SubParsersAction) -> None:
    progress = commands.add_parser(
        "progress",
        help="show which exercises you have solved",
        description="Show which exercises you have solved, lesson by lesson. "
        "`d2l.check` keeps the record on this computer, in your data folder or the "
        "folder that D2L_GPU_PROGRESS names; D2L_GPU_PROGRESS=0 turns it off.",
    )
    progress.set_defaults(command=_progress)
    progress.add_argument(
        "--language",
        help="language of the titles and the page, such as en (default: yours, if "
        "there is an edition)",
    )
    progress.add_argument(
        "--framework",
        metavar="{" + ",".join(each.tag for each in FRAMEWORKS) + "}",
        help="show this framework only (default: all of which you have solved some)",
    )
    progress.add_argument(
        "--output",
        type=_page,
        metavar="FILE",
        help="write a page to print or to send, such as certificate.html",
    )
    progress.add_argument(
        "--name",
        dest="name_shown",
        metavar="NAME",
        default="",
        help="your name, for the page (it is stored nowhere else)",
    )
    progress.add_argument("--json", action="store_true", help="print JSON")


def _add_lessons(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "lessons",
        nargs="*",
        metavar="lesson",
        help="number or name, such as 03, copying or 03_copying (default: everything "
        "but the appendices)",
    )


def _add_edition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--language",
        help="language of the notebooks, such as en (default: yours, if there is an "
        "edition)",
    )
    parser.add_argument(
        "--framework",
        metavar="{" + ",".join(each.tag for each in FRAMEWORKS) + "}",
        default="pytorch",
        help="framework that the notebooks use (default: %(default)s)",
    )


def _add_output(
    parser: argparse.ArgumentParser,
    default: str = "d2l-gpu-course",
    what: str = "notebooks",
) -> None:
    parser.add_argument(
        "--output",
        type=_folder,
        default=Path(default),
        metavar="DIR",
        help=f"where to put the {what} (default: ./%(default)s)",
    )


if __name__ == "__main__":
    sys.exit(main())
