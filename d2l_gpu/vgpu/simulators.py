"""Simulated devices as a program sees them: their names, their clock, their report.

``Simulator`` is a view of a machine and its clock. ``create`` makes another machine,
with devices of its own, beside the one that ``enable`` set up.
"""

import gc
import os
import re
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from . import backend
from .devices import MOST, PLAIN, Devices, index_of
from .host_memory import default_capacity, host_memory_left
from .saving import Timeline
from .sim import commands
from .sim.allocator_config import Config
from .sim.caching import CachingMachine
from .sim.catalogue import LINKS, MODELS, Host, Link, Model, closest
from .sim.clock import Clock, Moment, Span, queues
from .sim.machine import Machine
from .sim.report import Report
from .sim.units import parse_size
from .sim.words import shown
from .tensor import engine, is_virtual
from .work import work_of

MOST_IN_ONE = 32

# Weak references to the simulator of each machine, by the machine's first device.
_owners: dict[int, Callable[[], "Simulator | None"]] = {}


def _nobody() -> None:
    """The owner of a machine that nobody needs any more."""


@dataclass(frozen=True)
class Settings:
    """The checked settings of a machine."""

    count: int
    capacities: tuple[int, ...]
    backing: torch.device
    models: tuple[Model, ...]
    link: Link
    host: Host
    allocator: Config | None = None

    @classmethod
    def checked(
        cls,
        n,
        memory,
        backing,
        model,
        link,
        host=None,
        allocator=None,
        most: int = PLAIN,
    ) -> "Settings":
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(
                f"The number of virtual GPUs must be an integer, but got {n!r}."
            )
        if n < 1:
            raise ValueError(
                f"The number of virtual GPUs must be at least 1, but got {n}."
            )
        if n > most:
            raise ValueError(f"There can be at most {most} virtual GPUs, but got {n}.")
        backing = _device(backing)
        if not isinstance(model, list | tuple):
            models = (_entry(model, MODELS, "model"),) * n
        else:
            models = tuple(_entry(m, MODELS, "model") for m in model)
            if len(models) != n:
                raise ValueError(
                    f"There must be one model for each of the {n} devices, but got "
                    f"{len(models)}."
                )
        link = _entry(link, LINKS, "link")
        if memory is not None:
            capacities = (parse_size(memory),) * n
        elif backing.type == "meta":
            capacities = tuple(m.memory for m in models)
        else:
            capacities = tuple(min(default_capacity(n), m.memory) for m in models)
        host = Host() if host is None else host
        if not isinstance(host, Host):
            raise TypeError(
                "The host must be a vgpu.Host, such as vgpu.measure_host() returns, "
                f"but got {host!r}."
            )
        return cls(n, capacities, backing, models, link, host, _allocator(allocator))

    def machine(
        self, first: int, stands_for: int = 1, clock: type[Clock] = Clock
    ) -> Machine:
        """Return a new machine whose first device has the index ``first``."""
        models = {first + i: model for i, model in enumerate(self.models)}
        has_values = self.backing.type != "meta"
        kind = Machine
        if self.allocator is not None:
            kind = partial(CachingMachine, config=self.allocator, handle=_cublas_handle)
        return kind(
            self.count,
            self.capacities,
            _out_of_memory,
            first=first,
            has_values=has_values,
            memory_left=host_memory_left if has_values else None,
            clock=clock(models, self.link, work_of, stands_for, self.host),
        )


def _out_of_memory(message: str) -> torch.OutOfMemoryError:
    """Return the error to raise.

    Programs that ask for cuda look for "CUDA out of memory" in it. What follows says
    that the memory is simulated.
    """
    if "cuda" in Devices.types:
        message = message.replace("vgpu", "CUDA", 1)
    return torch.OutOfMemoryError(message)


