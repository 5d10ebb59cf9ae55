"""The form of lessons, and the parts of the course that they are in."""

import nbformat
import pytest

import d2l_gpu
from tests.helpers.cells import executed_cell
from tests.helpers.toy_lessons import FRONT_MATTER, GOOD_LESSON, write_lesson
from tools import readme
from tools.build import main
from tools.check import notebook_problems
from tools.form import count_words, says_only_true
from tools.lesson import Cell, aims_and_minutes
from tools.notebook import cells_by_id

OBJECTIVES = (
    "*After this lesson you can add, say why `1. + 1` is 2.0, and stop. You need\n"
    "lesson 2 and 25 minutes on a laptop, but no GPU.*"
)
OLD_AIMS = "*You will be able to* add. *5 minutes on a laptop; no GPU needed.*"


@pytest.mark.parametrize(
    ("prose", "expected"),
    [
        (
            [f"# A toy\n\n{OBJECTIVES}"],
            ("add, say why `1. + 1` is 2.0, and stop", "25"),
        ),
        (["# A toy\n\nWhy?", f"Begin.\n\n{OBJECTIVES}\n\nB."], "25"),
        ([OBJECTIVES.replace("lesson 2", "lessons 2 and 3,")], "25"),
        ([OBJECTIVES.replace("lesson 2 and ", "")], "25"),
        ([OBJECTIVES.replace("25 min", "about 25 min")], "25"),
        ([f"# A toy\n\n{OLD_AIMS}"], ("add", "5")),
        (["# A toy", OBJECTIVES.replace("25 minutes", "Long")], None),
        (["# A toy", OBJECTIVES.replace("*", "")], None),
        (["# A toy", OBJECTIVES.replace("2 and", "2\n\nand")], None),
        ([], None),
    ],
)
def test_a_lesson_says_what_it_teaches_and_how_long_it_takes(prose, expected):
    found = aims_and_minutes(prose)
    assert found == expected or (found and found[1] == expected)


@pytest.mark.parametrize("summary", ["Summary", "What to remember"])
def test_notebook_in_either_form_has_no_problems(good_notebook, summary):
    good_notebook.cells[0].source = f"# A toy\n\n{OBJECTIVES}"
    last = good_notebook.cells[-1]
    last.source = last.source.replace("## Summary", f"## {summary}")
    assert list(notebook_problems(good_notebook)) == []


# ---- What a lesson must have if lessons/form.toml says so

IN_FORM = (
    GOOD_LESSON.replace(OLD_AIMS, OBJECTIVES)
    .replace("## Summary", "## What to remember")
    .replace('+++ {"key": "exercises"}\n\n', '+++ {"key": "exercise-1"}\n\n')
)
BODY = "One and one is two."


def in_body(text: str) -> str:
    assert BODY in IN_FORM
    return IN_FORM.replace(BODY, text)


def demand(project, *first_edition: str, framework: str = "pytorch") -> None:
    """Say which lessons of a framework need not have the form; all others must."""
    exempt = list(first_edition)
    (project / "lessons" / "form.toml").write_text(
        f"[{framework}]\nfirst_edition = {exempt}\n"
    )


