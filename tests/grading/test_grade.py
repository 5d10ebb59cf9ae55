"""`d2l-gpu grade` runs the notebooks of a class, and says what came of each answer."""

import contextlib
import csv
import html
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from d2l_gpu import cli
from d2l_gpu.exercises.judge import judge
from d2l_gpu.grading.run import Bar
from tests.helpers.fresh_process import PATH
from tests.helpers.paths import REPOSITORY
from tests.helpers.waiting import PATIENCE, runs, wait_until

sys.path.append(str(REPOSITORY / "benchmarks"))

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux can do this")


def documented() -> list[str]:
    """Return the code of the page for teachers: a file with an exercise, and a cell."""
    text = (REPOSITORY / "docs" / "teaching.md").read_text("utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def write_notebook(path: Path, *sources: str) -> None:
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": source}
        for source in sources
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}))


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """The documented file with an exercise, in the working folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_exercises.py"
    path.write_text(documented()[0], "utf-8")
    return path


RIGHT = "def scale(X, factor):\n    return factor * X"
WRONG = "def scale(X, factor):\n    return (factor + 1) * X"
BROKEN = "def scale(X, factor):\n    return (factor * X"


def grade(*options: str) -> int:
    return cli.main(["grade", "in", "--exercises", "my_exercises.py", *options])


def grades() -> dict[str, str]:
    """Return what each student earned for the documented exercise."""
    with Path("grades/grades.csv").open(encoding="utf-8-sig", newline="") as file:
        return {row["student"]: row["X1"] for row in csv.DictReader(file)}


def told(student: str) -> str:
    """Return the text of a student's feedback."""
    page = Path(f"grades/feedback/{student}.html").read_text("utf-8")
    return html.unescape(re.sub(r"<[^>]*>", "", page))


@pytest.mark.all
def test_the_documented_exercise_is_graded_and_what_is_done_is_kept(own, capsys):
    cell = documented()[1]
    assert "..." in cell
    imports, rest = cell.split("\n\n", 1)
    check = rest[rest.index("d2l.check") :]
    write_notebook(Path("in/anna.ipynb"), imports, RIGHT, check)
    write_notebook(Path("in/bert.ipynb"), imports, "1 / 0", WRONG, check)
    write_notebook(Path("in/cleo/X1.ipynb"), cell)
    write_notebook(Path("in/dan.ipynb"), imports, f"{BROKEN}\n\n{check}")
    Path("in/erik.docx").write_text("not a notebook")
    Path("list.csv").write_text("name\nAnna\nBert\nCleo\nDan\nErik\nFay\n")
    assert grade("--students", "list.csv", "--only", "X1,03") == 0
    out, err = capsys.readouterr()
    assert "anna: 1 of 1 point, 1 of 1 exercise passes" in out
    assert "the cell `1 / 0` raised ZeroDivisionError: division by zero" in out
    assert "not graded: erik.docx isn't a notebook" in out
    assert "handed in nothing: Fay" in out
    assert err == "--only names 03, but no notebook has it\n"
    none = dict.fromkeys(["Erik", "Fay"], "")
    assert grades() == {"Anna": "1", "Bert": "0.25", "Cleo": "0", "Dan": "0"} | none
    assert "a factor of 3 you returned [0.0, 4.0, 8.0, 12.0]" in told("bert")
    assert "Not answered yet" in told("cleo")
    assert told("dan").count("SyntaxError") == 1
    assert "Doesn't run: SyntaxError: '(' was never closed (line 2: return (" in told(
        "dan"
    )
    assert "no notebook of yours that can be graded: erik.docx isn't" in told("erik")

    write_notebook(Path("in/bert.ipynb"), imports, RIGHT)  # never checked
    Path("points.toml").write_text("X1 = 3\n")
    assert grade("--points", "points.toml") == 0
    out = capsys.readouterr().out
    assert "bert: 3 of 3 points" in out and "anna: " not in out
    assert "3 graded before" in out
    assert grades() == {"anna": "3", "bert": "3", "cleo": "0", "dan": "0", "erik": ""}


def test_a_terminal_says_how_long_it_takes():
    with Bar(total=30, file=io.StringIO(), disable=False) as bar:
        assert str(bar) == "0 of 30 notebooks graded"
        bar.start_t -= 240
        bar.update(2)
        assert str(bar) == "2 of 30 notebooks graded, about 57 min left"
        bar.update(28)
        assert str(bar) == "30 of 30 notebooks graded"


