"""The form of a lesson: what its reader may rely on.

``lessons/form.toml`` names the frameworks whose lessons have it, with those of the
first edition that don't yet::

    [pytorch]
    first_edition = ["08", "A1"]

Their lessons state their objectives in one paragraph (`tools.lesson.objectives`), are
short, and end with what to remember. No output says only that something is true.
"""

import ast
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

from d2l_gpu.course import is_appendix
from tools.lesson import (
    FENCED,
    SLIDE_TYPES,
    Cell,
    Lesson,
    LessonError,
    objectives,
    split_exercises,
)

FILE = "form.toml"

MAX_WORDS = 2000  # of a lesson's text, without code and exercises
MAX_MINUTES = 45
MAX_LINES = 30  # of a code cell

REMEMBER = "What to remember"
"""The last heading before the exercises."""

_HEADING = re.compile(r"^## +(.*?) *$", re.MULTILINE)
_FORMULA = re.compile(r"\$\$.*?\$\$", re.DOTALL)
_TARGET = re.compile(r"(?<=\])\([^)]*\)")
_TRUTH = re.compile(r"[\s()\[\],]*(?:\b(?:True|False)\b[\s()\[\],]*)+")


@dataclass(frozen=True)
class Form:
    """Which lessons must have the form.

    Attributes:
        first_edition: the numbers of the lessons that don't have it yet, by the tag of
            their framework. The lessons of other frameworks need not have it.
    """

    first_edition: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, lessons: Path) -> "Form":
        """Read a project's file; no lesson must have the form if there is none.

        Raises:
            LessonError: the file can't be parsed.
        """
        path = lessons / FILE
        if not path.is_file():
            return cls()
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
            return cls(
                {tag: tuple(table["first_edition"]) for tag, table in tables.items()}
            )
        except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
            raise LessonError(f"{FILE}: {error}") from None

    def applies_to(self, lesson: Lesson) -> bool:
        """Return whether a lesson must have the form."""
        exempt = self.first_edition.get(lesson.framework)
        return exempt is not None and number_of(lesson) not in exempt


def number_of(lesson: Lesson) -> str:
    """Return a lesson's number, such as ``03``."""
    return lesson.name.partition("_")[0]


def form_problems(lesson: Lesson) -> Iterator[str]:
    """Yield where a lesson doesn't have the form, with file and line."""
    for line, text in _problems(lesson):
        yield f"{lesson.label}:{line}: {text}"


def _problems(lesson: Lesson) -> Iterator[tuple[int, str]]:
    body, _ = split_exercises(lesson.cells)
    first = lesson.cells[0].line if lesson.cells else 1
    opening = []
    for cell in body:
        if cell.kind == "code":
            break
        opening.append(cell.source)
    says = objectives(opening)
    if says is None:
        yield (
            first,
            "above the first code cell, a paragraph must say what the lesson is for: "
            "*After this lesson you can …. You need lesson N and 25 minutes on a "
            "laptop, but no GPU.*",
        )
    appendix = is_appendix(lesson.name)
    if says and not appendix and int(says[1]) > MAX_MINUTES:
        yield first, f"{says[1]} minutes (at most {MAX_MINUTES}); split the lesson"
    words = count_words(body)
    if words > MAX_WORDS and not appendix:
        yield (
            first,
            f"{words:,} words of text (at most {MAX_WORDS:,}, without code and "
            "exercises); cut or split the lesson",
        )
    headings = [
        heading
        for cell in body
        if cell.kind == "markdown"
        for heading in _HEADING.findall(FENCED.sub("", cell.source))
    ]
    if headings[-1:] != [REMEMBER]:
        yield first, f"the last heading before the exercises is not ## {REMEMBER}"
    for before, cell in itertools.pairwise(body[1:]):  # the title may be alone
        # Slides may show one and not the other.
        if before.kind == cell.kind == "markdown" and not (
            {*before.tags, *cell.tags} & {*SLIDE_TYPES}
        ):
            yield cell.line, "two prose cells in a row; remove the line +++"
    for cell in lesson.cells:
        lines = len(cell.source.splitlines())
        if cell.kind == "code" and lines > MAX_LINES:
            yield cell.line, f"a code cell of {lines} lines (at most {MAX_LINES})"


def count_words(cells: Sequence[Cell]) -> int:
    """Return the number of words in prose cells.

    Code blocks, displayed formulas and addresses don't count; inline code does.
    """
    count = 0
    for cell in cells:
        if cell.kind == "markdown":
            text = _FORMULA.sub("", FENCED.sub("", cell.source))
            words = _TARGET.sub("", text).split()
            count += sum(any(map(str.isalnum, word)) for word in words)
    return count


def says_only_true(cell: NotebookNode) -> bool:
    """Return whether an executed code cell puts out nothing but True and False.

    Such an output hides the values from the reader. Whether two names mean the same
    object is a value itself, so the cell may end in a comparison with ``is``.
    """
    shown = "\n".join(
        output.get("text") or output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
    )
    return bool(_TRUTH.fullmatch(shown)) and not _ends_in_identity(cell.source)


def _ends_in_identity(source: str) -> bool:
    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError:
        return False
    return any(
        isinstance(op, ast.Is | ast.IsNot)
        for node in ast.walk(tree.body[-1])
        if isinstance(node, ast.Compare)
        for op in node.ops
    )
