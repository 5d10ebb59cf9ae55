"""Collectives on virtual GPUs: ``torch.distributed`` with gloo underneath.

Each process has virtual GPUs of its own. Between processes their values travel as
those of ordinary tensors do, so we run an operator of ``c10d`` on the backing tensors,
and its results arrive there. The operator returns the virtual tensors that it was
given. ``records.py`` says which collective each operator is.

The log of copies leaves out what a collective sends: the number of bytes depends on the
algorithm that gloo chooses, which says nothing about real GPUs. The simulated clock
assumes a ring, which NCCL uses too, or if it has a fabric, what NCCL chooses there.
Every process has a clock of its own, so it also assumes that all devices reach the
collective at the same time. Later work on the device waits for it.

A group of NCCL's knows nothing of the CPU, where the backing tensors are. So another
group stands behind it, which does; see ``patches/nccl.py``.
"""

import itertools
import sys
import threading

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from . import errors, waits
from .devices import Devices
from .operators import operator
from .sim.clock import HOST, queues
from .sim.cluster import Meeting, Recorder
from .sim.commands import chosen, ring
from .special import home
from .storage import has_pinned_mark, set_pinned_mark
from .tensor import VirtualTensor, contained, is_virtual, run, wrap

# Groups where collectives really run, by the name of the group that a program sees.
behind: dict[str, "torch.distributed.ProcessGroup"] = {}
BEHIND = ", behind NCCL"  # added to its name


class _Asked(threading.local):
    """What a caller in this thread asked for that C++ doesn't pass on."""

    factor = None  # for each rank's numbers, before they are added; gloo has none
    index = None  # of the device that a functional collective computes for


asked = _Asked()


def collective(op, *args, **kwargs):
    """Run one operator of ``c10d`` on the backing tensors of virtual ones."""
    given: dict[int, VirtualTensor] = {}
    devices: list[torch.device] = []
    backing_args = _to_backings(list(args), given, devices)
    backing_kwargs = {k: _to_backings(v, given, devices) for k, v in kwargs.items()}
    if len(set(devices)) > 1:
        raise errors.collective_mismatch(op, devices)
    if not given:
        return op.call(*backing_args, **backing_kwargs)
    group = next(filter(None, map(_group, args)), None)
    memories = {x._backing.untyped_storage().data_ptr() for x in given.values()} - {0}
    if op.record.between_two:
        # A rank that waited for this before it begins the next might wait for ever.
        memories.clear()
    _wait_for_earlier(memories)
    if behind:
        backing_args = [_behind(value) for value in backing_args]
    if asked.factor is not None:
        place = 1 if op.record.collective == "reduce_scatter" else 0
        backing_args[place] = scaled(
            backing_args[place], asked.factor, in_place=place == 0
        )
    if op.record.flat:
        for place in range(2):
            backing_args[place] = _flat(backing_args[place], given)
    result = op.call(*backing_args, **backing_kwargs)
    works = [
        torch.distributed.Work.unbox(work)
        for work in filter(_is_work, tree_leaves(result))
    ]
    for work in works:
        _note(work, memories)
    if group is not None:
        peer = args[2] if op.record.between_two else None
        index = next(iter(given.values()))._index
        meeting = _issued(op, args[:2], group, index, peer)
        if meeting is not None:
            waits.expect(works, meeting, args[0])
    return _as_given(result, given)


def _flat(backing: torch.Tensor, given: dict[int, VirtualTensor]) -> torch.Tensor:
    """Return a view of a backing tensor with one dimension, noted in ``given``."""
    if not backing.is_contiguous():
        return backing
    flat = backing.view(-1)
    if id(backing) in given:
        given[id(flat)] = given[id(backing)]
    return flat


# Collectives that haven't ended: the addresses of the memory that each one uses.
_running: dict[int, tuple[set[int], "torch.distributed.Work"]] = {}
_numbers = itertools.count()


def _wait_for_earlier(memories: set[int]) -> None:
    """Wait for earlier collectives of the same memory.

    A device does them one after the other; gloo does them at the same time.
    """
    for used, work in list(_running.values()):
        if used & memories:
            work.wait()


def _note(work: "torch.distributed.Work", memories: set[int]) -> None:
    """Keep a collective in mind until it ends, and no longer: it keeps its tensors."""
    if not memories or work.is_completed():
        return
    try:
        future = type(work).get_future.__wrapped__(work)  # as C++ has it
    except RuntimeError:  # it has none: reduce_scatter
        work.wait()
        return
    number = next(_numbers)
    _running[number] = memories, work
    future.add_done_callback(lambda _: _running.pop(number, None))


def _is_work(value) -> bool:
    return isinstance(value, torch.ScriptObject) and "Work" in str(value._type())


def functional(op, *args, **kwargs):
    """Run one operator of ``_c10d_functional``, which knows its group by name."""
    if op.name.endswith("wait_tensor"):
        waits.result(args[0])
    names = [str(x) for x in args if isinstance(x, str)]
    # Names of groups may be of a subclass of str, which operators don't take.
    args = [_name_behind(str(x)) if isinstance(x, str) else x for x in args]
    group, n = None, 1
    if op.record.collective is not None:
        group = torch.distributed.distributed_c10d._resolve_process_group(names[-1])
        n = group.size()
    if "avg" in names and names[-1] in behind:
        args = ["sum" if x == "avg" else x for x in args]
        in_place = op.aliases[0] is not None
        with torch.no_grad():
            args[0] = scaled(args[0], 1 / n, in_place)
    given = next((x for x in tree_leaves(args[0]) if type(x) is VirtualTensor), None)
    asked.index = None if given is None else given._index
    try:
        result = run(op, args, kwargs)
    finally:
        asked.index = None
    # A group of ranks that are threads tells the clock itself.
    if given is not None and group is not None and not hasattr(group, "hold_up"):
        meeting = _issued(op, (args[0], result), group, given._index)
        if meeting is not None:
            waits.expect_results(meeting, tree_leaves(result))
    return result


