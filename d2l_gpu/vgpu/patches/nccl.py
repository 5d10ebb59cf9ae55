"""The backend ``nccl``, with ``enable(as_cuda=True)``: its values travel by gloo.

NCCL moves values between real GPUs, and builds of PyTorch without CUDA don't have it.
A process group on virtual GPUs says that its backend is ``nccl`` and, like NCCL, takes
only tensors on devices. A second group, which the program doesn't see, stands behind
it: it has the same connections, but under the name of the backing device, and there
collectives run.
"""

import functools
from collections import Counter

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    _register_process_group,
    _unregister_process_group,
)
from torch.distributed import (
    ProcessGroup,
    ProcessGroupGloo,
    ReduceOp,
    distributed_c10d,
)
from torch.distributed.distributed_c10d import Backend, BackendConfig
from torch.nn.parallel import DistributedDataParallel

from ..collectives import BEHIND, asked, behind
from ..devices import Devices

# From this version on NCCL sums bfloat16, and that's what programs want to know.
VERSION = (2, 10, 3)
# Ten minutes, a third of gloo's: PyTorch's documentation of init_process_group.
TIMEOUT = distributed_c10d.default_pg_timeout / 3


# C++ knows only the class of gloo: references are what keeps an object of our class.
# Those without a group yet, and the others by the name of their group.
_new: list["ProcessGroupNCCL"] = []
_backends: dict[str, "ProcessGroupNCCL"] = {}
# How often a group of a name has been made in this process.
_times: Counter[str] = Counter()


def apply() -> None:
    """Apply all changes; ``as_cuda.apply`` calls this once."""
    backend()
    devices()
    groups_behind()
    split_groups()
    scaled_sums()
    bfloat16_hooks()
    version()


class ProcessGroupNCCL(ProcessGroupGloo):
    """What ``torch.distributed`` takes for NCCL; its values travel by gloo."""

    class Options:
        """Settings of NCCL. Only the timeout means anything here."""

        def __init__(self, is_high_priority_stream: bool = False):
            self.is_high_priority_stream = is_high_priority_stream
            self._timeout = dist.default_pg_timeout
            self.backend = Backend.NCCL
            self.global_ranks_in_group: list[int] = []
            self.group_name = ""
            self.split_from, self.split_color = None, 0

    def __init__(self, store, rank: int, size: int, options: Options | None = None):
        self._settings = options or self.Options()
        # Under torchrun a group that is made again would find the addresses that an
        # earlier one of that name has left in the store.
        name = self._settings.group_name
        _times[name] += 1
        store = dist.PrefixStore(f"{_times[name]}/", store)
        super().__init__(store, rank, size, self._settings._timeout)
        _new.append(self)

    @property
    def options(self) -> Options:
        return self._settings

    # Connections are split off others where NCCL would, but they're new ones.
    supports_splitting = True

    def eager_connect_single_device(self, device: torch.device) -> None:
        pass

    def perform_nocolor_split(self, device: torch.device) -> None:
        pass

    def comm_split_count(self) -> int:
        return 0


def backend() -> None:
    """Let ``init_process_group('nccl')`` find a backend.

    All: it says that this build doesn't have one.
    """
    distributed_c10d._NCCL_AVAILABLE = True
    distributed_c10d.default_pg_nccl_timeout = TIMEOUT
    for module in (distributed_c10d, dist, torch._C._distributed_c10d):
        module.ProcessGroupNCCL = ProcessGroupNCCL


def devices() -> None:
    """Make NCCL the backend for virtual GPUs, under the name cuda only.

    All: C++ knows the devices as vgpu, and without NCCL their backend was gloo. Any
    other backend that is named for cuda gets vgpu and the backing device as well,
    because that's where its collectives run.
    """
    original = BackendConfig.__init__
    Backend.default_device_backend_map["vgpu"] = Backend.NCCL

    @functools.wraps(original)
    def __init__(self, backend):
        original(self, backend)
        chosen = self.device_backend_map
        ours = chosen.get("cuda", chosen.get("vgpu"))
        backing = Devices.backings[0].type
        if ours == Backend.NCCL:
            chosen["cuda"] = chosen.pop("vgpu", ours)
            if chosen.get(backing) == ours:  # our own doing
                del chosen[backing]
        elif ours is not None:
            chosen["vgpu"] = ours
            chosen.setdefault(backing, ours)

    BackendConfig.__init__ = __init__


