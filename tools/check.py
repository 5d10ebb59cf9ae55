"""Check the committed notebooks, one by one and as an edition.

nbval alone is not enough: it passes a notebook that was never executed, because there
is no output to compare.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbval.plugin import find_comment_markers, find_metadata_tags

from tools.header import QUIZ
from tools.lesson import REASONS, aims_and_minutes
from tools.outputs import has_comparable_output, output_problems
from tools.tolerance import MOST, USUAL, tolerance

# Fractions of an edition's code cells with output: of its lessons, and of its
# solutions, which have so few of them that each picture counts for more. A measured
# time can't be compared, and only PyTorch's edition can simulate one instead, so
# measured times have a limit of their own.
MIN_COMPARED = {False: 0.9, True: 0.85}
MAX_TIMED = 0.1
MAX_LOOSE = 0.1  # fraction of those with a tolerance above the default

# The last headings of an English notebook, apart from that of its quiz; the second pair
# is the first edition's.
_LAST_HEADINGS = (["What to remember", "Exercises"], ["Summary", "Exercises"])

# What `check` prints about a stub (False) and about a solution (True).
_SAID = {
    False: re.compile(r"^\w\d\.\d+: not answered yet\.", re.MULTILINE),
    True: re.compile(r"^\w\d\.\d+: all checks pass\.", re.MULTILINE),
}
_CHECK = re.compile(r"^(?:d2l\.)?check\(", re.MULTILINE)


def notebook_problems(notebook: NotebookNode, solutions: bool = False) -> Iterator[str]:
    """Yield the problems of a committed English notebook, one line each.

    Args:
        notebook: the notebook.
        solutions: whether it holds the solutions to a lesson's exercises.
    """
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code]
    if None in counts:
        for cell in code:
            if cell.execution_count is None:
                yield f"cell {cell.id}: it was never executed"
    elif counts != list(range(1, len(code) + 1)):
        yield f"the cells were not executed in order, from 1: {counts}"
    if not any(cell.outputs for cell in code):
        yield "no cell has any output"
    for cell in code:
        for problem in output_problems(cell):
            yield f"cell {cell.id}: {problem}"
        checks = len(_CHECK.findall(cell.source))
        if len(_SAID[solutions].findall(_printed(cell))) != checks:
            what = "a solution does not pass" if solutions else "it shows an answer"
            yield f"cell {cell.id}: {what}: {_printed(cell).strip()}"
    if not solutions:
        yield from _form_problems(notebook)


def _printed(cell: NotebookNode) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def _form_problems(notebook: NotebookNode) -> Iterator[str]:
    """Yield which of title, aims, duration, summary and exercises are missing."""
    opening = notebook.cells[0] if notebook.cells else None
    if opening is None or not opening.source.startswith("# "):
        yield "the first cell does not begin with a title"
    elif aims_and_minutes(prose_of(notebook)) is None:
        yield "it does not state the aims and how many minutes the lesson takes"
    headings = [
        line.removeprefix("## ").strip()
        for cell in notebook.cells
        if cell.cell_type == "markdown" and cell.get("id") != QUIZ
        for line in cell.source.splitlines()
        if line.startswith("## ")
    ]
    if headings[-2:] not in _LAST_HEADINGS:
        yield f"the last headings are not {' and '.join(_LAST_HEADINGS[0])}"


def prose_of(notebook: NotebookNode) -> list[str]:
    """Return the sources of a notebook's prose cells."""
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]


def is_compared(cell: NotebookNode) -> bool:
    """Return whether nbval compares a code cell's output."""
    options = dict(find_metadata_tags(cell.metadata))
    options.update(find_comment_markers(cell.source))
    return bool(options.get("check", True)) and not options.get("skip", False)