def _allocator(allocator) -> Config | None:
    """Return the settings of a caching allocator, None if there's to be none.

    Those that aren't given are taken from the variables that PyTorch reads, too.
    """
    if allocator is None:
        return None
    if not isinstance(allocator, str):
        raise TypeError(
            "The allocator must be None or a text such as 'caching', but got "
            f"{allocator!r}."
        )
    name, comma, text = allocator.partition(",")
    if name != "caching":
        raise ValueError(
            "The allocator must be None, 'caching', or 'caching,' and settings such "
            f"as expandable_segments:True, but got {allocator!r}."
        )
    if not comma:  # CUDAAllocatorConfig::instance asks for them in this order
        for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            text = text or os.environ.get(variable, "")
    config = Config.parse(text)
    # parseChosenWorkspaceSize: sizes in KiB and their numbers, as in ":4096:2:16:8".
    found = re.findall(r":(\d+):(\d+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if found and config.workspace is None:
        nbytes = 1024 * sum(int(size) * int(number) for size, number in found)
        config = replace(config, workspace=nbytes)
    return config


def _cublas_handle() -> int | str:
    """Return which cuBLAS handle a kernel is issued with.

    Each thread has its own (``DeviceThreadHandlePool`` of PyTorch). On a real GPU,
    backward runs in a thread of the device's; here it runs in the caller's.
    """
    return "backward" if engine.depth else queues.thread


def _device(backing) -> torch.device:
    """Return the device that is to compute values, having seen that it can."""
    try:
        device = torch.device("cpu" if backing is None else backing)
        if device.type not in ("cpu", "meta", "vgpu"):
            torch.empty(0, device=device)
    except (AssertionError, RuntimeError, TypeError, ValueError):
        raise ValueError(
            "The backing of virtual GPUs must be 'cpu', 'meta', or a GPU of this "
            f"machine, such as 'cuda:0', but got {backing!r}."
        ) from None
    if device.type == "vgpu":
        raise ValueError(
            "The backing of virtual GPUs must be a real device, such as cpu."
        )
    return device


def _entry(name, catalogue: dict, what: str):
    """Return the catalogue's entry with this name, or an entry as it is."""
    kinds = tuple({type(entry) for entry in catalogue.values()})
    if isinstance(name, kinds):
        return name
    if not isinstance(name, str):
        raise TypeError(
            f"A {what} must be named by a string such as {next(iter(catalogue))!r}, "
            f"but got {name!r}."
        )
    if name not in catalogue:
        raise ValueError(
            f"There is no {what} {name!r} in the catalogue{closest(name, catalogue)}: "
            f"choose one of {', '.join(catalogue)}, or describe your own as a "
            f"{kinds[0].__name__}."
        )
    return catalogue[name]


def create(
    n, model, link, backing, memory, replicas: bool, host=None, allocator=None
) -> "Simulator":
    """See ``d2l_gpu.vgpu.simulator``."""
    if replicas:
        if _device(backing).type != "meta":
            raise ValueError(
                "Replicas are simulated without values: pass backing='meta' as well."
            )
        settings = Settings.checked(1, memory, backing, model, link, host, allocator)
        Settings.checked(n, memory, backing, model, link, most=10**6)
    else:
        if isinstance(n, int) and n > MOST_IN_ONE:
            raise ValueError(
                f"At most {MOST_IN_ONE} devices can be simulated one by one, but got "
                f"{n}: with backing='meta', replicas=True, one device stands for any "
                "number of identical ones."
            )
        settings = Settings.checked(n, memory, backing, model, link, host, allocator)
    backend.register()
    first = _free_place(settings.count)
    machine = settings.machine(first, stands_for=n if replicas else 1)
    Devices.place(machine, settings.backing)
    simulation = Simulator(machine)
    _owners[first] = weakref.ref(simulation)
    return simulation


def _free_place(count: int) -> int:
    """Return the first of ``count`` consecutive indices that no simulation needs."""
    for collect in (False, True):
        if collect:  # a simulator in a reference cycle keeps its devices
            gc.collect()
        for first, owner in list(_owners.items()):
            machine = Devices.machines[first]
            if owner() is None and not any(machine.used):
                del _owners[first]
                Devices.remove(machine)
        run = 0
        for i in range(PLAIN, MOST):
            run = run + 1 if Devices.machines[i] is None else 0
            if run == count:
                return i - count + 1
    raise RuntimeError(
        f"There is no room for {count} more simulated devices: delete the simulators "
        "that you no longer need, and the tensors on them (del)."
    )


class Simulator:
    """Simulated devices, and what the clock says about them.

    Attributes:
        n: number of devices.
        models: the GPU model of each device that is simulated.
        link: what connects them.
        clock: the simulated clock, from which all times come.
    """

    def __init__(self, machine: Machine):
        self._machine = machine
        self.clock = machine.clock
        self._first = machine.first
        self.n = machine.count * self.clock.stands_for
        self.models = list(self.clock.models.values())
        self.link = self.clock.link

    # -------------------------------------------------------------- devices

    def gpu(self, i: int = 0) -> torch.device:
        """Return the i-th device.

        Raises:
            TypeError: i is not an integer.
            ValueError: there is no such device.
            RuntimeError: the devices have been released.
        """
        if isinstance(i, bool) or not isinstance(i, int):
            raise TypeError(
                f"A GPU's index must be an integer such as 0, but got {i!r}."
            )
        if not 0 <= i < self.n:
            raise ValueError(
                f"gpu({i}) does not exist: the indices in this simulation go from 0 "
                f"to {self.n - 1}."
            )
        if Devices.machines[self._first] is not self._machine:
            raise RuntimeError("The devices of this simulation have been released.")
        if i >= self._machine.count:
            raise ValueError(
                f"gpu({i}) is a replica: use gpu(0), which stands for all {self.n} of "
                "them."
            )
        return Devices.shown[self._first + i]

    def gpus(self) -> list[torch.device]:
        """Return the devices; of replicas, the one that is simulated."""
        return [self.gpu(i) for i in range(self._machine.count)]

    @property
    def label(self) -> str:
        """The label to print beside a number, such as ``simulated (V100)``."""
        names = dict.fromkeys(model.name for model in self.models)
        return f"simulated ({', '.join(names)})"

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(model.name for model in self.models))
        parts = [f"{self.n:,} × {names}, simulated"]
        if self.n > 1:
            parts.append(f"connected by {self.link.name}")
        if self.clock.stands_for > 1:
            parts.append("with one standing for all")
        return ", ".join(map(shown, parts))

    def close(self) -> None:
        """Free the devices for other simulators as soon as no tensor is left on them.

        Times, report and timeline stay.
        """
        owner = _owners.get(self._first)
        if owner is not None and owner() is self:
            _owners[self._first] = _nobody

    def model_of(self, device: torch.device) -> Model:
        """Return the GPU model of a device."""
        return self.clock.models[index_of(device)]

    # -------------------------------------------------------------- time

    def now(self) -> float:
        """Return the host's time, in simulated seconds since the last reset."""
        return self.clock.now()

    def elapsed(self) -> float:
        """Return when host and devices finish, in simulated seconds since the reset."""
        return self.clock.elapsed()

    def synchronize(self) -> None:
        """Let the host wait for all devices."""
        indices = list(self.clock.models)
        self.clock.note(commands.HostWaits(indices), indices[0], 0)

    def reset(self, *, memory: bool = False) -> None:
        """Wait for everything, then restart time and counts at zero.

        Args:
            memory: record how much memory is allocated until the next reset. A trace
                that ``timeline().save`` writes then shows it over time.
        """
        self.clock.reset()
        self._machine.record_memory(memory)

    def report(self) -> Report:
        """Return what devices and links did since the last reset, as tables."""
        return Report(self.clock, self.label)

    def spans(self) -> list[Span]:
        """Return the spans of time since the last reset that the timeline draws."""
        self.clock.work_off()
        return [Span._make(span) for span in self.clock.spans]

    def timeline(self, title: str = "", subtitle: str = "") -> Timeline:
        """Return a drawing of what ran when since the last reset.

        Its ``save('trace.json')`` writes a trace that ui.perfetto.dev opens.

        Args:
            title: what the drawing shows, as a finding; default: how long it took.
            subtitle: the conditions; how long it took and *simulated* are added.
        """
        return Timeline(self.clock, self.label, title, subtitle)

    # -------------------------------------------------------------- collectives

    def all_reduce(
        self,
        tensors: Sequence[torch.Tensor],
        algorithm: str = "ring",
        *,
        beside: bool = False,
    ) -> "Pending":
        """Sum one tensor per device, and write the sum into all of them.

        Values are summed for real; the simulated time follows from the sizes.

        Args:
            tensors: one for each device, in order, of the same shape; for replicas,
                only the first one's.
            algorithm: ``'ring'``, or ``'naive'``: one device receives the tensors of
                all others and sends them the sum.
            beside: overlap with later work on the devices. Call ``wait`` on the result
                before that work uses the sum.
        Returns:
            An object whose ``wait()`` makes later work on the devices wait for the sum.
        Raises:
            ValueError: the tensors don't match the devices or each other, or there is
                no such algorithm.
        """
        tensors = list(tensors)
        here = [x._index if is_virtual(x) else None for x in tensors]
        if here != list(self.clock.models):
            raise ValueError(
                "all_reduce needs exactly one tensor on each of the simulation's "
                f"{self._machine.count} devices, in order (got {len(tensors)} "
                "tensors)."
            )
        if len({(x.shape, x.dtype) for x in tensors}) > 1:
            raise ValueError("all_reduce needs tensors of the same shape and dtype.")
        if any(x.layout is not torch.strided for x in tensors):
            raise ValueError("all_reduce needs dense tensors, not sparse ones.")
        if self._machine.has_values:
            backings = [x.detach()._backing for x in tensors]
            total = backings[0].clone()
            for x in backings[1:]:
                total += x
            for x in backings:
                x.copy_(total)
        work = here, tensors[0].nbytes, self.n, self.link, beside
        if algorithm == "ring":
            command = commands.ring("all_reduce", *work)
        elif algorithm == "naive":
            command = commands.naive_all_reduce(*work)
        else:
            raise ValueError(
                "The algorithm of all_reduce must be 'ring' or 'naive', but got "
                f"{algorithm!r}."
            )
        if self.n > 1:
            stream = torch.vgpu.current_stream(self.gpu(0)).stream_id
            self.clock.note(command, here[0], stream)
        return Pending(self.clock, here, command.done)


class Pending:
    """A collective that overlaps with other work; see ``Simulator.all_reduce``."""

    def __init__(self, clock: Clock, indices: list[int], done: Moment):
        self._clock, self._indices, self._done = clock, indices, done

    def wait(self) -> None:
        """Make later work on the devices wait for the result."""
        for i in self._indices:
            stream = torch.vgpu.current_stream(Devices.names[i]).stream_id
            self._clock.note(commands.StreamWaits(self._done), i, stream)
