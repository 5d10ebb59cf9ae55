"""What ``torch.vgpu`` says about memory: counts, a table of them, blocks, a history.

By default there's no caching allocator. Then each block is a segment of its own,
nothing is reserved beyond what is allocated, and there are no pools.
"""

import pickle
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import torch

from .devices import Device, Devices, as_device
from .devices import index_of as _index
from .sim.allocator import Segment
from .sim.machine import Machine
from .sim.memory import Block
from .sim.memory_map import MemoryMap, Piece
from .sim.units import parse_size

# ------------------------------------------------------------------ counts, in bytes


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors on a device occupy now, in whole blocks."""
    i = _index(device)
    return Devices.machines[i].allocated(i)[0]


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes that tensors on a device have occupied at a time."""
    i = _index(device)
    return Devices.machines[i].allocated(i)[1]


def memory_reserved(device: Device = None) -> int:
    """Return the bytes that the caching allocator has taken, if there is one.

    Without it, nothing is reserved beyond what is allocated.
    """
    i = _index(device)
    return Devices.machines[i].reserved(i)[0]


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes that were reserved on a device at a time."""
    i = _index(device)
    return Devices.machines[i].reserved(i)[1]


def reset_peak_memory_stats(device: Device = None) -> None:
    """Let what was the most so far begin again at what is in use now."""
    i = _index(device)
    Devices.machines[i].reset_peak(i)


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Let totals since the beginning, such as bytes allocated, begin again at zero."""
    i = _index(device)
    Devices.machines[i].reset_totals(i)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return the free bytes and the total bytes of a device."""
    i = _index(device)
    machine = Devices.machines[i]
    return machine.capacities[i] - machine.occupied(i), machine.capacities[i]


def device_memory_used(device: Device = None) -> int:
    """Return the bytes in use on a device: by this process, as no other can use it."""
    i = _index(device)
    return Devices.machines[i].occupied(i)


def memory_stats(device: Device = None) -> dict[str, int]:
    """Return bytes and counts, under the names of ``torch.cuda.memory_stats``.

    Without a caching allocator, what concerns it is 0, and there are no statistics of
    pools.
    """
    i = _index(device)
    machine = Devices.machines[i]
    if machine.allocators is not None:
        with machine.lock:
            return machine.allocators[i].statistics()
    with machine.lock:
        nbytes = machine.used[i], machine.peak[i], machine.taken[i]
        requested, allocations = (
            (count.current, count.peak, count.total)
            for count in (machine.requested[i], machine.allocations[i])
        )
    nothing = 0, 0, 0
    found = {
        "active.all": allocations,
        "active_bytes.all": nbytes,
        "allocated_bytes.all": nbytes,
        "allocation.all": allocations,
        "inactive_split.all": nothing,
        "inactive_split_bytes.all": nothing,
        "oversize_allocations": nothing,
        "oversize_segments": nothing,
        "requested_bytes.all": requested,
        "reserved_bytes.all": nbytes,
        "segment.all": allocations,
    }
    stats = {"num_alloc_retries": 0, "num_ooms": machine.overflows[i]}
    for name, (now, peak, total) in found.items():
        stats[f"{name}.allocated"], stats[f"{name}.current"] = total, now
        stats[f"{name}.freed"], stats[f"{name}.peak"] = total - now, peak
    return stats


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return PyTorch's table of a device's memory, and a line that says it's simulated.

    Args:
        abbreviated: whether to leave out pools, which only a caching allocator has.
    """
    # The code of torch.cuda.memory_summary asks for nothing but these two.
    asked = {
        "_get_device_index": lambda device, optional: _index(device),
        "memory_stats": memory_stats,
    }
    i = _index(device)
    abbreviated = abbreviated or Devices.machines[i].allocators is None
    table = FunctionType(_summary_of_cuda.__code__, asked)(device, abbreviated)
    return f"{table}Simulated memory of {as_device(device)}, a virtual GPU.\n"


_summary_of_cuda = torch.cuda.memory_summary


def empty_cache() -> None:
    """Give back what caching allocators have reserved and don't use, on all devices."""
    for machine in {id(m): m for m in Devices.machines if m is not None}.values():
        machine.empty_cache()


