"""The map of a caching allocator's segments: its numbers, its text and its picture."""

import itertools
import re
import xml.dom.minidom

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim.drawing import COLOURS, text_width
from d2l_gpu.vgpu.sim.memory_map import MOST_ROWS, WIDTH, MemoryMap, Piece

KIB, MIB, GIB = 2**10, 2**20, 2**30

PIECES = st.builds(Piece, st.integers(1, 2**28).map(lambda n: 512 * n), st.booleans())
SEGMENTS = st.lists(st.lists(PIECES, min_size=1, max_size=5), max_size=60)
WANTED = st.none() | st.integers(1, 2**40)


def elements(drawing: MemoryMap, name: str) -> list:
    document = xml.dom.minidom.parseString(drawing.svg())
    return document.getElementsByTagName(name)


def number(element, name: str) -> float:
    return float(element.getAttribute(name) or 0)


@given(SEGMENTS)
def test_every_byte_is_in_use_or_free(segments):
    drawing = MemoryMap(segments)
    pieces = [piece for segment in segments for piece in segment]
    assert drawing.reserved == sum(piece.nbytes for piece in pieces)
    assert drawing.allocated == sum(piece.nbytes for piece in pieces if piece.used)
    assert drawing.unallocated == drawing.reserved - drawing.allocated
    free = [piece.nbytes for piece in pieces if not piece.used]
    assert drawing.largest_free == max(free, default=0)


@given(SEGMENTS, WANTED)
def test_everything_is_inside_the_picture_and_no_text_is_cut_off(segments, wanted):
    drawing = MemoryMap(segments, "simulated (T4)", wanted)
    height = number(elements(drawing, "svg")[0], "height")
    for rect in elements(drawing, "rect"):
        assert number(rect, "x") >= 0
        assert number(rect, "x") + number(rect, "width") <= WIDTH + 0.5
        assert number(rect, "y") + number(rect, "height") <= height
    lines: dict[float, list[tuple[float, float]]] = {}
    for text in elements(drawing, "text"):
        size = float(text.getAttribute("font-size") or 12)
        assert size >= 12
        bold = text.getAttribute("font-weight") == "bold"
        width = text_width(text.firstChild.data, size, bold)
        anchor = text.getAttribute("text-anchor") or "start"
        begin = (
            number(text, "x") - {"start": 0, "middle": 0.5, "end": 1}[anchor] * width
        )
        assert begin >= -0.5
        assert begin + width <= WIDTH
        assert number(text, "y") <= height
        lines.setdefault(number(text, "y"), []).append((begin, begin + width))
    for spans in lines.values():  # texts in a line don't overlap
        spans.sort()
        for (_, end), (begin, _) in itertools.pairwise(spans):
            assert end <= begin


@given(SEGMENTS, WANTED)
def test_the_text_fits_a_terminal_and_tells_the_same_as_the_picture(segments, wanted):
    drawing = MemoryMap(segments, "simulated (T4)", wanted)
    lines = repr(drawing).splitlines()
    assert max(map(len, lines)) <= 88
    assert lines[0] == elements(drawing, "title")[0].firstChild.data
    described = elements(drawing, "desc")[0].firstChild.data
    assert lines[1] in described
    assert ("wanted" in described) == (wanted is not None)
    assert ("?" in "".join(lines)) == (wanted is not None)


def test_a_request_that_no_free_piece_can_serve():
    segments = [
        [Piece(300 * MIB, True), Piece(900 * MIB, False)],
        [Piece(500 * MIB, False), Piece(100 * MIB, True)],
    ]
    drawing = MemoryMap(segments, "simulated (T4)", GIB)
    assert drawing.title() == "1.37 GiB free, in 2 pieces of at most 900.00 MiB"
    assert repr(drawing).splitlines()[1:6] == [
        "1.76 GiB reserved in 2 segments, 400.00 MiB of it in use; simulated (T4)",
        "",
        " 1024.00 MiB  " + 51 * "?",
        "    1.17 GiB  " + 15 * "#" + 45 * ".",
        "  600.00 MiB  " + 25 * "." + 5 * "#",
    ]


@given(SEGMENTS)
def test_in_the_text_each_segment_with_a_block_in_use_shows_one(segments):
    drawing = MemoryMap(segments)
    bars = repr(drawing).splitlines()[3:]
    for bar, segment in zip(bars, drawing.segments[:MOST_ROWS], strict=False):
        assert ("#" in bar) == any(piece.used for piece in segment)


@pytest.mark.parametrize(
    ("segments", "title"),
    [
        ([], "No memory is reserved"),
        ([[Piece(2 * MIB, True)]], "All 2.00 MiB are in use"),
        ([[Piece(2 * MIB, False)]], "2.00 MiB free, in one piece"),
    ],
)
def test_titles_of_what_is_not_fragmented(segments, title):
    assert MemoryMap(segments).title() == title


def test_of_many_segments_the_largest_are_drawn_and_the_others_counted():
    segments = [[Piece(i * MIB, True)] for i in range(1, MOST_ROWS + 3)]
    drawing = MemoryMap(segments)
    (rest,) = (
        text.firstChild.data
        for text in elements(drawing, "text")
        if "smaller" in text.firstChild.data
    )
    assert rest == "and 2 smaller ones, 3.00 MiB"
    assert rest in repr(drawing)
    fills = [rect.getAttribute("fill") for rect in elements(drawing, "rect")]
    assert fills.count(COLOURS["compute"]) == MOST_ROWS + 1  # one is the legend's


def test_the_axis_counts_in_units_that_people_know():
    drawing = MemoryMap([[Piece(5 * GIB // 4, True)]])
    texts = [text.firstChild.data for text in elements(drawing, "text")]
    ticks = [text for text in texts if re.fullmatch(r"0|[\d.]+ [KMG]iB", text)]
    assert ticks == ["0", "256 MiB", "512 MiB", "768 MiB", "1 GiB", "1.25 GiB"]
