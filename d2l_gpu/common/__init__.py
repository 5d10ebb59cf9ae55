"""What the helpers of all frameworks and the command share.

Nothing here imports a framework.

* ``frameworks``: the table of frameworks that the course has editions for.
* ``gpu_choice``: ``require_gpus`` and its relatives: real GPUs, or else virtual ones.
* ``settings``: environment variables and folders.
* ``arguments``: checks of arguments, with the sentence that a reader gets.
* ``classes``: ``add_to_class`` and ``HyperParameters``.
* ``processor``: the CPU and the main memory of this machine.
* ``requirements``: the packages that the extras ask for.
* ``files``: writing files whole or not at all.
* ``children``: processes that end with the one that started them.
* ``worker``: the process of one rank that ``d2l.launch`` starts.
"""
