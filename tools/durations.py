"""Measure how long the notebooks of an edition take, each in a new kernel.

    python -m tools.durations [--framework pytorch] [lesson ...]

The seconds are those of this machine. They are only for the page that
`tools.classroom` writes for teachers; nothing is compared with them. Each lesson runs
once, and so do its solutions. The results go to ``benchmarks/results/durations.json``,
which keeps those of other machines and of lessons that weren't run.
"""

import argparse
import datetime
import json
import platform
import tempfile
import time
from pathlib import Path

import nbformat

from d2l_gpu.common.files import write_atomically
from d2l_gpu.common.frameworks import framework as framework_with
from d2l_gpu.common.processor import cpu_name, usable_cores
from d2l_gpu.course import SOLUTIONS, lesson_names, notebooks_dir, select_lessons
from d2l_gpu.course.kernel import progress_bar, run_cells
from tools import environments
from tools.companion import missing

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "durations.json"


def seconds_of(path: Path, framework: str) -> float:
    """Return the seconds that a notebook takes, including the start of the kernel."""
    notebook = nbformat.read(path, as_version=4)
    with (
        tempfile.TemporaryDirectory() as folder,
        progress_bar(notebook, path.stem) as bar,
    ):
        start = time.perf_counter()
        run_cells(
            notebook,
            Path(folder),
            after_cell=bar.update,
            kernel=environments.kernel(framework_with(framework)),
        )
        return time.perf_counter() - start


def hardware(framework: str) -> tuple[str, int]:
    """Describe the machine, and count its GPUs; only PyTorch's GPUs are counted."""
    text = f"{cpu_name()}, {usable_cores()} cores"
    gpus = []
    if framework == "pytorch":
        from d2l_gpu import torch as d2l

        gpus = d2l.devices().rows[1:]  # no virtual GPUs are in use, so all are real
    if gpus:
        text += f"; {len(gpus)} × {gpus[0][2]}"
    return f"{text}; Python {platform.python_version()}", len(gpus)


def with_run(runs: list[dict], run: dict) -> list[dict]:
    """Return the runs with a new one, merged with the old one of the same machine."""
    kind = ("framework", "gpus", "hardware")
    same = [old for old in runs if all(old[name] == run[name] for name in kind)]
    for old in same:
        run = run | {"seconds": old["seconds"] | run["seconds"]}
    return [old for old in runs if old not in same] + [run]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lessons", nargs="*", metavar="lesson")
    parser.add_argument("--framework", default="pytorch")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    edition = notebooks_dir("en", options.framework)
    names = select_lessons(options.lessons, lesson_names(edition))
    machine, gpus = hardware(options.framework)
    seconds = {}
    for name in names:
        if reason := missing(name):
            print(f"left out: {reason}")
            continue
        for part in name, f"{SOLUTIONS}/{name}":
            path = edition / f"{part}.ipynb"
            if path.is_file():
                seconds[part] = round(seconds_of(path, options.framework), 1)
                print(f"{part}: {seconds[part]:.1f} s", flush=True)
    there = options.results.is_file()
    runs = json.loads(options.results.read_text("utf-8")) if there else []
    run = {
        "framework": options.framework,
        "gpus": min(gpus, 2),
        "hardware": machine,
        "date": datetime.date.today().isoformat(),
        "seconds": seconds,
    }
    text = json.dumps(with_run(runs, run), indent=1, ensure_ascii=False)
    write_atomically(options.results, text + "\n")
    print(f"together: {sum(seconds.values()):.0f} s, on {machine}")


if __name__ == "__main__":
    main()
