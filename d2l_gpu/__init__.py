"""An interactive course on GPUs for deep learning, and virtual GPUs to run it on.

The notebooks use ``from d2l_gpu import torch as d2l``. Nothing is imported here, so
that the course, the helpers and the virtual GPUs can each be used alone.

* ``torch``, ``tensorflow``, ``jax``, ``mxnet``: what the notebooks import, one helper
  for each framework, with the same names.
* ``vgpu``: virtual GPUs for PyTorch, a library of its own.
* ``show``: plots, live figures, progress bars.
* ``data``: what the lessons train on, and how it is downloaded.
* ``exercises``: exercises that check themselves; ``quizzes``: quizzes that do.
* ``progress``: the record of the exercises that a reader has solved.
* ``common``: what the helpers of all frameworks share.
* ``cli``: the command ``d2l-gpu``; ``commands`` reads its arguments, and ``course``,
  ``doctor``, ``grading`` and ``assignments`` do the work.

PYTEST_DONT_REWRITE: pytest reads this. It would warn otherwise where a program has
imported us before it starts pytest, as ``python -m d2l_gpu.vgpu -m pytest`` does.
"""

__version__ = "0.2.0rc1"
