"""The timelines of the landing page: a training step on one GPU, and on two."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from d2l_gpu.vgpu.sim.drawing import linear_ticks
from tools.site.landing.recordings import STEPS, recorded
from tools.site.landing.texts import Texts

_PICO = 10**12
_WIDTH = 1000  # of a drawing, which is stretched to the width of the page
_ROW, _BAR, _STRIP = 30, 17, 5  # heights of a row, a bar, and a strip of copies
_TICKS = 4
_HOST = "host"
_STRIPS = ("in", "out")  # the rows that become a strip below their GPU's


@dataclass(frozen=True)
class Step:
    """A training step.

    Attributes:
        label: on how many GPUs.
        time: how long it took.
        rows: the names of its rows.
        drawing: what ran when, as SVG.
    """

    label: str
    time: str
    rows: list[str]
    drawing: str


@dataclass(frozen=True)
class Panel:
    """The steps with a batch size, on one axis of time.

    Attributes:
        batch: how many images.
        finding: what to see.
        steps: with one GPU, and with two.
        ticks: the places on the axis, in percent of its length, and their labels.
    """

    batch: str
    finding: str
    steps: list[Step]
    ticks: list[tuple[float, str]]


def panels(texts: Texts) -> Iterator[Panel]:
    """Yield a panel for each batch size, as recorded."""
    steps = recorded(STEPS)
    for batch in dict.fromkeys(step["batch"] for step in steps):
        one, two = (step for step in steps if step["batch"] == batch)
        longest = max(one["end"], two["end"])
        ratio = two["end"] / one["end"]
        slower = ratio > 1
        finding = texts["steps_slower" if slower else "steps_faster"].format(
            ratio=texts.number(ratio if slower else 1 / ratio, 1),
            busy=texts.percent((max if slower else min)(two["busy"]) / two["end"]),
        )
        ticks = linear_ticks(0, longest / _PICO, "s", _TICKS)
        yield Panel(
            texts["steps_batch"].format(batch=texts.number(batch)),
            finding,
            [_step(step, longest, texts) for step in (one, two)],
            [(100 * at * _PICO / longest, texts.marked(text)) for at, text in ticks],
        )


def _step(step: dict, longest: int, texts: Texts) -> Step:
    rows: dict[str, list[tuple[list, bool]]] = {}
    for name, bars in step["rows"].items():
        device, _, lane = name.rpartition(" ")
        row = texts["steps_host"] if name == _HOST else device
        rows.setdefault(row, []).extend((bar, lane in _STRIPS) for bar in bars)
    parts = [
        _bars(bars, _ROW * i, _WIDTH / longest, texts)
        for i, bars in enumerate(rows.values())
    ]
    height = _ROW * len(rows)
    gpus = step["gpus"]
    label = texts["steps_gpu" if gpus == 1 else "steps_gpus"].format(gpus=gpus)
    time = texts.time(step["end"] / _PICO)
    described = escape(texts["steps_drawing"].format(gpus=label, time=time))
    drawing = (
        f'<svg viewBox="0 0 {_WIDTH} {height}" height="{height}" '
        f'preserveAspectRatio="none" role="img" aria-label="{described}">'
        f"{''.join(parts)}</svg>"
    )
    return Step(label, time, list(rows), drawing)


def _bars(bars: list[tuple[list, bool]], top: float, scale: float, texts: Texts) -> str:
    """Return the bars of a row: a path of each kind, or boxes that have names."""
    parts = []
    paths: dict[str, str] = {}
    for (kind, start, end, name), strip in bars:
        x, width = scale * start, max(scale * (end - start), 0.7)
        y = top + (_BAR + 3 if strip else 1)
        height = _STRIP if strip else _BAR
        if name and not strip and kind == "compute":
            told = f"{name}, {texts.time((end - start) / _PICO)}"
            parts.append(
                f'<rect class="{kind}" x="{x:.5g}" y="{y}" width="{width:.4g}" '
                f'height="{height}"><title>{escape(told)}</title></rect>'
            )
        else:
            path = f"M{x:.5g} {y}h{width:.4g}v{height}h-{width:.4g}z"
            paths[kind] = paths.get(kind, "") + path
    parts += [f'<path class="{kind}" d="{path}"/>' for kind, path in paths.items()]
    return "".join(parts)
