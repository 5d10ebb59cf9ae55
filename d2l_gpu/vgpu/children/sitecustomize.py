"""Virtual GPUs for the Python processes that a program starts: ranks, for example.

``python -m d2l_gpu.vgpu`` puts this folder first on PYTHONPATH, and Python imports a
module of this name whenever it starts. So each process has virtual GPUs, whoever starts
it: ``multiprocessing``, ``torchrun``, or a library that runs the program again. They
are set up once the process imports PyTorch; if it never does, nothing happens.
"""

import importlib.util
import json
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

# Holds the arguments of ``enable``, as JSON.
VARIABLE = "D2L_GPU_AS_CUDA"
HERE = Path(__file__).resolve().parent


class AfterTorch:
    """A finder that enables virtual GPUs right after PyTorch has been imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or VARIABLE not in os.environ:
            return spec
        settings = json.loads(os.environ[VARIABLE])
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            enable(settings)

        spec.loader.exec_module = exec_module
        return spec


def enable(settings: dict) -> None:
    if importlib.util.find_spec("d2l_gpu") is None:
        sys.path.append(str(HERE.parents[2]))
    from d2l_gpu import vgpu

    vgpu.enable(**settings)


def run_the_other() -> None:
    """Run the module of this name that Python would have found without ours."""
    folders = [folder for folder in sys.path if Path(folder).resolve() != HERE]
    spec = PathFinder.find_spec("sitecustomize", folders)
    if spec is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, AfterTorch())
run_the_other()
