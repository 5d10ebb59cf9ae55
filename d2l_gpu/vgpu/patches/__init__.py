"""Every change made to PyTorch itself; nothing else in this package changes it.

PyTorch asks the backend of a device for nearly everything. What it doesn't ask for is
changed here, one function for each change. Its docstring says what fails without it and
on which versions of PyTorch that was seen; "All" means 2.10 to 2.13. Each module is
named after the part of PyTorch that it changes:

* ``autograd``: the thread of a backward pass, and its errors.
* ``tensors``: ``Tensor.data``, ``pin_memory`` and ``cuda``.
* ``names``: names such as ``vgpu`` and ``cuda:1``, where C++ doesn't understand them.
* ``modules``: ``torch.nn.Module`` and its parameters, optimizers.
* ``accelerator``: ``torch.accelerator``, ``torch.Generator``.
* ``loading``: ``torch.load``.
* ``nn_parallel``: ``torch.nn.parallel``, the copies that ``DataParallel`` asks for.
* ``distributed``: ``torch.distributed`` and ``DistributedDataParallel``.
* ``compiler``, ``data_loader``: ``torch.compile``, workers of a ``DataLoader``.
* ``as_cuda``: for programs that say ``cuda``, on request only.
"""

import torch

from . import (
    accelerator,
    autograd,
    compiler,
    data_loader,
    loading,
    modules,
    names,
    nn_parallel,
    tensors,
)


def apply() -> None:
    """Apply all but ``as_cuda``; ``backend.register`` calls this once."""
    for part in (
        autograd,
        names,
        tensors,
        modules,
        accelerator,
        loading,
        nn_parallel,
        compiler,
        data_loader,
    ):
        part.apply()
    if torch.distributed.is_available():
        from . import distributed

        distributed.apply()
