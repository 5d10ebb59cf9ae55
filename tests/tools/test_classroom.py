"""What teachers hand out has stubs for students, and says how long everything takes."""

import json
import re
import shutil

import nbformat
import pytest

from tests.helpers.paths import REPOSITORY
from tools import classroom, durations
from tools.check import notebook_problems
from tools.edition import Project

EDITION = REPOSITORY / "notebooks" / "en" / "pytorch"


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A function that writes measured durations; there are none before."""
    path = tmp_path / "durations.json"
    monkeypatch.setattr(classroom, "RESULTS", path)

    def write(*runs: dict) -> None:
        path.write_text(json.dumps(runs))

    return write


def read(path):
    return nbformat.read(path, as_version=4)


def stated_minutes() -> str:
    """The minutes that lesson 03 says it takes."""
    first = read(EDITION / "03_copying.ipynb").cells[0].source
    return re.search(r"(\d+) minutes on a laptop", first)[1]


def test_students_get_stubs_and_no_outputs(tmp_path, measured, capsys):
    assert classroom.main([str(tmp_path / "out"), "03"]) == 0
    listed = capsys.readouterr().out.split()
    student, solutions, page = (
        tmp_path / "out" / name
        for name in (
            "students/03_copying.ipynb",
            "solutions/03_copying.ipynb",
            "durations.md",
        )
    )
    assert listed == [str(student), str(solutions), str(page)]
    lesson, given = read(EDITION / student.name), read(student)
    assert [c.source for c in given.cells] == [c.source for c in lesson.cells]
    code = [cell for cell in given.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert any("d2l.check('03.1', total)" in cell.source for cell in code)
    assert "sums[x.device]" not in student.read_text()
    published = EDITION / "solutions" / solutions.name
    assert solutions.read_bytes() == published.read_bytes()
    assert list(notebook_problems(lesson)) == []


def test_a_worksheet_has_the_exercises_and_what_they_need(tmp_path, measured):
    arguments = [str(tmp_path), "copying", "--worksheets"]
    assert classroom.main(arguments) == 0
    sheet = read(tmp_path / "students" / "03_copying.ipynb")
    title, *rest = [cell.source for cell in sheet.cells]
    assert title.startswith("# Copying between devices\n\n## Exercises\n")
    assert any("d2l.require_gpus(2)" in source for source in rest)
    headings = [source.split("\n")[0] for source in rest if source.startswith("#")]
    assert headings[-5] == "### 03.1 The cheaper order"
    assert not any(heading.startswith("## ") for heading in headings)


def test_worksheets_and_their_page_are_there_in_every_language(tmp_path, measured):
    english = tmp_path / "en"
    for language in Project(REPOSITORY).languages:
        folder = tmp_path / language
        arguments = [str(folder), "03", "--worksheets", "--language", language]
        assert classroom.main(arguments) == 0
        sheet, expected = (
            read(each / "students/03_copying.ipynb").cells for each in (folder, english)
        )
        ids = [cell.id for cell in sheet if cell.id != "header-translated"]
        assert ids == [cell.id for cell in expected]
        assert (sheet[0].source == expected[0].source) == (language == "en")
        page = (folder / "durations.md").read_text()
        assert page == (english / "durations.md").read_text()
        assert f"| {stated_minutes()} min |" in page


def test_the_page_tells_what_was_measured_and_what_was_not(measured):
    run = {"framework": "pytorch", "gpus": 0, "hardware": "a CPU", "date": "2026-11-20"}
    other = run | {"framework": "jax", "gpus": 1, "seconds": {"03_copying": 9}}
    seconds = {"03_copying": 12.3, "solutions/03_copying": 20.8}
    measured(run | {"seconds": seconds}, other)
    page = classroom.durations_page("pytorch", [EDITION / "03_copying.ipynb"])
    row = f"| 03_copying | 5 | {stated_minutes()} min | 12 s + 21 s | — | — |"
    assert row in page
    assert "* without a GPU: a CPU, 2026-11-20\n" in page
    assert "* on one GPU: not measured yet; `python -m tools.durations" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["33"], "there is no lesson '33'"),
        (["--framework", "x"], "there is no framework 'x'"),
        (["--language", "xx"], "there is no edition in 'xx' for 'pytorch'"),
    ],
)
def test_what_there_is_not(arguments, said, tmp_path, capsys):
    assert classroom.main([str(tmp_path / "out"), *arguments]) == 1
    assert capsys.readouterr().err.startswith(said)
    assert not (tmp_path / "out").exists()


def test_a_lesson_without_solutions_is_refused(tmp_path):
    lesson = tmp_path / "03_copying.ipynb"
    shutil.copy(EDITION / lesson.name, lesson)
    with pytest.raises(ValueError, match="03_copying has no solutions"):
        list(classroom.hand_out([lesson], "pytorch", tmp_path / "out", False))
    assert not (tmp_path / "out").exists()


def test_what_was_handed_out_is_not_replaced_unasked(tmp_path, measured, capsys):
    arguments = [str(tmp_path / "out"), "03"]
    assert classroom.main(arguments) == 0
    changed = tmp_path / "out" / "students" / "03_copying.ipynb"
    changed.write_text("mine")
    assert classroom.main(arguments) == 1
    assert "already holds a handout" in capsys.readouterr().err
    assert changed.read_text() == "mine"
    assert classroom.main([*arguments, "--force"]) == 0
    assert changed.read_text() != "mine"


def test_runs_of_a_machine_are_joined_and_others_stay(measured):
    one = {"framework": "jax", "gpus": 0, "hardware": "A", "seconds": {"01": 1}}
    more = one | {"seconds": {"02": 2}}
    (joined,) = durations.with_run([one], more)
    assert joined["seconds"] == {"01": 1, "02": 2}
    other = more | {"hardware": "B"}
    assert durations.with_run([joined], other) == [joined, other]
    assert durations.with_run([one], more | {"gpus": 1}) == [one, more | {"gpus": 1}]


def test_a_notebook_is_timed_by_running_it(write_notebook, monkeypatch):
    path = write_notebook("01_toy.ipynb", "import time", "time.sleep(0.3)")
    assert durations.seconds_of(path, "pytorch") > 0.3
