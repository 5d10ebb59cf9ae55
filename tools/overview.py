"""Draw the README's picture: a training step's timeline, roofline and scaling.

    python -m tools.overview

Everything is simulated, so the picture is the same on every machine. It goes to
``lessons/figures/overview.png``.
"""

import io
from pathlib import Path

import torch
from PIL import Image

from d2l_gpu import torch as d2l
from d2l_gpu.show.live import small_png
from d2l_gpu.vgpu import time_text
from tools.figures import as_png

TARGET = Path(__file__).parents[1] / "lessons" / "figures" / "overview.png"
GPUS = [1, 2, 4, 8, 16]
ALGORITHMS = {
    "bucketed": "in buckets, meanwhile",
    "ring": "in a ring, afterwards",
    "naive": "through one GPU",
}
SHARPNESS = 2  # pixels for each that is displayed


def step(batch_size: int, num_gpus: int, algorithm: str):
    """Simulate a step of ResNet-18, as in the lessons, on V100s linked by PCIe 3."""
    X = torch.zeros(batch_size, 1, 28, 28)
    y = torch.zeros(batch_size, dtype=torch.int64)
    net = d2l.resnet18(10)
    return d2l.simulate_step(net, X, y, num_gpus, algorithm, link="PCIe3")


def scaling():
    """Return a figure of how far a step scales, by the way of adding gradients."""
    speeds = {
        label: [step(64, n, algorithm).examples_per_second for n in GPUS]
        for algorithm, label in ALGORITHMS.items()
    }
    bucketed, *_ = speeds.values()
    ideal = {"ideal": [bucketed[0] * n for n in GPUS]}
    gain = bucketed[-1] / bucketed[0]
    return d2l.plot(
        GPUS,
        speeds | ideal,
        "GPUs, each with 64 images",
        "images per second, simulated",
        title=f"{GPUS[-1]} GPUs are {gain:.1f} times as fast as one, "
        "if gradients travel early",
        xscale="log",
        yscale="log",
        kinds={"ideal": "reference", ALGORITHMS["bucketed"]: "communicate"},
    )


def main() -> None:
    shown = step(64, 4, "bucketed")
    drawing = shown.simulation.timeline(
        "Gradients travel while the rest is computed",
        "One training step of ResNet-18 on four V100s over PCI Express 3.0",
    )
    (use,) = shown.simulation.report().devices
    roof = d2l.roofline(
        use, most=5, title="Convolutions are limited by arithmetic, the rest by memory"
    )
    panels = io.BytesIO()
    d2l.panels(roof, scaling()).savefig(panels, dpi=96 * SHARPNESS)
    parts = [
        Image.open(io.BytesIO(as_png(drawing.svg().encode(), "", zoom=SHARPNESS))),
        Image.open(panels),
    ]
    width = max(part.width for part in parts)
    picture = Image.new("RGB", (width, sum(part.height for part in parts)), "white")
    top = 0
    for part in parts:
        picture.paste(part.convert("RGB"), (0, top))
        top += part.height
    whole = io.BytesIO()
    picture.save(whole, "PNG")
    TARGET.write_bytes(small_png(whole.getvalue(), 128))
    print(f"{TARGET.name}: a step takes {time_text(shown.seconds)} (simulated)")


if __name__ == "__main__":
    main()
