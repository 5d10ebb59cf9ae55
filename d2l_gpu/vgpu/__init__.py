"""Virtual GPUs for PyTorch: devices ``vgpu:0``, ``vgpu:1`` … on any machine.

    from d2l_gpu import vgpu
    vgpu.enable(2)
    X = torch.ones(2, 3, device='vgpu:1')

They behave like GPUs (placement, errors across devices, memory of their own).
PyTorch's own kernels compute their values, on the CPU or another *backing* device. The
time and memory that they take are simulated. Importing this module does nothing yet;
``enable`` registers the device type.

You can rely on what this module exports, on ``torch.vgpu``, on the modules
``sim.catalogue``, ``sim.drawing``, ``sim.plans``, ``sim.play``, ``sim.puzzle`` and
``sim.replicas``, on the pytest plugin and on the command ``python -m d2l_gpu.vgpu``.
Everything else that can be imported may change with any version. It's
easiest to read in this order:

* ``backend``: registers the device type with PyTorch, once per process.
* ``devices``: which devices exist, which one is current, what their names mean.
* ``tensor``: the tensor on a virtual GPU, and the path that every operator takes.
* ``sparse``, ``layouts``: sparse tensors, and the dense ones that they consist of.
* ``operators``: facts about an operator, gathered at its first use.
* ``records``: one record per operator, with everything that its schema doesn't say.
* ``special``: handlers that run in place of an operator, such as copies.
* ``composites``: operators that run as a whole on the backing tensors.
* ``attention``: kernels of attention that PyTorch has for GPUs only.
* ``own_kernels``: operators that a program defines, with kernels in Python.
* ``shapes``: layouts of results without values, remembered.
* ``bounds``: upper bounds of the size of results, to check that they fit.
* ``work``: how many operations and bytes a call takes, for the clock.
* ``errors``: the error messages, worded as PyTorch words them.
* ``methods``, ``storage``: what a tensor answers where C++ doesn't ask the backend.
* ``device_api``, ``streams``: ``torch.vgpu``, with its streams and events.
* ``memory``: what it says about memory: counts, blocks, a map of them, a history.
* ``categories``: what the memory is used for: parameters, gradients, activations …
* ``sync_debug``: where the host waits for a device.
* ``generator``, ``autocast``: ``torch.Generator`` and ``torch.autocast``.
* ``collectives``: ``torch.distributed``, with gloo underneath.
* ``ranks``, ``turns``: small worlds, whose ranks are threads that take turns.
* ``meetings``, ``exchange``: their process group, and what its collectives compute.
* ``processes``: tensors that are sent to other processes, and forked processes.
* ``patches``: every change made to PyTorch itself.
* ``sim``: the simulation without PyTorch: memory, clock, catalogue, reports.
* ``clusters``: a program on as many GPUs as you like, run as the ranks that differ.
* ``one_rank``, ``waits``: how it runs as one of them, and who waits for whom.
* ``cluster_run``: what it did there.
* ``simulators``: devices of their own beside those of ``enable``, and their clock.
* ``saving``: timelines as files, such as traces for Perfetto.
* ``host_memory``: how much memory this computer can still give.
* ``host_time``: how long this computer takes to issue work.
* ``profiler``: kernels on the simulated clock, for ``torch.profiler``.
* ``monitor``, ``nvml``, ``nvidia_smi``: what tools that monitor GPUs are told.
* ``programs``, ``__main__``: run a script that says ``cuda`` on virtual GPUs.
* ``pytest_plugin``: the marker and the fixture ``virtual_gpus``.
"""

import gc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from .host_memory import host_memory_left
from .sim.catalogue import LINKS, MODELS, Host, Link, Model
from .sim.clock import PICO, Span
from .sim.machine import Copy, Machine
from .sim.memory_map import MemoryMap
from .sim.memory_use import MemoryUse
from .sim.product import product_seconds
from .sim.report import DeviceUse
from .sim.table import Table
from .sim.units import count_text, time_text

if TYPE_CHECKING:
    import torch

    from .clusters import Cluster
    from .sim.fabric import Network
    from .simulators import Simulator

__all__ = [
    "LINKS",
    "MODELS",
    "PICO",
    "Copy",
    "DeviceUse",
    "Host",
    "Link",
    "MemoryMap",
    "MemoryUse",
    "Model",
    "Span",
    "Table",
    "cluster",
    "count_text",
    "current_simulator",
    "device_types",
    "enable",
    "has_devices",
    "host_memory_left",
    "is_virtual",
    "machine_in_use",
    "mark_pinned",
    "measure_host",
    "memory_map",
    "memory_use",
    "peek",
    "product_seconds",
    "record_copies",
    "run_ranks",
    "simulator",
    "simulator_of",
    "time_text",
]


