"""Models, data, and the trainer that brings both to one device."""

import itertools
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

from d2l_gpu.common.arguments import check_integer, check_learning_rate
from d2l_gpu.common.classes import HyperParameters
from d2l_gpu.common.messages import say
from d2l_gpu.show.live import in_jupyter
from d2l_gpu.show.training_curves import ProgressBoard

from ..datasets.batches import choose_epoch, first_batch
from ..gpus.torch_gpus import cpu, gpu, num_gpus
from ..parallel.pieces import is_lazy
from .evaluation import move


class Module(nn.Module, HyperParameters):
    """Base class of models: a network, its loss, its optimizer, and a board to plot on.

    A subclass sets ``net`` (or defines ``forward``) and defines ``loss``.

    Args:
        plot_train_per_epoch: points to plot per epoch in training.
        plot_valid_per_epoch: points to plot per epoch in validation.
    Source: d2l 1.0.3 ``Module``, section 3.2.2.
    """

    def __init__(
        self, plot_train_per_epoch: float = 2, plot_valid_per_epoch: float = 1
    ):
        super().__init__()
        self.save_hyperparameters()
        self.board = ProgressBoard()

    @property
    def trainer(self) -> "Trainer | None":
        """The trainer that prepared this model; None if there is none, or no longer."""
        reference = self.__dict__.get("_trainer")
        return reference() if reference is not None else None

    @trainer.setter
    def trainer(self, trainer: "Trainer") -> None:
        # The trainer holds the model. If the model also held the trainer, `del` would
        # free neither of them, nor their device memory, until the garbage collector
        # runs.
        self.__dict__["_trainer"] = weakref.ref(trainer)

    def __getstate__(self) -> dict:
        # Copies and saved models don't include the trainer and its data.
        return {key: value for key, value in self.__dict__.items() if key != "_trainer"}

    def loss(self, y_hat: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch, a tensor of one element; subclasses define it."""
        raise NotImplementedError(
            f"{type(self).__name__} has no loss: define loss(self, y_hat, y)."
        )

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Return ``net(X)``.

        Raises:
            NotImplementedError: there is no ``net``.
        """
        if not hasattr(self, "net"):
            raise NotImplementedError(
                f"{type(self).__name__} has no network: set self.net in the "
                "constructor, or define forward(self, X)."
            )
        return self.net(X)

    def plot(self, key: str, value: float | torch.Tensor, train: bool) -> None:
        """Add a value of this batch to the curve ``train_<key>`` or ``val_<key>``.

        The value stays on its device until there are enough values for a point.

        Args:
            key: name of the value, such as ``'loss'``.
            value: a number or a tensor of one element.
            train: True for training, False for validation.
        Raises:
            RuntimeError: no trainer has prepared this model.
        """
        trainer = self.trainer
        if trainer is None:
            raise RuntimeError(
                "Plotting needs a trainer, which keeps track of the epoch: call "
                "Trainer.fit(model, data)."
            )
        if train:
            x = trainer.train_batch_idx / trainer.num_train_batches
            batches, points = trainer.num_train_batches, self.plot_train_per_epoch
        else:
            x = trainer.epoch + 1
            batches, points = trainer.num_val_batches, self.plot_valid_per_epoch
        if points <= 0:
            return
        label = ("train_" if train else "val_") + key
        self.board.xlabel = "epoch"
        self.board.draw(x, value, label, every_n=max(1, int(batches / points)))

    def training_step(self, batch: Sequence) -> torch.Tensor:
        """Return the loss of a batch (inputs …, labels), and plot it."""
        loss = self.loss(self(*batch[:-1]), batch[-1])
        self.plot("loss", loss, train=True)
        return loss

    def validation_step(self, batch: Sequence) -> None:
        """Plot the loss of a batch (inputs …, labels) of the validation data."""
        loss = self.loss(self(*batch[:-1]), batch[-1])
        self.plot("loss", loss, train=False)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer: plain SGD with learning rate ``self.lr``.

        Raises:
            NotImplementedError: there is no ``self.lr``.
            TypeError, ValueError: it isn't a finite number greater than 0.
        """
        if not hasattr(self, "lr"):
            raise NotImplementedError(
                f"{type(self).__name__} has no learning rate: set self.lr, or define "
                "configure_optimizers(self)."
            )
        check_learning_rate(self.lr)
        return torch.optim.SGD(self.parameters(), lr=self.lr)

    def apply_init(self, inputs: Sequence[torch.Tensor], init=None) -> None:
        """Give lazy layers their shapes in a forward pass, then initialise the network.

        Args:
            inputs: the arguments of forward.
            init: function to apply to each module of ``net``; None: keep PyTorch's
                initialisation.
        Source: d2l 1.0.3 ``Module.apply_init``, section 6.4.
        """
        self.forward(*inputs)
        if init is not None:
            self.net.apply(init)


class DataModule(HyperParameters):
    """Base class of data sets, which provide the training and validation batches.

    Args:
        root: folder of the files, for subclasses that have any.
        num_workers: number of processes that load batches, for subclasses that use
            them.
    Source: d2l 1.0.3 ``DataModule``, section 3.2.3.
    """

    def __init__(self, root: str | Path = "../data", num_workers: int = 0):
        self.save_hyperparameters()

    def get_dataloader(self, train: bool) -> Iterable:
        """Return the batches for training or validation; subclasses define it."""
        raise NotImplementedError(
            f"{type(self).__name__} has no data: define get_dataloader(self, train)."
        )

    def train_dataloader(self) -> Iterable:
        """Return the batches of the training data."""
        return self.get_dataloader(train=True)

    def val_dataloader(self) -> Iterable | None:
        """Return the batches of the validation data, or None if there are none."""
        return self.get_dataloader(train=False)

    def get_tensorloader(
        self,
        tensors: Sequence[torch.Tensor],
        train: bool,
        indices: slice = slice(0, None),
    ) -> DataLoader:
        """Return batches of ``self.batch_size`` examples from tensors in memory.

        Each batch takes one indexing operation per tensor rather than one per example,
        so the tensors may just as well be on a GPU.

        Args:
            tensors: tensors of n examples each, shape (n, …).
            train: whether to shuffle.
            indices: which of the examples to use.
        Returns:
            A DataLoader of lists of tensors; the last batch may be smaller.
        Source: d2l 1.0.3 ``DataModule.get_tensorloader``, section 3.3.3.
        """
        dataset = TensorDataset(*(tensor[indices] for tensor in tensors))
        order = RandomSampler(dataset) if train else SequentialSampler(dataset)
        batches = BatchSampler(order, self.batch_size, drop_last=False)
        return DataLoader(dataset, sampler=batches, batch_size=None)


class Trainer(HyperParameters):
    """A trainer on one device: the GPU ``gpu(0)``, or the CPU if num_gpus is 0.

    Args:
        max_epochs: passes over the training data, at least 1.
        num_gpus: 1 for the GPU, 0 for the CPU.
        gradient_clip_val: largest norm of the gradient; 0: no limit.
    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument is invalid, or there aren't enough GPUs; the trainer
            never falls back to the CPU.
        NotImplementedError: there are enough GPUs, but num_gpus is more than 1, which
            takes data parallelism.
    Source: d2l 1.0.3 ``Trainer``, sections 3.2.4 and 6.7.
    """

    def __init__(
        self, max_epochs: int, num_gpus: int = 0, gradient_clip_val: float = 0
    ):
        check_integer("max_epochs", max_epochs, least=1)
        check_integer("num_gpus", num_gpus, least=0)
        _check_gpus(num_gpus)
        if isinstance(gradient_clip_val, bool) or not isinstance(
            gradient_clip_val, (int, float)
        ):
            raise TypeError(
                "gradient_clip_val must be a number such as 1.0, but got "
                f"{gradient_clip_val!r}."
            )
        if not gradient_clip_val >= 0:
            raise ValueError(
                "gradient_clip_val must be the largest norm of the gradient, or 0 "
                f"for no limit, but got {gradient_clip_val}."
            )
        self.save_hyperparameters()
        self.gpus = [gpu(i) for i in range(num_gpus)]
        self.device = self.gpus[0] if self.gpus else cpu()

    def prepare_data(self, data: DataModule) -> None:
        """Get the batches and count them.

        Raises:
            ValueError: there are no training batches.
        """
        self.train_dataloader = data.train_dataloader()
        self.val_dataloader = data.val_dataloader()
        self.num_train_batches = len(self.train_dataloader)
        self.num_val_batches = (
            len(self.val_dataloader) if self.val_dataloader is not None else 0
        )
        if self.num_train_batches == 0:
            raise ValueError(
                "There is nothing to train on: the training data yielded no batches."
            )

    def prepare_model(self, model: Module) -> None:
        """Move the model to the device, with its lazy layers initialised.

        Lazy layers get their shapes from one example of the first batch, before the
        model moves and before its optimizer is created. So the same seed gives the same
        weights on every device, and the optimizer sees real parameters.

        Raises:
            TypeError: the model is not a d2l.Module.
        """
        if not isinstance(model, Module):
            raise TypeError(
                f"Trainer trains a d2l.Module, but got a {type(model).__name__}: "
                "derive the model's class from d2l.Module."
            )
        model.trainer = self
        model.board.xlim = [0, self.max_epochs]
        if is_lazy(model):
            self._initialise(model)
        model.to(self.device)
        self.model = model

    def fit(self, model: Module, data: DataModule) -> None:
        """Train a model, and plot on its board, which is cleared first.

        Args:
            model: the model; its parameters are moved to the device and stay there.
            data: the data; each batch is moved when it is needed.
        Raises:
            TypeError: the model is not a d2l.Module.
            ValueError: there are no training batches.
        """
        self.prepare_data(data)
        self.prepare_model(model)
        self.optim = model.configure_optimizers()
        self.train_batch_idx = 0
        self.val_batch_idx = 0
        model.board.clear()
        for epoch in range(self.max_epochs):
            self.epoch = epoch
            self.fit_epoch()
            self._report()
        model.board.flush()

    def fit_epoch(self) -> None:
        """Train for one epoch, then validate."""
        self.model.train()
        choose_epoch(self.train_dataloader, self.epoch)
        for batch in self.train_dataloader:
            loss = self.model.training_step(self.prepare_batch(batch))
            self.optim.zero_grad()
            loss.backward()
            if self.gradient_clip_val > 0:
                self.clip_gradients(self.gradient_clip_val, self.model)
            self.optim.step()
            self.train_batch_idx += 1
        if self.val_dataloader is None:
            return
        self.model.eval()
        with torch.no_grad():
            for batch in self.val_dataloader:
                self.model.validation_step(self.prepare_batch(batch))
                self.val_batch_idx += 1

    def prepare_batch(self, batch: Any) -> Any:
        """Return the batch with each of its tensors on the trainer's device."""
        return move(batch, self.device)

    def clip_gradients(self, grad_clip_val: float, model: nn.Module) -> None:
        """Scale the gradients down to a norm of at most grad_clip_val.

        The norm stays on the device, so the host doesn't wait for it.

        Source: d2l 1.0.3 ``Trainer.clip_gradients``, section 9.5.
        """
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip_val)

    def _initialise(self, model: Module) -> None:
        batch = first_batch(self.train_dataloader)
        where = next(itertools.chain(model.parameters(), model.buffers())).device
        inputs = [
            part[:1].to(where) if isinstance(part, torch.Tensor) else part
            for part in batch[:-1]
        ]
        # Evaluation mode: no running statistics are updated, no dropout is drawn.
        model.eval()
        with torch.no_grad():
            model(*inputs)

    def _report(self) -> None:
        """Print a line per epoch outside Jupyter, where no figure grows."""
        board = self.model.board
        if board.display and board.data and not in_jupyter():
            latest = [
                f"{label} {points[-1].y:.4g}" for label, points in board.data.items()
            ]
            say(
                f"epoch {self.epoch + 1}/{self.max_epochs}: {', '.join(latest)}",
                flush=True,  # even if the output goes to a file
            )


