"""What all pictures share: colours, lettering, ticks, and quantities as short texts.

Each kind of work has one colour in all pictures. The colours are those of Okabe and Ito
(Color Universal Design, 2008) or close to them, moved so that any two can be told apart
with normal colour vision and in simulated protanopia, deuteranopia and tritanopia, and
so that each stands out from white paper.

Widths of text are those of DejaVu Sans, which Matplotlib draws with. Browsers usually
draw ``sans-serif`` narrower, so what fits here fits there.
"""

import math
from collections.abc import Sequence
from unicodedata import normalize

from .words import shown

INK, SOFT, GRID, PAPER = "#222222", "#666666", "#DDDDDD", "#FFFFFF"

COLOURS = {
    "compute": "#0072B2",
    "copy": "#C58200",
    "wait": "#C4C4C4",
    "communicate": "#00A06B",
    "host": "#C14A81",
    "reference": "#585858",
}
"""The kinds of work, and the colour of each."""
OTHERS = (INK, "#5A2FC2", "#A8201A", "#9A7AF5")
"""Colours for whatever is of no kind."""
WORDS = COLOURS | {"copy": "#9A6400", "wait": "#666666", "communicate": "#007A52"}
"""Colours of text on white paper, some of them darker, so that they're legible."""
EDGES = {"wait": "#8A8A8A"}
"""Colours of the edge of what is too pale to stand out from white paper."""
INSIDE = {
    kind: INK if kind in ("copy", "wait", "communicate") else PAPER for kind in COLOURS
}
"""Colours of text inside something of this kind."""

# Widths of the characters from space to ~, in thousandths of the font's size.
_REGULAR = (
    *(318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337),
    *(636, 636, 636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531),
    *(1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787),
    *(603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500),
    *(500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612),
    *(635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838),
)
_BOLD = (
    *(348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365),
    *(696, 696, 696, 696, 696, 696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 580),
    *(1000, 774, 762, 734, 830, 683, 683, 821, 837, 372, 372, 775, 637, 995, 837, 850),
    *(733, 850, 770, 720, 682, 812, 774, 1103, 771, 724, 725, 457, 365, 457, 838, 500),
    *(500, 675, 716, 593, 716, 678, 435, 716, 712, 343, 343, 665, 343, 1042, 712, 687),
    *(716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582, 712, 365, 712, 838),
)
_OTHERS = 1000  # of any other character, at most

# ------------------------------------------------------------------ lettering


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return the width of a line of text, in the unit of the font's size."""
    widths = _BOLD if bold else _REGULAR
    # An accent doesn't make a letter wider.
    letters = "".join(normalize("NFD", letter)[0] for letter in shown(text))
    thousandths = (
        widths[ord(letter) - 32] if " " <= letter <= "~" else _OTHERS
        for letter in letters
    )
    return size * sum(thousandths) / 1000


def wrapped(text: str, width: float, size: float, bold: bool = False) -> list[str]:
    """Return text in lines that aren't wider than ``width``; long words are broken."""
    lines: list[str] = []
    for word in filter(None, shown(text).split(" ")):
        if lines and text_width(f"{lines[-1]} {word}", size, bold) <= width:
            lines[-1] += f" {word}"
            continue
        lines.append("")
        for letter in word:
            if lines[-1] and text_width(lines[-1] + letter, size, bold) > width:
                lines.append("")
            lines[-1] += letter
    return lines


