"""The devices of a PyTorch process, real or virtual.

* ``torch_gpus``: ``gpu``, ``try_gpu``, ``require_gpus`` and related functions.
* ``inventory``: ``devices``, the table of this machine's devices.
* ``copy_log``: ``transfers``, the log of copies between devices.
"""
