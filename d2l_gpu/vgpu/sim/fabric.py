"""What connects GPUs: links inside a node, network cards between nodes.

A ``Fabric`` says how GPUs are wired, and what a group of them can use of it. It knows
nothing of algorithms: ``nccl.py`` chooses those. Here a node is a domain of NVLink: a
DGX or HGX with 8 GPUs, or a rack of GB200 NVL72 with 72.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from .catalogue import GB, LINKS, Link, Model, closest

LL, LL128, SIMPLE = "LL", "LL128", "Simple"


@dataclass(frozen=True)
class Network:
    """What one network card of a node does.

    Attributes:
        bandwidth: bytes per second in each direction.
        latency: seconds that it adds to what NCCL assumes for every network, as the
            card's driver tells NCCL.
        protocols: those of NCCL that it carries. LL128 needs a card that reads the
            GPU's memory itself (GPUDirect RDMA) and keeps the order of 128 bytes.
        cards: that a node with 8 GPUs has, as the source says; 8 if it doesn't.
    """

    name: str
    bandwidth: float
    latency: float
    protocols: tuple[str, ...]
    source: str
    cards: int = 8


_ALL = (LL, LL128, SIMPLE)
_IB = (
    "latency: NVIDIA NCCL, src/transport/net_ib/init.cc (commit 5067397, 2026): not set"
)
_TCP = (
    "latency: NVIDIA NCCL, src/transport/net_socket.cc (commit 5067397, 2026): not "
    "set; through the host's memory, so without LL128 (src/graph/tuning.cc)"
)
_EFA = (
    "latency: aws-ofi-nccl, src/platform-aws.cpp (2025); that LL and LL128 need writes "
    "in order, or NCCL is told to use Simple alone: the same file"
)

NETWORKS: dict[str, Network] = {
    network.name: network
    for network in (
        Network("HDR", 25 * GB, 0, _ALL, f"NVIDIA ConnectX-6 data sheet; {_IB}"),
        Network("NDR", 50 * GB, 0, _ALL, f"NVIDIA ConnectX-7 data sheet; {_IB}"),
        Network("XDR", 100 * GB, 0, _ALL, f"NVIDIA ConnectX-8 data sheet; {_IB}"),
        Network("RoCE 100", 12.5 * GB, 0, _ALL, f"100 Gbit/s; {_IB}"),
        Network("RoCE 200", 25 * GB, 0, _ALL, f"200 Gbit/s; {_IB}"),
        Network("RoCE 400", 50 * GB, 0, _ALL, f"400 Gbit/s; {_IB}"),
        Network("Ethernet 25", 3.125 * GB, 0, (LL, SIMPLE), f"25 Gbit/s; {_TCP}"),
        Network("Ethernet 100", 12.5 * GB, 0, (LL, SIMPLE), f"100 Gbit/s; {_TCP}"),
        Network(
            "EFA p4d",
            12.5 * GB,
            75e-6,
            (SIMPLE,),
            f"AWS EC2 P4: 4 cards of 100 Gbit/s; {_EFA}",
            cards=4,
        ),
        Network(
            "EFA p5",
            12.5 * GB,
            75e-6,
            _ALL,
            f"AWS EC2 P5: 32 cards of 100 Gbit/s; {_EFA}",
            cards=32,
        ),
    )
}


def network(name: str) -> Network:
    """Return the network with this name.

    Raises:
        ValueError: there is none.
    """
    if name not in NETWORKS:
        raise ValueError(
            f"There is no network {name!r} in the catalogue{closest(name, NETWORKS)}: "
            f"choose one of {', '.join(NETWORKS)}, or describe your own as a Network."
        )
    return NETWORKS[name]


# How GPUs of a node are wired: through NVSwitch; each with each other by the same
# number of NVLinks; as the cube mesh of a DGX-1; through PCIe.
WIRINGS = ("NVSwitch", "mesh", "DGX-1", "PCIe")

# NVLinks between two GPUs of a DGX-1 with V100, by their numbers in a node; other pairs
# have none. NVIDIA DGX-1 With Tesla V100 System Architecture white paper (2017).
CUBE = {
    frozenset(pair): links
    for links, pairs in (
        (1, "01 02 13 26 37 45 46 57"),
        (2, "03 04 12 15 23 47 56 67"),
    )
    for pair in pairs.split()
}


class Group(NamedTuple):
    """What ranks of one collective have to do with each other, on a fabric.

    Attributes:
        ranks: how many there are.
        nodes: how many nodes they span.
        least: ranks on the node that has the fewest.
        most: ranks on the node that has the most.
        cards: network cards that the node with the fewest can drive, 0 in one node.
        share: of a GPU's NVLink bandwidth, what leads to the group's other GPUs.
        lane: the share of it that one path through them has.
    """

    ranks: int
    nodes: int
    least: int
    most: int
    cards: int
    share: float
    lane: float


@dataclass(frozen=True)
class Fabric:
    """How the GPUs of a cluster are connected.

    Attributes:
        gpus: in a node. Rank r is GPU r % gpus of node r // gpus.
        link: between the GPUs of a node.
        wiring: one of ``WIRINGS``.
        network: of one card, None if there's only one node.
        cards: network cards in a node, shared evenly between its GPUs.
        amd: whether the hosts have AMD's processors, for which NCCL has figures of
            their own, and not Intel's.
        algorithm: the only one that NCCL may use for all-reduces, such as ``"Tree"``,
            as with ``NCCL_ALGO=allreduce:tree``; None if it chooses.
    """

    gpus: int = 8
    link: Link = LINKS["NVLink4"]
    wiring: str = "NVSwitch"
    network: Network | None = None
    cards: int = 8
    amd: bool = False
    algorithm: str | None = None

    def __post_init__(self):
        for what, n in (("GPU", self.gpus), ("network card", self.cards)):
            if n < 1:
                raise ValueError(f"A node must have at least 1 {what}, but got {n}.")
        if self.wiring not in WIRINGS:
            raise ValueError(
                f"There is no wiring {self.wiring!r}{closest(self.wiring, WIRINGS)}: "
                f"choose one of {', '.join(WIRINGS)}."
            )
        if self.wiring == "DGX-1" and self.gpus != 8:
            raise ValueError(f"A DGX-1 has 8 GPUs, but got {self.gpus}.")

    def group(self, ranks: Iterable[int]) -> Group:
        """Return what a group of ranks can use.

        Args:
            ranks: their numbers in the whole cluster, in any order.

        Raises:
            ValueError: there are none, one is negative, or one occurs twice; or they
                span nodes and the fabric has no network.
        """
        return _group(self, tuple(ranks))

    def crowd(self, ranks: Iterable[int]) -> float:
        """Return how many groups use the same network cards at the same time.

        It's assumed that the other GPUs of the nodes do what those of this group do,
        in groups of their own, as in a mesh of shards and replicas. The result is 1 if
        each GPU has a card of its own, or if all GPUs of a node belong to the group.

        Args:
            ranks: of one group that spans nodes.
        """
        group = self.group(ranks)
        return max(1.0, self.gpus / self.cards * group.cards / group.least)

    def _cards(self, gpus: list[int]) -> int:
        """Return how many cards are close to some GPUs of a node."""
        if self.cards >= self.gpus:
            return len(gpus) * (self.cards // self.gpus)
        return len({gpu * self.cards // self.gpus for gpu in gpus})

    def _links(self, gpus: list[int]) -> tuple[float, float]:
        """Return the share of NVLink bandwidth that GPUs of a node have in common.

        The second number is the share that one path has. Both are 0 if there's none.
        """
        if len(gpus) == 1 or self.wiring in ("NVSwitch", "PCIe"):
            return 1.0, 1.0
        if self.wiring == "mesh":
            lane = 1 / (self.gpus - 1)
            return (len(gpus) - 1) * lane, lane
        links = [
            [CUBE[pair] for b in gpus if (pair := frozenset(f"{a}{b}")) in CUBE]
            for a in gpus
        ]
        if min(map(len, links)) < min(2, len(gpus) - 1):
            return 0.0, 0.0  # no ring leads through all of them
        return min(map(sum, links)) / 6, 1 / 6


@lru_cache(maxsize=4096)
def _group(fabric: Fabric, ranks: tuple[int, ...]) -> Group:
    if not ranks:
        raise ValueError("A collective needs at least one rank, but got none.")
    if min(ranks) < 0:
        raise ValueError(f"Ranks must not be negative, but got {min(ranks)}.")
    if len(set(ranks)) < len(ranks):
        twice = next(r for r in ranks if ranks.count(r) > 1)
        raise ValueError(f"Each rank must occur once, but {twice} occurs twice.")
    nodes = defaultdict(list)
    for rank in ranks:
        nodes[rank // fabric.gpus].append(rank % fabric.gpus)
    if len(nodes) > 1 and fabric.network is None:
        raise ValueError(
            f"These ranks are on {len(nodes)} nodes, but the fabric has no network: "
            "name one, such as network=NETWORKS['NDR']."
        )
    sizes = [len(gpus) for gpus in nodes.values()]
    share, lane = min(map(fabric._links, nodes.values()))
    cards = min(map(fabric._cards, nodes.values())) if len(nodes) > 1 else 0
    return Group(len(ranks), len(nodes), min(sizes), max(sizes), cards, share, lane)


# ------------------------------------------------------------------ usual clusters

_network_named = network  # where an argument has the function's name

# What connects the GPUs of a node, by the first letters of their model.
NEAR = {
    "V100": "NVLink2",
    "A100": "NVLink3",
    "H100 PCIe": "PCIe5",
    "H100": "NVLink4",
    "H200": "NVLink4",
    "B200": "NVLink5",
    "GB200": "NVLink5",
}


def link_of(model: str | Model) -> str:
    """Return the name of what usually connects the GPUs of a node."""
    name = model.name if isinstance(model, Model) else str(model)
    for start, link in NEAR.items():
        if name.startswith(start):
            return link
    return model.link if isinstance(model, Model) else "PCIe4"


def fabric_of(
    nodes: int,
    gpus: int,
    model: Model,
    link: Link,
    network: str | Network | None = None,
    cards: int | None = None,
    wiring: str | None = None,
    algorithm: str | None = None,
) -> Fabric:
    """Return what usually connects the GPUs of a cluster, unless something is named.

    Args:
        gpus: in a node.
        link: between the GPUs of a node.
        network, cards, wiring, algorithm: as in ``Fabric``.
    """
    if nodes > 1 and network is None:
        network = "HDR" if model.name.startswith(("V100", "A100")) else "NDR"
    if isinstance(network, str):
        network = _network_named(network)
    if wiring is None:
        wiring = "NVSwitch" if link.name.startswith("NVLink") else "PCIe"
        if link.name == "NVLink2" and gpus == 8:
            wiring = "DGX-1"
    if cards is None:
        # Part of a node has its part of the cards.
        cards = max(1, gpus * network.cards // 8) if network else gpus
    return Fabric(gpus, link, wiring, network, cards, algorithm=algorithm)
