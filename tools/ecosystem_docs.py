"""What is recorded of ``python -m tools.ecosystem``: a file, and a page made of it.

``results.json`` has an entry for each check: which library in which version, what users
expect, and what came out. ``docs/ecosystem.md`` shows it. A run with ``--record``
writes both; one with ``--compare`` says what has become worse since.
"""

import json
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tests" / "ecosystem" / "results.json"
PAGE = ROOT / "docs" / "ecosystem.md"
KEPT = ("area", "name", "promise", "library", "result", "error")

INTRODUCTION = (
    "# Libraries on virtual GPUs\n\n"
    "What happens when programs written for CUDA run on two virtual GPUs, by `python "
    "-m d2l_gpu.vgpu --gpus 2`, unmodified, without a GPU? Each row below is a small "
    "program with assertions about values, devices and memory: what its library "
    "promises on two real GPUs. Networks have random weights, since nothing is "
    "downloaded. `python -m tools.ecosystem` runs them, each in processes of its own, "
    "and wrote this page; `python -m tools.ecosystem --real` runs the same on real "
    "GPUs. Those of nanoGPT, torchtitan, PyTorch's examples and Triton Puzzles run "
    "the programs themselves, at the commits named here, by `--sources`.\n\n"
    "*Refused* means that virtual GPUs can't do it and say so in a sentence.\n"
)


def record(checks: Sequence[dict], where: str) -> None:
    """Write the file and the page. What these checks don't name stays as it was.

    Args:
        where: Python and system of the run.
    """
    found = {(x["area"], x["name"]): {key: x[key] for key in KEPT} for x in checks}
    before = recorded()["checks"] if RESULTS.exists() else []
    kept = [found.pop((x["area"], x["name"]), x) for x in before]
    kept = sorted([*kept, *found.values()], key=lambda x: x["area"])
    results = {"where": where, "checks": kept}
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    RESULTS.write_text(text, encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


def recorded() -> dict:
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def here() -> str:
    """Name the Python and the system of this run."""
    return f"Python {platform.python_version()}, {platform.system()}"


def page(results: dict) -> str:
    """Return the page, as Markdown."""
    checks = results["checks"]
    number = Counter(check["result"] for check in checks)
    parts = [f"{count} {result}" for result, count in number.most_common()]
    lines = [
        INTRODUCTION,
        f"The last run ({results['where']}): {len(checks)} checks, "
        f"{', '.join(parts)}.\n",
        "| area | library | checks | pass | refused | other |",
        "|---|---|---:|---:|---:|---:|",
    ]
    areas = dict.fromkeys(check["area"] for check in checks)
    for area in areas:
        inside = [check for check in checks if check["area"] == area]
        some = Counter(check["result"] for check in inside)
        passes, refused = some["passes"], some["refused"]
        lines.append(
            f"| [{area}](#{area}) | {inside[0]['library']} | {len(inside)} | {passes} "
            f"| {refused} | {len(inside) - passes - refused} |"
        )
    for area in areas:
        lines += ["", f"## {area}", "", "| what users expect | |", "|---|---|"]
        for check in checks:
            if check["area"] == area:
                lines.append(f"| {cell(check['promise'])} | {outcome(check)} |")
    return "\n".join(lines) + "\n"


def outcome(check: dict) -> str:
    if check["result"] == "passes":
        return "passes"
    return f"**{check['result']}**: {cell(check['error'])}"


def cell(text: str) -> str:
    """Return a text in a form that fits in a cell of a table."""
    text = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return text if len(text) <= 200 else text[:199] + "…"


def worse(checks: Sequence[dict]) -> list[str]:
    """Return a line for each check that passes by the record, and doesn't now."""
    before = {(x["area"], x["name"]): x["result"] for x in recorded()["checks"]}
    return [
        f"{x['area']}.{x['name']} passed before, and now: {x['result']}"
        for x in checks
        if x["result"] != "passes" and before.get((x["area"], x["name"])) == "passes"
    ]
