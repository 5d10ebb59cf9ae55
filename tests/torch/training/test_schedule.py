"""The learning rate rises during the warm-up, and falls to zero."""

import pytest
import torch

from d2l_gpu import torch as d2l


def rates(warmup, steps, lr=8.0):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
    schedule = d2l.linear_schedule_with_warmup(optimizer, warmup, steps)
    values = []
    for _ in range(steps + 1):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return values


def test_without_warmup_the_rate_falls_in_a_straight_line():
    assert rates(0, 4) == [8, 6, 4, 2, 0]


def test_with_warmup_the_rate_rises_first():
    assert rates(4, 8) == [2, 4, 6, 8, 8, 6, 4, 2, 0]


@pytest.mark.parametrize(("warmup", "steps"), [(-1, 4), (4, 4), (0, 0)])
def test_senseless_steps_are_refused(warmup, steps):
    with pytest.raises(ValueError, match="num_warmup_steps must be"):
        rates(warmup, steps)
