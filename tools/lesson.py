"""Parse a lesson's MyST Markdown source into cells, and check them.

A source, such as ``lessons/pytorch/03_copying.md``, is a notebook for one framework
that JupyterLab opens and runs as it is. All problems that can be found without running
it are reported here, with file and line.
"""

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from jupytext.myst import MystMetadataParsingError, myst_to_notebook
from nbformat import NotebookNode
from nbval.plugin import find_comment_markers

from d2l_gpu.course.slides.cells import TYPES
from tools.tolerance import USUAL, is_tolerance, tolerance

LESSONS = "lessons"
"""The folder of the sources, with a subfolder for each framework."""

# Tags that say why a cell's output can't be compared. The build adds nbval's own tag,
# which gives no reason.
REASONS = ("machine", "timing", "figure", "random")

# A cell that readers needn't read: JupyterLab and Colab show it folded.
HIDDEN = "hide-input"

# A function for the reader to write (not in the solutions); a cell that is only in the
# solutions; code that the solutions need, too.
STUB, SOLUTION, SETUP = "stub", "solution", "setup"

# The paragraph of an English lesson with its objectives and the minutes it takes, and
# that of a lesson of the first edition.
_OBJECTIVES = re.compile(
    r"\*After this lesson you can (.+?)\. You need (?:lessons? [^.]+? and )?"
    r"(?:about )?(\d+) minutes\b[^*]*\*"
)
_AIMS = re.compile(r"\*You will be able to\* (.*?)\.? \*(\d+) minutes\b")

# How slides show a cell, as `d2l_gpu.course.slides.rules` says, and code of which they
# show only the output.
SLIDE_TYPES = TYPES
OUTPUT_ONLY = "output-only"

_OF_CODE = (*REASONS, HIDDEN, STUB, SOLUTION, SETUP)
_OF_CODE += (*(kind for kind in SLIDE_TYPES if kind != "notes"), OUTPUT_ONLY)
_OF_PROSE = (SOLUTION, *SLIDE_TYPES)

# The heading of an exercise, and the key prefix of cells that belong to the exercises
# but come before the first one.
_EXERCISE = re.compile(r"^### \w\d\.\d+ ", re.MULTILINE)
_EXERCISE_KEY = "exercise-"

MAX_COLUMNS = 79  # of code: what fits beside the prompt on a laptop

_KEY = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_KEY = 64  # nbformat's limit for cell ids, which keys become

# Markup of the book Dive into Deep Learning, which no notebook renders.
_BOOK_MARKUP = re.compile(
    r":(?:numref|label|eqref|eqlabel|cite|citet|begin_tab|end_tab)(?::|\b)"
    r"|\[\*\*|\*\*\]|\(\*\*[^*]*\*\*\)|\[~~|~~\]|\(~~"
)
_BOOK_MARKUP_IN_CODE = re.compile(r"#\s*@(?:tab|save|hide)\b")

FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\(\s*<?([^)\s>]+)[^)]*\)")
_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)")
_REFERENCE_LINK = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s|$)", re.MULTILINE)
_HTML_LINK = re.compile(r"<[^>]*?\b(src|href)\s*=\s*[\"']?([^\"'\s>]+)", re.IGNORECASE)
_WORKS_ANYWHERE = ("https://", "http://", "mailto:", "#", "${")  # ${…}: filled in


class LessonError(Exception):
    """The lesson can't be built; the message has one line per problem."""


@dataclass(frozen=True)
class Cell:
    """One cell of a lesson's source.

    Attributes:
        kind: ``"code"`` or ``"markdown"``.
        source: what the author wrote, without the cell's metadata.
        id: the cell's id in the notebook: its key, or one generated from its text.
            Translated cells keep it.
        tags: instructions for the build, such as why its output can't be compared.
        line: the line of the source file where the cell begins, from 1.
        key: the name that the author gave the cell; empty if none.
    """

    kind: str
    source: str
    id: str
    tags: tuple[str, ...] = ()
    line: int = 0
    key: str = ""

    @property
    def reasons(self) -> list[str]:
        """Why the cell's output can't be compared; empty if it can."""
        return [tag for tag in self.tags if tag in REASONS]


@dataclass(frozen=True)
class Lesson:
    """A lesson for one framework, as in its source.

    Attributes:
        path: the source, in its framework's folder. Templates for all lessons are
            beside these folders.
        cells: the cells, in order.
    """

    path: Path
    cells: list[Cell] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def framework(self) -> str:
        """The tag of the lesson's framework."""
        return self.path.parent.name

    @property
    def label(self) -> str:
        """The source's path below ``lessons``, such as pytorch/03_copying.md."""
        below = [] if self.framework == LESSONS else [self.framework]
        return "/".join([*below, self.path.name])

    @property
    def prose(self) -> list[str]:
        """The sources of the prose cells."""
        return [cell.source for cell in self.cells if cell.kind == "markdown"]

    @property
    def has_solutions(self) -> bool:
        """Whether the source has solutions to exercises."""
        return any(SOLUTION in cell.tags for cell in self.cells)


def objectives(prose: Iterable[str]) -> tuple[str, str] | None:
    """Return what a reader can do after a lesson, and the minutes it takes.

    Args:
        prose: the sources of prose cells, in English and in order. One of their
            paragraphs must be ``*After this lesson you can …. You need lesson N and
            25 minutes on a laptop, but no GPU.*``, where the lesson may be missing.

    Returns:
        None if no paragraph says so.
    """
    for text in _paragraphs(prose):
        if found := _OBJECTIVES.fullmatch(text):
            return found[1], found[2]
    return None


def aims_and_minutes(prose: Iterable[str]) -> tuple[str, str] | None:
    """Return the same as `objectives`, also for a lesson of the first edition.

    Its paragraph is ``*You will be able to* …. *25 minutes on a laptop; no GPU
    needed.*``.
    """
    sources = list(prose)
    for text in _paragraphs(sources):
        if found := _AIMS.search(text):
            return found[1], found[2]
    return objectives(sources)


def _paragraphs(sources: Iterable[str]) -> Iterator[str]:
    """Yield the paragraphs of Markdown texts, with single spaces."""
    for source in sources:
        for paragraph in re.split(r"\n\s*\n", source):
            yield " ".join(paragraph.split())


def split_exercises(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Split cells into those before the exercises and the rest."""
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
    """Read the lesson at ``path``, and check what can be checked without running it.

    Raises:
        LessonError: all problems of the source, with file and line.
    """
    return parse_lesson(path.read_text(encoding="utf-8"), path)


def parse_lesson(text: str, path: Path) -> Lesson:
    """Parse and check a lesson, as `read_lesson` does.

    Args:
        text: the file's content, possibly changed, but with lines in their places.
        path: the file.

    Raises:
        LessonError: all problems of the source, with file and line.
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
    """Raise LessonError if there are problems in the cells."""
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
    """Read a lesson with placeholders, which is only checked once they are replaced.

    Raises:
        LessonError: the file can't be parsed.
    """
    lesson = Lesson(path)
    nodes = _nodes(path.read_text(encoding="utf-8"), lesson)
    return replace(lesson, cells=_with_ids([_cell(*each) for each in nodes]))


def _nodes(text: str, lesson: Lesson) -> list[tuple[NotebookNode, int]]:
    """Return a source's cells, parsed by jupytext, with their line numbers."""
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
            # jupytext reports the line that ends the previous cell.
            line = lines.index(node.source.splitlines()[0], line)
        found.append((node, line))
    return found


def _cell(node: NotebookNode, line: int) -> Cell:
    key, tags = str(node.metadata.get("key", "")), node.metadata.get("tags", [])
    return Cell(node.cell_type, node.source, key, tuple(tags), line, key)


def _with_ids(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells, each with a unique id.

    The id of a cell without a key is its first words and a hash of its text, so that
    changes elsewhere don't affect it. Identical cells are numbered.
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
    if len(types := [tag for tag in tags if tag in SLIDE_TYPES]) > 1:
        yield f"of the tags {', '.join(types)}, a cell can have only one"
    if sum(map(is_tolerance, tags)) > 1 or (
        any(map(is_tolerance, tags)) and set(tags) & set(REASONS)
    ):
        yield (
            f"of the tags {', '.join(tags)}, only one may say how an output is compared"
        )
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
    prose = CODE_SPAN.sub("", FENCED.sub("", source))
    # The book writes :label:`sec_x`, so look for its markup in code spans, too.
    for markup in _BOOK_MARKUP.findall(FENCED.sub("", source)):
        yield f"book markup {markup!r}"
    if found := _EXERCISE.search(source.lstrip(), 1):
        yield (
            f"the exercise {found.group().strip(' #')} begins within a cell, so it "
            "isn't told from what is above it; put a line +++ above its heading"
        )
    for target in _IMAGE.findall(prose):
        if not is_figure(target):
            yield (
                f"the image {target} is not ../figures/<name>.svg or .png, which "
                "the build embeds; an image elsewhere is missing offline"
            )
    prose = _IMAGE.sub("", prose)  # a link's text may be an image
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

    Its path is relative to the source, so that JupyterLab shows it there.
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
    """Yield the cells whose output is ignored although no assertion checks it."""
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
    """Return whether a cell's code asserts something that could be false.

    Counts ``assert`` statements, except of constants, and calls named ``assert_…``, as
    in NumPy and PyTorch.
    """
    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError:
        return False  # running the cell will give a better message
    return any(
        (isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant))
        or (isinstance(node, ast.Call) and _name(node.func).startswith("assert_"))
        for node in ast.walk(tree)
    )


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
