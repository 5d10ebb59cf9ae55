"""Numbers of a tolerant output deviate as far as its tag says, and nothing else."""

import random

import pytest
from nbformat.v4 import new_output

from tests.helpers.cells import stream
from tools.tolerance import deviations, settled, tolerance

COMMITTED = """\
Using 2 GPUs, gpu:0 and gpu:1.
V100, float32, PyTorch 2.13.0
kind     bytes   time
------  ------  -----
copies     100  10 ms
1,024 images in -2.5e-3 s; the rest: 0
tensor([ 1., -2.], device='gpu:1')
"""


def problems(new: str, percent: float = 10) -> list[str]:
    return list(deviations(new, COMMITTED, percent))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("100  10 ms", " 95  9.2 ms"),
        ("copies     100  10 ms", "copies      91.5   9.99 ms"),
        ("------  -----", "-----  ------"),
        ("1,024", "999"),
        ("-2.5e-3", "-0.0026"),
        ("-2.5e-3", "−0.0026"),
        ("1., -2.", "1.05, -1.9"),
        ("10 ms\n", "10 ms  \n"),
    ],
)
def test_near_numbers_and_the_columns_that_they_push_are_equal(old, new):
    assert old in COMMITTED
    assert problems(COMMITTED.replace(old, new)) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("10 ms", "8.9 ms", "8.9 differs by more than 10 % from 10"),
        ("10 ms", "11.1 ms", "11.1 differs by more than"),
        ("1,024", "1,300", "1,300 differs by more than 10 % from 1,024"),
        ("-2.5e-3", "2.5e-3", "2.5e-3 differs by more than 10 % from -2.5e-3"),
        ("rest: 0", "rest: 0.001", "0.001 differs by more than"),
        ("10 ms", "10 s", "differ"),
        ("10 ms", "10", "differ"),
        ("100  10", "100", "differ"),
        ("100  10", "100  10  10", "differ"),
        ("copies", "copy", "differ"),
        ("gpu:0", "gpu:1", "differ"),
        ("V100", "V110", "differ"),
        ("float32", "float33", "differ"),
        ("2.13.0", "2.13.1", "differ"),
        ("ms\n1", "ms 1", "differ"),
        ("; the rest: 0", "", "differ"),
        ("1., -2.", "nan, -2.", "differ"),
    ],
)
def test_what_is_too_far_or_no_number_is_told(old, new, said):
    assert old in COMMITTED
    (found,) = problems(COMMITTED.replace(old, new))
    assert said in found


def test_every_percentage_is_kept_to_on_both_sides():
    choice = random.Random(0)
    for _ in range(1000):
        old = choice.uniform(-1, 1) * 10 ** choice.randint(-6, 9)
        percent = choice.randint(1, 50)
        off = percent / 100 * choice.uniform(-0.99, 0.99)
        far = percent / 100 * choice.choice([-1.01, 1.01])
        near, away = (f"{old * (1 + by):.12g} ms" for by in (off, far))
        assert list(deviations(near, f"{old:.12g} ms", percent)) == []
        assert len(list(deviations(away, f"{old:.12g} ms", percent))) == 1


@pytest.mark.parametrize(
    ("tags", "percent"),
    [([], None), (["setup"], None), (["approx"], 10), (["setup", "approx-3"], 3)],
)
def test_tags_name_the_tolerance(tags, percent):
    assert tolerance(tags) == percent


def test_a_tag_that_allows_anything_is_refused():
    with pytest.raises(ValueError, match="approx-51 is looser than the maximum, 50 %"):
        tolerance(["approx-51"])


def test_only_outputs_that_are_near_take_the_committed_text():
    new = [stream("9 ms\n"), new_output("display_data", data={"text/plain": "5 ms"})]
    old = [stream("9.5 ms\n"), new_output("display_data", data={"text/plain": "9 ms"})]
    found, wrong = settled(new, old, 10, str)
    assert found[0].text == "9.5 ms\n"
    assert found[1].data == {"text/plain": "5 ms"}
    assert wrong == ["5 differs by more than 10 % from 9"]
    assert new[0].text == "9 ms\n"  # as it was
    for more in new, []:
        found, _ = settled([*new, *more], old[:1], 10, str)
        assert found[1:] == [*new, *more][1:]