def groups_behind() -> None:
    """Let a group for the backing device stand behind every group of NCCL's.

    All: collectives run on backing tensors, and C++ finds no backend for their device.
    """
    make = distributed_c10d._new_process_group_helper
    destroy = dist.destroy_process_group

    @functools.wraps(make)
    def _new_process_group_helper(*args, **kwargs):
        _new.clear()
        group, store = make(*args, **kwargs)
        if _new:
            _stand_behind(group, _new.pop())
        return group, store

    @functools.wraps(destroy)
    def destroy_process_group(group=None):
        destroy(group)
        for name in behind.keys() - distributed_c10d._world.pg_names.values():
            _unregister_process_group(name + BEHIND)
            del behind[name], _backends[name]

    distributed_c10d._new_process_group_helper = _new_process_group_helper
    distributed_c10d.destroy_process_group = destroy_process_group
    dist.destroy_process_group = destroy_process_group


def _stand_behind(group: ProcessGroup, backend: ProcessGroupNCCL) -> None:
    other = ProcessGroup(group.get_group_store(), group.rank(), group.size())
    kind = ProcessGroup.BackendType.GLOO
    other._set_default_backend(kind)
    other._register_backend(Devices.backings[0], kind, backend)
    # Its name isn't set: both groups would get it from the backend that they share.
    _register_process_group(group.group_name + BEHIND, other)
    behind[group.group_name], _backends[group.group_name] = other, backend


def split_groups() -> None:
    """Let ``split_group`` make new groups of a group of NCCL's.

    All: it asks C++ to split the connections of NCCL.
    """
    split = dist.split_group

    @functools.wraps(split)
    def split_group(parent_pg=None, split_ranks=None, *args, **kwargs):
        parent = parent_pg or dist.group.WORLD
        if parent.group_name not in behind or not split_ranks:
            return split(parent_pg, split_ranks, *args, **kwargs)
        given = dict(zip(("timeout", "pg_options", "group_desc"), args, strict=False))
        given |= kwargs
        mine = next((x for x in split_ranks if parent.rank() in x), None)
        if mine is None:
            return None
        ranks = [dist.get_global_rank(parent, rank) for rank in sorted(mine)]
        return dist.new_group(
            ranks,
            timeout=given.get("timeout"),
            pg_options=given.get("pg_options"),
            use_local_synchronization=True,
            group_desc=given.get("group_desc"),
            device_id=parent.bound_device_id,
        )

    distributed_c10d.split_group = dist.split_group = split_group
    torch.distributed.device_mesh.split_group = split_group


# Methods whose last argument has ``reduceOp``; not every version has all of them.
_REDUCING = (
    "_reduce_scatter_base",
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
)


def scaled_sums() -> None:
    """Let collectives average, or multiply before they add, as NCCL can: FSDP does so.

    All: gloo raises an error.
    """
    for name in _REDUCING:
        if hasattr(ProcessGroup, name):
            setattr(ProcessGroup, name, _scaling(getattr(ProcessGroup, name)))


def _scaling(method):
    @functools.wraps(method)
    def reducing(self, *args, **kwargs):
        given = (*args, *kwargs.values())
        options = next((x for x in given if hasattr(x, "reduceOp")), None)
        reduction = None if options is None else options.reduceOp
        if reduction == ReduceOp.AVG:
            factor = 1 / self.size()
        elif reduction == ReduceOp.PREMUL_SUM:
            factor = float(reduction.factor)
        else:
            return method(self, *args, **kwargs)
        if self.group_name not in behind:
            return method(self, *args, **kwargs)
        options.reduceOp, asked.factor = ReduceOp.SUM, factor
        try:
            return method(self, *args, **kwargs)
        finally:
            options.reduceOp, asked.factor = reduction, None

    return reducing


def bfloat16_hooks() -> None:
    """Let DDP's hooks that send bfloat16 be registered.

    All: DDP asks for a version of CUDA, and of NCCL, that can send it.
    """
    original = DistributedDataParallel._check_comm_hook

    @functools.wraps(original)
    def _check_comm_hook(self, hook):
        if self.device_type not in Devices.types:
            return original(self, hook)
        before, torch.version.cuda = torch.version.cuda, "11.0"
        try:
            return original(self, hook)
        finally:
            torch.version.cuda = before

    DistributedDataParallel._check_comm_hook = _check_comm_hook


def version() -> None:
    """Let ``torch.cuda.nccl.version()`` answer.

    All: C++ has no NCCL to ask. (Its functions for the devices of one process are
    refused, so ``torch.cuda.nccl.is_available`` goes on to say no.)
    """
    torch.cuda.nccl.version = lambda: VERSION
