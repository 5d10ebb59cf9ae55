"""What came of the notebooks of a class, as plain data."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from d2l_gpu.exercises.verdict import Verdict
from d2l_gpu.grading.points import Points, share_of


@dataclass(frozen=True)
class GradedNotebook:
    """What came of one notebook.

    Attributes:
        student: who handed it in.
        name: its name within the student's folder; empty if there was none.
        framework: the framework's tag; empty if there's nothing to grade.
        verdicts: the verdicts by the numbers of the exercises.
        notes: what went wrong with the notebook as a whole, as sentences without a
            full stop.
    """

    student: str
    name: str
    framework: str = ""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    notes: Sequence[str] = ()


def encodable(data: Any) -> Any:
    """Return plain data whose texts can be written to any file.

    An error that an answer raises may contain half a character.
    """
    if isinstance(data, str):
        return data.encode("utf-8", "replace").decode("utf-8")
    if isinstance(data, list):
        return [encodable(each) for each in data]
    if isinstance(data, dict):
        return {key: encodable(each) for key, each in data.items()}
    return data


# Not what a verdict begins with that the answer caused.
_UNANSWERED = ("not answered", "the notebook has no answer")

STATES = ("right", "partly", "wrong", "unanswered", "missing")


def state_of(verdict: Verdict | None) -> str:
    """Return one of `STATES`.

    ``partly``: some claims hold. ``unanswered``: the notebook has no answer, or that of
    the stub. ``missing``: no notebook has this exercise.
    """
    if verdict is None:
        return "missing"
    if verdict.all_hold:
        return "right"
    if not verdict.claims and verdict.problem.startswith(_UNANSWERED):
        return "unanswered"
    return "partly" if share_of(verdict) else "wrong"


@dataclass(frozen=True)
class Student:
    """What came of the notebooks of one student.

    Attributes:
        name: the student.
        notebooks: what the student handed in.
    """

    name: str
    notebooks: Sequence[GradedNotebook]

    def verdict(self, number: str) -> Verdict | None:
        """Return the verdict on an exercise: the best one, if several notebooks have
        it; None if none does."""
        found = [
            each.verdicts[number] for each in self.notebooks if number in each.verdicts
        ]
        return max(found, key=_rank, default=None)

    @property
    def notes(self) -> list[str]:
        """What went wrong with the notebooks, each with its notebook's name."""
        several = len(self.notebooks) > 1
        return [
            f"{each.name}: {note}" if several else note
            for each in self.notebooks
            for note in each.notes
        ]


def _rank(verdict: Verdict) -> tuple:
    return share_of(verdict), state_of(verdict) != "unanswered"


@dataclass(frozen=True)
class Results:
    """What came of a class.

    Attributes:
        students: in the order of their names.
        titles: the titles of the exercises that were graded, by number, in order.
        points: what they're worth.
    """

    students: Sequence[Student]
    titles: dict[str, str]
    points: Points

    def total(self, student: Student) -> float:
        earned = [self.points.earned(student.verdict(each)) for each in self.titles]
        return round(sum(earned), 2)

    @property
    def most(self) -> float:
        """The points that can be earned."""
        return round(sum(self.points.of(each) for each in self.titles), 2)

    def as_json(self) -> dict[str, Any]:
        """Return everything as `json` writes it."""
        return {
            "points": self.most,
            "exercises": [
                {"number": number, "title": title, "points": self.points.of(number)}
                for number, title in self.titles.items()
            ],
            "students": [self._student(each) for each in self.students],
        }

    def _student(self, student: Student) -> dict[str, Any]:
        answers = {}
        for number in self.titles:
            verdict = student.verdict(number)
            answers[number] = {
                "state": state_of(verdict),
                "points": self.points.earned(verdict),
                "claims": [
                    {"text": each.text, "holds": each.holds, "hint": each.hint}
                    for each in (verdict.claims if verdict else ())
                ],
                "problem": verdict.problem if verdict else "",
                "printed": verdict.printed if verdict else "",
            }
        return {
            "student": student.name,
            "points": self.total(student),
            "notebooks": [
                {"name": each.name, "framework": each.framework, "notes": each.notes}
                for each in student.notebooks
            ],
            "exercises": answers,
        }


def in_order(numbers: Iterable[str]) -> list[str]:
    """Return numbers of exercises sorted as in the course, a teacher's own last."""

    def key(number: str) -> tuple:
        ours = re.fullmatch(r"(\d\d|A\d)\.(\d+)", number)
        if ours:
            return 0, ours[1], int(ours[2]), ""
        return 1, "", 0, [(len(each), each) for each in re.split(r"(\d+)", number)]

    return sorted(set(numbers), key=key)
