"""Finding out why a launched script failed: which rank was first, and what it said."""

import contextlib
import json
import re
import signal
from collections.abc import Collection
from pathlib import Path

from d2l_gpu import programs, worker
from d2l_gpu.worker import CRASH

from .results import Lines, log_of

AGENT_LOG = "agent.log"
LINES_OF_STDERR = 20  # of a rank that died without an exception


def failure(folder: Path, script: Path) -> str:
    """Say which rank failed first, and why.

    An error that says that a connection was lost is the consequence of another's: it
    counts only if no rank has another error or died without one.
    """
    raised = records(folder)
    causes = [record for record in raised if not record["lost_connection"]]
    died = _died(folder, {record["rank"] for record in raised})
    if causes or (raised and not died):
        first = min(causes or raised, key=lambda record: record["time"])
        return (
            f"Rank {first['rank']} of {script.name} failed with {first['summary']}\n\n"
            f"{first['traceback'].rstrip()}"
        )
    if died:
        rank, code = died[0]
        said = Lines(folder, log_of(rank, "stderr")).new(last=True)
        crash = Lines(folder, f"{CRASH}-{rank}").new(last=True)
        how = f"with exit code {code}"
        if code < 0:
            how = f"by signal {-code}"
            with contextlib.suppress(ValueError):
                how = f"by {signal.Signals(-code).name}"
        sentence = f"Rank {rank} of {script.name} was ended {how}"
    else:
        said = Lines(folder, AGENT_LOG).new(last=True)
        crash = []
        sentence = f"torchrun could not run {script.name}"
    # Frames above the script's and a list of libraries help nobody.
    ours = tuple(f'  File "{file}' for file in (worker.__file__, programs.__file__))
    skipped = (*ours, '  File "<frozen runpy>', "Extension modules:")
    said = said[-LINES_OF_STDERR:]
    said += [line for line in crash if not line.startswith(skipped)]
    last = "".join(said).strip()
    if not last:
        return f"{sentence}; nothing on stderr says why."
    return f"{sentence}; its last words:\n\n{last}"


def records(folder: Path) -> list[dict]:
    """The exceptions of all ranks."""
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for path in folder.glob("error-*.json")
    ]


def _died(folder: Path, recorded: Collection[int]) -> list[tuple[int, int]]:
    """Ranks that ended without an exception, and their exit codes, first to last.

    From torchrun's summary, where "Root Cause" is whom it saw end first. It then ends
    the others with SIGTERM: of a rank that it did not see first, that code is no cause
    if there is an exception, and the last to be considered if there is none.
    """
    log = (folder / AGENT_LOG).read_text(encoding="utf-8", errors="replace")
    others, _, first = log.partition("Root Cause (first observed failure)")
    entry = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)")
    found = [
        (int(rank), int(code))
        for part in (first, others)
        for rank, code in entry.findall(part)
        if int(rank) not in recorded
        and not (recorded and part is others and int(code) == -signal.SIGTERM)
    ]
    return sorted(found, key=lambda rank_and_code: rank_and_code[1] == -signal.SIGTERM)


def where_ranks_were(folder: Path, script: Path, timeout: float) -> str:
    """Say that time is up, and where each rank was."""
    stacks = {
        int(path.name.removeprefix("stack-")): path.read_text(encoding="utf-8")
        for path in folder.glob("stack-*")
    }
    parts = [
        f"{script.name} had not ended after {timeout} s, so all its processes were "
        "ended: give it more time, or find what a rank waits for."
    ]
    parts += [f"Rank {rank} was here:\n{stacks[rank]}" for rank in sorted(stacks)]
    return "\n\n".join(part.rstrip() for part in parts)
