"""What answers are worth, and what's written about a class."""

import csv
import io
import json
import re

import pytest

from d2l_gpu.exercises.registry import Claim
from d2l_gpu.exercises.verdict import Verdict
from d2l_gpu.grading.page import feedback_html
from d2l_gpu.grading.points import Points, given_points, read_points
from d2l_gpu.grading.results import (
    GradedNotebook,
    Results,
    Student,
    encodable,
    in_order,
    state_of,
)
from d2l_gpu.grading.stuck import fewest_passed, where_stuck
from d2l_gpu.grading.tables import file_names, write_all

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
        ([], "doesn't run: SyntaxError: invalid syntax.", 0, "unrun"),
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


def test_points_are_a_number_or_a_file(tmp_path):
    path = tmp_path / "points.toml"
    path.write_text('"03.1" = 2\n')
    assert given_points("2.5").of("03.1") == 2.5
    assert str(given_points("5").of("03.1")) == "5"
    assert given_points(str(path)).of("03.1") == 2
    for bad in "-1", "nan":
        with pytest.raises(ValueError, match=f"a number of at least 0, not {bad}"):
            given_points(bad)
    with pytest.raises(ValueError, match="a number, or a file; there is no file two"):
        given_points("two")


def test_exercises_are_in_the_order_of_the_course():
    numbers = ["X10", "A1.1", "03.10", "03.2", "X2", "00.1"]
    assert in_order(numbers) == ["00.1", "03.2", "03.10", "A1.1", "X2", "X10"]


def notebook(*verdicts: Verdict, **fields) -> GradedNotebook:
    its = {each.number: each for each in verdicts}
    return GradedNotebook("x.ipynb", "pytorch", its, **fields)


def a_class() -> Results:
    def student(name: str, *verdicts: Verdict, **fields) -> Student:
        return Student(name, [notebook(*verdicts, **fields)], feedback="f/x.html")

    wrong = verdict(HOLDS, FAILS)
    other = verdict(HOLDS, Claim("it's right", False, "It's 5 <b>."))
    students = [
        student("=cmd()", verdict(Claim("it's there", True, "There's none."))),
        student(
            "<script>alert(1)</script>",
            wrong,
            notes=["<img> is $x$ bad"],
            code={"03.1": "f('<img>')"},
        ),
        student("cleo", other, verdict(problem="not answered yet", number="03.2")),
        Student("dan", [GradedNotebook("", notes=["dan.pdf isn't a notebook"])], "d1"),
        student("eve", verdict(problem="doesn't run: SyntaxError", number="03.2")),
    ]
    about = ["2026-11-28 21:46", "d2l-gpu 0.1.0"]
    return Results(students, {"03.1": "One", "03.2": ""}, Points(), about, ["list.csv"])


def body_of(page: str) -> str:
    return page[page.index("<body") :]


def test_a_class_is_written(tmp_path):
    results = a_class()
    write_all(results, tmp_path)
    raw = (tmp_path / "grades.csv").read_bytes().decode("utf-8-sig")
    rows = list(csv.reader(io.StringIO(raw)))
    assert rows[0] == ["student", "id", "03.1", "03.2", "total"]
    assert rows[1] == ["'=cmd()", "", "1", "", "1"]
    assert rows[3:] == [
        ["cleo", "", "0.25", "0", "0.25"],
        ["dan", "d1", "", "", "0"],
        ["eve", "", "", "0", "0"],
    ]
    data = json.loads((tmp_path / "grades.json").read_text("utf-8"))
    assert data["points"] == 2
    assert data["not_graded"] == ["list.csv"]
    students = data["students"]
    states = [each["exercises"]["03.2"]["state"] for each in students]
    assert states == ["missing", "missing", "unanswered", "missing", "unrun"]
    assert students[0]["exercises"]["03.1"]["claims"][0]["hint"] == ""  # it holds
    assert students[1]["exercises"]["03.1"]["claims"][1]["hint"] == "It's 4 <b>."
    page = (tmp_path / "grades.html").read_text("utf-8")
    body = body_of(page)
    assert "<script" not in page and "<img>" not in body and "4 <b>" not in body
    assert "&lt;script&gt;alert(1)" in body and "$x$" in body
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", page)
    assert len(page) < 40_000
    assert (tmp_path / "f" / "x.html").is_file()


