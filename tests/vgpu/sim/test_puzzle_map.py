"""The map of a puzzle's plans: everything is drawn, and every label can be read."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache

import pytest

from d2l_gpu.vgpu.sim.drawing import text_width
from d2l_gpu.vgpu.sim.puzzle import LEVELS
from d2l_gpu.vgpu.sim.puzzle_map import LOOKS, ROOM, svg, title
from d2l_gpu.vgpu.sim.svg import WIDTH

SVG = "{http://www.w3.org/2000/svg}"


@cache
def scores(number):
    """Return none, and those of plans fast, slow, in the middle and too large."""
    puzzle = LEVELS[number]
    chosen = [puzzle.fitting[i].plan for i in (0, len(puzzle.fitting) // 2, -1)]
    chosen.append(next(x.plan for x in puzzle.neighbours if x.seconds is None))
    return [None, *map(puzzle.score, chosen)]


CASES = [(number, i) for number in LEVELS for i in range(5)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}", scope="module")
def drawn(request):
    number, i = request.param
    puzzle = LEVELS[number]
    score = scores(number)[i]
    return puzzle, score, svg(puzzle, score)


def rooms(picture: str) -> list[tuple[str, float, float, float, float]]:
    """Return each line of text with its left, right, upper and lower edges."""
    found = []
    for text in ET.fromstring(picture).iter(f"{SVG}text"):
        size = float(text.get("font-size", 12))
        width = text_width(text.text, size, bold=text.get("font-weight") == "bold")
        shift = {"end": 1, "middle": 0.5}.get(text.get("text-anchor"), 0)
        left, y = float(text.get("x")) - shift * width, float(text.get("y"))
        found.append((text.text, left, left + width, y - 0.75 * size, y + 0.2 * size))
    return found


def test_every_plan_that_fits_is_a_dot(drawn):
    puzzle, _, picture = drawn
    paths = re.findall(
        r'<path fill="(#\w+)"[^>]*stroke-width="0.7" d="([^"]*)"', picture
    )
    starts = sum(data.count("M") for _, data in paths)
    kinds = {each.limit for each in puzzle.fitting}
    assert starts == len(puzzle.fitting) + len(kinds)  # with those of the key
    assert {colour for colour, _ in paths} == {LOOKS[kind].colour for kind in kinds}


def test_text_stays_inside_the_picture_and_apart(drawn):
    _, _, picture = drawn
    height = float(ET.fromstring(picture).get("height"))
    found = rooms(picture)
    for text, left, right, top, bottom in found:
        assert left >= 0, text
        assert right <= WIDTH, text
        assert top >= 0, text
        assert bottom <= height, text
    for i, (text, left, right, top, bottom) in enumerate(found):
        for other, its_left, its_right, its_top, its_bottom in found[:i]:
            apart = (
                right <= its_left or its_right <= left
                or bottom <= its_top or its_bottom <= top
            )  # fmt: skip
            assert apart, f"{text!r} overlaps {other!r}"


def test_the_readers_plan_and_the_others_are_named(drawn):
    puzzle, score, picture = drawn
    assert "fastest of the grid" in picture
    assert ("published plan, simulated" in picture) == (puzzle.published is not None)
    assert ("your plan" in picture) == (score is not None)
    for word in ("simulated", "tokens/s", "GiB", puzzle.network):
        assert word in picture
    assert str(len(puzzle.neighbours) - len(puzzle.fitting)) in picture


def test_the_fastest_plan_is_not_given_away(drawn):
    puzzle, _, picture = drawn
    assert "Plan(" not in picture
    assert len(picture) < 100_000
    assert picture == svg(puzzle, drawn[1])


@pytest.mark.parametrize("number", LEVELS)
def test_titles_say_how_good_the_plan_is(number):
    puzzle = LEVELS[number]
    without, fast, middle, slow, large = scores(number)
    assert "times as fast as the slowest" in title(puzzle, without)
    assert "as fast as the fastest" in title(puzzle, fast)
    for score in (middle, slow):
        percent = float(re.search(r"([\d.]+)%", title(puzzle, score))[1])
        assert percent == pytest.approx(100 * score.share, rel=0.05)
    assert "too much" in title(puzzle, large)


def test_faster_plans_are_higher_and_larger_ones_further_right():
    puzzle = LEVELS["17.4"]
    marks = []
    for each in (puzzle.fitting[3], puzzle.fitting[-1]):
        picture = svg(puzzle, puzzle.score(each.plan))
        star = re.search(r'stroke-width="1" d="M([\d.]+) ([\d.]+)L', picture)
        marks.append((each, float(star[1]), float(star[2])))
    (fast, x, y), (slow, other_x, other_y) = marks
    assert y < other_y
    assert (x < other_x) == (fast.nbytes < slow.nbytes)
    assert other_y - y < ROOM


def test_a_grid_in_which_everything_fits_says_so():
    puzzle = replace(LEVELS["17.2"])
    puzzle.__dict__["neighbours"] = LEVELS["17.2"].fitting
    assert "all plans of the grid fit" in svg(puzzle)
