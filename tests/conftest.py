"""The fixtures that tests of several modules use."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from d2l_gpu import course
from d2l_gpu.common.settings import LANGUAGE
from tests.helpers import properties  # noqa: F401  the profile of hypothesis
from tests.helpers.broken_machines import Plant
from tests.helpers.cells import executed_cell
from tests.helpers.toy_lessons import GOOD_LESSON, PUBLISHED, draw_figure, write_lesson

# Programs that a shell starts in the background ignore Ctrl-C, and so does what they
# start. Here that would hang the tests of what Ctrl-C does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Commands speak the system's language, and tests read English.
os.environ["LANGUAGE"] = "en"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with one good lesson, 01_toy, and the figure that it shows."""
    write_lesson(tmp_path, GOOD_LESSON)
    draw_figure(tmp_path, "red")
    return tmp_path


@pytest.fixture
def write_notebook(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a notebook of code cells below the temporary folder."""

    def write(name: str, *sources: str) -> Path:
        cells = [
            new_code_cell(source, id=f"cell-{number}")
            for number, source in enumerate(sources)
        ]
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # As a published one: nbformat.write would end lines as the system does.
        text = nbformat.writes(new_notebook(cells=cells)) + "\n"
        path.write_text(text, encoding="utf-8", newline="\n")
        return path

    return write


@pytest.fixture
def publish(write_notebook, tmp_path, monkeypatch) -> Callable[..., Path]:
    """A function that publishes a course of toy lessons by their names.

    It returns the folder of the edition; the reader is in another one.
    """

    def publish(*names: str) -> Path:
        for name in names:
            write_notebook(f"{PUBLISHED}/{name}.ipynb", f"print('this is {name}')")
        monkeypatch.setattr(course, "editions_root", lambda: tmp_path / "published")
        reader = tmp_path / "reader"
        reader.mkdir()
        monkeypatch.chdir(reader)
        monkeypatch.setenv(LANGUAGE, "")  # which --language sets, for what it starts
        return tmp_path / PUBLISHED

    return publish


@pytest.fixture
def good_notebook() -> NotebookNode:
    """A notebook with which nothing is wrong, as if it had been executed."""
    cells = [
        new_markdown_cell(
            "# A toy\n\n*You will be able to* add. *5 minutes on a laptop.*", id="title"
        ),
        *(executed_cell(number) for number in range(1, 11)),
        new_markdown_cell("## Summary\n\nAll.\n\n## Exercises\n\n1. More.", id="end"),
    ]
    return new_notebook(cells=cells)


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Planted modules, packages and programs, which come before the real ones."""
    planted = Plant(tmp_path / "planted")
    monkeypatch.syspath_prepend(planted.modules)
    monkeypatch.setenv("PATH", str(planted.programs), prepend=os.pathsep)
    return planted
