"""Checkpoints: what training needs to go on after a crash as if nothing had happened.

Each rank writes its own file, ``step-00000020-rank-0-of-2.pt``: the output of
``torch.save`` for its state, followed by a mark and the SHA-256 of both, which
``torch.load`` ignores. A checkpoint is complete when all ranks have written their
files. The mark is the same on all ranks and changes with each ``resume``. Without it,
files of the same step would pass for one checkpoint even if some ranks wrote theirs
before a crash and others after it, perhaps with another learning rate.
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

KEPT = 2  # checkpoints, in case the newest turns out to be damaged
_NAME = re.compile(r"step-(\d+)-rank-(\d+)-of-(\d+)\.pt")
_DIGEST = hashlib.sha256
_SIZES = (16, 32)  # bytes of a mark and of a digest


class Checkpoints:
    """Checkpoints of a training run in a folder, from which it resumes after a crash.

    A checkpoint holds the network, the optimizer, the learning rate schedule, the
    number of steps, and the random states of Python, of NumPy, and of PyTorch on the
    CPU and on the network's devices. A run that is interrupted at any moment and
    resumed computes the same bits as one that isn't, provided that the computation
    itself is deterministic. (With three or more ranks, DistributedDataParallel adds in
    a different order in its first step than later, unless it is created with
    ``find_unused_parameters=True``.) The last two checkpoints are kept, and an older
    one is deleted only when the newer one is on disk on all ranks.

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

    With several ranks, all of them create one, after ``init_process_group``, and all
    call ``resume`` and ``save`` at the same steps, each with its own state. Each run
    needs its own folder.

    Args:
        folder: where the files are kept; it is created if it doesn't exist. The ranks
            may share it, or have one each on their own machines.
        net: the network; if it is wrapped in DistributedDataParallel or DataParallel,
            it is saved without the wrapper, so the names are the network's own.
        optimizer: its optimizer.
        schedule: the learning rate schedule; None: there is none.
        others: anything else with ``state_dict`` and ``load_state_dict``, such as a
            GradScaler, each under a name of your choice.
    Raises:
        NotADirectoryError: the folder is a file.
        OSError: the folder can't be created.
        TypeError: something has no ``state_dict`` or no ``load_state_dict``.
        RuntimeError: there are several ranks but no process group yet.
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
                    "A checkpoint holds objects with state_dict and load_state_dict, "
                    f"but {name} is a {type(part).__name__} without them."
                )
        self._rank, self._world = _rank_and_world()
        self._folder = Path(folder)
        if self._folder.exists() and not self._folder.is_dir():
            raise NotADirectoryError(
                f"Checkpoints need a folder, but {folder} is a file: choose another "
                "one."
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        self._steps: list[int] | None = None  # of good files; None before resume()
        self._mark = b""
        self._checked = False

    def resume(self) -> int:
        """Restore everything from the newest checkpoint that all ranks can read.

        A checkpoint that is damaged on one rank is of no use to the others, so all go
        back to the one before, with a warning. What was passed to ``report`` after that
        checkpoint, in this run of ``launch``, is taken back, because it will be
        reported again. You can also call this later, to return to the last checkpoint.

        Returns:
            The step that was passed to ``save``; 0 if there is no checkpoint, in which
            case no state changes.
        Raises:
            ValueError: the checkpoints are of another model, optimizer or number of
                ranks, or none can be read on all ranks, or one asks for code; no state
                changes.
        """
        self._remove_parts()
        found = self._agree(self._look())
        steps = self._usable(found)
        if steps:
            state = self._state(steps[-1])
            for name, part in self._parts.items():
                part.load_state_dict(state["states"][name])
        take_back(*(state["reported"] if steps else (None, 0)))
        if steps:  # last, because loading may draw random numbers
            self._set_random_states(state["random"])
        self._steps, self._mark = steps[-KEPT:], found[0].next_mark
        return steps[-1] if steps else 0

    def save(self, step: int) -> None:
        """Save a checkpoint; return when it is on disk on all ranks.

        Save after a step of the optimizer and before the next backward pass, because
        gradients aren't saved. Report before you save: after a crash, values reported
        since the last checkpoint are reported again. A step that has just been saved
        isn't saved again.

        Args:
            step: number of steps so far, no less than in the last checkpoint.
        Raises:
            OSError: a rank can't write, for lack of space or permission. All ranks
                raise it, and the last good checkpoint is kept.
            ValueError: step is negative, or a later step was saved before.
            TypeError: step is not an integer, or a state can't be read back safely.
            RuntimeError: ``resume`` was not called.
        """
        check_integer("A step", step, least=0, example=20)
        if self._steps is None:
            raise RuntimeError(
                "Call resume() before the first save(): it continues from the "
                "checkpoint in the folder, if there is one."
            )
        if self._steps and step < self._steps[-1]:
            raise ValueError(
                f"Step {step} cannot be saved after step {self._steps[-1]}: count the "
                "steps from the number that resume() returns."
            )
        if step in self._steps[-1:]:
            return  # a crash while replacing it could leave neither file
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
                path.unlink(missing_ok=True)  # useless without the other ranks'
            rank = next(rank for rank, text in enumerate(said) if text)
            self._raise_not_saved(step, rank, said[rank], trouble)
        self._steps = [*self._steps, step][-KEPT:]
        for file in self._files():
            if file.step not in self._steps:
                file.path.unlink(missing_ok=True)

    # -------------------------------------------------------------- content

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
            # Find out now, rather than when the checkpoint is needed.
            try:
                loaded(content.getbuffer())
            except pickle.UnpicklingError as error:
                raise TypeError(
                    "A state contains something that cannot be read back safely: let "
                    "state_dict return only tensors, numbers, strings, and lists and "
                    "dicts of these."
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
            # Loading a NumPy array would need NumPy's classes.
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
                "The checkpoint was made on other devices: their random state is not "
                "restored, so results may differ.",
                stacklevel=3,
            )
            return
        for device, (_, state) in zip(devices, states["devices"], strict=True):
            _generator_of(device)[1](state)

    def _devices(self) -> list[torch.device]:
        """Return the network's devices other than the CPU, each once."""
        net = self._parts["net"]
        tensors = [*net.parameters(), *net.buffers()]
        return [x for x in dict.fromkeys(t.device for t in tensors) if x.type != "cpu"]

    # -------------------------------------------------------------- files

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}-rank-{self._rank}-of-{self._world}.pt"

    def _files(self) -> list["_File"]:
        """Return this rank's checkpoints, oldest first."""
        mine = [x for x in _files(self._folder) if x.rank == self._rank]
        return sorted(mine, key=lambda file: file.step)

    def _look(self) -> "_Found":
        """Return what this rank finds in the folder."""
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
        """Return the steps from which all ranks can resume, newest last."""
        worlds = set().union(*(x.worlds for x in found)) - {self._world}
        if worlds:
            raise ValueError(
                f"The checkpoints in {self._folder} were made by "
                f"{_ranks(max(worlds))}, but this run has {_ranks(self._world)}: "
                "start as many, or choose another folder."
            )
        steps = sorted(
            step for step, _ in set.intersection(*(set(x.good) for x in found))
        )
        bad = [name for x in found for name in x.bad]
        # A run killed during its very first save leaves at most one good file per rank.
        if not steps and (bad or any(len(x.good) > 1 for x in found)):
            what = "damaged: " + ", ".join(bad) if bad else "not on all ranks"
            raise ValueError(
                f"No checkpoint in {self._folder} can be read by all ranks ({what}): "
                "restore a copy, or choose another folder to start afresh."
            )
        if bad and self._rank == 0:
            warnings.warn(
                f"{', '.join(bad)} is damaged: all ranks go back to the checkpoint of "
                f"step {steps[-1]}.",
                stacklevel=3,
            )
        return steps

    def _state(self, step: int) -> dict:
        """Return a checkpoint's content, after checking that it fits these parts."""
        path = self._path(step)
        try:
            state = loaded(_read(path)[0])
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"The checkpoint {path} is not one that Checkpoints has written and is "
                f"not read ({error}): name another folder, and ask who wrote that file."
            ) from None
        if state["kinds"] != self._kinds():
            raise ValueError(
                f"The checkpoints in {self._folder} were made with "
                f"{_listed(state['kinds'])}, but this run has "
                f"{_listed(self._kinds())}: use the same, or choose another folder."
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
                f"The checkpoints in {self._folder} belong to another model: names, "
                "shapes or groups of parameters differ from those of this "
                f"{type(self._parts['net']).__name__}; use the same model, or choose "
                "another folder."
            )
        return state

    def _remove_parts(self) -> None:
        """Remove the partial files of processes that were killed while writing."""
        for path in self._folder.glob(f"step-*{PART}"):
            match = _NAME.match(path.name)
            # Each rank removes its own, and those of ranks that no longer exist.
            if match and int(match[2]) % self._world == self._rank:
                path.unlink(missing_ok=True)

    def _raise_not_saved(
        self, step: int, rank: int, said: str, trouble: OSError | None
    ) -> None:
        left = "there is no earlier one"
        if self._steps:
            left = f"the one from step {self._steps[-1]} is still there"
        who = f"rank {rank}: " if self._world > 1 else ""
        raise (type(trouble) if trouble else OSError)(
            f"The checkpoint of step {step} could not be written to {self._folder} "
            f"({who}{said}); {left}: make sure that files can be written there, or "
            "choose another folder."
        ) from trouble

    def _agree(self, mine: Any) -> list:
        """Return what each rank passes, in order of rank."""
        everyone = [mine]
        if self._world > 1:
            everyone *= self._world
            dist.all_gather_object(everyone, mine)
        return everyone


@dataclass
class _Found:
    """What a rank finds in its folder, and the mark it proposes for new checkpoints."""

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
    """Return the content of a file and its mark, or None if it is damaged."""
    try:
        content = memoryview(path.read_bytes())
    except OSError:  # unreadable, so no better than damaged
        return None
    mark, digest = _SIZES
    content, expected = content[:-digest], content[-digest:]
    if _DIGEST(content).digest() != expected:
        return None
    return content[:-mark], bytes(content[-mark:])


def _generator_of(device: torch.device) -> tuple:
    """Return functions that get and set a device's random state."""
    module = torch.get_device_module(device)
    if device.type == "mps":  # there is only one device, and it is never passed
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
            f"There are {os.environ['WORLD_SIZE']} ranks, but they are not connected "
            "yet: call torch.distributed.init_process_group() before Checkpoints."
        )
    return 0, 1


def _ranks(number: int) -> str:
    return "1 rank" if number == 1 else f"{number} ranks"


def _listed(kinds: dict[str, str]) -> str:
    return ", ".join(f"{name}={kind}" for name, kind in kinds.items())
