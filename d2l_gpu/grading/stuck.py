"""Where the class is stuck: how many passed, and what the others got wrong."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from d2l_gpu.exercises.verdict import Verdict
from d2l_gpu.grading.results import STATES, Results, state_of

_MOST = 4


@dataclass
class Mistake:
    """What several students got wrong in the same way.

    Attributes:
        claim: what isn't true of their answers; empty if something cut the check short.
        told: what the first of them was told. Others may have been told the same with
            other numbers or names.
        students: their names.
    """

    claim: str
    told: str
    students: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Stuck:
    """What the class made of an exercise.

    Attributes:
        number: the exercise.
        states: how many students there are of each state.
        mistakes: the most frequent ones.
    """

    number: str
    states: dict[str, int]
    mistakes: Sequence[Mistake]

    @property
    def handed_in(self) -> int:
        """How many students have a notebook with this exercise."""
        return sum(n for state, n in self.states.items() if state != "missing")

    @property
    def share(self) -> float:
        """The share of them who passed, from 0 to 1."""
        return self.states["right"] / self.handed_in if self.handed_in else 0.0


def where_stuck(results: Results) -> list[Stuck]:
    """Return what the class made of each exercise, in the order of the exercises."""
    return [_of(number, results) for number in results.titles]


def fewest_passed(stuck: Sequence[Stuck]) -> set[str]:
    """Return the exercises that fewest passed; none if all are alike."""
    shares = {each.share for each in stuck if each.handed_in}
    if len(shares) < 2:
        return set()
    least = min(shares)
    return {each.number for each in stuck if each.handed_in and each.share == least}


def _of(number: str, results: Results) -> Stuck:
    states = dict.fromkeys(STATES, 0)
    mistakes: dict[str, Mistake] = {}
    for student in results.students:
        verdict = student.verdict(number)
        state = state_of(verdict)
        states[state] += 1
        if verdict is None or state in ("right", "unanswered"):
            continue
        for claim, told in _mistakes(verdict):
            # What differs in its numbers or quotations only counts as the same.
            kind = claim or re.sub(r"`[^`]*`|[\d.,]*\d", "…", told)
            mistake = mistakes.setdefault(kind, Mistake(claim, told))
            mistake.told = mistake.told or told
            mistake.students.append(student.name)
    most = sorted(
        mistakes.values(), key=lambda each: (-len(each.students), each.claim or "~")
    )
    return Stuck(number, states, most[:_MOST])


def _mistakes(verdict: Verdict) -> list[tuple[str, str]]:
    """Return the claims that don't hold, each with its hint, and what cut the check
    short."""
    found = {each.text: each.hint for each in verdict.claims if not each.holds}
    return [*found.items(), *([("", verdict.problem)] if verdict.problem else [])]