@dataclass(frozen=True)
class Comparison:
    """How the outputs of notebooks are compared with those of a fresh run.

    Attributes:
        exact: number of code cells whose output must be identical.
        near: number of cells whose numbers may differ by up to 10 %.
        loose: number of cells whose numbers may differ by more.
        reasons: number of cells that aren't compared, by reason.
    """

    exact: int = 0
    near: int = 0
    loose: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def compared(self) -> int:
        return self.exact + self.near + self.loose

    @property
    def total(self) -> int:
        """The number of cells with output."""
        return self.compared + sum(self.reasons.values())

    @property
    def timed(self) -> int:
        """The number of cells that aren't compared because they measure time."""
        return self.reasons.get("timing", 0)

    @property
    def share(self) -> float:
        """The fraction of the cells with output that are compared."""
        return self.compared / max(1, self.total)

    @property
    def share_untimed(self) -> float:
        """The same fraction of the cells that don't measure time."""
        return self.compared / max(1, self.total - self.timed)

    @property
    def share_loose(self) -> float:
        """The fraction of the compared cells that are compared loosely."""
        return self.loose / max(1, self.compared)


def comparison(notebooks: Iterable[NotebookNode]) -> Comparison:
    """Return how outputs are compared; a cell with only a picture isn't compared."""
    kinds = Counter(
        _kind(cell)
        for notebook in notebooks
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.outputs
    )
    exact, near, loose = (kinds.pop(kind, 0) for kind in ("exact", "near", "loose"))
    return Comparison(exact, near, loose, dict(sorted(kinds.items())))


def _kind(cell: NotebookNode) -> str:
    tags = cell.metadata.get("tags", [])
    if not is_compared(cell):
        return next((tag for tag in tags if tag in REASONS), "other")
    if not has_comparable_output(cell):
        return "figure"
    percent = tolerance(tags)
    if percent is None:
        return "exact"
    return "near" if percent <= USUAL else "loose"


def edition_problems(paths: Sequence[Path], solutions: bool = False) -> Iterator[str]:
    """Yield the problems of the English notebooks for one framework.

    Those in other languages have the same code and outputs, which the build checks.

    Args:
        paths: all of the lessons, or all of the solutions.
        solutions: whether they are the solutions.
    """
    notebooks = [nbformat.read(path, as_version=4) for path in paths]
    if not notebooks:
        yield "there are no notebooks"
        return
    for path, notebook in zip(paths, notebooks, strict=True):
        for problem in notebook_problems(notebook, solutions):
            yield f"{path.name}: {problem}"
    found = comparison(notebooks)
    least = MIN_COMPARED[solutions]
    if found.share_untimed < least:
        yield (
            f"only {found.share_untimed:.0%} of the code cells with output that isn't "
            f"a measured time are compared, but at least {least:.0%} must be"
        )
    if found.timed > MAX_TIMED * found.total and not solutions:
        yield (
            f"{found.timed / found.total:.0%} of the code cells with output measure "
            f"time, but at most {MAX_TIMED:.0%} may"
        )
    if found.share_loose > MAX_LOOSE:
        yield (
            f"{found.share_loose:.0%} of the compared cells are looser than {USUAL} "
            f"%, but at most {MAX_LOOSE:.0%} may be"
        )


PAGE = "README.md"

_INTRODUCTION = f"""\
# The notebooks

The build makes them from [`lessons/`](../lessons), executed: `<language>/<framework>/`,
with the solutions to the exercises in a folder beside them. To change one, change its
source.

## How outputs are compared

CI runs every English notebook again and compares what its cells put out, not counting
cells that put out nothing. In most cells every character must be the same. In some,
numbers may differ from the committed ones by up to {USUAL} %, in a few by more, up to
{MOST} %, but the words around them may not. A cell that isn't compared says why: its
output depends on the machine, on measured time or on chance, or is a picture. The other
languages have the code and the outputs of the English notebooks.
"""


def page(root: Path) -> str:
    """Return the page on how the outputs of all editions are compared, in Markdown.

    Args:
        root: the project's root folder.
    """
    rows = [("Edition", "same", f"within {USUAL} %", "looser", "not", "compared")]
    rows.append(("---",) * len(rows[0]))
    for edition in sorted((root / "notebooks" / "en").glob("*")):
        paths = sorted(edition.glob("*.ipynb"))
        found = comparison(nbformat.read(path, as_version=4) for path in paths)
        left_out = ", ".join(f"{n} {why}" for why, n in found.reasons.items())
        numbers = (found.exact, found.near, found.loose)
        rows.append(
            (edition.name, *map(str, numbers), left_out, f"{100 * found.share:.1f} %")
        )
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{_INTRODUCTION}\n{table}\n"
