"""Programs compared by time, curves, and the cost of a data-parallel step."""

import time

import pytest
import torch

from d2l_gpu import torch as d2l
from d2l_gpu.torch.timing.bench import _spread
from d2l_gpu.torch.timing.scaling import BUCKET
from tests.helpers.fresh_process import run_program

pytestmark = pytest.mark.virtual_gpus(2)


def products(device):
    X = torch.ones(100, 100, device=device)
    for _ in range(10):
        X = X @ X / 100


def nothing(device):
    pass


# ------------------------------------------------------------------ bench


def test_simulated_times_are_exact_and_say_so():
    sim = d2l.simulator(1)
    first, second = (d2l.bench(products, sim.gpu(0)) for _ in range(2))
    assert first == second
    ((figure),) = first
    assert (figure.program, figure.label) == ("products", "simulated (V100)")
    assert figure.spread == 0
    assert 1e-5 < figure.seconds < 1e-2
    assert repr(first) == f"products   {figure.seconds * 1e6:.0f} µs  simulated (V100)"


def test_measured_times_say_so_and_have_a_spread():
    sim = d2l.simulator(1)
    programs = {"sleeps": lambda device: time.sleep(0.02), "rests": nothing}
    found = d2l.bench(programs, sim.gpu(0), [], "cpu", rounds=3, warmup=1)
    assert [(f.program, f.label.split()[0]) for f in found] == [
        *[("sleeps", "simulated"), ("rests", "simulated")],
        *[("sleeps", "measured"), ("rests", "measured")],
    ]
    assert found.seconds("sleeps") < 1e-3  # the host's own work is not simulated
    assert 0.02 <= found.seconds("sleeps", 1) < 2
    assert "±" in repr(found).splitlines()[2]
    assert "±" not in repr(found).splitlines()[0]


def test_programs_take_turns_after_runs_that_do_not_count(monkeypatch):
    calls = []
    programs = {name: lambda device, name=name: calls.append(name) for name in "ab"}
    d2l.bench(programs, "cpu", rounds=2, warmup=3)
    assert "".join(calls) == "aaa" + "bbb" + "abab"


def test_every_device_of_a_place_is_waited_for(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.vgpu, "synchronize", lambda d: waited.append(d.index))
    d2l.bench(lambda a, b: None, ["vgpu:0", "vgpu:1"])
    assert waited == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    "arguments, error, sentence",
    [
        (({}, "cpu"), None, None),
        ((7, "cpu"), TypeError, "a function, or a dictionary"),
        (({"a": 7}, "cpu"), TypeError, "a function, or a dictionary"),
    ],
)
def test_what_is_no_program(arguments, error, sentence):
    if error is None:
        assert list(d2l.bench(*arguments)) == []
        return
    with pytest.raises(error, match=sentence):
        d2l.bench(*arguments)


@pytest.mark.parametrize("settings", [{"rounds": 0}, {"warmup": -1}, {"rounds": 1.5}])
def test_bad_numbers_of_runs(settings):
    with pytest.raises((TypeError, ValueError), match="The number of r"):
        d2l.bench(nothing, "cpu", **settings)


def test_a_place_is_all_simulated_or_not_at_all():
    sims = [d2l.simulator(1), d2l.simulator(1)]
    with pytest.raises(ValueError, match="virtual GPUs of a single simulation"):
        d2l.bench(lambda a, b: None, [d2l.simulator(1).gpu(0), "cpu"])
    with pytest.raises(ValueError, match="virtual GPUs of a single simulation"):
        d2l.Timer([sim.gpu(0) for sim in sims], simulated=True)
    with pytest.raises(ValueError, match="but got no device"):
        d2l.Timer(simulated=True)


def test_a_timer_reads_the_simulated_clock_when_asked():
    sim = d2l.simulator(1)
    timer = d2l.Timer(sim.gpu(0), simulated=True)
    X = torch.ones(4000, 4000, device=sim.gpu(0))
    timer.start()
    _ = X @ X
    assert timer.stop() == pytest.approx(2 * 4000**3 / 15.7e12 / 0.8, rel=0.2)
    assert timer.label == "simulated (V100)"
    assert d2l.Timer().label.startswith("measured (")
    assert d2l.Timer("vgpu:0").label.startswith("measured (virtual GPU")


# ------------------------------------------------------------------ arrivals


def late(device):
    return torch.ones(5, device=device).to("cpu", non_blocking=True)


def into_a_buffer(device):
    return torch.empty(5).copy_(torch.ones(5, device=device), non_blocking=True)


def into_a_part_of_a_buffer(device):
    part = torch.empty(4, 5)[2]
    return part.copy_(torch.ones(5, device=device), True)


def into_columns_of_a_buffer(device):
    part = torch.empty(5, 4)[:, 3]
    return part.copy_(torch.ones(5, device=device), non_blocking=True)


