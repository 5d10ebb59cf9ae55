"""Exercises as a reader meets them: what is asked for, and what is said of answers.

Whether graders are right is another matter; see `test_graders.py`.
"""

import json
import os
import re
import sys

import pytest
import torch

from d2l_gpu.common.requirements import install
from d2l_gpu.exercises import grading_process, specification
from d2l_gpu.exercises.judge import NO_GPUS, judge, why_no_answer
from d2l_gpu.exercises.pytorch.arrays import ARRAYS
from d2l_gpu.exercises.registry import Claim, Registry
from d2l_gpu.exercises.verdict import Verdict
from tests.helpers.fresh_process import run_fresh, run_program
from tests.helpers.paths import REPOSITORY


def total(a, b, c, device):
    """The solution, as far as this needs it."""
    sums = {}
    for x in (a, b, c):
        sums[x.device] = sums[x.device] + x if x.device in sums else x
    return sum(part.to(device) for part in sums.values())


def said_of(answer) -> str:
    return str(judge("pytorch", "03.1", answer))


# ---- Answers that run


@pytest.mark.all
def test_a_right_answer_holds_in_all():
    verdict = judge("pytorch", "03.1", total)
    assert verdict.all_hold and verdict.hint == ""
    lines = str(verdict).splitlines()
    assert lines[0] == "03.1: all checks pass."
    assert lines[1:] == [f"  [x] {claim.text}" for claim in verdict.claims]
    assert len(lines) == 4


def test_a_wrong_answer_gets_one_hint():
    def sends_each(a, b, c, device):
        return a.to(device) + b.to(device) + c.to(device)

    lines = said_of(sends_each).splitlines()
    assert lines[0] == "03.1: 2 of 3 checks pass."
    assert lines[3].startswith("  [ ] nothing is copied")
    assert lines[4].startswith("  Hint: In one case, 3 tensors crossed")
    assert len(lines) == 5


@pytest.mark.all
def test_what_an_answer_prints_is_shown_first():
    def talks(a, b, c, device):
        print("at", device)
        return a

    lines = said_of(talks).splitlines()
    assert lines[0] == "  | at vgpu:0"
    assert lines[16].startswith("03.1: ")


@pytest.mark.all
def test_an_answer_is_carried_with_what_it_refers_to():
    code = """
        import torch
        from d2l_gpu import torch as d2l
        d2l.require_gpus(2)
        kept = torch.zeros(2, 3, device=d2l.gpu(1))

        def helper(parts, device):
            return sum(part.to(device) for part in parts) + kept.to(device) * 0

        def answer(a, b, c, device):
            return helper((a, b, c), device)

        d2l.check('03.1', answer)
        assert torch.vgpu.memory_allocated(0) == 0
    """
    out = run_fresh(code)
    assert "[x] the sum of all three is right" in out


# ---- Answers that do not


# What a cell contains, and part of what is said of it.
NOT_RUN = [
    ("d2l.check('03.1')", "not answered yet. It asks for a function total(a, b"),
    ("d2l.check('03.1', ...)", "not answered yet."),
    ("d2l.check('03.1', None)", "not answered yet."),
    ("def f(a, b, c, device): ...", "not answered yet."),
    ("def f(a, b, c, device):\n    'Says more.'\n    pass", "not answered yet."),
    ("def f(a, b, c, device):\n    return ...", "not answered yet."),
    (
        "def f(a, b, c, device):\n    raise NotImplementedError",
        "not answered yet.",
    ),
    (
        "def f(a, b, c, device):\n    raise NotImplementedError('later')",
        "not answered yet.",
    ),
    ("d2l.check('03.1', 24)", "it asks for a function total(a, b, c, device), not"),
    ("def f(a, b): return a", "total(a, b, c, device); yours takes (a, b)."),
    ("def f(a, b, c, d, e): return a", "yours takes (a, b, c, d, e)."),
    ("class f:\n    def __init__(self, a): ...", "yours takes (a)."),
]
RUN = [
    ("def f(a, b, c, device): a", "total returned nothing; it must be a"),
    ("def f(a, b, c, device): return 'x'", "total returned a str; it must be a"),
    (
        "def f(a, b, c, device):\n    x = 1\n    return a + x / 0",
        "your answer raised ZeroDivisionError: division by zero"
        " (line 3: `return a + x / 0`)",
    ),
]
MORE = [
    (
        "exec('def made_of_a_text(): 1 / 0')\n"
        "def f(a, b, c, device):\n    return made_of_a_text()",
        " (line 3: `return made_of_a_text()`)",
    ),
    (
        "def f(a, b, c, device): return a + b + c",
        "your answer raised RuntimeError: Expected all tensors to be on the same",
    ),
    (
        "def f(a, b, c, device): return a[0]",
        "[ ] the sum of all three is right",
    ),
    (
        "def f(a, b, c, device):\n    import os\n    os._exit(3)",
        "exited with code 3 before it was done.",
    ),
    ("def f(a, b, c, device): raise SystemExit('x')", "raised SystemExit"),
    ("def f(a, b, c, device): return input()", "raised EOFError"),
    (
        "import threading\nlock = threading.Lock()\n"
        "def f(a, b, c, device): return lock",
        "your answer can't be sent to another process: cannot pickle",
    ),
]


