"""What devices and links did, in numbers."""

from dataclasses import dataclass

from . import expected
from .catalogue import Model
from .clock import PICO, Clock, Kernel, Lane, seconds_of
from .table import Table
from .units import count_text, time_text

# Operations that training does for a parameter and a token, without attention: two
# going forward, four in backward. J. Kaplan and others, Scaling Laws for Neural
# Language Models (2020), table 1.
FOR_PARAMETER = 6

PEERS = {"host": "host", "device": "other GPUs", "network": "other nodes"}


def needed_share(parameters: float, tokens: int, seconds: float, peak: float) -> float:
    """Return the operations that a model needs, as a share of a peak (MFU).

    Attention isn't counted.

    Args:
        tokens: that it's trained with in these seconds.
        peak: operations per second, of all GPUs together.
    """
    return FOR_PARAMETER * parameters * tokens / (peak * seconds)


@dataclass(frozen=True)
class OperatorUse:
    """What a device did for all calls of one operator.

    Attributes:
        operations: floating-point operations, as PyTorch counts them.
        nbytes: bytes read from and written to the device's memory.
        seconds: simulated seconds.
        done: the operations that the device did: fewer where an algorithm saves some
            (Winograd's), more where channels are filled up for tensor cores.
    """

    name: str
    calls: int
    operations: int
    nbytes: int
    seconds: float
    done: int

    @property
    def intensity(self) -> float:
        """Operations done per byte of memory read or written."""
        return self.done / self.nbytes if self.nbytes else 0.0


@dataclass(frozen=True)
class DeviceUse:
    """What a device did.

    Attributes:
        name: the device's name.
        model: the GPU that it simulates.
        busy: simulated seconds in which it computed.
        kernels: how many kernels it ran.
        operations: how many floating-point operations they did, as PyTorch counts them.
        nbytes: how many bytes they read and wrote.
        share_of_peak: the operations done as a fraction of what the units that ran them
            can do at peak in the time that passed.
        operators: one entry per operator, the longest first.
    """

    name: str
    model: Model
    busy: float
    kernels: int
    operations: int
    nbytes: int
    share_of_peak: float
    operators: list[OperatorUse]


@dataclass(frozen=True)
class LinkUse:
    """What crossed a link in one direction: copies, bytes, simulated seconds."""

    source: str
    target: str
    copies: int
    nbytes: int
    seconds: float


class Report:
    """What each device and each link did since the last reset of a clock.

    Attributes:
        label: what was simulated, for headings.
        seconds: simulated seconds until everything was done.
        devices: a ``DeviceUse`` for each device.
        links: what crossed each link in each direction; unused links are left out.
        expected: a sentence on the error to expect of the times.
    """

    def __init__(self, clock: Clock, label: str):
        self.label, self.seconds = label, clock.elapsed()
        self.devices = [_device(clock, index, self.seconds) for index in clock.models]
        self.links = [
            _link(clock.names[index], side, peer, lane)
            for (index, side, peer), lane in clock.links.items()
            if lane.count
        ]
        self.expected = expected.sentence(
            (part, model, kernel.count * seconds_of(part, model))
            for index, model in clock.models.items()
            for kernel in clock.kernels[index].values()
            for part in kernel.parts
        )

    def tables(self) -> list[Table]:
        """Return the report as tables: devices, then links."""
        devices = Table(
            [self.label, "busy", "kernels", "operations", "memory", "of peak"],
            [
                [
                    device.name,
                    f"{time_text(device.busy)} ({_share(device.busy, self.seconds)})",
                    f"{device.kernels:,}",
                    count_text(device.operations),
                    count_text(device.nbytes, "B"),
                    f"{device.share_of_peak:.1%}",
                ]
                for device in self.devices
            ],
            ["busy", "kernels", "operations", "memory", "of peak"],
        )
        if not self.links:
            return [devices]
        links = Table(
            ["from", "to", "copies", "bytes", "busy"],
            [
                [
                    link.source,
                    link.target,
                    f"{link.copies:,}",
                    count_text(link.nbytes, "B"),
                    f"{time_text(link.seconds)} ({_share(link.seconds, self.seconds)})",
                ]
                for link in self.links
            ],
            ["copies", "bytes", "busy"],
        )
        return [devices, links]

    def __repr__(self) -> str:
        tables = "\n\n".join(map(repr, self.tables()))
        return f"{time_text(self.seconds)}, {self.label}\n\n{tables}\n\n{self.expected}"

    def _repr_html_(self) -> str:
        tables = "".join(table._repr_html_() for table in self.tables())
        return (
            f"<p>{time_text(self.seconds)}, {self.label}</p>{tables}"
            f"<p>{self.expected}</p>"
        )


def _device(clock: Clock, index: int, seconds: float) -> DeviceUse:
    model = clock.models[index]
    used = [kernel for kernel in clock.kernels[index].values() if kernel.count]
    operators = {}
    for kernel in used:
        operators.setdefault(kernel.name, []).append(kernel)
    uses = [_operator(name, kernels) for name, kernels in operators.items()]
    at_peak = sum(
        kernel.count * part.operations * part.done / model.rate(part.kind, part.tensor)
        for kernel in used
        for part in kernel.parts
    )
    return DeviceUse(
        name=clock.names[index],
        model=model,
        busy=clock.compute[index].busy / PICO,
        kernels=sum(kernel.count * len(kernel.parts) for kernel in used),
        operations=sum(use.operations for use in uses),
        nbytes=sum(use.nbytes for use in uses),
        share_of_peak=at_peak / seconds if seconds else 0.0,
        operators=sorted(uses, key=lambda use: (-use.seconds, use.name)),
    )


def _operator(name: str, kernels: list[Kernel]) -> OperatorUse:
    return OperatorUse(
        name=name,
        calls=sum(kernel.count for kernel in kernels),
        operations=sum(k.count * part.operations for k in kernels for part in k.parts),
        nbytes=sum(k.count * part.nbytes for k in kernels for part in k.parts),
        seconds=sum(kernel.count * kernel.duration for kernel in kernels) / PICO,
        done=round(
            sum(
                k.count * part.operations * part.done
                for k in kernels
                for part in k.parts
            )
        ),
    )


def _link(name: str, side: str, peer: str, lane: Lane) -> LinkUse:
    ends = [name, PEERS[peer]]
    source, target = ends if side == "out" else ends[::-1]
    return LinkUse(source, target, lane.count, lane.nbytes, lane.busy / PICO)


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "0%"