def test_a_lesson_in_the_form_is_built(project):
    demand(project)
    write_lesson(project, IN_FORM)
    assert main(["--root", str(project)]) == 0
    assert main(["--root", str(project), "--check"]) == 0


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (
            IN_FORM.replace(OBJECTIVES, OLD_AIMS),
            ":8: above the first code cell, a paragraph must say what the lesson is",
        ),
        (in_body(OBJECTIVES).replace(OBJECTIVES, "Hello.", 1), ":8: above the first"),
        (IN_FORM.replace("25 minutes", "50 minutes"), ":8: 50 minutes (at most 45)"),
        (in_body("One more. " * 1000), "words of text (at most 2,000, without code"),
        (
            IN_FORM.replace("## What to remember", "## Summary"),
            ":8: the last heading before the exercises is not ## What to remember",
        ),
        (in_body("One.\n\n+++\n\nTwo."), ":32: two prose cells in a row"),
        (
            IN_FORM.replace("2 * 3\n", "2 * 3\n" * 31),
            ":22: a code cell of 31 lines (at most 30)",
        ),
    ],
)
def test_a_lesson_that_lacks_something_is_refused(project, source, complaint, capsys):
    assert source != IN_FORM
    write_lesson(project, source)
    demand(project)
    for arguments in ([], ["--check"], ["--prose"]):
        assert main(["--root", str(project), *arguments]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("pytorch/01_toy.md:") and complaint in line
    for exempt in (["01"], "pytorch"), ([], "jax"):
        demand(project, *exempt[0], framework=exempt[1])
        assert main(["--root", str(project), "01"]) == 0


def test_prose_may_be_divided_for_slides(project):
    write_lesson(project, in_body('One.\n\n+++ {"tags": ["subslide"]}\n\nTwo.'))
    demand(project)
    assert main(["--root", str(project)]) == 0


def test_an_appendix_may_be_long(project):
    long = in_body("One more. " * 1000).replace("25 minutes", "50 minutes")
    (project / "lessons" / "pytorch" / "01_toy.md").unlink()
    write_lesson(project, long, "A1_toy")
    demand(project)
    assert main(["--root", str(project)]) == 0


def test_a_list_of_exceptions_that_cannot_be_read_is_one_sentence(project, capsys):
    for text in "[pytorch", "[pytorch]\nfirst = []\n":
        (project / "lessons" / "form.toml").write_text(text)
        assert main(["--root", str(project)]) == 1
        assert capsys.readouterr().err.startswith("form.toml: ")


def test_an_output_that_hides_its_result_is_refused(project, capsys):
    write_lesson(project, IN_FORM.replace("2 * 3\n", "2 * 3 == 6\n"))
    demand(project)
    assert main(["--root", str(project)]) == 1
    said = capsys.readouterr().err
    assert "pytorch/01_toy.md: cell 2-3-6-" in said
    assert "puts out only True or False; print the values instead" in said
    demand(project, "01")
    assert main(["--root", str(project)]) == 0


@pytest.mark.parametrize(
    ("source", "shown", "expected"),
    [
        ("a == b", "True", True),
        ("a == b, b == c", "(True, False)", True),
        ("[x > 0 for x in a]", "[True,\n True]", True),
        ("print(a == b)\nprint(a == c)", "True\nFalse\n", True),
        ("a is b", "True", False),
        ("x = f()\na.to(device) is a, x is not a", "(True, False)", False),
        ("print(a is b)", "True\n", False),
        ("a is b\na == b", "True", True),
        ("print('equal:', a == b)", "equal: True\n", False),
        ("a", "tensor([True, False])", False),
        ("Truest", "Truest", False),
        ("a", "", False),
    ],
)
def test_an_output_of_true_alone_says_nothing_but_who_is_who(source, shown, expected):
    cell = executed_cell(1)
    cell.source = source
    cell.outputs[0]["text"] = shown
    assert says_only_true(cell) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# A toy\n\nIt's 2 × 3.", 5),
        ("See [the page](https://example.org/a) on `x.to(device)` – now.", 6),
        ("One.\n\n```python\na = 1\n```\n\n$$a + b$$\n\nTwo.", 2),
        ("| a | b |\n|---|---|\n| c | d e |", 5),
        ("", 0),
    ],
)
def test_words_are_those_that_a_reader_reads(text, words):
    assert count_words([Cell("markdown", text, "a"), Cell("code", "a b", "b")]) == words


def test_an_exercise_begins_its_cell(project, capsys):
    write_lesson(project, in_body("One.\n\n### 01.1 An exercise\n\nAdd."))
    assert main(["--root", str(project)]) == 1
    said = capsys.readouterr().err
    assert "the exercise 01.1 begins within a cell" in said and "+++" in said


