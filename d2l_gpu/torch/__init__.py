"""The helper of the lessons: ``from d2l_gpu import torch as d2l``.

Names and signatures are those of the book's package d2l 1.0.3 where it has them.
"""

try:
    import torch as _torch  # noqa: F401  only to say in a sentence that it is missing
except ImportError as error:
    from d2l_gpu.frameworks import not_installed

    raise not_installed("pytorch", error) from error

from d2l_gpu.exercises import Exercises

# `devices`, `launch` and `transfers` name a submodule and a function each. The
# function, imported after the submodule, is what `d2l.devices` finds: keep the order.
from d2l_gpu.oop import HyperParameters, add_to_class
from d2l_gpu.plot import Animator, ProgressBoard
from d2l_gpu.progress import Progress
from d2l_gpu.vgpu import simulation, simulator

from .batches import Batches
from .bench import bench
from .book import require_book
from .checkpoints import Checkpoints
from .cluster import slurm_script, torchrun_command
from .curves import plot, roofline
from .data_parallel import History, train
from .datasets import load_data_digits, load_data_fashion_mnist
from .devices import (
    cpu,
    gpu,
    num_gpus,
    real_gpus,
    require_gpus,
    to,
    try_all_gpus,
    try_gpu,
    use_virtual_gpus,
)
from .evaluation import (
    Accumulator,
    accuracy,
    evaluate_accuracy_gpu,
    evaluate_accuracy_gpus,
)
from .files import load_parameters, save_parameters
from .inventory import devices
from .launch import launch
from .nets import Residual, resnet18
from .parallel import allreduce, replicate, shard_gradients, split_batch
from .results import report
from .sagemaker import sagemaker_job
from .scaling import simulate_step
from .schedule import linear_schedule_with_warmup
from .speed import Form, try_forms
from .timing import Timer
from .training import DataModule, Module, Trainer, sgd
from .transfers import transfers

FRAMEWORK = {
    "order": 1,
    "tag": "pytorch",
    "title": "PyTorch",
    "module": "torch",
    "extras": "course",
}

_exercises = Exercises(FRAMEWORK["tag"])
check, exercise = _exercises.check, _exercises.exercise

__all__ = [
    "Accumulator",
    "Animator",
    "Batches",
    "Checkpoints",
    "DataModule",
    "Form",
    "History",
    "HyperParameters",
    "Module",
    "Progress",
    "ProgressBoard",
    "Residual",
    "Timer",
    "Trainer",
    "accuracy",
    "add_to_class",
    "allreduce",
    "bench",
    "check",
    "cpu",
    "devices",
    "evaluate_accuracy_gpu",
    "evaluate_accuracy_gpus",
    "exercise",
    "gpu",
    "launch",
    "linear_schedule_with_warmup",
    "load_data_digits",
    "load_data_fashion_mnist",
    "load_parameters",
    "num_gpus",
    "plot",
    "real_gpus",
    "replicate",
    "report",
    "require_book",
    "require_gpus",
    "resnet18",
    "roofline",
    "sagemaker_job",
    "save_parameters",
    "sgd",
    "shard_gradients",
    "simulate_step",
    "simulation",
    "simulator",
    "slurm_script",
    "split_batch",
    "to",
    "torchrun_command",
    "train",
    "transfers",
    "try_all_gpus",
    "try_forms",
    "try_gpu",
    "use_virtual_gpus",
]
