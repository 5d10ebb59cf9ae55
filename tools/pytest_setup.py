"""Configure how pytest runs the notebooks, and how its processes share cores and files.

nbval runs notebooks twice in one kernel, like readers who choose Run All again
(``pytest_sizes.py`` decides which runs leave out the second time). It compares every
cell both times, with numbers within a tolerance if the cell has one. A framework with a
separate environment uses the kernel there. Notebooks with missing dependencies are
skipped; with --forbid-skips, a skipped test fails.
"""

import contextlib
import functools
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path

import pytest
from nbval.plugin import IPyNbCell, IPyNbFile

from d2l_gpu.common.frameworks import FRAMEWORKS, Framework
from d2l_gpu.common.settings import PROGRESS
from d2l_gpu.course import SOLUTIONS
from tools import environments
from tools.companion import missing
from tools.edition import ROOT
from tools.languages import ENGLISH, Language, read_languages
from tools.tolerance import settled, tolerance

# pytest-xdist starts several pytest processes. Give each, and the processes it starts,
# its share of the cores: by default PyTorch would use all of them in each. PyTorch
# reads this variable on import.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    threads = max(1, (os.cpu_count() or 1) // workers)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))

# Tests, and the notebooks they run, pass many exercises, which aren't the reader's.
os.environ[PROGRESS] = "0"


# The slowest files, slowest first. pytest-xdist hands out files in this order, so that
# no process starts a slow one when the others have nothing left to do.
LONGEST = (
    "08_multi_gpu_resnet18.ipynb",
    "test_conformance.py",
    "test_launching.py",
    "test_judge.py",
    "test_graders.py",
    "test_benchmarks.py",
    "test_bundle.py",
    "test_checkpoints.py",
    "10_surviving.ipynb",
    "test_as_cuda.py",
    "test_distributed.py",
    "test_header.py",
    "test_cluster.py",
    "test_exercises.py",
    "test_browser.py",
    "test_sources.py",
    "test_progress.py",
    "09_scaling.ipynb",
    "test_notebooks.py",
    "test_pytest_plugin.py",
    "test_lab.py",
    "test_editors.py",
)


AGAIN = " again"  # ends the names of cells that are run a second time


class NotebookTwice(IPyNbFile):
    """A notebook whose cells nbval runs and compares, in most cases twice."""

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

        # nbval 0.11 runs cells without history, so a tensor that a cell displays is
        # soon freed. In Jupyter, Out keeps it, so it takes memory in the second run.
        kernel.execute_cell_input = execute

    def collect(self) -> Iterator[IPyNbCell]:
        cells = list(super().collect())
        reason = why_not_here([cell.cell.source for cell in cells], sys.platform)
        if reason is not None:
            pytest.skip(reason, allow_module_level=True)
        for again in ("",) if runs_once(self.path) else ("", AGAIN):
            for cell in cells:
                yield ToleratedCell.from_parent(
                    self,
                    name=f"{cell.name}{again}",
                    cell_num=cell.cell_num,
                    cell=deepcopy(cell.cell),  # nbval merges streams in place
                    options=cell.options,
                )


class ToleratedCell(IPyNbCell):
    """A cell whose numbers are compared within the tolerance set by its tag."""

    def compare_outputs(self, test, ref, skip_compare=None) -> bool:
        percent = tolerance(self.cell.metadata.get("tags", []))
        wrong = []
        if percent is not None:
            language = language_of(self.path)

            def sanitize(text: str) -> str:
                return language.with_english_numbers(self.sanitize(text))

            test, wrong = settled(test, ref, percent, sanitize)
        equal = super().compare_outputs(test, ref, skip_compare)
        if not equal:
            self.comparison_traceback += [f"  {each}" for each in wrong]
        return equal


def runs_once(path: Path) -> bool:
    """Return whether a notebook is too slow to run twice.

    That is true of solutions, where each check starts a Python process, and of the
    training on several GPUs. (PyTorch's lesson 10 covers launching processes twice.)
    """
    return path.name == LONGEST[0] or path.parent.name == SOLUTIONS


@functools.cache
def language_of(path: Path) -> Language:
    """Return the language of a notebook, which its folder names."""
    languages = read_languages(ROOT / "lessons")
    code = next((part for part in path.parts if part in languages), ENGLISH)
    return languages[code]


def framework_of(path: Path) -> Framework:
    """Return a notebook's framework, judging by its folder; PyTorch by default."""
    by_tag = {each.tag: each for each in FRAMEWORKS}
    folder = path.parents[path.parent.name == SOLUTIONS]
    return by_tag.get(folder.name, by_tag["pytorch"])


@contextlib.contextmanager
def kernel_for(framework: Framework, config: pytest.Config) -> Iterator[None]:
    """Make nbval use the kernel of a framework's environment, if it has one."""
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
    """Return why these cells can't run on a platform; None if they can."""
    if platform == "win32" and any("d2l.launch(" in source for source in sources):
        return "launch needs torchrun, which PyTorch's builds for Windows lack"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        places = {name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.path.name, len(places)))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what lives until the end.

    Thousands of tests are collected in every process. A test that calls `gc.collect`
    would wait for over half a second while it looks at them.
    """
    gc.collect()
    gc.freeze()


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
        help="fail skipped tests, for a machine that should have everything that the "
        "tests need",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.skipped and item.config.getoption("--forbid-skips"):
        report.outcome = "failed"
        report.longrepr = f"skipped: {report.longrepr[2]}"
    return report
