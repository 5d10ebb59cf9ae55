"""Small worlds on the simulated clock."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional_collectives
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from d2l_gpu import vgpu
from d2l_gpu.vgpu.sim import catalogue
from d2l_gpu.vgpu.sim.commands import ring_seconds
from tests.helpers.properties import sizes

pytestmark = pytest.mark.virtual_gpus(4, memory="256MiB")

ISSUE, START, WAIT = (
    catalogue.ISSUE.value,
    catalogue.START.value,
    catalogue.WAIT.value,
)


def elapsed(function, world: int) -> tuple[list, float]:
    """Return the results of the ranks, and the simulated seconds that they take."""
    simulator = vgpu.current_simulator()
    simulator.reset()
    return vgpu.run_ranks(function, world), simulator.elapsed()


def training(wrap):
    def step(rank, world_size):
        torch.manual_seed(0)
        net = wrap(nn.Sequential(*(nn.Linear(64, 64) for _ in range(3))).to("vgpu"))
        net(torch.ones(rank + 1, 64, device="vgpu")).sum().backward()
        torch.vgpu.synchronize()
        return vgpu.current_simulator().now()

    return step


@pytest.mark.parametrize("wrap", [DistributedDataParallel, fully_shard])
def test_times_are_the_same_at_each_run(wrap):
    first = elapsed(training(wrap), 3)
    assert all(elapsed(training(wrap), 3) == first for _ in range(5))


@given(st.integers(2, 4), st.lists(st.integers(0, 5), min_size=4, max_size=4))
def test_a_collective_begins_when_the_last_rank_reaches_it(world, kernels):
    nbytes = 4 * 2**16

    def work(rank, world_size):
        clock, X = vgpu.current_simulator(), torch.ones(2**16, device="vgpu")
        for _ in range(kernels[rank]):
            X += 1
        torch.vgpu.synchronize()
        reached = clock.now()
        dist.all_reduce(X)
        issued = clock.now()
        torch.vgpu.synchronize()
        return reached, issued, clock.now()

    results, _ = elapsed(work, world)
    last = max(reached for reached, _, _ in results) + ISSUE + START
    link = vgpu.current_simulator().link
    end = last + ring_seconds("all_reduce", nbytes, world, link) + WAIT
    for reached, issued, after in results:
        assert issued == pytest.approx(reached + ISSUE)  # the host goes on
        assert after == pytest.approx(end)


def test_ranks_are_processes_and_do_not_share_python():
    def layers(rank, world_size):
        net, X = nn.Linear(4, 4).to("vgpu"), torch.ones(1, 4, device="vgpu")
        for _ in range(10):
            net(X)

    _, alone = elapsed(layers, 1)
    _, together = elapsed(layers, 4)
    assert alone == together


def test_a_barrier_holds_up_the_host():
    def wait(rank, world_size):
        X = torch.ones(4, device="vgpu")
        for _ in range(100 * rank):
            X += 1
        dist.barrier()
        return vgpu.current_simulator().now()

    (first, *others), _ = elapsed(wait, 3)
    assert first > 200 * ISSUE
    assert others == [first] * 2


def test_the_caller_goes_on_when_the_last_rank_has_ended():
    simulator = vgpu.current_simulator()
    simulator.reset()
    X = torch.ones(4, device="vgpu:0")
    before = simulator.now()

    def busy(rank, world_size):
        Y = torch.ones(4, device="vgpu")
        for _ in range(10 * rank):
            Y += 1

    for _ in range(2):  # the second time begins after the first
        start = simulator.now()
        vgpu.run_ranks(busy, 3)
        assert simulator.now() - start == pytest.approx(21 * ISSUE)
    X += 1
    assert simulator.now() - before == pytest.approx((2 * 21 + 1) * ISSUE)


def test_a_collective_under_way_overlaps_with_kernels():
    def work(rank, world_size, wait_first):
        A, B = (torch.ones(1000, 1000, device="vgpu") for _ in range(2))
        work = dist.all_reduce(B, async_op=True)
        if wait_first:
            work.wait()
        A @ A
        work.wait()

    _, after = elapsed(lambda *ranks: work(*ranks, True), 2)
    _, beside = elapsed(lambda *ranks: work(*ranks, False), 2)
    moving = ring_seconds("all_reduce", 4 * 10**6, 2, vgpu.current_simulator().link)
    assert after - beside > 0.5 * moving


def test_ddp_sends_while_backward_computes():
    def step(rank, world_size, cap):
        net = nn.Sequential(*(nn.Linear(1000, 1000) for _ in range(4))).to("vgpu")
        net = DistributedDataParallel(net, bucket_cap_mb=cap)
        X = torch.ones(500, 1000, device="vgpu")
        for _ in range(2):  # DDP forms its buckets after the first step
            torch.vgpu.synchronize()
            start = vgpu.current_simulator().elapsed()
            net(X).sum().backward()
            torch.vgpu.synchronize()
        return vgpu.current_simulator().now() - start

    one, _ = elapsed(lambda *ranks: step(*ranks, 1000), 2)
    four, _ = elapsed(lambda *ranks: step(*ranks, 1), 2)
    assert max(four) < max(one)


@given(sizes(1))
def test_sends_keep_one_direction_busy(size):
    def send(rank, world_size):
        X = torch.ones(size, device="vgpu")
        if rank == 0:
            dist.send(X, 1)
        elif rank == 1:
            dist.recv(X, 0)

    simulator = vgpu.current_simulator()
    elapsed(send, 3)
    moved = {
        (span.index, span.lane) for span in simulator.spans() if span.name == "send"
    }
    assert moved == {(0, "out"), (1, "in")}
    lanes = simulator.clock.links
    assert lanes[0, "out", "device"].nbytes == 4 * size


def test_a_functional_collective_takes_as_long_as_the_other():
    def plain(rank, world_size):
        dist.all_reduce(torch.ones(2**16, device="vgpu"))

    def functional(rank, world_size):
        X = torch.ones(2**16, device="vgpu")
        functional_collectives.all_reduce(X, "sum", dist.group.WORLD) + 0

    def exchanges(function):
        elapsed(function, 3)
        lane = vgpu.current_simulator().clock.links[0, "in", "device"]
        return lane.count, lane.busy

    assert exchanges(plain) == exchanges(functional)
    assert exchanges(plain)[0] == 1


def test_an_event_asked_by_a_rank_is_on_its_own_host():
    def ask(rank, world_size):
        X = torch.ones(4, device="vgpu")
        for _ in range(1000 if rank == 0 else 1):
            X += 1
        event = torch.vgpu.current_stream().record_event()
        while not event.query():
            pass
        return vgpu.current_simulator().now()

    (late, early), _ = elapsed(ask, 2)
    assert early < 10 * ISSUE + START < 1000 * ISSUE < late


def test_any_thread_can_start_ranks_and_waits_for_them():
    def busy(rank, world_size):
        start = vgpu.current_simulator().now()
        for _ in range(10 * rank):
            torch.ones(4, device="vgpu")
        return start

    def caller():
        for _ in range(5):
            torch.ones(4, device="vgpu:0")
        starts = vgpu.run_ranks(busy, 3)
        torch.ones(4, device="vgpu:0")
        return starts

    simulator = vgpu.current_simulator()
    simulator.reset()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(caller).result() == pytest.approx([5 * ISSUE] * 3)
    assert simulator.now() == pytest.approx((5 + 20 + 1) * ISSUE)
