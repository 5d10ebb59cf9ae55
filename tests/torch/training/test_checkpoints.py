"""Checkpoints: a training that was killed ends as one that was not, to the bit."""

import errno
import functools
import hashlib
import io
import os
import random
import shutil
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from tests.helpers.fresh_process import NO_GPUS, PATH, run_fresh
from tests.helpers.paths import PROGRAMS
from tests.helpers.properties import sizes
from tests.helpers.waiting import PATIENCE

STEPS = 12
needs_ranks = pytest.mark.skipif(
    sys.platform == "win32" or not torch.distributed.is_available(),
    reason="needs torch.distributed with gloo",
)


class Training:
    """A training with all that has a state, on batches that depend on the epoch."""

    def __init__(self, folder, device="cpu", seed=0, net=None, optimizer=None):
        generator = torch.Generator().manual_seed(0)
        images = torch.randint(256, (45, 1, 4, 4), dtype=torch.uint8)
        images = images.random_(generator=generator)
        self.batches = d2l.Batches(
            images, torch.arange(45) % 3, 10, shuffle=True, device=device
        )
        for seeded in (torch.manual_seed, random.seed, np.random.seed):
            seeded(seed)
        self.net = (net or mlp()).to(device)
        make = optimizer or torch.optim.Adam
        self.optimizer = make(self.net.parameters(), lr=0.01)
        self.schedule = d2l.linear_schedule_with_warmup(self.optimizer, 2, STEPS)
        self.checkpoints = d2l.Checkpoints(
            folder, self.net, self.optimizer, self.schedule
        )

    def run(self, last: int = STEPS, every: int = 2) -> "Training":
        self.step = self.checkpoints.resume()
        self.batches.set_epoch(*divmod(self.step, len(self.batches)))
        while self.step < last:
            for X, y in self.batches:
                # An odd number of normals: their generators keep the next one.
                noise = random.gauss() + np.random.randn() + torch.randn(1).item()
                X = X + noise
                self.optimizer.zero_grad()
                F.cross_entropy(self.net(X), y).backward()
                self.optimizer.step()
                self.schedule.step()
                self.step += 1
                if self.step % every == 0:
                    self.checkpoints.save(self.step)
                if self.step == last:
                    break
        return self

    def state(self) -> list:
        """All that must be equal, and what comes next of random numbers."""
        tensors = [*self.net.state_dict().values()]
        for values in self.optimizer.state_dict()["state"].values():
            tensors += values.values()
        return [
            *(tensor.cpu().tolist() for tensor in tensors),
            self.schedule.get_last_lr(),
            [random.gauss() for _ in range(3)],
            np.random.randn(3).tolist(),
            torch.randn(3).tolist(),
            (random.random(), np.random.rand(), torch.rand(1).item()),
        ]


def mlp(hidden: int = 5) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(16, hidden),
        nn.BatchNorm1d(hidden),
        nn.Dropout(0.5),
        nn.Linear(hidden, 3),
    )


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def name(step: int, rank: int = 0, of: int = 1) -> str:
    return f"step-{step:08d}-rank-{rank}-of-{of}.pt"


# ---------------------------------------------------------------- to the bit


@pytest.mark.parametrize("device", ["cpu", "vgpu:1"])
def test_a_training_that_was_interrupted_ends_with_the_same_bits(folder, device):
    vgpu.enable(2)
    expected = Training(folder / "whole", device).run().state()
    for last in range(2, STEPS):  # some right after a save, some not; also mid-epoch
        path = folder / str(last)
        Training(path, device).run(last)
        # Everything anew, and nothing as it was: all must come from the file.
        resumed = Training(path, device, seed=last).run()
        assert resumed.state() == expected
        del resumed


def test_without_a_checkpoint_nothing_is_touched(folder):
    training = Training(folder)
    before = [x.tolist() for x in training.net.state_dict().values()]
    drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert training.checkpoints.resume() == 0
    assert [x.tolist() for x in training.net.state_dict().values()] == before
    assert torch.equal(drawn[0], torch.get_rng_state())
    assert drawn[1:] == (random.getstate(), np.random.get_state()[1].tolist())


def test_saving_disturbs_no_random_numbers(folder):
    expected = Training(folder / "1").run(every=2).state()
    assert Training(folder / "2").run(every=1).state() == expected


@settings(max_examples=5)
@given(steps=st.lists(sizes(1, 5), min_size=1, max_size=4), seed=sizes())
def test_what_is_resumed_is_what_was_saved_last_to_the_bit(steps, seed):
    with tempfile.TemporaryDirectory() as temporary:
        folder, total = Path(temporary, "run"), 0
        for part in steps:  # each begins where the one before has ended
            total += part
            training = Training(folder, seed=seed).run(total, every=7)
            training.checkpoints.save(total)
            saved = training.state()
            for _ in range(2):
                other = Training(folder, seed=seed + 1)
                assert other.checkpoints.resume() == total
                assert other.state() == saved
            assert names(folder)[-1] == name(total)


