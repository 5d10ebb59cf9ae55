"""Quizzes are checked, built and translated from one source."""

import json

import polib
import pytest

from tests.helpers.toy_lessons import FRONT_MATTER
from tools.build import main
from tools.lesson import LessonError
from tools.quizzes import SUFFIX, Source
from tools.translate import main as translate

OPTIONS = """
[[question.option]]
text = "`{number}`"
right = true
why = "It's $n$."

[[question.option]]
text = "More"
why = "No, less."

[[question.option]]
text = "1,000.5"
why = "No, another."
"""
QUIZ = "".join(
    f"[[question]]\ntext = '''\nWhat is {number}?\n\n```python\nx = {number}\n\ny\n"
    f"```\n'''\n{OPTIONS.format(number=number)}\n"
    for number in range(1, 6)
)


@pytest.fixture
def source(project):
    """The source of the toy lesson's quiz, in a project that has a cell for it."""
    (project / "lessons" / "header.md").write_text(
        FRONT_MATTER + '+++ {"key": "quiz"}\n\n## Test yourself\n\nCall `d2l.quiz`.\n'
    )
    path = project / "lessons" / "pytorch" / f"01_toy{SUFFIX}"
    path.write_text(QUIZ)
    return path


def build(project, *arguments: str) -> int:
    return main(["--root", str(project), *arguments])


def built(project, language: str = "en"):
    path = project / "notebooks" / language / "pytorch" / "quizzes" / "01_toy.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def test_the_build_makes_a_file_and_offers_it_in_the_notebook(project, source):
    assert build(project) == 0
    quiz = built(project)
    assert (quiz["title"], quiz["language"]) == ("A toy", "en")
    question = quiz["questions"][0]
    assert "<pre><code" in question["text"]["html"]
    assert [each["right"] for each in question["options"]] == [True, False, False]
    assert question["options"][0]["text"] == {
        "markdown": "`1`",
        "html": "<code>1</code>",
    }
    assert "<math" in question["options"][0]["why"]["html"]
    notebook = (project / "notebooks/en/pytorch/01_toy.ipynb").read_text("utf-8")
    assert notebook.index("## Summary") < notebook.index("## Test yourself")


def test_a_lesson_without_a_quiz_offers_none(project, source):
    source.unlink()
    assert build(project) == 0
    assert built(project) is None
    notebook = (project / "notebooks/en/pytorch/01_toy.ipynb").read_text("utf-8")
    assert "## Test yourself" not in notebook


def test_the_check_finds_stale_and_orphaned_quizzes(project, source, capsys):
    assert build(project) == 0
    assert build(project, "--check") == 0
    source.write_text(QUIZ.replace("No, less.", "No."))
    assert build(project, "--check") == 1
    where = "notebooks/en/pytorch/quizzes/01_toy.json"
    assert f"{where}: it does not match its source" in capsys.readouterr().out
    source.unlink()
    assert build(project, "--check") == 1
    assert f"{where}: no lesson makes it; delete it" in capsys.readouterr().out


def test_a_language_has_the_quiz_once_all_of_it_is_translated(project, source):
    locale = project / "lessons" / "locale"
    locale.mkdir()
    (locale / "languages.toml").write_text(
        'xx.name = "Toyish"\n[xx.written]\n"1,234.5" = "1 234,5"\n'
    )
    assert translate(["--root", str(project)]) == 0
    file = polib.pofile(str(locale / "xx.po"))
    own = [each for each in file if "quiz" in each.occurrences[0][0]]
    assert {each.msgid for each in own} >= {"What is 1?", "It's $n$.", "More"}
    for entry in file:
        entry.msgstr = entry.msgid.replace("What is", "Quid est")
    own[-1].msgstr = ""
    file.save()
    assert build(project) == 0
    assert built(project, "xx") is None
    own[-1].msgstr = own[-1].msgid
    file.save()
    assert build(project) == 0
    assert built(project, "xx")["language"] == "xx"
    text = built(project, "xx")["questions"][0]["text"]
    assert text["markdown"].startswith("Quid est 1?\n\n```python\nx = 1\n\ny\n```")
    numbers = built(project, "xx")["questions"][0]["options"][2]["text"]
    assert numbers["markdown"] == "1 000,5"


@pytest.mark.parametrize(
    "old, new, problem",
    [
        ("[[question]]", "[[questions]]", "questions isn't known"),
        ("right = true\n", "", "question 1: some options must be right"),
        ("why = ", "because = ", "question 1: option 1: because isn't known"),
        ('"More"', '"1,000.5"', "question 1: two options are the same"),
        ('"More"', '"None of the above"', "question 1: option 2: it depends on the"),
        ('"No, less."', '""', "question 1: option 2: why must be a text"),
        ('"No, less."', '"No,\\nless."', "question 1: option 2: why must be one line"),
        ("right = true", 'right = "yes"', "option 1: right must be true or false"),
        ("$n$", "$\\\\left(n$", "why: $\\left(n$ isn't a formula"),
        ("[[question.option]]", "[question.option]", "Cannot"),
    ],
)
def test_a_wrong_source_says_what_is_wrong(source, old, new, problem):
    source.write_text(QUIZ.replace(old, new))
    with pytest.raises(LessonError) as error:
        Source.read(source)
    assert problem in str(error.value)
    assert str(error.value).startswith(f"pytorch/01_toy{SUFFIX}: ")


def test_a_quiz_has_five_questions(source):
    source.write_text(QUIZ[: QUIZ.rindex("[[question]]")])
    with pytest.raises(LessonError, match="it must have 5 tables"):
        Source.read(source)
