"""Build the notebooks from their lessons, or check that they are up to date.

    python -m tools.build                  build every notebook
    python -m tools.build devices 02       build these lessons
    python -m tools.build --check          execute nothing, say what is stale

A notebook is ``notebooks/<language>/<framework>/<lesson>.ipynb``; the solutions to its
exercises are in the folder ``solutions`` beside it. The source of both is
``lessons/<lesson>.md``. Nothing is written unless every lesson asked for builds. A
framework that is not installed is left out, unless it is named with a lesson.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode
from nbformat.reader import NotJSONError

from d2l_gpu.course import SOLUTIONS, lesson_names, select_lessons
from d2l_gpu.course.files import write_atomically
from d2l_gpu.course.kernel import CellFailure, progress_bar, run_cells
from d2l_gpu.frameworks import Framework, frameworks
from d2l_gpu.frameworks import framework as framework_with
from tools import environments
from tools.companion import missing
from tools.equivalents import with_table
from tools.header import INTRODUCTION, TITLE, Header, solutions_of
from tools.lesson import (
    SETUP,
    SOLUTION,
    STUB,
    Cell,
    Lesson,
    LessonError,
    read_lesson,
    split_exercises,
)
from tools.notebook import (
    assemble,
    canonical,
    cells_by_id,
    differences,
    read_notebook,
    take_outputs,
)
from tools.outputs import keep_equal_pictures, normalised, output_problems
from tools.readme import readme_with

# English is what the lessons are written in. The others are translated message
# by message, from lessons/locale/<language>.po, between `Lesson.cells_for` and
# `assemble`: prose cells are filed there under their keys.
LANGUAGES = ("en", "fr", "pt", "zh")

ROOT = Path(__file__).resolve().parents[1]
CELL_TIMEOUT = 600  # seconds; a lesson is to take minutes as a whole


@dataclass(frozen=True)
class Edition:
    """One notebook to build: a lesson in a language for a framework, or the solutions
    to its exercises."""

    root: Path
    lesson: Lesson
    language: str
    framework: Framework
    solutions: bool = False

    @property
    def path(self) -> Path:
        folder = self.root / "notebooks" / self.language / self.framework.tag
        path = folder / f"{self.lesson.name}.ipynb"
        return solutions_of(path) if self.solutions else path

    @property
    def label(self) -> str:
        return self.path.relative_to(self.root).as_posix()

    def cells(self) -> list[Cell]:
        """Return the cells of the notebook, with those that are the same everywhere.

        Raises:
            LessonError: a key of the header that the lesson has as well.
        """
        there = frameworks_of(self.root)
        own = self.lesson.cells_for(self.framework.tag)
        title, *body = with_table(own, self.lesson, there)
        header = Header(
            self.lesson.path.parent,
            self.path.relative_to(self.root),
            self.framework,
            [
                each
                for each in there
                if each != self.framework and each.tag in self.lesson.frameworks()
            ],
            title.source.partition("\n")[0].lstrip("# "),
        )
        body, exercises = split_exercises(body)
        if self.solutions:
            top, introduction = header.cell(TITLE), []
            body = [cell for cell in body if SETUP in cell.tags]
            exercises = [cell for cell in exercises if STUB not in cell.tags]
        else:
            top = [title]
            introduction = header.cell(INTRODUCTION) if exercises else []
            exercises = [cell for cell in exercises if SOLUTION not in cell.tags]
        cells = [*top, *header.cells(), *body, *introduction, *exercises]
        keys = [cell.key for cell in cells]
        if taken := {key for key in keys if keys.count(key) > 1}:
            raise LessonError(
                f"{self.lesson.path.name}: the keys {', '.join(sorted(taken))} are "
                "those of the header; choose others"
            )
        return cells


def build(edition: Edition) -> str:
    """Return the text of a notebook, executed in a fresh kernel.

    Raises:
        LessonError: a cell that fails, or one that puts out what it must not.
    """
    try:
        committed = read_notebook(edition.path)
    except NotJSONError:
        committed = None  # as after a merge with conflicts, which this resolves
    notebook = _assembled(edition, committed)
    _execute(notebook, edition)
    before = cells_by_id(committed)
    problems = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.outputs = normalised(cell.outputs, cell.execution_count)
        if cell.id in before:
            keep_equal_pictures(cell.outputs, before[cell.id].get("outputs", []))
        problems += [
            f"{edition.lesson.path.name}: cell {cell.id}: {problem}"
            for problem in output_problems(cell)
        ]
    if problems:
        raise LessonError("\n".join(problems))
    return canonical(notebook)


def staleness(edition: Edition) -> list[str]:
    """Say what in the committed notebook is not as its source; empty if nothing.

    Nothing is executed: the outputs are taken from the committed notebook.
    """
    try:
        committed = read_notebook(edition.path)
    except NotJSONError:
        return ["the file is not a notebook"]
    if committed is None:
        return ["the notebook has not been built"]
    notebook = _assembled(edition, committed)
    take_outputs(notebook, committed)
    if canonical(notebook) == edition.path.read_text(encoding="utf-8"):
        return []
    return differences(committed, notebook)


def _assembled(edition: Edition, committed: NotebookNode | None) -> NotebookNode:
    try:
        return assemble(edition.cells(), edition.lesson.path.parent, committed)
    except (FileNotFoundError, ValueError) as error:
        raise LessonError(f"{edition.lesson.path.name}: {error}") from error


def _execute(notebook: NotebookNode, edition: Edition) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        progress_bar(notebook, edition.label) as bar,
    ):
        try:
            run_cells(
                notebook,
                Path(folder),
                timeout=CELL_TIMEOUT,
                after_cell=bar.update,
                kernel=environments.kernel(edition.framework),
            )
        except CellFailure as failure:
            key = notebook.cells[failure.index].id
            raise LessonError(
                f"{edition.lesson.path.name}: cell {key} failed for "
                f"{edition.framework.title}:\n{failure.details}"
            ) from None


def editions(
    root: Path,
    lessons: Sequence[str] = (),
    language: str | None = None,
    framework: str | None = None,
) -> list[Edition]:
    """Return the notebooks that the lessons under ``root`` have content for.

    Args:
        root: the folder that holds ``lessons`` and ``notebooks``.
        lessons: names as `d2l_gpu.course.select_lessons` takes them; none for all.
        language: one of `LANGUAGES`; None for all that there are.
        framework: the tag of one; None for all that there are.

    Raises:
        LessonError: everything wrong with the sources, or nothing to build.
        ValueError: a lesson that does not exist.
    """
    sources = root / "lessons"
    if language not in (None, "en"):
        raise LessonError(f"lessons/locale/{language}.po: there is no translation yet")
    there = frameworks_of(root)
    known = [each.tag for each in there]
    if framework is not None:
        framework_with(framework, there)  # or it raises
    found, problems = [], []
    for name in select_lessons(lessons, lesson_names(sources, ".md")):
        try:
            lesson = read_lesson(sources / f"{name}.md", known)
        except LessonError as error:
            problems.append(str(error))
            continue
        having = lesson.frameworks()
        for each in there:
            if each.tag in having and framework in (None, each.tag):
                found.append(Edition(root, lesson, "en", each))
                if lesson.has_solutions(each.tag):
                    found.append(Edition(root, lesson, "en", each, solutions=True))
    if problems:
        raise LessonError("\n".join(problems))
    if not found:
        wanted = f"{framework} cells" if framework else "lessons with code"
        raise LessonError(f"there are no {wanted} in {sources}")
    return found


def frameworks_of(root: Path) -> tuple[Framework, ...]:
    """Return the frameworks of a project: those of its helpers, or of this package."""
    helpers = root / "d2l_gpu"
    return frameworks(helpers) if helpers.is_dir() else frameworks()


def orphans(root: Path, built: Sequence[Edition]) -> Iterator[Path]:
    """Yield the notebooks under ``root`` that are none of those built."""
    paths = {edition.path for edition in built}
    folder = root / "notebooks"
    there = [*folder.glob("*/*/*.ipynb"), *folder.glob(f"*/*/{SOLUTIONS}/*.ipynb")]
    for path in sorted(there):
        if path not in paths:
            yield path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the build; return 0, or 1 if anything failed or is stale."""
    options = _parser().parse_args(arguments)
    try:
        wanted = editions(
            options.root, options.lessons, options.language, options.framework
        )
        if options.check:
            return _check(wanted, options)
        readme = _new_readme(options.root)
        wanted = _executable(wanted, bool(options.lessons), options.framework)
        texts = [build(edition) for edition in wanted]
    except (LessonError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    for edition, text in zip(wanted, texts, strict=True):
        changed = not edition.path.is_file() or edition.path.read_text("utf-8") != text
        if changed:
            write_atomically(edition.path, text)
        print(f"{edition.label}: {'written' if changed else 'unchanged'}")
    if readme is not None:
        write_atomically(options.root / "README.md", readme)
        print("README.md: written")
    return 0


def _new_readme(root: Path) -> str | None:
    """Return what the README under ``root`` is to be, or None if it is that, or none.

    Raises:
        ValueError: it has no place for the table of the notebooks.
    """
    readme = root / "README.md"
    if not readme.is_file():
        return None
    text = readme.read_text(encoding="utf-8")
    every = editions(root)
    notebooks = [
        (edition.framework, edition.path.relative_to(root))
        for edition in every
        if not edition.solutions
    ]
    there = {edition.path for edition in every}
    solved = {path for _, path in notebooks if root / solutions_of(path) in there}
    new = readme_with(text, notebooks, solved)
    return new if new != text else None


def _executable(
    wanted: list[Edition], lessons_named: bool, framework: str | None
) -> list[Edition]:
    """Return the editions that can be executed here, and say which are left out.

    Raises:
        LessonError: a lesson that was named cannot be executed here, for any framework
            or for the one that was named with it.
    """
    found, left_out = [], []
    for edition in wanted:
        lesson = missing(edition.lesson.name)
        reason = lesson or environments.missing(edition.framework)
        if reason is None:
            found.append(edition)
        elif lessons_named and (lesson or framework):
            raise LessonError(reason)
        else:
            left_out.append(reason)
    for reason in dict.fromkeys(left_out):
        print(f"left out: {reason}", file=sys.stderr)
    return found


def _check(wanted: list[Edition], options: argparse.Namespace) -> int:
    stale = False
    for edition in wanted:
        for difference in staleness(edition):
            stale = True
            print(f"{edition.label}: {difference}")
    if not (options.lessons or options.language or options.framework):
        for path in orphans(options.root, wanted):
            stale = True
            label = path.relative_to(options.root).as_posix()
            print(f"{label}: no lesson makes it; delete it")
        if _new_readme(options.root) is not None:
            stale = True
            print("README.md: the table of the notebooks is not as they are")
    if stale:
        print("rebuild with: python -m tools.build <lesson>", file=sys.stderr)
        return 1
    print(f"up to date: {len(wanted)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.build",
        description=__doc__.splitlines()[0],
    )
    parser.add_argument(
        "lessons",
        nargs="*",
        metavar="lesson",
        help="number or name, as 03, copying or 03_copying; all if none is given",
    )
    parser.add_argument("--language", choices=LANGUAGES)
    parser.add_argument("--framework", metavar="TAG", help="as pytorch or jax")
    parser.add_argument(
        "--check",
        action="store_true",
        help="execute and write nothing; exit with 1 if a notebook is stale",
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=ROOT,
        help="the folder with lessons/ and notebooks/ (default: this repository)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
