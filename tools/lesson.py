"""Reading a lesson: from its MyST Markdown source to cells, each one checked.

A source is a notebook for one framework, ``lessons/<framework>/03_copying.md``, which
JupyterLab opens and runs by itself. Whatever can be said about it without running it
is said here, with the file and the line.
"""

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from jupytext.myst import MystMetadataParsingError, myst_to_notebook
from nbformat import NotebookNode
from nbval.plugin import find_comment_markers

from tools.tolerance import USUAL, is_tolerance, tolerance

LESSONS = "lessons"
"""The folder of the sources, with one for each framework in it."""

# Why the output of a cell cannot be compared. The build adds the only tag that
# nbval knows for this.
REASONS = ("machine", "timing", "figure", "random")

# Of a cell that readers need not read: JupyterLab and Colab show it folded.
HIDDEN = "hide-input"

# Of a cell with a function for the reader to write, which is not in the solutions; of
# one that is in the solutions only; of code that the solutions need as well.
STUB, SOLUTION, SETUP = "stub", "solution", "setup"

# How the first cell of a lesson in English says what it is for.
_AIMS = re.compile(r"\*You will be able to\* (.*?)\.? \*(\d+) minutes\b", re.DOTALL)

_OF_CODE = (*REASONS, HIDDEN, STUB, SOLUTION, SETUP)
_OF_PROSE = (SOLUTION,)

# The heading with which an exercise begins, and how the key of a cell begins that
# belongs to the exercises although it stands before the first one.
_EXERCISE = re.compile(r"### \w\d\.\d+ ")
_EXERCISE_KEY = "exercise-"

MAX_COLUMNS = 79  # of a code line: what fits beside the prompt on a laptop

_KEY = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_KEY = 64  # keys become cell ids, and nbformat allows no longer ones

# Markup of the book Dive into Deep Learning, which no notebook renders.
_BOOK_MARKUP = re.compile(
    r":(?:numref|label|eqref|eqlabel|cite|citet|begin_tab|end_tab)(?::|\b)"
    r"|\[\*\*|\*\*\]|\(\*\*[^*]*\*\*\)|\[~~|~~\]|\(~~"
)
_BOOK_MARKUP_IN_CODE = re.compile(r"#\s*@(?:tab|save|hide)\b")

_FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\(\s*<?([^)\s>]+)[^)]*\)")
_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)")
_REFERENCE_LINK = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s|$)", re.MULTILINE)
_HTML_LINK = re.compile(r"<[^>]*?\b(src|href)\s*=\s*[\"']?([^\"'\s>]+)", re.IGNORECASE)
_WORKS_ANYWHERE = ("https://", "http://", "mailto:", "#")


class LessonError(Exception):
    """A lesson that cannot be built: every reason found, one to a line."""


@dataclass(frozen=True)
class Cell:
    """One cell of a lesson's source.

    Attributes:
        kind: ``"code"`` or ``"markdown"``.
        source: what the author wrote, without the cell's metadata.
        id: of the cell in the notebook: its key, or what `_generated` makes of its
            text. Translated cells keep it.
        tags: what the build has to know of it, as why its output cannot be compared.
        line: line of the source file on which the cell begins, from 1.
        key: the name that its author gave it, or nothing.
    """

    kind: str
    source: str
    id: str
    tags: tuple[str, ...] = ()
    line: int = 0
    key: str = ""

    @property
    def reasons(self) -> list[str]:
        """Why the cell's output cannot be compared; empty if it is."""
        return [tag for tag in self.tags if tag in REASONS]


@dataclass(frozen=True)
class Lesson:
    """A lesson for one framework, as its source has it.

    Attributes:
        path: of the source, in the folder of its framework. What the build puts into
            all lessons is beside these folders.
        cells: in order.
    """

    path: Path
    cells: list[Cell] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def framework(self) -> str:
        """The tag of the framework that the lesson is for."""
        return self.path.parent.name

    @property
    def label(self) -> str:
        """The path of the source in the folder of lessons, as pytorch/03_copying.md."""
        below = [] if self.framework == LESSONS else [self.framework]
        return "/".join([*below, self.path.name])

    @property
    def has_solutions(self) -> bool:
        """Whether there are solutions to exercises."""
        return any(SOLUTION in cell.tags for cell in self.cells)


def aims_and_minutes(opening: str) -> tuple[str, str] | None:
    """Return what a lesson teaches and the minutes it takes, None if it does not say.

    Args:
        opening: the source of its first cell, in English.
    """
    found = _AIMS.search(opening)
    return (" ".join(found[1].split()), found[2]) if found else None


