"""Comparing notebooks with those of before tells all that a reader would notice."""

import subprocess

import nbformat
import pytest

from tests.helpers.cells import stream
from tools.compare_notebooks import main


@pytest.fixture
def before(write_notebook, tmp_path):
    """A folder with a notebook, of which the project has a copy."""
    paths = [
        write_notebook(f"{folder}/notebooks/en/pytorch/01_toy.ipynb", "1", "2")
        for folder in ("before", "now")
    ]
    return tmp_path / "before", tmp_path / "now", paths[1]


def outputs(notebook):
    notebook.cells[1].outputs = [stream("3\n")]


def text(notebook):
    notebook.cells[1].source = "3"


def fewer(notebook):
    del notebook.cells[1]


def ids(notebook):
    notebook.cells[1].id = "other"
    notebook.cells[1].execution_count = 7
    notebook.cells[1].metadata["tags"] = ["approx"]
    notebook.metadata["kernelspec"] = {"name": "x", "display_name": "x"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (outputs, "01_toy.ipynb: cell 1: different outputs: [] → [('stream'"),
        (text, "01_toy.ipynb: cell 1: different text: '2' → '3'"),
        (fewer, "01_toy.ipynb: 2 cells before, 1 now"),
        (ids, None),
    ],
)
def test_what_a_reader_sees_is_told_and_nothing_else(before, change, said, capsys):
    old, now, path = before
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    nbformat.write(notebook, path)
    assert main([str(old), "--root", str(now)]) == (said is not None)
    printed = capsys.readouterr().out
    assert (said or "compared: 1 notebooks, differences: 0") in printed
    arguments = [str(old), "--root", str(now), "--except", "01_toy"]
    assert main(arguments) == 0


def test_notebooks_that_are_new_or_gone_are_told(before, capsys):
    old, now, path = before
    path.rename(path.with_name("02_toy.ipynb"))
    assert main([str(old), "--root", str(now)]) == 1
    said = capsys.readouterr().out
    assert "01_toy.ipynb: it is gone\n" in said and "02_toy.ipynb: it is new\n" in said


def test_notebooks_of_a_commit_are_found(before, capsys, monkeypatch):
    _, now, path = before
    git = ["git", "-C", str(now), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in ["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a"]:
        subprocess.run([*git, *command], check=True)
    assert main(["HEAD", "--root", str(now)]) == 0
    path.unlink()
    assert main(["HEAD", "--root", str(now)]) == 1
    assert main(["nonsense", "--root", str(now)]) == 1
    assert "nonsense" in capsys.readouterr().err


def test_names_of_a_table_may_differ_and_no_others(before, tmp_path, capsys):
    old, now, path = before
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].source = "3"
    nbformat.write(notebook, path)
    table = tmp_path / "renames.tsv"
    arguments = [str(old), "--root", str(now), "--renames", str(table)]
    for text, status in ("# old\tnew\n1\t1\n2\t3\n", 0), ("1\t3\n", 1), ("1 3\n", 1):
        table.write_text(text)
        assert main(arguments) == status
    assert "expected two columns" in capsys.readouterr().err
