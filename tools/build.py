"""Build the notebooks from their lessons, or check that they are up to date.

    python -m tools.build                  build every notebook
    python -m tools.build devices jax/02   build these lessons
    python -m tools.build --watch jax/02   show this lesson, and follow its source
    python -m tools.build --prose          keep all outputs; only prose has changed
    python -m tools.build --language fr --stale    execute what's stale in French
    python -m tools.build --check          list stale notebooks; run and write nothing

``lessons/<framework>/<lesson>.md`` is the source of the notebook
``notebooks/<language>/<framework>/<lesson>.ipynb``, and of its solutions in the folder
``solutions`` beside it. Nothing is written unless every requested lesson builds.
Frameworks that aren't installed are skipped, unless one is given by ``--framework``
together with a lesson.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.reader import NotJSONError

from d2l_gpu.common.files import write_atomically
from d2l_gpu.course.kernel import CellFailure, progress_bar, run_cells
from d2l_gpu.quizzes.quiz import FOLDER as QUIZZES
from tools import course_map, environments
from tools.agreement import disagreements
from tools.check import PAGE, page
from tools.companion import missing
from tools.edition import ROOT, Edition, Project, editions
from tools.form import form_problems, says_only_true
from tools.glossary_page import page_of
from tools.languages import ENGLISH
from tools.lesson import LessonError
from tools.notebook import (
    CELL_TIMEOUT,
    assemble,
    canonical,
    cells_by_id,
    differences,
    notebooks_in,
    read_notebook,
    take_outputs,
)
from tools.outputs import keep_equal_pictures, normalised, output_problems
from tools.readme import new_readmes, readme_of

# Of the package that a notebook installs where it's missing.
_RELEASE = re.compile(r'("d2l-gpu\[[^"]*==)[^"]+')


def build(edition: Edition) -> str:
    """Execute a notebook in a fresh kernel, and return its file content.

    Raises:
        LessonError: a cell fails or has a forbidden output, or a source is wrong.
    """
    committed = _committed(edition.path)
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
            f"{edition.lesson.label}: cell {cell.id}: {problem}"
            for problem in output_problems(cell)
        ]
        if edition.project.form.applies_to(edition.lesson) and says_only_true(cell):
            problems.append(
                f"{edition.lesson.label}: cell {cell.id}: it puts out only True or "
                "False; print the values instead"
            )
    if problems:
        raise LessonError("\n".join(problems))
    return canonical(notebook)


def translated(edition: Edition, english: NotebookNode) -> str:
    """Return the file content of a translated notebook, without executing it.

    Args:
        edition: the edition in the other language.
        english: the English notebook, from which figures are taken, and outputs unless
            the edition has its own.

    Raises:
        LessonError: the problems of the sources.
    """
    notebook = _assembled(edition, english)
    own = _committed(edition.path) if edition.speaks else None
    take_outputs(notebook, own or english)
    return canonical(notebook)


def with_new_prose(edition: Edition) -> str:
    """Return the file content of an English notebook with new prose and old outputs.

    Raises:
        LessonError: the code has changed since the last build, or there was none.
    """
    committed = _committed(edition.path)
    if committed is None:
        raise LessonError(f"{edition.label}: build it first, without --prose")
    notebook = _assembled(edition, committed)
    if _code(notebook) != _code(committed):
        raise LessonError(f"{edition.label}: code has changed; build without --prose")
    take_outputs(notebook, committed)
    return canonical(notebook)


def _code(notebook: NotebookNode) -> list[tuple[str, str]]:
    """Return the code that outputs come from: in any release, it's the same."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    return [(cell.id, _RELEASE.sub(r"\1", cell.source)) for cell in cells]


def _committed(path: Path) -> NotebookNode | None:
    """Return a notebook; None if the file is missing or isn't valid JSON."""
    try:
        return read_notebook(path)
    except NotJSONError:
        return None  # such as after a merge conflict, which a build resolves