def spread(
    wanted: Sequence[float], sizes: Sequence[float], low: float, high: float
) -> list[float]:
    """Return places for labels near the wanted ones, so that none overlap.

    Of all such places they are those with the least squares of the distances, within
    the limits if there's room.

    Args:
        wanted: the middles where the labels belong, in any order.
        sizes: how much room each needs.
        low, high: limits of all labels.
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    # Labels that touch move as a block, which is where the mean of them wants to be.
    blocks: list[tuple[list[int], float, float]] = []  # labels, their start, their size
    for i in order:
        labels, size = [i], sizes[i]
        start = min(max(wanted[i] - size / 2, low), high - size)
        while blocks and blocks[-1][1] + blocks[-1][2] > start:
            before, _, room = blocks.pop()
            labels, size = before + labels, room + size
            # Not by sum(), which rounds otherwise from Python 3.12 on.
            offset, total = 0.0, 0.0
            for label in labels:
                total += wanted[label] - sizes[label] / 2 - offset
                offset += sizes[label]
            start = total / len(labels)
            start = max(min(start, high - size), low)
        blocks.append((labels, start, size))
    places = [0.0] * len(wanted)
    for labels, start, _ in blocks:
        for label in labels:
            places[label] = start + sizes[label] / 2
            start += sizes[label]
    return places


# ------------------------------------------------------------------ quantities

_SHORT = ((1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
_BINARY = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"), (1, ""))
# The prefixes of each unit that takes some, and what follows them.
_PREFIXES = {
    "s": (_SHORT, "s"),
    "iB": (_BINARY, "B"),
    **{unit: (_DECIMAL, unit) for unit in ("B", "B/s", "FLOP", "FLOP/s", "bit/s")},
}


def quantity(value: float, unit: str = "", digits: int = 3) -> str:
    """Return a value with its unit: ``'12.3 ms'``, ``'4 kB'``, ``'50%'``, ``'1,024'``.

    Args:
        value: seconds for ``'s'``, bytes for ``'B'``, a fraction for ``'%'``.
        unit: ``'s'``, ``'B'``, ``'B/s'``, ``'FLOP'``, ``'FLOP/s'`` and ``'bit/s'`` take
            prefixes, ``'iB'`` takes binary ones; ``'year'`` is left out, as are
            separators; any other word is appended.
        digits: how many significant digits to write at most; whole numbers keep three
            more.
    """
    if unit == "%":
        return f"{number(100 * value, digits)}%"
    if unit == "year":
        return f"{value:.0f}"
    scale = scale_of(value, unit, digits)
    return _joined(number(value / scale, digits), _scaled(unit, scale))


def _joined(text: str, unit: str) -> str:
    return text + unit if unit in ("", "×") else f"{text} {unit}"


def scale_of(value: float, unit: str, digits: int = 3) -> float:
    """Return what a value is divided by, so that it suits a prefix of its unit."""
    if unit not in _PREFIXES or not value:
        return 1
    scales = [scale for scale, _ in _PREFIXES[unit][0]]
    return next((s for s in scales if _round(abs(value) / s, digits) >= 1), scales[-1])


def _round(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def _scaled(unit: str, scale: float) -> str:
    prefixes, name = _PREFIXES.get(unit, (((1, ""),), unit))
    return dict(prefixes)[scale] + name


def number(value: float, digits: int = 3) -> str:
    """Return a number with thousands separators and without needless zeros."""
    if not value:
        return "0"
    if not 1e-4 <= abs(value) < 1e15:
        return f"{value:.{digits}g}"
    if float(value).is_integer() and abs(value) < 10 ** (digits + 3):
        return f"{value:,.0f}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{round(value, decimals):,.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# ------------------------------------------------------------------ ticks


def linear_ticks(
    low: float, high: float, unit: str = "", most: int = 6, whole: bool = False
) -> list[tuple[float, str]]:
    """Return at most ``most`` round values from low to high, each with its text.

    Args:
        unit: as in `quantity`; all ticks have the same prefix.
        whole: whether only whole numbers may be ticks.
    """
    scale = scale_of(max(abs(low), abs(high)), unit)
    scale, factor = (1, 100) if unit == "%" else (scale, 1)
    first, last = low / scale * factor, high / scale * factor
    power = math.floor(math.log10((last - first) / most)) if last > first else 0
    steps = [m * 10.0**p for p in (power, power + 1) for m in (1, 2, 5)]
    if whole:
        steps = [1.0, *(step for step in steps if step > 1)]
    margin = 1e-9 * (last - first)
    for step in steps:
        begin = math.ceil((first - margin) / step)
        end = math.floor((last + margin) / step)
        if end - begin < most:
            break
    values = [i * step * scale / factor for i in range(begin, end + 1)]
    # Enough digits to tell one tick from the next.
    largest = max(abs(begin), abs(end))
    digits = max(6, len(str(largest)) + 1)
    return [(value, tick_text(value, unit, scale, digits)) for value in values]


def tick_text(value: float, unit: str, scale: float, digits: int = 6) -> str:
    """Return the text of a tick on an axis whose unit is scaled like this."""
    if unit in ("%", "year"):
        return quantity(value, unit, digits)
    text = number(value / scale, digits)
    return text if text == "0" else _joined(text, _scaled(unit, scale))


def moment_text(seconds: float, length: float) -> str:
    """Return a moment on an axis of this length, to a thousandth of it at least."""
    if not length:
        return "0 s"
    finest = 10.0 ** (math.floor(math.log10(length)) - 3)
    rounded = round(seconds / finest) * finest
    return tick_text(rounded, "s", scale_of(length, "s")) if rounded else "0 s"


def log_ticks(
    low: float, high: float, unit: str = "", base: int = 10, most: int = 6
) -> list[tuple[float, str]]:
    """Return at most ``most`` round values from low to high with their texts.

    They're powers of the base if there are at least three, else 1, 2, 5, 10 …, or as on
    a linear scale.
    """
    begin = math.ceil(math.log(low, base) - 1e-9)
    end = math.floor(math.log(high, base) + 1e-9)
    if end - begin >= 2:
        step = math.ceil((end - begin + 1) / most)
        values = [float(base) ** i for i in range(begin, end + 1, step)]
    else:
        power = math.floor(math.log10(low))
        fine = [m * 10.0**p for p in range(power, power + 4) for m in (1, 2, 5)]
        values = [v for v in fine if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)]
        if len(values) < 3:
            return linear_ticks(low, high, unit, most)
        values = values if len(values) <= most else values[::2]
    return [(value, quantity(value, unit, 6)) for value in values]