def split_exercises(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Return the cells before the exercises, and from the first one on."""
    first = next(
        (
            i
            for i, cell in enumerate(cells)
            if cell.key.startswith(_EXERCISE_KEY)
            or (cell.kind == "markdown" and _EXERCISE.match(cell.source))
        ),
        len(cells),
    )
    return list(cells[:first]), list(cells[first:])


def read_lesson(path: Path) -> Lesson:
    """Read the lesson at ``path`` and check everything that needs no execution.

    Raises:
        LessonError: all that is wrong with the source, with file and line.
    """
    return parse_lesson(path.read_text(encoding="utf-8"), path)


def parse_lesson(text: str, path: Path) -> Lesson:
    """Return the lesson that ``text`` is, as `read_lesson` does.

    Args:
        text: what is in the file, or was made of it without moving lines.
        path: of the file.

    Raises:
        LessonError: all that is wrong with the source, with file and line.
    """
    lesson = Lesson(path)
    problems = []
    for node, line in _nodes(text, lesson):
        where = f"{lesson.label}:{line}"
        problems += [f"{where}: {text}" for text in _metadata_problems(node)]
        lesson.cells.append(_cell(node, line))
    lesson = replace(lesson, cells=_with_ids(lesson.cells))
    problems += _problems(lesson)
    if problems:
        raise LessonError("\n".join(problems))
    return lesson


def check(lesson: Lesson) -> None:
    """Raise LessonError if there is something wrong with what is in the cells."""
    if problems := list(_problems(lesson)):
        raise LessonError("\n".join(problems))


def _problems(lesson: Lesson) -> Iterator[str]:
    for cell in lesson.cells:
        where = f"{lesson.label}:{cell.line}: cell {cell.id}"
        yield from (f"{where}: {text}" for text in _source_problems(cell))
    for problem in (
        *_duplicate_problems(lesson.cells),
        *_unasserted_problems(lesson.cells),
    ):
        yield f"{lesson.label}:{problem}"


def template(path: Path) -> Lesson:
    """Return what is to become a lesson when names in it are replaced, unchecked.

    Raises:
        LessonError: it cannot be read.
    """
    lesson = Lesson(path)
    nodes = _nodes(path.read_text(encoding="utf-8"), lesson)
    return replace(lesson, cells=_with_ids([_cell(*each) for each in nodes]))


def _nodes(text: str, lesson: Lesson) -> list[tuple[NotebookNode, int]]:
    """Return the cells of a source as jupytext reads them, and their lines."""
    try:
        notebook = myst_to_notebook(text, add_source_map=True)
    except MystMetadataParsingError as error:
        raise LessonError(f"{lesson.label}: {error}") from None
    except nbformat.ValidationError as error:
        reason = str(error).splitlines()[0]
        raise LessonError(f"{lesson.label}: metadata of a cell: {reason}") from None
    lines = [0, *text.splitlines()]
    found = []
    for node, line in zip(notebook.cells, notebook.metadata.source_map, strict=True):
        if not _is_code(node) and node.source.strip():
            # jupytext tells the line of what ends the cell before.
            line = lines.index(node.source.splitlines()[0], line)
        found.append((node, line))
    return found


def _cell(node: NotebookNode, line: int) -> Cell:
    key, tags = str(node.metadata.get("key", "")), node.metadata.get("tags", [])
    return Cell(node.cell_type, node.source, key, tuple(tags), line, key)


def _with_ids(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells, each with an id of its own.

    A cell without a key is called by its first words and a hash of its text, so that
    it keeps its id whatever happens elsewhere in the file. Only cells that are equal
    are numbered.
    """
    seen = Counter()
    found = []
    for cell in cells:
        name = cell.key or _generated(cell)
        seen[name] += 1
        number = f"-{seen[name]}" if seen[name] > 1 and not cell.key else ""
        found.append(replace(cell, id=name + number))
    return found


def _generated(cell: Cell) -> str:
    words = re.findall(r"[a-z0-9]+", cell.source[:200].lower())
    text = f"{cell.kind}\n{cell.source}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{'-'.join(words[:4])[:32].strip('-') or cell.kind}-{digest[:8]}"


def _metadata_problems(node: NotebookNode) -> Iterator[str]:
    if node.cell_type not in ("code", "markdown"):
        yield f"a {node.cell_type} cell; lessons have prose and code cells only"
    key = node.metadata.get("key", "unnamed")
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        yield f"the key {key!r} is not in kebab-case (like copy-run)"
    elif len(key) > _MAX_KEY:
        yield f"the key {key!r} is longer than {_MAX_KEY} characters"
    for name in node.metadata:
        if name not in ("key", "tags"):
            yield f"the cell has metadata {name!r}; only key and tags are known"
    known = _OF_CODE if _is_code(node) else _OF_PROSE
    tags = node.metadata.get("tags", [])
    for tag in tags:
        if tag == "raises-exception":
            yield "tag raises-exception: catch the error and print it instead"
        elif tag not in known and not (_is_code(node) and is_tolerance(tag)):
            approx = f" or approx, as in approx-{USUAL}" if _is_code(node) else ""
            yield f"the tag {tag!r} is not one of {', '.join(known)}{approx}"
    if sum(map(is_tolerance, tags)) > 1 or (
        any(map(is_tolerance, tags)) and set(tags) & set(REASONS)
    ):
        yield f"the tags {', '.join(tags)} say several things about one output"
    try:
        tolerance(tags)
    except ValueError as error:
        yield str(error)


def _is_code(node) -> bool:
    return node.cell_type == "code"


def _source_problems(cell: Cell) -> Iterator[str]:
    if cell.kind == "code":
        yield from _code_problems(cell.source)
    else:
        yield from _prose_problems(cell.source)


def _code_problems(source: str) -> Iterator[str]:
    if not source.strip():
        yield "the code cell is empty"
    for line in source.splitlines():
        if len(line) > MAX_COLUMNS:
            yield f"a code line of {len(line)} columns (at most {MAX_COLUMNS}): {line}"
    if source.rstrip().endswith(";"):
        yield "a trailing semicolon hides the result in Jupyter, but not from nbval"
    if markup := _BOOK_MARKUP_IN_CODE.search(source):
        yield f"book markup {markup.group()!r}"
    if list(find_comment_markers(source)):
        yield f"an NBVAL comment; give the reason as a tag ({', '.join(REASONS)})"


def _prose_problems(source: str) -> Iterator[str]:
    prose = _CODE_SPAN.sub("", _FENCED.sub("", source))
    # The book writes :label:`sec_x`, so its markup is sought with the code spans.
    for markup in _BOOK_MARKUP.findall(_FENCED.sub("", source)):
        yield f"book markup {markup!r}"
    for target in _IMAGE.findall(prose):
        if not is_figure(target):
            yield (
                f"the image {target} is not ../figures/<name>.svg or .png, which "
                "the build embeds; an image elsewhere is missing offline"
            )
    prose = _IMAGE.sub("", prose)  # an image may be what a link is on
    for target in _LINK.findall(prose):
        if not target.startswith(_WORKS_ANYWHERE):
            yield f"the relative link {target} leads nowhere on hosted platforms"
    for target in _REFERENCE_LINK.findall(prose):
        if not target.startswith(_WORKS_ANYWHERE):
            yield f"the relative link {target} leads nowhere on hosted platforms"
    for attribute, target in _HTML_LINK.findall(prose):
        if attribute.lower() == "src":
            yield f"an HTML image of {target}; write ![…](../figures/<name>.svg)"
        elif not target.startswith(_WORKS_ANYWHERE):
            yield f"the relative link {target} leads nowhere on hosted platforms"


def is_figure(target: str) -> bool:
    """Return whether an image's target is a figure that the build embeds.

    It is named as seen from the source, so that JupyterLab shows it there.
    """
    return re.fullmatch(r"\.\./figures/[a-z0-9_-]+\.(?:svg|png)", target) is not None


def _duplicate_problems(cells: list[Cell]) -> Iterator[str]:
    first = {}
    for cell in cells:
        if cell.key in first:
            line = first[cell.key].line
            yield f"{cell.line}: the key {cell.key!r} is taken by the cell at {line}"
        if cell.key:
            first.setdefault(cell.key, cell)


def _unasserted_problems(cells: list[Cell]) -> Iterator[str]:
    """Yield the ignored cells about which no assertion says what can be said."""
    code = [cell for cell in cells if cell.kind == "code"]
    for position, cell in enumerate(code):
        here_and_next = code[position : position + 2]
        if cell.reasons and not any(asserts(c.source) for c in here_and_next):
            yield (
                f"{cell.line}: cell {cell.id}: its output is not compared "
                f"({', '.join(cell.reasons)}), and neither it nor the next code "
                "cell asserts what can be said about it"
            )


def asserts(source: str) -> bool:
    """Return whether the code of a cell asserts something that could be false.

    ``assert`` statements count, and calls named ``assert_…`` as NumPy and PyTorch
    have them; ``assert True`` does not.
    """
    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError:
        return False  # the execution will say it better
    return any(
        (isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant))
        or (isinstance(node, ast.Call) and _name(node.func).startswith("assert_"))
        for node in ast.walk(tree)
    )


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
