"""How libraries that nobody here wrote behave on virtual GPUs: a yardstick.

Each module ``on_<area>.py`` has checks, functions named ``check_…``. Its docstring says
in a sentence what users of a library expect on a machine with two CUDA GPUs. Checks use
a library as its documentation does. They compare values with those of the CPU, or with
what they have to be, and look at devices; that something runs isn't enough. None
downloads anything, and none knows about virtual GPUs: on a machine with two CUDA GPUs,
``python -m tools.ecosystem --real`` runs the same checks there, and all should pass.

``python -m tools.ecosystem`` runs each check in a process of its own, by
``python -m d2l_gpu.vgpu --gpus 2``, and prints a table. Not all checks pass, so pytest
doesn't collect them. A module can have these constants, which the tool reads without
importing it:

* ``NEEDS``: what has to be installed (``requirements.txt``). The first is what the area
  is about.
* ``ENVIRONMENT``: environment variables to set.
* ``SHORT``: the checks that run in CI, quick ones that pass.

`support` has what the checks share. It makes every module a program that calls the
function that its first argument names. So ranks under torchrun, and processes that a
library starts by running the program again, are functions of the same module.
"""
