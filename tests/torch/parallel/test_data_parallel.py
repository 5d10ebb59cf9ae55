"""``train``: one network on one device and on several."""

import copy
import re
import sys

import pytest
import torch
from torch import nn

from d2l_gpu import torch as d2l
from tests.helpers.fresh_process import run_program

pytestmark = pytest.mark.virtual_gpus(3, memory="256MiB")


@pytest.fixture(autouse=True)
def three_gpus(monkeypatch):
    module = sys.modules["d2l_gpu.torch.gpus.torch_gpus"]._gpus
    monkeypatch.setattr(module, "decision", None)  # other tests make their own
    d2l.require_gpus(3)


def network():
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)
    return nn.Sequential(*layers).double()


def load_double(batch_size, classes=10):
    """Digits in float64, as plain lists of batches on the host."""
    loaders = d2l.load_data_digits(batch_size, resize=8)
    return [[(X.double(), y % classes) for X, y in loader] for loader in loaders]


def run(num_gpus, net=None, **arguments):
    arguments = {"batch_size": 64, "lr": 0.5, "num_epochs": 2} | arguments
    arguments.setdefault("load_data", load_double)
    net = net or network()
    return d2l.train(net, num_gpus, display=False, **arguments), net


# ---------------------------------------------------------------- what it computes


def test_two_and_three_gpus_train_as_one_does_to_twelve_digits():
    one, reference = run(1, momentum=0.9, warmup_epochs=0.5)
    for num_gpus in (0, 2, 3):
        history, net = run(num_gpus, momentum=0.9, warmup_epochs=0.5)
        for ours, theirs in zip(net.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs.cpu(), atol=1e-12, rtol=1e-12)
        assert history.accuracy == one.accuracy
        assert history.loss == pytest.approx(one.loss, abs=1e-12)


def test_virtual_gpus_compute_in_one_form_only(capsys):
    wanted, net = run(1)
    history = d2l.train(
        *(other := network(), 1, 64, 0.5, 2), load_data=load_double, fast=True
    )
    said = capsys.readouterr().out
    assert said.startswith("virtual GPUs compute in one form only\n")
    assert history.loss == wanted.loss
    pairs = zip(net.parameters(), other.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_it_learns_and_tells():
    history, net = run(2, num_epochs=5)
    assert history.accuracy[-1] > 0.9
    assert history.loss[-1] < history.loss[0] / 2
    assert len(history.accuracy) == len(history.loss) == len(history.seconds) == 5
    assert history.devices == [d2l.gpu(0), d2l.gpu(1)]
    assert {p.device for p in net.parameters()} == {d2l.gpu(0)}
    _, test_iter = load_double(64)
    assert d2l.evaluate_accuracy_gpu(net, test_iter) == history.accuracy[-1]


def test_the_accuracy_is_that_of_averaged_running_statistics():
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10)
    history, net = run(2, net=nn.Sequential(*layers).double(), num_epochs=3)
    _, test_iter = load_double(64)
    assert d2l.evaluate_accuracy_gpu(net, test_iter) == history.accuracy[-1]


def test_the_loss_of_an_epoch_is_the_mean_over_its_examples():
    history, _ = run(2, num_epochs=1, lr=1e-300, batch_size=100)
    net, total, count = network(), 0.0, 0
    for X, y in load_double(100)[0]:
        total += nn.functional.cross_entropy(net(X), y, reduction="sum").item()
        count += len(y)
    assert history.loss == [pytest.approx(total / count, abs=1e-12)]


def test_batches_are_the_same_whatever_was_drawn_before():
    def load(batch_size):
        return d2l.load_data_digits(batch_size, resize=8)

    def once():
        net = network().float()
        d2l.train(net, 2, 64, 0.5, 2, load_data=load, display=False)
        return [p.detach().cpu() for p in net.parameters()]

    first = once()
    torch.rand(7)
    for a, b in zip(first, once(), strict=True):
        assert torch.equal(a, b)


def test_the_last_batch_may_be_smaller_than_the_number_of_gpus():
    def load(batch_size):
        train_iter, test_iter = load_double(batch_size)
        X, y = train_iter[0]
        return [*train_iter[:3], (X[:1], y[:1])], test_iter

    run(3, load_data=load)


