"""Timing devices that work asynchronously, on a real or a simulated clock."""

import itertools
import time
from collections.abc import Sequence

import torch

from d2l_gpu.common.processor import cpu_name
from d2l_gpu.vgpu import PICO

from ..gpus.inventory import device_model


class Timer:
    """A stopwatch on the host's clock that can be run many times.

    A GPU works asynchronously: the host goes on as soon as work is queued, so the
    host's clock alone measures the queueing. With ``devices``, the timer waits for
    every one of them before it reads the clock, at the start and at the stop. It waits
    for each device by name, because ``torch.cuda.synchronize()`` waits for the current
    device only.

    On virtual GPUs, the host's clock measures how long the host computed, which says
    nothing about a GPU. With ``simulated=True``, the timer reads their simulated clock.

    Args:
        devices: the device or devices whose work is timed; None: don't wait for any.
        simulated: whether to read the simulated clock of the devices, which are
            virtual.
    Attributes:
        times: the recorded times, in seconds.
        label: what the times are: ``simulated (V100)``, or ``measured (…)`` with the
            names of the devices.
    Raises:
        RuntimeError, AssertionError: from PyTorch, if there is no such device.
        ValueError: simulated is True, but the devices have no simulated clock in
            common.
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
        """Start or restart the timer; creating one starts it too."""
        self._synchronize()
        self._started: float | None = self._now()

    def stop(self) -> float:
        """Stop, record the time and return it.

        Returns:
            Seconds since the start.
        Raises:
            RuntimeError: the timer has already been stopped.
        """
        if self._started is None:
            raise RuntimeError(
                "This timer has already been stopped: call start() first."
            )
        self._synchronize()
        passed = self._now() - self._started
        self.times.append(passed if self._simulation is None else passed / PICO)
        self._started = None
        return self.times[-1]

    def avg(self) -> float:
        """Return the mean of the recorded times in seconds.

        Raises:
            RuntimeError: nothing has been recorded yet.
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
        """Return the host's clock in seconds, or the simulated one in picoseconds."""
        if self._simulation is None:
            return time.perf_counter()
        # Counted from the clock's creation, because others may reset it meanwhile.
        return self._simulation.clock.host()

    def _synchronize(self) -> None:
        synchronize(self.devices)


def synchronize(devices: Sequence[torch.device]) -> None:
    """Wait for devices to finish their work; the CPU needs no waiting."""
    for device in devices:
        module = torch.get_device_module(device)
        # torch.mps has one device, and takes no argument here (torch 2.10 to 2.13).
        module.synchronize(*([] if device.type == "mps" else [device]))


def place_name(device: torch.device) -> str:
    """Return the model name of a device."""
    return cpu_name() if device.type == "cpu" else device_model(device)


def _simulator_of(devices: Sequence[torch.device]):
    """Return the simulation that all the devices belong to."""
    from d2l_gpu import vgpu

    found = [vgpu.simulator_of(device) for device in devices]
    if not found or None in found or len({id(x.clock) for x in found}) > 1:
        names = ", ".join(map(str, devices)) or "no device"
        raise ValueError(
            "Simulated time needs virtual GPUs of a single simulation, such as "
            f"sim.gpu(0), but got {names}."
        )
    return found[0]