def test_going_back_within_a_run(folder):
    training = Training(folder).run(7)
    assert training.checkpoints.resume() == 6
    state = training.state()
    assert state == Training(folder / "whole").run(6).state()


def test_what_else_has_a_state_is_kept(folder):
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    average = torch.optim.swa_utils.AveragedModel(net)
    average.update_parameters(net)
    kept = d2l.Checkpoints(folder, net, optimizer, average=average)
    kept.resume()
    kept.save(1)
    expected = [x.clone() for x in average.state_dict().values()]
    with torch.no_grad():
        for tensor in average.state_dict().values():
            tensor.zero_()
    assert kept.resume() == 1
    assert all(map(torch.equal, expected, average.state_dict().values()))


# ---------------------------------------------------------------- what is in the folder


def test_the_last_two_are_kept(folder):
    Training(folder).run(2)
    assert names(folder) == [name(2)]
    Training(folder).run(10)
    assert names(folder) == [name(8), name(10)]


def test_an_older_one_is_deleted_only_when_the_newer_is_on_the_disk(
    folder, monkeypatch
):
    Training(folder).run(4)
    seen = []

    def fsync(number, fsync=os.fsync):
        seen.append(names(folder))
        fsync(number)

    monkeypatch.setattr(os, "fsync", fsync)
    Training(folder).run(6)
    part = f"{name(6)}.{os.getpid()}.part"
    # First the file, under another name; then the folder, with the new name.
    assert seen == [
        [name(2), name(4), part],
        [name(2), name(4), name(6)],
    ]
    assert names(folder) == [name(4), name(6)]


def test_a_file_is_one_of_pytorch_too(folder):
    training = Training(folder).run()
    content = torch.load(folder / name(STEPS), weights_only=True)
    assert content["step"] == STEPS
    other = mlp()
    other.load_state_dict(content["states"]["net"])
    assert torch.equal(other[1].weight, training.net[1].weight)


def test_names_are_those_of_the_network_without_its_wrapper(folder):
    wrapped = Training(folder, net=nn.DataParallel(mlp()))
    wrapped.checkpoints.resume()
    wrapped.checkpoints.save(4)
    assert Training(folder).checkpoints.resume() == 4


def test_what_a_killed_process_left_is_removed(folder):
    folder.mkdir()
    left = [f"{name(3)}.17.part", f"{name(3, rank=5, of=6)}.18.part"]
    others = ["notes.txt", "weights.part"]
    for file in left + others:
        (folder / file).write_text("half")
    Training(folder).run(2)
    assert names(folder) == [*others[:1], name(2), *others[1:]]


def test_a_step_that_is_saved_is_not_written_again(folder):
    training = Training(folder).run(4)
    before = {path: path.stat().st_ino for path in folder.iterdir()}
    training.checkpoints.save(4)
    resumed = Training(folder)
    resumed.checkpoints.resume()
    resumed.checkpoints.save(4)
    assert {path: path.stat().st_ino for path in folder.iterdir()} == before


# ---------------------------------------------------------------- damaged files


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes, i: int, bits: int) -> bytes:
    return content[:i] + bytes([content[i] ^ bits]) + content[i + 1 :]


@pytest.fixture(scope="module")
def two_good_files(tmp_path_factory):
    """A folder with checkpoints of steps 2 and 4, and how training from 2 goes on."""
    folder = tmp_path_factory.mktemp("good") / "run"
    Training(folder).run(4)
    return folder, Training(folder.parent / "whole").run(5).state()


@settings(max_examples=10)
@given(place=st.floats(0, 1, exclude_max=True), bits=sizes(most=255))
def test_a_damaged_file_makes_the_run_go_back_to_the_one_before(
    two_good_files, place, bits
):
    good, expected = two_good_files
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "run")
        shutil.copytree(good, folder)
        path = folder / name(4)
        content = path.read_bytes()
        i = int(place * len(content))
        path.write_bytes(flipped(content, i, bits) if bits else content[:i])
        resumed = Training(folder, seed=1)
        with pytest.warns(UserWarning, match=rf"{name(4)} is damaged: .* of step 2\."):
            assert resumed.checkpoints.resume() == 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert resumed.run(5).state() == expected
        assert names(folder) == [name(2), name(4)]


