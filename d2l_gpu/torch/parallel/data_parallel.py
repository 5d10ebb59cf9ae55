"""Training one network on several devices, each with a shard of every batch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional as F

from d2l_gpu.common.arguments import check_integer, check_learning_rate
from d2l_gpu.common.messages import say
from d2l_gpu.show.live import in_jupyter
from d2l_gpu.show.progress import Progress
from d2l_gpu.show.training_curves import Animator

from ..datasets.batches import Batches, choose_epoch, first_batch
from ..datasets.images import load_data_digits
from ..gpus.torch_gpus import cpu, gpu
from ..gpus.torch_gpus import num_gpus as available_gpus
from ..timing.timer import Timer
from ..training.evaluation import Accumulator, evaluate_accuracy_gpus, evaluation_mode
from ..training.forms import PLAIN, Form, try_forms
from ..training.schedule import linear_schedule_with_warmup
from .pieces import average_buffers, device_of, replicate, shard_gradients

POINTS_PER_EPOCH = 4  # on the curve of the training loss


@dataclass
class History:
    """What a training run recorded: one value per epoch, and where it ran."""

    devices: list[torch.device]
    loss: list[float] = field(default_factory=list)
    """Mean training loss of each epoch."""
    accuracy: list[float] = field(default_factory=list)
    """Test accuracy after each epoch, from 0 to 1."""
    form: Form = PLAIN
    """The dtype and memory format of its computations."""
    seconds: list[float] = field(default_factory=list)
    """Training time of each epoch by the host's clock, without evaluation."""

    def __str__(self) -> str:
        names = ", ".join(map(str, self.devices))
        if not self.seconds:
            return f"not trained yet, on {names}"
        seconds = sum(self.seconds) / len(self.seconds)
        virtual = any(device.type == "vgpu" for device in self.devices)
        # How long virtual GPUs take says nothing about real ones.
        per_epoch = f"{seconds:.1f} sec/epoch{' of the host' if virtual else ''}"
        return f"test acc: {self.accuracy[-1]:.2f}, {per_epoch} on {names}"


def train(
    net: nn.Module,
    num_gpus: int,
    batch_size: int,
    lr: float,
    num_epochs: int = 10,
    *,
    load_data: Callable[[int], tuple[Iterable, Iterable]] = load_data_digits,
    loss: Callable = F.cross_entropy,
    momentum: float = 0,
    warmup_epochs: float = 0,
    fast: bool = False,
    display: bool = True,
) -> History:
    """Train a classification network on one or several GPUs, and test it.

    Every GPU holds a replica and computes the gradient of its shard of each batch. The
    gradients are summed, and each replica takes the same SGD step. The learning rate
    rises during the warm-up and then falls linearly to 0. After each epoch, the running
    statistics of the replicas are averaged and all of them are tested.

    In Jupyter, curves are drawn during training. Elsewhere, a line is printed per
    epoch, and a terminal also shows a progress bar. At the end, one line gives the test
    accuracy, seconds per epoch and devices.

    Args:
        net: maps inputs (n, …) to scores (n, classes). It is trained in place and stays
            on the first device, so pass a new one to each run.
        num_gpus: number of GPUs; 0: the CPU.
        batch_size: examples per batch, over all devices together.
        lr: the full learning rate, greater than 0.
        num_epochs: passes over the training data, at least 1.
        load_data: function that takes the batch size and returns batches (X, y) for
            training and for testing; default: scikit-learn's handwritten digits.
        loss: function of scores and labels that returns the mean over the examples.
        momentum: momentum of SGD.
        warmup_epochs: number of epochs in which the learning rate rises.
        fast: whether to time a few steps in other forms first, such as bfloat16 with
            channels last, and to train in the fastest. The rounding differs; the
            accuracy doesn't suffer. Ignored on virtual GPUs, whose time is the host's.
        display: whether to draw and print.
    Returns:
        The history: training loss, test accuracy and seconds of each epoch.
    Raises:
        TypeError, ValueError: an argument is invalid, the data are empty, the labels
            don't fit the network's classes, or there aren't enough GPUs.
    Source: d2l 1.0.3 ``train``, section 13.6.
    """
    devices = _devices(num_gpus, batch_size)
    check_integer("num_epochs", num_epochs, least=1)
    check_learning_rate(lr)
    if not 0 <= warmup_epochs < num_epochs:
        raise ValueError(
            f"warmup_epochs must be at least 0 and less than num_epochs={num_epochs}, "
            f"but got {warmup_epochs}."
        )
    train_iter, test_iter = load_data(batch_size)
    if len(train_iter) == 0:
        raise ValueError("There is nothing to train on: load_data yielded no batches.")
    if isinstance(train_iter, Batches):  # make batches on the first device
        train_iter, test_iter = train_iter.to(devices[0]), test_iter.to(devices[0])
    replicas = replicate(net, devices)
    check_labels = _LabelCheck(net, train_iter)
    # One optimizer holds all replicas' parameters and updates each on its own device.
    parameters = [p for replica in replicas for p in replica.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=momentum)
    steps = len(train_iter)
    form = _fastest(replicas[0], train_iter, loss, display) if fast else PLAIN
    replicas = [form.apply(replica) for replica in replicas]
    schedule = linear_schedule_with_warmup(
        optimizer, round(warmup_epochs * steps), num_epochs * steps
    )
    history, timer = History(devices, form=form), Timer(devices)
    curves = _Curves(num_epochs, steps, display)
    # In Jupyter, the figure shows the progress; a bar would only distract from it.
    visible = display and not in_jupyter()
    with Progress(num_epochs * steps, "training", display=visible) as bar:
        for epoch in range(num_epochs):
            choose_epoch(train_iter, epoch)
            metric = Accumulator(2)
            for replica in replicas:
                replica.train()
            timer.start()
            for step, (X, y) in enumerate(train_iter):
                check_labels(y)
                mean = shard_gradients(replicas, X, y, loss)
                optimizer.step()
                schedule.step()
                metric.add(mean * len(y), len(y))
                curves.add_loss(epoch, step, mean)
                bar.update()
            history.seconds.append(timer.stop())
            history.loss.append(metric[0] / metric[1])
            average_buffers(replicas)
            history.accuracy.append(evaluate_accuracy_gpus(replicas, test_iter))
            curves.add_accuracy(epoch, history.accuracy[-1])
            if visible:
                with bar.aside():
                    say(
                        f"epoch {epoch + 1}/{num_epochs}: "
                        f"train loss {history.loss[-1]:.4g}, "
                        f"test accuracy {history.accuracy[-1]:.4g}",
                        flush=True,
                    )
    if display:
        say(history)
    return history