def test_the_page_says_when_what_and_why_without_hovering(tmp_path):
    results = a_class()
    write_all(results, tmp_path)
    body = body_of((tmp_path / "grades.html").read_text("utf-8"))
    for text in (
        "2026-11-28 21:46 · d2l-gpu 0.1.0",
        "Mean 0.3, median 0.25 (with 0 for the 1 who",
        "f(&#39;&lt;img&gt;&#39;)</pre>",
        '<a href="f/x.html">Feedback</a>',
        "dan.pdf isn&#39;t a notebook.",
        "Not graded, because it isn't a notebook: list.csv.",
        "1 can't be run",
        "Doesn&#39;t run: SyntaxError",
        "<details",
    ):
        assert text in body, text
    exercises = re.findall(r'<h3 id="exercise-([\d.]+)"', body)
    assert exercises == ["03.1", "03.2"]
    # Every sign leads to its reason.
    targets = re.findall(r'href="#([^"]*)"', body)
    assert targets and all(f'id="{each}"' in body for each in targets)


def test_what_no_file_takes_is_replaced():
    broken = {"a": ["\ud800", 1, None], "b": "fine ö"}
    assert encodable(broken) == {"a": ["?", 1, None], "b": "fine ö"}


def test_the_page_says_where_the_class_is_stuck():
    stuck = where_stuck(a_class())
    first, second = stuck
    assert (first.number, first.handed_in) == ("03.1", 3)
    assert first.share == pytest.approx(1 / 3)
    (mistake,) = first.mistakes
    # What they were told differs in a number only.
    assert (mistake.claim, mistake.told) == ("it's right", "It's 4 <b>.")
    assert mistake.students == ["<script>alert(1)</script>", "cleo"]
    assert second.states == {
        "right": 0,
        "partly": 0,
        "wrong": 0,
        "unrun": 1,
        "unanswered": 1,
        "missing": 3,
    }
    assert [each.told for each in second.mistakes] == ["doesn't run: SyntaxError"]
    assert fewest_passed(stuck) == {"03.2"}
    assert fewest_passed(stuck[:1]) == set()


def test_a_class_of_which_nothing_can_be_graded_has_a_page(tmp_path):
    students = [Student("a", [GradedNotebook("", notes=["the notebook is empty"])])]
    write_all(Results(students, {}, Points()), tmp_path)
    body = body_of((tmp_path / "grades.html").read_text("utf-8"))
    assert "The notebook is empty." in body and "stuck" not in body


def test_the_best_of_several_notebooks_counts():
    answers = verdict(FAILS), verdict(HOLDS), verdict(FAILS)
    notebooks = [
        notebook(each, code={"03.1": str(i)}) for i, each in enumerate(answers)
    ]
    student = Student("a", notebooks)
    assert student.verdict("03.1").all_hold
    assert student.best("03.1").code == {"03.1": "1"}


def test_feedback_shows_verdicts_and_the_answer():
    results = a_class()
    page = feedback_html(results, results.students[1])
    body = body_of(page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in body and "<script" not in page
    assert '<li class="holds">It&#39;s there</li>' in body
    assert "<li>It&#39;s right</li>" in body
    assert "Hint: It&#39;s 4 &lt;b&gt;." in body
    assert "0.25 of 2 points" in body and "0.25 of 1 point<" in body
    assert "f(&#39;&lt;img&gt;&#39;)</pre>" in body


def test_feedback_on_what_is_no_notebook_is_one_sentence():
    results = a_class()
    body = body_of(feedback_html(results, results.students[3]))
    assert "can be graded: dan.pdf isn&#39;t a notebook.</p>" in body
    assert "03.1" not in body


def test_every_student_gets_a_file_on_any_system():
    names = ["Anna.html", "anna.html", "a:b?.html", "....html", "x_1_a/feedback.html"]
    names = file_names([*names, "長" * 200 + ".html", "長" * 201 + ".html"])
    assert names[:4] == ["Anna.html", "anna (2).html", "a_b_.html", "_.html"]
    assert names[4] == "x_1_a/feedback.html"
    assert len({each.casefold() for each in names}) == 7
    assert max(len(each.encode()) for each in names) < 220