# ------------------------------------------------------------------ limits


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Let a device give at most a fraction of its memory, from 0 to 1.

    Raises:
        TypeError: the fraction isn't a float.
        ValueError: it isn't between 0 and 1.
    """
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    i = _index(device)
    Devices.machines[i].limit(i, fraction)


def get_per_process_memory_fraction(device: Device = None) -> float:
    """Return the fraction of its memory that a device may give."""
    i = _index(device)
    return Devices.machines[i].fractions[i]


# ------------------------------------------------------------------ blocks

Snapshot = dict[str, Any]


def memory_snapshot(mempool_id=None, include_traces: bool = True) -> list[Snapshot]:
    """Return the segments of all devices, and the blocks in them.

    They are described as by ``torch.cuda.memory_snapshot``. Addresses are those
    that tensors give (``data_ptr``). Without a caching allocator, each block in use is
    a segment.

    Args:
        mempool_id: (0, 0) or None for memory that is in no pool. Pools are empty.
    """
    return [] if mempool_id not in (None, (0, 0)) else _segments(Devices.machine)


def _segments(machine: Machine) -> list[Snapshot]:
    """Return the segments of a machine's devices, and the blocks in them."""
    if machine.allocators is not None:
        with machine.lock:
            return [
                _segment(i, segment)
                for i in range(machine.first, machine.first + machine.count)
                for segment in machine.allocators[i].segments()
            ]
    with machine.lock:
        blocks = sorted(map(Block._make, machine.blocks.values()), key=_place)
    return [
        {
            "device": block.index,
            "address": block.address,
            "total_size": block.nbytes,
            "allocated_size": block.nbytes,
            "active_size": block.nbytes,
            "requested_size": block.requested,
            "stream": 0,
            "segment_type": "large" if block.nbytes > 2**20 else "small",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": _described(block.frames),
            "blocks": [
                {
                    "address": block.address,
                    "size": block.nbytes,
                    "requested_size": block.requested,
                    "state": "active_allocated",
                    "frames": _described(block.frames),
                }
            ],
        }
        for block in blocks
    ]


def _segment(index: int, segment: Segment) -> Snapshot:
    """Describe a segment of a caching allocator, and its blocks."""
    active = [block for block in segment.blocks if block.is_active]
    return {
        "device": index,
        "address": segment.address,
        "total_size": segment.size,
        "allocated_size": sum(block.size for block in active if block.allocated),
        "active_size": sum(block.size for block in active),
        "requested_size": sum(block.requested for block in active),
        "stream": segment.stream,
        "segment_type": "small" if segment.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": segment.expandable,
        "frames": _described(segment.frames),
        "blocks": [
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested,
                "state": (
                    "active_allocated"
                    if block.allocated
                    else "active_pending_free"
                    if block.is_active
                    else "inactive"
                ),
                "frames": _described(block.frames),
            }
            for block in segment.blocks
        ],
    }


def _place(block: Block) -> tuple[int, int]:
    return block.index, block.address


def snapshot(device: Device = None) -> Snapshot:
    """Return all blocks in use, and the history of each device if it's recorded.

    Args:
        device: a simulator's, for a snapshot of that simulator's devices; any other
            means those that ``enable`` has set up.
    """
    machine = _machine_of(device)
    history = machine.history
    traces: list[list[Snapshot]] = [[] for _ in range(machine.first + machine.count)]
    if history is not None:
        with machine.lock:
            traces = history.traces()
    return {
        "segments": _segments(machine),
        "device_traces": traces,
        "allocator_settings": _allocator_settings(machine),
        "external_annotations": [],
    }


def _machine_of(device: Device) -> Machine:
    """Return the machine that a device belongs to; see `snapshot`.

    Raises:
        RuntimeError: there is no such device.
    """
    if device is None and Devices.machine is not None:
        return Devices.machine
    return Devices.machines[_index(device)]


def _allocator_settings(machine: Machine) -> dict[str, Any]:
    """Return the settings of a caching allocator, named as in PyTorch's snapshots."""
    if machine.allocators is None:
        return {}
    allocator = machine.allocators[machine.first]
    config = allocator.config
    return {
        "PYTORCH_CUDA_ALLOC_CONF": config.text,
        "max_split_size": allocator.statistics()["max_split_size"],
        "garbage_collection_threshold": config.collect_above,
        "expandable_segments": config.expandable,
        "roundup_power2_divisions": {
            str(2**i): number for i, number in enumerate(config.divisions)
        },
    }


# ------------------------------------------------------------------ a map


def memory_map(device: Device = None, wanted: int | str | None = None) -> MemoryMap:
    """See ``d2l_gpu.vgpu.memory_map``."""
    wanted = None if wanted is None else parse_size(wanted)
    kind = device.type if isinstance(device, torch.device) else str(device or "vgpu")
    if kind.partition(":")[0] != "cuda" or "cuda" in Devices.types:
        i = _index(device)
        machine = Devices.machines[i]
        label = "simulated"
        if machine.clock is not None:
            label = f"simulated ({machine.clock.models[i].name})"
        return MemoryMap(_pieces(machine, i), label, wanted)
    if not torch.cuda.is_available():
        raise RuntimeError(f"There is no {device}: this machine has no CUDA GPU.")
    index = torch.device(device).index
    index = torch.cuda.current_device() if index is None else index
    segments = [
        [Piece(x["size"], x["state"] != "inactive") for x in segment["blocks"]]
        for segment in torch.cuda.memory_snapshot()
        if segment["device"] == index
    ]
    return MemoryMap(segments, torch.cuda.get_device_name(index), wanted)