@pytest.mark.parametrize(
    "copied", [late, into_a_buffer, into_a_part_of_a_buffer, into_columns_of_a_buffer]
)
@pytest.mark.parametrize(
    "reads",
    [
        lambda x: x + 1,
        lambda x: x.sum().item(),
        lambda x: x[1:3] * 2,
        lambda x: x[4].item(),
        lambda x: torch.stack([torch.ones(5), x]),
        lambda x: torch.zeros(5).copy_(x),
    ],
)
def test_a_program_that_reads_a_copy_too_early_is_refused(reads, copied):
    def program(device):
        return reads(copied(device))

    with pytest.raises(RuntimeError, match="may not have arrived yet") as caught:
        d2l.bench(program, d2l.simulator(1).gpu(0))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "wait",
    [
        lambda device: torch.vgpu.synchronize(device),
        lambda device: torch.vgpu.current_stream(device).synchronize(),
        lambda device: torch.vgpu.current_stream(device).record_event().synchronize(),
        lambda device: torch.ones(1, device=device).item(),
        lambda device: torch.ones(1, device=device).cpu(),
    ],
)
def test_a_program_that_waits_is_not(wait):
    def program(device):
        copied = late(device)
        wait(device)
        assert copied.sum() == 5

    synchronize = torch.vgpu.synchronize
    d2l.bench(program, d2l.simulator(1).gpu(0))
    assert torch.vgpu.synchronize is synchronize


def test_a_copy_that_is_only_returned_is_no_mistake():
    assert d2l.bench(late, d2l.simulator(1).gpu(0)).seconds("late") > 0


# ------------------------------------------------------------------ a step


def cost(num_gpus, algorithm="bucketed", batch=16, **settings):
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(784, 4096), torch.nn.Linear(4096, 2048)
    )
    X, y = torch.zeros(batch, 1, 28, 28), torch.zeros(batch, dtype=torch.long)
    return d2l.simulate_step(net, X, y, num_gpus, algorithm, **settings)


def test_one_device_has_nothing_to_exchange():
    steps = [cost(1, a) for a in ("none", "naive", "ring", "bucketed")]
    assert len({step.seconds for step in steps}) == 1
    assert {step.communicating for step in steps} == {0.0}
    assert steps[0].examples_per_second == pytest.approx(16 / steps[0].seconds)


def test_better_algorithms_take_less_and_the_same_arithmetic():
    none, naive, ring, bucketed = (
        cost(8, a, batch=4096) for a in ("none", "naive", "ring", "bucketed")
    )
    assert none.seconds < bucketed.seconds < ring.seconds < naive.seconds
    assert naive.computing == none.computing
    assert naive.communicating > 3 * ring.communicating > 0
    # What goes on beside backward costs less time than it takes.
    assert bucketed.seconds - none.seconds < bucketed.communicating


def test_a_bucket_goes_when_it_is_full():
    def count(nbytes):
        step = cost(2, bucket_bytes=nbytes)
        links = step.simulation.report().links
        return next(link.copies for link in links if link.target == "other GPUs")

    assert count(BUCKET) == 2  # 12.9 + 33.6 MB, the last layer's first
    assert count(2**40) == 1
    assert count(1) == 4


def test_the_network_stays_as_it_was():
    net = torch.nn.Linear(784, 10)
    X, y = torch.zeros(4, 784), torch.zeros(4, dtype=torch.long)
    d2l.simulate_step(net, X, y, 4)
    assert net.weight.grad is None
    assert not net.weight._backward_hooks
    assert str(net.weight.device) == "cpu"


def test_a_thousand_devices_cost_the_latency_of_their_ring():
    step = cost(1024, "ring", link="InfiniBand HDR")
    assert step.seconds > 2046 * 14e-6


@pytest.mark.parametrize(
    "arguments, error, sentence",
    [
        ((0,), ValueError, "number of GPUs"),
        ((2.5,), TypeError, "number of GPUs"),
        ((2, "tree"), ValueError, "one of none, naive, ring, bucketed, but got 'tree'"),
    ],
)
def test_a_step_with_bad_settings(arguments, error, sentence):
    with pytest.raises(error, match=sentence):
        cost(*arguments)


# ------------------------------------------------------------------ real GPUs


def test_virtual_gpus_are_not_real_ones():
    assert d2l.real_gpus(1) == [] or torch.cuda.is_available()
    with pytest.raises(ValueError, match="number of GPUs"):
        d2l.real_gpus(0)


def test_real_gpus_are_asked_of_their_own_modules(monkeypatch):
    run_program("bench/real_gpus.py")


def test_spread_is_half_of_what_lies_between_the_quartiles():
    assert _spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(1 / 3)
    assert _spread([4.0]) == 0.0