def all_to_all(outputs, inputs, group, *options):
    """Compute ``all_to_all`` of lists, which gloo has for whole tensors only."""
    flat = torch.cat([x.reshape(-1) for x in inputs])
    received = flat.new_empty(sum(x.numel() for x in outputs))
    sizes = [x.numel() for x in outputs], [x.numel() for x in inputs]
    work = torch.ops.c10d.alltoall_base_(received, flat, group, *sizes, *options)
    torch.distributed.Work.unbox(work).wait()
    for target, part in zip(outputs, received.split(sizes[0]), strict=True):
        target.copy_(part.view(target.shape))
    return outputs, work


def _name_behind(name: str) -> str:
    """Return the name of the group behind another; any other text as it is."""
    return f"{name}{BEHIND}" if name in behind else name


def _behind(value):
    """Return the group behind a process group; anything else as it is."""
    group = _group(value)
    found = None if group is None else behind.get(group.group_name)
    return value if found is None else found.boxed()


def _group(value) -> "torch.distributed.ProcessGroup | None":
    """Return the process group that C++ has boxed, None for anything else."""
    if isinstance(value, torch.ScriptObject) and "ProcessGroup" in str(value._type()):
        return torch.distributed.ProcessGroup.unbox(value)
    return None


def scaled(tensors, factor: float, in_place: bool):
    """Multiply tensors by a factor before they are added, as NCCL does for an average.

    So a sum that would overflow doesn't.
    """

    def scale(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point() and not x.is_complex():
            raise NotImplementedError(
                "Virtual GPUs average or scale only tensors of floats over ranks: add "
                "integers by ReduceOp.SUM, then divide or multiply."
            )
        return x.mul_(factor) if in_place else x * factor

    return tree_map_only(torch.Tensor, scale, tensors)


def _issued(op, tensors, group, index: int, peer: int | None = None) -> Meeting | None:
    """Tell the clock about a collective whose cost is known.

    Args:
        tensors: what goes in and what comes out.
        group: of the ranks that take part.
        peer: the rank in the group with which this one exchanges tensors, None if all
            of the group do.

    Returns:
        in a cluster, the meeting that somebody has to wait for; see ``waits.py``.
    """
    kind, clock = op.record.collective, Devices.machines[index].clock
    n = group.size()
    if kind is None or n == 1 or clock is None:
        return None
    # The whole tensor: what goes in, or what comes out after gathering.
    nbytes = max(
        sum(x.nbytes for x in tree_leaves(value) if isinstance(x, torch.Tensor))
        for value in tensors
    )
    stream = queues.of.get(index, 0)
    if clock.fabric is None:
        clock.note(ring(kind, [index], nbytes, n, clock.link), index, stream)
        return None
    ranks = _ranks(group)
    if peer is not None:
        ranks = ranks[group.rank()], ranks[peer]
        if not op.name.endswith("send"):
            ranks = ranks[::-1]
    if isinstance(clock, Recorder):
        return clock.meet(kind, nbytes, ranks, index, stream)
    model = clock.models[index]
    command = chosen(kind, [index], nbytes, ranks, clock.fabric, model)
    clock.note(command, index, stream)
    return None


def _ranks(group) -> tuple[int, ...]:
    """Return the numbers that the ranks of a group have in the whole world."""
    found = torch.distributed.distributed_c10d._resolve_process_group(group.group_name)
    return tuple(torch.distributed.get_process_group_ranks(found))


def _to_backings(value, given: dict[int, VirtualTensor], devices: list[torch.device]):
    """Replace virtual tensors by their backing tensors, in nested lists too.

    Note in ``given`` which virtual tensor each one belongs to, and in ``devices`` where
    every tensor is.
    """
    if isinstance(value, list | tuple):
        return type(value)([_to_backings(x, given, devices) for x in value])
    if isinstance(value, torch.Tensor):
        devices.append(errors.name_of(value))
        if type(value) is VirtualTensor:
            given[id(value._backing)] = value
            return value._backing
        if is_virtual(value):
            raise NotImplementedError(
                "Virtual GPUs have no collectives of sparse tensors: make this tensor "
                "dense first."
            )
    return value


def _as_given(value, given: dict[int, VirtualTensor]):
    """Replace backing tensors by the virtual ones that they belong to."""
    if isinstance(value, list | tuple):
        return type(value)([_as_given(x, given) for x in value])
    if isinstance(value, torch.Tensor):
        return given.get(id(value), value)
    return value


def virtual_again(value):
    """Wrap backing tensors, in lists too, that C++ returned without their wrappers.

    C++ returns some values without asking the dispatcher.
    """
    if isinstance(value, list | tuple):
        return type(value)([virtual_again(x) for x in value])
    if isinstance(value, torch.Tensor) and home(value) != HOST:
        return wrap(value, home(value))
    return value


class PinningInMarks(TorchDispatchMode):
    """A context in which C++ gets marked tensors where it asks for pinned memory.

    DDP's reducer asks for it in backward, and hooks written in Python can't supply an
    allocator.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Skipping would put a function between the engine and __torch_dispatch__, but
        # ``contained`` has to see the engine as its caller.
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten.is_pinned.default:
            return has_pinned_mark(args[0])
        pinned = kwargs.get("pin_memory")
        if pinned:
            kwargs = kwargs | {"pin_memory": False}
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            return contained(error, sys._getframe(1), operator(func))
        if pinned:
            set_pinned_mark(result)
        return result
