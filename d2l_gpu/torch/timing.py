"""Measuring time where devices work behind the host's back."""

import itertools
import time
from collections.abc import Sequence

import torch


class Timer:
    """A stopwatch on the host's clock, which can be run many times.

    A GPU works asynchronously: the host goes on as soon as work is queued, so that
    the host's clock alone measures the queueing. With ``devices``, the timer waits
    for every one of them before it reads the clock, at the start and at the stop.
    Each device is waited for by name: ``torch.cuda.synchronize()`` waits for the
    current device only.

    Args:
        devices: the device or devices whose work belongs to the measured time;
            None: do not wait for any.
    Raises:
        RuntimeError, AssertionError: PyTorch's own, where there is no such device.
    Source: d2l 1.0.3 ``Timer``, section 3.1; ``devices`` is this project's own.
    """

    def __init__(
        self,
        devices: torch.device | str | Sequence[torch.device | str] | None = None,
    ):
        if devices is None:
            devices = []
        elif isinstance(devices, (torch.device, str)):
            devices = [devices]
        self.devices = [torch.device(device) for device in devices]
        self.times: list[float] = []
        self.start()

    def start(self) -> None:
        """Start to measure, or start anew; making a timer starts it too."""
        self._synchronize()
        self._started: float | None = time.perf_counter()

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
        self.times.append(time.perf_counter() - self._started)
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

    def _synchronize(self) -> None:
        for device in self.devices:
            module = torch.get_device_module(device)
            # torch.mps has one device and takes no argument here (torch 2.10 to 2.13).
            module.synchronize(*([] if device.type == "mps" else [device]))