def _pieces(machine: Machine, index: int) -> list[list[Piece]]:
    """Return the blocks of each segment of a device."""
    with machine.lock:
        if machine.allocators is None:
            blocks = map(Block._make, machine.blocks.values())
            return [[Piece(x.nbytes, True)] for x in blocks if x.index == index]
        return [
            [Piece(block.size, block.is_active) for block in segment.blocks]
            for segment in machine.allocators[index].segments()
        ]


# ------------------------------------------------------------------ a history

_OURS = str(Path(__file__).parent)

# The lines of a program that led to an event: code and number, the innermost first.
Frames = Sequence[tuple[Any, int]]


class History:
    """What happened to a machine's memory: the object in ``Machine.history``.

    Args:
        count: the number of devices.
        events: whether to keep events, or only the frames of what lives.
        context: None, or of what to keep frames: ``"state"`` and ``"alloc"`` of what
            is allocated, ``"all"`` also of what is freed.
        most: the number of events that are kept of each device, the last ones.
        skipped: actions that are left out, named as in PyTorch.
    """

    def __init__(
        self,
        count: int,
        events: bool = True,
        context: str | None = "all",
        most: int = sys.maxsize,
        skipped: Sequence[str] = (),
    ):
        self.context, self.skipped = context, frozenset(skipped)
        self.events = [deque(maxlen=most if events else 0) for _ in range(count)]

    def __call__(
        self, action: str, index: int, address: int, nbytes: int, stream: int = 0
    ) -> Frames:
        frames = ()
        freed = action.startswith(("free", "segment_free", "segment_unmap"))
        if self.context == "all" or (self.context and not freed):
            frames = _frames(sys._getframe(1))
        for name in _FREED if action == "free" else (action,):
            if name not in self.skipped:
                self.events[index].append((name, address, nbytes, frames, stream))
        return frames

    def traces(self) -> list[list[Snapshot]]:
        """Return the events of each device, described as PyTorch does it."""
        return [
            [
                {
                    "action": name,
                    "size": nbytes,
                    "stream": stream,
                    "pool_id": (0, 0),
                    "frames": _described(frames),
                    "device_free" if name == "oom" else "addr": address,
                }
                for name, address, nbytes, frames, stream in events
            ]
            for events in self.events
        ]


# Without a caching allocator, memory is free again as soon as that is asked for.
_FREED = ("free_requested", "free_completed")


def record_history(
    enabled: str | None = "all",
    context: str | None = "all",
    most: int = sys.maxsize,
    clear: bool = False,
    skipped: Sequence[str] = (),
    device: Device = None,
) -> None:
    """Record what happens to the memory of all devices from now on, or stop it.

    Args:
        enabled: None stops it, and forgets what was recorded; ``"state"`` records where
            the blocks in use come from; ``"all"`` all events as well.
        clear: whether to forget what was recorded before.
        device: whose machine is recorded; see `snapshot`.
    The others are those of `History`.

    Raises:
        RuntimeError: an argument is none of its values.
    """
    if enabled not in (None, "state", "all"):
        raise RuntimeError("expected enabled to be 'state', 'all', or None")
    if context not in (None, "state", "alloc", "all"):
        raise RuntimeError("expected context to be 'state', 'alloc', 'all', or None")
    machine = _machine_of(device)
    with machine.lock:
        before, machine.history = machine.history, None
        if enabled is None:
            return
        history = History(
            *(machine.first + machine.count, enabled == "all", context, most, skipped)
        )
        if before is not None and not clear:
            for events, earlier in zip(history.events, before.events, strict=True):
                events.extend(earlier)
        machine.history = history


# ``torch.vgpu.memory`` has these under the names that ``torch.cuda.memory`` gives them,
# with the arguments that make a difference here.


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
) -> None:
    """Record a history of all devices' memory; see ``record_history``."""
    record_history(
        *(enabled, context, max_entries, clear_history, skip_actions or (), device)
    )


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> Snapshot:
    """Return what ``torch.cuda._memory_viz`` reads; see ``snapshot``."""
    return snapshot(device)


def _dump_snapshot(
    filename: str | Path = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Write a snapshot to a file, for ``python torch/cuda/_memory_viz.py``."""
    Path(filename).write_bytes(pickle.dumps(_snapshot()))


def _frames(frame: FrameType | None) -> Frames:
    """Return the lines that led to a frame, those of this package left out."""
    found = []
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OURS):
            found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


def _described(frames: Frames) -> list[Snapshot]:
    return [
        {"filename": code.co_filename, "line": line, "name": code.co_name}
        for code, line in frames
    ]