# ---- The parts of the course

PARTS = """\
+++ {"key": "part-00"}

Part I: Begin

+++ {"key": "part-03"}

Part II: Go on

+++ {"key": "part-a1"}

More
"""


def test_the_readme_shows_the_parts_of_the_course(project):
    (project / "lessons" / "header.md").write_text(FRONT_MATTER + PARTS)
    marks = [readme.BEGIN, readme.END, readme.BEGIN_LESSONS, readme.END_LESSONS]
    (project / "README.md").write_text("\n".join([*marks, ""]))
    for name in "02_b", "05_c", "A1_d":
        write_lesson(project, GOOD_LESSON.replace(OLD_AIMS, OBJECTIVES), name)
    assert main(["--root", str(project), "--prose"]) == 1  # nothing was executed yet
    assert main(["--root", str(project)]) == 0
    text = (project / "README.md").read_text().partition(readme.END_LESSONS)[0]
    rows = [line.split(" | ")[:2] for line in text.splitlines() if " | " in line][-7:]
    link = "[A toy](notebooks/en/pytorch/{}.ipynb)".format
    assert rows == [
        ["| ", "**Part I: Begin**"],
        ["| 01", link("01_toy")],
        ["| 02", link("02_b")],
        ["| ", "**Part II: Go on**"],
        ["| 05", link("05_c")],
        ["| ", "**More**"],
        ["| A1", link("A1_d")],
    ]
    notebook = (project / "notebooks/en/pytorch/05_c.ipynb").read_text()
    assert "Part II" not in notebook


def test_a_lesson_may_show_a_map_of_the_course(project):
    head = '+++ {"key": "lessons-head"}\n\n| | L | M |\n|---|---|---|\n\n'
    (project / "lessons" / "header.md").write_text(FRONT_MATTER + head + PARTS)
    write_lesson(project, in_body("${lessons}\n\n[G](${glossary})"))
    for name in "02_b", "05_c":
        write_lesson(project, GOOD_LESSON, name)
    write_lesson(project, GOOD_LESSON, "06_d", framework="jax")
    assert main(["--root", str(project)]) == 0
    cells = cells_by_id(
        nbformat.read(project / "notebooks/en/pytorch/01_toy.ipynb", as_version=4)
    )
    (source,) = [cell.source for cell in cells.values() if "Part I" in cell.source]
    there = f"https://github.com/d2l-gpu/d2l-gpu/blob/v{d2l_gpu.__version__}/"
    link = f"[A toy]({there}notebooks/en/pytorch/{{}}.ipynb)".format
    assert source.splitlines()[2:] == [
        "| | L | M |",
        "|---|---|---|",
        "|  | **Part I: Begin** | **30** |",
        f"| 01 | {link('01_toy')} | 25 |",
        f"| 02 | {link('02_b')} | 5 |",
        "|  | **Part II: Go on** | **5** |",
        f"| 05 | {link('05_c')} | 5 |",
        "",
        f"[G]({there}docs/glossary.md)",
    ]
    # It's up to date whichever lesson is built, unless its own code has changed.
    longer = GOOD_LESSON.replace("*5 minutes", "*6 minutes")
    write_lesson(project, longer, "02_b")
    assert main(["--root", str(project), "--check"]) == 1
    assert main(["--root", str(project), "--prose", "02"]) == 0
    assert main(["--root", str(project), "--check"]) == 0
    shown = (project / "notebooks/en/pytorch/01_toy.ipynb").read_text()
    assert "| **31** |" in shown
    write_lesson(project, in_body("${lessons}").replace("2 * 3", "2 * 4"))
    write_lesson(project, GOOD_LESSON, "02_b")
    assert main(["--root", str(project), "--prose", "02"]) == 0
    assert (project / "notebooks/en/pytorch/01_toy.ipynb").read_text() == shown
