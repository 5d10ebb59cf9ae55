"""What is made of claims: a verdict, and what is said of several cases or runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.grading_process import Remote, grade
from d2l_gpu.exercises.records import to_json
from d2l_gpu.exercises.registry import Claim, Registry
from d2l_gpu.exercises.verdict import Verdict

HOLDS = st.lists(st.booleans(), max_size=5)


@given(holds=HOLDS, problem=st.sampled_from(["", "it took too long."]))
def test_all_hold_if_there_are_any_and_nothing_cut_them_short(holds, problem):
    claims = [Claim(f"claim {i}", each, f"hint {i}") for i, each in enumerate(holds)]
    verdict = Verdict("03.1", claims, problem)
    passes = holds != [] and False not in holds and problem == ""
    assert verdict.all_hold is passes
    assert ("03.1: all checks pass." in str(verdict)) is passes
    first = holds.index(False) if False in holds else None
    assert verdict.hint == ("" if first is None else f"hint {first}")
    assert Verdict.from_json(verdict.to_json()) == Verdict(
        "03.1", tuple(claims), problem
    )


@given(cases=st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()))))
def test_a_claim_holds_in_all_cases_or_has_the_hint_of_the_first_that_fails(cases):
    found = list(
        in_all(
            [Claim(text, holds, f"case {i}") for text, holds in claims]
            for i, claims in enumerate(cases)
        )
    )
    said = [(i, *claim) for i, claims in enumerate(cases) for claim in claims]
    assert [claim.text for claim in found] == list(dict.fromkeys(t for _, t, _ in said))
    for claim in found:
        failed = [i for i, text, holds in said if text == claim.text and not holds]
        assert claim.holds is (not failed)
        if failed:
            assert claim.hint == f"case {failed[0]}"


class Slow:
    """An answer's process that takes its time, and remembers how much it was given."""

    def __init__(self, clock: list[float], takes: float):
        self.clock, self.takes, self.given = clock, takes, []

    def wait_until_ready(self) -> None:
        self.clock[0] += 50  # starting is no part of the answer's time

    def ask(self, request: dict, seconds: float, limit: float) -> dict:
        self.given.append(request["seconds"])
        self.clock[0] += self.takes
        return {"found": to_json(True), "changed": []}


def look(answer, gpus):
    """An experiment; no process runs it here."""


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("repeat", [True, False])
def test_each_run_has_the_whole_time_and_the_calls_of_a_run_share_it(
    monkeypatch, times, repeat
):
    clock = [0.0]
    monkeypatch.setattr(
        "d2l_gpu.exercises.grading_process.time.monotonic", lambda: clock[0]
    )
    registry = Registry()

    @registry.add("99.1", "x", seconds=10, repeat=repeat)
    def grader(run):
        yield Claim("it is so", all(run(look) for _ in range(times)))

    exercise = registry.exercises["99.1"]
    process = Slow(clock, takes=3)
    assert grade(exercise, Remote(exercise, process)).all_hold
    one = [10.0 - 3 * i for i in range(times)]
    assert process.given == pytest.approx(one * (1 + repeat))