def sgd(params: Iterable[torch.Tensor], lr: float, batch_size: int) -> None:
    """Take one step of minibatch stochastic gradient descent, then zero the gradients.

    Args:
        params: parameters, changed in place; those without a gradient are skipped.
        lr: the learning rate, greater than 0.
        batch_size: number of examples over which the loss was summed.
    Raises:
        TypeError, ValueError: lr isn't a finite number greater than 0.
    Source: d2l 1.0.3 ``sgd``, section 3.4.
    """
    check_learning_rate(lr)
    with torch.no_grad():
        for param in params:
            if param.grad is not None:
                param -= lr * param.grad / batch_size
                param.grad.zero_()


def _check_gpus(asked: int) -> None:
    if asked == 0:
        return
    there = num_gpus()
    if asked > 1 and asked <= there:
        raise NotImplementedError(
            f"This trainer uses one device, not {asked} GPUs: pass num_gpus=1, and "
            "see lessons 07 and 08 for training on several."
        )
    if asked > 1:
        raise ValueError(
            f"num_gpus={asked} asks for more GPUs than there are ({there}), and this "
            "trainer uses only one: pass num_gpus=1, or 0 to train on the CPU."
        )
    if asked > there:
        raise ValueError(
            "num_gpus=1 asks for a GPU, but there is none: call d2l.require_gpus(1) "
            "first, or pass num_gpus=0 to train on the CPU."
        )
