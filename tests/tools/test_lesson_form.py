"""What lessons promise in their openings, and the parts of the course they are in."""

import pytest

from tests.helpers.toy_lessons import FRONT_MATTER, GOOD_LESSON, write_lesson
from tools import readme
from tools.build import main
from tools.check import notebook_problems
from tools.lesson import aims_and_minutes

OBJECTIVES = (
    "*After this lesson you can add, say why `1. + 1` is 2.0, and stop. You need\n"
    "lesson 2. 25 minutes on a laptop; no GPU needed.*"
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
        ([OBJECTIVES.replace("lesson 2", "lessons 2 and 3")], "25"),
        ([OBJECTIVES.replace(" You need\nlesson 2.", "")], "25"),
        ([OBJECTIVES.replace("25 min", "About 25 min")], "25"),
        ([f"# A toy\n\n{OLD_AIMS}"], ("add", "5")),
        (["# A toy", OBJECTIVES.replace("25 minutes", "Long")], None),
        (["# A toy", OBJECTIVES.replace("*", "")], None),
        (["# A toy", OBJECTIVES.replace("2. 25", "2.\n\n25")], None),
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
