"""What collectives of ``torch.distributed`` take where the clock knows the cluster."""

import pytest
import torch

from d2l_gpu import vgpu
from d2l_gpu.vgpu.sim import nccl
from d2l_gpu.vgpu.sim.catalogue import LINKS, MODELS
from d2l_gpu.vgpu.sim.commands import ring_seconds
from d2l_gpu.vgpu.sim.fabric import NETWORKS, Fabric

dist = torch.distributed
functional = pytest.importorskip(
    "torch.distributed._functional_collectives", exc_type=ImportError
)
fake_pg = pytest.importorskip(
    "torch.testing._internal.distributed.fake_pg", exc_type=ImportError
)
# From PyTorch 2.13 on these have other names, which older versions don't know.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")

FABRIC = Fabric(link=LINKS["NVLink4"], network=NETWORKS["NDR"])
NUMBERS = 2**22  # of fp32 in the whole tensor
NODE, COLUMN = range(8), range(0, 32, 8)


@pytest.fixture(scope="module")
def groups():
    """A world of four nodes, in which this process is rank 0, and groups of it."""
    dist.init_process_group("fake", store=fake_pg.FakeStore(), rank=0, world_size=32)
    try:
        yield {
            ranks: dist.new_group(list(ranks)) for ranks in (range(32), NODE, COLUMN)
        }
    finally:
        dist.destroy_process_group()


def seconds_of(call, fabric) -> float:
    """Return how long a device takes to communicate what a call does."""
    sim = vgpu.simulator(1, model="H100", link="NVLink4", backing="meta")
    sim.clock.fabric = fabric
    make = lambda n: torch.empty(n, device=sim.gpu(0))  # noqa: E731
    call(make)
    sim.elapsed()
    (lane,) = [s for s in sim.spans() if s.lane == "out"] or [None]
    return 0.0 if lane is None else (lane.end - lane.start) * 1e-12


def scattered(make, group):
    part = make(NUMBERS // group.size())
    dist.reduce_scatter_tensor(part, make(NUMBERS), group=group)


def gathered(make, group):
    part = make(NUMBERS // group.size())
    dist.all_gather_into_tensor(make(NUMBERS), part, group=group)


def exchanged(make, group):
    dist.all_to_all_single(make(NUMBERS), make(NUMBERS), group=group)


CALLS = {
    "all_reduce": lambda make, group: dist.all_reduce(make(NUMBERS), group=group),
    "reduce_scatter": scattered,
    "all_gather": gathered,
    "broadcast": lambda make, group: dist.broadcast(make(NUMBERS), 0, group=group),
    "all_to_all": exchanged,
}


@pytest.mark.parametrize("ranks", [range(32), NODE, COLUMN])
@pytest.mark.parametrize("kind", CALLS)
def test_a_collective_takes_what_nccl_takes_in_its_group(groups, kind, ranks):
    found = seconds_of(lambda make: CALLS[kind](make, groups[ranks]), FABRIC)
    model = MODELS["H100"]
    expected = nccl.estimate(kind, 4 * NUMBERS, ranks, FABRIC, model).seconds
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("peer", [1, 3])
def test_a_send_takes_what_it_takes_to_the_other_rank(groups, peer):
    for ranks in (NODE, COLUMN):
        for call in (dist.send, dist.recv):
            found = seconds_of(
                lambda make, call=call, ranks=ranks: call(
                    make(NUMBERS), ranks[peer], group=groups[ranks]
                ),
                FABRIC,
            )
            pair, model = (0, ranks[peer]), MODELS["H100"]
            expected = nccl.estimate("send", 4 * NUMBERS, pair, FABRIC, model).seconds
            assert found == pytest.approx(expected, rel=1e-6)


def test_functional_collectives_know_their_group(groups):
    def call(make):
        splits = [NUMBERS // 4] * 4
        functional.all_to_all_single(make(NUMBERS), splits, splits, groups[COLUMN])

    model = MODELS["H100"]
    expected = nccl.estimate("all_to_all", 4 * NUMBERS, COLUMN, FABRIC, model).seconds
    assert seconds_of(call, FABRIC) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", CALLS)
def test_without_a_fabric_there_are_rings_alone(groups, kind):
    found = seconds_of(lambda make: CALLS[kind](make, groups[NODE]), None)
    expected = ring_seconds(kind, 4 * NUMBERS, 8, LINKS["NVLink4"])
    assert found == pytest.approx(expected, rel=1e-6)
