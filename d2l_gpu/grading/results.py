"""What came of the notebooks of a class, as plain data."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from d2l_gpu.exercises.verdict import Verdict
from d2l_gpu.grading.points import Points, share_of


@dataclass(frozen=True)
class GradedNotebook:
    """What came of one notebook.

    Attributes:
        name: its name within the student's folder; empty if there was none.
        framework: the framework's tag; empty if there's nothing to grade.
        verdicts: the verdicts by the numbers of the exercises.
        notes: what went wrong with the notebook as a whole, as sentences without a
            full stop.
        code: the answers' code by the numbers of the exercises, to be read.
        path: where it is; None if there was none.
    """

    name: str
    framework: str = ""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    notes: Sequence[str] = ()
    code: dict[str, str] = field(default_factory=dict)
    path: Path | None = None


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


# How the problem of a verdict begins that no check came to; those that the answer
# itself causes begin otherwise.
UNANSWERED, UNRUN = "not answered", "doesn't run"

STATES = ("right", "partly", "wrong", "unrun", "unanswered", "missing")


def state_of(verdict: Verdict | None) -> str:
    """Return one of `STATES`.

    ``partly``: some claims hold. ``unrun``: the cell of the answer failed, or the
    notebook stopped before it. ``unanswered``: the notebook has no answer, or that of
    the stub. ``missing``: no notebook has this exercise.
    """
    if verdict is None:
        return "missing"
    if verdict.all_hold:
        return "right"
    if not verdict.claims and verdict.problem.startswith(UNANSWERED):
        return "unanswered"
    if not verdict.claims and verdict.problem.startswith(UNRUN):
        return "unrun"
    return "partly" if share_of(verdict) else "wrong"


@dataclass(frozen=True)
class Student:
    """What came of the notebooks of one student.

    Attributes:
        name: the student.
        notebooks: what the student handed in; empty for somebody on the list of the
            class who handed in nothing.
        id: by which a gradebook knows the student; empty if unknown.
        feedback: the file with feedback, in the folder of the grades; empty if there's
            none.
        on_list: whether the student is on the list of the class; None without a list.
    """

    name: str
    notebooks: Sequence[GradedNotebook]
    id: str = ""
    feedback: str = ""
    on_list: bool | None = None

    def best(self, number: str) -> GradedNotebook | None:
        """Return the notebook with the best answer to an exercise; None if none has
        the exercise."""
        found = [each for each in self.notebooks if number in each.verdicts]
        return max(found, key=lambda each: _rank(each.verdicts[number]), default=None)

    def verdict(self, number: str) -> Verdict | None:
        """Return the verdict on an exercise: the best one, if several notebooks have
        it; None if none does."""
        best = self.best(number)
        return best and best.verdicts[number]

    @property
    def graded(self) -> bool:
        """Whether there's a notebook that could be graded."""
        return any(each.verdicts for each in self.notebooks)

    @property
    def notes(self) -> list[str]:
        """What went wrong with the notebooks, each with its notebook's name."""
        if not self.notebooks:
            return ["nothing was handed in"]
        several = len(self.notebooks) > 1
        notes = [
            f"{each.name}: {note}" if several and each.name else note
            for each in self.notebooks
            for note in each.notes
        ]
        if self.on_list is False:
            notes.append("this name isn't on the list of the class")
        return notes


def _rank(verdict: Verdict) -> tuple:
    return share_of(verdict), -STATES.index(state_of(verdict))


@dataclass(frozen=True)
class Results:
    """What came of a class.

    Attributes:
        students: in the order of their names.
        titles: the titles of the exercises that were graded, by number, in order.
        points: what they're worth.
        about: what was graded, when and how, as phrases.
        not_graded: files that nobody's grade depends on, as they aren't notebooks.
    """

    students: Sequence[Student]
    titles: dict[str, str]
    points: Points
    about: Sequence[str] = ()
    not_graded: Sequence[str] = ()

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
            "about": list(self.about),
            "points": self.most,
            "exercises": [
                {"number": number, "title": title, "points": self.points.of(number)}
                for number, title in self.titles.items()
            ],
            "students": [self._student(each) for each in self.students],
            "not_graded": list(self.not_graded),
        }

    def _student(self, student: Student) -> dict[str, Any]:
        answers = {}
        for number in self.titles:
            verdict = student.verdict(number)
            answers[number] = {
                "state": state_of(verdict),
                "points": self.points.earned(verdict),
                "claims": [
                    {
                        "text": each.text,
                        "holds": each.holds,
                        "hint": "" if each.holds else each.hint,
                    }
                    for each in (verdict.claims if verdict else ())
                ],
                "problem": verdict.problem if verdict else "",
                "printed": verdict.printed if verdict else "",
            }
        return {
            "student": student.name,
            "id": student.id,
            "on_list": student.on_list,
            "points": self.total(student),
            "feedback": student.feedback,
            "notebooks": [
                {"name": each.name, "framework": each.framework, "notes": each.notes}
                for each in student.notebooks
            ],
            "notes": student.notes,
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