def enable(
    n: int = 2,
    *,
    memory: int | str | None = None,
    backing: str | None = None,
    as_cuda: bool = False,
    model: str | Model | Sequence[str | Model] = "V100",
    link: str | Link = "NVLink2",
    host: Host | None = None,
    allocator: str | None = None,
) -> None:
    """Set up n virtual GPUs in this process.

    You can call it again with other settings as long as no tensor is on any of them.

    Args:
        n: number of devices, 1 to 64.
        memory: capacity of each, in bytes or as ``'512MiB'``. Default: 4 GiB, or less
            if the host has less left; with ``backing='meta'`` the model's capacity.
        backing: the device that computes their values: ``'cpu'``, the default, or a
            real GPU such as ``'cuda:0'``. With ``'meta'`` nothing is computed: tensors
            have shapes and no values.
        as_cuda: let them answer to the names ``cuda:0``, ``cuda:1`` … as well, so that
            programs written for CUDA run unmodified. Once on, it stays on in this
            process, whatever later calls say.
        model: the GPU that the simulated clock assumes: a name in ``MODELS``, or a list
            with one name for each device.
        link: what connects them on that clock: a name in ``LINKS``.
        host: what the program's own work takes on that clock. Default: what others have
            published; ``measure_host`` measures it on a machine with a GPU.
        allocator: how memory is handed out. By default a program can use all of it, to
            the last byte. ``'caching'`` simulates PyTorch's caching allocator, with
            segments, fragmentation and the workspaces of cuBLAS. Settings can follow,
            in the format of ``PYTORCH_CUDA_ALLOC_CONF``:
            ``'caching,expandable_segments:True,max_split_size_mb:128'``. Two more are
            ours: ``context_mb`` for what CUDA itself occupies (0 by default), and
            ``cublas_workspace_kb`` (by default as in PyTorch). Without settings, those
            of ``PYTORCH_CUDA_ALLOC_CONF`` or ``PYTORCH_ALLOC_CONF`` hold, as on a GPU.
    Raises:
        TypeError, ValueError: an argument makes no sense.
        RuntimeError: PyTorch is older than 2.10; another backend has taken PyTorch's
            one place for backends; tensors are still on the earlier devices; or as_cuda
            is asked for, and this machine has CUDA devices.
    """
    from .simulators import Settings

    settings = Settings.checked(n, memory, backing, model, link, host, allocator)

    from . import backend
    from .devices import Devices

    if Devices.machine is not None and any(Devices.machine.used):
        gc.collect()  # tensors that only a reference cycle keeps don't count
    if Devices.machine is not None and any(Devices.machine.used):
        raise RuntimeError(
            "Virtual GPUs can be set up again only when no tensor is left on them, "
            f"but {sum(Devices.machine.used)} bytes are still in use."
        )
    if as_cuda:
        from .patches import as_cuda as cuda_names

        cuda_names.check()
    backend.register()
    if as_cuda:
        cuda_names.apply()
    Devices.place(settings.machine(first=0), settings.backing)


def simulator(
    n: int = 2,
    model: str | Model | Sequence[str | Model] = "V100",
    link: str | Link = "NVLink2",
    backing: str = "cpu",
    *,
    memory: int | str | None = None,
    replicas: bool = False,
    host: Host | None = None,
    allocator: str | None = None,
) -> "Simulator":
    """Return a simulation with n devices of its own, beside all others.

    It also works where real GPUs are in use, and affects neither those nor the virtual
    GPUs of ``enable``. A program takes the same simulated time on it on every machine.

    Args:
        n: number of devices, at most 32.
        model: the GPU to simulate: a name in ``MODELS``, or a list with one name for
            each device.
        link: what connects them: a name in ``LINKS``.
        backing: the device that computes their values: ``'cpu'`` or a real GPU such as
            ``'cuda:0'``. With ``'meta'`` nothing is computed, so even large networks
            take no time: tensors have shapes and no values.
        memory: capacity of each, as in ``enable``.
        replicas: with ``backing='meta'``, simulate one device for all n, because all
            do the same at the same time, as in data parallelism. Then n has no limit.
        host: what the program's own work takes, as in ``enable``.
        allocator: how memory is handed out, as in ``enable``.
    Raises:
        TypeError, ValueError: an argument makes no sense.
        RuntimeError: as for ``enable``; or too many simulators are alive, or dead with
            tensors still on their devices.
    """
    from .simulators import create

    return create(n, model, link, backing, memory, replicas, host, allocator)


