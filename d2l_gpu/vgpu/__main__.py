"""Run a program written for CUDA on virtual GPUs.

python -m d2l_gpu.vgpu --gpus 2 train.py --epochs 3
python -m d2l_gpu.vgpu --gpus 2 --memory 4GiB -m package.train --epochs 3

Or simulate it on a cluster, on shapes only, and print what it takes there:

python -m d2l_gpu.vgpu --cluster 8x8:H100 train.py --epochs 3
"""

import argparse
import json
import os
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from .monitor import VARIABLE
from .programs import of_program, run_script

NAME = "python -m d2l_gpu.vgpu"
CHILDREN = Path(__file__).resolve().parent / "children"
PROGRAMS = CHILDREN / "bin"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a script or module as Python would, but with virtual GPUs as its ``cuda``.

    Args:
        arguments: of the command, without its name; None means those of the process.

    Raises:
        SystemExit: with 2 if the arguments make no sense, or with whatever status the
            program ends.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    program = options.module or options.script
    if not program:
        parser.error("name the script to run, or -m and a module.")
    start = partial(_start, program, options.module is not None)
    try:
        _check(program[0], options.module is not None)
        if options.cluster is None:
            _enable(options.gpus, options.memory, options.allocator)
        else:
            start = _on_cluster(options, start)
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    try:
        start()
    except Exception as error:
        # Show it as Python would: starting at the program's own first line.
        error.__traceback__ = of_program(error.__traceback__, __file__)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


def _start(program: Sequence[str], is_module: bool) -> None:
    sys.argv = list(program)
    if is_module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        run_script(Path(program[0]))


def _on_cluster(
    options: argparse.Namespace, start: Callable[[], None]
) -> Callable[[], None]:
    """Return what runs a program on a cluster, and prints what it did."""
    form = re.fullmatch(r"(\d+)x(\d+):([^:]+)(?::([^:]+))?", options.cluster)
    if not form:
        raise ValueError(
            "a cluster is written as nodes, GPUs in a node, their model and, if you "
            f"like, the network: 8x8:H100 or 8x8:H100:NDR, but got {options.cluster!r}."
        )
    nodes, gpus, model, network = form.groups()
    from d2l_gpu import vgpu

    cluster = vgpu.cluster(
        *(int(nodes), int(gpus), model, network),
        memory=options.memory,
        allocator=options.allocator or "caching",
    )
    # Names, such as cuda, are those of a single process with virtual GPUs.
    vgpu.enable(1, backing="meta", as_cuda=True)

    def run() -> None:
        done = cluster.run_as_it_is(start, [0], options.tokens, options.parameters)
        print(done)
        if options.timeline:
            done.timeline().save(options.timeline)

    return run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="Run a program written for CUDA on virtual GPUs, which are "
        "simulated on the CPU.",
        usage="%(prog)s [--gpus N | --cluster NODESxGPUS:MODEL[:NETWORK]] "
        "[--memory SIZE] [--allocator NAME] [--tokens N] [--parameters N] "
        "[--timeline FILE] (SCRIPT | -m MODULE) [ARGUMENT ...]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--gpus",
        type=int,
        default=2,
        metavar="N",
        help="number of virtual GPUs (default: %(default)s)",
    )
    parser.add_argument(
        "--memory", metavar="SIZE", help="memory of each GPU, such as 4GiB"
    )
    parser.add_argument(
        "--allocator",
        metavar="NAME",
        help="caching, for PyTorch's caching allocator; settings can follow, as in "
        "caching,expandable_segments:True",
    )
    parser.add_argument(
        "--cluster",
        metavar="NODESxGPUS:MODEL[:NETWORK]",
        help="simulate the program as torchrun would start it on a cluster, such as "
        "8x8:H100, without values; print the time and memory of a step",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        metavar="N",
        help="with --cluster: what all ranks process in a step, for tokens/s",
    )
    parser.add_argument(
        "--parameters",
        type=float,
        metavar="N",
        help="with --tokens: of the whole model, such as 8e9, for MFU",
    )
    parser.add_argument(
        "--timeline",
        metavar="FILE",
        help="with --cluster: write what ran when, as .json for ui.perfetto.dev, or as "
        ".svg",
    )
    parser.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="run a module with the arguments that follow",
    )
    parser.add_argument(
        "script",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT",
        help="run a script with the arguments that follow",
    )
    return parser


def _check(name: str, is_module: bool) -> None:
    """Raise ValueError unless the file, or the top-level package, exists.

    This imports nothing, since the program's own imports might ask for CUDA.
    """
    if not is_module:
        if not Path(name).is_file():
            raise ValueError(f"there is no file {name!r}.")
        return
    try:
        found = find_spec(name.partition(".")[0]) is not None
    except ValueError:  # an empty name
        found = False
    if not found:
        raise ValueError(f"there is no module named {name!r}.")


def _enable(gpus: int, memory: str | None, allocator: str | None) -> None:
    # A process that another one like this has started would set up that one's devices.
    os.environ.pop(VARIABLE, None)
    from d2l_gpu import vgpu

    settings = {"n": gpus, "memory": memory, "as_cuda": True, "allocator": allocator}
    vgpu.enable(**settings)
    # All processes have devices of the same size, also where the default would differ.
    settings["memory"] = vgpu.machine_in_use().capacities[0]
    _enable_in_children(settings)
    print(
        f"{NAME}: {gpus} virtual GPU{'s' * (gpus > 1)}, simulated on the CPU, "
        f"{'are' if gpus > 1 else 'is'} available as cuda.",
        file=sys.stderr,
    )


def _enable_in_children(settings: dict) -> None:
    """Set up the same virtual GPUs in the Python processes that the program starts.

    They, and other processes, also find a program ``nvidia-smi`` for virtual GPUs.
    See ``children/sitecustomize.py``. A process that Python starts with ``-I``, ``-E``
    or ``-S`` has none, and nor has one that gets another PYTHONPATH.
    """
    os.environ[VARIABLE] = json.dumps(settings)
    os.environ["D2L_GPU_PYTHON"] = sys.executable  # for the programs on PATH
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [folder for folder in before if folder not in ("", str(CHILDREN))]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CHILDREN), *others])
    before = os.environ.get("PATH", os.defpath).split(os.pathsep)
    others = [folder for folder in before if folder != str(PROGRAMS)]
    os.environ["PATH"] = os.pathsep.join([str(PROGRAMS), *others])


if __name__ == "__main__":
    main()
