"""What rank 0 reports over several attempts, and what is taken back of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu import torch as d2l
from d2l_gpu.common.worker import FOLDER, folder_of
from d2l_gpu.torch.processes.reports import reported, results_of, take_back
from tests.helpers.properties import sizes


@pytest.fixture
def attempt(tmp_path_factory, monkeypatch):
    """A function that begins an attempt of a new run, or of the one before."""
    monkeypatch.setenv("RANK", "0")

    def begin(number: int, again: bool = False):
        if not again:
            run = tmp_path_factory.mktemp("run")
            monkeypatch.setenv(FOLDER, str(run))
            begin.run = run
        folder_of(begin.run, number).mkdir(exist_ok=True)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(number))
        return begin.run

    return begin


def values(run) -> list[int]:
    """All that a run has reported, in order."""
    return [
        json.loads(line)["value"]
        for path in results_of(run)
        for line in path.read_text().splitlines()
    ]


@given(
    steps=st.lists(
        st.tuples(sizes(most=4), st.booleans(), sizes(most=2)), min_size=1, max_size=13
    )
)
def test_each_value_counts_once_however_often_a_run_starts_again(attempt, steps):
    run, expected, saved = attempt(0), [], ("", 0)
    for number, (before, saves, after) in enumerate(steps):
        if number:
            attempt(number, again=True)
            if saved[0]:
                take_back(*saved)
                del expected[saved[1] :]
                assert values(run) == expected
        for i in range(before + after):
            if i == before and saves:
                saved = reported()
                assert saved == (run.name, len(expected))
            d2l.report(value=100 * number + i)
            expected.append(100 * number + i)
    assert values(run) == expected
    assert reported() == (run.name, len(expected))


@given(counts=st.lists(sizes(most=3), min_size=1, max_size=12))
def test_of_another_run_nothing_stays_but_what_this_attempt_reports(attempt, counts):
    run = attempt(0)
    for number, count in enumerate(counts):
        attempt(number, again=True)
        for _ in range(count):
            d2l.report(value=number)
    take_back("another", 1)
    last = len(counts) - 1
    assert values(run) == [last] * counts[last]
    take_back(None, 0)
    assert values(run) == [last] * counts[last]
