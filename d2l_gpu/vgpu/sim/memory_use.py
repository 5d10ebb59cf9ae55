"""What a device's memory is used for while a program runs: a record over time.

A record hears of each account that begins, changes or ends. What an account is for
often shows only later: a result of backward is a gradient once it's some parameter's
``.grad``. So each account has one category, from its first byte to its last, and it's
known at the end. ``categories.py`` finds it out for PyTorch, and calls ``tag``.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from .clock import PICO, Clock, queues
from .machine import Machine
from .memory import Block
from .table import Table
from .units import size_text, time_text
from .words import shown

PARAMETERS, BUFFERS, GRADIENTS = "parameters", "buffers", "gradients"
OPTIMIZER_STATE, ACTIVATIONS = "optimizer state", "activations"
OTHER, TEMPORARY = "other", "temporary"

# From what stays to what comes and goes; pictures stack them in this order.
CATEGORIES = (
    PARAMETERS,
    BUFFERS,
    OPTIMIZER_STATE,
    OTHER,
    GRADIENTS,
    ACTIVATIONS,
    TEMPORARY,
)

# Of two categories that an account could have, it has the one that comes first here.
PRECEDENCE = (PARAMETERS, BUFFERS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS, None)

# The phases of a training step. Recomputing is going forward again during backward.
FORWARD, BACKWARD, RECOMPUTING = "forward", "backward", "recomputing"
STEP, BETWEEN = "optimizer", ""

_FINDINGS = {
    PARAMETERS: "Parameters make up {share} of the peak of {size}",
    BUFFERS: "Buffers make up {share} of the peak of {size}",
    OPTIMIZER_STATE: "Optimizer state makes up {share} of the peak of {size}",
    OTHER: "Other memory makes up {share} of the peak of {size}",
    GRADIENTS: "Gradients make up {share} of the peak of {size}",
    ACTIVATIONS: "Activations make up {share} of the peak of {size}",
    TEMPORARY: "Temporary memory makes up {share} of the peak of {size}",
}

MOST_ROWS = 12  # of the table of modules that ``repr`` shows


class Holding:
    """An account as a record sees it.

    Attributes:
        nbytes: the bytes that it holds now.
        category: one of ``CATEGORIES``, None as long as nothing is known.
        owner: the name of the module that it belongs to.
        phase: the number of the phase in which it last got memory.
    """

    __slots__ = ("category", "nbytes", "owner", "phase")

    def __init__(self, nbytes: int = 0):
        self.nbytes, self.category, self.owner, self.phase = nbytes, None, "", 0


class Change:
    """A holding grows or shrinks. To the clock it's a command that takes no time.

    Attributes:
        nbytes: by how much.
        phase: the number of the phase.
        time: when the device has done the work that was issued before, in picoseconds.
    """

    __slots__ = ("holding", "nbytes", "phase", "time")

    def __init__(self, holding: Holding, nbytes: int, phase: int):
        self.holding, self.nbytes, self.phase, self.time = holding, nbytes, phase, 0

    def note(self, clock: Clock, index: int) -> None:
        """Let the clock note this change, or tell its time if nothing else is noted."""
        stream = queues.of.get(index, 0)
        try:
            # By the thread of the note before: one by another thread could change how
            # the threads' times depend on each other. And not by Clock.note, which may
            # work off everything, for which we'd have to wait with the machine locked.
            clock.notes.append((self, index, stream, clock.notes[-1][3]))
        except IndexError:
            thread = queues.thread if queues.thread in clock.hosts else clock.main
            self.work_off(clock, index, stream, thread)

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        self.time = max(clock.hosts[thread], clock.end_of(index, stream))


class MemoryUse:
    """What one device's memory is used for, from ``start`` to ``stop``.

    Bytes are those of whole blocks, as ``memory_allocated`` counts them. Moments are
    those at which the device has done the work that was issued before.

    Args:
        index: of the device.
        label: what the picture says below its title: the program and the device.
        place: returns the phase and the module in which the calling thread is.
        learn: calls ``tag`` with everything that it knows now.
    Attributes:
        seconds: the simulated seconds that were recorded.
    """

    def __init__(
        self,
        machine: Machine,
        index: int,
        label: str,
        place: Callable[[], tuple[str, str]] = lambda: (BETWEEN, ""),
        learn: Callable[[], None] = lambda: None,
    ):
        self.machine, self.index, self.label = machine, index, label
        self._place, self._learn = place, learn
        self._living: dict[int, Holding] = {}
        self._before: list[tuple[Holding, int]] = []
        self._changes: list[Change] = []
        self._phases = [BETWEEN, BETWEEN]  # the first is the time before
        self._begin = self._end = 0
        self._stopped = False

    # -------------------------------------------------------------- recording

    def start(self) -> None:
        machine = self.machine
        self._begin = self._since = self._now()
        with machine.lock:
            for account, block in machine.blocks.items():
                index, _, nbytes, *_ = Block._make(block)
                if index == self.index:
                    self._living[account] = Holding(nbytes)
            self._before = [(h, h.nbytes) for h in self._living.values()]
            machine.observers += (self,)
            self._learn()

    def stop(self) -> None:
        machine = self.machine
        with machine.lock:
            self._learn()
            machine.observers = tuple(x for x in machine.observers if x is not self)
            self._stopped = True
            self._living.clear()  # other accounts may get the same identities
            self._place = self._learn = None
        self._end = self._now()

    def __call__(self, account: int, index: int, nbytes: int | None) -> None:
        """Hear that an account holds nbytes from now on, or ends. See ``Machine``."""
        if index != self.index:
            return
        if account not in self._living and not nbytes:
            return
        owner = self._enter_phase()
        if nbytes is None:
            holding = self._living.pop(account)
        else:
            holding = self._living.setdefault(account, Holding())
        grown = (nbytes or 0) - holding.nbytes
        if not grown:
            return
        if not holding.nbytes:
            holding.phase = len(self._phases) - 1
            if holding.category is None:
                holding.owner = owner
        elif not nbytes and holding.category is None and not self._is_recent(holding):
            holding.category = OTHER
        self._record(holding, grown)

    def _record(self, holding: Holding, grown: int) -> None:
        holding.nbytes += grown
        change = Change(holding, grown, len(self._phases) - 1)
        self._changes.append(change)
        if self.machine.clock is not None:
            change.note(self.machine.clock, self.index)

    def replay(self, holding: Holding | None, grown: int, phase: str = "") -> None:
        """Take down a change that is known from a recording, in the latest phase.

        Args:
            holding: None if there's no change, but a phase begins.
        """
        if holding is None:
            self._phases.append(phase)
            holding = Holding()
        self._record(holding, grown)

    def moved(self) -> None:
        """Hear that the program may have entered another phase."""
        with self.machine.lock:
            before = len(self._phases)
            self._enter_phase()
            if len(self._phases) > before:
                self._record(Holding(), 0)

    def _enter_phase(self) -> str:
        """Begin another phase if the program has, and return the module it's in."""
        phase, owner = self._place()
        last = self._phases[-1]
        if phase != last:
            begins = phase in (BACKWARD, RECOMPUTING) and last in (FORWARD, BETWEEN)
            if begins or last == RECOMPUTING:
                self._keep()
            self._phases.append(phase)
        return owner

    def keep(self) -> None:
        """Learn that what was made in this phase and lives is kept for backward."""
        with self.machine.lock:
            self._enter_phase()
            self._keep()

    def _keep(self) -> None:
        phase = len(self._phases) - 1
        for holding in self._living.values():
            if holding.phase == phase and holding.category is None:
                holding.category = ACTIVATIONS

    def tag(self, account: int, category: str, owner: str | None = None) -> None:
        """Learn what an account is for, and the module that it belongs to."""
        holding = self._living.get(account)
        if holding is None:
            return
        if PRECEDENCE.index(category) < PRECEDENCE.index(
            None if holding.category == OTHER else holding.category
        ):
            holding.category = category
            if owner is not None:
                holding.owner = owner

    def owner_of(self, account: int) -> str | None:
        holding = self._living.get(account)
        return None if holding is None else holding.owner

    def largest(self, index: int) -> str:
        """Return a sentence for an error: the three categories that take most now."""
        if index != self.index:
            return ""
        with self.machine.lock:
            self._learn()
            self._enter_phase()
            now = dict.fromkeys(CATEGORIES, 0)
            for holding in self._living.values():
                now[self._category(holding)] += holding.nbytes
        found = [name for name in CATEGORIES if now[name]]
        found = sorted(found, key=lambda name: -now[name])[:3]
        if not found:
            return ""
        return f"Largest: {', '.join(f'{x} {size_text(now[x])}' for x in found)}. "

    # -------------------------------------------------------------- results

    def between(self, begin: int, end: int) -> None:
        """Show only what was recorded between two times, in picoseconds."""
        self._begin, self._end, self._since = begin, end, 0

    @property
    def seconds(self) -> float:
        end = self._end if self._stopped else self._now()
        return (end - self._begin) / PICO

    @property
    def peak(self) -> dict[str, int]:
        """The bytes of each category when most memory was in use."""
        _, columns = self.series()
        at = _highest(columns)
        return {name: column[at] for name, column in columns.items()}

    @property
    def peak_seconds(self) -> float:
        """The seconds after which most memory was in use."""
        times, columns = self.series()
        return times[_highest(columns)]

    def at(self, seconds: float) -> dict[str, int]:
        """Return the bytes of each category after so many seconds."""
        times, columns = self.series()
        i = max(bisect_right(times, seconds) - 1, 0)
        return {name: column[i] for name, column in columns.items()}

    def series(self) -> tuple[list[float], dict[str, list[int]]]:
        """Return all moments in seconds, and each category's bytes at each of them.

        The first moment is the beginning, the last one the end. Between them is one for
        each change of memory, and one for each phase that begins without any.
        """
        self._work_off()
        now = dict.fromkeys(CATEGORIES, 0)
        for holding, nbytes in self._before:
            now[self._category(holding)] += nbytes
        times, columns = [0.0], {name: [nbytes] for name, nbytes in now.items()}
        for time, change in self._timed():
            now[self._category(change.holding)] += change.nbytes
            if time < 0:
                columns = {name: [nbytes] for name, nbytes in now.items()}
                continue
            times.append(time)
            for name, column in columns.items():
                column.append(now[name])
        times.append(max(self.seconds, times[-1]))
        for column in columns.values():
            column.append(column[-1])
        return times, columns

    def phases(self) -> list[tuple[str, float, float]]:
        """Return the phases with their begin and end in seconds.

        Backward begins with its first change of memory. Recomputing is part of it.
        """
        self._work_off()
        found: list[list] = []
        for time, change in self._timed():
            if time < 0:
                continue
            name = self._phases[change.phase]
            name = BACKWARD if name == RECOMPUTING else name
            if not found or found[-1][0] != name:
                found.append([name, time, time])
        for phase, following in pairwise(found):
            phase[2] = following[1]
        if found:
            found[-1][2] = max(self.seconds, found[-1][1])
        return [(name, begin, end) for name, begin, end in found]

    def by_module(self, depth: int | None = None) -> dict[str, dict[str, int]]:
        """Return each module's bytes at the peak, by category.

        Activations belong to the innermost module whose forward made them, gradients
        and optimizer state to the module of their parameter. The name is empty for what
        was made outside of all modules.

        Args:
            depth: sum up what is below so many levels of names, as ``blocks.0`` for
                ``blocks.0.norm``; None for every module by itself.
        """
        _, columns = self.series()
        at = _highest(columns)
        found: dict[str, dict[str, int]] = defaultdict(
            lambda: dict.fromkeys(CATEGORIES, 0)
        )
        parts = [*self._before, *((x.holding, x.nbytes) for x in self._changes[:at])]
        for holding, nbytes in parts:
            name = ".".join(holding.owner.split(".")[:depth])
            found[name][self._category(holding)] += nbytes
        return {name: found[name] for name in found if any(found[name].values())}

    # -------------------------------------------------------------- text and picture

    def tables(self) -> list[Table]:
        """Return tables of the peak, by category and by module."""
        _, columns = self.series()
        peak = self.peak
        total = sum(peak.values())
        rows = [
            [name, _size(peak[name]), f"{peak[name] / total:.0%}", _size(max(column))]
            for name, column in columns.items()
            if max(column)
        ]
        heading = ["category", "at the peak", "share", "most"]
        rows.append(["together", _size(total), "", ""])
        tables = [Table(heading, rows, heading[1:])] if total else []
        modules = self.by_module(1)
        for depth in range(2, 10):
            finer = self.by_module(depth)
            if not len(modules) < len(finer) <= MOST_ROWS:
                break
            modules = finer
        used = [name for name in CATEGORIES if any(x[name] for x in modules.values())]
        if any(modules):
            heading = ["module, at the peak", *used]
            rows = [
                [name or "(outside)", *(_size(found[x]) for x in used)]
                for name, found in modules.items()
            ]
            tables.append(Table(heading, rows, used))
        return tables

    def title(self) -> str:
        """Return the finding in a sentence: the peak, and its largest category."""
        peak = self.peak
        total = sum(peak.values())
        if not total:
            return "No memory in use"
        name = max(peak, key=peak.get)
        share = f"{peak[name] / total:.0%}"
        return _FINDINGS[name].format(share=share, size=size_text(total))

    def conditions(self) -> str:
        label = [self.label] if self.label else []
        clock = self.machine.clock
        if clock is None:
            return ", ".join([*label, "simulated"])
        simulated = f"simulated ({clock.models[self.index].name})"
        return ", ".join([*label, time_text(self.seconds), simulated])

    def __repr__(self) -> str:
        tables = "\n\n".join(map(repr, self.tables()))
        said = f"{shown(self.title())}\n{shown(self.conditions())}"
        return f"{said}\n\n{tables}".rstrip()

    def _repr_svg_(self) -> tuple[str, dict[str, str]]:
        return self.svg(), {"alt": shown(f"{self.title()}. {self.conditions()}.")}

    def svg(self) -> str:
        """Return a picture as the text of an SVG file."""
        from .memory_picture import svg

        return svg(self)

    # -------------------------------------------------------------- parts

    def _category(self, holding: Holding) -> str:
        if holding.category is not None:
            return holding.category
        if not holding.nbytes:
            return TEMPORARY
        if self._stopped or not self._is_recent(holding):
            return OTHER
        going = self._phases[-1] in (FORWARD, RECOMPUTING)
        return ACTIVATIONS if going else TEMPORARY

    def _is_recent(self, holding: Holding) -> bool:
        """Whether a holding got its memory in this phase, or in this backward pass."""
        phases = self._phases[holding.phase :]
        return len(phases) == 1 or all(x in (BACKWARD, RECOMPUTING) for x in phases)

    def _timed(self) -> Iterator[tuple[float, Change]]:
        """Yield each change with the seconds since the beginning, which only grow."""
        latest = self._since
        for change in self._changes[:]:
            latest = max(latest, change.time)
            yield (latest - self._begin) / PICO, change

    def _work_off(self) -> None:
        if self.machine.clock is not None:
            self.machine.clock.work_off()

    def _now(self) -> int:
        clock = self.machine.clock
        if clock is None:
            return 0
        return max(clock.host(), clock.end_of(self.index))


def _highest(columns: dict[str, Sequence[int]]) -> int:
    """Return the position of the first moment with the highest sum."""
    sums = [sum(column) for column in zip(*columns.values(), strict=True)]
    return sums.index(max(sums))


def _size(nbytes: int) -> str:
    return size_text(nbytes) if nbytes else ""
