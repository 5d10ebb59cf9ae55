"""`d2l-gpu copy --without-outputs`: notebooks for a class that predicts."""

from pathlib import Path

import nbformat
import pytest

from d2l_gpu import cli
from d2l_gpu.course import SOLUTIONS, notebooks_dir
from d2l_gpu.course.copies import copy_notebooks

FOLDER = Path("handout")
COPY = FOLDER / "01_toy.ipynb"


@pytest.fixture
def published(publish):
    """A published lesson with outputs; the reader is in another folder."""
    folder = publish("01_toy")
    source = folder / COPY.name
    notebook = nbformat.read(source, as_version=4)
    notebook.cells[0].execution_count = 1
    notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="this is é\n")]
    nbformat.write(notebook, source)
    return source


def hand_out(*more):
    assert cli.main(["copy", "--without-outputs", f"--output={FOLDER}", *more]) == 0


def test_copies_are_as_nobody_has_run_them(published):
    hand_out()
    copy = nbformat.read(COPY, as_version=4)
    nbformat.validate(copy)
    for cell in copy.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
    sources = [cell.source for cell in nbformat.read(published, as_version=4).cells]
    assert [cell.source for cell in copy.cells] == sources


def test_unchanged_copies_get_or_lose_outputs_as_asked(published):
    for _ in range(2):
        assert cli.main(["copy", f"--output={FOLDER}"]) == 0
        assert "this is é" in COPY.read_text("utf-8")
        hand_out()
        assert "this is é" not in COPY.read_text("utf-8")


def test_what_only_opens_copies_leaves_them_without_outputs(published, capsys):
    hand_out()
    before = COPY.read_bytes()
    capsys.readouterr()
    copy_notebooks(published.parent, [published.stem], FOLDER)
    assert COPY.read_bytes() == before
    assert capsys.readouterr().out == ""


def test_a_second_handout_leaves_the_first_alone(published, capsys):
    hand_out()
    before = COPY.read_bytes()
    capsys.readouterr()
    hand_out()
    assert capsys.readouterr().out == f"1 notebooks in {FOLDER}\n"
    assert COPY.read_bytes() == before


def test_a_copy_that_was_run_is_kept(published, capsys):
    hand_out()
    notebook = nbformat.read(COPY, as_version=4)
    notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="mine\n")]
    nbformat.write(notebook, COPY)
    before = COPY.read_bytes()
    hand_out()
    assert "kept, because you changed it or ran it" in capsys.readouterr().out
    assert COPY.read_bytes() == before


def test_no_solution_is_handed_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hand_out("00", "03", "05", "--language=en")
    names = ["00_start.ipynb", "03_copying.ipynb", "05_time.ipynb"]
    assert sorted(path.name for path in FOLDER.rglob("*")) == names
    solutions = notebooks_dir("en", "pytorch") / SOLUTIONS
    for name in names:
        text = (FOLDER / name).read_text("utf-8")
        assert "**Solution**" not in text
        solved = nbformat.read(solutions / name, as_version=4)
        handed_out = {cell.source for cell in nbformat.read(FOLDER / name, 4).cells}
        checks = [c.source for c in solved.cells if "\nd2l.check('" in c.source]
        assert not handed_out & set(checks)
