"""Which algorithm a collective takes on simulated GPUs, and how long."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim.catalogue import GB, LINKS, MODELS
from d2l_gpu.vgpu.sim.fabric import NETWORKS, Fabric
from d2l_gpu.vgpu.sim.nccl import SENT, estimate, through_cards
from tests.helpers import properties  # noqa: F401

GIB = 2**30
H100 = MODELS["H100"], Fabric(link=LINKS["NVLink4"], network=NETWORKS["NDR"])
A100 = (
    MODELS["A100"],
    Fabric(link=LINKS["NVLink3"], network=NETWORKS["HDR"], amd=True),
)
V100 = (
    MODELS["V100"],
    Fabric(link=LINKS["NVLink2"], wiring="DGX-1", network=NETWORKS["RoCE 100"]),
)
PCIE = (
    MODELS["L40S"],
    Fabric(wiring="PCIe", link=LINKS["PCIe4"], network=NETWORKS["Ethernet 25"]),
)
RACK = (
    MODELS["GB200"],
    Fabric(72, LINKS["NVLink5"], network=NETWORKS["NDR"], cards=72),
)
MACHINES = (H100, A100, V100, PCIE, RACK)

machines = st.sampled_from(MACHINES)
kinds = st.sampled_from([kind for kind in SENT if kind != "send"])
sizes = st.integers(1, 2**33)
groups = st.one_of(
    st.sets(st.integers(0, 300), min_size=2, max_size=40),
    st.builds(lambda n, step: set(range(0, n * step, step)), st.integers(2, 64), sizes),
    st.builds(lambda nodes: set(range(8 * nodes)), st.integers(1, 32)),
).map(lambda ranks: sorted(r % 4096 for r in ranks))


def the(kind, nbytes, ranks, machine):
    return estimate(kind, nbytes, ranks, machine[1], machine[0])


@given(kinds, sizes, groups, machines, st.randoms())
def test_the_order_of_ranks_does_not_matter(kind, nbytes, ranks, machine, random):
    assume(len(set(ranks)) == len(ranks))
    found = the(kind, nbytes, ranks, machine)
    random.shuffle(ranks)
    assert the(kind, nbytes, ranks, machine) == found


@given(kinds, sizes, groups, machines)
def test_no_collective_beats_the_links_or_the_network(kind, nbytes, ranks, machine):
    assume(len(set(ranks)) == len(ranks))
    fabric = machine[1]
    found, group = the(kind, nbytes, ranks, machine), fabric.group(ranks)
    n, nodes = group.ranks, group.nodes
    if fabric.wiring != "PCIe" and group.share and group.most > 1:
        # With NVLS a switch adds, so a GPU sends its tensor once.
        once = found.algorithm.startswith("NVLS") and kind == "all_reduce"
        local = group.most  # links carry no more than their node's part of it
        share = 1 / n if once else SENT[kind](local) / (n / local)
        link = fabric.link.bandwidth * group.share
        assert found.seconds > share * nbytes / link
    if nodes > 1:
        through = fabric.network.bandwidth * group.cards
        share = SENT[kind](nodes) if kind != "all_to_all" else 0
        assert found.seconds > share * nbytes / through
    assert 1 <= found.channels <= 64


@given(kinds, st.integers(1, 2**20), st.integers(2, 8), st.sampled_from(MACHINES[:3]))
def test_a_group_in_a_node_does_not_feel_the_network(kind, nbytes, n, machine):
    model, fabric = machine
    for other in (NETWORKS["Ethernet 25"], None):
        alone = model, replace(fabric, network=other)
        assert the(kind, nbytes, range(n), alone) == the(
            kind, nbytes, range(n), machine
        )


@given(kinds, st.integers(1, 2**32), st.integers(1, 8), machines)
def test_more_bytes_take_more_time(kind, nbytes, nodes, machine):
    # NCCL corrects a tree's bandwidth by size in steps, so only twice as many do.
    ranks = range(2, 8 * nodes)
    assert the(kind, 2 * nbytes, ranks, machine) > the(kind, nbytes, ranks, machine)


@pytest.mark.parametrize("machine", [H100, A100, PCIE])
@pytest.mark.parametrize("kind", [kind for kind in SENT if kind != "send"])
@pytest.mark.parametrize("nbytes", [1024, GIB])
def test_more_nodes_take_more_time(kind, nbytes, machine):
    times = [the(kind, nbytes, range(8 * n), machine).seconds for n in (1, 2, 4, 16)]
    if nbytes == 1024:
        assert times == sorted(times)
    assert times[0] < min(times[1:])


@pytest.mark.parametrize(
    ("machine", "ranks", "bandwidth"),
    [
        (A100, range(8), 12 * 20),  # what NCCL counts of 12 NVLinks
        (A100, range(16), 8 * 24),  # of 8 cards, each behind PCIe 4
        (A100, range(0, 64, 8), 24),  # one GPU of each node has one card
        (V100, range(8), 6 * 20),
        (RACK, range(4), 16 * 45),
    ],
)
def test_large_tensors_reach_the_bandwidth_of_the_slowest_hop(
    machine, ranks, bandwidth
):
    n = len(ranks)
    found = the("all_reduce", 64 * GIB, ranks, machine)
    bus = 2 * (n - 1) / n * 64 * GIB / found.seconds / GB
    assert (found.algorithm, found.protocol) == ("Ring", "Simple")
    assert 0.98 * bandwidth < bus <= bandwidth


def test_trees_win_with_small_tensors_on_many_nodes_and_rings_with_large_ones():
    for nodes in (4, 16, 64):
        small = the("all_reduce", 4096, range(8 * nodes), A100)
        large = the("all_reduce", 16 * GIB, range(8 * nodes), A100)
        assert (small.algorithm, small.protocol) == ("Tree", "LL")
        assert (large.algorithm, large.protocol) == ("Ring", "Simple")
        ring = the("all_gather", 4096, range(8 * nodes), A100)
        assert small.seconds < 2 * ring.seconds  # two of these make an all-reduce
    # One node more is one step more in a ring, and none in a tree.
    times = [the("all_reduce", 64, range(8 * n), A100).seconds for n in (32, 63, 64)]
    assert times[0] == times[1] < times[2]


def test_the_switch_adds_where_there_is_one_that_can():
    for nbytes, algorithm in ((2**20, "Ring"), (2**21, "NVLS"), (GIB, "NVLS")):
        assert the("all_reduce", nbytes, range(8), H100).algorithm == algorithm
        assert the("all_reduce", nbytes, range(8), A100).algorithm == "Ring"
    assert the("all_reduce", GIB, range(16), H100).algorithm == "NVLSTree"
    with_switch = the("all_reduce", GIB, range(8), H100)
    assert with_switch.sent == GIB + GIB // 8 < SENT["all_reduce"](8) * GIB


@pytest.mark.parametrize("machine", [A100, V100, PCIE])
@pytest.mark.parametrize("ranks", [range(8), range(32), range(0, 64, 8)])
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(machine, ranks):
    whole = the("all_reduce", GIB, ranks, machine)
    halves = [the(k, GIB, ranks, machine) for k in ("reduce_scatter", "all_gather")]
    assert whole.seconds == pytest.approx(sum(h.seconds for h in halves), rel=0.05)
    assert whole.sent == pytest.approx(sum(h.sent for h in halves), abs=1)


@pytest.mark.parametrize("kind", SENT)
def test_one_rank_or_nothing_to_send_takes_no_time(kind):
    ranks = [3, 9] if kind == "send" else [3]
    assert the(kind, GIB if kind != "send" else 0, ranks, H100)[:2] == (0.0, 0)
    assert the(kind, 0, [3, 9], H100)[:2] == (0.0, 0)


def test_latency_depends_on_the_kind_of_hop():
    times = [
        the("all_reduce", 8, range(2), H100),  # NVLink
        the("all_reduce", 8, range(2), PCIE),
        the("all_reduce", 8, range(0, 16, 8), H100),  # the network
    ]
    assert [t.seconds for t in times] == sorted(t.seconds for t in times)
    slow = replace(NETWORKS["NDR"], latency=50e-6)
    slow = the(
        "all_reduce", 8, range(0, 16, 8), (H100[0], replace(H100[1], network=slow))
    )
    assert slow.seconds > times[2].seconds + 50e-6


@pytest.mark.parametrize(
    ("kind", "ranks", "machine", "microseconds"),
    [
        ("all_reduce", range(8), H100, 6.6 + 14 * 0.6),  # a ring of 14 steps
        ("all_reduce", range(8), PCIE, 6.6 + 14 * 1.0),
        ("all_reduce", range(16), H100, 6.8 + 2 * (7 * 0.6 + 5.0)),
        ("all_reduce", range(128), H100, 6.8 + 2 * (7 * 0.6 + 4 * 5.0)),
        ("all_reduce", range(72), RACK, 25.0),  # NVLS
        ("all_gather", range(8), A100, 6.6 + 7 * 0.6),
        # Steps in the node cost as much as the host's part of those in the network.
        ("all_gather", range(16), H100, 6.6 + 14 * 1.0 + 2.7),
        ("all_gather", range(16), A100, 6.6 + 14 * 2.0 + 2.7),
        ("broadcast", range(8), H100, 6.6 + 0.6),
        ("broadcast", range(16), H100, 6.6 + 16 * 2.7),
        ("send", [0, 1], H100, 6.6 + 0.6),
        ("send", [0, 8], H100, 6.6 + 2.7),
        ("all_to_all", range(128), H100, 6.6 + 2.7),
        ("all_to_all", range(256), H100, 6.6 + 2 * 2.7),  # 255 peers, 128 at a time
    ],
)
def test_small_tensors_take_the_latency_that_nccl_counts(
    kind, ranks, machine, microseconds
):
    found = the(kind, 1, ranks, machine)
    assert found.seconds == pytest.approx(microseconds * 1e-6, abs=2e-9)


@pytest.mark.parametrize(
    ("ranks", "machine", "bandwidth", "latency"),
    [
        (range(8), H100, 8 * 40 * 0.85 * 2 * 7 / 8, 25.0),
        (range(16), H100, 8 * 57.7, 25 + 2 * 20.9),
        (range(32), H100, 8 * 45.5, 25 + 4 * 20.9),
        # A ring's latency with large tensors, and the step that isn't overlapped.
        (range(16), A100, 192, 1.4 * (8.4 + 28 * 6.0 + 2 * 14.0)),
        (range(32), V100, 8 * 12, 1.9 * (8.4 + 56 * 3.4 + 6 * 14.0)),
    ],
)
def test_large_tensors_take_what_nccl_counts(ranks, machine, bandwidth, latency):
    n, nbytes = len(ranks), 4 * GIB
    moving = 2 * (n - 1) / n * nbytes / bandwidth / GB
    found = the("all_reduce", nbytes, ranks, machine)
    assert found.seconds == pytest.approx(moving + latency * 1e-6, rel=1e-6)


def test_protocols_are_those_that_the_network_carries():
    for name, allowed in (("EFA p4d", {"Simple"}), ("Ethernet 100", {"LL", "Simple"})):
        machine = A100[0], replace(A100[1], network=NETWORKS[name])
        found = {
            the("all_reduce", 2**k, range(16), machine).protocol for k in range(33)
        }
        assert found == allowed
    assert "LL128" in {
        the("all_reduce", 2**k, range(16), A100).protocol for k in range(33)
    }
    assert "LL128" not in {
        the("all_reduce", 2**k, range(8), PCIE).protocol for k in range(33)
    }


def test_a_send_takes_one_hop_and_the_bandwidth_of_one_card():
    near, far = (the("send", GIB, [0, r], H100) for r in (5, 13))
    assert GIB / near.seconds / GB == pytest.approx(18 * 20.6, rel=0.01)
    assert GIB / far.seconds / GB == pytest.approx(48, rel=0.01)
    assert near.sent == far.sent == GIB
    assert the("send", 8, [0, 5], H100).seconds < the("send", 8, [0, 13], H100).seconds


def test_an_all_to_all_is_as_slow_as_what_leaves_the_node():
    for nodes in (2, 8):
        found = the("all_to_all", 8 * GIB, range(8 * nodes), H100)
        leaving = 8 * GIB * (nodes - 1) / nodes
        assert leaving / found.seconds / GB == pytest.approx(48, rel=0.01)


@given(kinds, sizes, st.integers(2, 16), st.sampled_from([1, 2, 4]), st.booleans())
def test_groups_that_share_cards_send_no_more_than_the_cards_carry(
    kind, nbytes, nodes, cards, whole
):
    model, fabric = H100[0], replace(H100[1], cards=cards)
    ranks = range(0, 8 * nodes, 1 if whole else 8)  # all GPUs, or the first of each
    found = estimate(kind, nbytes, ranks, fabric, model)
    seconds = through_cards(kind, nbytes, ranks, fabric, found.algorithm)
    if whole:  # one group has all cards of its nodes
        assert seconds < found.seconds
    groups = 1 if whole else 8
    leaving = nbytes * SENT[kind](nodes)
    if kind == "all_to_all" and whole:
        leaving *= 8
    carried = seconds * cards * fabric.network.bandwidth
    assert carried >= groups * leaving * (1 - 1e-9)
    alone = through_cards(kind, nbytes, ranks, replace(fabric, cards=8), "Ring")
    assert alone == 0  # each has a card of its own


def test_only_sends_between_equal_places_share_a_card():
    fabric = replace(H100[1], cards=1)
    every, last = (
        through_cards("send", GIB, ranks, fabric, "P2P") for ranks in ((3, 11), (7, 8))
    )
    assert every == pytest.approx(8 * last)


def test_small_tensors_take_fewer_multiprocessors():
    channels = [the("all_reduce", 2**k, range(8), A100).channels for k in range(8, 33)]
    assert channels[0] == 1
    assert channels[-1] == 24
    assert channels == sorted(channels)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("all_redce", 8, range(2)), "no collective 'all_redce'.*mean 'all_reduce'"),
        (("gossip", 8, range(2)), "no collective 'gossip': choose one of all_reduce"),
        (("all_reduce", -1, range(2)), "can't have -1 bytes"),
        (("all_reduce", 8, []), "at least one rank"),
        (("all_reduce", 8, [1, 1]), "1 occurs twice"),
        (("send", 8, range(3)), "between 2 ranks, but got 3"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        the(*arguments, H100)


@given(sizes, groups, machines)
def test_it_chooses_the_fastest_algorithm(nbytes, ranks, machine):
    assume(len(set(ranks)) == len(ranks) > 1)
    chosen = the("all_reduce", nbytes, ranks, machine)
    alone = []
    for algorithm in ("Ring", "Tree", "NVLS", "NVLSTree"):
        try:
            only = estimate(
                "all_reduce", nbytes, ranks, machine[1], machine[0], algorithm
            )
        except ValueError as error:
            assert f"NCCL can't use {algorithm!r}" in str(error)
            assert chosen.algorithm != algorithm
        else:
            assert only.algorithm == algorithm
            alone.append(only)
    assert min(alone).seconds == chosen.seconds
