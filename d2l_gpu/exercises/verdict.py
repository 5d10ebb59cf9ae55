"""The result of grading an answer, as the reader sees it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from d2l_gpu.common.messages import localized
from d2l_gpu.exercises.registry import Claim


@dataclass(frozen=True)
class Verdict:
    """The result of grading an answer; prints as a checklist.

    Attributes:
        number: the exercise.
        claims: the claims that were checked, in order.
        problem: what cut the grading short, as a sentence; empty if nothing did.
        printed: what the answer printed.
    """

    number: str
    claims: Sequence[Claim] = field(default_factory=tuple)
    problem: str = ""
    printed: str = ""

    @property
    def all_hold(self) -> bool:
        """Whether every claim holds, and nothing cut the grading short."""
        held = [claim.holds for claim in self.claims]
        return bool(held) and all(held) and not self.problem

    @property
    def hint(self) -> str:
        """The hint for the first claim that doesn't hold; empty if all hold."""
        return next((claim.hint for claim in self.claims if not claim.holds), "")

    def __str__(self) -> str:
        held = sum(claim.holds for claim in self.claims)
        if self.all_hold:
            head = localized(f"{self.number}: all checks pass.")
        elif self.claims:
            head = localized(
                f"{self.number}: {held} of {len(self.claims)} checks pass."
            )
        else:
            problem = _said(self.problem)
            head = localized("{number}: {problem}", number=self.number, problem=problem)
        lines = [
            f"  [{'x' if claim.holds else ' '}] {localized(claim.text)}"
            for claim in self.claims
        ]
        if self.claims and self.problem:
            lines.append(localized(f"  Then: {_said(self.problem)}"))
        if self.hint:
            lines.append(localized(f"  Hint: {_said(self.hint)}"))
        return "\n".join([*_quoted(self.printed), head, *lines])

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Verdict":
        fields = json.loads(text)
        claims = tuple(Claim(**claim) for claim in fields.pop("claims"))
        return cls(claims=claims, **fields)


def _said(text: str) -> str:
    return _on_one_line(localized(text))


_LINES, _WIDTH, _LONGEST = 20, 200, 1000


def _quoted(printed: str) -> list[str]:
    """Return the last lines that the answer printed, which may help with debugging."""
    lines = printed.rstrip().splitlines()
    left_out = len(lines) - _LINES
    if left_out > 0:
        lines = [localized("(earlier lines not shown)"), *lines[left_out:]]
    return [f"  | {_on_one_line(line, _WIDTH)}" for line in lines]


def _on_one_line(text: str, most: int = _LONGEST) -> str:
    """Return the beginning of a text, without what moves a terminal's cursor.

    An answer has a say in what problems and hints contain. It must not be able to draw
    a verdict of its own.
    """
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= most else f"{text[:most]} …"
