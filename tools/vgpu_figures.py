"""Write the figures that were measured into ``docs/vgpu/accuracy.md``.

    python -m tools.vgpu_figures

They come from the records of the benchmarks and of the conformance suite, and nothing
runs here. The site computes them again when it's built.
"""

import json
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from d2l_gpu.common.files import write_atomically
from d2l_gpu.vgpu.sim.expected import RUNS
from tools import conformance
from tools.marks import replace_between

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "vgpu" / "accuracy.md"
RESULTS = ROOT / "benchmarks" / "results"
BEGIN = "<!-- from tools/vgpu_figures.py -->"
END = "<!-- end of figures -->"

_SIZES = {
    "large": "of 128 MiB and more",
    "between": "in between",
    "small": "up to 64 KiB",
}
_LINE = re.compile(r"(\w+): median ([\d.]+)%, largest ([\d.]+)%, \d+ of (\d+) within")
_KERNELS = re.compile(r"^(\w+(?:, [\w ]+)*)  +(\d+)  +([\d.]+)  +([\d.]+)", re.M)


def table() -> str:
    """Return the figures in Markdown."""
    lines = [
        "| simulated | compared with | how many | median error | largest error |",
        "|---|---|---:|---:|---:|",
        *(f"| {' | '.join(cells)} |" for cells in [*_time(), *_memory()]),
        "",
        "| kernels of DeepBench, on a V100 | how many | median error "
        "| off by over a quarter |",
        "|---|---:|---:|---:|",
        *(f"| {' | '.join(cells)} |" for cells in _kernels()),
    ]
    return "\n".join([_values(), "", *lines, "", *_costs()])


def with_figures(text: str) -> str:
    """Return the page with the figures between their marks.

    Raises:
        ValueError: the page lacks a mark.
    """
    return replace_between(text, BEGIN, END, table(), PAGE.name)


def _values() -> str:
    """Return how many values were compared."""
    newest = conformance.read_records()[-1]
    cases = newest["cases"].values()
    equal = sum(counts.get("equal", 0) for counts in cases)
    everything = sum(sum(counts.values()) for counts in cases)
    return (
        f"With PyTorch {newest['torch']} we compared {newest['comparisons']:,} results "
        f"of {everything:,} cases with the CPU's. {_percent(equal / everything)} of "
        "the cases are equal to the last bit, and "
        f"{len(newest['unexpected']) or 'none'} differ by more than rounding."
    )


def _time() -> Iterator[Sequence[str]]:
    """Yield the errors of simulated times."""
    errors = [abs(run.error) for run in RUNS]
    yield (
        "speed of training and inference",
        "runs that NVIDIA and others have published ([all of them]"
        "(../../benchmarks/results/published.txt))",
        *_summary(len(errors), statistics.median(errors), max(errors)),
    )
    text = (RESULTS / "collectives.txt").read_text("utf-8")
    found = {match[1]: match for match in _LINE.finditer(text)}
    for size, words in _SIZES.items():
        _, median, largest, number = found[size].groups()
        yield (
            f"bandwidth of collectives, {words}",
            "published runs of nccl-tests ([every row]"
            "(../../benchmarks/results/collectives.txt))",
            *_summary(int(number), float(median) / 100, float(largest) / 100),
        )


def _memory() -> Iterator[Sequence[str]]:
    """Yield the error of simulated memory."""
    text = (RESULTS / "memory.txt").read_text("utf-8")
    found = re.search(r"median ([\d.]+)%, largest ([\d.]+)%, (\d+) peaks", text)
    median, largest, number = found.groups()
    yield (
        "peak of memory, with the caching allocator",
        "peaks of training that others have published ([all of them]"
        "(../../benchmarks/results/memory.txt))",
        *_summary(int(number), float(median) / 100, float(largest) / 100),
    )


def _kernels() -> Iterator[Sequence[str]]:
    """Yield the errors of single kernels."""
    text = (RESULTS / "kernels.txt").read_text("utf-8")
    for name, number, median, over in _KERNELS.findall(text):
        share = _percent(float(over))
        yield name.strip(), number, _percent(float(median)), share


def _costs() -> Iterator[str]:
    """Yield what virtual GPUs cost in real time."""
    ratios = [
        float(ratio)
        for ratio in re.findall(
            r"^ResNet-18, batch 64 +[\d.]+ +[\d.]+ +([\d.]+)",
            (RESULTS / "virtual_overhead.txt").read_text("utf-8"),
            re.MULTILINE,
        )
    ]
    least, most = min(ratios), max(ratios)
    seconds = _last(RESULTS / "thousand_gpus.txt")["value"]
    yield (
        f"In real time, a training step of ResNet-18 takes {least:.2f} to {most:.2f} "
        "times as long on a virtual GPU as on the CPU ([measured]"
        "(../../benchmarks/results/virtual_overhead.txt)). To simulate a step of a "
        f"model with 70 billion parameters on 1,024 GPUs takes {seconds:.0f} seconds "
        "([what it prints](../../benchmarks/results/thousand_gpus.txt))."
    )


def _last(path: Path) -> dict:
    """Return a benchmark's result, which is its last line."""
    return json.loads(path.read_text("utf-8").strip().splitlines()[-1])


def _summary(number: int, median: float, largest: float) -> Sequence[str]:
    return str(number), _percent(median), _percent(largest)


def _percent(share: float) -> str:
    """Return a share in percent, with a digit more where it's small."""
    digits = 1 if share < 0.095 or 0.99 < share < 1 else 0
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def main() -> None:
    """Run the command."""
    write_atomically(PAGE, with_figures(PAGE.read_text("utf-8")))


if __name__ == "__main__":
    main()
