"""How a program scales with the number of GPUs: a curve and the table of its points."""

import html
from collections.abc import Mapping, Sequence
from statistics import median

from d2l_gpu.vgpu.sim.drawing import linear_ticks, number
from d2l_gpu.vgpu.sim.expected import RUNS, Run
from d2l_gpu.vgpu.sim.units import time_text
from d2l_gpu.vgpu.sim.words import shown

PICO = 10**12
WIDTH, HEIGHT = 560, 330
LEFT, RIGHT, TOP, BOTTOM = 64, 84, 26, 44  # room around the plot
DOT = 4.5

_ABOVE = 1.005  # an efficiency that's shown as more than 100%


def figure(
    rows: Sequence[Mapping],
    unit: str,
    words: Mapping[str, str],
    sharded: bool = False,
) -> str:
    """Return the curve beside the ideal line, and the table.

    Args:
        rows: as ``play.scaling`` returns them.
        unit: what is trained on, such as ``"images"``.
        words: the texts of the page.
        sharded: whether each GPU has a smaller shard the more there are.
    """
    if not rows:
        return f"<p>{html.escape(words['scaling_none'])}</p>"
    lead = words["scaling_lead"].format(unit=unit, n=rows[-1]["gpus"])
    above = any(row["fits"] and row["efficiency"] >= _ABOVE for row in rows)
    if sharded and above:
        lead += f" {words['scaling_above']}"
    fewest = next((row["gpus"] for row in rows if row["fits"]), None)
    if fewest not in (None, rows[0]["gpus"]):
        lead += " " + words["scaling_base"].format(gpus=fewest)
    real = words["scaling_real"].format(**grown())
    return (
        f'<p>{html.escape(lead)}</p><div class="pair">'
        f"{_picture(rows, unit, words)}{_table(rows, unit, words)}</div>"
        f'<p class="trust">{html.escape(real)}</p>'
    )


def grown() -> dict[str, str]:
    """Return by how much steps of published runs take longer on 8 GPUs than on 1.

    Returns:
        ``pairs``, how many there are that differ in nothing else; the ``median`` and
        the ``largest`` growth of the step as published, and the largest one
        ``simulated``.
    """
    found: dict[tuple, dict[int, Run]] = {}
    for run in RUNS:
        alike = run.network, run.gpu, run.kind, run.year, run.batch, run.how
        found.setdefault(alike, {})[run.gpus] = run
    pairs = [(runs[1], runs[8]) for runs in found.values() if {1, 8} <= set(runs)]
    real = [eight.seconds / one.seconds - 1 for one, eight in pairs]
    # A speed that's too high by the error makes the step as much shorter.
    simulated = [
        (1 + grows) * (1 + one.error) / (1 + eight.error) - 1
        for grows, (one, eight) in zip(real, pairs, strict=True)
    ]
    return {
        "pairs": str(len(pairs)),
        "median": shown(f"{median(real):.0%}"),
        "largest": shown(f"{max(real):.0%}"),
        "simulated": shown(f"{max(simulated):.1%}"),
    }


def _picture(rows: Sequence[Mapping], unit: str, words: Mapping[str, str]) -> str:
    most, first = rows[-1]["gpus"], rows[0]
    ideal = first["rate"] / first["gpus"] / first["efficiency"]
    highest = 1.05 * max(ideal * most, *(row["rate"] for row in rows))

    def x(gpus: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * gpus / most, 1)

    def y(rate: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / highest, 1)

    parts = []
    for value, text in linear_ticks(0, highest, most=5):
        parts.append(f'<path class="grid" d="M{LEFT} {y(value)}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 8, y(value) + 4, shown(text), "end"))
    for row in rows:
        parts.append(_text(x(row["gpus"]), HEIGHT - BOTTOM + 18, row["gpus"], "middle"))
    parts.append(_text(LEFT - 8, TOP - 12, f"{unit}/s", "start"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(_text(middle, HEIGHT - 6, words["scaling_gpus"], "middle"))
    parts.append(
        f'<path class="ideal" d="M{x(0)} {y(0)}L{x(most)} {y(ideal * most)}"/>'
    )
    points = [(x(row["gpus"]), y(row["rate"])) for row in rows]
    line = "L".join(f"{a} {b}" for a, b in points)
    parts.append(f'<path class="curve" d="M{line}"/>')
    for row, (a, b) in zip(rows, points, strict=True):
        hollow = "" if row["fits"] else " hollow"
        parts.append(f'<circle class="dot{hollow}" cx="{a}" cy="{b}" r="{DOT}"/>')
    # Both ends have a label; they're moved apart if they'd touch.
    above, below = y(ideal * most), y(rows[-1]["rate"])
    if abs(below - above) < 16:
        shift = (16 - abs(below - above)) / 2
        above, below = min(above, below) - shift, max(above, below) + shift
    end = WIDTH - RIGHT + 10
    parts.append(_text(end, above + 4, words["ideal"], "start"))
    if rows[-1]["fits"]:
        share = shown(f"{rows[-1]['efficiency']:.0%}")
        parts.append(_text(end, below + 4, share, "start", "strong"))
    said = words["scaling_picture"].format(
        unit=f"{unit}/s",
        counts=", ".join(str(row["gpus"]) for row in rows),
        efficiencies=", ".join(map(_efficiency, rows)),
    )
    return (
        f'<svg class="scales" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{html.escape(said)}">{"".join(parts)}</svg>'
    )


def _efficiency(row: Mapping) -> str:
    """Return an efficiency, which has no meaning if it doesn't fit."""
    return shown(f"{row['efficiency']:.1%}") if row["fits"] else "–"


def _text(x: float, y: float, text: object, anchor: str, look: str = "") -> str:
    return (
        f'<text x="{x}" y="{y:.1f}" text-anchor="{anchor}" class="{look}">'
        f"{html.escape(str(text))}</text>"
    )


def _table(rows: Sequence[Mapping], unit: str, words: Mapping[str, str]) -> str:
    heads = (
        *(words["scaling_gpus"], words["scaling_step"], f"{unit}/s"),
        words["efficiency"],
    )
    head = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in heads)
    lines = []
    for row in rows:
        gpus = f'<th scope="row">{row["gpus"]}'
        if row["nodes"] > 1:
            gpus += f" <small>({row['nodes']} × {row['gpus'] // row['nodes']})</small>"
        if not row["fits"]:
            gpus += f' <small class="bad">{html.escape(words["not_fitting"])}</small>'
        lines.append(
            f'<tr data-picoseconds="{row["picoseconds"]}">{gpus}</th>'
            f"<td>{shown(time_text(row['picoseconds'] / PICO))}</td>"
            f"<td>{shown(number(row['rate'], 4))}</td><td>{_efficiency(row)}</td></tr>"
        )
    return (
        f'<table class="numbers"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )
