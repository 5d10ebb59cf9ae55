"""Run PyTorch's own device-generic tests on virtual GPUs, and write what came out.

    python -m tools.device_generic DIR              DIR: a checkout of PyTorch
    python -m tools.device_generic DIR test_nn      only some of the files
    python -m tools.device_generic DIR --check      fail if one does for unknown reasons
    python -m tools.device_generic DIR --record     store the counts

``python -m tools.sources`` makes the checkout. PyTorch makes these tests for each
device; we run them for ``vgpu``, as a backend that it doesn't know (PrivateUse1), and
for the CPU beside it. A test that fails on the CPU too says nothing about us. The
counts are stored in ``tests/conformance/results/device-generic.json``, and ``python -m
tools.conformance --table`` writes them into ``docs/vgpu/accuracy.md``.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "conformance" / "results" / "device-generic.json"
PLUGIN = "tests.conformance.virtual_gpus"
FILES = (
    "test_torch",
    "test_view_ops",
    "test_indexing",
    "test_tensor_creation_ops",
    "test_nn",
    "test_autograd",
    "test_optim",
)
LIMIT = 3600  # seconds for a file
PASSES, LEFT_OUT, FAILS, ALSO_ON_CPU = "passes", "left out", "fails", "fails on CPU too"

# Why tests fail that the CPU passes: what is in the name, or in the message.
REASONS = {
    "storages that are copied when written (copy-on-write) aren't simulated": (
        "lazy_clone|_cow_"
    ),
    "nested and quantized tensors are refused": "not (nested|quantized) ones",
    "an index out of range is an assertion of the kernel, as with CUDA": (
        "device-side assert"
    ),
    "nondeterministic kernels are reported, which the test expects of CUDA only": (
        "nondeterministic_alert"
    ),
    "`map_` and `map2_` are for the CPU only, as with CUDA": "map2?_ is not supported",
    "`interpolate` takes uint8 as on the CPU; CUDA refuses it": (
        "upsamplingBiMode2d_nonsupported.*uint8"
    ),
    "a tensor on `meta` beside one on a GPU is refused": "is on meta",
    "the test takes every device but CUDA for the CPU": (
        "storage_type|transformerencoderlayer|grad_scal(er_deprecated|ing_state_dict)"
    ),
    "the message has other words": "does not match",
}
UNKNOWN = "no reason known"


@dataclass
class Outcome:
    """What became of the tests of a file.

    Attributes:
        counts: how many tests had which result.
        failed: by reason, those that fail here and not on the CPU.
        died: tests during which the process ended.
    """

    counts: Counter = field(default_factory=Counter)
    failed: dict[str, list[str]] = field(default_factory=dict)
    died: list[str] = field(default_factory=list)


def run(checkout: Path, name: str, jobs: int, folder: Path) -> Path:
    """Run a file of tests; return the path of its results, as JUnit's XML.

    Raises:
        RuntimeError: there are none, because the file couldn't be run.
    """
    results = folder / f"{name}.xml"
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider"]
    # Its conftest.py belongs to PyTorch's own way of running tests.
    command += ["--noconftest", "-q", "--tb=line", "-n", str(jobs)]
    command += ["-k", "VGPU or PRIVATEUSE1 or CPU", f"--junitxml={results}"]
    done = subprocess.run(
        [*command, f"{name}.py"],
        cwd=checkout / "test",
        env=os.environ
        | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu,privateuse1",
        },
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT,
    )
    unread = re.search(r"^ERROR \S+\.py( |$)", done.stdout, re.MULTILINE)
    if unread or done.returncode not in (0, 1):  # all passed, or some failed
        raise RuntimeError(f"{name}.py could not be run:\n{done.stdout[-3000:]}")
    return results


def outcome(results: Path) -> Outcome:
    """Read the results of a file of tests."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for case in ET.parse(results).getroot().iter("testcase"):
        parts = {part.tag: part.get("message", "") for part in case}
        wrong = parts.get("failure", parts.get("error"))
        result = FAILS if wrong is not None else PASSES
        if "skipped" in parts:
            result = LEFT_OUT
        name = case.get("classname").rpartition(".")[2], case.get("name")
        found[name] = result, wrong or ""
    ended = Outcome()
    for (group, name), (result, message) in found.items():
        base = re.sub("(VGPU|PRIVATEUSE1)$", "", group)
        if base == group:
            continue
        on_cpu = found.get((f"{base}CPU", re.sub("_vgpu(?=_|$)", "_cpu", name)))
        if result == FAILS and on_cpu is not None and on_cpu[0] == FAILS:
            result = ALSO_ON_CPU
        ended.counts[result] += 1
        if result == FAILS:
            reason = why(name, message)
            ended.failed.setdefault(reason, []).append(name)
            if "crashed while running" in message:
                ended.died.append(name)
    return ended


def why(name: str, message: str) -> str:
    """Return the reason why a test fails, if it is one of those that we know."""
    for reason, pattern in REASONS.items():
        if re.search(pattern, f"{name}\n{message}"):
            return reason
    return UNKNOWN


# ------------------------------------------------------------------ what is recorded


def record(checkout: Path, outcomes: Mapping[str, Outcome]) -> dict:
    """Return what is stored of a run; files that it left out stay as they were."""
    before = recorded()["files"] if RECORD.exists() else {}
    now = {
        name: {
            "counts": dict(one.counts),
            "reasons": {reason: len(names) for reason, names in one.failed.items()},
            "died": one.died,
        }
        for name, one in outcomes.items()
    }
    return {
        "tests of": (checkout / "version.txt").read_text().strip(),
        "torch": version("torch").partition("+")[0],
        "files": before | now,
    }


def recorded() -> dict:
    return json.loads(RECORD.read_text(encoding="utf-8"))


def table(stored: dict) -> list[str]:
    """Return what is stored as lines of Markdown."""
    columns = (PASSES, FAILS, ALSO_ON_CPU, LEFT_OUT)
    files = stored["files"]
    rows = {
        f"`{name}`": [one["counts"].get(column, 0) for column in columns]
        for name, one in files.items()
    }
    rows["together"] = [sum(numbers) for numbers in zip(*rows.values(), strict=True)]
    reasons, died = Counter(), []
    for one in files.values():
        reasons.update(one["reasons"])
        died += one["died"]
    return [
        f"PyTorch {stored['torch']} with the device-generic tests of PyTorch "
        f"{stored['tests of']}. *Left out* are those that PyTorch runs for other "
        f"devices only. {_ended(died)}",
        "",
        "| file | " + " | ".join(columns) + " |",
        "|---" + "|---:" * len(columns) + "|",
        *(
            f"| {name} | " + " | ".join(f"{n:,}" for n in numbers) + " |"
            for name, numbers in rows.items()
        ),
        "",
        "Why they fail here and not on the CPU:",
        "",
        *(f"* {number}: {reason}" for reason, number in reasons.most_common()),
    ]


def _ended(died: Sequence[str]) -> str:
    if not died:
        return "None ended the process."
    return f"{', '.join(f'`{name}`' for name in died)} ended the process."


def unexplained(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    """Yield a line for each test that fails for no known reason, or ended a process."""
    for name, one in outcomes.items():
        for test in one.failed.get(UNKNOWN, ()):
            yield f"{name}: {test} fails, and no reason is known."
        for test in one.died:
            yield f"{name}: {test} ended its process."


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="file", help=", ".join(FILES))
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time")
    parser.add_argument("--check", action="store_true", help="fail if one does")
    parser.add_argument("--record", action="store_true", help="store the counts")
    options = parser.parse_args(arguments)
    if not (options.checkout / "test").is_dir():
        parser.error(f"{options.checkout} has no folder test: is it one of PyTorch's?")
    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="device-generic-") as folder:
        for name in options.names or FILES:
            results = run(options.checkout, name, options.jobs, Path(folder))
            one = outcomes[name] = outcome(results)
            print(name, *(f"{n} {what}" for what, n in one.counts.items()), sep=", ")
            for reason, names in one.failed.items():
                print(f"  {len(names)}: {reason} ({names[0]})", flush=True)
    if options.record:
        text = json.dumps(record(options.checkout, outcomes), indent=1)
        RECORD.write_text(text + "\n", encoding="utf-8")
    if not options.check:
        return 0
    lines = list(unexplained(outcomes))
    print(*lines, sep="\n")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
