"""``torch.distributed`` while the ranks of a small world run, and only then."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch._C._distributed_c10d import _set_thread_isolation_mode
from torch.distributed import ProcessGroup, distributed_c10d
from torch.distributed.distributed_c10d import Backend, BackendConfig

NAME = "vgpu_ranks"  # the backend, as PyTorch knows it

Create = Callable[[str, list[int], int], ProcessGroup]


@contextmanager
def process_groups(create: Create) -> Iterator[None]:
    """Make process groups of our own, whichever backend a program asks for.

    All: groups of gloo or NCCL would connect to ranks that can't have their turn
    meanwhile. And PyTorch finds a group by its name among those of the whole process,
    unless we ask it to look among those of the thread.

    Args:
        create: makes a group of its name, the ranks in it, and this rank's place.
    """
    if NAME not in Backend.backend_list:
        Backend.register_backend(NAME, _create, True, ["cpu", "vgpu"])
    original = distributed_c10d._new_process_group_helper

    @functools.wraps(original)
    def _new_process_group_helper(size, rank, ranks, backend, *args, **kwargs):
        group, store = original(size, rank, ranks, NAME, *args, **kwargs)
        if isinstance(group, ProcessGroup):
            group.stands_for(backend)
            groups = distributed_c10d._world
            groups.pg_map[group] = backend, store
            groups.pg_backend_config[group] = str(BackendConfig(backend))
        return group, store

    hook, method = sys.excepthook, distributed_c10d._default_pg_init_method
    distributed_c10d._new_process_group_helper = _new_process_group_helper
    _set_thread_isolation_mode(True)
    _create.now = create
    try:
        yield
    finally:
        _create.now = None
        _set_thread_isolation_mode(False)
        distributed_c10d._new_process_group_helper = original
        # Changed by init_process_group.
        sys.excepthook = hook
        distributed_c10d._default_pg_init_method = method


def _create(options, backend_options) -> ProcessGroup:
    members = list(options.global_ranks_in_group or range(options.group_size))
    return _create.now(options.group_id, members, options.group_rank)
