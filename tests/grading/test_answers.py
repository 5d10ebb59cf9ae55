"""Which cells answer an exercise, and what reports call cells."""

import pytest

from d2l_gpu.exercises.registry import Exercise
from d2l_gpu.grading.answers import cells_of, code_of, label, quoted
from d2l_gpu.grading.supervisor import Cells, Failure, Task

ONE = Exercise("03.1", "total", iter, ("a",))
TWO = Exercise("03.2", "send", iter, ("a",))
CELLS = {
    1: "import torch\n\n\ntotal = 3",
    4: "def total(a):\n    return a\n\n\nd2l.check('03.1', total)",
    6: "# helper\n\ndef half(a):\n    return a / 2",
    7: "send: object = half\nassert send == half",
    8: 'd2l.check("03.2", send)',
    9: "\n",
    11: "# Only a comment",
}


def test_cells_define_an_answer_or_check_it():
    assert cells_of(ONE, CELLS, ours=[1]) == [4]
    assert cells_of(TWO, CELLS) == [7, 8]
    assert code_of(ONE, CELLS, ours=[1]) == "def total(a):\n    return a"
    assert code_of(TWO, CELLS) == "send: object = half\nassert send == half"
    long = code_of(ONE, {0: "total = 1\n" * 1000})
    assert len(long.splitlines()) == 81 and long.endswith("…")


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        (4, "your cell of exercise 03.1"),
        (6, "the cell `def half(a):`"),
        (8, "your cell of exercise 03.2"),
        (9, "an empty cell"),
        (11, "the cell `# Only a comment`"),
    ],
)
def test_cells_are_called_what_people_find(cell, name):
    assert label(cell, CELLS, [ONE, TWO], ours=[1]) == name


def test_lines_are_quoted_as_text():
    assert quoted(2, CELLS[4]) == "line 2: `return a`"
    assert quoted(99, CELLS[4]) == "line 99"
    assert quoted(1, "a\x1b[2J") == "line 1: `a [2J`"


def cells(**fields) -> Cells:
    return Cells(Task("pytorch", [ONE, TWO], CELLS, 20, 60, ours=[1]), **fields)


def test_a_cell_that_fails_is_told_once_where_the_answer_is_missing():
    what = "NameError: name 'x' is not defined"
    failed = {
        4: Failure("SyntaxError: invalid syntax", True, 1),
        6: Failure(what, True, 4),
        8: Failure("didn't finish in 20 seconds"),
    }
    it = cells(failed=failed)
    assert it.why_unanswered(ONE) == (
        "doesn't run: SyntaxError: invalid syntax (line 1: `def total(a):`)."
    )
    assert it.why_unanswered(TWO) == (
        "doesn't run: its cell didn't finish in 20 seconds."
    )
    assert it.notes() == [
        f"the cell `def half(a):` raised {what} (line 4: `return a / 2`)"
    ]


def test_a_notebook_that_stops_tells_which_exercises_it_did_not_come_to():
    killed = "the notebook's process was killed by SIGKILL in {cell}"
    it = cells(stopped=killed, _cell=6)
    assert it.why_unanswered(ONE).startswith("not answered: the notebook doesn't def")
    assert it.why_unanswered(TWO) == (
        "doesn't run: the notebook stopped before this exercise."
    )
    assert it.notes() == [
        "the notebook's process was killed by SIGKILL in the cell `def half(a):`; the "
        "cells after it didn't run"
    ]
    it = cells(stopped=killed, _cell=4)
    assert it.why_unanswered(ONE) == (
        "doesn't run: the notebook's process was killed by SIGKILL in its cell."
    )
    it = cells(stopped=killed)
    assert it.notes() == ["the notebook's process was killed by SIGKILL; no cell ran"]
