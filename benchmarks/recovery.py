"""Kill training processes, and compare the results with an undisturbed run.

    python benchmarks/recovery.py [--kills 20] [--plain 6] [--any 20] [--quick]

A small network with every kind of state (``tests/programs/training/recovering.py``)
trains for 15 steps on two ranks with gloo, and saves a checkpoint every third step.

- Ranks 0 and 1 are killed in turns with SIGKILL, at randomly drawn (seeded) steps:
  before a step, after its backward pass, while a checkpoint is being written, or right
  after. A kill counts as recovered if the run is restarted by
  ``d2l.launch(…, restarts=…)`` and ends bit for bit like the undisturbed one: weights,
  optimizer state, both ranks' random numbers, and the loss of every step. The share of
  kills recovered is the result. "Seconds until back" is the time from the kill to the
  next gradients.
- The same with plain ``torchrun --max-restarts``, for comparison. Each run has a minute
  to recover.
- Any process of a job is killed at a random moment: the caller of launch, torchrun or a
  rank. We count the processes and half-written files left behind. The run then resumes
  in a new launch, and must end with the same bits.
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

SCRIPT = (
    Path(__file__).resolve().parents[1]
    / "tests"
    / "programs"
    / "training"
    / "recovering.py"
)
STEPS, SAVE_EVERY, RANKS = 15, 3, 2
KILLS_OF_A_RUN = 4
SECONDS_TO_RECOVER = 60
QUICK_SECONDS = 10  # only shows that the benchmark works, says nothing about torchrun
PAUSE = 0.2  # seconds per step, so that random kills hit a running one


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
        os.environ["TMPDIR"] = name  # a killed launch leaves its folder there
        expected = launch(folder / "whole", 0)
        share = kill_ranks(folder, expected, options.kills, rng)
        patience = QUICK_SECONDS if options.quick else SECONDS_TO_RECOVER
        plain = kill_under_torchrun(folder, expected, options.plain, rng, patience)
        kill_anything(folder, expected, options.any, rng)
    baseline = f"torchrun --max-restarts as it is: {plain:.2f}"
    print_result("recovery", share, "share of kills recovered bitwise equal", baseline)


def launch(folder: Path, pause: float, *kills: str) -> list[dict]:
    """Run the training, restarting once per kill; return what the ranks report.

    Raises:
        RuntimeError: the run didn't recover.
    """
    from d2l_gpu import torch as d2l

    with redirect_stdout(None):
        arguments = [folder, "cpu", pause, *kills]
        return d2l.launch(SCRIPT, RANKS, arguments, restarts=len(kills))


# ------------------------------------------------------------------ kills of ranks


def kill_ranks(
    folder: Path, expected: list[dict], number: int, rng: random.Random
) -> float:
    """Return the share of kills after which a run recovered and ended as expected."""
    recovered, seconds, ranks = 0, [], 0
    while ranks < number:
        count = min(KILLS_OF_A_RUN, number - ranks)
        # Kills must come at increasing steps, or they would never be reached.
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
    """Draw the phase in which to kill a rank; return an argument for the script."""
    phases = ["start", "backward"]
    if step % SAVE_EVERY == 0:
        phases += ["write", "saved"]
    return f"{rank}:{step}:{rng.choice(phases)}"


def until_back(path: Path, attempt: int) -> float | None:
    """Return the seconds from the kill in an attempt to the first gradients of the
    next; None if there were none."""
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
    """Return the share of kills after which plain torchrun ends a run as expected.

    Each run gets `patience` seconds. Under torchrun, the script reports to stdout, and
    repeats itself after a restart, so only the final report is looked for.
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
            process.terminate()  # torchrun then ends the ranks
            out, _ = process.communicate()
        recovered += json.dumps(expected[-1]) in out.splitlines()
    print(f"{recovered} of {number} kills recovered by torchrun --max-restarts 1 as is")
    return recovered / number


# ------------------------------------------------------------------ kills of anything


def kill_anything(
    folder: Path, expected: list[dict], number: int, rng: random.Random
) -> None:
    """Kill processes of jobs at random moments; print what they leave behind."""
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
            # The launch recovered, or the job was over. If the last job failed, finish
            # it in a new launch.
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
    """Start a process that launches the training and prints the last report."""
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
    """Wait until training has begun (the ranks create the folder first) or failed."""
    while process.poll() is None:
        ranks = [pid for pid, what in processes_of(path) if what == "rank"]
        if len(ranks) == RANKS and path.exists():
            return
        time.sleep(0.05)


def processes_of(path: Path) -> list[tuple[int, str]]:
    """Return the running processes of a job, as pairs of process id and role."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            words = (entry / "cmdline").read_bytes().decode().split("\0")
            if str(path) in words:
                kind = "rank" if "d2l_gpu.common.worker" in words else "launch"
                if "torch.distributed.run" in words:
                    kind = "torchrun"
                found.append((int(entry.name), kind))
    return found


def left_of(path: Path) -> list[tuple[int, str]]:
    """Return the processes of a job that still run ten seconds after it ended."""
    deadline = time.monotonic() + 10
    while (left := processes_of(path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def whole(file: Path) -> bool:
    """Return whether a checkpoint is complete, judging by its checksum."""
    content = file.read_bytes()
    return hashlib.sha256(content[:-32]).digest() == content[-32:]


if __name__ == "__main__":
    main()
