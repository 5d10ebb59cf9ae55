"""Translations: a PO file and an entry in a table make an edition, which tells what of
it is missing or stale."""

import nbformat
import polib
import pytest

from tests.helpers.toy_lessons import FRONT_MATTER, GOOD_LESSON, write_lesson
from tools import readme
from tools.build import main as build
from tools.edition import Project
from tools.languages import Language
from tools.messages import FOLDER
from tools.notebook import cells_by_id
from tools.paragraphs import paragraphs, replaced
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
    (project / "lessons" / "header.md").write_text(FRONT_MATTER + HEADER)
    locale = project / "lessons" / "locale"
    locale.mkdir()
    (locale / "languages.toml").write_text('xx.name = "Toyish"\n')
    assert translate(["--root", str(project)]) == 0
    return project


def po(project) -> polib.POFile:
    return polib.pofile(str(project / "lessons" / "locale" / "xx.po"))


def fill(project, texts: dict[str, str], context: str | None = None) -> None:
    """Translate messages, given by how their English begins."""
    file = po(project)
    for begins, text in texts.items():
        found = [
            entry
            for entry in file
            if entry.msgid.startswith(begins) and not entry.msgctxt
        ]
        (entry,) = [entry for entry in found if not entry.obsolete]
        if context is not None:
            entry = polib.POEntry(msgctxt=context, msgid=entry.msgid)
            file.append(entry)
        entry.msgstr, entry.flags, entry.previous_msgid = text, [], None
    file.save(str(project / "lessons" / "locale" / "xx.po"))


def entry_of(project, begins: str) -> polib.POEntry:
    """The only message whose English begins so."""
    (entry,) = [
        each
        for each in po(project)
        if each.msgid.startswith(begins) and not each.obsolete
    ]
    return entry


def prose(project, language: str = "xx") -> str:
    """The prose of the toy's notebook in a language."""
    cells = notebook(project, language).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def notebook(project, language: str = "xx"):
    path = project / "notebooks" / language / "pytorch" / "01_toy.ipynb"
    return nbformat.read(path, as_version=4)


def test_all_paragraphs_become_messages_and_nothing_else(toy):
    assert [entry.msgid for entry in po(toy)] == [
        "Translated: ${share} %",
        "*Not translated.*",
        "*Stale.*",
        "# A toy",
        "*You will be able to* add. *5 minutes on a laptop; no GPU needed.*",
        "![Two boxes](../figures/boxes.svg)",
        "## Summary",
        "One and one is two.",
        "## Exercises",
        "Subtract.",
    ]


def test_a_file_and_an_entry_make_an_edition_with_the_outputs_of_english(toy):
    fill(toy, {"## Summary": "## Summa", "One and": "I et I II.", "*Not": "*Non.*"})
    assert build(["--root", str(toy)]) == 0
    english, other = (cells_by_id(notebook(toy, each)) for each in ("en", "xx"))
    assert list(other) == [*list(english)[:2], "header-translated", *list(english)[2:]]
    assert "## Summa\n\nI et I II." in [cell.source for cell in other.values()]
    assert other["exercises"].source == "## Exercises\n\n1. Subtract.\n\n*Non.*"
    assert other["header-translated"].source.startswith("Translated: 28 %\n")
    for key, cell in english.items():
        if cell.cell_type == "code":
            assert other[key] == cell
    title = next(iter(other.values()))
    assert "![Two boxes](data:image/png;base64," in title.source
    line = other["header-languages"].source
    assert line.endswith(" · Toyish") and "/notebooks/en/pytorch/01_toy.ipynb)" in line
    assert "/notebooks/xx/" in english["header-languages"].source
    assert build(["--root", str(toy), "--check"]) == 0


README = """\
# Learn

${languages}

Run `it --language ${language}`: ${share} % done.

${lessons}
"""


