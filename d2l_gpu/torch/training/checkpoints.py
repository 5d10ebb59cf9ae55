"""Checkpoints: what a training needs to go on after a crash as if nothing had happened.

Each rank writes a file of its own, ``step-00000020-rank-0-of-2.pt``: what
``torch.save`` makes of its state, followed by a mark and the SHA-256 of both, which
``torch.load`` does not mind. A checkpoint is there when all ranks have written theirs.
The mark is the same on all ranks, and another after each ``resume``. So files of one
step are not taken for one checkpoint where some ranks had written theirs before a
crash, and others wrote theirs after it, maybe with another learning rate.
"""

import hashlib
import io
import os
import pickle
import random
import re
import uuid
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from d2l_gpu.common.arguments import check_integer
from d2l_gpu.common.files import PART

from ..processes.reports import reported, take_back
from .parameter_files import fits, loaded, saved, write_durably

KEPT = 2  # checkpoints: if the newest turns out to be damaged, there is one before it
_NAME = re.compile(r"step-(\d+)-rank-(\d+)-of-(\d+)\.pt")
_DIGEST = hashlib.sha256
_SIZES = (16, 32)  # bytes of a mark and of a digest


class Checkpoints:
    """Checkpoints of a training in a folder, from which it goes on after a crash.

    A checkpoint holds the network, the optimizer, the schedule of the learning rate,
    the number of steps, and the state of the random numbers of Python, of NumPy, of
    PyTorch on the CPU and on the network's devices. A training that is interrupted at
    any moment and goes on from it computes the same bits as one that is not, where
    computing itself gives the same bits each time. (With three ranks or more,
    DistributedDataParallel adds in another order in its first step than later, unless
    it is made with ``find_unused_parameters=True``.) The last two are kept, and an
    older one is deleted only when the newer is on the disk, on all ranks.

    ::

        checkpoints = d2l.Checkpoints("run", net, optimizer, schedule)
        step = checkpoints.resume()
        batches.set_epoch(*divmod(step, len(batches)))
        while batches.epoch < num_epochs:
            for X, y in batches:
                ...  # train
                step += 1
                if step % 10 == 0:
                    checkpoints.save(step)

    With several ranks, all of them make it, after ``init_process_group``, and all call
    ``resume`` and ``save`` at the same steps, each with its own state. One folder
    belongs to one run.

    Args:
        folder: where the files are; it is made if it is not there. The ranks may share
            it, or have one each on their own machines.
        net: the network; one that is wrapped in DistributedDataParallel or DataParallel
            is saved without that, so that names are the network's own.
        optimizer: its optimizer.
        schedule: of the learning rate, None: there is none.
        others: what else has ``state_dict`` and ``load_state_dict``, as a GradScaler,
            each by a name of your choice.
    Raises:
        NotADirectoryError: the folder is a file; other OSErrors: it cannot be made.
        TypeError: something has no ``state_dict``.
        RuntimeError: there are several ranks, and they do not know of each other yet.
    """

    def __init__(
        self,
        folder: str | Path,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedule: Any = None,
        **others: Any,
    ):
        if isinstance(net, nn.parallel.DistributedDataParallel | nn.DataParallel):
            net = net.module
        named = {"net": net, "optimizer": optimizer, "schedule": schedule} | others
        self._parts = {name: part for name, part in named.items() if part is not None}
        for name, part in self._parts.items():
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise TypeError(
                    "A checkpoint holds what has state_dict and load_state_dict, and "
                    f"{name} is a {type(part).__name__} without them."
                )
        self._rank, self._world = _rank_and_world()
        self._folder = Path(folder)
        if self._folder.exists() and not self._folder.is_dir():
            raise NotADirectoryError(
                f"Checkpoints need a folder, and {folder} is a file: name another."
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        self._steps: list[int] | None = None  # of good ones; None before resume()
        self._mark = b""
        self._checked = False

    def resume(self) -> int:
        """Put everything back to the newest checkpoint that all ranks can read.

        What is damaged on one rank is of no use to the others: all go back to the one
        before, with a warning. What ``report`` handed over in this run of ``launch``
        after that checkpoint is taken back, since it will be reported again. Call it
        later, too, to go back to the last checkpoint.

        Returns:
            The number of the step that was given to ``save``; 0 if there is no
            checkpoint, and then everything stays as it is.
        Raises:
            ValueError: the checkpoints are those of another model, optimizer or number
                of ranks, or none can be read; everything stays as it is.
        """
        self._remove_parts()
        found = self._agree(self._look())
        steps = self._usable(found)
        if steps:
            state = self._state(steps[-1])
            for name, part in self._parts.items():
                part.load_state_dict(state["states"][name])
        # Last, since reading may draw random numbers; on a fresh start nothing is set.
        take_back(*(state["reported"] if steps else (None, 0)))
        if steps:
            self._set_random_states(state["random"])
        self._steps, self._mark = steps[-KEPT:], found[0].next_mark
        return steps[-1] if steps else 0

    def save(self, step: int) -> None:
        """Save a checkpoint; return when it is on the disk, on all ranks.

        Save after a step of the optimizer and before the next backward pass: gradients
        are not in it. Report before you save: what is reported after the last
        checkpoint before a crash is reported again. A step that was saved last is not
        saved again.

        Args:
            step: how many steps were made, at least as many as before.
        Raises:
            OSError: a rank cannot write, for want of space or permission; this is
                raised on all ranks, and the last good checkpoint is kept.
            ValueError: a later step was saved before.
            TypeError: a state holds what cannot be read back safely.
            RuntimeError: ``resume`` was not called.
        """
        check_integer("A step", step, least=0, example=20)
        if self._steps is None:
            raise RuntimeError(
                "Call resume() before the first save(): it goes on from the checkpoint "
                "in the folder, if there is one."
            )
        if self._steps and step < self._steps[-1]:
            raise ValueError(
                f"Step {step} cannot be saved after step {self._steps[-1]}: count the "
                "steps from the number that resume() returns."
            )
        if step in self._steps[-1:]:
            return  # a crash in between would leave neither the old nor the new one
        content = self._content(step)
        path = self._path(step)
        trouble = None
        try:
            write_durably(path, content)
        except OSError as error:
            trouble = error
        said = self._agree(trouble and (trouble.strerror or str(trouble)))
        if any(said):
            if not trouble:
                path.unlink(missing_ok=True)  # half a checkpoint is none
            rank = next(rank for rank, text in enumerate(said) if text)
            self._raise_not_saved(step, rank, said[rank], trouble)
        self._steps = [*self._steps, step][-KEPT:]
        for file in self._files():
            if file.step not in self._steps:
                file.path.unlink(missing_ok=True)

    # -------------------------------------------------------------- what is in it

    def _content(self, step: int) -> io.BytesIO:
        content = saved(
            {
                "step": step,
                "kinds": self._kinds(),
                "states": {k: part.state_dict() for k, part in self._parts.items()},
                "random": self._random_states(),
                "reported": reported(),
            }
        )
        if not self._checked:
            # Found out now, and not when it is needed.
            try:
                loaded(content.getbuffer())
            except pickle.UnpicklingError as error:
                raise TypeError(
                    "A state holds what could not be read back safely: let state_dict "
                    "return tensors, numbers, strings, and lists and dicts of them."
                ) from error
            self._checked = True
        content.seek(0, os.SEEK_END)
        content.write(self._mark)
        content.write(_DIGEST(content.getbuffer()).digest())
        return content

    def _kinds(self) -> dict[str, str]:
        return {name: type(part).__name__ for name, part in self._parts.items()}

    def _random_states(self) -> dict:
        kind, keys, *rest = np.random.get_state()
        return {
            "python": random.getstate(),
            # As an array it would need classes of NumPy to be read.
            "numpy": (kind, torch.from_numpy(keys.astype(np.int64)), *rest),
            "cpu": torch.get_rng_state(),
            "devices": [
                (device.type, _generator_of(device)[0]()) for device in self._devices()
            ],
        }

    def _set_random_states(self, states: dict) -> None:
        random.setstate(states["python"])
        kind, keys, *rest = states["numpy"]
        np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
        torch.set_rng_state(states["cpu"])
        devices = self._devices()
        if [kind for kind, _ in states["devices"]] != [x.type for x in devices]:
            warnings.warn(
                "The checkpoint was made on other devices: their random numbers are "
                "not put back, so what is computed may differ.",
                stacklevel=3,
            )
            return
        for device, (_, state) in zip(devices, states["devices"], strict=True):
            _generator_of(device)[1](state)

    def _devices(self) -> list[torch.device]:
        """The network's devices but for the CPU, each once."""
        net = self._parts["net"]
        tensors = [*net.parameters(), *net.buffers()]
        return [x for x in dict.fromkeys(t.device for t in tensors) if x.type != "cpu"]

    # -------------------------------------------------------------- files

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}-rank-{self._rank}-of-{self._world}.pt"

    def _files(self) -> list["_File"]:
        """The checkpoints of this rank, oldest first."""
        mine = [x for x in _files(self._folder) if x.rank == self._rank]
        return sorted(mine, key=lambda file: file.step)

    def _look(self) -> "_Found":
        """What this rank has."""
        good, bad = [], []
        for file in self._files():
            if file.world == self._world:
                content = _read(file.path)
                if content is None:
                    bad.append(file.path.name)
                else:
                    good.append((file.step, content[1]))
        worlds = {x.world for x in _files(self._folder)}
        return _Found(good, bad, worlds, uuid.uuid4().bytes)

    def _usable(self, found: Sequence["_Found"]) -> list[int]:
        """The steps that all ranks can go on from, the newest last."""
        worlds = set().union(*(x.worlds for x in found)) - {self._world}
        if worlds:
            raise ValueError(
                f"The checkpoints in {self._folder} are those of {_ranks(max(worlds))},"
                f" and now there is {_ranks(self._world)}: start as many, or name "
                "another folder."
            )
        steps = sorted(
            step for step, _ in set.intersection(*(set(x.good) for x in found))
        )
        bad = [name for x in found for name in x.bad]
        # A run that was killed in its very first save leaves one good file at most.
        if not steps and (bad or any(len(x.good) > 1 for x in found)):
            what = "damaged: " + ", ".join(bad) if bad else "not there on all ranks"
            raise ValueError(
                f"No checkpoint in {self._folder} can be read by all ranks ({what}): "
                "bring back a copy, or name another folder to begin anew."
            )
        if bad and self._rank == 0:
            warnings.warn(
                f"{', '.join(bad)} is damaged: all ranks go back to the checkpoint of "
                f"step {steps[-1]}.",
                stacklevel=3,
            )
        return steps

    def _state(self, step: int) -> dict:
        """The content of a checkpoint, once it is known to be that of these parts."""
        state = loaded(_read(self._path(step))[0])
        if state["kinds"] != self._kinds():
            raise ValueError(
                f"The checkpoints in {self._folder} were made with "
                f"{_listed(state['kinds'])}, and are now to be read with "
                f"{_listed(self._kinds())}: give the same, or name another folder."
            )
        groups = [
            [len(group["params"]) for group in state_dict["param_groups"]]
            for state_dict in (
                state["states"]["optimizer"],
                self._parts["optimizer"].state_dict(),
            )
        ]
        same = fits(self._parts["net"], state["states"]["net"])
        if not same or groups[0] != groups[1]:
            raise ValueError(
                f"The checkpoints in {self._folder} are those of another model: names, "
                f"shapes or groups of parameters differ from those of this "
                f"{type(self._parts['net']).__name__}; give the same, or name another "
                "folder."
            )
        return state

    def _remove_parts(self) -> None:
        """Remove what processes left that were killed while they wrote."""
        for path in self._folder.glob(f"step-*{PART}"):
            match = _NAME.match(path.name)
            # Each rank its own, and those of ranks that are no more.
            if match and int(match[2]) % self._world == self._rank:
                path.unlink(missing_ok=True)

    def _raise_not_saved(
        self, step: int, rank: int, said: str, trouble: OSError | None
    ) -> None:
        left = "there is none before it"
        if self._steps:
            left = f"that of step {self._steps[-1]} is still there"
        who = f"rank {rank}: " if self._world > 1 else ""
        raise (type(trouble) if trouble else OSError)(
            f"The checkpoint of step {step} could not be written to {self._folder} "
            f"({who}{said}); {left}: see that files can be written there, or name "
            "another folder."
        ) from trouble

    def _agree(self, mine: Any) -> list:
        """Return what each of the ranks has to say."""
        everyone = [mine]
        if self._world > 1:
            everyone *= self._world
            dist.all_gather_object(everyone, mine)
        return everyone