def refused(training: Training, error: type, match: str) -> None:
    """One sentence, and nothing is changed."""
    before = [x.tolist() for x in training.net.state_dict().values()]
    state = torch.get_rng_state()
    with pytest.raises(error, match=match) as caught:
        training.checkpoints.resume()
    text = str(caught.value)
    assert text.count(". ") == text.count("\n") == 0
    assert text.endswith(".")
    assert [x.tolist() for x in training.net.state_dict().values()] == before
    assert torch.equal(torch.get_rng_state(), state)


def test_damaged_files_only(folder):
    Training(folder).run(4)
    for path in folder.iterdir():
        path.write_bytes(cut(path.read_bytes()))
    before = names(folder)
    match = f"can be read by all ranks .damaged: {name(2)}, {name(4)}.: restore"
    refused(Training(folder), ValueError, match)
    assert names(folder) == before


def test_a_file_that_could_run_code_is_not_read(folder, tmp_path):
    class Exploit:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'it ran'}",)

    Training(folder).run(2)
    content = io.BytesIO()
    torch.save({"kinds": Exploit()}, content)
    content = content.getvalue() + bytes(16)  # and a mark
    (folder / name(2)).write_bytes(content + hashlib.sha256(content).digest())
    match = f"{name(2)} is not one that Checkpoints has written .* asks for .*system"
    with pytest.raises(ValueError, match=match) as caught:
        Training(folder).checkpoints.resume()
    assert "weights_only" not in "".join(traceback.format_exception(caught.value))
    assert not (tmp_path / "it ran").exists()


# ---------------------------------------------------------------- other trainings


def test_a_checkpoint_of_another_model(folder):
    Training(folder).run(4)
    refused(Training(folder, net=mlp(6)), ValueError, "belong to another model: .*")
    other = nn.Sequential(*mlp(), nn.Flatten())
    Training(folder, net=other).checkpoints.resume()  # the same names and shapes
    refused(
        Training(folder, net=nn.Sequential(*mlp(), nn.Linear(3, 3))),
        ValueError,
        "belong to another model: .* this Sequential; use the same model",
    )


def test_a_checkpoint_of_another_optimizer(folder):
    Training(folder).run(4)
    refused(
        Training(folder, optimizer=torch.optim.SGD),
        ValueError,
        "were made with net=Sequential, optimizer=Adam, schedule=LambdaLR, but "
        "this run has net=Sequential, optimizer=SGD",
    )
    groups = Training(folder)
    extra = nn.Parameter(torch.ones(1))
    groups.optimizer.add_param_group({"params": [extra]})
    refused(groups, ValueError, "groups of parameters differ")


def test_a_checkpoint_of_another_number_of_ranks(folder):
    Training(folder).run(4)
    for path in list(folder.iterdir()):
        path.rename(path.with_name(path.name.replace("of-1", "of-2")))
    before = names(folder)
    refused(
        Training(folder),
        ValueError,
        "were made by 2 ranks, but this run has 1 rank: start as many, or",
    )
    assert names(folder) == before


def test_a_checkpoint_of_another_device(folder):
    vgpu.enable(2)
    Training(folder, "vgpu:1").run(4)
    training = Training(folder)
    with pytest.warns(UserWarning, match="made on other devices: their random state"):
        assert training.checkpoints.resume() == 4
    assert training.net[1].weight.device == torch.device("cpu")


# ---------------------------------------------------------------- full disks


@pytest.mark.all
def test_a_full_disk_leaves_the_last_good_one(folder):
    Training(folder).run(4)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    # What the disk takes is limited for a process, and for good.
    out = run_fresh(
        f"""
        import resource, signal
        from tests.torch.training.test_checkpoints import Training
        training = Training({str(folder)!r}).run(5)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            training.checkpoints.save(6)
        except OSError as error:
            print(error)
        """
    )
    assert out == (
        f"The checkpoint of step 6 could not be written to {folder} (File too large); "
        "the one from step 4 is still there: make sure that files can be written "
        "there, or choose another folder.\n"
    )
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert Training(folder).run().step == STEPS


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EROFS, OSError), (errno.EACCES, PermissionError), (errno.ENOSPC, OSError)],
)
def test_a_folder_that_cannot_be_written(folder, monkeypatch, number, kind):
    training = Training(folder)
    training.checkpoints.resume()

    def refuse(path, mode="r", *args, **kwargs):
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refuse)
        match = rf"\({os.strerror(number)}\); there is no earlier one: make sure"
        with pytest.raises(kind, match=match) as caught:
            training.checkpoints.save(1)
    assert type(caught.value) is kind
    assert names(folder) == []
    training.checkpoints.save(1)  # when there is room again
    assert names(folder) == [name(1)]