def test_each_language_has_a_readme_of_its_own(toy, capsys):
    (toy / "lessons" / "readme.md").write_text(FRONT_MATTER + README)
    english, other = toy / "README.md", toy / "README.xx.md"
    english.write_text("# A\n")
    translate(["--root", str(toy)])
    fill(toy, {"# A toy": "# T", "# Learn": "# Disce"})
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
    assert "| [Toyish](README.xx.md) | `xx` | 16 % |" in english.read_text()
    link = "notebooks/xx/pytorch/01_toy.ipynb"
    said = other.read_text()
    assert said.startswith("<!-- from lessons/readme.md and lessons/locale/xx.po")
    assert "\n\n# Disce\n\n[English](README.md) · Toyish\n\nRun `it -" in said
    assert "--language xx`: 16 % done.\n\n| PyTorch | Colab |\n" in said
    assert f"\n| [01 T]({link}) | [Colab](https://colab." in said
    assert f"/{link}) |\n\n*Not translated.*\n" in said
    assert build(["--root", str(toy), "--check"]) == 0
    other.write_text(said.replace("Disce", "Doce"))
    other.with_name("README.yy.md").write_text("")
    capsys.readouterr()
    assert build(["--root", str(toy), "--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "README.yy.md: no lesson makes it; delete it",
        "README.xx.md: it does not match the lessons and their translations",
    ]


def test_a_name_that_no_readme_knows_is_told(toy, capsys):
    text = FRONT_MATTER + README.replace("${share}", "${shore}")
    (toy / "lessons" / "readme.md").write_text(text)
    assert build(["--root", str(toy)]) == 1
    assert "readme.md, in 'xx': ${…} may name language" in capsys.readouterr().err


@pytest.mark.parametrize("program", [translate, check])
def test_a_language_that_is_not_listed_is_told(toy, capsys, program):
    assert program(["--root", str(toy), "yy"]) == 1
    said = "there is no translation into 'yy'; the languages are: en, xx\n"
    assert capsys.readouterr().err == said


EVERYTHING = {
    "Translated": "${share}",
    "*Not": "*N*",
    "*Stale": "*S*",
    "# A": "# T",
    "*You": "*P*",
    "![Two": "![II](../figures/boxes.svg)",
    "## Summary": "## Summa",
    "One and": "I et I II.",
    "## Exercises": "## E",
    "Subtract": "Subtrahe.",
}


def fill_code(project, texts: dict[str, str]) -> None:
    """Translate all that code says, and compile the catalogue."""
    path = project / "lessons" / "locale" / FOLDER / "xx.po"
    translate(["--root", str(project)])
    file = polib.pofile(str(path))
    assert {entry.msgid for entry in file} == set(texts)
    for entry in file:
        entry.msgstr = texts[entry.msgid]
    file.save()
    translate(["--root", str(project)])


def test_a_changed_sentence_is_told_and_shown(toy, capsys, monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    fill(toy, EVERYTHING)
    fill_code(toy, {"one": "unus"})
    check_all = ["--root", str(toy), "--check", "--strict"]
    assert translate(check_all) == 0
    build(["--root", str(toy)])
    write_lesson(toy, GOOD_LESSON.replace("is two.", "makes two."))
    capsys.readouterr()
    assert translate(check_all) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(
        "xx: lessons/pytorch/01_toy.md:27 “One and one makes two.” is stale"
    )
    # While lessons are written, it is no failure, and GitHub shows a warning.
    assert translate(check_all[:-1]) == 0
    assert capsys.readouterr().out.splitlines() == [line]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert translate(check_all[:-1]) == 0
    assert "\n::warning::1 translated messages are missing" in capsys.readouterr().out
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert build(["--root", str(toy), "--check"]) == 1
    assert "notebooks/xx/pytorch/01_toy.ipynb: cell summ" in capsys.readouterr().out
    for merged in False, True:  # it is seen before the files are merged, and after
        if merged:
            translate(["--root", str(toy)])
        build(["--root", str(toy), "--language", "xx"])
        assert "## Summa\n\nOne and one makes two.\n\n*S*\n\n## E\n\n1. S" in prose(toy)
    entry = entry_of(toy, "One and one makes")
    assert entry.fuzzy and entry.previous_msgid == "One and one is two."
    assert entry.msgstr == "I et I II."
    write_lesson(toy, GOOD_LESSON.replace("is two.", "are two."))
    translate(["--root", str(toy)])
    entry = entry_of(toy, "One and one are")
    assert entry.fuzzy and entry.previous_msgid == "One and one is two."
    write_lesson(toy, GOOD_LESSON)  # the change is taken back
    translate(["--root", str(toy)])
    assert not entry_of(toy, "One and one is").fuzzy
    assert translate(check_all) == 0


def test_a_paragraph_that_moves_keeps_its_translation(toy):
    fill(toy, {"One and": "I et I II."})
    source = GOOD_LESSON.replace("\n\nOne and one is two.", "")
    write_lesson(toy, source.replace("1. Subtract.", "1. One and one is two."))
    assert translate(["--root", str(toy)]) == 0
    assert entry_of(toy, "One and").msgstr == "I et I II."
    build(["--root", str(toy)])
    assert "## Exercises\n\n1. I et I II." in prose(toy)


def test_what_nobody_wants_any_more_is_kept_and_found_again(toy, capsys):
    fill(toy, {"One and": "I et I II."})
    write_lesson(toy, GOOD_LESSON.replace("One and one is two.", "Nothing at all."))
    assert translate(["--root", str(toy), "--check", "--strict"]) == 1
    assert "“One and one is two.…” is in the PO file, but" in capsys.readouterr().out
    for _ in range(2):
        translate(["--root", str(toy)])
        (gone,) = [entry for entry in po(toy) if entry.obsolete]
        assert gone.msgstr == "I et I II."
    write_lesson(toy, GOOD_LESSON)
    translate(["--root", str(toy)])
    assert entry_of(toy, "One and").msgstr == "I et I II."
    assert not [entry for entry in po(toy) if entry.obsolete]


def test_a_stale_translation_that_was_put_away_comes_back_stale(toy):
    fill(toy, {"One and": "I et I II."})
    for text in "One and one makes two.", "Nothing at all.", "One and one makes two.":
        write_lesson(toy, GOOD_LESSON.replace("One and one is two.", text))
        translate(["--root", str(toy)])
    entry = entry_of(toy, "One and one makes")
    assert entry.fuzzy and entry.msgstr == "I et I II."


def test_what_two_frameworks_say_alike_is_translated_once(toy):
    other = GOOD_LESSON.replace("One and one is two.", "Two it is.")
    write_lesson(toy, other, framework="jax")
    translate(["--root", str(toy)])
    assert len([entry for entry in po(toy) if entry.msgid == "Subtract."]) == 1
    assert entry_of(toy, "Subtract.").occurrences == [
        ("lessons/pytorch/01_toy.md", ""),
        ("lessons/jax/01_toy.md", ""),
    ]
    fill(toy, {"Subtract.": "Subtrahe."})
    build(["--root", str(toy)])
    for framework in "pytorch", "jax":
        path = toy / "notebooks" / "xx" / framework / "01_toy.ipynb"
        assert "1. Subtrahe." in path.read_text()


def test_one_lesson_may_need_a_translation_of_its_own(toy, capsys):
    write_lesson(toy, GOOD_LESSON, framework="jax")
    translate(["--root", str(toy)])
    fill(toy, {"Subtract.": "Subtrahe."})
    fill(toy, {"Subtract.": "Subtrahite."}, context="jax/01_toy")
    for _ in range(2):
        translate(["--root", str(toy)])
        assert len([each for each in po(toy) if each.msgid == "Subtract."]) == 2
    build(["--root", str(toy)])
    for framework, text in ("pytorch", "Subtrahe."), ("jax", "Subtrahite."):
        path = toy / "notebooks" / "xx" / framework / "01_toy.ipynb"
        assert f"1. {text}" in path.read_text()
    write_lesson(toy, GOOD_LESSON.replace("Subtract.", "Add."), framework="jax")
    capsys.readouterr()
    translate(["--root", str(toy), "--check"])
    said = capsys.readouterr().out
    assert "“Subtract.…” is in the PO file, but no longer in jax/01_toy" in said


def test_merging_twice_changes_nothing(toy, capsys):
    fill(toy, {"## Summary": "## Summa"})
    translate(["--root", str(toy)])
    capsys.readouterr()
    translate(["--root", str(toy)])
    assert capsys.readouterr().out.splitlines() == [
        "xx.po: unchanged, 10 % of 10 messages translated",
        "messages/xx.po: unchanged, 0 % of 1 messages translated",
    ]


SPANISH = """\
[es]
name = "Español"
numbers.thousands = '[\\u202f\\u00a0]'
numbers.decimal = ","
numbers.powers = { "mil millones" = 9, "mill(?:ón|ones)" = 6 }

[[es.typography]]
wrong = '"'
because = "quotation marks other than « »"
"""


def test_spanish_is_a_file_and_an_entry(toy, capsys):
    sentence = 'It takes 0.25 ms for 1,500 of 3 billion "bytes".'
    write_lesson(toy, GOOD_LESSON.replace("One and one is two.", sentence))
    locale = toy / "lessons" / "locale"
    (locale / "xx.po").unlink()
    (locale / "languages.toml").write_text(
        '[en]\nname = "English"\nnumbers.powers = { billion = 9 }\n\n' + SPANISH
    )
    assert translate(["--root", str(toy)]) == 0
    assert "es.po: written, 0 % of 10 messages" in capsys.readouterr().out
    texts = {
        sentence: "Tarda 0,25 ms para 1\u202f500 de 3 mil millones de «bytes».",
        "## Summary": "## Resumen",
        "## Exercises": "## Ejercicios",
    }
    file = polib.pofile(str(locale / "es.po"))
    for entry in file:
        entry.msgstr = texts.get(entry.msgid, "")
    file.save(str(locale / "es.po"))
    assert check(["--root", str(toy)]) == 0
    assert build(["--root", str(toy)]) == 0
    assert f"## Resumen\n\n{texts[sentence]}" in prose(toy, "es")
    assert "[Español](https://" in prose(toy, "en")
    for right, wrong, said in (
        ("0,25", "25", "the number 0.25 is missing"),
        ("«bytes»", '"bytes"', "quotation marks other than"),
    ):
        for entry in file:
            entry.msgstr = texts.get(entry.msgid, "").replace(right, wrong)
        file.save(str(locale / "es.po"))
        capsys.readouterr()
        assert check(["--root", str(toy)]) == 1
        assert said in capsys.readouterr().out


# ---- Paragraphs


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("# A\n\nB c.\nD.\n\nE.", ["# A", "B c.\nD.", "E."]),
        ("* a\n* b\n\n1. c\n   d\n\n   e", ["a", "b", "c\nd", "e"]),
        ("* a\n  * b\n\nc", ["a", "b", "c"]),
        ("> **In practice.** a\n> b\n>\n> c", ["**In practice.** a\nb", "c"]),
        ("a\n\n```python\nb\n\nc\n```\n\n$$d$$\n\ne", ["a", "e"]),
        (
            "| a | b |\n|---|---|\n| c | d |\n\ne",
            ["| a | b |\n|---|---|\n| c | d |", "e"],
        ),
        ("", []),
    ],
)
def test_paragraphs_are_taken_out_and_put_back(source, texts):
    assert [each.text for each in paragraphs(source)] == texts
    assert replaced(source, lambda text: text) == source
    longer = replaced(source, lambda text: f"{text}!")
    assert [each.text for each in paragraphs(longer)] == [f"{text}!" for text in texts]


def test_a_longer_translation_stays_inside_of_its_item_or_quote():
    source = "1. a\n2. b\n\n> c"
    new = replaced(source, lambda text: f"{text}\n{text}")
    assert new == "1. a\n   a\n2. b\n   b\n\n> c\n> c"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("languages.toml", "xx", "locale/languages.toml: "),
        ("languages.toml", 'xx = "Toyish"', "xx must be a table with a name"),
        (
            "languages.toml",
            'xx.name = "T"\nxx.plural = 2',
            "xx must be a table with a name",
        ),
        (
            "languages.toml",
            'xx.name = "T"\nxx.typography = [{wrong = "(", because = "b"}]',
            "locale/languages.toml: missing )",
        ),
        ("xx.po", "nonsense\n", "locale/xx.po: "),
        (
            "xx.po",
            'msgctxt "a"\nmsgid "b"\nmsgstr ""\n\nmsgctxt "a"\nmsgid "b"\nmsgstr ""\n',
            "locale/xx.po: two entries translate 'b'",
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
    assert list(project.languages) == ["en"] and project.translations == {}
    assert Translation(Language("xx", "Toyish"), tmp_path / "xx.po").entries == {}
