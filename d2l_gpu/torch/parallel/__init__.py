"""Data parallelism: one network on several devices.

* ``pieces``: ``split_batch``, ``allreduce``, ``replicate``, ``shard_gradients``.
* ``data_parallel``: ``train``, the whole training loop built from them.
"""
