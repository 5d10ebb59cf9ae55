"""Measuring time where devices work behind the host's back, or simulating it."""

import itertools
import time
from collections.abc import Sequence

import torch

from d2l_gpu.common.processor import cpu_name
from d2l_gpu.vgpu import PICO

from ..gpus.inventory import device_model


class Timer:
    """A stopwatch on the host's clock, which can be run many times.

    A GPU works asynchronously: the host goes on as soon as work is queued, so that
    the host's clock alone measures the queueing. With ``devices``, the timer waits
    for every one of them before it reads the clock, at the start and at the stop.
    Each device is waited for by name: ``torch.cuda.synchronize()`` waits for the
    current device only.

    On virtual GPUs the host's clock measures how long the host computed, which says
    nothing of a GPU. With ``simulated=True`` the timer reads their simulated clock.

    Args:
        devices: the device or devices whose work belongs to the measured time;
            None: do not wait for any.
        simulated: read the simulated clock of the devices, which are virtual.
    Attributes:
        label: what the times are: ``simulated (V100)``, or ``measured (…)`` and what
            the devices are.
    Raises:
        RuntimeError, AssertionError: PyTorch's own, where there is no such device.
        ValueError: simulated time is asked for, and the devices have no such clock.
    Source: d2l 1.0.3 ``Timer``, section 3.1; ``devices`` is this project's own.
    """

    def __init__(
        self,
        devices: torch.device | str | Sequence[torch.device | str] | None = None,
        *,
        simulated: bool = False,
    ):
        if devices is None:
            devices = []
        elif isinstance(devices, (torch.device, str)):
            devices = [devices]
        self.devices = [torch.device(device) for device in devices]
        self._simulation = _simulator_of(self.devices) if simulated else None
        self.times: list[float] = []
        self.start()

    def start(self) -> None:
        """Start to measure, or start anew; making a timer starts it too."""
        self._synchronize()
        self._started: float | None = self._now()

    def stop(self) -> float:
        """Stop, record the time and return it.

        Returns:
            Seconds since the start.
        Raises:
            RuntimeError: the timer is stopped already.
        """
        if self._started is None:
            raise RuntimeError("This timer is stopped already: call start() first.")
        self._synchronize()
        passed = self._now() - self._started
        self.times.append(passed if self._simulation is None else passed / PICO)
        self._started = None
        return self.times[-1]

    def avg(self) -> float:
        """Return the mean of the recorded times in seconds.

        Raises:
            RuntimeError: nothing was recorded yet.
        """
        if not self.times:
            raise RuntimeError(
                "This timer has recorded nothing yet: call stop() first."
            )
        return sum(self.times) / len(self.times)

    def sum(self) -> float:
        """Return the sum of the recorded times in seconds."""
        return sum(self.times)

    def cumsum(self) -> list[float]:
        """Return the running sums of the recorded times in seconds."""
        return list(itertools.accumulate(self.times))

    @property
    def label(self) -> str:
        if self._simulation is not None:
            models = map(self._simulation.model_of, self.devices)
            names = dict.fromkeys(model.name for model in models)
            return f"simulated ({', '.join(names)})"
        names = dict.fromkeys(place_name(device) for device in self.devices)
        return f"measured ({', '.join(names) or cpu_name()})"

    def _now(self) -> float:
        """Seconds of the host's clock, or whole picoseconds of the simulated one."""
        if self._simulation is None:
            return time.perf_counter()
        # From when the clock was made: others may reset it on the way.
        return self._simulation.clock.host()

    def _synchronize(self) -> None:
        synchronize(self.devices)


def synchronize(devices: Sequence[torch.device]) -> None:
    """Wait for devices; the CPU needs none."""
    for device in devices:
        module = torch.get_device_module(device)
        # torch.mps has one device and takes no argument here (torch 2.10 to 2.13).
        module.synchronize(*([] if device.type == "mps" else [device]))


def place_name(device: torch.device) -> str:
    """Return what a device is: its model's name."""
    return cpu_name() if device.type == "cpu" else device_model(device)


def _simulator_of(devices: Sequence[torch.device]):
    """Return the simulation that all devices belong to."""
    from d2l_gpu import vgpu

    found = [vgpu.simulator_of(device) for device in devices]
    if not found or None in found or len({id(x.clock) for x in found}) > 1:
        names = ", ".join(map(str, devices)) or "no device"
        raise ValueError(
            "Simulated time is that of virtual GPUs of one simulation, such as "
            f"sim.gpu(0), not of {names}."
        )
    return found[0]