@pytest.mark.parametrize(
    "cases",
    [
        NOT_RUN,
        pytest.param(RUN, marks=pytest.mark.all),
        pytest.param(MORE, marks=pytest.mark.weekly),
    ],
    ids=["not run", "run", "more"],
)
def test_what_is_said_of_other_answers(cases):
    # As cells of a notebook, whose lines only the process that ran them knows.
    sources = [
        source + "\n\nd2l.check('03.1', f)" * ("def f" in source or "class f" in source)
        for source, _ in cases
    ]
    code = f"""
        import linecache
        from d2l_gpu import torch as d2l
        for i, source in enumerate({sources!r}):
            cell = f"<cell {{i}}>"
            linecache.cache[cell] = len(source), None, source.splitlines(True), cell
            exec(compile(source, cell, "exec"), globals())
            print(end="\\0")
    """
    outs = run_fresh(code).split("\0")[:-1]
    for out, (_, said) in zip(outs, cases, strict=True):
        assert out.startswith("03.1: ") and said in out
        assert "Traceback" not in out


@pytest.mark.all
def test_an_answer_that_does_not_end_is_ended():
    out = run_program("exercises/an_answer_that_does_not_end_is_ended.py")
    *printed, last = out.splitlines()
    assert printed == ["  | begins"]
    assert last.startswith("03.1: your answer didn't finish within 5 seconds")


def test_without_cloudpickle_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ImportError, match=re.escape(install("lessons"))):
        judge("pytorch", "03.1", total)


@pytest.mark.all
def test_real_gpus_and_settings_of_the_reader_change_nothing(monkeypatch):
    monkeypatch.setenv("D2L_GPU_VIRTUAL", "0")
    for name in NO_GPUS:
        monkeypatch.setenv(name, "0,1")

    def looks_around(a, b, c, device):
        found = {name: os.environ.get(name) for name in NO_GPUS}
        assert found == NO_GPUS
        return total(a, b, c, device)

    assert judge("pytorch", "03.1", looks_around).all_hold


# ---- What does not exist, and values


@pytest.mark.parametrize(
    ("number", "error", "said"),
    [
        ("03.9", ValueError, "no exercise '03.9' for PyTorch: lesson 03 has 03.1, "),
        ("33.1", ValueError, "no exercise '33.1' for PyTorch: the lessons with exer"),
        ("../03.1", ValueError, "There is no exercise '../03.1'"),
        ("", ValueError, "There is no exercise ''"),
        ("3.1", ValueError, "no exercise '3.1' for PyTorch: lesson numbers have two"),
        (3.1, TypeError, "as in check('03.1', answer), but it was 3.1."),
    ],
)
def test_unknown_exercises(number, error, said):
    with pytest.raises(error, match=re.escape(said)):
        judge("pytorch", number, total)
    with pytest.raises(error, match=re.escape(said)):
        specification.specification("pytorch", number)


def test_values_are_answers_too():
    there = Registry()

    @there.add("10.9", returns=(int, float))
    def nbytes(answer):
        yield Claim("it is four", answer == 4, "It has four bytes.")

    exercise = there.exercises["10.9"]
    assert why_no_answer(exercise, ...) == "not answered yet. It asks for a value."
    assert (
        why_no_answer(exercise, "4") == "the answer must be an int or a float, not '4'."
    )
    assert why_no_answer(exercise, 4) == ""


