"""How pytest runs the notebooks, and how its processes share the cores and the files.

nbval runs notebooks twice in one kernel here, as readers do who choose Run All again,
and compares every cell both times, numbers within a tolerance where a cell asks for it.
A framework with an environment of its own has its kernel there. A notebook that needs
more than is installed is skipped; with --forbid-skips, whatever is skipped fails.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path

import pytest
from nbval.plugin import IPyNbCell, IPyNbFile

from d2l_gpu.common.frameworks import FRAMEWORKS, Framework
from d2l_gpu.course import SOLUTIONS
from tools import environments
from tools.companion import missing
from tools.tolerance import settled, tolerance

# pytest-xdist starts several pytests; what they start inherits their share of the
# cores. PyTorch reads this when it is loaded, and would give all cores to each.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    threads = max(1, (os.cpu_count() or 1) // workers)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))


# Files of minutes, the longest first. pytest-xdist gives files to its processes in this
# order; else the last one could have one of these alone, and the others nothing to do.
LONGEST = (
    "07_multi_gpu_resnet18.ipynb",
    "test_conformance.py",
    "test_launch.py",
    "test_graders.py",
    "test_benchmarks.py",
    "test_bundle.py",
    "test_checkpoints.py",
    "09_in_the_wild.ipynb",
    "test_as_cuda.py",
    "test_distributed.py",
    "test_header.py",
    "test_cluster.py",
    "test_exercises.py",
    "test_browser.py",
    "test_sources.py",
    "test_progress.py",
    "08_scaling.ipynb",
    "test_notebooks.py",
    "test_pytest_plugin.py",
    "test_lab.py",
    "test_editors.py",
)


class NotebookTwice(IPyNbFile):
    """A notebook of which nbval runs and compares all cells, and mostly then again."""

    def setup(self) -> None:
        framework = framework_of(self.path)
        if reason := missing(self.path.stem) or environments.missing(framework):
            pytest.skip(reason)
        with kernel_for(framework, self.config):
            super().setup()
        kernel = self.kernel

        def execute(source: str, allow_stdin: bool | None = None) -> str:
            return kernel.kc.execute(
                source, allow_stdin=allow_stdin, stop_on_error=False
            )

        # nbval 0.11 leaves no history, so that a tensor that a cell displays is freed
        # soon. Notebooks keep it in Out, where it takes memory in the second run.
        kernel.execute_cell_input = execute

    def collect(self) -> Iterator[IPyNbCell]:
        cells = list(super().collect())
        reason = why_not_here([cell.cell.source for cell in cells], sys.platform)
        if reason is not None:
            pytest.skip(reason, allow_module_level=True)
        for again in ("",) if runs_once(self.path) else ("", " again"):
            for cell in cells:
                yield ToleratedCell.from_parent(
                    self,
                    name=f"{cell.name}{again}",
                    cell_num=cell.cell_num,
                    cell=deepcopy(cell.cell),  # nbval joins streams in place
                    options=cell.options,
                )


class ToleratedCell(IPyNbCell):
    """A cell whose numbers are compared within the tolerance that its tag names."""

    def compare_outputs(self, test, ref, skip_compare=None) -> bool:
        percent = tolerance(self.cell.metadata.get("tags", []))
        wrong = []
        if percent is not None:
            test, wrong = settled(test, ref, percent, self.sanitize)
        equal = super().compare_outputs(test, ref, skip_compare)
        if not equal:
            self.comparison_traceback += [f"  {each}" for each in wrong]
        return equal


def runs_once(path: Path) -> bool:
    """Return whether a notebook is too long to be run a second time.

    These are solutions, where each check starts a Python of its own, and the training
    on several GPUs. (Processes are launched twice by PyTorch's lesson 09.)
    """
    return path.name == LONGEST[0] or path.parent.name == SOLUTIONS


def framework_of(path: Path) -> Framework:
    """Return the framework that a notebook is for, by its folder, or PyTorch."""
    by_tag = {each.tag: each for each in FRAMEWORKS}
    folder = path.parents[path.parent.name == SOLUTIONS]
    return by_tag.get(folder.name, by_tag["pytorch"])


@contextlib.contextmanager
def kernel_for(framework: Framework, config: pytest.Config) -> Iterator[None]:
    """Let nbval take the kernel of a framework's environment, if it has one."""
    name = environments.kernel_name(framework)
    if name is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(environments.jupyter_path(framework)))
        patch.setattr(config.option, "nbval_current_env", False)
        patch.setattr(config.option, "nbval_kernel_name", name)
        yield


def why_not_here(sources: Sequence[str], platform: str) -> str | None:
    """Return why a notebook with these cells cannot run on a system, or None."""
    if platform == "win32" and any("d2l.launch(" in source for source in sources):
        return "launch needs torchrun, which PyTorch's builds for Windows lack"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        places = {name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(parent):
    collectors = yield
    return [
        NotebookTwice.from_parent(parent, path=collector.path)
        if isinstance(collector, IPyNbFile)
        else collector
        for collector in collectors
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forbid-skips",
        action="store_true",
        help="let a skipped test fail, as where all that it needs is to be there",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.skipped and item.config.getoption("--forbid-skips"):
        report.outcome = "failed"
        report.longrepr = f"skipped: {report.longrepr[2]}"
    return report
