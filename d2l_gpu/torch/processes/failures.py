"""Finding out why a launched script failed: which rank was first, and its error."""

import contextlib
import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from d2l_gpu.common import worker
from d2l_gpu.common.worker import CRASH, folder_of
from d2l_gpu.vgpu import programs

from .reports import LogReader, log_of

AGENT_LOG = "agent.log"
LINES_OF_STDERR = 20  # of a rank that died without an exception


@dataclass
class Failure:
    """Why an attempt failed: a sentence without its full stop, and the details."""

    sentence: str
    details: str


def failure(run: Path, script: Path, attempt: int) -> Failure:
    """Find out which rank failed first in an attempt, and why.

    A lost connection is the consequence of another rank's failure, so it counts only if
    no rank has another error or died without one.
    """
    raised = records(run, attempt)
    causes = [record for record in raised if not record["lost_connection"]]
    died = _died(run, attempt)
    if died and died[0] in {record["rank"] for record in raised}:
        died = None
    if causes or (raised and not died):
        first = min(causes or raised, key=lambda record: record["time"])
        return Failure(
            f"Rank {first['rank']} of {script.name} failed with {first['summary']}",
            "\n\n" + first["traceback"].rstrip(),
        )
    if died:
        rank, code = died
        said = LogReader(run, log_of(rank, "stderr", attempt)).new(last=True)
        crash = LogReader(folder_of(run, attempt), f"{CRASH}-{rank}").new(last=True)
        sentence = f"Rank {rank} of {script.name} {how_ended(code)}"
    else:
        said = LogReader(run, AGENT_LOG).new(last=True)
        crash = []
        sentence = f"torchrun could not run {script.name}"
    # Leave out the frames above the script's, and the list of libraries.
    ours = tuple(f'  File "{file}' for file in (worker.__file__, programs.__file__))
    skipped = (*ours, '  File "<frozen runpy>', "Extension modules:")
    said = said[-LINES_OF_STDERR:]
    said += [line for line in crash if not line.startswith(skipped)]
    last = "".join(said).strip()
    if not last:
        return Failure(sentence, "; nothing on stderr says why.")
    return Failure(sentence, f"; its last output:\n\n{last}")


def how_ended(code: int) -> str:
    """Describe an exit code, as "exited with code 3" or "was killed by SIGKILL"."""
    if code >= 0:
        return f"exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def records(run: Path, attempt: int) -> list[dict]:
    """Return the exceptions that ranks recorded in an attempt."""
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for path in folder_of(run, attempt).glob("error-*.json")
    ]


def _died(run: Path, attempt: int) -> tuple[int, int] | None:
    """Return the rank that torchrun saw end first in an attempt, and its exit code.

    torchrun logs it in one line for each failed attempt; without that line, return
    None.
    """
    log = (run / AGENT_LOG).read_text(encoding="utf-8", errors="replace")
    found = re.findall(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) ", log)
    if attempt >= len(found):
        return None
    code, rank = map(int, found[attempt])
    return rank, code


def where_ranks_were(run: Path, script: Path, attempt: int, timeout: float) -> str:
    """Return a message that time is up, and where each rank was."""
    stacks = {
        int(path.name.removeprefix("stack-")): path.read_text(encoding="utf-8")
        for path in folder_of(run, attempt).glob("stack-*")
    }
    parts = [
        f"{script.name} had not finished after {timeout} s, so all its processes were "
        "killed: give it more time, or find out what a rank is waiting for."
    ]
    parts += [f"Rank {rank} was here:\n{stacks[rank]}" for rank in sorted(stacks)]
    return "\n\n".join(part.rstrip() for part in parts)
