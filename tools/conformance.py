"""Run the conformance suite, on one or more versions of PyTorch, and write its table.

    python -m tools.conformance                  run it here, store the results
    python -m tools.conformance 2.10.0 2.12.1    run it on these versions of PyTorch,
                                                 each in a new environment
    python -m tools.conformance --table          only write the table, run nothing
    python -m tools.conformance --check          fail if the table is out of date

The results go to ``tests/conformance/results/torch-<version>.json``, the table to
``docs/vgpu/accuracy.md``. New environments get PyTorch from pip's default index: on
Linux that is the CUDA build, of several gigabytes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from d2l_gpu.common.files import write_atomically
from tools import device_generic
from tools.marks import replace_between

ROOT = Path(__file__).resolve().parents[1]
SUITE = ROOT / "tests" / "conformance"
RESULTS = SUITE / "results"
PAGE = ROOT / "docs" / "vgpu" / "accuracy.md"
BEGIN, END = "<!-- from tools/conformance.py -->", "<!-- end -->"

# What PyTorch's test databases need besides PyTorch and this project.
NEEDED = ("expecttest", "numpy", "pytest", "scipy", "tqdm")

GROUPS = {
    "op forward": "operators, forward",
    "op backward": "operators, backward",
    "op errors": "operators, wrong arguments",
    "module train": "modules, training",
    "module eval": "modules, evaluation",
    "optim default": "optimizers, as they come",
    "optim forms": "optimizers, each form by its name (loop, foreach, fused)",
}
COLUMNS = {
    "equal": "equal",
    "varies": "as far as the CPU from itself",
    "close": "to rounding",
    "refused": "refused",
    "different": "different",
    "died": "ended the process",
}


def run_here(python: str | Path = sys.executable) -> Path:
    """Run the suite with an interpreter; return the path of its record."""
    version = subprocess.run(
        [python, "-c", "import torch; print(torch.__version__.partition('+')[0])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    RESULTS.mkdir(exist_ok=True)
    record = RESULTS / f"torch-{version}.json"
    subprocess.run([python, SUITE / "runner.py", "--record", record], check=True)
    return record


def run_on(version: str) -> Path:
    """Run the suite on a version of PyTorch, in a temporary environment; return the
    path of its record."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "Scripts" if sys.platform == "win32" else "bin", "python")
        pip = [python, "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, f"torch=={version}"], check=True)
        subprocess.run([*pip, *NEEDED], check=True)
        return run_here(python)


# ------------------------------------------------------------------ the table


def table(records: list[dict]) -> str:
    """Return the results in Markdown: the last record in full, then a row for each.

    Args:
        records: sorted by version.
    """
    newest = records[-1]
    lines = [
        f"PyTorch {newest['torch']}, Python {newest['python']}: "
        f"{newest['comparisons']:,} results compared.",
        "",
        *_rows("PyTorch's database", newest["cases"], GROUPS),
        "",
        *_exceptions("To rounding only:", newest["to rounding"]),
        "",
        *_exceptions("Refused:", newest["refused"]),
        "",
        *_exceptions("Not compared:", newest["skipped"]),
        "",
        "All groups together, by version:",
        "",
        *_rows(
            "PyTorch",
            {_build(r): _sums(r["cases"]) for r in records},
            {_build(r): _build(r) for r in records},
        ),
        "",
        *device_generic.table(device_generic.recorded()),
    ]
    return "\n".join(lines)


def _build(record: dict) -> str:
    return f"{record['torch']} ({record['build']}), Python {record['python']}"


def _sums(cases: dict) -> dict[str, int]:
    return {v: sum(counts.get(v, 0) for counts in cases.values()) for v in COLUMNS}


def _rows(head: str, cases: dict, names: dict[str, str]) -> list[str]:
    sums = _sums(cases)
    shown = [v for v in COLUMNS if v in ("equal", "different") or sums[v]]
    cells = [[head, "cases", *(COLUMNS[v] for v in shown)]]
    for key, name in names.items():
        counts = cases[key]
        numbers = [sum(counts.values()), *(counts.get(v, 0) for v in shown)]
        cells.append([name, *(f"{n:,}" for n in numbers)])
    rows = ["| " + " | ".join(row) + " |" for row in cells]
    return [rows[0], "|---" + "|---:" * (len(cells[0]) - 1) + "|", *rows[1:]]


def _exceptions(head: str, reasons: dict[str, list[str]]) -> list[str]:
    items = [f"* {reason}: {', '.join(names)}" for reason, names in reasons.items()]
    return [head, "", *items] if items else [f"{head} nothing."]


def page_with(text: str, table: str) -> str:
    """Return a page with the table between its marks.

    Raises:
        ValueError: a mark is missing.
    """
    return replace_between(text, BEGIN, END, table, PAGE.name)


def read_records() -> list[dict]:
    """Return all records, sorted by version of PyTorch, oldest first."""
    records = [json.loads(path.read_text()) for path in RESULTS.glob("torch-*.json")]
    return sorted(records, key=lambda r: [int(x) for x in r["torch"].split(".")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", help="of PyTorch, such as 2.12.1")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    if not (options.table or options.check):
        for version in options.versions:
            print(f"PyTorch {version}", flush=True)
            run_on(version)
        if not options.versions:
            run_here()
    text = PAGE.read_text(encoding="utf-8")
    new = page_with(text, table(read_records()))
    if options.check:
        if new != text:
            sys.exit(f"{PAGE.relative_to(ROOT)} is out of date: run --table.")
        return
    write_atomically(PAGE, new)


if __name__ == "__main__":
    main()
