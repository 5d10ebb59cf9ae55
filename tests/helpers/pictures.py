"""Where texts are in a picture, and how its colours look to different eyes."""

import itertools
import re
import xml.dom.minidom
from typing import NamedTuple

import numpy as np

from d2l_gpu.show.style import default_style
from d2l_gpu.vgpu.sim.drawing import text_width

# From linear RGB to how it looks with each kind of colour blindness, at its strongest:
# G. M. Machado, M. M. Oliveira and L. A. F. Fernandes, A Physiologically-based Model
# for Simulation of Color Vision Deficiency, IEEE Transactions on Visualization and
# Computer Graphics 15(6), 2009, the matrices for a severity of 1.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
# From linear RGB to CIE XYZ, and the white point (IEC 61966-2-1, D65).
_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
_WHITE = _XYZ @ np.ones(3)


class Box(NamedTuple):
    """A text and the rectangle around it, with y upwards or downwards."""

    text: str
    left: float
    right: float
    low: float
    high: float

    def covers(self, other: "Box", slack: float) -> bool:
        return (
            min(self.right, other.right) - max(self.left, other.left) > slack
            and min(self.high, other.high) - max(self.low, other.low) > slack
        )


def problems(boxes: list[Box], width: float, height: float, slack: float) -> list[str]:
    """Return what's wrong with texts in a picture: outside of it, or on each other."""
    found = [
        f"{box.text!r} is not inside"
        for box in boxes
        if min(box.left, box.low) < -slack
        or box.right > width + slack
        or box.high > height + slack
    ]
    for a, b in itertools.combinations(boxes, 2):
        if a.covers(b, slack):
            found.append(f"{a.text!r} and {b.text!r} overlap")
    return found


def figure_problems(plot) -> list[str]:
    """Return what's wrong with the texts of a figure that Matplotlib draws."""
    with default_style():
        figure = plot.fig
        figure.draw_without_rendering()
        texts = [*figure.texts]
        for axes in figure.axes:
            texts += [*axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels()]
        boxes = []
        for text in texts:
            if text.get_text() and not text.get_rotation():
                edges = text.get_window_extent()
                boxes.append(
                    Box(text.get_text(), edges.x0, edges.x1, edges.y0, edges.y1)
                )
    # A line of text is drawn on whole pixels.
    return problems(boxes, figure.bbox.width, figure.bbox.height, slack=1.5)


def svg_texts(svg: str) -> list[Box]:
    """Return the texts of one of our SVG pictures and the rectangles around them."""
    document = xml.dom.minidom.parseString(svg)
    boxes = []
    for node in document.getElementsByTagName("text"):
        text = node.firstChild.data
        size = float(node.getAttribute("font-size") or 12)
        bold = node.getAttribute("font-weight") == "bold"
        x, y = float(node.getAttribute("x")), float(node.getAttribute("y"))
        width = text_width(text, size, bold)
        group = node.parentNode
        if moved := re.match(r"translate\(0 (.+)\)", group.getAttribute("transform")):
            y += float(moved[1])
        anchor = node.getAttribute("text-anchor") or group.getAttribute("text-anchor")
        x -= {"": 0, "middle": width / 2, "end": width}[anchor]
        boxes.append(Box(text, x, x + width, y - 0.76 * size, y + 0.24 * size))
    return boxes


def svg_problems(svg: str) -> list[str]:
    """Return what's wrong with the texts of one of our SVG pictures."""
    root = xml.dom.minidom.parseString(svg).documentElement
    width, height = (float(root.getAttribute(x)) for x in ("width", "height"))
    return problems(svg_texts(svg), width, height, slack=0.5)


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours, from 1 to 21 (WCAG 2.2)."""
    dark, light = sorted(float(_linear(x) @ _XYZ[1]) for x in (first, second))
    return (light + 0.05) / (dark + 0.05)


def difference(first: str, second: str, blindness: str) -> float:
    """Return how different two colours look, in CIE 1976 units (CIELAB)."""
    matrix = BLINDNESS[blindness]
    a, b = (_lab(np.clip(matrix @ _linear(x), 0, 1)) for x in (first, second))
    return float(np.linalg.norm(a - b))


def _linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(
        values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4
    )


def _lab(linear: np.ndarray) -> np.ndarray:
    ratio = _XYZ @ linear / _WHITE
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
