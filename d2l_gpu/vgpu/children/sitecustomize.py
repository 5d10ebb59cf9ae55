"""Virtual GPUs for the Python processes that a program starts: ranks, for example.

``python -m d2l_gpu.vgpu`` puts this folder first on PYTHONPATH, and Python imports a
module of this name whenever it starts. So each process has virtual GPUs, whoever starts
it: ``multiprocessing``, ``torchrun``, or a library that runs the program again. They
are set up once the process imports PyTorch. If it never does, nothing happens, except
that tools which import ``pynvml`` to ask the driver find the virtual GPUs.
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


class After:
    """A finder that does something right after a module has been imported.

    Args:
        name: of the module.
        then: what to do, a function of the module.
    """

    def __init__(self, name: str, then):
        self.name, self.then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or VARIABLE not in os.environ:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            if importlib.util.find_spec("d2l_gpu") is None:
                sys.path.append(str(HERE.parents[2]))
            self.then(module)

        spec.loader.exec_module = exec_module
        return spec


def enable(torch) -> None:
    from d2l_gpu import vgpu

    vgpu.enable(**json.loads(os.environ[VARIABLE]))


def monitor(pynvml) -> None:
    from d2l_gpu.vgpu import nvml

    nvml.install(pynvml)


def run_the_other() -> None:
    """Run the module of this name that Python would have found without ours."""
    folders = [folder for folder in sys.path if Path(folder).resolve() != HERE]
    spec = PathFinder.find_spec("sitecustomize", folders)
    if spec is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path[:0] = [After("torch", enable), After("pynvml", monitor)]
run_the_other()