def staleness(edition: Edition) -> list[str]:
    """Return how a committed notebook differs from its source; empty if it doesn't.

    Executes nothing: the outputs are those of the committed English notebook, or the
    edition's own, if it speaks its language.
    """
    try:
        committed = read_notebook(edition.path)
        english = read_notebook(edition.path_in(ENGLISH))
    except NotJSONError:
        return ["the file is not a notebook"]
    if committed is None or english is None:
        return ["the notebook has not been built"]
    text = translated(edition, english)
    found = []
    if text != edition.path.read_text(encoding="utf-8"):
        found = differences(committed, nbformat.reads(text, as_version=4))
    if edition.speaks:
        catalogue = edition.project.catalogues[edition.language]
        found += disagreements(english, committed, catalogue)
    return found


def _assembled(edition: Edition, committed: NotebookNode | None) -> NotebookNode:
    try:
        return assemble(
            edition.cells(), edition.project.lessons, committed, edition.drawing
        )
    except (FileNotFoundError, ValueError) as error:
        raise LessonError(f"{edition.lesson.label}: {error}") from error


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
                f"{edition.lesson.label}: cell {key} failed for "
                f"{edition.framework.title}:\n{failure.details}"
            ) from None


def orphans(project: Project, built: Sequence[Edition]) -> Iterator[Path]:
    """Yield the notebooks, quizzes and whole pages that no source makes any more."""
    paths = {edition.path for edition in built}
    paths |= {readme_of(project, language) for language in project.translations}
    folder = project.root / "notebooks"
    if project.glossary is not None:
        paths |= {page_of(project.root, language) for language in project.languages}
    pages = "README.*.md", "docs/glossary*.md"
    paths |= _quizzes(built).keys()
    there = [*notebooks_in(folder), *folder.glob(f"*/*/{QUIZZES}/*.json")]
    there += [path for page in pages for path in project.root.glob(page)]
    for path in sorted(there):
        if path not in paths:
            yield path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the build; return 0, or 1 if anything failed or is stale."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.stale and options.language in (None, ENGLISH):
        parser.error("--stale needs --language with a translation, such as fr")
    project = Project(options.root)
    try:
        wanted = editions(project, options.lessons, options.language, options.framework)
        if options.check:
            _check_form(project, wanted)
            return _check(project, wanted, options)
        if options.watch:
            from tools.watch import watch  # slow to import

            watch(_only(wanted), options.port)
            return 0
        _check_form(project, wanted)
        readmes = new_readmes(project)
        texts = _built(wanted, options)
        texts |= _maps(project, texts)
        texts |= _quizzes(wanted)
    except (LessonError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    for path, text in texts.items():
        changed = not _holds(path, text)
        if changed:
            write_atomically(path, text)
        label = path.relative_to(project.root).as_posix()
        print(f"{label}: {'written' if changed else 'unchanged'}")
    for path, text in {**readmes, **_page(project)}.items():
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, text)
        print(f"{path.relative_to(project.root).as_posix()}: written")
    return 0


def _check_form(project: Project, wanted: Sequence[Edition]) -> None:
    """Raise LessonError if a lesson doesn't have the form that it must have."""
    lessons = {edition.lesson.path: edition.lesson for edition in wanted}
    problems = [
        problem
        for lesson in lessons.values()
        if project.form.applies_to(lesson)
        for problem in form_problems(lesson)
    ]
    if problems:
        raise LessonError("\n".join(problems))


def _page(project: Project) -> dict[Path, str]:
    """Return the page on how notebooks are compared, by path; empty if up to date."""
    path = project.root / "notebooks" / PAGE
    if not readme_of(project, ENGLISH).is_file():
        return {}  # a project without pages, as in tests
    text = page(project.root)
    return {} if _holds(path, text) else {path: text}


def _quizzes(wanted: Sequence[Edition]) -> dict[Path, str]:
    """Return the contents of the quizzes of some notebooks, by path."""
    found: dict[Path, str] = {}
    for edition in wanted:
        found |= edition.quiz()
    return found


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def _only(wanted: Sequence[Edition]) -> Edition:
    """Return the one lesson to watch.

    Raises:
        LessonError: several lessons match, or the lesson can't be executed here.
    """
    first, *others = [
        edition
        for edition in wanted
        if edition.language == ENGLISH and not edition.solutions
    ]
    if others:
        both = f"{first.lesson.label}, {others[0].lesson.label}"
        raise LessonError(f"name one lesson to watch, such as pytorch/03, not {both} …")
    if reason := missing(first.lesson.name) or environments.missing(first.framework):
        raise LessonError(reason)
    return first


