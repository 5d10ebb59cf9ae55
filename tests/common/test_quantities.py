"""Numbers are shown as a language writes them, and keep their values."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from d2l_gpu.common.alignment import aligned
from d2l_gpu.common.messages import Catalogue
from d2l_gpu.common.quantities import Style, is_number
from d2l_gpu.vgpu.sim.drawing import quantity
from tests.helpers.paths import REPOSITORY
from tools.languages import read_languages

LANGUAGES = read_languages(REPOSITORY / "lessons")
STYLES = {code: Style.of(each.written) for code, each in LANGUAGES.items()}
FRENCH, PORTUGUESE = STYLES["fr"], STYLES["pt"]

values = st.floats(-1e15, 1e15).filter(lambda x: not x or abs(x) >= 1e-4)


@pytest.mark.parametrize("code", LANGUAGES)
@given(value=values, unit=st.sampled_from(["", "s", "B", "iB", "%", "FLOP/s", "×"]))
def test_a_number_in_another_style_has_the_same_value(code, value, unit):
    english = quantity(value, unit, 4)
    assume("e" not in english)  # as Python writes it, in each language
    written = STYLES[code].written(english)
    assert LANGUAGES[code].numbers(written) == LANGUAGES["en"].numbers(english)
    # What has been translated may be part of what is translated once more.
    assert STYLES[code].written(written) == written


@pytest.mark.parametrize(
    ("english", "french", "portuguese"),
    [
        ("1,365", "1\u202f365", "1.\u2060365"),
        ("2.05 ms", "2,05 ms", "2,05 ms"),
        ("31.4 GB/s", "31,4\u00a0Go/s", "31,4 GB/s"),
        ("12%", "12\u00a0%", "12%"),
        ("0.125", "0,125", "0,125"),
        ("1.125", "1,\u2060125", "1,\u2060125"),
        ("3 × 1,024 images", "3 × 1\u202f024 images", "3 × 1.\u2060024 images"),
        ("Llama 3.1 70B, 1.5", "Llama 3.1 70B, 1,5", "Llama 3.1 70B, 1,5"),
        ("PyTorch 2.13.0", "PyTorch 2.13.0", "PyTorch 2.13.0"),
        ("vgpu:0, 4 B", "vgpu:0, 4\u00a0o", "vgpu:0, 4 B"),
        ("(2, 3), 1.5", "(2, 3), 1,5", "(2, 3), 1,5"),
        ("x = 1.5", "x = 1.5", "x = 1.5"),
        ("tensor([1.5])", "tensor([1.5])", "tensor([1.5])"),
        ("3.4e+38", "3.4e+38", "3.4e+38"),
        ("03.5", "03.5", "03.5"),
    ],
)
def test_numbers_and_units_in_a_text(english, french, portuguese):
    assert FRENCH.written(english) == french
    assert PORTUGUESE.written(english) == portuguese


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", True),
        ("-1,024.5 GB", True),
        ("≈ 3%", True),
        ("V100", False),
        ("3 and 4", False),
        ("", False),
    ],
)
def test_what_is_a_number(text, expected):
    assert is_number(text) is expected


def test_fields_are_written_anew_but_those_that_name_a_version_or_an_exercise():
    catalogue = Catalogue(
        LANGUAGES["fr"].written
        | {
            "a step takes {time}": "un pas prend {time}",
            "PyTorch {version} is there": "PyTorch {version} est là",
            "exercise {number} is right": "l’exercice {number} est juste",
            "the code is {code_}": "le code est {code_}",
        }
    )
    for english, french in [
        ("a step takes 1,024.5 ms", "un pas prend 1\u202f024,5 ms"),
        ("PyTorch 2.13 is there", "PyTorch 2.13 est là"),
        ("exercise 13.1 is right", "l’exercice 13.1 est juste"),
        ("the code is 0.5", "le code est 0.5"),
        ("0.5", "0.5"),  # printed by a program
        ("loss 0.5", "loss 0.5"),
    ]:
        assert catalogue.localized(english) == french


words = st.text("abcdefg", min_size=1, max_size=12)


@given(st.lists(st.tuples(words, words, st.integers(2, 9)), min_size=1, max_size=6))
def test_columns_stay_in_line_where_there_is_room(rows):
    original = "".join(f"{word}{' ' * gap}" for word, _, gap in rows) + "."
    text = "".join(f"{its}{' ' * gap}" for _, its, gap in rows) + "."
    found = aligned(text, original)
    assert found.split() == text.split()
    place = 0
    for (word, _, gap), its in zip(rows, found.split(), strict=False):
        assert "  " + its in "  " + found
        room = len(word) + gap >= len(its) + 2
        place += len(word) + gap
        if not room:
            return  # from here on, they are where there's room
    assert found.index(".") == len(original) - 1


def test_numbers_stay_aligned_at_their_ends():
    original = "one     1,024 GB\ntwo        12%"
    text = "premier     1\u202f024\u00a0Go\ndeux        12\u00a0%"
    first, second = aligned(text, original).split("\n")
    assert first == "premier  1\u202f024\u00a0Go"
    assert second == "deux      12\u00a0%"