def cluster(
    nodes: int = 1,
    gpus: int = 8,
    model: str | Model = "H100",
    network: "str | Network | None" = None,
    *,
    link: str | Link | None = None,
    cards: int | None = None,
    wiring: str | None = None,
    memory: int | str | None = None,
    allocator: str | None = "caching",
    host: Host | None = None,
    algorithm: str | None = None,
) -> "Cluster":
    """Return a simulated cluster of any size, on which a program can run in seconds.

    ``cluster(8, 8, 'H100').run(train)`` runs ``train()`` as one rank of 64, and as
    those that it sends to. PyTorch's own code runs, such as ``fully_shard``, DTensor
    and pipelines, but tensors have shapes and no values.

    Args:
        nodes: the number of nodes.
        gpus: the number of GPUs in a node, or in a domain of NVLink, such as 72 for
            GB200 NVL72.
        model: the GPU that they all are: a name in ``MODELS``.
        network: what connects the nodes: a name in ``sim.fabric.NETWORKS``, such as
            ``'NDR'``. Default: HDR for V100 and A100, NDR for others.
        link: what connects the GPUs of a node: a name in ``LINKS``. Default: the
            model's.
        cards: the number of network cards in a node. Default: one for each GPU.
        wiring: how the GPUs of a node are connected: ``'NVSwitch'``, ``'mesh'``,
            ``'DGX-1'`` or ``'PCIe'``. Default: what suits link and number.
        memory: capacity of each GPU. Default: the model's.
        allocator, host: as in ``enable``.
        algorithm: the only one that NCCL may use for all-reduces, such as ``'Tree'``,
            as with ``NCCL_ALGO=allreduce:tree``. Default: it chooses.
    Raises:
        TypeError, ValueError: an argument makes no sense.
    """
    from .clusters import Cluster

    return Cluster(
        *(nodes, gpus, model, network, link, cards, wiring, memory, host, allocator),
        algorithm,
    )


def measure_host(device=None) -> Host:
    """Measure how long this machine takes to issue work to a real device.

    Pass the result to ``enable`` or ``simulator``, and the clock simulates a program
    that runs on this machine's CPU and PyTorch. It takes about a second.

    Args:
        device: a real device. Default: the machine's GPU. ``'cpu'`` leaves out what
            the driver of a GPU takes, so it gives lower bounds.
    Raises:
        RuntimeError: no device is given, and the machine has no GPU.
        ValueError: the device is virtual, or isn't there.
    """
    from .host_time import measure

    return measure(device)


def current_simulator() -> "Simulator":
    """Return the simulation of the virtual GPUs that ``enable`` set up.

    Raises:
        RuntimeError: ``enable`` hasn't been called yet.
    """
    from .simulators import Simulator

    return Simulator(machine_in_use())


def simulator_of(device) -> "Simulator | None":
    """Return the simulation of a device, None if it isn't a virtual GPU."""
    import torch

    from .devices import Devices

    device = torch.device(device)
    if device.type not in Devices.types or not any(Devices.machines):
        return None
    from .devices import index_of
    from .simulators import Simulator

    return Simulator(Devices.machines[index_of(device)])


def has_devices() -> bool:
    """Return whether ``enable`` has set up virtual GPUs in this process.

    Those of ``simulator`` don't count.
    """
    from .devices import Devices

    return Devices.machine is not None


def device_types() -> tuple[str, ...]:
    """Return the device types that mean virtual GPUs: vgpu, and cuda with as_cuda."""
    from .devices import Devices

    return Devices.types


