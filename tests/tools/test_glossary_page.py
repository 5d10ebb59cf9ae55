"""The glossary is one file, from which pages in all languages are made."""

from pathlib import Path

import polib
import pytest

from tests.helpers.toy_lessons import GOOD_LESSON, write_lesson
from tools.build import main
from tools.glossary_page import Terms, bold_terms
from tools.lesson import LessonError, parse_lesson
from tools.translate import main as translate

TERMS = """\
title = "Words"
introduction = "All of them."
term = "Term"
meaning = "Meaning"
lesson = "Lesson"

[01]
sum = "What is left when two have been added."
"prime factor" = "A prime that divides a number."

[A1]
"Latency" = "The \\"time\\" until it is there."
"""


@pytest.fixture
def toy(project):
    """A project in English and in toy, with a lesson, an appendix and a glossary."""
    write_lesson(project, GOOD_LESSON, "A1_more")
    locale = project / "lessons" / "locale"
    locale.mkdir()
    (locale / "languages.toml").write_text('xx.name = "Toyish"\n')
    (locale / "xx.tsv").write_text("Sum\tsumma | summ\nprime\tprimus\n")
    (project / "lessons" / "glossary.toml").write_text(TERMS)
    (project / "README.md").write_text(
        "<!-- from tools/readme.py -->\n<!-- end -->\n"
        "<!-- languages -->\n<!-- end of languages -->\n"
        "<!-- translated -->\n<!-- end of translated -->\n"
    )
    assert translate(["--root", str(project)]) == 0
    return project


def table(project, name: str) -> list[str]:
    text = (project / "docs" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.startswith("|")]


def test_the_page_has_each_term_with_its_lesson_and_its_names(toy, capsys):
    assert main(["--root", str(toy)]) == 0
    page = (toy / "docs" / "glossary.md").read_text(encoding="utf-8")
    head = "# Words\n\nEnglish · [Toyish](glossary.xx.md)\n\nAll of them.\n\n| Term |"
    assert head in page
    first = "[01](../notebooks/en/pytorch/01_toy.ipynb)"
    last = "[A1](../notebooks/en/pytorch/A1_more.ipynb)"
    assert table(toy, "glossary.md") == [
        "| Term | Meaning | Lesson | Toyish |",
        "| --- | --- | --- | --- |",
        f'| **Latency** | The "time" until it is there. | {last} | — |',
        f"| **prime factor** | A prime that divides a number. | {first} | — |",
        f"| **sum** | What is left when two have been added. | {first} | summa |",
    ]
    assert main(["--root", str(toy), "--check"]) == 0
    (toy / "lessons" / "glossary.toml").write_text(TERMS.replace("left", "there"))
    (toy / "docs" / "glossary.yy.md").write_text("")
    capsys.readouterr()
    assert main(["--root", str(toy), "--check"]) == 1
    said = capsys.readouterr().out
    assert "docs/glossary.yy.md: no lesson makes it; delete it" in said
    assert "glossary.md: it does not match" in said
    assert "glossary.xx.md: it does not match" in said


def test_definitions_are_translated_like_lessons(toy):
    path = toy / "lessons" / "locale" / "xx.po"
    file = polib.pofile(str(path))
    texts = {"Words": "Verba", "Meaning": "Sensus", "What is left": "Quod restat."}
    for entry in file:
        for begins, text in texts.items():
            if entry.msgid.startswith(begins):
                entry.msgstr = text
                assert entry.occurrences == [("lessons/glossary.toml", "")]
    file.save(str(path))
    assert main(["--root", str(toy)]) == 0
    page = (toy / "docs" / "glossary.xx.md").read_text(encoding="utf-8")
    assert "# Verba\n\n[English](glossary.md) · Toyish\n\nAll of them.\n" in page
    first = "[01](../notebooks/xx/pytorch/01_toy.ipynb)"
    assert table(toy, "glossary.xx.md")[0] == "| Term | Sensus | Lesson | Toyish |"
    assert table(toy, "glossary.xx.md")[-1] == (
        f"| **sum** | Quod restat. | {first} | summa |"
    )


def test_a_stale_definition_is_told_with_its_line(toy, capsys):
    assert translate(["--root", str(toy), "--check"]) == 0
    said = capsys.readouterr().out
    where = "xx: lessons/glossary.toml"
    assert f"{where}:8 “What is left when two have been added.” is" in said
    assert 'xx: lessons/glossary.toml:12 “The "time" until it is there.” is not' in said


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (TERMS.replace('"Words"', ""), "glossary.toml: Invalid value"),
        (TERMS.replace('title = "Words"\n', ""), "title must be a text"),
        (TERMS.replace("added.", "added"), "of 'sum' must be a sentence in one line"),
        (TERMS.replace("been added", "been | added"), "of 'sum' must be a sentence"),
        (TERMS.replace('"Latency"', "Sum"), "'Sum' is in lessons 01 and A1"),
        (TERMS.replace("[A1]", "[A]"), "A must be a table, named by a lesson's number"),
        (TERMS.replace("[A1]", "[02]"), "there is no lesson 02"),
    ],
)
def test_a_wrong_file_is_refused(toy, text, complaint, capsys):
    assert text != TERMS
    (toy / "lessons" / "glossary.toml").write_text(text)
    assert main(["--root", str(toy)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("glossary.toml: ") and complaint in said


def test_all_problems_of_the_file_are_told_at_once(tmp_path):
    path = tmp_path / "glossary.toml"
    path.write_text("[01]\na = 'no'\n[x]\n")
    with pytest.raises(LessonError) as error:
        Terms.read(path)
    assert len(str(error.value).splitlines()) == 7


def test_a_term_is_known_in_the_plural(tmp_path):
    path = tmp_path / "glossary.toml"
    path.write_text(TERMS)
    lesson_of = Terms.read(path).lesson_of
    assert lesson_of("sums") == lesson_of("Prime factors") == "01"
    assert lesson_of("latencies") == "A1"
    assert lesson_of("prime") is None and lesson_of("assume") is None


def test_terms_are_what_the_text_has_in_bold():
    text = GOOD_LESSON.replace(
        "One and one is two.",
        "The **sum** of **prime\nfactors**, not **Caution!** or\n`**code**`.\n\n"
        "> **In practice.** Use a **host**.\n\n```python\nf(**a, **b)\n```\n\n"
        "**You need no GPU.**",
    )
    lesson = parse_lesson(text, Path("pytorch/01_toy.md"))
    first = text.splitlines().index("The **sum** of **prime") + 1
    assert list(bold_terms(lesson)) == [
        (first, "sum"),
        (first, "prime factors"),
        (first + 4, "host"),
    ]