@pytest.mark.parametrize("value", [0, 0.0, False, "", [], (), {}, set(), 1, "x"])
def test_a_function_that_returns_anything_is_an_answer(value):
    there = Registry()

    @there.add("10.9", "a")
    def f(run):
        yield Claim("it is something", True, "It's nothing.")

    names = {}
    exec(f"def constant(a): return {value!r}\ndef kept(a): return value", names)
    names["value"] = value
    for answer in (names["constant"], names["kept"], lambda a: value):
        assert why_no_answer(there.exercises["10.9"], answer) == ""


class ChangesLate(grading_process.Runner):
    """Has noticed that an argument was changed, but only when all was repeated."""

    def __init__(self):
        self.changed = []

    def once_more(self):
        super().once_more()
        self.changed.append("a")


def test_arguments_are_looked_at_again_when_all_is_repeated():
    there = Registry()

    @there.add("10.9", "a")
    def f(run):
        yield Claim("it is right", True, "It's wrong.")

    verdict = grading_process.grade(there.exercises["10.9"], ChangesLate())
    assert not verdict.all_hold
    (hint,) = [claim.hint for claim in verdict.claims if not claim.holds]
    assert "with the GPUs in reverse order. After the call, `a` had changed" in hint


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.unsqueeze_(0),
        lambda X: X.t_(),
        lambda X: X.resize_(2, 4),
        lambda X: X[1:, 1:].neg_(),
        lambda X: X.copy_(X.flip(0)),
        lambda X: setattr(X, "data", X.double()),
        lambda X: setattr(X, "data", X.view(torch.int32)),
    ],
)
def test_whatever_changes_in_a_tensor_is_seen(change):
    X = torch.arange(9.0).reshape(3, 3)
    before = ARRAYS.peek(X)
    X[0] + 1, X.t(), X.sum(), X.unsqueeze(0)
    assert ARRAYS.peek(X) == before
    change(X)
    assert ARRAYS.peek(X) != before


def test_two_graders_for_one_exercise_are_refused():
    there = Registry()
    there.add("10.9")(lambda answer: ())
    with pytest.raises(ValueError, match=r"Exercise 10\.9 has two graders"):
        there.add("10.9")(lambda answer: ())


def test_a_verdict_survives_the_way_between_processes():
    claims = (Claim("one", True), Claim("two", False, "Look."))
    verdict = Verdict("01.1", claims, "", "x\n")
    assert Verdict.from_json(verdict.to_json()) == verdict
    assert json.loads(verdict.to_json())["number"] == "01.1"
    assert not verdict.all_hold and verdict.hint == "Look."
    assert not Verdict("01.1").all_hold


def test_long_outputs_show_their_end():
    text = str(Verdict("01.1", problem="no.", printed="line\n" * 50))
    assert text.splitlines()[0] == "  | (earlier lines not shown)"
    assert text.count("| line") == 20


# ---- What is asked for


def test_an_exercise_is_shown_as_the_lesson_has_it(capsys):
    text = specification.specification("pytorch", "03.1")
    assert text.startswith("### 03.1 The cheaper order")
    assert text in (REPOSITORY / "lessons" / "pytorch" / "03_copying.md").read_text(
        "utf-8"
    )
    specification.show("pytorch", "03.1")
    assert capsys.readouterr().out == f"{text}\n"


def test_an_exercise_is_shown_in_the_reader_s_language(tmp_path, monkeypatch):
    for language, title in ("en", "Cheaper"), ("fr", "Moins cher"):
        folder = tmp_path / language / "pytorch"
        folder.mkdir(parents=True)
        cells = [{"cell_type": "markdown", "id": "a", "metadata": {}}]
        cells[0]["source"] = f"### 03.1 {title}"
        notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        (folder / "03_copying.ipynb").write_text(json.dumps(notebook))
    monkeypatch.setattr(
        specification,
        "notebooks_dir",
        lambda language, framework: tmp_path / (language or "fr") / framework,
    )
    assert specification.specification("pytorch", "03.1") == "### 03.1 Moins cher"
    assert "Cheaper" in specification.specification("pytorch", "03.1", "en")
    with pytest.raises(FileNotFoundError, match=r"don't contain exercise 03\.2"):
        specification.specification("pytorch", "03.2")


def test_a_notebook_renders_what_it_shows(monkeypatch):
    shown = []
    monkeypatch.setattr(specification, "in_jupyter", lambda: True)
    monkeypatch.setattr("IPython.display.display", shown.append)
    specification.show("pytorch", "03.1")
    assert shown[0].data.startswith("### 03.1")
