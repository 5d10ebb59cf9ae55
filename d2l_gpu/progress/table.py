"""The lessons of an edition, their exercises, and which of them are solved."""

import json
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from d2l_gpu.common.frameworks import FRAMEWORKS, framework
from d2l_gpu.course import lesson_names, notebooks_dir
from d2l_gpu.progress.record import Solved

ABOUT = (
    "a record that a reader of the course keeps on their own computer, and no proof: "
    "the checker wrote it, and anyone could write the same by hand"
)
"""What the record is, as part of a sentence."""


@dataclass(frozen=True)
class Lesson:
    """A lesson, and what is solved of it.

    Attributes:
        name: such as ``03_copying``.
        title: in the language of the edition.
        exercises: the numbers of its exercises, in order.
        solved: those that are solved, by number.
    """

    name: str
    title: str
    exercises: Sequence[str]
    solved: Mapping[str, Solved]

    @property
    def number(self) -> str:
        """The lesson's number, such as ``03``."""
        return self.name.partition("_")[0]


@dataclass(frozen=True)
class Edition:
    """A framework's lessons that have exercises."""

    framework: str
    lessons: Sequence[Lesson]

    @property
    def title(self) -> str:
        """The framework's name."""
        return framework(self.framework).title

    @property
    def exercises(self) -> int:
        """How many exercises there are."""
        return sum(len(lesson.exercises) for lesson in self.lessons)

    @property
    def solved(self) -> list[Solved]:
        """What is solved, in the order of the lessons."""
        return [solved for each in self.lessons for solved in each.solved.values()]

    @property
    def complete(self) -> int:
        """How many lessons are solved completely."""
        return sum(len(each.solved) == len(each.exercises) for each in self.lessons)


def editions(
    solved: Sequence[Solved], tag: str | None = None, language: str | None = None
) -> list[Edition]:
    """Return what is solved of the course.

    Args:
        solved: the record.
        tag: of a framework; None for all of which something is solved, or PyTorch.
        language: of the titles; None for the reader's.
    Raises:
        ValueError: there is no such framework, or no edition in that language.
        FileNotFoundError: the notebooks are missing.
    """
    tags = {each.framework for each in solved} or {"pytorch"}
    if tag is not None:
        tags = {framework(tag).tag}
    return [
        Edition(each.tag, list(_lessons(each.tag, solved, language)))
        for each in FRAMEWORKS
        if each.tag in tags
    ]


def _lessons(
    tag: str, solved: Sequence[Solved], language: str | None
) -> Iterator[Lesson]:
    folder = notebooks_dir(language, tag)
    passed = {each.exercise: each for each in solved if each.framework == tag}
    for name in lesson_names(folder):
        title, numbers = _read(folder / f"{name}.ipynb")
        if numbers:
            own = {number: passed[number] for number in numbers if number in passed}
            yield Lesson(name, title, numbers, own)


# In A1, d2l is the book's package.
_CHECK = re.compile(r"^(?:d2l\.)?check\('([\w.]+)'", re.MULTILINE)


def _read(path: Path) -> tuple[str, list[str]]:
    """Return a lesson's title and the numbers of its exercises."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    title = next(text for kind, text in texts if kind == "markdown").splitlines()[0]
    numbers = [
        n for kind, text in texts if kind == "code" for n in _CHECK.findall(text)
    ]
    return title.lstrip("# "), list(dict.fromkeys(numbers))


def as_text(edition: Edition) -> str:
    """Return a table for a terminal."""
    width = max(_columns(each.title) for each in edition.lessons)
    rows = [
        (each.number, each.title, len(each.solved), len(each.exercises))
        for each in edition.lessons
    ]
    rows.append(("", "", len(edition.solved), edition.exercises))
    lines = [
        f"{number:3} {title}{' ' * (width - _columns(title))}  {some:3} of {most}"
        for number, title, some, most in rows
    ]
    lines.insert(-1, "-" * (width + 15))
    return "\n".join([f"{edition.title}, exercises solved", "", *lines])


def _columns(text: str) -> int:
    """Return the columns that a text takes in a terminal; Chinese takes two each."""
    return sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in text)


def as_json(editions: Sequence[Edition]) -> str:
    """Return everything as JSON, in a form that later versions will keep."""
    content: dict[str, Any] = {"about": f"This is {ABOUT}.", "frameworks": []}
    for edition in editions:
        lessons = [
            {
                "lesson": each.name,
                "title": each.title,
                "exercises": list(each.exercises),
                "solved": [asdict(solved) for solved in each.solved.values()],
            }
            for each in edition.lessons
        ]
        content["frameworks"].append(
            {
                "framework": edition.framework,
                "solved": len(edition.solved),
                "exercises": edition.exercises,
                "lessons": lessons,
            }
        )
    return json.dumps(content, indent=1, ensure_ascii=False)


def show(text: str) -> None:
    """Print a text; what the terminal can't write becomes a question mark."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, errors="replace").decode(encoding))
