"""Simulate all plans of the puzzle's levels, and write ``recordings/puzzles.json``.

    python -m tools.puzzles                  all levels: some minutes on two cores
    python -m tools.puzzles --check          simulate again, and say what differs
    python -m tools.puzzles --check --sample 20    only so many plans of each level

The last one is what the tests do.
"""

import argparse
import json
import math
import random
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tqdm import tqdm

from d2l_gpu.vgpu.sim.plans import Plan, simulate
from d2l_gpu.vgpu.sim.puzzle import FILE, LEVELS, Level, Neighbour, level, written


def found(number: str, plan: Plan) -> Neighbour:
    """Simulate a plan of a level."""
    puzzle = level(number)
    outcome = simulate(puzzle.network, plan, puzzle.machine)
    if not outcome.fits:
        return Neighbour(plan, outcome.allocated, None, None)
    return Neighbour(plan, outcome.allocated, outcome.seconds, outcome.limit)


def simulated(puzzle: Level, plans: list[Plan], jobs: int) -> list[Neighbour]:
    """Simulate plans of a level in several processes, in their order."""
    with ProcessPoolExecutor(jobs) as pool:
        numbers = [puzzle.number] * len(plans)
        results = pool.map(found, numbers, plans, chunksize=4)
        bar = tqdm(results, puzzle.number, len(plans), disable=not sys.stderr.isatty())
        return list(bar)


def text_of(levels: dict[str, list[Neighbour]]) -> str:
    """Return the file's text: a line for each plan."""
    lines = []
    for number, plans in levels.items():
        rows = ",\n".join(json.dumps(written(x), separators=(",", ":")) for x in plans)
        lines.append(f"{json.dumps(number)}: [\n{rows}\n]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def differences(
    puzzle: Level, plans: Iterable[Plan], again: Iterable[Neighbour]
) -> Iterator[str]:
    """Yield a sentence for each plan that the file doesn't have as it is now."""
    was = {each.plan: each for each in puzzle.neighbours}
    for plan, now in zip(plans, again, strict=True):
        old = was.get(plan)
        if old is None:
            yield f"{puzzle.number}: the file lacks {plan}"
        elif old.nbytes != now.nbytes or old.limit != now.limit or not _same(old, now):
            yield f"{puzzle.number}: {plan} was {old[1:]}, and is {now[1:]}"


def _same(old: Neighbour, now: Neighbour) -> bool:
    if old.seconds is None or now.seconds is None:
        return old.seconds is now.seconds
    return math.isclose(old.seconds, now.seconds, rel_tol=1e-9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--sample", type=int, help="simulate so many plans of a level")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    args = parser.parse_args()
    if args.sample and not args.check:
        parser.error("--sample goes with --check, since the file needs all plans")
    levels, wrong = {}, []
    for puzzle in LEVELS.values():
        plans = list(puzzle.plans())
        if args.check and {x.plan for x in puzzle.neighbours} - set(plans):
            wrong.append(f"{puzzle.number}: the file has plans that the grid lacks")
        if args.sample and args.sample < len(plans):
            plans = random.Random(0).sample(plans, args.sample)
        again = simulated(puzzle, plans, args.jobs)
        levels[puzzle.number] = again
        if args.check:
            wrong += differences(puzzle, plans, again)
    if not args.check:
        Path(str(FILE)).write_text(text_of(levels), "utf-8")
    for sentence in wrong:
        print(sentence)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
