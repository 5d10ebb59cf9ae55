"""What a group of GPUs can use of links and network cards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim.catalogue import LINKS
from d2l_gpu.vgpu.sim.fabric import NETWORKS, Fabric, network
from tests.helpers import properties  # noqa: F401

NDR = NETWORKS["NDR"]


def a_fabric(**kwargs) -> Fabric:
    return Fabric(**{"link": LINKS["NVLink4"], "network": NDR} | kwargs)


@given(st.sets(st.integers(0, 63), min_size=1), st.integers(1, 16), st.randoms())
def test_a_group_is_counted_by_nodes_in_whatever_order(ranks, gpus, random):
    ranks, fabric = list(ranks), a_fabric(gpus=gpus)
    sizes = [sum(r // gpus == node for r in ranks) for node in range(64)]
    sizes = [size for size in sizes if size]
    group = fabric.group(ranks)
    assert (group.ranks, group.nodes) == (len(ranks), len(sizes))
    assert (group.least, group.most) == (min(sizes), max(sizes))
    assert (group.cards == 0) == (group.nodes == 1)
    random.shuffle(ranks)
    assert fabric.group(ranks) == group


@pytest.mark.parametrize(
    ("cards", "ranks", "driven"),
    [
        (8, range(0, 64, 8), 1),  # one GPU of each node, the rest is tensor-parallel
        (8, range(16), 8),
        (8, [0, 1, 2, 8], 1),  # uneven: the second node has one
        (4, [0, 1, 8, 9], 1),  # these two share a card
        (4, [0, 4, 8, 12], 2),
        (1, range(16), 1),
        (32, [0, 8], 4),
    ],
)
def test_gpus_drive_the_cards_close_to_them(cards, ranks, driven):
    assert a_fabric(cards=cards).group(ranks).cards == driven


@pytest.mark.parametrize(
    ("cards", "ranks", "crowd"),
    [
        (8, range(0, 32, 8), 1),
        (32, [0, 8], 1),
        (4, range(0, 32, 8), 2),
        (4, [0, 1, 8, 9], 1),  # both GPUs of a card are in the group
        (1, range(0, 32, 8), 8),
        (1, [0, 1, 8, 9], 4),
        (1, range(32), 1),
    ],
)
def test_groups_crowd_where_gpus_share_a_card(cards, ranks, crowd):
    assert a_fabric(cards=cards).crowd(ranks) == crowd


@pytest.mark.parametrize(
    ("wiring", "ranks", "links"),
    [
        ("NVSwitch", [0, 5], 6),
        ("mesh", range(8), 6),
        ("mesh", [2, 3], 6 / 7),
        ("DGX-1", range(8), 6),
        ("DGX-1", [0, 1, 2, 3], 4),
        ("DGX-1", [0, 3], 2),
        ("DGX-1", [0, 1], 1),
        ("DGX-1", [0, 7], 0),  # only through PCIe
        ("DGX-1", [0, 3, 4], 0),  # 3 and 4 have no link that would close a ring
    ],
)
def test_links_lead_to_the_gpus_of_the_group(wiring, ranks, links):
    group = a_fabric(link=LINKS["NVLink2"], wiring=wiring).group(ranks)
    assert 6 * group.share == pytest.approx(links)


def test_every_gpu_of_a_dgx_1_has_six_links():
    fabric = a_fabric(link=LINKS["NVLink2"], wiring="DGX-1")
    for gpu in range(8):
        alone = [fabric.group([gpu, other]).share for other in range(8) if other != gpu]
        assert sum(alone) == pytest.approx(1)


def test_networks_have_sources_and_names():
    for name, entry in NETWORKS.items():
        assert network(name) is entry
        assert entry.name == name
        assert entry.source
        assert "Simple" in entry.protocols


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: network("NDX"), "no network 'NDX'.*did you mean 'NDR'"),
        (lambda: network("token ring"), "no network 'token ring' in the catalogue:"),
        (lambda: a_fabric(wiring="nvswich"), "did you mean 'NVSwitch'"),
        (lambda: a_fabric(wiring="DGX-1", gpus=4), "A DGX-1 has 8 GPUs, but got 4"),
        (lambda: a_fabric(gpus=0), "at least 1 GPU, but got 0"),
        (lambda: a_fabric(cards=0), "at least 1 network card, but got 0"),
        (lambda: a_fabric().group([]), "at least one rank, but got none"),
        (lambda: a_fabric().group([1, 2, 1]), "once, but 1 occurs twice"),
        (lambda: a_fabric().group([0, -1]), "not be negative, but got -1"),
        (lambda: a_fabric(network=None).group([0, 8]), "on 2 nodes, but .* no network"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
