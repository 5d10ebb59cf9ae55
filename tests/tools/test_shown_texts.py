"""Messages are the texts in code, with a field for each thing that it computes."""

import pytest

from d2l_gpu.common.messages import Catalogue
from tools.shown_texts import is_prose, texts_in


def messages(code: str, keys: bool = False) -> list[str]:
    return [text.message for text in texts_in(code, keys=keys)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('no copies')", ["no copies"]),
        (
            "print(f'{n} copies in {log.seconds * 1e6:.0f} µs')",
            ["{n} copies in {seconds} µs"],
        ),
        ("print(f'{len(log)} of {len(log)} copies')", ["{log} of {log} copies"]),
        ("print(f'{a.loss} and {b.loss} at last')", ["{loss} and {loss2} at last"]),
        (
            'f\'{n} cop{"y" if n == 1 else "ies"} made\'',
            ["{n} copy made", "{n} copies made"],
        ),
        ("f'{n} GPU{\"s\" * (n != 1)} found'", ["{n} GPU found", "{n} GPUs found"]),
        ("'it returns ' + f'{x!r}' + ' again'", ["it returns {x} again"]),
        ("x = ('two parts of '\n 'a sentence')", ["two parts of a sentence"]),
        ("f'the set {{{x}}} is'", ["the set {{{x}}} is"]),
        ("show(f'{x} is here', 'and there too')", ["{x} is here", "and there too"]),
        ("f'{\"one by one\" if a else b} it goes'", ["{value} it goes", "one by one"]),
        ("f'it has {count(\"a copy\")} now'", ["it has {count} now", "a copy"]),
        ("'it takes {share} of it'.format(share=3)", ["it takes {share} of it"]),
    ],
)
def test_each_text_is_a_message(code, expected):
    assert sorted(messages(code)) == sorted(expected)


@pytest.mark.parametrize(
    "code",
    [
        "'''A docstring of words.'''",
        "x = found['the best one']",
        "raise ValueError('this is for programmers')",
        "assert x, 'this is for programmers'",
        "x == 'the best one'",
        "torch.device('cuda:0')",
        "f'{x}, {y}'",
        "f'{t:.1f} ms'",
        "'X.to(gpu)'",
        "'<rect width=\"4 of these\"/>'",
        "'the words of a list'.split()",
        "re.compile('a word( and another)?')",
        "'export NAME={name} of it'",
        "'import sys; print(here and there)'",
    ],
)
def test_what_no_reader_sees_is_none(code):
    assert messages(code) == []


def test_errors_are_where_a_command_says_them():
    code = "raise ValueError(f'there is no folder {name}')"
    found = texts_in(code, keys=False, errors=True)
    assert [text.message for text in found] == ["there is no folder {name}"]


def test_keys_are_texts_where_they_are_shown():
    code = "d2l.bars({'as written': 1, 'in one copy': 2})"
    assert messages(code) == []
    assert messages(code, keys=True) == ["as written", "in one copy"]


def test_lines_are_those_of_the_code():
    code = "x = 1\nprint('the first one')\nprint('a', 'the second one')\n"
    assert [text.line for text in texts_in(code, keys=False)] == [2, 3]


@pytest.mark.parametrize("n", [0, 1, 2, 17])
def test_what_the_code_says_is_found_by_its_message(n):
    code = "f\"{n} GPU{'s' * (n != 1)} {'wait' if n > 1 else 'waits'} for {name}\""
    said = eval(code, {"n": n, "name": "nobody"})
    catalogue = Catalogue({x: x.replace("GPU", "XPU") for x in messages(code)})
    assert catalogue.localized(said) == said.replace("GPU", "XPU")


def test_code_names_and_units_are_no_prose():
    for text in "V100", "ms", "GB/s", "a_name", "x.y", "{a}: {b} MB", "--option":
        assert not is_prose(text), text
    for text in "ratio", "time per step", "{n} copies", "GPU time":
        assert is_prose(text), text
