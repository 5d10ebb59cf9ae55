"""Sources of lessons are notebooks: JupyterLab opens, runs and saves them as such."""

import re
from pathlib import Path

import jupytext
import pytest
from jupyter_server.services.contents.largefilemanager import LargeFileManager
from jupytext.sync_contentsmanager import build_sync_jupytext_contents_manager_class

from d2l_gpu.common.frameworks import framework
from d2l_gpu.course.kernel import run_cells
from tests.helpers.paths import REPOSITORY
from tools import environments
from tools.edition import Project

LESSONS = REPOSITORY / "lessons"
SOURCES = [path for of in Project(REPOSITORY).sources.values() for path in of.values()]
# What JupyterLab knows of a notebook that has been run, and no source is to keep.
RUN = {
    "language_info": {
        "name": "python",
        "pygments_lexer": "ipython3",
        "version": "3.13.1",
    },
    "widgets": {},
}


def label(path: Path) -> str:
    return path.relative_to(LESSONS).with_suffix("").as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=label)
def test_source_names_the_kernel_of_its_framework(path):
    its = framework(path.parent.name)
    kernel = jupytext.read(path).metadata.kernelspec
    assert kernel.name == (environments.kernel_name(its) or "python3")


@pytest.mark.parametrize("path", SOURCES, ids=label)
def test_figures_are_where_the_source_looks_for_them(path):
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", path.read_text("utf-8")):
        assert (path.parent / name).is_file()


@pytest.mark.parametrize("path", SOURCES, ids=label)
def test_saving_from_jupyterlab_changes_nothing_but_what_was_edited(path, tmp_path):
    folder = tmp_path / path.parent.name
    folder.mkdir()
    (tmp_path / "jupytext.toml").write_bytes((LESSONS / "jupytext.toml").read_bytes())
    text = path.read_text("utf-8")
    (folder / path.name).write_text(text, encoding="utf-8", newline="\n")
    contents = build_sync_jupytext_contents_manager_class(LargeFileManager)
    manager = contents(root_dir=str(tmp_path))
    name = f"{folder.name}/{path.name}"
    model = manager.get(name, type="notebook")
    notebook = model["content"]
    notebook.metadata.update(RUN)
    for count, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type == "code":
            cell.execution_count = count
            cell.metadata["execution"] = {"shell.execute_reply": "2026-11-22"}
    manager.save(model, name)
    assert (folder / path.name).read_text("utf-8") == text
    notebook.cells[0].source += "\n\nA new sentence."
    manager.save(manager.get(name, type="notebook") | {"content": notebook}, name)
    new = (folder / path.name).read_text("utf-8")
    assert new.replace("\n\nA new sentence.", "", 1) == text != new


@pytest.mark.all
@pytest.mark.parametrize(
    "name",
    [
        "pytorch/03_copying",
        pytest.param("tensorflow/A2_equivalents", marks=pytest.mark.weekly),
        "jax/02_tensors",
    ],
)
def test_source_runs_as_it_is(name, tmp_path):
    """No build is involved: what is executed is what jupytext opens."""
    path = LESSONS / f"{name}.md"
    its = framework(path.parent.name)
    if reason := environments.missing(its):
        pytest.skip(reason)
    notebook = jupytext.read(path)
    run_cells(notebook, tmp_path, timeout=600, kernel=environments.kernel(its))
    printed = "".join(
        output.get("text", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    )
    # Each exercise comes twice: as the reader finds it, and solved.
    stubs, solved = (
        re.findall(rf"^(\w\d\.\d+): {said}\.", printed, re.MULTILINE)
        for said in ("not answered yet", "all checks pass")
    )
    assert stubs == solved and len(stubs) >= 3
