"""Counting on the device: right counts, and no waiting for each batch."""

import contextlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from d2l_gpu import torch as d2l
from d2l_gpu.torch.training.evaluation import evaluation_mode
from tests.helpers.fresh_process import run_program
from tests.helpers.properties import sizes


class CountReads(TorchDispatchMode):
    """Counts how often a number is read from a tensor: on a GPU, a wait."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.reads += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


# ---------------------------------------------------------------- Accumulator


def test_sums_of_numbers_and_tensors_are_read_as_floats():
    metric = d2l.Accumulator(2)
    metric.add(1, torch.tensor(2.5, requires_grad=True))
    metric.add(torch.tensor([True]), 0.5)
    assert metric[0] == 2.0
    assert metric[1] == 3.0
    assert isinstance(metric[0], float)
    metric.reset()
    assert metric[0] == metric[1] == 0.0


def test_adding_reads_nothing_from_the_device_and_keeps_no_graph():
    metric = d2l.Accumulator(1)
    weight = torch.ones((), requires_grad=True)
    with CountReads() as count:
        for _ in range(5):
            metric.add(weight * 2)
        assert count.reads == 0
        assert metric[0] == 10.0
        assert count.reads == 1


def test_counts_stay_exact_where_float32_and_small_types_would_not():
    metric = d2l.Accumulator(3)
    for _ in range(2):
        metric.add(
            torch.tensor(2**24 + 1),
            torch.tensor(200, dtype=torch.uint8),
            torch.tensor(2048, dtype=torch.float16),
        )
    metric.add(0, 0, torch.tensor(1, dtype=torch.float16))
    assert [metric[i] for i in range(3)] == [2**25 + 2, 400, 4097]


def test_what_was_added_may_change_afterwards():
    metric = d2l.Accumulator(1)
    value = torch.tensor(1.0)
    metric.add(value)
    value.zero_()
    assert metric[0] == 1.0


def test_one_slot_sums_over_several_devices():
    out = run_program("evaluation/one_slot_sums_over_several_devices.py")
    assert out.splitlines()[1:] == ["0 10.0 2"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((1,), "keeps 2 sums, but got 1 value"),
        ((1, torch.ones(3)), r"shape \(3,\)"),
    ],
)
def test_adding_what_does_not_fit_changes_nothing(values, message):
    metric = d2l.Accumulator(2)
    with pytest.raises(ValueError, match=message):
        metric.add(*values)
    assert metric[0] == metric[1] == 0.0


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2"])
def test_the_number_of_sums_is_checked(n):
    with pytest.raises(ValueError, match="at least 1 sum"):
        d2l.Accumulator(n)


# ---------------------------------------------------------------- accuracy


def test_accuracy_counts_the_largest_score_and_stays_a_tensor():
    y_hat = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    with CountReads() as count:
        right = d2l.accuracy(y_hat, torch.tensor([1, 0, 0]))
    assert count.reads == 0
    assert right.shape == ()
    assert right.dtype == torch.int64
    assert float(right) == 2.0


@given(n=sizes(), classes=sizes(1, 7), dense=st.lists(sizes(most=3), max_size=2))
def test_accuracy_takes_labels_and_scores_dense_ones_too(n, classes, dense):
    generator = torch.Generator().manual_seed(n)
    y_hat = torch.randn(n, classes, *dense, generator=generator)
    y = torch.randint(classes, (n, *dense), generator=generator)
    before = y_hat.clone(), y.clone()
    predicted = y_hat.argmax(dim=1)
    expected = sum(map(int.__eq__, predicted.flatten().tolist(), y.flatten().tolist()))
    for given_labels in (predicted, predicted.double()):
        assert d2l.accuracy(given_labels, y).item() == expected
    assert d2l.accuracy(y_hat, y).item() == expected
    assert torch.equal(y_hat, before[0]) and torch.equal(y, before[1])


@pytest.mark.parametrize(("scores", "labels"), [((3, 1), (1, 3)), ((3, 2), (2,))])
def test_accuracy_never_broadcasts(scores, labels):
    with pytest.raises(ValueError, match="do not match"):
        d2l.accuracy(torch.zeros(scores), torch.zeros(labels))


# ---------------------------------------------------------------- evaluate


class Probe(nn.Module):
    """Says class 1 always; notes in which mode it was asked."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Dropout().eval()
        self.weight = nn.Parameter(torch.zeros(()))
        self.modes = []

    def forward(self, X):
        self.modes.append((self.training, torch.is_grad_enabled()))
        X = X[0] if isinstance(X, list) else X
        scores = torch.zeros(len(X), 3)
        scores[:, 1] = 1
        return scores + self.weight


def batches():
    return [
        (torch.zeros(4, 2), torch.tensor([1, 1, 0, 2])),
        (torch.zeros(1, 2), torch.tensor([1])),
    ]


def test_accuracy_of_a_net_is_over_examples_not_batches():
    assert d2l.evaluate_accuracy_gpu(Probe(), batches()) == 3 / 5


def test_a_net_is_evaluated_without_gradients():
    net = Probe()
    d2l.evaluate_accuracy_gpu(net, batches())
    assert net.modes == [(False, False)] * 2


# A network is a mode and its parts; a leaf has none.
TREES = st.recursive(
    st.tuples(st.booleans(), st.just([])),
    lambda parts: st.tuples(st.booleans(), st.lists(parts, max_size=3)),
    max_leaves=8,
)


def network_of(tree) -> nn.Module:
    mode, parts = tree
    net = nn.Sequential(*map(network_of, parts))
    net.training = mode  # of this module alone, whatever its parts have
    return net


@given(trees=st.lists(TREES, min_size=1, max_size=3), fails=st.booleans())
def test_every_module_gets_its_mode_back_after_an_error_too(trees, fails):
    nets = [network_of(tree) for tree in trees]
    nets.append(nn.Sequential(nets[0], nn.Dropout()))  # a part of two networks
    modules = [module for net in nets for module in net.modules()]
    before = [module.training for module in modules]
    for _ in range(2):
        expected = pytest.raises(KeyError) if fails else contextlib.nullcontext()
        with expected, evaluation_mode(*nets):
            assert not any(module.training for module in modules)
            if fails:
                raise KeyError
        assert [module.training for module in modules] == before


def test_modes_come_back_from_data_that_do_not_fit():
    net = Probe()
    before = [module.training for module in net.modules()]
    with pytest.raises(ValueError, match="do not match"):
        d2l.evaluate_accuracy_gpu(net, [(torch.zeros(4, 2), torch.zeros(3))])
    assert [module.training for module in net.modules()] == before == [True, False]


def test_lists_of_inputs_and_plain_functions_are_evaluated():
    listed = [([X, X], y) for X, y in batches()]
    assert d2l.evaluate_accuracy_gpu(Probe(), listed) == 3 / 5
    assert d2l.evaluate_accuracy_gpu(lambda X: torch.eye(3)[:1], batches()[1:]) == 0.0


def test_evaluating_reads_once_whatever_the_number_of_batches():
    with CountReads() as count:
        d2l.evaluate_accuracy_gpu(Probe(), batches() * 10)
    assert count.reads == 1


def test_evaluating_nothing_is_an_error():
    with pytest.raises(ValueError, match="no examples"):
        d2l.evaluate_accuracy_gpu(Probe(), [])


def test_batches_are_moved_to_where_the_net_is():
    out = run_program("evaluation/batches_are_moved_to_where_the_net_is.py")
    assert out.splitlines()[1:] == ["True", "1", "True"]
