"""A drawing in another language says the same in the same places, and it fits there."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim.drawing import text_width
from tests.helpers.paths import REPOSITORY
from tools.drawings import messages_in, translated

DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" font-size="13">\n'
    '<text x="4" y="9">two parts</text>\n'
    '<text x="4" y="29" font-size="20">one &lt; <tspan>two parts</tspan></text>\n'
    "<title>two parts</title></svg>"
)
SIZE = re.compile(r'<text[^>]* font-size="([\d.]+)"')


def in_words(words: dict[str, str]):
    return translated(DRAWING, lambda text: words.get(text, text))


def test_only_lines_of_text_are_translated():
    found = in_words({"two parts": "deux <b>", "one <": "un <"})
    assert found.count("deux &lt;b&gt;") == 2
    assert ">un &lt; <tspan>" in found
    assert "<title>two parts</title>" in found
    assert in_words({}) == DRAWING


@given(text=st.text("mn ", min_size=1, max_size=18).filter(str.strip))
def test_a_longer_text_has_smaller_letters_but_legible_ones(text):
    text = text.strip()
    found = in_words({"two parts": text})
    (line,) = re.findall("<text[^>]*>[^<]*</text>", found)
    own = SIZE.search(line)
    size = float(own[1]) if own else 13.0
    assert 9 <= size <= 13
    width, room = text_width(text, size), 1.1 * text_width("two parts", 13)
    assert width <= 1.01 * room or size == 9


@pytest.mark.parametrize(
    "path",
    sorted((REPOSITORY / "lessons" / "figures").glob("*.svg")),
    ids=lambda path: path.stem,
)
def test_all_texts_of_a_drawing_are_found_where_they_are_translated(path):
    content = path.read_text("utf-8")
    wanted = {
        each.text.replace("{{", "{").replace("}}", "}")
        for each in messages_in(path.parents[1])
        if each.places[0] == f"figures/{path.name}"
    }
    seen = set()
    translated(content, lambda text: seen.add(text) or text)
    assert wanted <= seen
