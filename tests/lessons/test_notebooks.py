"""The checks of notebooks reject planted bad ones and accept the committed ones."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from d2l_gpu.common.settings import LANGUAGE
from d2l_gpu.course import SOLUTIONS, lesson_names
from d2l_gpu.exercises.registry import lessons_of
from tests.helpers.cells import checks_in, executed_cell, sanitised_by_nbval, stream
from tests.helpers.fresh_process import PATH
from tests.helpers.paths import REPOSITORY, SANITIZE
from tools import pytest_setup
from tools.check import comparison, edition_problems, notebook_problems
from tools.edition import Project
from tools.pytest_setup import runs_once

NOTEBOOKS = sorted((REPOSITORY / "notebooks" / "en").glob("*/*.ipynb"))
EDITIONS = sorted({path.parent for path in NOTEBOOKS})
SOLVED = sorted((REPOSITORY / "notebooks" / "en").glob(f"*/{SOLUTIONS}"))
LANGUAGES = list(Project(REPOSITORY).translations)


def label(path: Path) -> str:
    return str(path.relative_to(REPOSITORY / "notebooks"))


# ---- The committed notebooks


def test_every_lesson_has_its_notebook():
    editions = REPOSITORY / "notebooks" / "en"
    for framework in ("pytorch", "tensorflow", "jax", "mxnet"):
        lessons = lesson_names(REPOSITORY / "lessons" / framework, ".md")
        assert {"01", "02", "03", "04", "08"} <= {name[:2] for name in lessons}
        assert lessons == lesson_names(editions / framework)


@pytest.mark.parametrize("edition", EDITIONS, ids=label)
def test_edition_is_in_order(edition):
    paths = sorted(edition.glob("*.ipynb"))
    assert list(edition_problems(paths)) == []


@pytest.mark.parametrize("folder", SOLVED, ids=label)
def test_solutions_are_in_order(folder):
    paths = sorted(folder.glob("*.ipynb"))
    assert list(edition_problems(paths, solutions=True)) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_other_languages_have_all_notebooks_and_the_same_code_and_outputs(language):
    english = REPOSITORY / "notebooks" / "en"
    other = english.with_name(language)
    paths = {path.relative_to(english) for path in english.rglob("*.ipynb")}
    assert paths == {path.relative_to(other) for path in other.rglob("*.ipynb")}
    for path in paths:
        ours, theirs = code_in(other / path), code_in(english / path)
        if LANGUAGE in ours[0]["source"][-1]:
            # It speaks its language: `tools.agreement` compares what it puts out.
            for cell in *ours, *theirs:
                del cell["outputs"]
            del ours[0], theirs[0]
        assert ours == theirs, path


def code_in(path: Path) -> list[dict]:
    """Return the code cells of a notebook, outputs and all, as they are in the file."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    return code


@pytest.mark.parametrize("edition", EDITIONS, ids=label)
def test_every_exercise_is_specified_checked_and_solved(edition):
    tag = edition.name
    for lesson in lessons_of(tag):
        (path,) = edition.glob(f"{lesson}_*.ipynb")
        checked = set(checks_in(path))
        assert checked and checked == set(checks_in(edition / SOLUTIONS / path.name))
        sources = "\n".join(cell.source for cell in nbformat.read(path, 4).cells)
        assert checked == set(re.findall(rf"^### ({lesson}\.\d+) ", sources, re.M))


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
        (with_a_path("/opt/mlx/a"), "an absolute path"),
        (with_a_path("/usr/bin/environ"), "an absolute path"),
        (without_title, "does not begin with a title"),
        (without_aims, "does not state the aims"),
        (without_duration, "does not state the aims"),
        (without_exercises, "last headings are not What to remember and Exercises"),
        (with_summary_last, "last headings are not What to remember and Exercises"),
    ],
)
def test_planted_notebook_is_rejected(good_notebook, plant, problem):
    plant(good_notebook)
    assert any(problem in found for found in notebook_problems(good_notebook))


def with_an_answer(notebook):
    notebook.cells[3].source += "\nd2l.check('01.1', add)"
    notebook.cells[3].outputs = [stream("01.1: all checks pass.\n  [x] it adds\n")]


def with_a_failing_solution(notebook):
    with_an_answer(notebook)
    notebook.cells[3].outputs = [stream("01.1: 0 of 1 checks pass.\n  [ ] it adds\n")]


def test_a_lesson_shows_no_answer_and_a_solution_has_to_pass(good_notebook):
    with_an_answer(good_notebook)
    (found,) = notebook_problems(good_notebook)
    assert "cell cell-3: it shows an answer: 01.1: all checks pass." in found
    assert not list(notebook_problems(good_notebook, solutions=True))
    with_a_failing_solution(good_notebook)
    (found,) = notebook_problems(good_notebook, solutions=True)
    assert "cell cell-3: a solution does not pass: 01.1: 0 of 1 checks pass." in found


