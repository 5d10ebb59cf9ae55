"""Run a program as one rank of a cluster, in this process and without the others.

PyTorch's fake process group stands in for all others: it sends nothing, and results
keep the values that they had. Since tensors have no values here anyway, that only
matters for what ranks tell each other as Python objects. Those are kept (``Objects``),
and a rank that receives one gets what the other rank has sent in its own run. If that
rank hasn't run yet, this run is given up (``Needs``) and repeated later.
"""

import functools
import gc
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FakeWork
from torch._subclasses import FakeTensorMode
from torch.autograd import graph
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from . import waits
from .devices import Devices, current

_Cache = type(functools.lru_cache(len))
_older_caches: list = []  # those that ``little_garbage`` hides

for _device in ("vgpu", "meta"):
    if _device not in dist.Backend.backend_capability["fake"]:
        dist.Backend.backend_capability["fake"].append(_device)


LARGE = 2**16  # numbers


class Needs(BaseException):
    """A rank waits for an object of a rank that hasn't sent it yet.

    It's no Exception, so that programs don't catch it.
    """

    def __init__(self, rank: int):
        self.rank = rank


@dataclass
class Objects:
    """What the ranks of a cluster have sent each other as Python objects.

    Attributes:
        sent: the objects, by kind, ranks and number.
        seen: for the rank that runs, how many there were.
    """

    sent: dict[tuple, object] = field(default_factory=dict)
    seen: Counter = field(default_factory=Counter)

    def send(self, key: tuple, value: object) -> None:
        self.sent[*key, self._next(key)] = value

    def receive(self, key: tuple, source: int) -> object:
        """Return what a rank has sent.

        Raises:
            Needs: it hasn't.
        """
        full = *key, self._next(key)
        if full not in self.sent:
            raise Needs(source)
        return self.sent[full]

    def _next(self, key: tuple) -> int:
        self.seen[key] += 1
        return self.seen[key]


@contextmanager
def one_rank(
    rank: int, world_size: int, on_node: int, objects: Objects
) -> Iterator[None]:
    """Let this process be one rank, started as torchrun would.

    Args:
        on_node: the number of ranks on a node.
    """
    local = rank % on_node
    environment = {
        "RANK": rank,
        "LOCAL_RANK": local,
        "GROUP_RANK": rank // on_node,
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": on_node,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": 29500,
    }
    before = current.index
    states = random.getstate(), torch.get_rng_state()
    objects.seen.clear()
    with ExitStack() as stack:
        enter = stack.enter_context
        enter(patch.dict(os.environ, {k: str(v) for k, v in environment.items()}))
        enter(patch.object(Devices, "zeros", True))
        enter(patch.object(Devices, "chosen", True))
        enter(patch.object(sys, "excepthook", sys.excepthook))  # names a rank
        for owner, name, function in _changes(rank, world_size, objects):
            enter(patch.object(owner, name, function))
        current.index = local
        try:
            yield
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
            waits.clear()
            forget_groups()
            current.index = before
            random.setstate(states[0])
            torch.set_rng_state(states[1])


def forget_groups() -> None:
    """Empty what ``torch.distributed`` caches, such as DTensor's plans.

    They name the process groups and the device of the rank that ran before.
    """
    FakeTensorMode.cache_clear()
    if "torch.distributed.tensor" in sys.modules:
        torch._C._clear_DTensor_sharding_propagator_cache()
    for cache in (*_older_caches, *_caches()):
        cache.cache_clear()


def _caches() -> list:
    """Return the caches of ``torch.distributed`` that the garbage collector sees."""
    return [
        found
        for found in gc.get_objects()
        if type(found) is _Cache and "torch.distributed" in str(found.__module__)
    ]


@contextmanager
def little_garbage() -> Iterator[None]:
    """Let the garbage collector look only at what's made inside.

    Between two ranks it has to run, and PyTorch alone has a million objects.
    """
    gc.collect()
    _older_caches[:] = _caches()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        _older_caches.clear()


def _unless_large(initialize):
    """Return a function of ``torch.nn.init`` that skips large tensors on the CPU.

    A model that is made there would need as much memory of this computer. Memory that
    nobody writes to isn't taken, and on the GPU the numbers are gone anyway.
    """

    @functools.wraps(initialize)
    def initialized(tensor, *args, **kwargs):
        if tensor.device.type == "cpu" and tensor.numel() >= LARGE:
            return tensor
        return initialize(tensor, *args, **kwargs)

    return initialized


