"""Training scripts in several processes and on several machines.

* ``launching``: ``launch``, which starts torchrun from a notebook.
* ``reports``: ``report``, which sends a script's results to the notebook.
* ``failures``: finds out which rank failed first, and why.
* ``cluster``: commands for several machines, and Slurm jobs.
* ``sagemaker``: Amazon SageMaker jobs.

Each rank's process runs ``d2l_gpu/common/worker.py``, which does not import PyTorch.
"""