@pytest.mark.parametrize(
    "text",
    [
        "8 GB/s and images/s/GPU",
        "https://pytorch.org/docs/stable",
        "1/2/3",
        "/dev/shm",
        "#!/usr/bin/env bash\n",
        "'/opt/ml/checkpoints'",
    ],
)
def test_what_is_no_absolute_path_is_not_taken_for_one(good_notebook, text):
    good_notebook.cells[3].outputs = [stream(text)]
    assert list(notebook_problems(good_notebook)) == []


def ignored(cell, reason="machine"):
    cell.metadata.tags = [reason, "nbval-ignore-output"]


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
    assert comparison([good_notebook]).share == 1
    change(good_notebook.cells[1])
    assert comparison([good_notebook]).share == 0.9
    silent = executed_cell(11)
    silent.outputs = []
    good_notebook.cells.append(silent)
    assert comparison([good_notebook]).share == 0.9


def test_edition_with_too_little_compared_is_rejected(good_notebook, tmp_path):
    path = tmp_path / "01_toy.ipynb"
    ignored(good_notebook.cells[1])
    nbformat.write(good_notebook, path)
    assert list(edition_problems([path])) == []
    ignored(good_notebook.cells[2])
    nbformat.write(good_notebook, path)
    problem = (
        "only 80% of the code cells with output that isn't a measured time are "
        "compared, but at least 90% must be"
    )
    assert list(edition_problems([path])) == [problem]


def test_edition_that_measures_time_too_often_is_rejected(good_notebook, tmp_path):
    path = tmp_path / "01_toy.ipynb"
    for number in 1, 2:
        ignored(good_notebook.cells[number], "timing")
        found = comparison([good_notebook])
        assert (found.share, found.share_untimed) == (1 - number / 10, 1)
        nbformat.write(good_notebook, path)
        problem = "20% of the code cells with output measure time, but at most 10% may"
        assert list(edition_problems([path])) == [problem] * (number - 1)


def test_edition_with_too_loose_comparisons_is_rejected(good_notebook, tmp_path):
    path = tmp_path / "01_toy.ipynb"
    for number, tag in (2, "approx"), (3, "approx-9"), (4, "approx-50"):
        good_notebook.cells[number].metadata.tags = [tag]
    nbformat.write(good_notebook, path)
    assert list(edition_problems([path])) == []
    found = comparison([good_notebook])
    assert (found.exact, found.near, found.loose) == (7, 2, 1)
    good_notebook.cells[5].metadata.tags = ["approx-11"]
    nbformat.write(good_notebook, path)
    problem = "20% of the compared cells are looser than 10 %, but at most 10% may be"
    assert list(edition_problems([path])) == [problem]


def test_edition_without_notebooks_is_rejected():
    assert list(edition_problems([])) == ["there are no notebooks"]


# ---- Sanitising: what differs between machines becomes equal, all else does not


SIMULATED = "two products  1.23 ms  simulated (V100)"
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
        ("['/CPU:1', '/CPU:2']", "['/GPU:0', '/GPU:1']"),
        (
            "is on /job:localhost/replica:0/task:0/device:CPU:2\n",
            "is on /job:localhost/replica:0/task:0/device:GPU:1\n",
        ),
        (
            "Using 2 virtual GPUs, CPU:1 and CPU:2: computed on the CPU.",
            "Using 2 GPUs, GPU:0 and GPU:1: NVIDIA T4.",
        ),
        ("<Net object at 0x7f11b2>", "<Net object at 0xffff0184ac10>"),
        (SIMULATED, f"{SIMULATED}\ntwo products  1.05 ms  measured (Tesla V100) ± 2%"),
    ],
)
def test_what_differs_between_machines_becomes_equal(one, other):
    assert one != other
    assert sanitised_by_nbval(one) == sanitised_by_nbval(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("vgpu:0", "vgpu:1"),
        ("CPU:0", "CPU:1"),
        ("CPU:0", "GPU:0"),
        ("CPU:2", "GPU:2"),
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
        (SIMULATED, SIMULATED.replace("1.23", "1.24")),
        (SIMULATED, SIMULATED.replace("simulated", "measured")),
    ],
)
def test_what_is_wrong_stays_different(one, other):
    assert sanitised_by_nbval(one) != sanitised_by_nbval(other)


def test_a_line_that_has_everything_is_made_equal():
    text = VIRTUAL_2 + "\ntensor([1.], device='cuda:1')\n<a at 0x7f>"
    assert sanitised_by_nbval(text) == (
        "Using 2 GPUs, gpu:0 and gpu:1.\ntensor([1.], device='gpu:1')\n<a at 0x0>"
    )


# ---- nbval itself, on planted notebooks


