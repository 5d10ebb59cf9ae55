"""Kernels on the simulated clock, for PyTorch's profiler.

While the profiler runs, each kernel leaves an empty event of a known name among those
of the CPU. It says which operator the kernel belongs to. When and how long the kernel
runs is up to the simulated clock, whose zero is put where the profiler started. So the
times of devices are simulated, and those of the CPU are real: don't compare them.

Tables, events and traces are given the kernels in Python, because the profiler's C++
takes them only from C++: ``libkineto::api().registerProfilerFactory`` and
``torch::profiler::impl::registerPrivateUse1Methods`` have no name in Python. Without
the latter, ``torch.autograd.profiler.profile(use_device='vgpu')`` by itself says
"PrivateUse1 used in profiler but not enabled" at each operator. So what C++ returns,
``profiler.kineto_results.events()``, has no kernels.
"""

import functools
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent

from .memory import Frames, History
from .sim.clock import PICO, queues
from .sim.commands import Reading
from .sim.machine import Machine

KERNEL, MEMORY = "vgpu: kernel ", "vgpu: memory "
# The name under which PyTorch records that a tensor's class runs an operator. What is
# inside is how we compute it on the CPU.
INSIDE = "PythonSubclass"
LABEL = "(simulated)"
TYPES = {"vgpu": DeviceType.PrivateUse1, "cuda": DeviceType.CUDA}


class Issued(NamedTuple):
    """A kernel that was issued to a machine, and the clock before and after it."""

    machine: Machine
    index: int
    stream: int
    key: tuple
    before: Reading
    after: Reading


class Run(NamedTuple):
    """A kernel that ran, in simulated microseconds since the profiler started."""

    name: str
    index: int
    stream: int
    start: float
    duration: float


class _Watched(History):
    """A history of memory that also goes to the profiler; another one goes on in it."""

    def __init__(self, count: int, before: History | None, changes: list[int]):
        super().__init__(count, events=False, context=None)
        self.before, self.changes = before, changes
        if before is not None:
            self.events = before.events

    def __call__(self, action: str, index: int, address: int, nbytes: int) -> Frames:
        if action != "oom":
            _leave(f"{MEMORY}{len(self.changes)}")
            self.changes.append(nbytes if action == "alloc" else -nbytes)
        if self.before is None:
            return ()
        return self.before(action, index, address, nbytes)


def _leave(name: str) -> None:
    """Leave an empty event of this name among the profiler's."""
    with torch._C._profiler._RecordFunctionFast(name):
        pass


