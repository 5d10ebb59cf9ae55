"""Training scripts on several processes, and on several machines.

* ``launching``: ``launch``, which starts torchrun from a notebook.
* ``reports``: ``report``, what a script hands back to the notebook.
* ``failures``: which rank failed first, and why.
* ``cluster``: commands for several machines, and Slurm jobs.
* ``sagemaker``: jobs of Amazon SageMaker.

The process of a rank is ``d2l_gpu/common/worker.py``, which does not import PyTorch.
"""
