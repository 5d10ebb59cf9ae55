"""Helpers for the PyTorch lessons: ``from d2l_gpu import torch as d2l``.

Names and signatures are those of the book's package d2l 1.0.3 where it has them.

* ``gpus``: the available devices, and the log of copies between them.
* ``datasets``: images and a text to train on, and minibatches of images.
* ``training``: training on one device: trainer, networks, checkpoints.
* ``parallel``: training on several devices in one process.
* ``processes``: training in several processes and on several machines.
* ``timing``: measured and simulated time.
* ``puzzle``: the reader's best plans for lesson 17.
* ``book``: the book's own package d2l, alongside this one.
"""

try:
    import torch as _torch  # noqa: F401  only for a clear error if it is missing
except ImportError as error:
    from d2l_gpu.common.frameworks import not_installed

    raise not_installed("pytorch", error) from error

from d2l_gpu.common.classes import HyperParameters, add_to_class
from d2l_gpu.common.speaking import speak
from d2l_gpu.exercises import Exercises
from d2l_gpu.quizzes import Quizzes
from d2l_gpu.show.bars import bars
from d2l_gpu.show.curves import plot
from d2l_gpu.show.images import show_images
from d2l_gpu.show.panels import panels
from d2l_gpu.show.progress import Progress
from d2l_gpu.show.roofline import roofline
from d2l_gpu.show.training_curves import Animator, ProgressBoard
from d2l_gpu.vgpu import current_simulator, memory_map, simulator

from .book import require_book
from .datasets.batches import Batches
from .datasets.books import load_alice
from .datasets.images import load_data_digits, load_data_fashion_mnist
from .datasets.photographs import Photographs
from .gpus.copy_log import transfers
from .gpus.inventory import devices
from .gpus.torch_gpus import (
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
from .parallel.data_parallel import History, train
from .parallel.pieces import allreduce, replicate, shard_gradients, split_batch
from .processes.cluster import slurm_script, torchrun_command
from .processes.elsewhere import run_elsewhere
from .processes.ending import let_gloo_finish as _let_gloo_finish  # noqa: F401  at exit
from .processes.launching import launch
from .processes.reports import report
from .processes.sagemaker import sagemaker_job
from .puzzle import puzzle_table
from .timing.bench import bench
from .timing.race import race
from .timing.scaling import simulate_step
from .timing.timer import Timer
from .training.checkpoints import Checkpoints
from .training.evaluation import (
    Accumulator,
    accuracy,
    evaluate_accuracy_gpu,
    evaluate_accuracy_gpus,
)
from .training.forms import Form, try_forms
from .training.nets import Residual, resnet18
from .training.parameter_files import load_parameters, save_parameters
from .training.schedule import linear_schedule_with_warmup
from .training.trainer import DataModule, Module, Trainer, sgd

speak()
_exercises = Exercises("pytorch")
check, exercise = _exercises.check, _exercises.exercise
quiz = Quizzes("pytorch").quiz
variant = _exercises.variant

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
    "Photographs",
    "Progress",
    "ProgressBoard",
    "Residual",
    "Timer",
    "Trainer",
    "accuracy",
    "add_to_class",
    "allreduce",
    "bars",
    "bench",
    "check",
    "cpu",
    "current_simulator",
    "devices",
    "evaluate_accuracy_gpu",
    "evaluate_accuracy_gpus",
    "exercise",
    "gpu",
    "launch",
    "linear_schedule_with_warmup",
    "load_alice",
    "load_data_digits",
    "load_data_fashion_mnist",
    "load_parameters",
    "memory_map",
    "num_gpus",
    "panels",
    "plot",
    "puzzle_table",
    "quiz",
    "race",
    "real_gpus",
    "replicate",
    "report",
    "require_book",
    "require_gpus",
    "resnet18",
    "roofline",
    "run_elsewhere",
    "sagemaker_job",
    "save_parameters",
    "sgd",
    "shard_gradients",
    "show_images",
    "simulate_step",
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
    "variant",
]