def _built(wanted: list[Edition], options: argparse.Namespace) -> dict[Path, str]:
    """Return the contents of notebooks by path; execute the English ones.

    Raises:
        LessonError: a notebook can't be built, or its English version is missing.
    """
    english = [edition for edition in wanted if edition.language == ENGLISH]
    if options.prose:
        texts = {edition.path: with_new_prose(edition) for edition in english}
    else:
        execute = _executable(english, bool(options.lessons), options.framework)
        texts = {edition.path: build(edition) for edition in execute}
    for edition in wanted:
        if edition.language == ENGLISH:
            continue
        path = edition.path_in(ENGLISH)
        if path in texts:
            notebook = nbformat.reads(texts[path], as_version=4)
        else:
            notebook = read_notebook(path)
        if notebook is not None and _executes(edition, options, path in texts):
            texts[edition.path] = build(edition)
        elif notebook is not None:
            texts[edition.path] = translated(edition, notebook)
        elif options.language is not None:
            raise LessonError(f"{edition.label}: build it in English first")
    return texts


def _executes(edition: Edition, options: argparse.Namespace, anew: bool) -> bool:
    """Return whether a translation that's to be built is to be executed, too.

    Args:
        edition: the translation.
        options: of the command.
        anew: whether the English notebook was.
    """
    wanted = anew or edition.language == options.language
    if not wanted or options.prose or not edition.speaks:
        return False
    return anew or not options.stale or bool(staleness(edition))


def _maps(project: Project, built: Mapping[Path, str]) -> dict[Path, str]:
    """Return the contents of other notebooks that show a table of all lessons, by path.

    Nothing is executed; a notebook whose own code has changed is left as it is.
    """
    texts = {}
    for edition in editions(project):
        shows = any(course_map.PLACE in source for source in edition.lesson.prose)
        if not shows or edition.path in built:
            continue
        english = _committed(edition.path_in(ENGLISH))
        if english and _code(_assembled(edition, english)) == _code(english):
            texts[edition.path] = translated(edition, english)
    return texts


def _executable(
    wanted: list[Edition], lessons_named: bool, framework: str | None
) -> list[Edition]:
    """Return the editions that can be executed here, and print which are skipped.

    Raises:
        LessonError: a named lesson can't be executed here, for any framework or for
            the one that was named with it.
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


def _check(project: Project, wanted: list[Edition], options: argparse.Namespace) -> int:
    stale = False
    for edition in wanted:
        for difference in staleness(edition):
            stale = True
            print(f"{edition.label}: {difference}")
    for path, text in _quizzes(wanted).items():
        if not _holds(path, text):
            stale = True
            label = path.relative_to(project.root).as_posix()
            print(f"{label}: it does not match its source")
    if not (options.lessons or options.language or options.framework):
        for path in orphans(project, wanted):
            stale = True
            label = path.relative_to(project.root).as_posix()
            print(f"{label}: no lesson makes it; delete it")
        for path in new_readmes(project):
            stale = True
            print(f"{path.name}: it does not match the lessons and their translations")
        for path in _page(project):
            stale = True
            print(f"notebooks/{path.name}: it does not match the notebooks")
    if stale:
        print(
            "rebuild with: python -m tools.build <lesson>; with --prose if no code "
            "has changed",
            file=sys.stderr,
        )
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
        help="number or name, such as 03, copying or jax/03_copying (default: all)",
    )
    parser.add_argument("--language", metavar="LANGUAGE", help="such as en or fr")
    parser.add_argument("--framework", metavar="TAG", help="such as pytorch or jax")
    parser.add_argument(
        "--prose",
        action="store_true",
        help="execute nothing and keep the outputs; fail if code has changed",
    )
    parser.add_argument(
        "--stale",
        action="store_true",
        help="with --language: execute only what disagrees with the English notebook",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="show one lesson in a browser, and reload it whenever it is saved",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port for --watch (0: any free port)"
    )
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
