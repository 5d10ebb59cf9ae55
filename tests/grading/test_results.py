"""What answers are worth, and what's written about a class."""

import csv
import io
import json
import re

import pytest

from d2l_gpu.exercises.registry import Claim
from d2l_gpu.exercises.verdict import Verdict
from d2l_gpu.grading.points import Points, read_points
from d2l_gpu.grading.results import (
    GradedNotebook,
    Results,
    Student,
    encodable,
    in_order,
    state_of,
)
from d2l_gpu.grading.stuck import where_stuck
from d2l_gpu.grading.tables import feedback, file_names, write_all

HOLDS, FAILS = Claim("it's there", True), Claim("it's right", False, "It's 4 <b>.")


def verdict(*claims: Claim, problem: str = "", number: str = "03.1") -> Verdict:
    return Verdict(number, claims, problem)


@pytest.mark.parametrize(
    ("claims", "problem", "points", "state"),
    [
        ([HOLDS, HOLDS], "", 3, "right"),
        ([HOLDS, FAILS], "", 0.75, "partly"),
        ([HOLDS, HOLDS], "it crashed", 1, "partly"),
        ([HOLDS] * 999 + [FAILS], "", 1.5, "partly"),
        ([FAILS], "", 0, "wrong"),
        ([], "it crashed", 0, "wrong"),
        ([], "not answered yet. It asks for a value.", 0, "unanswered"),
        ([], "", 0, "wrong"),
    ],
)
def test_what_does_not_pass_earns_its_share_of_a_half(claims, problem, points, state):
    it = verdict(*claims, problem=problem)
    assert Points(table={"03.1": 3}).earned(it) == points
    strict = Points(table={"03.1": 3}, all_or_nothing=True)
    assert strict.earned(it) == (3 if state == "right" else 0)
    assert state_of(it) == state


def test_points_are_read_with_quotes_and_without(tmp_path):
    path = tmp_path / "points.toml"
    path.write_text('default = 2\n"03.1" = 0.5\n03.2 = 0\nX1 = 7\n')
    assert read_points(path) == (2, {"03.1": 0.5, "03.2": 0, "X1": 7})
    for bad in ("03.1 = -1", "03.1 = true", "03.1 = nan", "x", "03.1 = [1]"):
        path.write_text(bad)
        with pytest.raises(ValueError, match=re.escape(str(path))):
            read_points(path)


def test_exercises_are_in_the_order_of_the_course():
    numbers = ["X10", "A1.1", "03.10", "03.2", "X2", "00.1"]
    assert in_order(numbers) == ["00.1", "03.2", "03.10", "A1.1", "X2", "X10"]


def a_class() -> Results:
    def student(name: str, *verdicts: Verdict, notes: tuple = ()) -> Student:
        its = {each.number: each for each in verdicts}
        return Student(name, [GradedNotebook(name, "x.ipynb", "pytorch", its, notes)])

    wrong = verdict(HOLDS, FAILS)
    other = verdict(HOLDS, Claim("it's right", False, "It's 5 <b>."))
    students = [
        student("=cmd()", verdict(HOLDS)),
        student("<script>alert(1)</script>", wrong, notes=("<img> is $x$ bad",)),
        student("cleo", other, verdict(problem="not answered yet", number="03.2")),
        Student("dan", [GradedNotebook("dan", "", notes=["there is no notebook"])]),
    ]
    return Results(students, {"03.1": "One", "03.2": ""}, Points())


def test_a_class_is_written(tmp_path):
    results = a_class()
    write_all(results, tmp_path)
    raw = (tmp_path / "grades.csv").read_bytes().decode("utf-8-sig")
    rows = list(csv.reader(io.StringIO(raw)))
    assert rows[0] == ["student", "03.1", "03.2", "total"]
    assert rows[1] == ["'=cmd()", "1", "", "1"]
    assert rows[3:] == [["cleo", "0.25", "0", "0.25"], ["dan", "", "", "0"]]
    data = json.loads((tmp_path / "grades.json").read_text("utf-8"))
    assert data["points"] == 2
    assert data["students"][2]["exercises"]["03.2"]["state"] == "unanswered"
    page = (tmp_path / "grades.html").read_text("utf-8")
    body = page[page.index("<h1>Grades") :]
    assert "<script>" not in body and "<img>" not in body and "4 <b>" not in body
    assert "&lt;script&gt;alert(1)" in body and "$x$" in body
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", page)
    assert len(list((tmp_path / "feedback").iterdir())) == 4


def test_what_no_file_takes_is_replaced():
    broken = {"a": ["\ud800", 1, None], "b": "fine ö"}
    assert encodable(broken) == {"a": ["?", 1, None], "b": "fine ö"}


def test_the_page_says_where_the_class_is_stuck():
    second, first = where_stuck(a_class())
    assert (first.number, first.handed_in) == ("03.1", 3)
    assert first.share == pytest.approx(1 / 3)
    assert first.claims == [("it's right", 2)]
    # They differ in a number only.
    assert [times for _, times in first.hints] == [2]
    assert second.states == {
        "right": 0,
        "partly": 0,
        "wrong": 0,
        "unanswered": 1,
        "missing": 3,
    }


def test_the_best_of_several_notebooks_counts():
    notebooks = [
        GradedNotebook("a", f"{i}.ipynb", "pytorch", {"03.1": each})
        for i, each in enumerate([verdict(FAILS), verdict(HOLDS), verdict(FAILS)])
    ]
    assert Student("a", notebooks).verdict("03.1").all_hold


def test_feedback_shows_verdicts_as_the_notebook_does():
    results = a_class()
    text = feedback(results, results.students[1])
    assert text.startswith("# \\<script\\>alert(1)\\</script\\>")
    assert str(verdict(HOLDS, FAILS)) in text
    assert "0.25 of 2 points" in text


def test_every_student_gets_a_file_on_any_system():
    names = file_names(["Anna", "anna", "a/b: c?", "...", "長" * 200, "長" * 201])
    assert names[:4] == ["Anna", "anna (2)", "a_b_ c_", "_"]
    assert len({each.casefold() for each in names}) == 6
    assert max(len(each.encode()) for each in names) < 220
