"""Training scripts in several processes and on several machines.

* ``launching``: ``launch``, which starts torchrun from a notebook.
* ``elsewhere``: ``run_elsewhere``, one process as if on another machine.
* ``reports``: ``report``, which sends a script's results to the notebook.
* ``ending``: lets gloo's threads finish before the interpreter goes down.
* ``failures``: finds out which rank failed first, and why.
* ``cluster``: commands for several machines, and Slurm jobs.
* ``sagemaker``: Amazon SageMaker jobs.

Each rank's process runs ``d2l_gpu/common/worker.py``, which does not import PyTorch.
"""
