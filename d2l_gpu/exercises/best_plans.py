"""The reader's best plans for the thousand-GPU puzzle, in a file beside their data.

The file is ``puzzles.json`` in the folder of ``common.settings.data_folder``. A plan is
kept if it obeys the rules, fits, and is faster than the one before. A file that can't
be read is renamed, not overwritten.
"""

import json
from dataclasses import asdict
from pathlib import Path

from d2l_gpu.common.files import write_atomically
from d2l_gpu.common.settings import data_folder
from d2l_gpu.vgpu import Table
from d2l_gpu.vgpu.sim.plans import Plan, simulate
from d2l_gpu.vgpu.sim.puzzle import LEVELS, Level, Score
from d2l_gpu.vgpu.sim.words import shown

NAME = "puzzles.json"
UNREADABLE = NAME + ".unreadable"


def best() -> dict[str, Plan]:
    """Return the reader's best plan for each level that has one."""
    return _read(data_folder() / NAME)


def keep(score: Score) -> bool:
    """Keep a plan if it's the reader's best so far; return whether it is."""
    if not score.outcome.fits:
        return False
    number, path = score.level.number, data_folder() / NAME
    plans = _read(path)
    if number in plans:
        before = simulate(score.level.model, plans[number], score.level.machine)
        if before.fits and before.seconds <= score.outcome.seconds:
            return False
    plans[number] = score.plan
    text = {key: asdict(plan) for key, plan in sorted(plans.items())}
    write_atomically(path, json.dumps(text, indent=1) + "\n")
    return True


def puzzle_table() -> Table:
    """Return the reader's best plans beside the others; see ``d2l.puzzle_table``."""
    mine = best()
    columns = ["your best", "of the grid's fastest", "grid's fastest", "published plan"]
    rows = [_row(each, mine.get(each.number)) for each in LEVELS.values()]
    return Table(["level", *columns, "measured", "your plan"], rows, [*columns])


def _row(level: Level, plan: Plan | None) -> list[str]:
    mine = ["", ""]
    if plan is not None:
        score = level.score(plan)
        mine = [f"{score.outcome.tokens_per_second:,.0f}", score.percent(0)]
    published = ["", ""]
    if level.published is not None:
        there = simulate(level.model, level.published.plan, level.machine)
        speed = level.published.speed * level.machine.world_size
        published = [f"{there.tokens_per_second:,.0f}", f"{speed:,.0f}"]
    return [
        f"{level.number} {shown(level.title)}",
        *mine,
        f"{level.fastest:,.0f}",
        *published,
        "" if plan is None else str(plan),
    ]


def _read(path: Path) -> dict[str, Plan]:
    """Return the plans of a file that obey their levels' rules; none if it's absent."""
    try:
        found = json.loads(path.read_text("utf-8"))
        plans = {number: Plan(**fields) for number, fields in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError):
        path.replace(path.with_name(UNREADABLE))
        return {}
    return {
        number: plan
        for number, plan in plans.items()
        if number in LEVELS and not LEVELS[number].problem(plan)
    }
