"""Which GPUs a process uses: real ones if the machine has enough, else virtual ones.

This module holds what is the same for every framework: the decision, made once per
process, what device names mean before and after it, and all messages about it. A
subclass of `Gpus` defines a framework's devices.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from d2l_gpu.common.arguments import check_integer
from d2l_gpu.common.processor import cpu_model
from d2l_gpu.common.settings import VIRTUAL, virtual_limit
from d2l_gpu.vgpu import Table
from d2l_gpu.vgpu.sim.words import shown

Device = TypeVar("Device")


@dataclass(frozen=True)
class Decision(Generic[Device]):
    """The GPUs in use, as `require_gpus` or `use_virtual_gpus` decided.

    Attributes:
        devices: the GPUs, in order.
        virtual: whether they are virtual.
        how: description of virtual GPUs, such as ``computed on the CPU``; empty for
            real ones.
        line: the message that announces the decision.
        settings: the arguments of `use_virtual_gpus`; None if `require_gpus` decided.
    """

    devices: Sequence[Device]
    virtual: bool
    how: str
    line: str
    settings: Hashable = None


class Gpus(ABC, Generic[Device]):
    """The GPUs of a process, all real or all virtual, decided once and on demand.

    A framework's subclass defines the abstract methods; its lessons use the others.
    """

    def __init__(self) -> None:
        self.decision: Decision[Device] | None = None

    # ------------------------------------------------ what a framework defines

    @abstractmethod
    def cpu(self) -> Device:
        """Return the CPU device: all cores and all of the host's memory."""

    @abstractmethod
    def real(self) -> Sequence[Device]:
        """Return the machine's real GPUs; the list may be empty."""

    @abstractmethod
    def named(self, i: int) -> Device:
        """Return ``gpu(i)`` before the decision: a name that may refer to no device."""

    @abstractmethod
    def make_virtual(self, n: int, **settings: Any) -> tuple[Sequence[Device], str]:
        """Make n virtual GPUs.

        Returns:
            The devices, and a description of them, such as ``computed on the CPU``.
        Raises:
            RuntimeError: virtual GPUs can't be made, or it's too late to make them.
        """

    def prepare(self, n: int) -> None:
        """Prepare for n virtual GPUs, before `real` or `make_virtual` is called."""

    def use_real(self, devices: Sequence[Device]) -> None:
        """Hide the other real GPUs, once these have been chosen."""

    def name(self, device: Device) -> str:
        """Return a device's name, as it appears in messages."""
        return str(device)

    def introduced(self, devices: Sequence[Device]) -> str:
        """Return the names of new virtual GPUs, as the message announces them."""
        return self._names(devices)

    def model(self, device: Device) -> str:
        """Return a real GPU's model, as its driver reports it."""
        return self.name(device)

    # ------------------------------------------------ device names

    def gpu(self, i: int = 0) -> Device:
        """Return the i-th GPU, counted from 0.

        Before ``require_gpus``, this is only a name and may refer to no device;
        afterwards it is one of the GPUs in use.

        Args:
            i: index of the GPU.
        Raises:
            TypeError: i is not an integer.
            ValueError: i is negative, or there is no such GPU.
            RuntimeError: nothing has been decided yet, and the framework has no names
                for devices that may not exist (JAX).
        """
        _check_index(i)
        if self.decision is None:
            return self.named(i)
        devices = self.decision.devices
        if i >= len(devices):
            raise ValueError(
                f"gpu({i}) does not exist: this process uses {count(len(devices))}, "
                f"{self._names(devices, str.format)}."
            )
        return devices[i]

    def num_gpus(self) -> int:
        """Return the number of GPUs in use or, before the decision, in the machine."""
        devices = self.real() if self.decision is None else self.decision.devices
        return len(devices)

    def try_gpu(self, i: int = 0) -> Device:
        """Return ``gpu(i)`` if it exists, otherwise the CPU (d2l section 6.7).

        Raises:
            TypeError: i is not an integer.
            ValueError: i is negative.
        """
        _check_index(i)
        return self.gpu(i) if i < self.num_gpus() else self.cpu()

    def try_all_gpus(self) -> list[Device]:
        """Return all GPUs, or ``[cpu()]`` if there are none; never an empty list."""
        return [self.gpu(i) for i in range(self.num_gpus())] or [self.cpu()]

    def devices(self) -> Table:
        """Return a table of the devices: the CPU first, then the GPUs, real or virtual.

        Returns:
            A table with one row per device: its name, whether it is real, and its model
            or, for a virtual GPU, what computes for it.
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
        """Provide n GPUs: real ones if the machine has n, otherwise virtual ones.

        The decision is made once per process and announced in one printed line. From
        then on, only those GPUs are visible. Another call with the same or a smaller n
        prints the line again. The environment variable ``D2L_GPU_VIRTUAL`` forces
        virtual GPUs (``=4``: at most four) or forbids them (``=0``).

        Args:
            n: number of GPUs, at least 1.
        Raises:
            TypeError, ValueError: n is not a positive integer, or the environment
                variable is not a number.
            RuntimeError: n GPUs aren't available: virtual ones are forbidden, limited
                to fewer, or can't be made any more; or this process has already decided
                on fewer.
        """
        check_number(n)
        if self.decision is None:
            self._decide(n)
        in_use = len(self.decision.devices)
        if in_use < n:
            raise RuntimeError(
                f"This process has used {count(in_use)} since the first call, and "
                f"cannot switch to {n} now: restart Python (the notebook's kernel) to "
                f"ask for {n}."
            )
        print(shown(self.decision.line))

    def use_virtual_gpus(self, n: int = 2) -> None:
        """Use n virtual GPUs in this process, even if the machine has real ones.

        Args:
            n: number of virtual GPUs, at least 1.
        Raises:
            TypeError, ValueError: n is not a positive integer, or the environment
                variable ``D2L_GPU_VIRTUAL`` is not a number.
            RuntimeError: this process already uses other devices, or virtual GPUs are
                forbidden or can't be made any more.
        """
        self._use_virtual(n, (n,))

    def _use_virtual(self, n: int, key: Hashable, **settings: Any) -> None:
        """Decide on virtual GPUs, or check that the same decision was made before."""
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
                f"{self.decision.line} This can no longer be changed: restart Python "
                "(the notebook's kernel) first."
            )
        print(shown(self.decision.line))

    def virtual_count(self) -> int:
        """Return the number of virtual GPUs in use, 0 if there are none."""
        if self.decision is None or not self.decision.virtual:
            return 0
        return len(self.decision.devices)

    def _decide(self, n: int) -> None:
        limit = virtual_limit()
        if limit is not None and 0 < limit < n:
            raise RuntimeError(
                f"This lesson needs {count(n)}, but {VIRTUAL}={limit} allows only "
                f"{limit}: set it to at least {n}, or unset it."
            )
        self.prepare(n)
        real = [] if limit else self.real()
        if limit == 0 and len(real) < n:
            raise RuntimeError(
                f"This lesson needs {count(n)}, but the machine has {len(real)}, and "
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

    def _names(self, devices: Sequence[Device], say: Callable = shown) -> str:
        return enumerated([self.name(device) for device in devices], say)


def check_number(n: int) -> None:
    """Raise TypeError or ValueError unless n is a number of GPUs, at least 1."""
    check_integer("The number of GPUs", n, least=1, example=2)


def count(n: int) -> str:
    """Return n with its noun: ``1 GPU``, ``2 GPUs``."""
    return f"{n} GPU" if n == 1 else f"{n} GPUs"


def enumerated(names: Sequence[str], say: Callable[..., str] = shown) -> str:
    """Return names as in a sentence; of more than four, only the first and last.

    Args:
        names: one or more.
        say: what fills in the sentence; ``str.format`` for an English one.
    """
    if len(names) == 1:
        return names[0]
    if len(names) > 4:
        return say("{first} to {last}", first=names[0], last=names[-1])
    return say("{first} and {last}", first=", ".join(names[:-1]), last=names[-1])


def _check_index(i: int) -> None:
    if isinstance(i, bool) or not isinstance(i, int):
        raise TypeError(
            f"A GPU's index must be an integer such as 0, but got {i!r} "
            f"({type(i).__name__})."
        )
    if i < 0:
        raise ValueError(f"GPUs are counted from 0, so there is no GPU {i}.")
