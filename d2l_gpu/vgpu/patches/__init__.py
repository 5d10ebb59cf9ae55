"""Every change made to PyTorch itself; nothing else in this package changes it.

PyTorch asks the backend of a device for nearly everything. Where it doesn't ask, we
change it here, with one function for each change. The function's docstring says what
fails without the change, and in which versions of PyTorch; "All" means 2.10 to 2.13.
Each module is named after the part of PyTorch that it changes:

* ``autograd``: the thread of a backward pass, and its errors.
* ``tensors``: ``Tensor.data``, ``pin_memory`` and ``cuda``.
* ``amp``: the cache of ``torch.autocast``.
* ``names``: names such as ``vgpu`` and ``cuda:1``, where C++ doesn't understand them.
* ``modules``: ``torch.nn.Module``, its parameters, and optimizers.
* ``accelerator``: ``torch.accelerator``, ``torch.Generator``.
* ``loading``: files of ``torch.save``, and ``torch.load``.
* ``nn_parallel``: ``torch.nn.parallel``, and the copies that ``DataParallel`` makes.
* ``distributed``: ``torch.distributed`` and ``DistributedDataParallel``.
* ``ranks``: process groups, only while the ranks of a small world run.
* ``compiler``: ``torch.compile``.
* ``data_loader``: the workers of a ``DataLoader``.
* ``profiling``: ``torch.profiler``, asked for virtual GPUs.
* ``as_cuda``: the name ``cuda``, only for ``enable(as_cuda=True)``.
* ``monitoring``: memory in detail and the driver, which come with that name.
* ``nccl``: the backend ``nccl``, which comes with that name.
* ``when_imported``: changes to parts that few programs import.
"""

import torch

from . import (
    accelerator,
    amp,
    autograd,
    compiler,
    data_loader,
    loading,
    modules,
    names,
    nn_parallel,
    profiling,
    tensors,
)


def apply() -> None:
    """Apply everything except ``as_cuda``; ``backend.register`` calls this once."""
    for part in (
        autograd,
        amp,
        names,
        tensors,
        modules,
        accelerator,
        loading,
        nn_parallel,
        compiler,
        data_loader,
        profiling,
    ):
        part.apply()
    if torch.distributed.is_available():
        from . import distributed

        distributed.apply()