def test_data_that_the_book_loads_do_as_well():
    X = torch.rand(20, 1, 8, 8, dtype=torch.float64)
    dataset = torch.utils.data.TensorDataset(X, torch.arange(20) % 10)

    def load(batch_size):
        return [torch.utils.data.DataLoader(dataset, batch_size) for _ in range(2)]

    history, _ = run(2, load_data=load)
    assert len(history.accuracy) == 2


def test_what_is_looked_at_first_does_not_change_the_order():
    X = torch.rand(20, 1, 8, 8, dtype=torch.float64)
    dataset, orders = torch.utils.data.TensorDataset(X, torch.arange(20) % 10), []

    class Recorded(list):
        def __len__(self):
            return 2

        def __iter__(self):
            loader = torch.utils.data.DataLoader(dataset, 10, shuffle=True)
            batches = [(X, y) for X, y in loader]
            orders.append([y.tolist() for _, y in batches])
            return iter(batches)

    torch.manual_seed(5)
    run(2, load_data=lambda n: (Recorded(), [(X, torch.arange(20) % 10)]))
    looked_at, first, second = orders
    assert looked_at == first  # as if nobody had looked
    assert first != second


# ---------------------------------------------------------------- what it says


def test_the_line_says_accuracy_time_and_devices():
    said = run_program("data_parallel/the_line_says_accuracy_time_and_devices.py")
    first, *epochs, last = said.splitlines()
    assert first.startswith("Using 2 virtual GPUs")
    line = r"epoch [12]/2: train loss \d\.\d+, test accuracy 0\.\d+"
    assert len(epochs) == 2
    assert all(re.fullmatch(line, epoch) for epoch in epochs)
    assert last.startswith("test acc: 0.")
    assert last.endswith(" sec/epoch of the host on vgpu:0, vgpu:1")


# ---------------------------------------------------------------- what it refuses


def one_batch(X, y):
    return lambda batch_size: ([(X, y)], [(X, y)])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"num_gpus": 3, "batch_size": 2},
            "A batch of 2 cannot be split across 3 GPUs",
        ),
        ({"num_gpus": 4}, r"asks for more GPUs than there are \(3\)"),
        ({"num_gpus": -1}, "num_gpus must be at least 0"),
        ({"num_gpus": 1, "num_epochs": 0}, "num_epochs must be at least 1"),
        ({"num_gpus": 1, "batch_size": 0}, "batch_size must be at least 1"),
        (
            {"num_gpus": 2, "warmup_epochs": 2},
            "less than num_epochs=2, but got 2",
        ),
        ({"num_gpus": 2, "load_data": lambda n: ([], [])}, "nothing to train on"),
        (
            {
                "num_gpus": 2,
                "load_data": one_batch(torch.rand(4, 64).double(), torch.arange(8, 12)),
            },
            "The labels range from 8 to 11, but the network has scores for only 10 "
            "classes",
        ),
        (
            {
                "num_gpus": 2,
                "load_data": one_batch(
                    torch.rand(2, 64).double(), torch.tensor([0, -1])
                ),
            },
            "The labels range from -1 to 0",
        ),
        ({"num_gpus": 1, "net": nn.Sequential(nn.LazyLinear(10))}, "lazy layers"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    net = arguments.get("net") or network()
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match=sentence) as refused:
        run(**{"net": net} | arguments)
    assert "\n" not in str(refused.value)
    if "net" not in arguments:
        for name, value in net.state_dict().items():
            assert torch.equal(value.cpu(), before[name])


def test_labels_of_batches_on_a_device_are_checked_before_they_get_there():
    images = torch.zeros(8, 1, 8, 8, dtype=torch.uint8)

    def load(batch_size):
        data = d2l.Batches(images, torch.arange(8) + 5, batch_size, device=d2l.gpu(0))
        return data, data

    with pytest.raises(ValueError, match="The labels range from 5 to 12"):
        run(2, net=network().float(), load_data=load, batch_size=4)