@pytest.mark.all
def test_students_check_the_documented_exercise_themselves(own, monkeypatch):
    names = {"__name__": "__main__"}
    exec(RIGHT, names)
    verdict = judge("pytorch", "X1", names["scale"], exercises="my_exercises.py")
    assert verdict.all_hold
    exec(WRONG, names)
    monkeypatch.setenv("D2L_GPU_EXERCISES", "my_exercises.py")
    assert judge("pytorch", "X1", names["scale"]).claims[1].holds
    with pytest.raises(ValueError, match=r"those in my_exercises\.py are X1"):
        judge("pytorch", "X2", names["scale"])


@pytest.mark.all
@linux
def test_each_student_of_a_class_gets_the_right_verdict(tmp_path):
    import grade_a_class

    from d2l_gpu.grading.plan import Settings
    from d2l_gpu.grading.run import grade_class

    them = grade_a_class.a_few()
    grade_a_class.write(them, tmp_path / "in")
    seconds = grade_a_class.QUICK_CELL_SECONDS
    settings = Settings(only=them.numbers, cell_seconds=seconds)
    assert grade_class(tmp_path / "in", tmp_path / "out", settings) == 0
    for case in them.cases:
        problems = grade_a_class.wrong_verdicts(case, them.numbers, tmp_path / "out")
        assert not problems, f"{case.name}: {problems}"
    page = (tmp_path / "out" / "grades.html").read_text("utf-8")
    assert "Where the class is stuck" in page
    assert "<script" not in page
    assert not (Path.home() / "d2l_gpu_was_here").exists()


@pytest.mark.all
@linux
def test_interrupting_leaves_no_process_and_keeps_what_is_done(own):
    write_notebook(Path("in/anna.ipynb"), RIGHT, "# d2l.check('X1', scale)")
    write_notebook(
        Path("in/bert.ipynb"),
        "from pathlib import Path\nimport os, subprocess, time",
        "child = subprocess.Popen(['sleep', '600'])",
        "print(child.pid, file=open('pid', 'w'))",
        "time.sleep(600)  # check('X1')",
    )
    Path("tmp").mkdir()
    options = "--exercises=my_exercises.py", "--jobs=1", "--timeout=500"
    process = subprocess.Popen(
        [sys.executable, "-m", "d2l_gpu.cli", "grade", "in", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **PATH, "TMPDIR": str(Path("tmp").absolute())},
    )
    found: list[int] = []

    def started() -> bool:
        for path in Path("tmp").glob("*/*/work/pid"):
            with contextlib.suppress(FileNotFoundError):
                found[:] = [int(each) for each in path.read_text().split()]
        return bool(found)

    wait_until(started)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "anna: 1 of 1 point, " in out
    assert "what has been graded is kept" in err and "Traceback" not in err
    wait_until(lambda: not runs(found[0]))
    assert len(list(Path("grades/results").glob("*.json"))) == 1
    assert list(Path("tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no folder nowhere"),
        (["my_exercises.py"], "is a file; name a folder with a notebook"),
        (["empty"], "there are no notebooks in empty"),
        (["in", "--lesson", "99"], "there is no lesson '99'; the lessons are: 00_"),
        (["in", "--points", "bad.toml"], "must be a number of at least 0, not 'x'"),
        (["--only", "03.9", "in"], "--only names 03.9, but no notebook has that"),
        (["--only", "3.1,3.9", "in"], "--only names 03.9, but no notebook has that"),
        (["in", "--only", "07"], "--only names 07, but no notebook has that"),
        (["in", "--points", "far.toml"], "--points names 03.9, but no notebook has"),
        (["in", "--students", "none.csv"], "none.csv can't be read"),
        (["in", "--exercises", "none.py"], "there is no file"),
        (["in", "--exercises", "bad.py"], "can't be loaded: ZeroDivisionError"),
        (["in", "--exercises", "no.py"], "holds no exercises"),
    ],
)
def test_wrong_arguments_get_one_sentence(arguments, message, own, capsys):
    Path("empty").mkdir()
    write_notebook(Path("in/anna.ipynb"), "d2l.check('03.1', total)")
    Path("bad.toml").write_text("03.1 = 'x'\n")
    Path("far.toml").write_text("03.9 = 1\n07.1 = 2\n")
    Path("bad.py").write_text("1 / 0\n")
    Path("no.py").write_text("")
    assert cli.main(["grade", *arguments]) in (1, 2)
    out, err = capsys.readouterr()
    assert message in err
    assert err.count("\n") == 1 and not out
    assert not Path("grades").exists()
