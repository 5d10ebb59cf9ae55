"""Exercises as assignments of nbgrader and otter-grader, and what they make of them."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.validator import validate

from d2l_gpu import cli
from d2l_gpu.assignments import nbgrader, otter
from d2l_gpu.assignments.questions import introduced, read_assignment
from d2l_gpu.course import SOLUTIONS
from d2l_gpu.grading.points import Points
from tests.helpers.paths import REPOSITORY

EDITION = REPOSITORY / "notebooks" / "en" / "pytorch"
SOLVED = sorted(
    path
    for path in (REPOSITORY / "notebooks").glob("*/*/*.ipynb")
    if (path.parent / SOLUTIONS / path.name).is_file()
)


@pytest.fixture(scope="module")
def copying():
    return read_assignment(EDITION / "03_copying.ipynb", "pytorch")


# ---- What is written


@pytest.mark.parametrize("path", SOLVED, ids=lambda p: "-".join(p.parts[-3:]))
def test_an_assignment_has_all_exercises_of_its_lesson(path):
    assignment = read_assignment(path, path.parent.name)
    text = "\n".join(cell.source for cell in nbformat.read(path, 4).cells)
    headings = re.findall(r"^### (\w\d\.\d+) ", text, re.MULTILINE)
    assert [each.number for each in assignment.questions] == headings
    for each in assignment.questions:
        assert each.stub != each.solution
        assert ".check(" not in each.stub + each.solution
        assert each.given[0].source.startswith(f"### {each.number} ")


@pytest.mark.parametrize("path", SOLVED, ids=lambda p: "-".join(p.parts[-3:]))
def test_solutions_in_english_serve_every_language(path, tmp_path):
    lesson = tmp_path / Path(*path.parts[-3:])
    english = REPOSITORY / "notebooks" / "en" / Path(*path.parts[-2:])
    solved = tmp_path / "en" / path.parent.name / SOLUTIONS / path.name
    for source, copy in (
        (path, lesson),
        (english.parent / SOLUTIONS / path.name, solved),
    ):
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    framework = path.parent.name
    assert read_assignment(lesson, framework) == read_assignment(path, framework)


def test_nbgrader_gets_points_for_each_exercise_and_nothing_that_students_may_spoil(
    copying,
):
    notebook = nbgrader.notebook(copying, Points(2))
    validate(notebook)
    marks = [cell.metadata.nbgrader for cell in notebook.cells if cell.metadata]
    assert len({each.grade_id for each in marks}) == len(marks)
    assert [each.points for each in marks if each.grade] == [2] * 5
    assert [each.locked for each in marks if each.solution] == [False] * 5
    assert all(each.locked for each in marks if not each.solution)
    released = _without(notebook, "### BEGIN SOLUTION", "### END SOLUTION")
    released = _without(released, "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")
    for each in copying.questions:
        assert each.solution not in released
        assert each.stub in released
    assert "judge" not in released


def _without(text, begin: str, end: str) -> str:
    if not isinstance(text, str):
        text = "\n".join(cell.source for cell in text.cells)
    return re.sub(f"{begin}.*?{end}", "", text, flags=re.DOTALL)


def test_a_configuration_that_is_there_is_kept_and_told_what_it_lacks(
    copying, tmp_path, capsys
):
    configuration = tmp_path / "nbgrader_config.py"
    configuration.write_text("c = get_config()  # mine\n")
    list(nbgrader.write([copying], tmp_path, Points()))
    assert configuration.read_text() == "c = get_config()  # mine\n"
    assert 'code_stub = {"python": ""}' in capsys.readouterr().out


def test_otter_gets_settings_it_can_read_and_a_block_for_each_exercise(copying):
    notebook = otter.master(copying, Points(2, {"03.5": 0.5}))
    validate(notebook)
    raw = [cell.source for cell in notebook.cells if cell.cell_type == "raw"]
    assert yaml.safe_load(raw[0])["requirements"] == "requirements.txt"
    questions = [each for each in raw if each.startswith("# BEGIN QUESTION")]
    assert [yaml.safe_load(each) for each in questions] == [
        {"name": f"q03_{number}", "points": 0.5 if number == 5 else 2}
        for number in range(1, 6)
    ]


def test_what_gradescope_installs_is_this_version_without_cuda():
    assert otter.requirements("pytorch").splitlines()[0].endswith("/whl/cpu")
    assert otter.requirements("jax").startswith("d2l-gpu[jupyter,jax] @ https://")


def test_the_command_writes_what_it_lists_and_says_what_comes_next(tmp_path, capsys):
    points = tmp_path / "points.toml"
    points.write_text('"03.2" = 7\n')
    for program, then in (
        ("nbgrader", "nbgrader generate_assignment 03_copying"),
        ("otter", "otter assign 03_copying.ipynb dist"),
    ):
        folder = tmp_path / program
        command = ["export", program, "03", "05", "--output", str(folder)]
        assert cli.main([*command, "--points", str(points)]) == 0
        *lines, last = capsys.readouterr().out.splitlines()
        assert last.startswith(f"now: cd {folder}") and last.endswith(then)
        listed = {Path(line) for line in lines}
        assert listed == {path for path in folder.rglob("*") if path.is_file()}
        names = {path.name for path in listed}
        assert {"03_copying.ipynb", "05_time.ipynb"} <= names
        (lesson,) = folder.rglob("03_copying.ipynb")
        assert "points: 7" in lesson.read_text() or '"points": 7' in lesson.read_text()


@pytest.mark.parametrize("language", ["en", "fr", "pt", "zh"])
def test_an_assignment_begins_with_what_students_do(language):
    path = REPOSITORY / "notebooks" / language / "pytorch" / "03_copying.ipynb"
    first = introduced(read_assignment(path, "pytorch")).source
    assert first.startswith("# ") and "`d2l.check`" in first
    assert "solutions" not in first and "](" not in first
    assert first[-1] in ".。"


def test_a_lesson_without_exercises_is_refused_and_nothing_is_written(
    publish, capsys, tmp_path
):
    publish("01_toy")
    folder = tmp_path / "out"
    assert cli.main(["export", "otter", "01", "--output", str(folder)]) == 2
    assert capsys.readouterr().err == "d2l-gpu export: 01_toy has no exercises\n"
    assert not folder.exists()


# ---- What nbgrader and otter-grader make of it, in an environment with them


ANSWERS = {
    "total": "def total(a, b, c, device):\n    return a.to(device) + 0",
    "send": "def send(images, device):\n    return images.to(device).float() / 255",
    "clip": "def clip(grads, max_norm):\n    raise SystemExit",
}
"""Of a student: two of three claims hold, all hold, none does, two aren't answered."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder of programs of an environment with nbgrader and otter-grader, on top
    of this one."""
    if sys.platform == "win32":
        pytest.skip("nbgrader needs another system")
    folder = tmp_path_factory.mktemp("graders")
    venv.create(folder, with_pip=True)
    here = next(path for path in sys.path if path.endswith("site-packages"))
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "this.pth").write_text(f"{here}\n{REPOSITORY}\n")
    install = [folder / "bin/python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, "nbgrader>=0.9", "otter-grader>=6"], check=True)
    return folder / "bin"


def run(programs: Path, folder: Path, *command: str) -> None:
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter"),
    }
    subprocess.run(command, cwd=folder, env=environment, check=True)


def hand_in(released: Path, submission: Path) -> None:
    """Write what a student makes of a released notebook."""
    notebook = nbformat.read(released, 4)
    for cell in notebook.cells:
        name = re.match(r"def (\w+)\(", cell.source)
        if name and name[1] in ANSWERS:
            cell.source = ANSWERS.pop(name[1])
    submission.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, submission)


@pytest.mark.weekly
def test_nbgrader_releases_grades_and_exports(programs, tmp_path, copying, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ANSWERS", dict(ANSWERS))
    list(nbgrader.write([copying], tmp_path, Points()))
    run(programs, tmp_path, "nbgrader", "generate_assignment", "03_copying")
    lesson = "03_copying/03_copying.ipynb"
    hand_in(tmp_path / "release" / lesson, tmp_path / "submitted/anna" / lesson)
    run(programs, tmp_path, "nbgrader", "autograde", "03_copying")
    run(programs, tmp_path, "nbgrader", "generate_feedback", "03_copying")
    run(programs, tmp_path, "nbgrader", "export")
    (row,) = csv.DictReader((tmp_path / "grades.csv").open())
    assert float(row["max_score"]) == 5
    assert 1 < float(row["score"]) <= 1.5  # one right, one partly
    feedback = (tmp_path / "feedback/anna/03_copying/03_copying.html").read_text()
    assert "the sum of all three is right" in feedback


@pytest.mark.weekly
def test_otter_makes_an_autograder_that_grades(
    programs, tmp_path, copying, monkeypatch
):
    monkeypatch.setattr(sys.modules[__name__], "ANSWERS", dict(ANSWERS))
    list(otter.write([copying], tmp_path, Points()))
    folder = tmp_path / "03_copying"
    # It also checks that the solutions pass.
    run(programs, folder, "otter", "assign", "03_copying.ipynb", "dist")
    hand_in(folder / "dist/student/03_copying.ipynb", folder / "anna.ipynb")
    (archive,) = (folder / "dist/autograder").glob("*.zip")
    run(programs, folder, "otter", "run", "-a", str(archive), "anna.ipynb")
    results = json.loads((folder / "results.json").read_text("utf-8"))["tests"]
    scores = {each["name"]: each["score"] for each in results if "score" in each}
    assert scores == {"q03_1": 0, "q03_2": 1, "q03_3": 0, "q03_4": 0, "q03_5": 0}
    assert "the sum of all three is right" in json.dumps(results)
    shutil.rmtree(folder)