@dataclass
class _Found:
    """What a rank finds in its folder, and a mark for what is to come."""

    good: list[tuple[int, bytes]]  # steps and marks
    bad: list[str]
    worlds: set[int]
    next_mark: bytes


@dataclass
class _File:
    path: Path
    step: int
    rank: int
    world: int


def _files(folder: Path) -> list[_File]:
    matches = [(path, _NAME.fullmatch(path.name)) for path in folder.iterdir()]
    return [_File(path, *map(int, match.groups())) for path, match in matches if match]


def _read(path: Path) -> tuple[memoryview, bytes] | None:
    """What was saved in a file, and its mark; None if it is not what was written."""
    try:
        content = memoryview(path.read_bytes())
    except OSError:  # the disk cannot read it, so it is as good as damaged
        return None
    mark, digest = _SIZES
    content, expected = content[:-digest], content[-digest:]
    if _DIGEST(content).digest() != expected:
        return None
    return content[:-mark], bytes(content[-mark:])


def _generator_of(device: torch.device) -> tuple:
    """Functions that get and set the state of a device's random numbers."""
    module = torch.get_device_module(device)
    if device.type == "mps":  # there is only one, and it is not asked for
        return module.get_rng_state, module.set_rng_state
    return (
        lambda: module.get_rng_state(device),
        lambda state: module.set_rng_state(state, device),
    )


def _rank_and_world() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RuntimeError(
            f"There are {os.environ['WORLD_SIZE']} ranks, which do not know of each "
            "other yet: call torch.distributed.init_process_group() before Checkpoints."
        )
    return 0, 1


def _ranks(number: int) -> str:
    return "1 rank" if number == 1 else f"{number} ranks"


def _listed(kinds: dict[str, str]) -> str:
    return ", ".join(f"{name}={kind}" for name, kind in kinds.items())
