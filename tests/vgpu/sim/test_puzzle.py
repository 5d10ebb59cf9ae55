"""The puzzle's levels: their rules, their scores, and the file of their grids."""

import math
import re
from dataclasses import replace

import pytest

from d2l_gpu.vgpu.sim.plans import simulate
from d2l_gpu.vgpu.sim.puzzle import (
    ENOUGH,
    LEVELS,
    Neighbour,
    Score,
    level,
    table,
    written,
)

SAMPLE = 6  # plans of each level that are simulated again


@pytest.fixture(params=LEVELS)
def puzzle(request):
    return LEVELS[request.param]


def test_the_file_has_every_plan_of_the_grid_once(puzzle):
    plans = list(puzzle.plans())
    assert len(set(plans)) == len(plans)
    assert sorted(map(str, plans)) == sorted(str(x.plan) for x in puzzle.neighbours)


def test_plans_of_the_file_are_as_simulated_now(puzzle):
    step = max(1, len(puzzle.neighbours) // SAMPLE)
    for each in puzzle.neighbours[::step]:
        outcome = simulate(puzzle.network, each.plan, puzzle.machine)
        assert outcome.fits == (each.seconds is not None)
        assert outcome.allocated == each.nbytes
        if outcome.fits:
            assert math.isclose(outcome.seconds, each.seconds, rel_tol=1e-9)
            assert outcome.limit == each.limit


def test_no_plan_of_the_grid_beats_the_fastest(puzzle):
    seconds = [each.seconds for each in puzzle.fitting]
    assert seconds == sorted(seconds)
    score = puzzle.score(puzzle.best)
    assert score.solved
    assert math.isclose(score.share, 1, rel_tol=1e-9)
    assert math.isclose(puzzle.fastest, score.outcome.tokens_per_second, rel_tol=1e-9)
    assert "as fast as any plan" in score.sentence


def test_a_score_counts_the_slower_plans(puzzle):
    middle = puzzle.fitting[len(puzzle.fitting) // 2]
    score = puzzle.score(middle.plan)
    slower = [x for x in puzzle.fitting if x.seconds > middle.seconds * (1 + 1e-9)]
    assert score.slower == len(slower)
    assert math.isclose(score.share, puzzle.fitting[0].seconds / middle.seconds)
    assert score.solved == (score.share >= ENOUGH)
    for text in (str(score.plan), "simulated", "tokens/s"):
        assert text in repr(score)


def test_a_share_that_is_not_enough_never_reads_as_if_it_were(puzzle):
    fastest = puzzle.fitting[0].seconds
    near = sorted(puzzle.fitting, key=lambda x: abs(fastest / x.seconds - ENOUGH))
    for each in near[:8]:
        score = Score(puzzle, simulate(puzzle.network, each.plan, puzzle.machine))
        said = float(re.search(r"([\d.]+)% of the fastest", score.sentence)[1]) / 100
        assert said == pytest.approx(score.share, abs=0.001)
        assert (said >= ENOUGH) == score.solved


def test_a_plan_that_needs_more_memory_scores_nothing(puzzle):
    large = next(each for each in puzzle.neighbours if each.seconds is None)
    score = puzzle.score(large.plan)
    assert (score.share, score.slower, score.solved) == (0, 0, False)
    assert score.sentence == score.outcome.reason != ""
    assert "GiB" in repr(score)


def test_plans_that_break_the_rules_are_told_which(puzzle):
    plan = puzzle.best
    for wrong, part in (
        (replace(plan, sequences=plan.sequences + 1), "sequences"),
        (replace(plan, replicas=2 * plan.replicas, shards=plan.shards), "sequences"),
        (replace(plan, tensor=3 * plan.tensor), "GPUs"),
    ):
        assert part in puzzle.problem(wrong)
        with pytest.raises(ValueError, match=part):
            puzzle.score(wrong)
    with pytest.raises(TypeError, match="takes a Plan"):
        puzzle.score("fast")
    assert puzzle.problem(plan) == ""


def test_a_published_plan_obeys_the_rules_and_fits(puzzle):
    if puzzle.published is None:
        pytest.skip("nobody has published one")
    score = puzzle.score(puzzle.published.plan)
    assert score.outcome.fits
    assert puzzle.published.source


def test_the_published_plan_solves_no_level(puzzle):
    if puzzle.published is None:
        pytest.skip("nobody has published one")
    assert not puzzle.score(puzzle.published.plan).solved


def test_lines_of_the_file_can_be_read_back(puzzle):
    from d2l_gpu.vgpu.sim import puzzle as module

    for each in (*puzzle.fitting[:3], puzzle.neighbours[-1]):
        again = module._read(written(each))
        assert again == each
        assert isinstance(again, Neighbour)


def test_a_score_of_another_plan_of_the_reader_may_be_above_1():
    """The grid doesn't hold everything, so a reader may find a faster plan."""
    puzzle = LEVELS["17.1"]
    slower = replace(puzzle)
    slower.__dict__["neighbours"] = puzzle.fitting[5:]
    score = Score(slower, simulate(puzzle.network, puzzle.best, puzzle.machine))
    assert score.share > 1
    assert "faster than any plan" in score.sentence


def test_unknown_levels_are_refused_with_those_there_are():
    assert level("17.1") is LEVELS["17.1"]
    with pytest.raises(ValueError, match=r"17\.1, 17\.2"):
        level("17.9")


def test_the_table_says_how_far_apart_the_plans_are():
    lines = repr(table())
    for each in LEVELS.values():
        seconds = [found.seconds for found in each.fitting]
        assert f"{each.number} {each.title}" in lines
        assert f"{max(seconds) / min(seconds):.1f}" in lines
