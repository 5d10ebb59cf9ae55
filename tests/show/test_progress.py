"""A bar in a terminal, one display in Jupyter that is always the same, else nothing."""

import contextlib
import io
import re
import sys

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from d2l_gpu import torch as d2l
from d2l_gpu.course.kernel import run_cells
from tests.helpers.fresh_process import PATH
from tools.outputs import normalised


class Terminal(io.StringIO):
    def isatty(self):
        return True


@contextlib.contextmanager
def on_a_terminal():
    """Give what stderr shows; not a fixture, after which pytest sets stderr anew."""
    with contextlib.redirect_stderr(Terminal()) as terminal:
        yield terminal


def test_fractions():
    with d2l.Progress(4) as progress:
        assert progress.fraction is None
        progress.update()
        assert progress.fraction == 0.25
        progress.update(2)
        assert progress.fraction == 0.75
        progress.update(100)
        assert progress.fraction == 1
        progress.set(0)
        assert progress.fraction == 0


@pytest.mark.parametrize(
    ("total", "kind"), [(0, ValueError), (-1, ValueError), ("3", TypeError)]
)
def test_a_total_is_a_positive_number(total, kind):
    with pytest.raises(kind, match=f"but got {total!r}"):
        d2l.Progress(total)


@pytest.mark.parametrize(("fraction", "kind"), [(1.1, ValueError), (None, TypeError)])
def test_a_fraction_is_a_number_from_0_to_1(fraction, kind):
    with pytest.raises(kind, match=f"from 0 to 1, but got {fraction}"):
        d2l.Progress().set(fraction)


def test_silent_without_a_terminal(capfd):
    with d2l.Progress(2, "epoch 1") as progress:
        progress.update()
        with progress.aside():
            pass
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_the_time_then_a_bar_and_nothing_in_the_end():
    with on_a_terminal() as terminal, d2l.Progress(2, "epoch 1") as progress:
        assert re.fullmatch(r"(\repoch 1 00:0\d)+", terminal.getvalue())
        progress.update(2)  # the end is always shown, whenever the last redraw was
        assert re.search(r"\repoch 1 100 % #+ 00:0\d$", terminal.getvalue())
    # What is left is a line of spaces, and the cursor at its beginning.
    assert re.search(r"\r +\r$", terminal.getvalue())


def test_a_terminal_without_tqdm_shows_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with on_a_terminal() as terminal, d2l.Progress() as progress:
        progress.set(0.5)
    assert terminal.getvalue() == ""


def test_the_bar_makes_room_for_what_is_printed():
    with on_a_terminal() as terminal, d2l.Progress(2) as progress:
        with progress.aside():
            assert re.search(r"\r +\r$", terminal.getvalue())
        assert re.search(r"\r 00:0\d$", terminal.getvalue())


# ---------------------------------------------------------------- Jupyter

LOOP = """
import time
from d2l_gpu import torch as d2l
with d2l.Progress(3, "epoch <1>") as progress:
    for _ in range(3):
        time.sleep({seconds})
        progress.update()
print("the end")
"""
SCRIPT = """
import time
from d2l_gpu import torch as d2l
for i in range(5):
    print("step", i)
    time.sleep({seconds})
    d2l.report(progress=(i + 1) / 5)
    d2l.report(i=i)
"""
# The only rank's, whose lines are shown: another's failure would cut them anywhere.
FAILURE = """
import os
1 / int(os.environ["RANK"])
"""
LAUNCH = """
from d2l_gpu import torch as d2l
print(d2l.launch("train.py", 1)[-1])
"""


def cell_of(source: str) -> nbformat.NotebookNode:
    return new_notebook(cells=[new_code_cell(source, id="bar")])


@pytest.mark.all
@pytest.mark.parametrize(
    "what",
    [
        "loop",
        pytest.param("launch", marks=pytest.mark.weekly),
        pytest.param("failing", marks=pytest.mark.weekly),
    ],
)
def test_outputs_of_a_notebook_do_not_depend_on_the_speed(what, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", PATH["PYTHONPATH"])
    outputs = []
    for seconds in (0.0, 0.3):
        (tmp_path / "train.py").write_text(
            SCRIPT.format(seconds=seconds) + FAILURE * (what == "failing")
        )
        notebook = cell_of(LOOP.format(seconds=seconds) if what == "loop" else LAUNCH)
        if what == "failing":
            notebook.cells[0].source = (
                "from d2l_gpu import torch as d2l\n"
                "try:\n"
                '    d2l.launch("train.py", 1)\n'
                "except RuntimeError as error:\n"
                "    print(str(error).splitlines()[-1])\n"
            )
        run_cells(notebook, tmp_path, passes=2)
        outputs.append(normalised(notebook.cells[0].outputs, 1))
    assert outputs[0] == outputs[1]
    display, stream = outputs[0]
    assert display.data == {"text/plain": "<Progress>", "text/html": "<div></div>"}
    assert display.metadata == {}
    assert stream.name == "stdout"
    last = {"loop": "the end", "launch": "{'i': 4}"}
    assert stream.text.splitlines()[-1] == last.get(
        what, "ZeroDivisionError: division by zero"
    )


def messages_of(source: str, folder) -> list[dict]:
    """The messages of a cell as they come, which nbval compares without updates."""
    notebook = cell_of(source)
    seen = []

    class Client(NotebookClient):
        def process_message(self, message, cell, index):
            seen.append(message)
            return super().process_message(message, cell, index)

    client = Client(notebook, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return seen


def test_the_display_of_jupyter_is_opened_once_and_updated_in_place(tmp_path):
    seen = messages_of(LOOP.format(seconds=0.25), tmp_path)
    opened = [m["content"] for m in seen if m["msg_type"] == "display_data"]
    updates = [m["content"] for m in seen if m["msg_type"] == "update_display_data"]
    assert len(opened) == 1
    assert opened[0]["data"]["text/html"] == "<div></div>"
    shown = [update["data"]["text/html"] for update in updates]
    assert shown[0] == "<div>epoch &lt;1&gt; 00:00</div>"
    assert (
        '<div><progress value="0.333"></progress> 33 % epoch &lt;1&gt; 00:0'
        in (shown[1])
    )
    assert shown[-1] == "<div></div>"
    assert {update["data"]["text/plain"] for update in updates} == {"<Progress>"}


@pytest.mark.all
def test_many_steps_are_few_updates_of_the_display(tmp_path):
    loop = LOOP.format(seconds=0).replace("3", "2000")
    seen = messages_of(loop, tmp_path)
    updates = [m for m in seen if m["msg_type"] == "update_display_data"]
    assert 2 <= len(updates) < 200
