"""PyTorch's profiler, where it's asked for vgpu or, with ``as_cuda``, for CUDA."""

import functools
import json
from pathlib import Path

import torch

from ..devices import Devices, current
from ..profiler import Recording


def apply() -> None:
    activities()
    settings()
    recordings()
    results()


_profile = torch.autograd.profiler.profile


def activities() -> None:
    """Let profilers that aren't told what to record also record virtual GPUs.

    All: C++ names what its build supports, which isn't CUDA.
    """
    original = torch.autograd._supported_activities

    def supported() -> set:
        activity = torch.profiler.ProfilerActivity
        ours = {"vgpu": activity.PrivateUse1, "cuda": activity.CUDA}
        names = Devices.types if any(Devices.machines) else ()
        return original() | {ours[name] for name in names}

    torch.autograd._supported_activities = supported


def settings() -> None:
    """Let profilers record the CPU and virtual GPUs when they're asked for the latter.

    All: they ask a part of C++ that this build doesn't have, and fill the screen with
    warnings, one for each operator.
    """
    original = _profile.__init__

    @functools.wraps(original)
    def __init__(self, *args, use_cuda=False, use_device=None, use_cpu=True, **kwargs):
        device = "cuda" if use_cuda else use_device
        ours = device in Devices.types
        # Without the CPU's events it would be unknown which are the profiled kernels.
        if use_cuda and not ours:
            kwargs["use_cuda"] = True
        kwargs |= {"use_device": None if ours else use_device}
        original(self, *args, use_cpu=use_cpu or ours, **kwargs)
        self._vgpu, self._vgpu_shows_cpu = None, use_cpu
        if ours and self.enabled:
            self.use_device = device

    _profile.__init__ = __init__


def recordings() -> None:
    """Record the kernels of virtual GPUs while a profiler runs.

    All: C++ hears of none, as only C++ could tell it (see ``profiler.py``).
    """
    start, leave = _profile._start_trace, _profile.__exit__

    @functools.wraps(start)
    def _start_trace(self):
        start(self)
        if self.use_device in Devices.types:
            machines = filter(None, Devices.machines)
            self._vgpu = Recording(machines, self.use_device, self.profile_memory)
            self._vgpu.start()

    @functools.wraps(leave)
    def __exit__(self, *exception):
        if not self.enabled or self._vgpu is None:
            return leave(self, *exception)
        self._vgpu.stop()
        existing = [i for i, each in enumerate(Devices.machines) if each is not None]
        if current.index in existing or not existing:
            return leave(self, *exception)
        # PyTorch waits for the current device, and there is none if all devices are
        # simulators'. So wait for theirs, and make one of them current meanwhile.
        for i in existing:
            Devices.machines[i].host_waits(i)
        with torch.vgpu.device(existing[0]):
            return leave(self, *exception)

    _profile._start_trace, _profile.__exit__ = _start_trace, __exit__


def results() -> None:
    """Put the kernels of virtual GPUs into what a profiler shows and exports.

    All: its table would have no time on devices, and an operator two or three times.
    """
    parse, export = _profile._parse_kineto_results, _profile.export_chrome_trace

    @functools.wraps(parse)
    def _parse_kineto_results(self, *args, **kwargs):
        events = parse(self, *args, **kwargs)
        if self._vgpu is None:
            return events
        return self._vgpu.placed(events, self._vgpu_shows_cpu)

    @functools.wraps(export)
    def export_chrome_trace(self, path, *args, **kwargs):
        export(self, path, *args, **kwargs)
        if self._vgpu is not None:
            text = Path(path).read_text("utf-8")
            trace = self._vgpu.traced(json.loads(text), self._vgpu_shows_cpu)
            Path(path).write_text(json.dumps(trace), "utf-8")

    _profile._parse_kineto_results = _parse_kineto_results
    _profile.export_chrome_trace = export_chrome_trace
