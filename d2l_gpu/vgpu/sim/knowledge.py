"""What a host knows to be over while no time is known, from the order of its notes.

A stream does its work in order. It may wait for a moment in another stream, and the
host for one in any: then everything that came before is over, too. (These are vector
clocks: C. Fidge, Timestamps in message-passing systems, 1988.)
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from .clock import HOST, Moment
from .commands import Collective, CopyCommand, HostWaits, Record, StreamWaits

# How many notes of each stream are known to be over, by device and stream.
Known = dict[tuple[int, int], int]


class Knowledge:
    """What the host knows to be over."""

    def __init__(self):
        self._seen = 0
        self._host: Known = {}
        self._streams: dict[tuple[int, int], Known] = defaultdict(dict)
        self._moments: dict[int, tuple[tuple[int, int], Known]] = {}

    def learn(self, notes: Iterable[tuple]) -> None:
        """Take in what the host has issued, in its order."""
        for command, index, stream, _ in notes:
            self._seen += 1
            where = index, stream
            if isinstance(command, Record):
                self._moments[id(command.moment)] = where, self._at(where)
            elif isinstance(command, Collective):
                queue = index, command.queue
                known = self._at(where)
                _merge(self._streams[queue], known)
                self._moments[id(command.done)] = queue, self._at(queue)
                if not command.beside:
                    _merge(self._streams[where], self._at(queue))
            elif isinstance(command, StreamWaits):
                _merge(self._streams[where], self._of(command.moment))
            elif isinstance(command, HostWaits) and command.moment is not None:
                _merge(self._host, self._of(command.moment))
            elif isinstance(command, HostWaits):
                for i, s in list(self._streams):
                    if i in command.indices and command.stream in (None, s):
                        _merge(self._host, self._at((i, s)))
            elif isinstance(command, CopyCommand):
                ends = zip(
                    (command.source, command.target), command.streams, strict=True
                )
                for end in ends:
                    if command.blocking and end[0] != HOST:
                        _merge(self._host, self._at(end))

    def is_over(self, moment: Moment) -> bool:
        """Whether the host knows that a moment has passed."""
        if id(moment) not in self._moments:
            return False
        where, known = self._moments[id(moment)]
        return known[where] <= self._host.get(where, 0)

    def _at(self, where: tuple[int, int]) -> Known:
        """Return what is over once a stream has done what was issued to it so far."""
        return self._streams[where] | {where: self._seen}

    def _of(self, moment: Moment) -> Mapping[tuple[int, int], int]:
        return self._moments.get(id(moment), (None, {}))[1]


def _merge(known: Known, more: Mapping[tuple[int, int], int]) -> None:
    for where, place in more.items():
        known[where] = max(known.get(where, 0), place)
