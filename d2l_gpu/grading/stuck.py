"""Where the class is stuck: how many passed, and what the others got wrong."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from d2l_gpu.grading.results import Results, state_of

_MOST = 3


@dataclass(frozen=True)
class Stuck:
    """What the class made of an exercise.

    Attributes:
        number: the exercise.
        states: how many students there are of each state.
        claims: the claims that failed most often, each with how often.
        hints: what students were told most often, each with how often: the hint for the
            first claim that failed, or what cut the check short. What differs in its
            numbers or quotations only counts as the same.
    """

    number: str
    states: dict[str, int]
    claims: Sequence[tuple[str, int]]
    hints: Sequence[tuple[str, int]]

    @property
    def handed_in(self) -> int:
        """How many students have a notebook with this exercise."""
        return sum(n for state, n in self.states.items() if state != "missing")

    @property
    def share(self) -> float:
        """The share of them who passed, from 0 to 1."""
        return self.states["right"] / self.handed_in if self.handed_in else 0.0


def where_stuck(results: Results) -> list[Stuck]:
    """Return what the class made of each exercise, the one that fewest passed first."""
    return sorted(
        (_of(number, results) for number in results.titles), key=lambda each: each.share
    )


def _of(number: str, results: Results) -> Stuck:
    states = dict.fromkeys(("right", "partly", "wrong", "unanswered", "missing"), 0)
    claims, hints, first = Counter(), Counter(), {}
    for student in results.students:
        verdict = student.verdict(number)
        state = state_of(verdict)
        states[state] += 1
        if verdict is None or state in ("right", "unanswered"):
            continue
        claims.update({each.text for each in verdict.claims if not each.holds})
        told = verdict.hint or verdict.problem
        kind = re.sub(r"`[^`]*`|[\d.,]*\d", "…", told)
        hints[kind] += 1
        first.setdefault(kind, told)
    return Stuck(
        number,
        states,
        _most(claims),
        [(first[kind], times) for kind, times in _most(hints)],
    )


def _most(counts: Counter) -> list[tuple[str, int]]:
    """Return what occurs most often; what occurs as often is sorted by its text."""
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:_MOST]