def _devices(num_gpus: int, batch_size: int) -> list[torch.device]:
    check_integer("num_gpus", num_gpus, least=0)
    check_integer("batch_size", batch_size, least=1)
    if num_gpus > available_gpus():
        raise ValueError(
            f"num_gpus={num_gpus} asks for more GPUs than there are "
            f"({available_gpus()}): call d2l.require_gpus({num_gpus}) first, or pass "
            "num_gpus=0 to train on the CPU."
        )
    if batch_size < num_gpus:
        raise ValueError(
            f"A batch of {batch_size} cannot be split across {num_gpus} GPUs: use "
            f"batch_size={num_gpus} or more, so that each GPU gets an example."
        )
    return [gpu(i) for i in range(num_gpus)] or [cpu()]


def _fastest(net: nn.Module, data: Iterable, loss: Callable, display: bool) -> Form:
    """Return the form in which a training step is fastest here, and report it."""
    device = device_of(net)
    if device.type == "vgpu":
        form, found = PLAIN, "virtual GPUs compute in one form only"
    else:
        X, y = first_batch(data)
        trial = try_forms(net, X.to(device), y.to(device), loss)
        form, found = trial.best, str(trial)
    if display:
        say(found)
    return form


class _LabelCheck:
    """Rejects labels for which the network has no score.

    On a GPU, such a label aborts a kernel, and GPU work in this process fails from then
    on. So labels are checked beforehand: all at once if the data set holds them,
    otherwise batch by batch, except on a GPU, where the host would have to wait.
    """

    def __init__(self, net: nn.Module, data: Iterable):
        X, _ = first_batch(data)
        with evaluation_mode(net), torch.no_grad():
            self.classes = net(X[:1].to(device_of(net))).shape[1]
        self.all_checked = isinstance(data, Batches)
        if self.all_checked:
            self._check(data.labels)

    def __call__(self, y: torch.Tensor) -> None:
        if not self.all_checked and y.device.type == "cpu":
            self._check(y)

    def _check(self, y: torch.Tensor) -> None:
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= self.classes:
            raise ValueError(
                f"The labels range from {low} to {high}, but the network has scores "
                f"for only {self.classes} classes, 0 to {self.classes - 1}."
            )


class _Curves:
    """The figure of a training run: loss and test accuracy by epoch."""

    def __init__(self, num_epochs: int, steps: int, display: bool):
        self.steps, self.every = steps, max(1, steps // POINTS_PER_EPOCH)
        self.figure = None
        if display and in_jupyter():
            self.figure = Animator(
                xlabel="epoch",
                legend=["train loss", "test accuracy"],
                xlim=[0, num_epochs],
                ylim=[0, 2.5],
            )

    def add_loss(self, epoch: int, step: int, loss: torch.Tensor) -> None:
        # Reading the loss waits for the device, so do it only a few times per epoch.
        if self.figure and (step + 1) % self.every == 0:
            self.figure.add(epoch + (step + 1) / self.steps, [loss, None])

    def add_accuracy(self, epoch: int, accuracy: float) -> None:
        if self.figure:
            self.figure.add(epoch + 1, [None, accuracy])
