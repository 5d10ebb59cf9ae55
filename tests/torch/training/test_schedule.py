"""The learning rate rises during the warm-up, and falls to zero."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu import torch as d2l
from tests.helpers.properties import sizes


def rates(warmup, steps, lr=8.0, more=1):
    """The rates of all steps, and of some more after the last one."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
    schedule = d2l.linear_schedule_with_warmup(optimizer, warmup, steps)
    values = []
    for _ in range(steps + more):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return values


def test_without_warmup_the_rate_falls_in_a_straight_line():
    assert rates(0, 4) == [8, 6, 4, 2, 0]


def test_with_warmup_the_rate_rises_first():
    assert rates(4, 8) == [2, 4, 6, 8, 8, 6, 4, 2, 0]


@given(warmup=sizes(), falling=sizes(1), lr=st.floats(1e-6, 1e3))
def test_the_rate_rises_by_equal_steps_falls_by_equal_steps_and_stays_zero(
    warmup, falling, lr
):
    found = rates(warmup, warmup + falling, lr, more=5)
    up, down, after = found[:warmup], found[warmup:-5], found[-5:]
    assert up == pytest.approx([lr * (i + 1) / warmup for i in range(warmup)])
    assert down == pytest.approx([lr * (falling - i) / falling for i in range(falling)])
    assert after == [0] * 5


@pytest.mark.parametrize(("warmup", "steps"), [(-1, 4), (4, 4), (0, 0)])
def test_senseless_steps_are_refused(warmup, steps):
    with pytest.raises(ValueError, match="num_warmup_steps must be"):
        rates(warmup, steps)
