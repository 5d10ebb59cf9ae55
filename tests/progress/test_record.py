"""What `d2l.check` records: passed exercises, once, and nothing about the reader."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import pytest

import d2l_gpu
from d2l_gpu import exercises
from d2l_gpu.course.kernel import run_cells
from d2l_gpu.exercises import Exercises
from d2l_gpu.exercises.registry import Claim
from d2l_gpu.exercises.verdict import Verdict
from d2l_gpu.progress.record import progress_folder, record, solved_exercises


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that is recorded in."""
    monkeypatch.setenv("D2L_GPU_PROGRESS", str(tmp_path / "progress"))
    return tmp_path / "progress"


@pytest.fixture
def checked(monkeypatch):
    """A function that checks an answer to 03.1 whose verdict is known."""

    def check(holds: bool, problem: str = "") -> None:
        verdict = Verdict("03.1", (Claim("the sum is right", holds, "Add."),), problem)
        monkeypatch.setattr(exercises, "judge", lambda *_: verdict)
        Exercises("pytorch").check("03.1", sum)

    return check


def numbers() -> list[str]:
    return [each.exercise for each in solved_exercises()]


def test_a_passed_exercise_is_recorded_with_nothing_about_the_reader(folder, checked):
    checked(True)
    (file,) = folder.rglob("*.json")
    assert file.relative_to(folder).as_posix() == "pytorch/03.1.json"
    assert json.loads(file.read_text("utf-8")) == {
        "framework": "pytorch",
        "exercise": "03.1",
        "date": date.today().isoformat(),
        "version": d2l_gpu.__version__,
    }


@pytest.mark.parametrize(("holds", "problem"), [(False, ""), (True, "it was late")])
def test_an_exercise_that_has_not_passed_is_not_recorded(
    folder, checked, holds, problem
):
    checked(holds, problem)
    assert not folder.exists()


def test_the_first_pass_is_the_one_that_is_kept(folder):
    record("pytorch", "03.1")
    file = folder / "pytorch/03.1.json"
    before = file.read_text("utf-8").replace(date.today().isoformat(), "2020-02-29")
    file.write_text(before, "utf-8")
    record("pytorch", "03.1")
    assert file.read_text("utf-8") == before
    record("jax", "03.1")
    assert [each.framework for each in solved_exercises()] == ["pytorch", "jax"]


def test_many_notebooks_record_at_the_same_time(folder):
    wanted = [f"{lesson:02}.{number}" for lesson in range(8) for number in range(1, 6)]
    with ThreadPoolExecutor(8) as pool:
        problems = pool.map(lambda number: record("pytorch", number), wanted * 2)
    assert set(problems) == {""}
    assert numbers() == wanted
    assert not [path for path in folder.rglob("*") if path.name.endswith(".part")]


@pytest.mark.parametrize(
    ("variables", "recorded"),
    [
        ({"D2L_GPU_PROGRESS": "0"}, False),
        ({"D2L_GPU_PROGRESS": "off"}, False),
        ({"CI": "true"}, False),
        ({"CI": "false"}, True),
        ({}, True),
    ],
)
def test_a_variable_turns_it_off_and_so_does_ci(
    tmp_path, monkeypatch, variables, recorded
):
    for name in ("D2L_GPU_PROGRESS", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in ("HOME", "USERPROFILE", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    record("pytorch", "03.1")
    assert len(list(tmp_path.rglob("03.1.json"))) == recorded


def test_a_folder_that_is_named_is_used_even_on_ci(folder, monkeypatch):
    monkeypatch.setenv("CI", "true")
    record("pytorch", "03.1")
    assert numbers() == ["03.1"]
    assert progress_folder() == folder


def test_what_programs_run_is_not_recorded(folder, monkeypatch, good_notebook):
    for cell in good_notebook.cells:
        if cell.cell_type == "code":
            cell.source = "import os; print(os.environ['D2L_GPU_PROGRESS'])"
    run_cells(good_notebook, folder.parent)
    said = [cell.outputs[0].text for cell in good_notebook.cells if "outputs" in cell]
    assert set(said) == {"0\n"}


def test_what_an_answer_checks_by_itself_is_not_recorded(folder):
    import torch

    def total(a, b, c, device):
        import os

        assert os.environ["D2L_GPU_PROGRESS"] == "0"
        return torch.zeros(2)

    verdict = exercises.judge("pytorch", "03.1", total)
    assert verdict.claims and not verdict.problem


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"framework": "pytorch", "exercise": "03.1", "date": "x", "version": "1"}',
        b'{"framework": "jax", "exercise": "03.1", "date": "2026-03-01",'
        b' "version": "1"}',
        b'{"framework": "pytorch", "exercise": "03.1", "date": 5, "version": "1"}',
        b"[" * 100_000,
    ],
)
def test_a_broken_file_is_set_aside_with_one_sentence(folder, capsys, content):
    for number in ("03.1", "03.2"):
        record("pytorch", number)
    file = folder / "pytorch/03.1.json"
    for times in (1, 2):
        file.write_bytes(content)
        assert numbers() == ["03.2"]
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "The record of pytorch 03.1 can't be" in said
        kept = sorted(file.parent.glob("*.broken*"))
        assert [each.read_bytes() for each in kept] == [content] * times
    record("pytorch", "03.1")
    assert numbers() == ["03.1", "03.2"]


def test_files_of_others_are_left_alone(folder):
    record("pytorch", "03.1")
    (folder / "pytorch/notes.json").write_text("my notes", "utf-8")
    (folder / "numpy").mkdir()
    (folder / "numpy/03.1.json").write_text("{}", "utf-8")
    assert numbers() == ["03.1"]
    assert (folder / "pytorch/notes.json").read_text("utf-8") == "my notes"


def test_a_verdict_does_not_depend_on_whether_it_can_be_recorded(
    folder, checked, capsys
):
    folder.write_text("a file where the folder is to be", "utf-8")
    checked(True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["03.1: all checks pass.", "  [x] the sum is right"]
    assert lines[2].startswith("  Your progress isn't recorded: ")
    assert len(lines) == 3