class Recording:
    """The kernels that machines' devices run between `start` and `stop`.

    Args:
        device: the name under which the profiler shows the devices: vgpu or cuda.
        with_memory: whether to record the memory that is taken and given back, too.
    """

    def __init__(
        self, machines: Iterable[Machine], device: str, with_memory: bool = False
    ):
        self.device, self.with_memory = device, with_memory
        self.origins = dict.fromkeys(machines, 0)
        self.issued: list[Issued] = []
        self.changes: list[int] = []
        self.lock = threading.RLock()

    def start(self) -> None:
        for machine in self.origins:
            self.origins[machine] = machine.clock.host()
            machine.kernel_issued = functools.partial(self._kernel_issued, machine)
            if self.with_memory:
                before = machine.history
                machine.history = _Watched(machine.count, before, self.changes)

    def stop(self) -> None:
        for machine in self.origins:
            vars(machine).pop("kernel_issued", None)
            if isinstance(machine.history, _Watched):
                machine.history = machine.history.before

    def _kernel_issued(self, machine: Machine, index: int, key: tuple) -> None:
        """Do what `Machine.kernel_issued` does, and read the clock around it."""
        stream = queues.of.get(index, 0)
        issued = Issued(machine, index, stream, key, Reading(), Reading())
        with self.lock:
            machine.clock.note(issued.before, index, stream)
            Machine.kernel_issued(machine, index, key)
            machine.clock.note(issued.after, index, stream)
            number = len(self.issued)
            self.issued.append(issued)
        _leave(f"{KERNEL}{number}")

    def runs(self) -> list[Run]:
        """Return the kernels in the order in which they were issued."""
        for machine in self.origins:
            machine.clock.work_off()
        found, micro = [], PICO // 10**6
        for machine, index, stream, key, before, after in self.issued:
            duration = after.busy - before.busy
            start = after.end - duration - self.origins[machine]
            name = machine.clock.kernels[index][key].name
            found.append(Run(name, index, stream, start / micro, duration / micro))
        return found

    # -------------------------------------------------------------- the profiler

    def placed(self, events: Sequence[FunctionEvent], on_cpu: bool) -> list:
        """Return a profiler's events with kernels in place of how we compute them.

        Args:
            events: those of the CPU, sorted by their start.
            on_cpu: whether to keep them.
        """
        runs, kept = self.runs(), []
        open_events: dict[int, list[FunctionEvent]] = {}
        hidden_until: dict[int, float] = {}
        for event in events:
            thread, time = event.thread, event.time_range
            around = open_events.setdefault(thread, [])
            while around and around[-1].time_range.end <= time.start:
                around.pop()
            if event.name.startswith(KERNEL):
                run = runs[int(event.name.removeprefix(KERNEL))]
                for owner in around[-1:]:
                    owner.append_kernel(_labelled(run), run.index, run.duration)
            elif event.name.startswith(MEMORY):
                change = self.changes[int(event.name.removeprefix(MEMORY))]
                for owner in around:
                    owner.device_memory_usage += change
            elif time.start < hidden_until.get(thread, time.start):
                continue
            elif event.name == INSIDE or _runs_itself(event, around):
                hidden_until[thread] = time.end
            else:
                kept.append(event)
                if not event.is_async:
                    around.append(event)
        shown = kept if on_cpu else []
        shown += [self._event(run, len(events) + i) for i, run in enumerate(runs)]
        return sorted(shown, key=lambda e: (e.time_range.start, -e.time_range.end))

    def traced(self, trace: dict[str, Any], on_cpu: bool) -> dict[str, Any]:
        """Return a trace in Chrome's format, a dictionary, with the kernels in it."""
        events = [
            event
            for event in trace["traceEvents"]
            if not str(event.get("name", "")).startswith((KERNEL, MEMORY))
            and (on_cpu or event.get("cat") not in ("cpu_op", "fwdbwd"))
        ]
        first = min((e["ts"] for e in events if e.get("ph") == "X"), default=0)
        for index in sorted({issued.index for issued in self.issued}):
            name = f"GPU {index}, virtual {LABEL}"
            about = {"name": "process_name", "args": {"name": name}}
            events.append({"ph": "M", "pid": index, "ts": first} | about)
        for index, stream in sorted({(i.index, i.stream) for i in self.issued}):
            about = {"name": "thread_name", "args": {"name": f"stream {stream}"}}
            events.append({"ph": "M", "pid": index, "tid": stream, "ts": first} | about)
        for run in self.runs():
            # Whole nanoseconds: see ``sim/trace.py``.
            start, end = round(1e3 * run.start), round(1e3 * (run.start + run.duration))
            begin = round(1e3 * first) + start
            times = {"ts": begin / 1e3, "dur": (end - start) / 1e3}
            place = {"device": run.index, "stream": run.stream, "simulated": True}
            place["picoseconds"] = round(1e6 * run.duration)
            about = {"name": _labelled(run), "cat": "kernel", "args": place}
            lane = {"ph": "X", "pid": run.index, "tid": run.stream}
            events.append(lane | about | times)
        return trace | {"traceEvents": events}

    def _event(self, run: Run, number: int) -> FunctionEvent:
        return FunctionEvent(
            id=number,
            name=_labelled(run),
            thread=run.stream,
            start_us=run.start,
            end_us=run.start + run.duration,
            use_device=self.device,
            device_type=TYPES[self.device],
            device_index=run.index,
            device_resource_id=run.stream,
            input_shapes=[],
            stack=[],
        )


def _runs_itself(event: FunctionEvent, around: Sequence[FunctionEvent]) -> bool:
    """Whether an operator is called by itself: one that makes a tensor on a device."""
    return bool(
        around and event.name == around[-1].name and event.name.startswith("aten::")
    )


def _labelled(run: Run) -> str:
    return f"{run.name} {LABEL}"
