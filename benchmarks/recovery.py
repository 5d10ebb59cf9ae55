"""Trainings whose processes are killed, against one to which nothing happens.

    python benchmarks/recovery.py [--kills 20] [--plain 6] [--any 20] [--quick]

A small network with everything that has a state (``tests/scripts/recovering.py``)
trains on two ranks with gloo, and saves a checkpoint at every third of 15 steps.

- Ranks 0 and 1 are killed in turns with SIGKILL, at steps drawn with a seed: before a
  step, after its backward pass, while a checkpoint is written, or right after. A kill
  counts as recovered if the run came back by ``d2l.launch(…, restarts=…)`` and ended
  with the same bits as the undisturbed one: weights, optimizer, random numbers of both
  ranks, and the loss of every step. This is the result. Seconds until back are those
  from the kill to the first gradients after it.
- The same with ``torchrun --max-restarts`` as it is, for comparison; each run has a
  minute to recover.
- At random moments any process of a job is killed: the one that called launch, torchrun
  or a rank. Counted are processes and files half written that are left behind. The run
  then goes on in another launch, and must end with the same bits.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path
from statistics import median

from common import hardware, print_result

SCRIPT = Path(__file__).resolve().parents[1] / "tests" / "scripts" / "recovering.py"
STEPS, SAVE_EVERY, RANKS = 15, 3, 2
KILLS_OF_A_RUN = 4
SECONDS_TO_RECOVER = 60
QUICK_SECONDS = 10  # which says nothing of torchrun, but that the benchmark works
PAUSE = 0.2  # seconds in each step, for kills at random moments to find one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="of ranks")
    parser.add_argument("--plain", type=int, default=6, help="with torchrun as it is")
    parser.add_argument("--any", type=int, default=20, help="of any process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a try, not a result")
    options = parser.parse_args()
    if options.quick:
        options.kills = options.plain = options.any = 1
    if sys.platform != "linux" or min(options.kills, options.plain, options.any) < 1:
        parser.error("this needs Linux, for /proc, and at least one kill of each kind")
    os.environ["OMP_NUM_THREADS"] = "1"
    print(hardware(), flush=True)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="d2l-recovery-") as name:
        folder = Path(name)
        os.environ["TMPDIR"] = name  # where a killed launch leaves its folder
        expected = launch(folder / "whole", 0)
        share = kill_ranks(folder, expected, options.kills, rng)
        patience = QUICK_SECONDS if options.quick else SECONDS_TO_RECOVER
        plain = kill_under_torchrun(folder, expected, options.plain, rng, patience)
        kill_anything(folder, expected, options.any, rng)
    baseline = f"torchrun --max-restarts as it is: {plain:.2f}"
    print_result("recovery", share, "share of kills recovered bitwise equal", baseline)


def launch(folder: Path, pause: float, *kills: str) -> list[dict]:
    """Run the training; return what it reports."""
    from d2l_gpu import torch as d2l

    with redirect_stdout(None):
        arguments = [folder, "cpu", pause, *kills]
        return d2l.launch(SCRIPT, RANKS, arguments, restarts=len(kills))


# ------------------------------------------------------------------ kills of ranks


def kill_ranks(
    folder: Path, expected: list[dict], number: int, rng: random.Random
) -> float:
    """Return the share of kills after which a run came back and ended as expected."""
    recovered, seconds, ranks = 0, [], 0
    while ranks < number:
        count = min(KILLS_OF_A_RUN, number - ranks)
        # A later kill comes at a later step, or it would not be reached.
        steps = sorted(rng.sample(range(1, STEPS), count))
        kills = [kill(i % RANKS, step, rng) for i, step in enumerate(steps, ranks)]
        path = folder / f"ranks-{ranks}"
        try:
            equal = launch(path, 0, *kills) == expected
        except RuntimeError as error:
            print(str(error).splitlines()[0])
            equal = False
        back = [until_back(path, attempt) for attempt in range(count)]
        seconds += [x for x in back if x is not None]
        recovered += equal * count
        ranks += count
        print(f"killed at {' '.join(kills)}: {'equal' if equal else 'NOT EQUAL'}")
    times = "never"
    if seconds:
        times = f"median {median(seconds):.1f}, at most {max(seconds):.1f}"
    print(f"{recovered} of {number} kills recovered; seconds until back: {times}")
    return recovered / number


def kill(rank: int, step: int, rng: random.Random) -> str:
    """Draw a phase of a step; return what the script understands."""
    phases = ["start", "backward"]
    if step % SAVE_EVERY == 0:
        phases += ["write", "saved"]
    return f"{rank}:{step}:{rng.choice(phases)}"


def until_back(path: Path, attempt: int) -> float | None:
    """Seconds from the kill in an attempt to the first gradients of the next."""
    killed, back = path / f"killed-{attempt}", path / f"back-{attempt + 1}"
    if not back.exists():
        return None
    return float(back.read_text()) - float(killed.read_text())


def kill_under_torchrun(
    folder: Path,
    expected: list[dict],
    number: int,
    rng: random.Random,
    patience: float,
) -> float:
    """Return the share of kills after which torchrun alone has a run end as expected.

    It has so many seconds for it.

    The script reports to stdout then, also what it reports again: the end counts.
    """
    recovered = 0
    for i in range(number):
        victim = kill(i % RANKS, rng.randrange(SAVE_EVERY + 1, STEPS), rng)
        path = folder / f"plain-{i}"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
                *("--nproc-per-node", str(RANKS), "--max-restarts", "1"),
                *(str(SCRIPT), str(path), "cpu", "0", victim),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            out, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun ends the ranks
            out, _ = process.communicate()
        recovered += json.dumps(expected[-1]) in out.splitlines()
    print(f"{recovered} of {number} kills recovered by torchrun --max-restarts 1 as is")
    return recovered / number


# ------------------------------------------------------------------ kills of anything


def kill_anything(
    folder: Path, expected: list[dict], number: int, rng: random.Random
) -> None:
    """Kill processes of jobs at random moments; print what is left behind."""
    left = halves = 0
    killed = dict.fromkeys(("launch", "torchrun", "rank"), 0)
    runs, equal = 0, 0
    for i in range(number):
        path = folder / f"any-{runs}"
        process = start(path)
        wait_for_ranks(path, process)
        time.sleep(rng.uniform(0, STEPS * PAUSE))
        kind = rng.choice(sorted(killed))
        chosen = [pid for pid, what in processes_of(path) if what == kind]
        if chosen:
            with suppress(ProcessLookupError):
                os.kill(rng.choice(sorted(chosen)), signal.SIGKILL)
            killed[kind] += 1
        out, _ = process.communicate()
        left += len(left_of(path))
        halves += sum(not whole(file) for file in path.glob("step-*.pt"))
        if process.returncode == 0 or i == number - 1:
            # The launch recovered, or the job was over; if not, the last one ends it.
            if process.returncode != 0:
                out, _ = start(path).communicate()
            runs += 1
            last = json.loads(out.splitlines()[-1]) if out else None
            equal += last == expected[-1]
            halves += len(list(path.glob("*.part")))
    what = ", ".join(f"{count} of {name}" for name, count in killed.items())
    print(
        f"{sum(killed.values())} kills at random moments ({what}): {left} processes "
        f"and {halves} files half written left; {equal} of {runs} runs ended equal"
    )


def start(path: Path) -> subprocess.Popen:
    """Start a process that launches the training, and prints what it reported last."""
    code = (
        "import json, sys; from contextlib import redirect_stdout\n"
        "from d2l_gpu import torch as d2l\n"
        "with redirect_stdout(None):\n"
        "    got = d2l.launch(sys.argv[1], 2, sys.argv[2:], restarts=1)\n"
        "print(json.dumps(got[-1]))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(SCRIPT), str(path), "cpu", str(PAUSE)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def wait_for_ranks(path: Path, process: subprocess.Popen) -> None:
    """Return when training has begun: the ranks make the folder before."""
    while process.poll() is None:
        ranks = [pid for pid, what in processes_of(path) if what == "rank"]
        if len(ranks) == RANKS and path.exists():
            return
        time.sleep(0.05)


def processes_of(path: Path) -> list[tuple[int, str]]:
    """The running processes of a job, each with what it is."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile
            words = (entry / "cmdline").read_bytes().decode().split("\0")
            if str(path) in words:
                kind = "rank" if "d2l_gpu.common.worker" in words else "launch"
                if "torch.distributed.run" in words:
                    kind = "torchrun"
                found.append((int(entry.name), kind))
    return found


def left_of(path: Path) -> list[tuple[int, str]]:
    """The processes of a job that are there ten seconds after it ended."""
    deadline = time.monotonic() + 10
    while (left := processes_of(path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def whole(file: Path) -> bool:
    """Whether a checkpoint is what was written."""
    content = file.read_bytes()
    return hashlib.sha256(content[:-32]).digest() == content[-32:]


if __name__ == "__main__":
    main()
