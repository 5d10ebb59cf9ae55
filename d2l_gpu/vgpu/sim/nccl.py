"""Collectives as NCCL chooses them: which algorithm and protocol, and how long.

NCCL estimates the time of every algorithm with every protocol, and takes the fastest.
We do the same with its own figures, so what follows has the units of its source:
microseconds, and gigabytes per second. All of it is from NVIDIA NCCL 2.30.7, commit
5067397 (2026), which the comments cite by file and function. Nothing was fitted.

An **algorithm** says who sends to whom. In a ring every GPU sends to the next one. A
tree adds up towards its root and sends the sum back, which takes fewer steps. NVLS lets
NVSwitch add (NVLink SHARP), inside a node or, as NVLSTree, with a tree between nodes. A
**protocol** says how data and the signal that it's there travel. Simple sends large
pieces, then a signal. LL sends four bytes of signal with every four of data, so latency
is low and half of the bandwidth is lost. LL128 sends 8 of signal with 120 of data.

What isn't simulated: CollNet (SHARP in the network's switches), PAT, tuner plugins,
symmetric memory, several collectives in one launch, and traffic of others.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from .catalogue import GB, Model, closest
from .fabric import LL, LL128, SIMPLE, Fabric, Group

RING, TREE, NVLS, NVLS_TREE = "Ring", "Tree", "NVLS", "NVLSTree"
DIRECT = "P2P"  # sends and receives, each to its own peer
MICRO = 1e-6
INFINITE = float("inf")


class Estimate(NamedTuple):
    """What a collective takes.

    Attributes:
        seconds: from when the last rank is ready.
        sent: bytes that a rank sends, on average.
        algorithm: ``"Ring"``, ``"Tree"``, ``"NVLS"``, ``"NVLSTree"`` or ``"P2P"``.
        protocol: ``"LL"``, ``"LL128"`` or ``"Simple"``.
        channels: blocks of its kernel, each of which takes one multiprocessor.
    """

    seconds: float
    sent: int
    algorithm: str
    protocol: str
    channels: int


# What a rank sends as a share of the tensor, on average, with anything but NVLS.
SENT = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "broadcast": lambda n: (n - 1) / n,
    "reduce": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "send": lambda n: 1.0,
}

# ---------------------------------------------------------------- figures of tuning.cc
# By capability: Volta and older, Ampere, Hopper, Blackwell (ncclTopoTuneModel).
GENERATIONS = ((0, 0), (8, 0), (9, 0), (10, 0))

# baseLatencies: what a kernel takes beside its steps; no entry, no such combination.
BASE = {
    TREE: {LL: 6.8, LL128: 14.0, SIMPLE: 8.4},
    RING: {LL: 6.6, LL128: 14.0, SIMPLE: 8.4},
    NVLS: {SIMPLE: 0.0},
    NVLS_TREE: {SIMPLE: 0.0},
}

# hwLatencies: of one step, by the kind of hop.
HOPS = {
    "NVLink": {
        TREE: {LL: 0.6, LL128: 1.25, SIMPLE: 4.0},
        RING: {LL: 0.6, LL128: 1.9, SIMPLE: 3.4},
        NVLS: {SIMPLE: 25.0},
        NVLS_TREE: {SIMPLE: 25.0},
    },
    "PCIe": {
        TREE: {LL: 1.0, LL128: 1.9, SIMPLE: 4.0},
        RING: {LL: 1.0, LL128: 2.5, SIMPLE: 5.7},
    },
    "network": {
        TREE: {LL: 5.0, LL128: 8.5, SIMPLE: 14.0},
        RING: {LL: 2.7, LL128: 4.0, SIMPLE: 14.0},
        NVLS_TREE: {SIMPLE: 20.9},
    },
}

# llMaxBws, perChMaxRingLL128Bws, perChMaxTreeLL128Bws, perChMaxTreeBws and
# perChMaxNVLSTreeBws: by generation, each for one node, two, and more.
MOST_LL = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141, 45, 35), (282, 90, 70))
MOST_RING_LL128 = ((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (40.0,) * 3)
MOST_TREE_LL128 = (
    (20.0, 20.0, 20.0),
    (20.0, 20.0, 20.0),
    (36.7, 36.7, 29.0),
    (55.6, 31.67, 20.0),
)
MOST_TREE = (
    (26.5, 18.5, 10.0),
    (24.0, 23.6, 17.8),
    (38.7, 41.4, 36.0),
    (70.0, 42.8, 24.0),
)
MOST_NVLS_TREE = (
    (26.5, 18.5, 10.0),
    (24.0, 23.6, 17.8),
    (0.0, 57.7, 45.5),
    (0.0, 96.0, 80.0),
)
NVLS_SHARE = (0.0, 0.0, 0.85, 0.74)  # nvlsEfficiency

# treeCorrectionFactor: the tenths of its bandwidth that a tree reaches with messages of
# 64 B, 128 B and so on. After these 23 sizes it's all of it.
TREE_TENTHS = {
    LL: "10 10 10 10 9 8 7 7 7 7 6 5 4 4 5 6 7 8 9 10 10 10 10",
    LL128: "10 10 10 10 10 9 8 8 8 7 6 6 6 6 6 6 8 9 9 9 9 10 10",
    SIMPLE: "9 9 9 9 9 9 9 8 7 6 6 5 5 5 5 6 7 8 7 7 8 9 9",
}
TREE_SHARE = {p: [int(x) / 10 for x in s.split()] for p, s in TREE_TENTHS.items()}

# ------------------------------------------------------ figures of other source files
# What NCCL counts of a link, without the overhead of packets (topo.h: NVLinks by
# capability, PCI_BW for 16 lanes of generation 3, which topo.cc scales).
NVLINK = {
    "NVLink2": 6 * 20.0,
    "NVLink3": 12 * 20.0,
    "NVLink4": 18 * 20.6,
    "NVLink5": 18 * 40.1,
}
PCIE = {"PCIe3": 12.0, "PCIe4": 24.0, "PCIe4x8": 12.0, "PCIe5": 48.0}

# The bandwidths of one channel that it tries, in a node and between nodes (search.cc,
# speedArrayIntra and the like).
SLOW = (3, 2.4, 1.2, 0.24, 0.12)
SPEEDS = {
    (0, 0): (
        (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
        (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, *SLOW),
    ),
    (9, 0): (
        (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
        (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, *SLOW),
    ),
    (10, 0): (
        (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
        (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, *SLOW),
    ),
}
SEARCHED = 32  # MAXCHANNELS / 2, the most channels of a search (device.h, init.cc)
HEADS = 32  # NCCL_MAX_NVLS_ARITY (device.h)
NVLS_CHANNELS = {(9, 0): (16, 16), (10, 0): (24, 32)}  # nvls.cc: one node, several
THREADS = {LL: 512, LL128: 640, SIMPLE: 512}  # device.h
LEAST_OF_THREAD = {LL: 8, LL128: 8, SIMPLE: 64}  # bytes (comm.h)
LL_OF_CHANNEL = 16384  # NCCL_P2P_LL_THRESHOLD (enqueue.cc), bytes
PEERS_AT_ONCE = 8  # NCCL_MAX_DEV_WORK_P2P_PER_BATCH (device.h), in one channel
NETWORK_CHANNEL = 14.0  # NCCL_P2P_PER_CHANNEL_NET_BW (paths.cc)


class Graph(NamedTuple):
    """Channels that a search has found: how many, and the bandwidth of each."""

    channels: int
    inside: float
    between: float


class Plan(NamedTuple):
    """What NCCL finds out once for a group of ranks.

    Attributes:
        generation: an index into ``GENERATIONS``.
        kind: of a hop inside a node, a key of ``HOPS``.
        link: what a GPU can send inside the node, per second.
        net: what the cards of a node can send.
        latency: of the network, beside what HOPS says.
        protocols: those that the group can use.
        channels: of rings and trees, in the kernel.
        nvls: channels of NVLS in the kernel.
        graphs: by algorithm.
        overhead: what each step costs at least where some go through the network.
        most_ll: bandwidth that LL reaches.
    """

    generation: int
    kind: str
    link: float
    net: float
    latency: float
    protocols: tuple[str, ...]
    channels: int
    nvls: int
    graphs: dict[str, Graph]
    overhead: float
    most_ll: float


def _search(
    speeds: Sequence[float], room: Callable[[float], int], most: int, total: float
) -> Graph:
    """Find channels: how many, and how fast, so that they carry most together.

    See ncclTopoCompute in search.cc. It builds the channels one by one; here every GPU
    of a node has the same links, so counting is enough.

    Args:
        speeds: bandwidths to try, falling.
        room: how many channels of a given bandwidth fit.
        most: how many channels there may be.
        total: bandwidth that can't be exceeded, so the search ends there.
    """
    best, speed = 0, 0.0
    for tried in speeds:
        if best and tried / speed <= 0.49:
            break
        n = min(room(tried), most)
        if n * tried > best * speed:
            best, speed = n, tried
        if best * speed >= total:
            break
    if not best:  # what NCCL assumes if nothing fits
        best, speed = 1, 0.1
    return Graph(best, speed, speed)


def _raised(
    speeds: Sequence[float], speed: float, most: float, fits: Callable[[float], bool]
) -> float:
    """Return a higher speed of a channel: the next ones are tried as long as they fit.

    Args:
        most: a speed that reaches this isn't raised any further.
    """
    for tried in sorted(s for s in speeds if s > speed):
        if speed >= most or not fits(tried):
            break
        speed = tried
    return speed


@lru_cache(maxsize=1024)
def _plan(group: Group, fabric: Fabric, capability: tuple[int, int], pcie: str) -> Plan:
    """Return what NCCL finds out about a group when its communicator begins."""
    generation = max(i for i, first in enumerate(GENERATIONS) if first <= capability)
    era = max(first for first in SPEEDS if first <= capability)
    several = group.nodes > 1
    nvlink = fabric.wiring != "PCIe" and group.share > 0
    if nvlink:
        counted = NVLINK.get(fabric.link.name, 0.8 * fabric.link.bandwidth / GB)
        link, lane = counted * group.share, counted * group.lane
    else:
        link = lane = PCIE.get(pcie, PCIE["PCIe4"])
    cards, card, latency, overhead = 0, 0.0, 0.0, 0.0
    protocols = (LL, LL128, SIMPLE)
    if several:
        network = fabric.network
        # Cards close to one GPU count as one card. A GPU reaches them through PCIe.
        cards = min(group.cards, group.least)
        card = network.bandwidth / GB * group.cards / cards
        card = min(card, PCIE.get(pcie, card))
        latency, protocols = network.latency / MICRO, network.protocols
        overhead = 2.0 if fabric.amd else 1.0  # getNetOverhead
    if not nvlink or capability < (7, 0):
        protocols = tuple(p for p in protocols if p != LL128)
    speeds = SPEEDS[era][several]
    graphs = _graphs(group, capability, speeds, (link, lane), (cards, card))
    if fabric.wiring == "NVSwitch" and capability >= (9, 0):
        nvls = _nvls(group, speeds, link, card)
        if nvls is not None:
            graphs[NVLS_TREE if several else NVLS] = nvls
    # ncclTopoPostset: a kernel has twice as many channels as the search has found.
    ring = graphs[RING]
    channels = 2 * ring.channels
    if several and capability >= (9, 0) and ring.inside > 45 and channels < 16:
        channels *= 2
    most_ll = MOST_LL[int(fabric.amd) if several else generation]
    return Plan(
        generation,
        "NVLink" if nvlink else "PCIe",
        link,
        cards * card,
        latency,
        protocols,
        channels,
        NVLS_CHANNELS.get(era, (0, 0))[several],
        graphs,
        overhead,
        most_ll[min(group.nodes, 3) - 1],
    )


def _graphs(
    group: Group,
    capability: tuple[int, int],
    speeds: Sequence[float],
    inside: tuple[float, float],
    outside: tuple[int, float],
) -> dict[str, Graph]:
    """Return the channels of rings and trees.

    Args:
        inside: the bandwidth of a GPU's links, and of one path.
        outside: the number of a node's network cards, and the bandwidth of each.
    """
    (link, lane), (cards, card) = inside, outside

    def through(speed: float) -> int:
        """Return how many channels fit through the cards."""
        return cards * int(card / speed) if cards else SEARCHED

    def room(speed: float) -> int:
        if group.most > 1 and speed > lane:
            return 0
        fit = SEARCHED if group.most == 1 else int(link / speed)
        return min(fit, through(speed))

    ring = _search(speeds, room, SEARCHED, link)
    n, speed = ring.channels, ring.inside
    # ncclTopoDupChannels: twice as many channels, each half as fast.
    if speed >= 25 and not (capability >= (9, 0) and speed < 50 and n > 4):
        factor = min(2 * n, SEARCHED) / n
        n, speed = round(n * factor), speed / factor
    speed = _raised(speeds, speed, INFINITE, lambda s: room(s) >= n)
    # Trees have as many channels as rings. They needn't come back to where they began,
    # which leaves more of the links.
    wide = INFINITE
    if group.least > 1:
        wide = min(lane, link * group.least / (group.least - 1) / n)
    fit = (s for s in speeds if s <= wide and through(s) >= n)
    between = next(fit, speed)
    within = between
    if group.least > 1:
        within = _raised(speeds, between, 2 * between, lambda s: s <= wide)
    return {RING: Graph(n, speed, speed), TREE: Graph(n, within, between)}


def _nvls(
    group: Group, speeds: Sequence[float], link: float, card: float
) -> Graph | None:
    """Return the channels of NVLS, each led by one GPU; None if there are too few.

    Every GPU has one share of a channel's traffic, and its leader has two
    (ncclTopoSearchTryNvls).
    """
    several = group.nodes > 1
    heads = min(group.least, HEADS, group.cards if several else HEADS)

    def through(speed: float) -> bool:
        return not several or speed <= card

    def room(speed: float) -> int:
        return int(link / speed - 1) if through(speed) else 0

    if several:
        graph = _search(speeds, room, heads, link)
    else:  # all GPUs have to lead
        speed = next((s for s in speeds if room(s) >= heads), 0.0)
        graph = Graph(heads, speed, speed)
    if graph.channels < 2 or not graph.inside:
        return None
    between = _raised(speeds, graph.between, 2 * graph.inside, through)
    return Graph(graph.channels, graph.inside, between)


def _latency(
    kind: str, algorithm: str, protocol: str, group: Group, plan: Plan
) -> float:
    """Return the microseconds that a collective takes beside its bytes."""
    n, nodes = group.ranks, group.nodes
    inside = HOPS[plan.kind].get(algorithm, {}).get(protocol, 0.0)
    # With one GPU in each node nothing hides the latency of the network.
    between = HOPS["network"].get(TREE if n == nodes else algorithm, {})
    # Simple has to see to it that the data has arrived (flush), which takes once more.
    extra = plan.latency * (2 if protocol == SIMPLE else 1)
    between = between.get(protocol, 0.0) + extra
    base = BASE[algorithm][protocol]
    depth = nodes.bit_length() - 1
    if algorithm == NVLS:
        return inside
    if algorithm == NVLS_TREE:
        return base + inside + 2 * depth * between
    if algorithm == TREE:
        return base + 2 * ((n // nodes - 1) * inside + depth * between)
    if kind in ("broadcast", "reduce"):
        hop = "network" if nodes > 1 else plan.kind
        # Where all rings have the same order, the last GPU gets its first piece soon.
        if nodes == 1 or plan.graphs[RING].channels == 1:
            return base + HOPS[hop][RING][protocol]
        return base + n * HOPS[hop][TREE if protocol == SIMPLE else RING][protocol]
    twice = 2 if kind == "all_reduce" else 1
    through = twice * (nodes - 1)
    least = plan.overhead * (3 if protocol == SIMPLE else 1)
    return base + (twice * (n - 1) - through) * max(inside, least) + through * between


def _bandwidth(
    kind: str, algorithm: str, protocol: str, group: Group, plan: Plan
) -> float:
    """Return the tensor's gigabytes per second that a collective moves at most."""
    n, nodes, g = group.ranks, group.nodes, plan.generation
    graph, size = plan.graphs[algorithm], min(nodes, 3) - 1
    channel = graph.inside if nodes <= 2 else graph.between
    if algorithm in (NVLS, NVLS_TREE):
        inside = graph.inside * NVLS_SHARE[g] * (graph.channels - 1) / graph.channels
        per_node = n / nodes
        inside *= 2 if kind == "all_reduce" else (per_node - 1) / per_node
        channel = min(inside, graph.between)
        if algorithm == NVLS_TREE:
            twice = 2 if nodes == 2 else 1
            channel = min(inside, twice * graph.between, MOST_NVLS_TREE[g][size])
    bus = graph.channels * channel
    if algorithm == RING and protocol == LL:
        bus = min(plan.most_ll, bus / 2)
    if algorithm == RING and protocol == LL128:
        bus = min(0.92 * bus, graph.channels * MOST_RING_LL128[g][size])
    if algorithm == TREE:
        bus = min(0.92 * bus, graph.channels * MOST_TREE[g][size])
        if protocol == LL:
            bus = min(bus / 3.8, plan.most_ll)
        if protocol == LL128:
            share = 7 / 9 if nodes == 1 else 120 / 128
            bus = min(share * bus, graph.channels * MOST_TREE_LL128[g][size])
        if n == nodes:  # a plain tree, as with one GPU in each node
            bus *= 0.85
        return bus / 2
    if algorithm == NVLS and kind != "all_reduce":
        return bus
    steps = {"all_reduce": 2 * (n - 1), "broadcast": n, "reduce": n}.get(kind, n - 1)
    return bus * n / steps


