"""``torch.distributed`` on virtual GPUs: one function for each change to it.

The operators themselves are in ``collectives.py``.
"""

import functools
import sys
import weakref
from contextlib import contextmanager

import torch
import torch.autograd.graph as graph
from torch.distributed import Work, device_mesh
from torch.distributed.distributed_c10d import Backend, BackendConfig
from torch.nn.parallel import DistributedDataParallel

from .. import device_api
from ..collectives import PinningInMarks, virtual_again
from ..devices import Devices
from ..storage import set_pinned_mark
from ..tensor import is_virtual
from .when_imported import when_imported


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    process_groups()
    futures_of_collectives()
    unused_parameters()
    statistics()
    random_dtensors()
    when_imported("torch.distributed.checkpoint._state_dict_stager", staging)


def process_groups() -> None:
    """Make gloo the backend of process groups for virtual GPUs.

    All: otherwise ``init_process_group()`` finds no backend for the device, and
    ``batch_isend_irecv`` finds none in a group of gloo. A group with a backend for vgpu
    gets the same one for each backing device, where the collectives really run.
    """
    Backend.default_device_backend_map["vgpu"] = Backend.GLOO
    Backend.backend_capability[Backend.GLOO].append("vgpu")
    original = BackendConfig.__init__

    @functools.wraps(original)
    def __init__(self, backend):
        original(self, backend)
        if "vgpu" in self.device_backend_map:
            ours = self.device_backend_map["vgpu"]
            # Where only simulators have devices, those in use have no backing.
            for backing in filter(None, Devices.backings):
                self.device_backend_map.setdefault(backing.type, ours)

    BackendConfig.__init__ = __init__


def futures_of_collectives() -> None:
    """Let ``work.get_future()`` and ``work.result()`` return virtual tensors.

    All: C++ returns them without asking the dispatcher, so a hook would get backing
    tensors and fail as soon as it combined them with virtual ones.
    """
    get_future, result = Work.get_future, Work.result

    @functools.wraps(get_future)
    def _get_future(self):
        return get_future(self).then(lambda future: virtual_again(future.value()))

    @functools.wraps(result)
    def _result(self):
        return virtual_again(result(self))

    Work.get_future, Work.result = _get_future, _result


def unused_parameters() -> None:
    """Let DDP look for parameters without gradients on virtual GPUs.

    All: with ``find_unused_parameters`` or ``static_graph``, backward raises a
    NotImplementedError because there is no allocator of pinned memory. The change costs
    some microseconds per operator in backward, as long as such a module lives.
    """
    searching: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
    init = DistributedDataParallel.__init__
    set_static_graph = DistributedDataParallel._set_static_graph
    run_backward = graph._engine_run_backward

    @functools.wraps(init)
    def __init__(self, *args, **kwargs):
        init(self, *args, **kwargs)
        if self.find_unused_parameters and self.device_type in Devices.types:
            searching.add(self)

    @functools.wraps(set_static_graph)
    def _set_static_graph(self):
        set_static_graph(self)
        if self.device_type in Devices.types:
            searching.add(self)

    @functools.wraps(run_backward)
    def _run_backward(*args, **kwargs):
        if not searching:
            return run_backward(*args, **kwargs)
        with PinningInMarks():
            return run_backward(*args, **kwargs)

    DistributedDataParallel.__init__ = __init__
    DistributedDataParallel._set_static_graph = _set_static_graph
    graph._engine_run_backward = _run_backward
    torch.autograd._engine_run_backward = _run_backward


