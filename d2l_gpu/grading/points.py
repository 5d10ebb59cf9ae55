"""What an answer is worth.

An answer that passes earns all the points of its exercise. Any other earns at most half
of them: half of the share of claims that hold, among those that the check came to.
Whatever cut the check short, such as an exception, counts as one more claim that
doesn't hold. Half, because many claims hold for an answer that does nothing of
interest: the result is on the right device, has the right shape, isn't a view.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from d2l_gpu.exercises.verdict import Verdict


@dataclass(frozen=True)
class Points:
    """The points of exercises.

    Attributes:
        default: those of an exercise that isn't in `table`.
        table: those of exercises, by number.
        all_or_nothing: whether an answer that doesn't pass earns nothing.
    """

    default: float = 1
    table: Mapping[str, float] = field(default_factory=dict)
    all_or_nothing: bool = False

    def of(self, number: str) -> float:
        """Return the points that an exercise is worth."""
        return self.table.get(number, self.default)

    def earned(self, verdict: Verdict | None) -> float:
        """Return the points that an answer earned, to two decimals."""
        if verdict is None:
            return 0.0
        most = self.of(verdict.number)
        share = share_of(verdict)
        if share == 1 or self.all_or_nothing:
            return float(most) if share == 1 else 0.0
        return round(share * Fraction(most) * 100) / 100


def share_of(verdict: Verdict) -> Fraction:
    """Return the share of an exercise's points that an answer earned, from 0 to 1."""
    if verdict.all_hold:
        return Fraction(1)
    reached = len(verdict.claims) + bool(verdict.problem)
    held = sum(claim.holds for claim in verdict.claims)
    return Fraction(held, reached) / 2 if reached else Fraction(0)


def read_points(path: Path) -> tuple[float, dict[str, float]]:
    """Return the default and the table from a file such as::

        default = 1
        "03.1" = 2
        "07.4" = 0.5

    Raises:
        OSError: it can't be read.
        ValueError: it isn't such a file.
    """
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} isn't valid TOML: {error}") from None
    table = {}
    for key, value in found.items():
        # Without quotes, TOML takes 03.1 for the 1 in a table 03.
        inner = value if isinstance(value, dict) else {None: value}
        for rest, points in inner.items():
            number = key if rest is None else f"{key}.{rest}"
            if (
                isinstance(points, bool)
                or not isinstance(points, int | float)
                or not math.isfinite(points)
                or points < 0
            ):
                raise ValueError(
                    f"{path}: the points of {number} must be a number of at least 0, "
                    f"not {points!r}"
                )
            table[number] = points
    return table.pop("default", 1), table


def given_points(text: str, all_or_nothing: bool = False) -> Points:
    """Return the points that somebody gives as a number, or as the name of a file.

    Raises:
        OSError: the file can't be read.
        ValueError: it isn't one that `read_points` takes, or the number is no number
            of points.
    """
    try:
        default = float(text)
    except ValueError:
        if not Path(text).is_file():
            raise ValueError(
                f"the points must be a number, or a file; there is no file {text}"
            ) from None
        return Points(*read_points(Path(text)), all_or_nothing)
    if not math.isfinite(default) or default < 0:
        raise ValueError(f"the points must be a number of at least 0, not {text}")
    number = int(default) if default.is_integer() else default
    return Points(number, {}, all_or_nothing)