def _algorithms(kind: str, group: Group, plan: Plan) -> list[str]:
    """Return the algorithms that a collective can use (ncclTopoTuneModel)."""
    if kind == "all_reduce":
        return list(plan.graphs)
    several_leaders = kind in ("all_gather", "reduce_scatter") and group.most <= HEADS
    return [RING, NVLS] if several_leaders and NVLS in plan.graphs else [RING]


@lru_cache(maxsize=2**16)
def _choose(
    kind: str, nbytes: int, group: Group, plan_of: tuple, only: str | None
) -> Estimate:
    """Return the fastest way, as updateCollCostTable and topoGetAlgoInfo find it."""
    plan = _plan(group, *plan_of)
    if kind in ("all_to_all", "send"):
        return _direct(kind, nbytes, group, plan)
    best = INFINITE, "", ""
    possible = _algorithms(kind, group, plan)
    if only is not None and only not in possible:
        raise ValueError(
            f"NCCL can't use {only!r} for {kind!r} here{closest(only, possible)}: "
            f"choose one of {', '.join(possible)}."
        )
    for algorithm in possible if only is None else [only]:
        for protocol in BASE[algorithm]:
            if protocol not in plan.protocols:
                continue
            bandwidth = _bandwidth(kind, algorithm, protocol, group, plan)
            latency = _latency(kind, algorithm, protocol, group, plan)
            size = (nbytes >> 6).bit_length() - 1
            if algorithm == TREE and 0 <= size < len(TREE_SHARE[protocol]):
                bandwidth *= TREE_SHARE[protocol][size]
            if (algorithm, protocol, kind) == (RING, SIMPLE, "all_reduce"):
                pieces = plan.channels * group.ranks
                if group.nodes > 1 and nbytes // pieces >= 64:
                    latency *= 1.9 if plan.generation == 0 else 1.4
            best = min(
                best, (latency + nbytes / (1000 * bandwidth), algorithm, protocol)
            )
    time, algorithm, protocol = best
    sent = SENT[kind](group.ranks) * nbytes
    if algorithm in (NVLS, NVLS_TREE):
        # The switch reads every GPU's tensor, or gets each GPU's part of the result.
        whole, part = nbytes, nbytes / group.ranks
        sent = {"all_reduce": whole + part, "all_gather": part}.get(kind, whole)
    channels = _channels(algorithm, protocol, nbytes, group, plan)
    return Estimate(time * MICRO, round(sent), algorithm, protocol, channels)