def _average(group, bucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients, as DDP's reducer does in C++.

    There it wants a result that the fake process group doesn't have.
    """
    buffer = bucket.buffer().div_(dist.get_world_size(group))
    waits.future(dist.all_reduce(buffer, group=group, async_op=True))
    future = torch.futures.Future()
    future.set_result(buffer)
    return future


def _random_changes() -> list[tuple]:
    """Return what lets DTensor draw random numbers that nobody needs to compare."""
    from torch.distributed import device_mesh
    from torch.distributed.tensor import _random

    device_mesh._get_device_handle("vgpu")  # applies the lasting change first
    tracker = _random.OffsetBasedRNGTracker
    init = tracker.__init__

    @functools.wraps(init)
    def __init__(self, mesh, run_state_sync=True):
        init(self, mesh, run_state_sync=False)

    @contextmanager
    def _distribute_region(self, spec, generator=None):
        yield

    return [
        (tracker, "__init__", __init__),
        (tracker, "_distribute_region", _distribute_region),
    ]


def _changes(rank: int, world_size: int, objects: Objects) -> list[tuple]:
    """Return what is changed in PyTorch as long as the rank runs."""
    init, make = dist.init_process_group, distributed_c10d._new_process_group_helper

    @functools.wraps(init)
    def init_process_group(backend=None, *args, **kwargs):
        if not dist.is_initialized():
            init("fake", store=FakeStore(), rank=rank, world_size=world_size)

    @functools.wraps(make)
    def _new_process_group_helper(size, place, ranks, backend, *args, **kwargs):
        kwargs.pop("backend_options", None)
        return make(size, place, ranks, "fake", *args, **kwargs)

    wait, run_backward = FakeWork.wait, graph._engine_run_backward

    @functools.wraps(wait)
    def wait_for_work(self, *args, **kwargs):
        waits.work(self)
        return wait(self, *args, **kwargs)

    @functools.wraps(run_backward)
    def _engine_run_backward(*args, **kwargs):
        result = run_backward(*args, **kwargs)
        waits.gradients()
        return result

    pre_forward = DistributedDataParallel._pre_forward

    def _pre_forward(self, *args, **kwargs):
        if not self._comm_hooks and self.require_backward_grad_sync:
            self.register_comm_hook(self.process_group, _average)
        return pre_forward(self, *args, **kwargs)

    def peer(place: int | None, group_place: int | None, group) -> int:
        return (
            place if group_place is None else dist.get_global_rank(group, group_place)
        )

    def send_object_list(
        object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False
    ):
        objects.send(("send", rank, peer(dst, group_dst, group)), list(object_list))

    def recv_object_list(
        object_list, src=None, group=None, device=None, group_src=None, use_batch=False
    ):
        source = peer(src, group_src, group)
        object_list[:] = objects.receive(("send", source, rank), source)
        return source

    def broadcast_object_list(
        object_list, src=None, group=None, device=None, group_src=None
    ):
        source = peer(src, group_src, group)
        ranks = tuple(dist.get_process_group_ranks(group or dist.group.WORLD))
        if rank == source:
            objects.send(("broadcast", ranks), list(object_list))
        else:
            object_list[:] = objects.receive(("broadcast", ranks), source)

    broadcast_coalesced = dist._broadcast_coalesced

    def _broadcast_coalesced(*args, **kwargs):
        with waits.inside():
            return broadcast_coalesced(*args, **kwargs)

    changes = [
        (dist, "_broadcast_coalesced", _broadcast_coalesced),
        (FakeWork, "wait", wait_for_work),
        (FakeWork, "get_future", waits.future),
        (DistributedDataParallel, "_pre_forward", _pre_forward),
        # DDP compares shapes that ranks have told each other as numbers.
        (dist, "_verify_params_across_processes", lambda *args: None),
    ]
    for module in (dist, distributed_c10d):
        changes += [
            (module, "init_process_group", init_process_group),
            (module, "send_object_list", send_object_list),
            (module, "recv_object_list", recv_object_list),
            (module, "broadcast_object_list", broadcast_object_list),
        ]
    changes += _random_changes()
    for name, function in vars(nn.init).items():
        if name.endswith("_") and callable(function) and not name.startswith("_"):
            changes.append((nn.init, name, _unless_large(function)))
    for module in (graph, torch.autograd):
        changes.append((module, "_engine_run_backward", _engine_run_backward))
    changes.append(
        (distributed_c10d, "_new_process_group_helper", _new_process_group_helper)
    )
    return changes
