"""What the lessons draw in Jupyter is text in a terminal, and needs no widgets."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from d2l_gpu.course.page import LessonResult, report_html
from tests.helpers.fresh_process import NO_GPUS, PATH, run_fresh
from tests.helpers.lab_server import jupyter_settings
from tests.helpers.paths import REPOSITORY
from tests.helpers.waiting import PATIENCE

NOTEBOOKS = sorted((REPOSITORY / "notebooks").rglob("*.ipynb"))
LESSON = REPOSITORY / "notebooks" / "en" / "pytorch" / "01_devices.ipynb"

# A reader's script: a figure that grows, a bar, a table and a drawing.
SCRIPT = """
import torch
from d2l_gpu import torch as d2l

d2l.use_virtual_gpus(1)
animator = d2l.Animator('epoch', legend=['train loss', 'test acc'])
with d2l.Progress(3, 'training') as bar:
    for epoch in range(3):
        with bar.aside():
            animator.add(epoch + 1, (0.5 / (epoch + 1), 0.8))
        bar.update()
with d2l.transfers() as log:
    torch.ones(2, 3).to(d2l.gpu(0))
sim = d2l.simulator(1, backing='meta')
sim.reset()
X = torch.zeros(1024, 1024, device=sim.gpu(0))
Y = X @ X
"""
SHOWN = """
Using 1 virtual GPU, vgpu:0: computed on the CPU, memory simulated.
epoch 1: train loss 0.5, test acc 0.8
epoch 2: train loss 0.25, test acc 0.8
epoch 3: train loss 0.1667, test acc 0.8
""".lstrip()
TABLE = """
copies  bytes each  from  to
     1          24  cpu   vgpu:0
""".lstrip()
LANE = r"GPU 0 compute +#+"


def environment(folder: Path) -> dict[str, str]:
    return os.environ | PATH | NO_GPUS | jupyter_settings(folder)


@pytest.mark.all
def test_script_with_its_output_in_a_file_prints_lines_and_nothing_else():
    # run_fresh has checked that nothing was written to stderr.
    out = run_fresh(SCRIPT + "print(log)\nprint(sim.timeline())")
    assert out.startswith(SHOWN + TABLE)
    assert re.search(LANE, out)
    assert "\r" not in out
    assert "\x1b" not in out


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
def test_terminal_shows_the_same_lines_and_a_bar_that_goes(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    shown = on_a_terminal([sys.executable, "train.py"], tmp_path)
    assert "training 00:0" in shown
    # What a carriage return begins anew was the bar; it has been removed.
    left = [line.rpartition("\r")[2] for line in shown.split("\r\n")]
    assert "\n".join(left) == SHOWN


def on_a_terminal(command: list[str], folder: Path) -> str:
    """What a command shows on a terminal, which ended well."""
    import pty

    master, terminal = pty.openpty()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder) | {"TERM": "xterm", "COLUMNS": "80"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    try:
        while True:
            try:
                shown += os.read(master, 4096)
            except OSError:  # the other side is closed
                break
        assert process.wait(PATIENCE) == 0, shown.decode()
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return shown.decode()


@pytest.mark.all
def test_ipython_in_a_terminal_shows_text(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    shown = ipython(tmp_path, "%run -i train.py", "log", "sim.timeline()", "animator")
    assert SHOWN in shown
    assert TABLE.rstrip() in shown
    assert re.search(LANE, shown)
    assert "<Figure: train loss, test acc against epoch>" in shown
    assert "object at 0x" not in shown
    assert "<table" not in shown


@pytest.mark.all
def test_ipython_that_runs_one_command_shows_text(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    shown = ipython(tmp_path, "-c", "exec(open('train.py').read()); log")
    assert shown.startswith(SHOWN)
    assert shown.endswith(TABLE)


def ipython(folder: Path, *lines: str) -> str:
    """What IPython shows, given lines to type, or its option -c and one to run."""
    run = list(lines) if lines[0] == "-c" else ["--simple-prompt"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "IPython", "--colors=nocolor", "--no-banner"),
            *run,
        ],
        cwd=folder,
        env=environment(folder),
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.all
def test_nbconvert_executes_a_committed_lesson(tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nbconvert", "--to", "html", "--execute"),
            *("--output-dir", str(tmp_path), str(LESSON)),
        ],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "01_devices.html").read_text()
    assert "<th>device</th>" in re.sub(r' style="[^"]*"', "", page)
    assert pictures(page)[-1].count("data:image/png;base64,") == 1


def test_pictures_of_the_report_have_words_for_those_who_do_not_see_them():
    notebook = nbformat.read(LESSON, as_version=4)
    page = report_html([LessonResult("01_devices", notebook, 1.0)])
    alt = "An H100 is about"
    assert any(f'alt="{alt}' in each for each in pictures(page))


def pictures(page: str) -> list[str]:
    return re.findall(r"<img\b[^>]*>", page)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_notebook_shows_everything_without_widgets(path):
    notebook = nbformat.read(path, as_version=4)
    assert "widgets" not in notebook.metadata
    rich = [
        output.data
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "data" in output
    ]
    for data in rich:
        assert not [mime for mime in data if "widget" in mime]
        text = data["text/plain"]
        # It says something, and more than the name of a class.
        assert re.search(r"\w", text)
        assert " object at 0x" not in text
        assert "<IPython.core" not in text