def _channels(
    algorithm: str, protocol: str, nbytes: int, group: Group, plan: Plan
) -> int:
    """Return how many blocks a kernel has: fewer if they'd have little to do."""
    if algorithm in (NVLS, NVLS_TREE):
        return plan.nvls
    threads = THREADS[protocol]
    ring = plan.graphs[RING]
    if (algorithm, protocol) == (RING, SIMPLE) and ring.inside * ring.channels <= 12:
        threads = 256
    least = threads * LEAST_OF_THREAD[protocol]
    if (algorithm, protocol) == (RING, LL):
        least *= group.ranks
    return max(1, min(plan.channels, nbytes // least))


def _direct(kind: str, nbytes: int, group: Group, plan: Plan) -> Estimate:
    """Return what sends and receives take, each straight to its peer.

    NCCL has no estimate of these, because it has nothing to choose. Ours is one hop of
    a ring for each round of peers, and the bytes at the bandwidth that NCCL counts.
    """
    n, nodes = group.ranks, group.nodes
    away = (n - group.most) / n if kind == "all_to_all" else float(nodes > 1)
    inside = (1 if kind == "send" else (n - 1) / n) - away
    each = plan.net / group.most if kind == "all_to_all" else plan.net
    peers = 1 if kind == "send" else n - 1
    most = 2 * max(1, round(plan.link / 20))
    if nodes > 1:
        most = max(2, -(-int(each) // int(NETWORK_CHANNEL)))
    channels = 1 << (plan.channels - 1).bit_length()
    per_peer = min(channels, 1 << (most - 1).bit_length())
    while per_peer > 1 and per_peer * -(-peers // PEERS_AT_ONCE) > channels:
        per_peer //= 2
    few = nbytes * (inside + away) / peers <= per_peer * LL_OF_CHANNEL
    protocol = LL if few and LL in plan.protocols else SIMPLE
    hop = HOPS["network" if nodes > 1 else plan.kind][RING][protocol] + plan.latency
    rounds = -(-peers * per_peer // (channels * PEERS_AT_ONCE))
    time = BASE[RING][protocol] + rounds * hop
    double = 2 if protocol == LL else 1
    moving = inside / plan.link
    if away:
        moving = max(moving, away / each)
    time += double * nbytes * moving / 1000
    sent = round(nbytes * (inside + away))
    used = min(channels, per_peer * peers)
    return Estimate(time * MICRO, sent, DIRECT, protocol, used)


def through_cards(
    kind: str, nbytes: int, ranks: Sequence[int], fabric: Fabric, algorithm: str
) -> float:
    """Return the seconds in which the bytes of groups go through cards that they share.

    ``estimate`` takes a group to be alone, as NCCL does. If a node has fewer cards than
    GPUs, there may be groups like it beside it; see ``Fabric.crowd``. Of sends, there
    are only if sender and receiver have the same place in their nodes, as where a
    pipeline's stage is a whole node.

    Args:
        algorithm: what ``estimate`` has found.
    """
    if fabric.cards >= fabric.gpus:
        return 0.0
    group = fabric.group(ranks)
    if group.nodes == 1:
        return 0.0
    crowd = fabric.crowd(ranks)
    if kind == "send":
        crowd = crowd if (ranks[0] - ranks[1]) % fabric.gpus == 0 else 1.0
        leaving = 1.0
    elif kind == "all_to_all":
        leaving = group.least * (group.ranks - group.most) / group.ranks
    else:
        leaving = SENT[kind](group.ranks if algorithm == RING else group.nodes)
    return crowd * leaving * nbytes / (group.cards * fabric.network.bandwidth)


def estimate(
    kind: str,
    nbytes: int,
    ranks: Sequence[int],
    fabric: Fabric,
    model: Model,
    algorithm: str | None = None,
) -> Estimate:
    """Return how NCCL does a collective, and how long that takes.

    Args:
        kind: a key of ``SENT``: ``"all_reduce"``, ``"reduce_scatter"``,
            ``"all_gather"``, ``"broadcast"``, ``"reduce"``, ``"all_to_all"`` or
            ``"send"``, from one rank to another.
        nbytes: size of the whole tensor: what goes in, or what comes out after
            gathering.
        ranks: of the group, by their numbers in the whole cluster.
        algorithm: the only one that NCCL may use, as with ``NCCL_ALGO``; default: for
            all-reduces, the fabric's. All-to-all and sends have none to choose.

    Raises:
        ValueError: an unknown kind, a negative size, no ranks or one twice, more or
            fewer than two ranks for ``"send"``, or an algorithm that can't be used for
            this collective on these ranks.
    """
    if kind not in SENT:
        raise ValueError(
            f"There is no collective {kind!r}{closest(kind, SENT)}: choose one of "
            f"{', '.join(SENT)}."
        )
    if nbytes < 0:
        raise ValueError(f"A tensor can't have {nbytes} bytes.")
    group = fabric.group(ranks)
    if kind == "send" and group.ranks != 2:
        raise ValueError(f"A send is between 2 ranks, but got {group.ranks}.")
    if group.ranks == 1 or nbytes == 0:
        return Estimate(0.0, 0, RING, SIMPLE, 0)
    if algorithm is None and kind == "all_reduce":
        algorithm = fabric.algorithm
    plan_of = fabric, model.capability, model.link
    return _choose(kind, nbytes, group, plan_of, algorithm)


def estimate_beside_others(
    kind: str, nbytes: int, ranks: Sequence[int], fabric: Fabric, model: Model
) -> Estimate:
    """Return how a group does a collective while groups like it do the same.

    NCCL chooses as if the group were alone, but it gets only its share of the network
    cards; see ``through_cards``. Arguments and errors are those of ``estimate``.
    """
    found = estimate(kind, nbytes, ranks, fabric, model)
    seconds = through_cards(kind, nbytes, ranks, fabric, found.algorithm)
    return found._replace(seconds=max(found.seconds, seconds))
