"""What is shown can be translated; columns are as wide as their widest text."""

import pytest

from d2l_gpu.vgpu.sim import words
from d2l_gpu.vgpu.sim.table import Table
from d2l_gpu.vgpu.sim.words import columns, in_english, padded, shown, translate_with


@pytest.fixture
def capitals():
    """A language in which all is said in capitals."""
    before = words._translate
    translate_with(str.upper)
    yield
    translate_with(before)


def test_nothing_is_translated_unless_a_program_asks_for_it():
    assert shown("a copy") == "a copy"
    assert shown("{low} to {high}", low="1", high="2") == "1 to 2"


def test_what_is_shown_is_translated(capitals):
    assert shown("a copy") == "A COPY"
    assert "KIND" in repr(Table(["kind"], [["virtual"]]))
    assert "VIRTUAL" in Table(["kind"], [["virtual"]])._repr_html_()


def test_english_ends_with_its_block_even_after_an_error(capitals):
    with pytest.raises(KeyError), in_english():
        assert shown("a copy") == "a copy"
        raise KeyError
    assert shown("a copy") == "A COPY"


@pytest.mark.parametrize(
    ("text", "wide"),
    [("", 0), ("abc", 3), ("hôte", 4), ("主机", 4), ("GPU 0 计算", 10)],
)
def test_wide_letters_take_two_columns(text, wide):
    assert columns(text) == wide
    for right in False, True:
        assert columns(padded(text, 12, right)) == 12
        assert padded(text, 12, right).strip() == text


def test_columns_of_a_table_are_aligned_in_every_script():
    table = Table(["复制次数", "n"], [["1", "24"], ["从", "400"]], ["n"])
    lines = repr(table).splitlines()
    assert {columns(line) for line in lines} == {columns(lines[0])}
