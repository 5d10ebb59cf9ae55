"""Each lesson's page has its quiz before the exercises, and it needs no script."""

import re

import pytest

from d2l_gpu.quizzes import find_quiz
from tools.edition import ROOT
from tools.site.book import Edition


def text_of(site, name: str) -> str:
    return (site / name).read_text("utf-8")


def lessons(kind: str) -> list[str]:
    folder = ROOT / "notebooks" / "en" / "pytorch"
    return sorted(path.stem for path in folder.glob(f"{kind}[0-9]_*.ipynb"))


@pytest.mark.parametrize("name", lessons("[01]"))
def test_a_lesson_has_its_quiz_between_the_summary_and_the_exercises(site, name):
    text = text_of(site, f"en/pytorch/{name}.html")
    quiz = find_quiz("pytorch", name, "en", ROOT / "notebooks")
    places = [text.index(f'<section id="{each}') for each in ("summary", "exercises")]
    section = text.index('<section id="test-yourself"')
    assert places[0] < section < places[1]
    part = text[section : places[1]]
    for question in quiz.questions:
        assert question.text.html in part
        for option in question.options:
            assert f"<summary>{option.text.html}</summary>" in part
            assert option.why.html in part
    assert "d2l.quiz(" not in part
    assert "<script" not in part


def test_the_quiz_is_in_the_table_of_contents(site):
    text = text_of(site, "en/pytorch/03_copying.html")
    assert re.search(r'<a [^>]*href="#test-yourself">Test yourself</a>', text)


def test_lessons_without_a_quiz_offer_none(site, book):
    for name in lessons("A"):
        assert "test-yourself" not in text_of(site, f"en/pytorch/{name}.html")
    for name in book.lessons(Edition("en", "jax")):
        assert "test-yourself" not in text_of(site, f"en/jax/{name}.html")
