"""Translations: a PO file and a line of configuration make an edition, which tells what
of it is missing or stale."""

import nbformat
import polib
import pytest
from conftest import GOOD_LESSON, write_lesson

from tools import readme
from tools.build import main as build
from tools.edition import Project
from tools.notebook import cells_by_id
from tools.translate import main as translate
from tools.translation import Translation
from tools.translation_checks import main as check

HEADER = """\
+++ {"key": "header-languages"}

${languages}

+++ {"key": "header-translated"}

Translated: ${share} %

+++ {"key": "notice-missing"}

*Not translated.*

+++ {"key": "notice-stale"}

*Stale.*
"""


@pytest.fixture
def toy(project):
    """A project in English and in toy, which is not translated yet."""
    (project / "lessons" / "header.md").write_text(
        GOOD_LESSON.partition("+++")[0] + HEADER
    )
    locale = project / "lessons" / "locale"
    locale.mkdir()
    (locale / "languages.toml").write_text('xx = "Toyish"\n')
    assert translate(["--root", str(project)]) == 0
    return project


def po(project) -> polib.POFile:
    return polib.pofile(str(project / "lessons" / "locale" / "xx.po"))


def fill(project, **texts: str) -> None:
    """Translate messages, by their keys with _ for -."""
    file = po(project)
    for entry in file:
        key = entry.msgctxt.partition("/")[2].replace("-", "_")
        if key in texts:
            entry.msgstr, entry.flags = texts[key], []
    file.save(str(project / "lessons" / "locale" / "xx.po"))


def notebook(project, language: str = "xx"):
    path = project / "notebooks" / language / "pytorch" / "01_toy.ipynb"
    return nbformat.read(path, as_version=4)


def test_all_prose_becomes_messages_and_nothing_else(toy):
    found = {entry.msgctxt: entry.msgid for entry in po(toy)}
    assert list(found) == [
        "header/header-translated",
        "header/notice-missing",
        "header/notice-stale",
        "01_toy/title",
        "01_toy/summary",
        "01_toy/exercises",
    ]
    assert found["01_toy/summary"] == "## Summary\n\nOne and one is two."


def test_a_file_and_a_line_make_an_edition_with_the_outputs_of_english(toy):
    fill(toy, summary="## Summa\n\nI et I II.", notice_missing="*Non.*")
    assert build(["--root", str(toy)]) == 0
    english, other = (cells_by_id(notebook(toy, each)) for each in ("en", "xx"))
    assert list(other) == [*list(english)[:2], "header-translated", *list(english)[2:]]
    assert other["summary"].source == "## Summa\n\nI et I II."
    assert other["exercises"].source == "## Exercises\n\n1. Subtract.\n\n*Non.*"
    assert other["header-translated"].source.startswith("Translated: 33 %\n")
    for key in "add", "multiply":
        assert other[key] == english[key]
    assert "![Two boxes](data:image/png;base64," in other["title"].source
    line = other["header-languages"].source
    assert line.endswith(" · Toyish") and "/notebooks/en/pytorch/01_toy.ipynb)" in line
    assert "/notebooks/xx/" in english["header-languages"].source
    assert build(["--root", str(toy), "--check"]) == 0


README = """\
+++ {"key": "readme-title"}

# Learn

${languages}

+++ {"key": "readme-run"}

Run `it --language ${language}`: ${share} % done.

${lessons}
"""


