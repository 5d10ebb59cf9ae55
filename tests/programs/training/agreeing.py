"""Two ranks that do not find the same in their folders, or cannot write the same."""

import faulthandler
import resource
import signal
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from d2l_gpu import torch as d2l
from tests.helpers.waiting import PATIENCE

faulthandler.dump_traceback_later(PATIENCE, exit=True)
dist.init_process_group("gloo")
rank = dist.get_rank()
folder = Path(sys.argv[1])


def checkpoints(scenario: str) -> d2l.Checkpoints:
    torch.manual_seed(0)
    net = nn.Linear(100, 100)
    return d2l.Checkpoints(folder / scenario, net, torch.optim.SGD(net.parameters()))


def save(kept: d2l.Checkpoints, *steps: int) -> None:
    kept.resume()
    for step in steps:
        kept.save(step)


def names(scenario: str) -> list[str]:
    dist.barrier()
    found = sorted(path.name for path in (folder / scenario).iterdir())
    dist.barrier()
    return found


def name(step: int, rank: int) -> str:
    return f"step-{step:08d}-rank-{rank}-of-2.pt"


def change(rank_that_does: int, function, *args) -> None:
    if rank == rank_that_does:
        function(*args)
    dist.barrier()


def damaged_on_one_rank():
    save(checkpoints("damaged"), 1, 2, 3)
    whole = [name(step, r) for step in (2, 3) for r in (0, 1)]
    assert names("damaged") == whole
    path = folder / "damaged" / name(3, 1)
    change(1, lambda: path.write_bytes(path.read_bytes()[:-1000]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert checkpoints("damaged").resume() == 2
    assert len(caught) == (rank == 0), caught
    if rank == 0:
        assert f"{name(3, 1)} is damaged: all ranks go back" in str(caught[0].message)
    kept = checkpoints("damaged")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept.resume()
    assert names("damaged") == whole  # nothing is deleted before there is a newer one
    kept.save(3)
    assert names("damaged") == whole
    assert checkpoints("damaged").resume() == 3


def missing_on_one_rank():
    # Killed after rank 0 had saved step 3, and rank 1 had not.
    save(checkpoints("missing"), 1, 2, 3)
    change(1, (folder / "missing" / name(3, 1)).unlink)
    assert checkpoints("missing").resume() == 2
    # Killed in the very first save.
    save(checkpoints("first"), 5)
    change(0, (folder / "first" / name(5, 0)).unlink)
    kept = checkpoints("first")
    assert kept.resume() == 0
    kept.save(2)
    assert names("first") == [name(2, 0), name(2, 1)]


def of_two_attempts():
    # Rank 1 has step 2 from before a crash, rank 0 from after it: another training.
    save(checkpoints("two"), 1, 2)
    mine, kept = folder / "two" / name(2, 1), folder / "before"
    change(1, lambda: kept.write_bytes(mine.read_bytes()))
    change(0, (folder / "two" / name(2, 0)).unlink)
    again = checkpoints("two")
    assert again.resume() == 1
    again.save(2)
    assert checkpoints("two").resume() == 2
    change(1, kept.replace, mine)
    assert checkpoints("two").resume() == 1


def lost_on_one_rank():
    save(checkpoints("lost"), 1, 2)
    for step in (1, 2):
        change(0, (folder / "lost" / name(step, 0)).unlink)
    try:
        checkpoints("lost").resume()
    except ValueError as error:
        assert "(not on all ranks): restore a copy" in str(error), error
    else:
        raise AssertionError("Work was lost without a word.")


def full_on_one_rank():
    kept = checkpoints("full")
    save(kept, 1, 2)
    before = names("full")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    for step in (3, 4):
        try:
            kept.save(step)
        except OSError as error:
            assert "(rank 1: File too large); the one from step 2 is" in str(error), (
                error
            )
        else:
            raise AssertionError("Half a checkpoint was taken for one.")
        assert names("full") == before
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    kept.save(3)
    assert names("full") == [name(step, r) for step in (2, 3) for r in (0, 1)]


def killed_while_writing():
    save(checkpoints("parts"), 1)
    for r in (0, 1, 2, 3):
        part = folder / "parts" / f"{name(2, r)}.99.part"
        change(0, part.write_text, "half")
    assert checkpoints("parts").resume() == 1
    assert names("parts") == [name(1, 0), name(1, 1)]


for scenario in (
    damaged_on_one_rank,
    missing_on_one_rank,
    of_two_attempts,
    lost_on_one_rank,
    full_on_one_rank,
    killed_while_writing,
):
    scenario()
    dist.barrier()
dist.destroy_process_group()
d2l.report(done=True)
