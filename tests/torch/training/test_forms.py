"""Forms of a training step compute the same to rounding; a trial finds the fastest."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.torch.parallel import data_parallel
from d2l_gpu.torch.training import forms as speed
from d2l_gpu.torch.training.forms import FORMS, PLAIN, Form, Trial, try_forms

LOW = Form(channels_last=True, dtype=torch.bfloat16)


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4)),
        *(nn.Flatten(), nn.Dropout(0.1), nn.Linear(8 * 7 * 7, 10)),
    )


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.rand(16, 1, 28, 28), torch.randint(10, (16,))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_computes_the_same_to_rounding(form, batch):
    X, y = batch
    plain, net = small_net().eval(), small_net().eval()
    F.cross_entropy(plain(X), y).backward()
    scores = form.apply(net)(X)
    F.cross_entropy(scores, y).backward()
    assert scores.dtype == torch.float32
    close = {"rtol": 0.1, "atol": 0.02} if form == LOW else {"rtol": 1e-3, "atol": 1e-5}
    torch.testing.assert_close(scores, plain(X), **close)
    pairs = zip(net.parameters(), plain.parameters(), strict=True)
    for mine, wanted in pairs:
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine.grad, wanted.grad, **close)


def test_form_is_really_applied():
    seen = {}
    net = small_net()
    net[0].register_forward_hook(lambda layer, X, Y: seen.update(X=X[0], Y=Y))
    LOW.apply(net)(torch.rand(4, 3, 28, 28)[:, :1])
    assert seen["Y"].dtype == torch.bfloat16
    assert seen["Y"].is_contiguous(memory_format=torch.channels_last)
    assert net[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert PLAIN.apply(net) is net


def test_trial_changes_neither_the_network_nor_random_numbers(batch):
    net = small_net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    torch.manual_seed(3)
    wanted = torch.rand(3)
    torch.manual_seed(3)
    trial = try_forms(net, *batch)
    assert torch.equal(torch.rand(3), wanted)
    assert all(torch.equal(net.state_dict()[name], before[name]) for name in before)
    assert all(parameter.grad is None for parameter in net.parameters())
    assert set(trial.seconds) == set(FORMS)
    assert min(trial.seconds.values()) > 0


@pytest.fixture
def take(monkeypatch):
    """A function that lets the steps of a trial take the seconds given, in order."""

    def give(*turns: list[float]) -> Iterator[float]:
        seconds = itertools.chain.from_iterable(turns)
        monkeypatch.setattr(speed, "_seconds", lambda *step: next(seconds))
        return seconds

    return give


def test_fastest_form_is_chosen_by_the_median_of_warm_turns(batch, take):
    take([2, 2, 2], [1.0, 0.9, 0.5], [1.0, 9.0, 0.5], [1.0, 0.9, 7.0])
    trial = try_forms(small_net(), *batch)
    assert trial.seconds == dict(zip(FORMS, (1.0, 0.9, 0.5), strict=True))
    assert trial.best == LOW
    assert trial.speedup(LOW) == 2
    assert str(trial).endswith(f"{LOW}: 2.00; chosen: {LOW}")


def test_hopeless_form_is_tried_once(batch, take):
    left = take([1, 1, 12], [1, 0.8], [1, 0.8], [1, 0.8])
    trial = try_forms(small_net(), *batch)
    assert trial.seconds[LOW] == 12
    assert trial.best == Form(channels_last=True)
    assert next(left, None) is None


def test_slow_trial_ends_early(batch, take):
    left = take([30, 30, 30], [30, 30, 20], ["not reached"])
    assert try_forms(small_net(), *batch).best == LOW
    assert next(left) == "not reached"


def test_form_that_is_hardly_faster_is_not_worth_it():
    trial = Trial({PLAIN: 1.0, LOW: 0.97})
    assert trial.best == PLAIN


def test_low_precision_is_as_accurate(monkeypatch):
    accuracies = {}
    for form in (PLAIN, LOW):
        trial = Trial({PLAIN: 1.0, form: 0.1 if form == LOW else 1.0})
        monkeypatch.setattr(data_parallel, "try_forms", lambda *given, t=trial: t)
        history = d2l.train(
            *(small_net(), 0, 64, 0.05, 6), momentum=0.9, fast=True, display=False
        )
        assert history.form == form
        accuracies[form] = history.accuracy[-1]
    assert accuracies[PLAIN] > 0.9
    assert abs(accuracies[LOW] - accuracies[PLAIN]) < 0.03


def test_default_is_plain_and_tries_nothing(monkeypatch):
    monkeypatch.setattr(data_parallel, "try_forms", None)
    history = d2l.train(small_net(), 0, 64, 0.1, 1, display=False)
    assert history.form == PLAIN
