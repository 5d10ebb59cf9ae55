"""Toy lessons for the tests of the build, which need not wait for real ones."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from broken_machines import Plant
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from d2l_gpu import course
from d2l_gpu.common.settings import LANGUAGE

REPOSITORY = Path(__file__).resolve().parents[1]

# Programs that a shell starts in the background ignore Ctrl-C, and so does what they
# start. Here that would hang the tests of what Ctrl-C does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
SANITIZE = REPOSITORY / "tests" / "nbval_sanitize.cfg"

# A project of its own, which test_pytest_plugin.py runs as its users would.
collect_ignore = ["example_project"]

FRONT_MATTER = """\
---
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

"""
GOOD_LESSON = f"""\
{FRONT_MATTER}# A toy

*You will be able to* add. *5 minutes on a laptop; no GPU needed.*

![Two boxes](../figures/boxes.svg)

```{{code-cell}} ipython3
:key: add

print("one")
1 + 1
```

```{{code-cell}} ipython3
2 * 3
```

## Summary

One and one is two.

+++ {{"key": "exercises"}}

## Exercises

1. Subtract.
"""

FIGURE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">
<rect width="20" height="20" fill="{colour}"/></svg>
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with one good lesson, 01_toy, and the figure that it shows."""
    write_lesson(tmp_path, GOOD_LESSON)
    draw_figure(tmp_path, "red")
    return tmp_path


def write_lesson(
    project: Path, text: str, name: str = "01_toy", framework: str = "pytorch"
) -> Path:
    """Write the source of a lesson for a framework into a project; return its path."""
    path = project / "lessons" / framework / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def draw_figure(project: Path, colour: str) -> None:
    """Draw the figure of the good lesson."""
    figures = project / "lessons" / "figures"
    figures.mkdir(exist_ok=True)
    (figures / "boxes.svg").write_text(FIGURE.format(colour=colour))


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


PUBLISHED = "published/en/pytorch"


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


def executed_cell(number: int) -> NotebookNode:
    """Return a code cell as if it had been executed as the ``number``-th."""
    return new_code_cell(
        f"print({number})",
        id=f"cell-{number}",
        execution_count=number,
        outputs=[stream(f"{number}\n")],
    )


def stream(text: str, name: str = "stdout") -> NotebookNode:
    """Return a piece of output on ``stdout`` or ``stderr``."""
    return nbformat.v4.new_output("stream", name=name, text=text)


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Planted modules, packages and programs, which come before the real ones."""
    planted = Plant(tmp_path / "planted")
    monkeypatch.syspath_prepend(planted.modules)
    monkeypatch.setenv("PATH", str(planted.programs), prepend=os.pathsep)
    return planted
