"""What a step of a cluster took its time for: the chain of work that nothing shortens.

We go back from the end. Work began when something else ended: an earlier kernel, or a
collective for which the last rank was ready just then. If nothing ended at that time,
the host hadn't issued the work yet.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping

from .clock import HOST, PICO, Span
from .cluster import Meeting, Recorder
from .table import Table
from .units import time_text

COMPUTING, HOSTED = "computing", "issuing work on the host"


def critical_path(
    clocks: Mapping[int, Recorder], begin: int, end: int
) -> list[tuple[str, int, float]]:
    """Return what the time between two moments was for.

    Args:
        clocks: of the ranks, with the spans of that time.
        begin, end: in picoseconds; the path begins with what ends last.
    Returns:
        kinds of work, each with the rank that did it and its seconds on the path.
    """
    ends: dict[int, dict[int, list[Span]]] = {}
    for rank, clock in clocks.items():
        ends[rank] = defaultdict(list)
        for span in clock.spans:
            if span[0] != HOST:
                ends[rank][span[3]].append(Span._make(span))
    times = {rank: sorted(found) for rank, found in ends.items()}
    found: Counter[tuple[str, int]] = Counter()
    rank = max(clocks, key=lambda r: max((t for t in times[r] if t <= end), default=0))
    now = end
    while now > begin:
        spans = ends[rank].get(now)
        if spans is None:
            place = bisect_left(times[rank], now)
            before = times[rank][place - 1] if place else begin
            found[HOSTED, rank] += now - max(before, begin)
            now = before
            continue
        # If several end at the same time, the longest explains most.
        span = min(spans, key=lambda span: (span.start, span.lane))
        name = COMPUTING if span.lane == "compute" else span.name
        found[name, rank] += now - max(span.start, begin)
        now = span.start
        if isinstance(span.work, Meeting):
            rank = span.work.last
    return [(name, rank, time / PICO) for (name, rank), time in found.most_common()]


def path_table(clocks: Mapping[int, Recorder], begin: int, end: int) -> Table:
    """Return the critical path as a table: kinds of work, of all ranks together.

    Arguments are those of ``critical_path``.
    """
    total: Counter[str] = Counter()
    for name, _, seconds in critical_path(clocks, begin, end):
        total[name] += seconds
    whole = (end - begin) / PICO
    return Table(
        ["critical path", "time", "share"],
        [
            [name, time_text(seconds), f"{seconds / whole:.0%}"]
            for name, seconds in total.most_common()
        ],
        ["time", "share"],
    )