def statistics() -> None:
    """Keep DDP from collecting time statistics on virtual GPUs.

    All: C++ has timers for CPUs and CUDA only. Every rank says so on stderr, where
    Python's filters for warnings can't reach it.
    """
    original = DistributedDataParallel._ddp_init_helper

    @functools.wraps(original)
    def _ddp_init_helper(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if self.device_type in Devices.types:
            self.logger = _Logger(self.logger)

    DistributedDataParallel._ddp_init_helper = _ddp_init_helper


class _Logger:
    """DDP's logger without the statistics that it can't collect."""

    def __init__(self, logger):
        self._logger = logger

    def __getattr__(self, name):
        return getattr(self._logger, name)

    def set_runtime_stats_and_log(self):
        pass


def random_dtensors() -> None:
    """Let random DTensors have other numbers in each shard, and the same in replicas.

    All: DTensor moves the device's generator on as CUDA's, whose state is a seed and an
    offset. Our state is that of the CPU's generator, so it raises. DTensor is changed
    when it first asks for the device: importing it here would take long.
    """
    original = device_mesh._get_device_handle
    changed = set()

    @functools.wraps(original)
    def _get_device_handle(device_type="cuda"):
        module = sys.modules.get("torch.distributed.tensor._random")
        tracker = getattr(module, "OffsetBasedRNGTracker", None)
        if tracker is not None and tracker not in changed:
            changed.add(tracker)
            tracker._distribute_region = _seeding_shards(tracker._distribute_region)
        return original(device_type)

    device_mesh._get_device_handle = _get_device_handle


def _seeding_shards(original):
    """Return the context in which DTensor draws the random numbers of a shard.

    A tensor that isn't split is drawn as an ordinary one. For one that is, every rank
    draws a single number, the same on all. It's the seed of a shard, once the place of
    the shard's first element in the whole tensor is added.
    """

    @contextmanager
    def _distribute_region(self, spec, generator=None):
        if self._device.type not in Devices.types:
            with original(self, spec, generator):
                yield
            return
        # DTensor gives no generator to the operator, which draws from the device's.
        own = device_api.default_generators[device_api.current_device()]
        before = own.get_state()
        source = own if generator is None else generator
        split = self.distribute_region_enabled and spec.num_shards > 1
        if split:
            seed = _draw_seed(source)
            before = own.get_state()
            own.manual_seed(seed + _first_element(spec))
        else:
            own.set_state(source.get_state())
        try:
            yield
        finally:
            if not split:
                source.set_state(own.get_state())
            if split or generator is not None:
                own.set_state(before)

    return _distribute_region


def _draw_seed(generator: torch.Generator) -> int:
    """Draw a number from a generator of a virtual GPU, without a copy."""
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    seed = torch.randint(2**62, (), generator=twin).item()
    generator.set_state(twin.get_state())
    return seed


def _first_element(spec) -> int:
    """Return the place of this rank's first element in the whole tensor."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    _, places = compute_local_shape_and_global_offset(
        spec.shape, spec.mesh, spec.placements
    )
    first = 0
    for place, size in zip(places, spec.shape, strict=True):
        first = first * size + place
    return first


def staging() -> None:
    """Let ``dcp.async_save`` copy virtual tensors to the CPU, once for each memory.

    All: it knows a storage by its Python object, which C++ keeps for as long as the
    memory. Ours is made whenever it's asked for.
    """
    from torch.distributed.checkpoint._state_dict_stager import StateDictStager

    original = StateDictStager._offload_tensor

    @functools.wraps(original)
    def _offload_tensor(self, x, memo, non_blocking=False):
        if not is_virtual(x):
            return original(self, x, memo, non_blocking)
        storage, copies = x.untyped_storage(), memo.setdefault("vgpu", {})
        if storage._cdata not in copies:
            make = torch.UntypedStorage
            make = make._new_shared if self.share_memory else make
            memory = torch.empty(0, dtype=torch.uint8).set_(make(storage.nbytes()))
            if self.pin_memory:
                set_pinned_mark(memory)
            copies[storage._cdata] = memory.untyped_storage().copy_(
                storage, non_blocking
            )
        new = memo[id(x)] = torch.empty(0, dtype=x.dtype).set_(
            copies[storage._cdata], x.storage_offset(), x.shape, x.stride()
        )
        for name, value in x._noted().items():
            setattr(new, name, self.deepcopy_with_tensor_offload(value, memo))
        return new

    StateDictStager._offload_tensor = _offload_tensor
