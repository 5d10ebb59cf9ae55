"""The reader's best plans are kept, and nothing that's in the file gets lost."""

import json
from dataclasses import asdict, replace

import pytest

from d2l_gpu.exercises.best_plans import NAME, UNREADABLE, best, keep, puzzle_table
from d2l_gpu.exercises.judge import judge
from d2l_gpu.vgpu.sim.puzzle import LEVELS

PUZZLE = LEVELS["17.1"]
FAST, SLOW = PUZZLE.fitting[0].plan, PUZZLE.fitting[-1].plan
LARGE = PUZZLE.neighbours[-1].plan


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("D2L_GPU_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_only_a_faster_plan_replaces_another():
    assert best() == {}
    assert keep(PUZZLE.score(SLOW))
    assert not keep(PUZZLE.score(SLOW))
    assert keep(PUZZLE.score(FAST))
    assert not keep(PUZZLE.score(SLOW))
    assert best() == {PUZZLE.number: FAST}


def test_levels_are_kept_apart():
    other = LEVELS["17.2"]
    keep(PUZZLE.score(FAST))
    keep(other.score(other.best))
    assert best() == {PUZZLE.number: FAST, other.number: other.best}


def test_a_plan_that_does_not_fit_is_not_kept(folder):
    assert not keep(PUZZLE.score(LARGE))
    assert not (folder / NAME).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"17.1": 3}', '{"17.1": {"a": 1}}'])
def test_a_file_that_cannot_be_read_is_put_aside(folder, text):
    folder.mkdir()
    (folder / NAME).write_text(text)
    assert keep(PUZZLE.score(SLOW))
    assert best() == {PUZZLE.number: SLOW}
    assert (folder / UNREADABLE).read_text() == text


def test_plans_that_break_the_rules_count_for_nothing(folder):
    folder.mkdir()
    wrong = replace(FAST, sequences=FAST.sequences + 1)
    plans = {PUZZLE.number: asdict(wrong), "99.9": asdict(FAST)}
    (folder / NAME).write_text(json.dumps(plans))
    assert best() == {}
    puzzle_table()


def test_the_table_shows_the_plan_and_its_share():
    keep(PUZZLE.score(FAST))
    text = repr(puzzle_table())
    assert str(FAST) in text
    assert "100%" in text
    assert f"{597.3 * 256:,.0f}" in text  # as measured


def test_an_exercise_that_asks_for_a_plan_says_so():
    assert "asks for a Plan." in str(judge("pytorch", "17.1"))
    assert "must be a Plan, not 'fast'" in str(judge("pytorch", "17.1", "fast"))


def test_a_plan_gets_its_score_and_is_kept():
    plan = LEVELS["17.2"].best
    said = str(judge("pytorch", "17.2", plan))
    assert "all checks pass" in said
    assert "tokens/s, 100.0% of the fastest plan in the grid" in said
    assert "Computing takes" in said  # what limits it
    assert best() == {"17.2": plan}
