"""``torch.vgpu.Stream``, ``Event`` and ``stream()``; they are also ``torch.Stream``.

An operator has computed its values before it returns, so values always respect the
order that a program asks for between streams. The simulated clock knows when GPUs
would do the work: streams and events tell it which work waits for which.
"""

import itertools

import torch
from torch._C._autograd import DeviceType

from .devices import Devices, current, index_of
from .errors import NO_TIMES
from .sim.clock import PICO, Moment, queues
from .sim.commands import HostWaits, Record, StreamWaits
from .sync_debug import warn_program

PyTorchStream, PyTorchEvent = torch.Stream, torch.Event

_ids, _events = itertools.count(1), itertools.count(1)


class Stream(PyTorchStream):
    """A queue of work for one device, which does the work in order.

    C++ keeps the numbers of the stream and of its device.

    Args:
        device: an index, a name, a ``torch.device``, or None for the current device.
        priority: stored, but has no effect.
        stream_id: the number of an existing stream, 0 for the default one. By default
            the stream is new.
        device_index: in place of ``device``, as in ``torch.cuda.Stream``.
        device_type: ignored: the stream belongs to a virtual GPU.
    """

    def __new__(
        cls,
        device=None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,
    ):
        self = super().__new__(
            cls,
            stream_id=next(_ids) if stream_id is None else stream_id,
            device_index=index_of(device if device_index is None else device_index),
            device_type=int(DeviceType.PrivateUse1),
        )
        self.priority = priority
        return self

    @property
    def device(self) -> torch.device:
        return Devices.shown[self.device_index]

    @property
    def cuda_stream(self) -> int:
        """The stream's number, where CUDA has an address. The default stream has 0."""
        return self.stream_id

    native_handle = cuda_stream

    def synchronize(self) -> None:
        """Make the host wait for the work on this stream."""
        self._note(HostWaits([self.device_index], self.stream_id))

    def query(self) -> bool:
        """Whether all work on this stream has finished on the simulated clock."""
        return self.record_event().query()

    def is_capturing(self) -> bool:
        """Whether work is captured into a graph instead of running: never."""
        return False

    def wait_event(self, event: "Event") -> None:
        """Make later work on this stream wait for an event."""
        if event._moment is not None:
            self._note(StreamWaits(event._moment))

    def wait_stream(self, stream: "Stream") -> None:
        """Make later work on this stream wait for the work now on another stream."""
        self.wait_event(stream.record_event())

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Record an event, by default a new one, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def _note(self, command) -> None:
        machine = Devices.machines[self.device_index]
        machine.clock.note(command, self.device_index, self.stream_id)

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


class Event(PyTorchEvent):
    """A point in the work of a stream.

    Args:
        enable_timing: whether ``elapsed_time`` works; the time is simulated.
        blocking, external: have no effect.
        interprocess: refused if true.
        device: the device that it belongs to until it's recorded on another one; by
            default the current device.
    """

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
        *,
        device=None,
    ):
        if interprocess:
            raise NotImplementedError(
                "Events of virtual GPUs cannot be shared between processes."
            )
        # The devices may be a simulator's, which has none that is current.
        index = current.index if device is None else index_of(device)
        self = super().__new__(cls, Devices.names[index], enable_timing=enable_timing)
        self.enable_timing = enable_timing
        self._number = 0
        self._index = index
        self._moment: Moment | None = None
        self._stream: Stream | None = None
        return self

    @property
    def device(self) -> torch.device:
        return Devices.shown[self._index]

    @property
    def cuda_event(self) -> int:
        """The event's number, where CUDA has an address. It's 0 until it's recorded."""
        return self._number

    event_id = cuda_event

    def __repr__(self) -> str:
        return f"<torch.vgpu.Event device={Devices.names[self._index]}>"

    def record(self, stream: Stream | None = None) -> None:
        """Record this event: it happens once the stream has done its work so far."""
        self._stream = current_stream() if stream is None else stream
        self._index = self._stream.device_index
        self._number = self._number or next(_events)
        self._moment = Moment()
        self._stream._note(Record(self._moment))

    def wait(self, stream: Stream | None = None) -> None:
        """Make a stream, by default the current one, wait for this event."""
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether the work before this event has finished on the simulated clock.

        Asking takes some simulated time, so a loop that asks until the answer is yes
        does end.
        """
        if self._moment is None:
            return True
        clock = Devices.machines[self._stream.device_index].clock
        return clock.has_passed(self._moment)

    def synchronize(self) -> None:
        """Make the host wait for this event."""
        if self._moment is not None:
            self._stream._note(HostWaits(moment=self._moment))

    def elapsed_time(self, end_event: "Event") -> float:
        """Return the simulated milliseconds between this event and a later one.

        Raises:
            ValueError: one of the events was made without ``enable_timing=True``.
            RuntimeError: one of the events hasn't been recorded.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError(
                "Both events must be created with argument 'enable_timing=True'."
            )
        if self._moment is None or end_event._moment is None:
            raise RuntimeError(
                "Both events must be recorded before calculating elapsed time."
            )
        for event in (self, end_event):
            Devices.machines[event._stream.device_index].clock.work_off()
        if self._moment.time is None or end_event._moment.time is None:
            warn_program(NO_TIMES)  # a rank of a cluster is being recorded
            return 0.0
        return (end_event._moment.time - self._moment.time) / PICO * 1e3


def default_stream(device=None) -> Stream:
    """Return the stream that a device uses unless told otherwise."""
    return Stream(device, stream_id=0)


def current_stream(device=None) -> Stream:
    """Return the stream that this thread uses on a device."""
    index = index_of(device)
    return Stream(index, stream_id=queues.of.get(index, 0))


def set_stream(stream: Stream | None) -> None:
    """Make a stream current on its device, and make that device current."""
    if stream is not None:
        current.index = stream.device_index
        queues.of[stream.device_index] = stream.stream_id


class stream:
    """A context in which a stream and its device are current."""

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