def mark_pinned(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return a copy of a tensor that the clock treats as page-locked memory.

    Use it for tensors on the meta device, which have no memory to lock. Tensors on the
    CPU have ``pin_memory()``.
    """
    from .storage import set_pinned_mark

    tensor = tensor.clone()
    set_pinned_mark(tensor)
    return tensor


def is_virtual(value: Any) -> bool:
    """Return whether a value is a tensor on a virtual GPU.

    Tensors of other classes don't count, even if they contain one, as a DTensor does.
    """
    from .sparse import SparseTensor
    from .tensor import VirtualTensor

    return type(value) in (VirtualTensor, SparseTensor)


def peek(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return a tensor's values on its backing device, without copying them.

    Neither the log of copies nor the clock notices. It's for tests and other observers,
    because a program on a GPU couldn't do this. The result shares its memory with the
    tensor, so don't change it.
    """
    from .tensor import is_virtual

    tensor = tensor.detach()
    return tensor._backing if is_virtual(tensor) else tensor


def memory_use(
    net: "torch.nn.Module | None" = None,
    optimizer: "torch.optim.Optimizer | None" = None,
    device: "int | str | torch.device | None" = None,
) -> AbstractContextManager[MemoryUse]:
    """Return a context that records what a device's memory is used for inside it.

        with vgpu.memory_use(net, optimizer) as use:
            step()
        use                  # a picture in a notebook; print(use) is a table
        use.peak             # bytes by category when most memory was in use

    Each byte belongs to one category: parameters, buffers, gradients, optimizer state,
    activations, temporary or other. The page on memory in the documentation has the
    rules. Recording changes neither results nor memory nor simulated time.

    Args:
        net: the network whose names the table of modules has. Modules that aren't part
            of it are found when they go forward, and named by their class.
        optimizer: the optimizer whose state is known from the start. Others are found
            when they take a step.
        device: by default that of the network's parameters, or the current one.
    Raises:
        TypeError: an argument is of another type.
        RuntimeError, ValueError: there is no such virtual GPU.
    """
    from . import categories

    return categories.memory_use(net, optimizer, device)


def memory_map(
    device: "int | str | torch.device | None" = None, wanted: int | str | None = None
) -> MemoryMap:
    """Return a map of the memory that PyTorch has reserved on a device right now.

    Each segment is a bar, cut into blocks that are in use or free. Show it inside an
    ``except`` block to see why a request was refused: a tensor needs one piece, however
    much is free in all. ``print`` draws it as text.

        except torch.OutOfMemoryError:
            print(vgpu.memory_map(device))

    It works for real CUDA GPUs, too, from ``torch.cuda.memory_snapshot()``. A virtual
    GPU without ``allocator='caching'`` reserves nothing beyond what is in use.

    Args:
        device: a virtual GPU or a real CUDA GPU. Default: the current virtual GPU.
        wanted: the size of a request to compare the free pieces with, in bytes or as
            ``'512MiB'``.
    Raises:
        TypeError, ValueError: an argument makes no sense.
        RuntimeError: there is no such device.
    """
    from . import memory

    return memory.memory_map(device, wanted)


def machine_in_use() -> Machine:
    """Return the machine that simulates memory and copies for ``enable``'s devices.

    Its lists ``used`` and ``peak`` have the bytes that are allocated on each device,
    now and at most, and ``kernels`` the number of kernels issued to it.

    Raises:
        RuntimeError: ``enable`` hasn't been called yet.
    """
    from .devices import Devices

    if Devices.machine is None:
        raise RuntimeError("No virtual GPUs are in use: call enable first.")
    return Devices.machine


def record_copies() -> AbstractContextManager[list[Copy]]:
    """Return a context that collects the copies made inside it, in order."""
    return machine_in_use().record_copies()


def run_ranks(function: Callable[[int, int], Any], world_size: int) -> list[Any]:
    """Run a function as the ranks of ``torch.distributed``, in this process.

    Rank i has ``vgpu:i`` as its current device, and a default process group:

        def total(rank, world_size):
            X = torch.full((2,), rank + 1.0, device='vgpu')
            torch.distributed.all_reduce(X)
            return X

        vgpu.enable(4)
        results = vgpu.run_ranks(total, 4)

    Values are real. ``DistributedDataParallel``, ``fully_shard``, DTensor and pipelines
    work as on GPUs. Like ``torchrun``, it runs ranks, but it starts no processes, so
    lambdas, closures and results of any type are fine.

    Ranks share variables, which processes wouldn't: give each a network of its own.
    They take turns in a fixed order, so the same program has the same results and the
    same simulated times at each run. On the simulated clock each rank has a host of its
    own, and a collective begins when the last rank reaches it. Generators of random
    numbers begin in the caller's state on all ranks, and the caller's stay as they are.

    Args:
        function: is called with the rank and the world size.
        world_size: number of ranks, at most one for each device of ``enable``.
    Returns:
        What the function has returned on each rank, in order.
    Raises:
        TypeError, ValueError: an argument makes no sense, or there are too few devices.
        RuntimeError: ``enable`` hasn't been called yet; this process is a rank already;
            a rank has raised an error, which is the cause of this one; or the ranks
            would wait for each other for ever.
    """
    import torch

    if not torch.distributed.is_available():
        raise RuntimeError("This build of PyTorch doesn't have torch.distributed.")
    from . import ranks

    return ranks.run_ranks(function, world_size)
