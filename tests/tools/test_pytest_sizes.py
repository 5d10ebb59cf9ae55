"""Each size of a run contains the smaller ones; what is named runs in any of them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.fresh_process import PATH
from tools.pytest_setup import framework_of
from tools.pytest_sizes import Size, changed_since, differs, notebook_size

EDITIONS = Path("notebooks", "en")

# ---- The rule for notebooks


@pytest.mark.parametrize(
    ("name", "once", "twice"),
    [
        ("pytorch/03_copying", Size.PLAIN, Size.WEEKLY),
        ("pytorch/solutions/03_copying", Size.ALL, Size.WEEKLY),
        ("jax/03_copying", Size.ALL, Size.WEEKLY),
        ("mxnet/01_devices", Size.ALL, Size.WEEKLY),
        ("jax/solutions/03_copying", Size.WEEKLY, Size.WEEKLY),
    ],
)
def test_sizes_of_notebooks(name, once, twice):
    path = EDITIONS / f"{name}.ipynb"
    assert notebook_size(path, False, ()) == once
    assert notebook_size(path, True, ()) == twice


@pytest.mark.parametrize(
    ("file", "notebooks"),
    [
        ("lessons/jax/03_copying.md", {"jax/03_copying"}),
        ("lessons/pytorch/03_copying.md", {"pytorch/03_copying"}),
        ("d2l_gpu/jax.py", {"jax/03_copying", "jax/04_models"}),
        ("d2l_gpu/vgpu/tensor.py", {"pytorch/03_copying"}),
        ("d2l_gpu/torch/batches.py", {"pytorch/03_copying"}),
        (
            "d2l_gpu/show/lines.py",
            {"jax/03_copying", "jax/04_models", "pytorch/03_copying"},
        ),
        ("tests/test_jax.py", set()),
    ],
)
def test_notebooks_run_again_if_their_source_or_helper_has_changed(file, notebooks):
    every = ("jax/03_copying", "jax/04_models", "pytorch/03_copying")
    paths = {name: EDITIONS / f"{name}.ipynb" for name in every}
    found = {
        name
        for name in every
        if differs(paths[name], framework_of(paths[name]), [file])
    }
    assert found == notebooks
    for name in every:
        size = notebook_size(paths[name], True, [file])
        assert size == (Size.ALL if name in notebooks else Size.WEEKLY)


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_changes_are_those_since_a_commit_committed_or_not(tmp_path):
    def git(*command):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)

    def commit(name):
        (tmp_path / name).write_text("1")
        git("add", "-A")
        who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
        git(*who, "commit", "-q", "-m", name)

    git("init", "-q")
    for name in ("first.py", "second.py", "third.py"):
        commit(name)
    (tmp_path / "first.py").write_text("2")
    assert changed_since("HEAD^", tmp_path) == {"first.py", "third.py"}
    assert changed_since("HEAD", tmp_path) == {"first.py"}
    assert changed_since("nothing", tmp_path) == frozenset()


# ---- A run

TESTS = """\
import pytest

def test_short(): pass

@pytest.mark.all
def test_long(): pass

@pytest.mark.weekly
def test_longest(): pass

@pytest.mark.weekly
@pytest.mark.all
def test_both(): pass
"""


@pytest.fixture
def run(tmp_path, write_notebook):
    """A function that collects the tests of a toy project; it returns what is said."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_toy.py").write_text(TESTS)
    for name in (
        "pytorch/01_a",
        "pytorch/solutions/01_a",
        "jax/01_a",
        "jax/solutions/01_a",
    ):
        write_notebook(f"{EDITIONS}/{name}.ipynb", "1")

    def run(*options: str) -> str:
        plugins = ("-ptools.pytest_setup", "-ptools.pytest_sizes", "--nbval")
        command = [sys.executable, "-m", "pytest", "--collect-only", *plugins]
        done = subprocess.run(
            [*command, "--nbval-current-env", f"--rootdir={tmp_path}", *options],
            cwd=tmp_path,
            env=os.environ | PATH,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


def items(said: str) -> set[str]:
    """Return the tests in what ``pytest --collect-only -q`` prints."""
    names = {line.replace("\\", "/") for line in said.splitlines() if "::" in line}
    return {re.sub(r"^(tests|notebooks/en)/", "", name) for name in names}


PLAIN = {"test_toy.py::test_short", "pytorch/01_a.ipynb::Cell 0"}
ALL = {
    *PLAIN,
    "test_toy.py::test_long",
    "jax/01_a.ipynb::Cell 0",
    "pytorch/solutions/01_a.ipynb::Cell 0",
}
WEEKLY = {
    *ALL,
    "test_toy.py::test_longest",
    "test_toy.py::test_both",
    "pytorch/01_a.ipynb::Cell 0 again",
    "jax/01_a.ipynb::Cell 0 again",
    "jax/solutions/01_a.ipynb::Cell 0",
}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), PLAIN),
        pytest.param(("--all",), ALL, marks=pytest.mark.all),
        pytest.param(("--weekly",), WEEKLY, marks=pytest.mark.all),
    ],
    ids=["plain", "all", "weekly"],
)
def test_each_size_contains_the_smaller_ones(options, expected, run):
    assert items(run("-q", *options)) == expected


@pytest.mark.all
def test_files_and_tests_that_are_named_run_in_any_size(run):
    solution = "notebooks/en/jax/solutions/01_a.ipynb"
    said = run("-q", solution, "tests/test_toy.py::test_longest")
    assert items(said) == {
        "jax/solutions/01_a.ipynb::Cell 0",
        "test_toy.py::test_longest",
    }
    assert items(run("-q", "tests")) == {"test_toy.py::test_short"}
    notebook = "notebooks/en/pytorch/01_a.ipynb"
    again = {f"pytorch/01_a.ipynb::Cell 0{which}" for which in ("", " again")}
    assert items(run("-q", notebook)) == again


@pytest.mark.all
def test_a_run_says_what_it_leaves_out_and_how_to_run_it(run):
    (line,) = re.findall("^size: .*", run("tests"), re.MULTILINE)
    assert line.startswith("size: plain, which leaves out other frameworks' notebooks")
    assert "--all runs" in line and "--weekly" in line
