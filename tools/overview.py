"""Draw the README's picture: a training step's timeline, roofline and scaling.

    python -m tools.overview

Everything is simulated, so the picture is the same on every machine. It goes to
``lessons/figures/overview.png``.
"""

from pathlib import Path

import torch

from d2l_gpu import torch as d2l
from d2l_gpu.show.style import default_style
from d2l_gpu.vgpu import time_text
from d2l_gpu.vgpu.sim.timeline import LOOKS

TARGET = Path(__file__).parents[1] / "lessons" / "figures" / "overview.png"
GPUS = [1, 2, 4, 8, 16]
ALGORITHMS = {
    "naive": "over one GPU",
    "ring": "in a ring, afterwards",
    "bucketed": "in buckets, meanwhile",
}


def step(batch_size: int, num_gpus: int, algorithm: str):
    """Simulate a step of ResNet-18, as in the lessons, on V100s linked by PCIe 3."""
    X = torch.zeros(batch_size, 1, 28, 28)
    y = torch.zeros(batch_size, dtype=torch.int64)
    net = d2l.resnet18(10)
    return d2l.simulate_step(net, X, y, num_gpus, algorithm, link="PCIe3")


def draw_timeline(axes, timeline) -> None:
    names = list(timeline.rows)
    for row, bars in enumerate(timeline.rows.values()):
        for kind, (fill, outline, _) in LOOKS.items():
            spans = [
                (bar.start * 1e3, (bar.end - bar.start) * 1e3)
                for bar in bars
                if bar.kind == kind
            ]
            if spans:
                look = {"facecolor": fill, "edgecolor": outline}
                if kind == "copy":  # matplotlib has no SVG patterns
                    look = {"facecolor": "white", "edgecolor": outline, "hatch": "////"}
                axes.broken_barh(spans, (row - 0.35, 0.7), linewidth=0.4, **look)
    axes.set_yticks(range(len(names)), labels=names)
    axes.invert_yaxis()
    axes.set_xlim(0, timeline.seconds * 1e3)
    axes.set_xlabel("simulated time, ms")
    axes.set_title(
        "One step on 4 GPUs: the host (black) issues work and goes on; gradients "
        "(hatched) travel while the rest is computed",
        fontsize=9,
        loc="left",
    )


def draw_scaling(axes) -> None:
    for (algorithm, label), mark, line in zip(
        ALGORITHMS.items(), "os^", (":", "--", "-"), strict=True
    ):
        steps = [step(64, n, algorithm) for n in GPUS]
        speed = [x.examples_per_second / 1e3 for x in steps]
        axes.plot(GPUS, speed, line, marker=mark, color="black", label=label)
    ideal = [speed[0] * n for n in GPUS]
    axes.plot(GPUS, ideal, color="#aaaaaa", label="ideal")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(GPUS, labels=GPUS)
    marks = [4, 8, 16, 32, 64]
    axes.set_yticks(marks, labels=marks)
    axes.set(xlabel="GPUs", ylabel="thousand images per second, simulated")
    axes.set_title("How far it scales, by the way of adding gradients", fontsize=9)
    axes.legend(fontsize=7)


def main() -> None:
    shown = step(64, 4, "bucketed")
    with default_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.6, 6.6), layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=[1, 1.5])
        draw_timeline(figure.add_subplot(grid[0, :]), shown.simulation.timeline())
        (use,) = shown.simulation.report().devices
        axes = figure.add_subplot(grid[1, 0])
        d2l.roofline(use, most=5).draw(axes)
        axes.set_title("What limits each operator: memory or arithmetic", fontsize=9)
        draw_scaling(figure.add_subplot(grid[1, 1]))
        for axes in figure.axes:
            axes.grid(alpha=0.3)
        figure.savefig(TARGET, dpi=110, metadata={"Software": None})
    print(f"{TARGET.name}: a step takes {time_text(shown.seconds)} (simulated)")


if __name__ == "__main__":
    main()
