"""The checks of notebooks reject planted bad ones and accept the committed ones."""

import re
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from conftest import REPOSITORY, SANITIZE, executed_cell, stream
from nbformat.v4 import new_code_cell, new_notebook, new_output
from nbval.plugin import IPyNbCell, get_sanitize_patterns

from d2l_gpu.course.kernel import run_cells
from tools.check import edition_problems, notebook_problems, share_compared
from tools.compare import compared_outputs, sanitiser

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*/*/*.ipynb"))
EDITIONS = sorted({path.parent for path in NOTEBOOKS})


def label(path: Path) -> str:
    return str(path.relative_to(REPOSITORY / "notebooks"))


# ---- The committed notebooks


def test_every_lesson_has_its_notebook():
    lessons = {path.stem for path in (REPOSITORY / "lessons").glob("*.md")}
    assert lessons
    folder = REPOSITORY / "notebooks" / "en" / "pytorch"
    assert lessons == {path.stem for path in folder.glob("*.ipynb")}


@pytest.mark.parametrize("edition", EDITIONS, ids=label)
def test_edition_is_in_order(edition):
    paths = sorted(edition.glob("*.ipynb"))
    assert list(edition_problems(paths, language=edition.parent.name)) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=label)
def test_running_all_twice_in_one_kernel_gives_the_same_outputs(path, tmp_path):
    committed = nbformat.read(path, as_version=4)
    notebook = nbformat.read(path, as_version=4)
    run_cells(notebook, tmp_path, timeout=600, passes=2)
    assert all_compared(notebook) == all_compared(committed)


def all_compared(notebook) -> dict:
    sanitise = sanitiser(SANITIZE)
    return {
        cell.id: compared_outputs(cell, sanitise)
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def test_a_second_pass_that_differs_is_noticed(tmp_path):
    cell = new_code_cell("n = globals().get('n', 0) + 1\nprint(n)", id="count")
    notebook = new_notebook(cells=[cell])
    run_cells(notebook, tmp_path)
    first = all_compared(notebook)
    run_cells(notebook, tmp_path, passes=2)
    assert first == {"count": {"stdout": ["1\n"]}}
    assert all_compared(notebook) == {"count": {"stdout": ["2\n"]}}


# ---- Planted notebooks that the checks must reject


def test_good_notebook_has_no_problems(good_notebook):
    assert list(notebook_problems(good_notebook)) == []


def never_executed(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = None, []


def with_a_null_count(notebook):
    notebook.cells[3].execution_count = None


def executed_out_of_order(notebook):
    notebook.cells[3].execution_count = 17


def with_stderr(notebook):
    notebook.cells[3].outputs.append(stream("UserWarning: no\n", "stderr"))


def with_an_error(notebook):
    error = new_output("error", ename="ValueError", evalue="no", traceback=[])
    notebook.cells[3].outputs = [error]


def with_a_path(path):
    def plant(notebook):
        notebook.cells[3].outputs = [stream(f"saved to {path}\n")]

    return plant


def without_aims(notebook):
    notebook.cells[0].source = "# A toy\n\nLet us begin. *5 minutes.*"


def without_duration(notebook):
    notebook.cells[0].source = "# A toy\n\n*You will be able to* add."


def without_title(notebook):
    notebook.cells[0].source = notebook.cells[0].source.removeprefix("# ")


def without_exercises(notebook):
    notebook.cells[-1].source = "## Summary\n\nAll."


def with_summary_last(notebook):
    notebook.cells[-1].source = "## Exercises\n\n## Summary"


@pytest.mark.parametrize(
    ("plant", "problem"),
    [
        (never_executed, "cell cell-1: it was never executed"),
        (never_executed, "no cell has any output"),
        (with_a_null_count, "cell cell-3: it was never executed"),
        (executed_out_of_order, "not executed in order"),
        (with_stderr, "cell cell-3: output on stderr: UserWarning"),
        (with_an_error, "cell cell-3: an error: ValueError: no"),
        (
            with_a_path("/home/ann/model.pt"),
            "an absolute path in the output: /home/ann",
        ),
        (with_a_path("'/tmp/x/model.pt'"), "an absolute path"),
        (with_a_path(r"C:\Users\ann"), "an absolute path"),
        (with_a_path("file:///srv/a"), "an absolute path"),
        (without_title, "does not begin with a title"),
        (without_aims, "does not state the aims"),
        (without_duration, "does not state the aims"),
        (without_exercises, "last headings are not Summary and Exercises"),
        (with_summary_last, "last headings are not Summary and Exercises"),
    ],
)
def test_planted_notebook_is_rejected(good_notebook, plant, problem):
    plant(good_notebook)
    assert any(problem in found for found in notebook_problems(good_notebook))


@pytest.mark.parametrize(
    "text",
    ["8 GB/s and images/s/GPU", "https://pytorch.org/docs/stable", "1/2/3", "/dev/shm"],
)
def test_what_is_no_absolute_path_is_not_taken_for_one(good_notebook, text):
    good_notebook.cells[3].outputs = [stream(text)]
    assert list(notebook_problems(good_notebook)) == []


def ignored(cell):
    cell.metadata.tags = ["timing", "nbval-ignore-output"]


def ignored_by_comment(cell):
    cell.source = "# NBVAL_IGNORE_OUTPUT\n" + cell.source


def skipped(cell):
    cell.metadata.tags = ["nbval-skip"]


def only_a_picture(cell):
    data = {"image/png": "aGVsbG8=", "text/plain": "<Figure size 640x480 with 1 Axes>"}
    cell.outputs = [new_output("display_data", data=data)]


@pytest.mark.parametrize(
    "change", [ignored, ignored_by_comment, skipped, only_a_picture]
)
def test_share_of_compared_cells(good_notebook, change):
    assert share_compared([good_notebook]) == 1
    change(good_notebook.cells[1])
    assert share_compared([good_notebook]) == 0.9
    silent = executed_cell(11)
    silent.outputs = []
    good_notebook.cells.append(silent)
    assert share_compared([good_notebook]) == 0.9


def test_edition_with_too_little_compared_is_rejected(good_notebook, tmp_path):
    path = tmp_path / "01_toy.ipynb"
    ignored(good_notebook.cells[1])
    nbformat.write(good_notebook, path)
    assert list(edition_problems([path])) == []
    ignored(good_notebook.cells[2])
    nbformat.write(good_notebook, path)
    problem = "only 80% of the code cells with output are compared, not 90%"
    assert list(edition_problems([path])) == [problem]


def test_edition_without_notebooks_is_rejected():
    assert list(edition_problems([])) == ["there are no notebooks"]


# ---- Sanitising: what differs between machines becomes equal, all else does not


def sanitised_by_nbval(text: str) -> str:
    patterns = OrderedDict(get_sanitize_patterns(SANITIZE.read_text()))
    cell = SimpleNamespace(parent=SimpleNamespace(sanitize_patterns=patterns))
    return IPyNbCell.sanitize(cell, text)


VIRTUAL_2 = (
    "Using 2 virtual GPUs, vgpu:0 and vgpu:1: computed on the CPU, memory simulated."
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("vgpu:1", "cuda:1"),
        ("mps:0", "xpu:0"),
        ("tensor([1.], device='vgpu:1')", "tensor([1.], device='cuda:1')"),
        ("device(type='vgpu', index=1)", "device(type='cuda', index=1)"),
        ("device(type='vgpu')", "device(type='mps')"),
        ("{'xpu': 2}", "{'vgpu': 2}"),
        ('"vgpu"', '"cuda"'),
        ("vgpu\n", "cuda\n"),
        (
            "found at least two devices, vgpu:0 and vgpu:1!",
            "found at least two devices, cuda:0 and cuda:1!",
        ),
        ("vgpu out of memory. Tried", "CUDA out of memory. Tried"),
        ("torch.vgpu.FloatTensor", "torch.cuda.FloatTensor"),
        (VIRTUAL_2, "Using 2 GPUs, cuda:0 and cuda:1: NVIDIA T4."),
        (
            "Using 1 virtual GPU, vgpu:0: computed on the CPU, memory simulated.",
            "Using 1 GPU, mps:0: Apple M2.",
        ),
        (
            "Using 3 virtual GPUs, vgpu:0, vgpu:1 and vgpu:2: computed on the CPU.\n5",
            "Using 3 GPUs, cuda:0, cuda:1 and cuda:2: NVIDIA A10G, 24 GB.\n5",
        ),
        ("<Net object at 0x7f11b2>", "<Net object at 0xffff0184ac10>"),
    ],
)
def test_what_differs_between_machines_becomes_equal(one, other):
    assert one != other
    assert sanitised_by_nbval(one) == sanitised_by_nbval(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("vgpu:0", "vgpu:1"),
        ("vgpu:1", "cuda:10"),
        ("vgpu:0", "cpu"),
        ("vgpu:0", "gpu"),
        ("device(type='vgpu', index=0)", "device(type='vgpu', index=1)"),
        ("device(type='vgpu', index=0)", "device(type='cpu', index=0)"),
        ("'vgpu'", "'cpu'"),
        ("vgpu\n", "cpu\n"),
        ("'vgpu'", "vgpu"),
        (VIRTUAL_2, VIRTUAL_2.replace("vgpu:1", "vgpu:2")),
        (VIRTUAL_2, VIRTUAL_2.replace("Using 2", "Using 3")),
        (VIRTUAL_2, "Using 1 GPU, cuda:0: NVIDIA T4."),
        (VIRTUAL_2 + "\n5", VIRTUAL_2 + "\n6"),
        (VIRTUAL_2, ""),
        ("vgpu out of memory: 4 bytes", "CUDA out of memory: 8 bytes"),
        ("0x10", "0x11"),
        ("24", "25"),
        ("my_cuda:0", "my_vgpu:0"),
    ],
)
def test_what_is_wrong_stays_different(one, other):
    assert sanitised_by_nbval(one) != sanitised_by_nbval(other)


def test_own_sanitising_is_that_of_nbval():
    text = VIRTUAL_2 + "\ntensor([1.], device='cuda:1')\n<a at 0x7f>"
    assert sanitiser(SANITIZE)(text) == sanitised_by_nbval(text)
    assert sanitised_by_nbval(text) == (
        "Using 2 GPUs, gpu:0 and gpu:1.\ntensor([1.], device='gpu:1')\n<a at 0x0>"
    )


# ---- nbval itself, on planted notebooks


def test_nbval_rejects_wrong_outputs_only(tmp_path):
    cases = {
        "good": ("print('vgpu:1', 42)", "vgpu:1 42\n", True),
        "other-accelerator": ("print('cuda:1', 42)", "vgpu:1 42\n", True),
        "wrong-index": ("print('vgpu:1', 42)", "vgpu:0 42\n", False),
        "wrong-number": ("print('vgpu:1', 42)", "vgpu:1 43\n", False),
    }
    for name, (source, committed, _) in cases.items():
        cell = new_code_cell(
            source, id="a", execution_count=1, outputs=[stream(committed)]
        )
        nbformat.write(new_notebook(cells=[cell]), tmp_path / f"{name}.ipynb")
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider"]
    options = ["--nbval", "--nbval-current-env", f"--nbval-sanitize-with={SANITIZE}"]
    result = subprocess.run(
        [*command, *options, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = dict(
        reversed(verdict)
        for verdict in re.findall(
            r"^(PASSED|FAILED) ([\w-]+)\.ipynb::", result.stdout, re.MULTILINE
        )
    )
    assert result.returncode == 1
    assert verdicts == {
        name: "PASSED" if good else "FAILED" for name, (_, _, good) in cases.items()
    }