def test_each_language_has_a_readme_of_its_own(toy, capsys):
    front = GOOD_LESSON.partition("+++")[0]
    (toy / "lessons" / "readme.md").write_text(front + README)
    english, other = toy / "README.md", toy / "README.xx.md"
    english.write_text("# A\n")
    translate(["--root", str(toy)])
    fill(toy, title="# T", readme_title="# Disce\n\n${languages}")
    assert build(["--root", str(toy)]) == 1
    assert "README.md has no lines <!-- from" in capsys.readouterr().err
    marks = [
        getattr(readme, name)
        for part in ("", "_LANGUAGES", "_SHARES")
        for name in (f"BEGIN{part}", f"END{part}")
    ]
    english.write_text("\n".join(["# A", *marks, ""]))
    assert build(["--root", str(toy)]) == 0
    assert "English · [Toyish](README.xx.md)" in english.read_text()
    assert "| [Toyish](README.xx.md) | `xx` | 25 % |" in english.read_text()
    link = "notebooks/xx/pytorch/01_toy.ipynb"
    said = other.read_text()
    assert said.startswith("<!-- from lessons/readme.md and lessons/locale/xx.po")
    assert "\n\n# Disce\n\n[English](README.md) · Toyish\n\nRun `it -" in said
    assert "--language xx`: 25 % done.\n\n| PyTorch | Colab |\n" in said
    assert f"\n| [01 T]({link}) | [Colab](https://colab." in said
    assert f"/{link}) |\n\n*Not translated.*\n" in said
    assert build(["--root", str(toy), "--check"]) == 0
    other.write_text(said.replace("Disce", "Doce"))
    other.with_name("README.yy.md").write_text("")
    capsys.readouterr()
    assert build(["--root", str(toy), "--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "README.yy.md: no lesson makes it; delete it",
        "README.xx.md: it is not as the lessons and their translations say",
    ]


def test_a_name_that_no_readme_knows_is_told(toy, capsys):
    front = GOOD_LESSON.partition("+++")[0]
    text = front + README.replace("${share}", "${shore}")
    (toy / "lessons" / "readme.md").write_text(text)
    assert build(["--root", str(toy)]) == 1
    assert "readme.md, in 'xx': 'shore' is none of language" in capsys.readouterr().err


@pytest.mark.parametrize("program", [translate, check])
def test_a_language_that_is_not_listed_is_told(toy, capsys, program):
    assert program(["--root", str(toy), "yy"]) == 1
    said = "there is no translation into 'yy'; the languages are: en, xx\n"
    assert capsys.readouterr().err == said


def test_a_changed_sentence_is_told_and_shown(toy, capsys):
    fill(toy, summary="## Summa\n\nI et I II.", title="# T", exercises="## E")
    fill(toy, header_translated="${share}", notice_missing="*N*", notice_stale="*S*")
    assert translate(["--root", str(toy), "--check"]) == 0
    build(["--root", str(toy)])
    write_lesson(toy, GOOD_LESSON.replace("is two.", "makes two."))
    capsys.readouterr()
    assert translate(["--root", str(toy), "--check"]) == 1
    assert capsys.readouterr().out.startswith("xx: 01_toy/summary is stale")
    assert build(["--root", str(toy), "--check"]) == 1
    assert "notebooks/xx/pytorch/01_toy.ipynb: cell summary" in capsys.readouterr().out
    for merged in False, True:  # it is seen before the files are merged, and after
        if merged:
            translate(["--root", str(toy)])
        build(["--root", str(toy), "--language", "xx"])
        shown = cells_by_id(notebook(toy))["summary"].source
        assert shown == "## Summary\n\nOne and one makes two.\n\n*S*"
    (entry,) = [each for each in po(toy) if each.msgctxt == "01_toy/summary"]
    assert entry.fuzzy and entry.previous_msgid == "## Summary\n\nOne and one is two."
    assert entry.msgstr == "## Summa\n\nI et I II."
    write_lesson(toy, GOOD_LESSON.replace("is two.", "are two."))
    translate(["--root", str(toy)])
    (entry,) = [each for each in po(toy) if each.msgctxt == "01_toy/summary"]
    assert entry.previous_msgid == "## Summary\n\nOne and one is two."


def test_a_cell_with_a_new_key_keeps_its_translation(toy):
    fill(toy, summary="## Summa\n\nI et I II.")
    write_lesson(toy, GOOD_LESSON.replace('"summary"', '"in-short"'))
    translate(["--root", str(toy)])
    found = {entry.msgctxt: entry for entry in po(toy)}
    assert found["01_toy/in-short"].msgstr == "## Summa\n\nI et I II."
    assert not found["01_toy/in-short"].fuzzy
    assert "01_toy/summary" not in found


def test_what_nobody_wants_any_more_is_kept_as_obsolete(toy, capsys):
    fill(toy, summary="## Summa\n\nI et I II.")
    head, _, tail = GOOD_LESSON.partition('+++ {"key": "summary"}')
    write_lesson(toy, head + tail[tail.index("+++") :])
    assert translate(["--root", str(toy), "--check"]) == 1
    assert "01_toy/summary is no cell" in capsys.readouterr().out
    translate(["--root", str(toy)])
    (gone,) = [entry for entry in po(toy) if entry.obsolete]
    assert gone.msgstr == "## Summa\n\nI et I II."


def test_the_same_key_for_several_frameworks_is_several_messages(toy):
    summary = '+++ {"key": "summary"}\n\n## Summary\n\nOne and one is two.\n\n'
    assert summary in GOOD_LESSON
    both = "".join(
        summary.replace('"summary"', f'"summary", "tags": ["{tag}"]').replace(
            "two", tag
        )
        for tag in ("pytorch", "jax")
    )
    write_lesson(toy, GOOD_LESSON.replace(summary, both))
    translate(["--root", str(toy)])
    file = po(toy)
    contexts = {entry.msgctxt for entry in file}
    assert {"01_toy/summary (pytorch)", "01_toy/summary (jax)"} <= contexts
    for entry in file:
        entry.msgstr = f"{entry.msgid}!"
    file.save(str(toy / "lessons" / "locale" / "xx.po"))
    build(["--root", str(toy)])
    cells = cells_by_id(notebook(toy))
    assert cells["summary"].source == "## Summary\n\nOne and one is pytorch.!"
    assert cells["header-translated"].source == "Translated: 100 %!"


def test_merging_twice_changes_nothing(toy, capsys):
    fill(toy, summary="## Summa")
    translate(["--root", str(toy)])
    capsys.readouterr()
    translate(["--root", str(toy)])
    assert (
        capsys.readouterr().out == "xx.po: unchanged, 16 % of 6 messages translated\n"
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("languages.toml", "xx", "locale/languages.toml: "),
        ("xx.po", "nonsense\n", "locale/xx.po: "),
        (
            "xx.po",
            'msgctxt "a"\nmsgid "b"\nmsgstr ""\n\nmsgctxt "a"\nmsgid "c"\nmsgstr ""\n',
            "locale/xx.po: several messages are a",
        ),
    ],
)
def test_broken_files_are_told_in_a_sentence(toy, capsys, name, text, said):
    (toy / "lessons" / "locale" / name).write_text(text)
    for program in build, translate:
        assert program(["--root", str(toy)]) == 1
        error = capsys.readouterr().err
        assert said in error and "Traceback" not in error


def test_a_translation_that_is_not_there_is_missing_as_a_whole(tmp_path):
    project = Project(tmp_path)
    assert project.languages == {"en": "English"} and project.translations == {}
    assert Translation("xx", tmp_path / "xx.po").entries == {}
