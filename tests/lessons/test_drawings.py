"""Drawings are readable on any page, and colours mean what they mean elsewhere."""

import re
import xml.dom.minidom

import pytest

from d2l_gpu.vgpu.sim.drawing import COLOURS, OTHERS
from tests.helpers.paths import REPOSITORY
from tests.helpers.pictures import contrast

BADGES = "open_in_"
DRAWINGS = [
    path
    for path in sorted((REPOSITORY / "lessons" / "figures").glob("*.svg"))
    if not path.name.startswith(BADGES)
]
NAMED = {"white": "#FFFFFF", "black": "#000000"}


@pytest.fixture(params=DRAWINGS, ids=lambda path: path.stem)
def drawing(request) -> xml.dom.minidom.Element:
    return xml.dom.minidom.parse(str(request.param)).documentElement


def elements(drawing):
    return list(drawing.getElementsByTagName("*"))


def test_a_drawing_has_a_white_background(drawing):
    _, _, width, height = drawing.getAttribute("viewBox").split()
    background = next(x for x in elements(drawing) if x.tagName == "rect")
    sizes = background.getAttribute("width"), background.getAttribute("height")
    assert sizes in {(width, height), ("100%", "100%")}
    colour = background.getAttribute("fill")
    assert NAMED.get(colour, colour).upper() in {"#FFFFFF", "#FFF"}


def test_text_in_a_drawing_is_large_enough(drawing):
    sizes = [
        float(x.getAttribute("font-size").removesuffix("px"))
        for x in [drawing, *elements(drawing)]
        if x.getAttribute("font-size")
    ]
    assert min(sizes) >= 12


def test_strong_colours_in_a_drawing_are_those_of_all_pictures(drawing):
    found = set(re.findall(r"#[0-9A-Fa-f]{6}\b", drawing.toxml()))
    for colour in found:
        channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        pale = contrast(colour, "#FFFFFF") < 2  # a tint, such as of a background
        grey = max(channels) - min(channels) < 16
        if not (pale or grey):
            assert colour.upper() in {*COLOURS.values(), *OTHERS}, colour


def test_the_page_on_pictures_lists_all_colours():
    page = (REPOSITORY / "docs" / "pictures.md").read_text("utf-8")
    for kind, colour in COLOURS.items():
        assert f"| `{kind}` | `{colour}` |" in page
    assert set(re.findall(r"#[0-9A-F]{6}", page)) == {*COLOURS.values(), *OTHERS}
