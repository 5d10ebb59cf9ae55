"""``torch.vgpu.Stream``, ``Event`` and ``stream()``.

The host has computed an operator before Python goes on, so whatever order a program
asks for between streams is kept: waiting has nothing to wait for. What remains to be
done right is the bookkeeping: which stream is current, and when an event was recorded.
"""

import itertools
import threading
from time import perf_counter

import torch

from .devices import Devices, current, index_of

_ids = itertools.count(1)


class Stream:
    """A queue of work for one device; work on it is done in order, at once.

    Args:
        device: an index, a name, a ``torch.device``, or None for the current one.
        priority: kept, without effect.
    """

    def __init__(self, device=None, priority: int = 0, *, stream_id: int | None = None):
        self.device_index = index_of(device)
        self.priority = priority
        self.stream_id = next(_ids) if stream_id is None else stream_id

    @property
    def device(self) -> torch.device:
        return Devices.shown[self.device_index]

    def synchronize(self) -> None:
        """Wait for the work on this stream: it is done."""

    def query(self) -> bool:
        """Whether all work on this stream is done."""
        return True

    def is_capturing(self) -> bool:
        """Whether work is recorded into a graph instead of done: never."""
        return False

    def wait_event(self, event: "Event") -> None:
        """Let later work on this stream wait for an event: it has happened."""

    def wait_stream(self, stream: "Stream") -> None:
        """Let later work on this stream wait for another one: its work is done."""

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Record an event, a new one if none is given, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> "Stream":
        self._entered = stream(self)
        self._entered.__enter__()
        return self

    def __exit__(self, *exception) -> None:
        self._entered.__exit__(*exception)

    def __eq__(self, other) -> bool:
        return isinstance(other, Stream) and (
            (self.device_index, self.stream_id) == (other.device_index, other.stream_id)
        )

    def __hash__(self) -> int:
        return hash((self.device_index, self.stream_id))

    def __repr__(self) -> str:
        device = Devices.names[self.device_index]
        return f"<torch.vgpu.Stream device={device} stream_id={self.stream_id}>"


class Event:
    """A point in the work of a stream.

    Args:
        enable_timing: whether ``elapsed_time`` may be asked. The time is the host's,
            which computed the work: it says nothing of a real GPU.
    """

    def __init__(
        self,
        device=None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ):
        if interprocess:
            raise NotImplementedError(
                "Events of virtual GPUs cannot be shared between processes."
            )
        self.enable_timing = enable_timing
        self._recorded: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Record this event now; the stream's work so far is done."""
        self._recorded = perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Let a stream wait for this event: it has happened."""

    def query(self) -> bool:
        """Whether the work before this event is done."""
        return True

    def synchronize(self) -> None:
        """Wait for this event: it has happened."""

    def elapsed_time(self, end_event: "Event") -> float:
        """Return the milliseconds between this event and a later one.

        Raises:
            ValueError: one of them was made without ``enable_timing=True``.
            RuntimeError: one of them was not recorded.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError(
                "Both events must be created with argument 'enable_timing=True'."
            )
        if self._recorded is None or end_event._recorded is None:
            raise RuntimeError(
                "Both events must be recorded before calculating elapsed time."
            )
        return (end_event._recorded - self._recorded) * 1e3


class _CurrentStreams(threading.local):
    """The stream in use on each device, if it is not the default one."""

    def __init__(self):
        self.of: dict[int, Stream] = {}


_streams = _CurrentStreams()


def default_stream(device=None) -> Stream:
    """Return the stream that a device has from the start."""
    return Stream(device, stream_id=0)


def current_stream(device=None) -> Stream:
    """Return the stream in use on a device, in this thread."""
    return _streams.of.get(index_of(device)) or default_stream(device)


def set_stream(stream: Stream | None) -> None:
    """Make a stream the current one of its device, and that device the current one."""
    if stream is not None:
        current.index = stream.device_index
        _streams.of[stream.device_index] = stream


class stream:
    """A context in which a stream, and its device, is the current one."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.device = current.index
            self.previous = current_stream(self.stream.device_index)
            set_stream(self.stream)

    def __exit__(self, *exception) -> None:
        if self.stream is not None:
            set_stream(self.previous)
            current.index = self.device
