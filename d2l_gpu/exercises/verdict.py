"""What a reader is told of an answer."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from d2l_gpu.exercises.registry import Claim


@dataclass(frozen=True)
class Verdict:
    """What holds of an answer; shows itself as a list with boxes.

    Attributes:
        number: of the exercise.
        claims: what was looked at, in order.
        problem: why it went no further, in a sentence; empty if it did.
        printed: what the answer printed.
    """

    number: str
    claims: Sequence[Claim] = field(default_factory=tuple)
    problem: str = ""
    printed: str = ""

    @property
    def all_hold(self) -> bool:
        """Whether the answer is right."""
        held = [claim.holds for claim in self.claims]
        return bool(held) and all(held) and not self.problem

    @property
    def hint(self) -> str:
        """The hint for the first claim that does not hold; empty if there is none."""
        return next((claim.hint for claim in self.claims if not claim.holds), "")

    def __str__(self) -> str:
        held = sum(claim.holds for claim in self.claims)
        if self.all_hold:
            head = f"{self.number}: all holds."
        elif self.claims:
            head = f"{self.number}: {held} of {len(self.claims)} hold."
        else:
            head = f"{self.number}: {self.problem}"
        lines = [
            f"  [{'x' if claim.holds else ' '}] {claim.text}" for claim in self.claims
        ]
        if self.claims and self.problem:
            lines.append(f"  Then: {self.problem}")
        if self.hint:
            lines.append(f"  Hint: {self.hint}")
        return "\n".join([*_quoted(self.printed), head, *lines])

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Verdict":
        fields = json.loads(text)
        claims = tuple(Claim(**claim) for claim in fields.pop("claims"))
        return cls(claims=claims, **fields)


_MOST_PRINTED = 20


def _quoted(printed: str) -> list[str]:
    """What the answer printed, which may help to find a mistake; the end of it."""
    lines = printed.rstrip().splitlines()
    left_out = len(lines) - _MOST_PRINTED
    if left_out > 0:
        lines = [f"({left_out} lines printed before these)", *lines[left_out:]]
    return [f"  | {line}" for line in lines]
