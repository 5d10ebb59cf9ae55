"""Interactive lessons on GPUs for deep learning, and virtual GPUs to run them on.

The notebooks use ``from d2l_gpu import torch as d2l``. Nothing is imported here,
so that the course, the helpers and the virtual GPUs can each be used alone.
"""

__version__ = "0.1.0"
