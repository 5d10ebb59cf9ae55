"""The devices of a PyTorch process, real or virtual.

* ``torch_gpus``: ``gpu``, ``try_gpu``, ``require_gpus`` and their relatives.
* ``inventory``: ``devices``, the table of what this machine has.
* ``copy_log``: ``transfers``, the log of copies between devices.
"""
