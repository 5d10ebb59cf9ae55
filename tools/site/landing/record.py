"""Record what the landing page shows of virtual GPUs.

    python -m tools.site.landing.record            run it all, and write the files
    python -m tools.site.landing.record --check    run it all, and say what differs

``recorded/mismatch.json`` has what PyTorch says to ``X + Y`` wherever the two are, and
``recorded/steps.json`` what ran when in training steps of LeNet. The functions for
these steps are those of the lesson, and so is how they're timed, with the host's wait
at the end. So its numbers and the page's are the same.
"""

import argparse
import ast
import contextlib
import io
import itertools
import json
import re
import sys
import traceback

from tools.edition import ROOT
from tools.lesson import read_lesson, split_exercises
from tools.site.landing.recordings import MISMATCH, STEPS

PLACES = {"cpu": "cpu()", "gpu(0)": "gpu(0)", "gpu(1)": "gpu(1)"}
"""What each device is called on the page, and in a program."""

LESSON = ROOT / "lessons" / "pytorch" / "07_data_parallel.md"
BATCHES = (64, 2048)  # as in the lesson: the first is too small for two GPUs
GPUS = (1, 2)
MODEL = "V100"


def mismatches() -> list[dict]:
    """Return what ``X + Y`` gives for all pairs of places of X and Y."""
    from d2l_gpu import torch as d2l

    d2l.use_virtual_gpus(2)
    return [_sum(x, y) for x, y in itertools.product(PLACES, repeat=2)]


def _sum(x: str, y: str) -> dict:
    """Run the program of one pair, and its repair if it fails."""
    import torch

    from d2l_gpu import torch as d2l

    names = {"torch": torch, "cpu": d2l.cpu, "gpu": d2l.gpu}
    program = [
        f"X = torch.ones(3, device={PLACES[x]})",
        f"Y = torch.ones(3, device={PLACES[y]})",
    ]
    exec("\n".join(program), names)
    found = {"x": x, "y": y, "program": program, "sum": "X + Y"}
    try:
        return found | {"result": repr(eval(found["sum"], names))}
    except RuntimeError as error:
        found["error"] = "".join(traceback.format_exception_only(error)).strip()
    # The smaller detour: to the GPU, if one of the two is on the CPU.
    found["fix"] = "X + Y.to(X.device)" if y == "cpu" else "X.to(Y.device) + Y"
    with d2l.transfers() as log:
        Z = eval(found["fix"], names)
    return found | {"result": repr(Z), "copied": log.nbytes}


def steps() -> list[dict]:
    """Return what ran when in steps of LeNet, with one and two GPUs, by batch size.

    Times are in picoseconds, which the simulated clock counts.
    """
    from d2l_gpu import torch as d2l

    make_step = _names_of_the_lesson()["make_step"]
    sim = d2l.simulator(max(GPUS), MODEL)
    found = []
    for batch, gpus in itertools.product(BATCHES, GPUS):
        devices = sim.gpus()[:gpus]
        step = make_step(devices, batch)
        step()  # the first allocates
        sim.reset()
        step()
        timeline = sim.timeline()
        rows = {
            row: [[bar.kind, _pico(bar.start), _pico(bar.end), bar.name] for bar in its]
            for row, its in timeline.rows.items()
        }
        busy = [_pico(use.busy) for use in sim.report().devices[:gpus]]
        found.append(
            {
                "model": MODEL,
                "batch": batch,
                "gpus": gpus,
                "end": _pico(d2l.bench({"step": step}, devices).seconds("step")),
                "busy": busy,
                "rows": rows,
            }
        )
    return found


def _pico(seconds: float) -> int:
    return round(seconds * 10**12)


def _names_of_the_lesson() -> dict:
    """Return what the lesson's cells import and define, without running the rest."""
    before, _ = split_exercises(read_lesson(LESSON).cells)
    names: dict = {}
    for cell in before:
        if cell.kind != "code":
            continue
        tree = ast.parse(cell.source)
        if "def lenet" not in cell.source:  # whose parameters are needed, too
            kinds = ast.Import, ast.ImportFrom, ast.FunctionDef
            tree.body = [each for each in tree.body if isinstance(each, kinds)]
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(tree, str(LESSON), "exec"), names)
    return names


def _text(entries: list[dict]) -> str:
    """Return entries as JSON, in lines that show what changed."""
    text = json.dumps(entries, ensure_ascii=False, indent=1)
    # Bars and programs are short, and each reads better in a line of its own.
    return re.sub(r"\[\s+([^\s\[\]{}][^\[\]{}]*?)\s+\]", _in_a_line, text) + "\n"


def _in_a_line(match: re.Match) -> str:
    return json.dumps(json.loads(match[0]), ensure_ascii=False)


def main(arguments: list[str] | None = None) -> str | None:
    """Run the command; return what differs, if anything."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.site.landing.record",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args(arguments).check
    differ = []
    for path, record in ((MISMATCH, mismatches), (STEPS, steps)):
        text = _text(record())
        if not path.is_file() or path.read_text("utf-8") != text:
            differ.append(path.name)
            if not check:
                path.write_text(text, "utf-8", newline="\n")
    if check and differ:
        return f"recorded otherwise: {', '.join(differ)}; run it without --check"
    return None


if __name__ == "__main__":
    sys.exit(main())
