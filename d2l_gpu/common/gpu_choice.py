"""Which GPUs a process uses: real ones where the machine has enough, else virtual ones.

What is the same for every framework stands here: that it is decided once per process,
what the names mean before and after, and every sentence about it. A framework says in
a subclass of `Gpus` what its devices are.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from d2l_gpu.common.arguments import check_integer
from d2l_gpu.common.processor import cpu_model
from d2l_gpu.common.settings import VIRTUAL, virtual_limit
from d2l_gpu.vgpu import Table

Device = TypeVar("Device")


@dataclass(frozen=True)
class Decision(Generic[Device]):
    """What a process uses, from `require_gpus` or `use_virtual_gpus` on.

    Attributes:
        devices: the GPUs, in order.
        virtual: whether they are virtual.
        how: what is said of virtual ones, as ``computed on the CPU``.
        line: the sentence that says so.
        settings: those that `use_virtual_gpus` was called with; None without it.
    """

    devices: Sequence[Device]
    virtual: bool
    how: str
    line: str
    settings: Hashable = None


class Gpus(ABC, Generic[Device]):
    """The GPUs of a process, all real or all virtual: decided once, and not before
    it is asked for.

    A framework defines the abstract methods; the others are what its lessons use.
    """

    def __init__(self) -> None:
        self.decision: Decision[Device] | None = None

    # ------------------------------------------------ what a framework says

    @abstractmethod
    def cpu(self) -> Device:
        """Return the CPU: all of its cores and all of the host's memory."""

    @abstractmethod
    def real(self) -> Sequence[Device]:
        """Return the GPUs that the machine has; none is fine."""

    @abstractmethod
    def named(self, i: int) -> Device:
        """Return what `gpu(i)` is before anything is decided: a name, no promise."""

    @abstractmethod
    def make_virtual(self, n: int, **settings: Any) -> tuple[Sequence[Device], str]:
        """Make n virtual GPUs.

        Returns:
            The devices, and what the line says of them, as ``computed on the CPU``.
        Raises:
            RuntimeError: it cannot be done, or not any more.
        """

    def prepare(self, n: int) -> None:
        """Do what has to be done to have n virtual GPUs before `real` is asked, or
        they are made."""

    def use_real(self, devices: Sequence[Device]) -> None:
        """Do what hides the other real GPUs, once these have been decided on."""

    def name(self, device: Device) -> str:
        """Return the name of a device, for sentences."""
        return str(device)

    def introduced(self, devices: Sequence[Device]) -> str:
        """Return the names of new virtual GPUs, for the line that tells of them."""
        return self._names(devices)

    def model(self, device: Device) -> str:
        """Return the model of a real GPU, as its driver gives it."""
        return self.name(device)

    # ------------------------------------------------ names of devices

    def gpu(self, i: int = 0) -> Device:
        """Return the name of the i-th GPU, counted from 0.

        Before ``require_gpus`` this is a name only and promises nothing; afterwards it
        is one of the devices in use.

        Args:
            i: index of the GPU.
        Raises:
            TypeError: i is not an integer.
            ValueError: i is negative, or there is no such GPU among those in use.
        """
        _check_index(i)
        if self.decision is None:
            return self.named(i)
        devices = self.decision.devices
        if i >= len(devices):
            raise ValueError(
                f"gpu({i}) does not exist: {count(len(devices))} in use, "
                f"{self._names(devices)}."
            )
        return devices[i]

    def num_gpus(self) -> int:
        """Return the number of GPUs: those in use, else those the machine has."""
        devices = self.real() if self.decision is None else self.decision.devices
        return len(devices)

    def try_gpu(self, i: int = 0) -> Device:
        """Return gpu(i) if it exists, otherwise the CPU (d2l section 6.7).

        Raises:
            TypeError: i is not an integer.
            ValueError: i is negative.
        """
        _check_index(i)
        return self.gpu(i) if i < self.num_gpus() else self.cpu()

    def try_all_gpus(self) -> list[Device]:
        """Return all GPUs, or ``[cpu()]`` if there is none: never an empty list."""
        return [self.gpu(i) for i in range(self.num_gpus())] or [self.cpu()]

    def devices(self) -> Table:
        """Return a table of what there is: the CPU first, then GPUs, real or virtual.

        Returns:
            A table with one row per device: its name, whether it is real, its model.
        """
        rows = [[self.name(self.cpu()), "real", cpu_model()]]
        virtual = self.decision is not None and self.decision.virtual
        if not virtual:
            rows += [[self.name(d), "real", self.model(d)] for d in self.real()]
        else:
            rows += [
                [self.name(device), "virtual", self.decision.how]
                for device in self.decision.devices
            ]
        return Table(["device", "kind", "model"], rows)

    # ------------------------------------------------ the decision

    def require_gpus(self, n: int) -> None:
        """Make sure of n GPUs: real ones if the machine has n, else n virtual ones.

        Decides once per process and prints one line that says what was decided. From
        then on exactly those devices are visible. Repeating the call, or asking for
        fewer, prints the same line again. The environment variable ``D2L_GPU_VIRTUAL``
        forces virtual GPUs (``=4``: at most four) or forbids them (``=0``).

        Args:
            n: number of GPUs, at least 1.
        Raises:
            TypeError, ValueError: n is not a positive integer, or the environment
                variable is not a number.
            RuntimeError: n GPUs cannot be had: virtual ones are forbidden, or fewer
                were decided on earlier in this process.
        """
        check_number(n)
        if self.decision is None:
            self._decide(n)
        in_use = len(self.decision.devices)
        if in_use < n:
            raise RuntimeError(
                f"{count(in_use)} in use since the first call, so {n} cannot be had "
                f"now: restart Python (the notebook's kernel) to ask for {n}."
            )
        print(self.decision.line)

    def use_virtual_gpus(self, n: int = 2) -> None:
        """Use n virtual GPUs in this process, whatever the machine has.

        Args:
            n: number of virtual GPUs, at least 1.
        Raises:
            TypeError, ValueError: n is not a positive integer.
            RuntimeError: other devices are in use in this process already, or virtual
                GPUs are forbidden or cannot be had any more.
        """
        self._use_virtual(n, (n,))

    def _use_virtual(self, n: int, key: Hashable, **settings: Any) -> None:
        """Decide on virtual GPUs, or see that the same was decided before."""
        check_number(n)
        if virtual_limit() == 0:
            raise RuntimeError(
                f"{VIRTUAL}=0 forbids virtual GPUs: unset it to use them."
            )
        if self.decision is None:
            self.prepare(n)
            self._decide_virtual(n, key, **settings)
        elif self.decision.settings != key:
            raise RuntimeError(
                f"{self.decision.line} This cannot be changed any more: restart Python "
                "(the notebook's kernel) first."
            )
        print(self.decision.line)

    def virtual_count(self) -> int:
        """Return how many virtual GPUs this process has decided on, 0 for none."""
        if self.decision is None or not self.decision.virtual:
            return 0
        return len(self.decision.devices)

    def _decide(self, n: int) -> None:
        limit = virtual_limit()
        if limit is not None and 0 < limit < n:
            raise RuntimeError(
                f"This lesson needs {count(n)}, but {VIRTUAL}={limit} allows {limit}: "
                f"set it to at least {n}, or unset it."
            )
        self.prepare(n)
        real = [] if limit else self.real()
        if limit == 0 and len(real) < n:
            raise RuntimeError(
                f"This lesson needs {count(n)}, the machine has {len(real)}, and "
                f"{VIRTUAL}=0 forbids virtual ones: unset it to use them."
            )
        if len(real) >= n:
            self._decide_real(list(real)[:n])
        else:
            self._decide_virtual(n)

    def _decide_real(self, devices: Sequence[Device]) -> None:
        self.use_real(devices)
        line = (
            f"Using {count(len(devices))}, {self._names(devices)}: "
            f"{self.model(devices[0])}."
        )
        self.decision = Decision(devices, False, "", line)

    def _decide_virtual(self, n: int, key: Hashable = None, **settings: Any) -> None:
        devices, how = self.make_virtual(n, **settings)
        names = self.introduced(devices)
        line = f"Using {n} virtual GPU{'s' * (n > 1)}, {names}: {how}."
        self.decision = Decision(devices, True, how, line, key)

    def _names(self, devices: Sequence[Device]) -> str:
        return enumerated([self.name(device) for device in devices])


def check_number(n: int) -> None:
    """Raise TypeError or ValueError unless n is a number of GPUs, at least 1."""
    check_integer("The number of GPUs", n, least=1, example=2)


def count(n: int) -> str:
    """Return ``1 GPU`` or ``2 GPUs``."""
    return f"{n} GPU" if n == 1 else f"{n} GPUs"


def enumerated(names: Sequence[str]) -> str:
    """Return names as in a sentence, many of them by the first and the last."""
    if len(names) > 4:
        return f"{names[0]} to {names[-1]}"
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + [names[-1]])


def _check_index(i: int) -> None:
    if isinstance(i, bool) or not isinstance(i, int):
        raise TypeError(
            f"A GPU is named by an integer such as 0, not {i!r} ({type(i).__name__})."
        )
    if i < 0:
        raise ValueError(f"GPUs are counted from 0, so there is no GPU {i}.")