def run_nbval(folder: Path, *options: str) -> dict[str, str]:
    """Run the notebooks of a folder; return what becomes of each cell."""
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider"]
    nbval = ["--nbval", "--nbval-current-env", f"--nbval-sanitize-with={SANITIZE}"]
    result = subprocess.run(
        [*command, *nbval, *options, str(folder)],
        cwd=folder,
        env=os.environ | PATH,
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = re.findall(
        r"^(PASSED|FAILED) ([\w-]+)\.ipynb::(Cell \d+(?: again)?)",
        result.stdout,
        re.MULTILINE,
    )
    assert result.returncode == any(verdict == "FAILED" for verdict, *_ in verdicts)
    return {f"{name}, {cell}": verdict for verdict, name, cell in verdicts}


def write_planted(path: Path, *cells: tuple[str, list]) -> None:
    """Write a notebook of code cells, each given with its committed outputs."""
    planted = [
        new_code_cell(source, id=f"cell-{i}", execution_count=i, outputs=outputs)
        for i, (source, outputs) in enumerate(cells)
    ]
    nbformat.write(new_notebook(cells=planted), path)


@pytest.mark.all
def test_nbval_rejects_wrong_outputs_only(tmp_path):
    cases = {
        "good": ("print('vgpu:1', 42)", "vgpu:1 42\n", True),
        "other-accelerator": ("print('cuda:1', 42)", "vgpu:1 42\n", True),
        "wrong-index": ("print('vgpu:1', 42)", "vgpu:0 42\n", False),
        "wrong-number": ("print('vgpu:1', 42)", "vgpu:1 43\n", False),
    }
    for name, (source, committed, _) in cases.items():
        write_planted(tmp_path / f"{name}.ipynb", (source, [stream(committed)]))
    assert run_nbval(tmp_path) == {
        f"{name}, Cell 0": "PASSED" if good else "FAILED"
        for name, (_, _, good) in cases.items()
    }


@pytest.mark.all
def test_numbers_of_tolerant_cells_may_deviate_and_nothing_else_may(tmp_path):
    cases = {  # what the cell prints, what was committed, its tag
        "near": ("9.1 ms", "10 ms", "approx", True),
        "far": ("8.9 ms", "10 ms", "approx", False),
        "strict": ("9.9 ms", "10 ms", "approx-1", True),
        "too-strict": ("9.8 ms", "10 ms", "approx-1", False),
        "loose": ("14.9 ms", "10 ms", "approx-50", True),
        "too-loose": ("15.1 ms", "10 ms", "approx-50", False),
        "other-unit": ("10 s", "10 ms", "approx", False),
        "untagged": ("9.9 ms", "10 ms", None, False),
        "device": ("cuda:1 9.9", "vgpu:1 10", "approx", True),
        "other-device": ("cuda:1 9.9", "vgpu:0 10", "approx", False),
    }
    for name, (printed, committed, tag, _) in cases.items():
        path = tmp_path / f"{name}.ipynb"
        write_planted(path, (f"print({printed!r})", [stream(f"{committed}\n")]))
        notebook = nbformat.read(path, as_version=4)
        notebook.cells[0].metadata.tags = [tag] if tag else []
        nbformat.write(notebook, path)
    verdicts = run_nbval(tmp_path, "-p", "tools.pytest_setup")
    assert verdicts == {
        f"{name}, Cell 0{again}": "PASSED" if good else "FAILED"
        for name, (*_, good) in cases.items()
        for again in ("", " again")
    }


# ---- Every notebook twice: tools/pytest_setup.py

COUNT = "n = globals().get('n', 0) + 1\nprint(n)"
ALIVE = "import weakref\nprint('last' in globals() and last() is not None)"
DISPLAY = "class Thing:\n    __repr__ = lambda self: 'thing'\nthing = Thing()\nthing"
FORGET = "last = weakref.ref(thing)\ndel thing"


def shown(text: str) -> list:
    return [new_output("execute_result", data={"text/plain": text}, execution_count=1)]


@pytest.mark.parametrize(
    ("path", "once"),
    [
        ("pytorch/03_copying.ipynb", False),
        ("pytorch/solutions/03_copying.ipynb", True),
        ("pytorch/08_multi_gpu_resnet18.ipynb", True),
        ("pytorch/10_surviving.ipynb", False),
        ("jax/08_multi_gpu_resnet18.ipynb", True),
        ("jax/03_copying.ipynb", False),
        ("toy.ipynb", False),
    ],
)
def test_only_long_notebooks_are_run_once(path, once):
    assert runs_once(REPOSITORY / "notebooks" / "en" / path) == once


@pytest.mark.all
def test_notebooks_are_run_and_compared_twice_in_one_kernel(tmp_path):
    two_streams = [stream("a"), *shown("1"), stream("b")]
    write_planted(
        tmp_path / "same.ipynb",
        ("print('vgpu:1')", [stream("cuda:1\n")]),
        ("print('a', end='')\ndisplay(1)\nprint('b', end='')", two_streams),
    )
    write_planted(
        tmp_path / "counts.ipynb", (COUNT, [stream("1\n")]), ("1", shown("1"))
    )
    write_planted(tmp_path / "wrong.ipynb", (COUNT, [stream("2\n")]))
    assert run_nbval(tmp_path, "-p", "tools.pytest_setup") == {
        "same, Cell 0": "PASSED",
        "same, Cell 1": "PASSED",
        "same, Cell 0 again": "PASSED",
        "same, Cell 1 again": "PASSED",
        "counts, Cell 0": "PASSED",
        "counts, Cell 1": "PASSED",
        "counts, Cell 0 again": "FAILED",
        "counts, Cell 1 again": "PASSED",
        "wrong, Cell 0": "FAILED",
        "wrong, Cell 0 again": "PASSED",
    }


@pytest.mark.all
def test_a_notebook_that_launches_processes_is_skipped_on_windows(tmp_path):
    launching = tmp_path / "launching.ipynb"
    write_planted(launching, ("d2l = None\nif 0:\n    d2l.launch('a.py', 2)", []))
    write_planted(tmp_path / "plain.ipynb", ("print(1)", [stream("1\n")]))
    plugin = tmp_path / "windows.py"  # makes this system say that it is another
    plugin.write_text(
        "from tools import pytest_setup\n"
        "real = pytest_setup.why_not_here\n"
        "pytest_setup.why_not_here = lambda sources, platform: real(sources, 'win32')\n"
    )
    options = ("-p", "tools.pytest_setup", "-p", "windows")
    names = {name.split(",")[0] for name in run_nbval(tmp_path, *options)}
    assert names == {"plain"}
    sources = ["d2l.launch('a.py', 2)"]
    assert "launch needs torchrun" in pytest_setup.why_not_here(sources, "win32")
    assert pytest_setup.why_not_here(sources, "linux") is None


@pytest.mark.all
def test_what_a_cell_displays_is_kept_as_notebooks_keep_it(tmp_path):
    write_planted(
        tmp_path / "displays.ipynb",
        (ALIVE, [stream("False\n")]),
        (DISPLAY, shown("thing")),
        (FORGET, []),
        *[(str(i), shown(str(i))) for i in range(4)],  # _, __ and ___ keep three
    )
    verdicts = run_nbval(tmp_path, "-p", "tools.pytest_setup")
    failed = [cell for cell, verdict in verdicts.items() if verdict == "FAILED"]
    assert failed == ["displays, Cell 0 again"]


def test_this_repository_runs_its_notebooks_so():
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "--weekly",
            "notebooks",
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    collected = done.stdout.splitlines()
    solutions = [path for folder in SOLVED for path in sorted(folder.glob("*.ipynb"))]
    for path in [*NOTEBOOKS, *solutions]:
        cells = nbformat.read(path, as_version=4).cells
        numbers = range(sum(cell.cell_type == "code" for cell in cells))
        first = [
            f"{path.relative_to(REPOSITORY).as_posix()}::Cell {i}" for i in numbers
        ]
        again = [] if runs_once(path) else [f"{name} again" for name in first]
        there = [line for line in collected if line.startswith(first[0][:-1])]
        assert there == first + again


@pytest.mark.parametrize(
    ("workers", "given", "threads"),
    [("2", None, "3"), ("8", None, "1"), ("2", "5", "5"), (None, None, None)],
)
def test_workers_share_the_cores(workers, given, threads, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    names = {"PYTEST_XDIST_WORKER_COUNT": workers, "OMP_NUM_THREADS": given}
    for name, value in names.items():
        monkeypatch.setenv(name, value or "")
        if value is None:
            monkeypatch.delenv(name)
    runpy.run_path(str(REPOSITORY / "tools" / "pytest_setup.py"))
    assert os.environ.get("OMP_NUM_THREADS") == threads


def test_the_longest_files_come_first_and_keep_their_order(monkeypatch):
    names = {path.name for path in REPOSITORY.glob("tests/**/test_*.py")}
    names |= {path.name for path in NOTEBOOKS}
    assert set(pytest_setup.LONGEST) <= names
    first, second, *_ = pytest_setup.LONGEST
    order = ["test_a.py", second, second, "test_b.py", first]
    items = [SimpleNamespace(path=Path(name), number=i) for i, name in enumerate(order)]
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytest_setup.pytest_collection_modifyitems(items)
    assert [item.number for item in items] == [0, 1, 2, 3, 4]
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    pytest_setup.pytest_collection_modifyitems(items)
    assert [item.number for item in items] == [4, 1, 2, 0, 3]
