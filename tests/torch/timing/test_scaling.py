"""A simulated step of data parallelism takes what its parts take."""

import gc
import itertools

import pytest
import torch
from torch import nn

from d2l_gpu import torch as d2l


def a_problem(dtype=torch.float32):
    net = nn.Sequential(
        nn.Conv2d(1, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.Flatten(),
        nn.Linear(64 * 28 * 28, 10),
    )
    X, y = torch.zeros(64, 1, 28, 28), torch.zeros(64, dtype=torch.long)
    return net.to("meta", dtype), X.to("meta", dtype), y.to("meta")


def gradients(net) -> int:
    return sum(p.nbytes for p in net.parameters())


def sent(step) -> int:
    (use,) = [x for x in step.simulation.report().links if x.target == "other GPUs"]
    return use.nbytes


def test_the_making_of_replicas_is_no_part_of_the_step():
    report = d2l.simulate_step(*a_problem(), 1).simulation.report()
    assert [link.copies for link in report.links] == [2]  # the batch: X and y


def test_batches_with_and_without_values_are_both_page_locked():
    net, X, y = a_problem()
    without = d2l.simulate_step(net, X, y, 1)
    X, y = torch.zeros(X.shape), torch.zeros(y.shape, dtype=y.dtype)
    assert d2l.simulate_step(net, X, y, 1).seconds == without.seconds


def test_what_is_sent_depends_on_the_way_not_on_the_link():
    net, X, y = a_problem()
    for link in ("NVLink2", "PCIe3"):
        for algorithm, vectors in (("naive", 6), ("ring", 1.5), ("bucketed", 1.5)):
            step = d2l.simulate_step(net, X, y, 4, algorithm, link=link)
            assert sent(step) == pytest.approx(vectors * gradients(net), rel=1e-6)


def test_half_precision_halves_what_is_sent():
    steps = [
        d2l.simulate_step(*a_problem(dtype), 4, "ring")
        for dtype in (torch.float32, torch.float16)
    ]
    assert sent(steps[0]) == 2 * sent(steps[1])


def test_a_ring_after_backward_is_exposed_and_buckets_hide_a_part_of_it():
    none, ring, buckets = (
        d2l.simulate_step(*a_problem(), 8, algorithm, link="PCIe3", bucket_bytes=10**6)
        for algorithm in ("none", "ring", "bucketed")
    )
    assert ring.seconds >= none.seconds + ring.communicating
    assert buckets.seconds < none.seconds + buckets.communicating
    assert buckets.seconds < ring.seconds


def test_layers_without_shapes_are_refused():
    net = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    _, X, y = a_problem()
    with pytest.raises(ValueError, match="lazy layers"):
        d2l.simulate_step(net, X, y, 2)


def test_as_many_steps_as_one_likes_can_be_simulated_and_kept():
    net, X, y = a_problem()
    steps = [d2l.simulate_step(net, X, y, 2) for _ in range(100)]
    assert len({step.seconds for step in steps}) == 1
    assert steps[0].simulation.report().seconds == steps[0].seconds
    with pytest.raises(RuntimeError, match="been released"):
        steps[0].simulation.gpu(0)


def test_simulators_in_cycles_of_references_make_room_for_new_ones():
    gc.disable()
    try:
        for _ in range(100):
            sim = d2l.simulator(2, backing="meta")
            cycle = [sim, torch.zeros(3, device=sim.gpu(0))]
            cycle.append(cycle)
    finally:
        gc.enable()


def test_a_bucket_is_sent_as_soon_as_it_is_full():
    net, X, y = a_problem()
    # In backward order; each prefix of them is a bucket that is filled exactly.
    sizes = [p.nbytes for p in reversed(list(net.parameters()))]
    for full in itertools.accumulate(sizes[:-1]):
        exactly, less, more = (
            d2l.simulate_step(net, X, y, 4, "bucketed", bucket_bytes=full + change)
            for change in (0, -1, 1)
        )
        assert exactly.seconds == less.seconds
        assert sent(exactly) == sent(less) == sent(more)
    late = d2l.simulate_step(net, X, y, 4, "bucketed", bucket_bytes=sizes[0] + 1)
    soon = d2l.simulate_step(net, X, y, 4, "bucketed", bucket_bytes=sizes[0])
    assert soon.seconds != late.seconds