def test_a_folder_that_is_a_file(folder):
    folder.write_text("precious")
    with pytest.raises(
        NotADirectoryError, match=r"run is a file: choose another one\."
    ):
        Training(folder)
    assert folder.read_text() == "precious"


# ---------------------------------------------------------------- wrong calls


def test_saving_before_resuming(folder):
    with pytest.raises(RuntimeError, match=r"Call resume\(\) before the first save"):
        Training(folder).checkpoints.save(1)
    assert names(folder) == []


@pytest.mark.parametrize(
    ("step", "kind", "sentence"),
    [
        (3, ValueError, "Step 3 cannot be saved after step 4: count"),
        (-1, ValueError, "A step must be at least 0, but got -1"),
        (1.5, TypeError, "A step must be an integer such as 20, but got 1.5"),
        (True, TypeError, "but got True"),
    ],
)
def test_steps_that_make_no_sense(folder, step, kind, sentence):
    training = Training(folder).run(4)
    with pytest.raises(kind, match=sentence):
        training.checkpoints.save(step)
    assert names(folder) == [name(2), name(4)]


def test_what_could_not_be_read_back_is_not_saved(folder):
    class Counter:
        def state_dict(self):
            return {"object": Path("x")}

        def load_state_dict(self, state):
            raise AssertionError

    net = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters())
    kept = d2l.Checkpoints(folder, net, optimizer, counter=Counter())
    kept.resume()
    with pytest.raises(TypeError, match="cannot be read back safely: let state_dict"):
        kept.save(1)
    assert names(folder) == []
    with pytest.raises(TypeError, match="but counter is a int without them"):
        d2l.Checkpoints(folder, net, optimizer, counter=1)


def test_ranks_that_do_not_know_of_each_other(folder, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"2 ranks, .* call .*init_process_group"):
        Training(folder)


# ---------------------------------------------------------------- several ranks


SCRIPT = PROGRAMS / "training" / "recovering.py"


@pytest.fixture
def launched(monkeypatch):
    for variable, value in (PATH | NO_GPUS | {"OMP_NUM_THREADS": "1"}).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("D2L_GPU_VIRTUAL", raising=False)


@functools.cache
def undisturbed() -> list[dict]:
    """What the script reports when nothing happens to it."""
    with tempfile.TemporaryDirectory() as folder:
        return d2l.launch(SCRIPT, 2, [folder, "cpu", 0])


@needs_ranks
@pytest.mark.all
def test_ranks_agree(launched, folder):
    results = d2l.launch(
        PROGRAMS / "training" / "agreeing.py", 2, [folder], timeout=PATIENCE
    )
    assert results == [{"done": True}]


@pytest.mark.all
@needs_ranks
@pytest.mark.parametrize(
    ("device", "kills", "steps"),
    [
        # While a file is written, and right after; on virtual GPUs, the same bits.
        ("vgpu", ["1:9:write", "0:12:saved"], [0, 6, 12]),
        # Rank 1 has step 6 already when rank 0 is killed; then some steps by chance.
        pytest.param(
            "cpu",
            ["0:6:write", "1:?:start", "0:?:backward"],
            [0, 3, 3, 6],
            marks=pytest.mark.weekly,
        ),
    ],
)
def test_a_run_whose_ranks_are_killed_ends_with_the_same_bits(
    launched, folder, capfd, device, kills, steps
):
    expected = undisturbed()
    capfd.readouterr()
    rng = random.Random(0)
    for i, first in ((1, 3), (2, 6)):
        if i < len(kills):
            kills[i] = kills[i].replace("?", str(first + rng.randrange(3)))
    number = len(kills)
    arguments = [folder, device, 0, *kills]
    got = d2l.launch(SCRIPT, 2, arguments, restarts=number, timeout=PATIENCE)
    assert got == expected
    lines = capfd.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("step")] == [
        f"step {step}" for step in steps
    ]
    assert [line for line in lines if "start again" in line] == [
        f"Rank {kill[0]} of recovering.py was killed by SIGKILL; all ranks start "
        f"again, from the last checkpoint if there is one: restart {i} of {number}."
        for i, kill in enumerate(kills, 1)
    ]
    left = {path.name for path in folder.glob("step-*")}
    assert left == {name(step, rank, 2) for step in (12, 15) for rank in (0, 1)}


@pytest.mark.all
@needs_ranks
def test_a_run_goes_on_in_another_launch(launched, folder):
    with pytest.raises(RuntimeError, match=r"Rank 1 of .* SIGKILL"):
        d2l.launch(SCRIPT, 2, [folder, "cpu", 0, "1:7:start"])
    got = d2l.launch(SCRIPT, 2, [folder, "cpu", 0])
    expected = undisturbed()
    assert got == expected[:1] + expected[7:]
