"""How much a run of pytest runs.

There are three sizes, each of which contains the ones before:

* ``pytest``: tests without a mark, and each English notebook for PyTorch once;
* ``pytest --all``: also tests marked ``all``, the English notebooks for the other
  frameworks, PyTorch's solutions, and the second run of each notebook whose source or
  helper differs from the commit ``--base``;
* ``pytest --weekly``: also tests marked ``weekly``, the other frameworks' solutions,
  and every second run.

What a run leaves out is deselected, and a line at the top of the run says so. A file or
test named on the command line runs whatever its size.
"""

import subprocess
from collections.abc import Collection, Iterator
from enum import IntEnum
from pathlib import Path

import pytest
from nbval.plugin import IPyNbCell

from d2l_gpu.common.frameworks import Framework
from d2l_gpu.course import SOLUTIONS
from tools.pytest_setup import AGAIN, framework_of

# What the notebooks of every framework import, beside the helper of their own.
SHARED = ("d2l_gpu/common/", "d2l_gpu/data/", "d2l_gpu/show/")
VIRTUAL_GPUS = "d2l_gpu/vgpu/"


class Size(IntEnum):
    """How large a run has to be for a test to be part of it."""

    PLAIN = 0
    ALL = 1
    WEEKLY = 2


LEFT_OUT = {
    Size.PLAIN: (
        "other frameworks' notebooks, solutions, second runs, most of conformance and "
        "some long tests; --all runs what CI runs, --weekly everything"
    ),
    Size.ALL: "other frameworks' solutions, most second runs; --weekly runs everything",
    Size.WEEKLY: "nothing",
}


def size_of(item: pytest.Item, changed: Collection[str]) -> Size:
    """Return the size of a test or of a cell of a notebook.

    Args:
        changed: the files that differ from the commit to compare with.
    """
    if isinstance(item, IPyNbCell):
        return notebook_size(item.path, item.name.endswith(AGAIN), changed)
    if item.get_closest_marker("weekly"):
        return Size.WEEKLY
    return Size.ALL if item.get_closest_marker("all") else Size.PLAIN


def notebook_size(path: Path, again: bool, changed: Collection[str]) -> Size:
    """Return the size of a notebook's first run, or of its second one."""
    framework = framework_of(path)
    if again:
        return Size.ALL if differs(path, framework, changed) else Size.WEEKLY
    others = framework.tag != "pytorch"
    return Size(others + (path.parent.name == SOLUTIONS))


def differs(path: Path, framework: Framework, changed: Collection[str]) -> bool:
    """Return whether a notebook's source, or what it imports, is among some files."""
    helper = f"d2l_gpu/{framework.module}"
    theirs = [*SHARED, f"{helper}.py", f"{helper}/"]
    theirs.append(f"lessons/{framework.tag}/{path.stem}.md")
    if framework.tag == "pytorch":
        theirs.append(VIRTUAL_GPUS)
    return any(name.startswith(tuple(theirs)) for name in changed)


def changed_since(commit: str, root: Path) -> frozenset[str]:
    """Return the files that differ from a commit; none where git doesn't know it."""
    command = ["git", "diff", "--name-only", "--relative", commit, "--"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    except OSError:  # no git
        return frozenset()
    return frozenset(done.stdout.splitlines())


def named(config: pytest.Config) -> Iterator[Path]:
    """Yield the files that the command line names, also those of single tests."""
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        if path.is_file():
            yield path.resolve()


def size_asked_for(config: pytest.Config) -> Size:
    """Return the size that the options of a run ask for."""
    if config.getoption("--weekly"):
        return Size.WEEKLY
    return Size.ALL if config.getoption("--all") else Size.PLAIN


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sizes", "how much to run")
    group.addoption("--all", action="store_true", help="run what CI runs")
    group.addoption("--weekly", action="store_true", help="run everything")
    group.addoption(
        "--base",
        default="HEAD^",
        metavar="COMMIT",
        help="with --all, run the notebooks that differ from this commit twice",
    )


def pytest_configure(config: pytest.Config) -> None:
    for mark, option in ("all", "--all or --weekly"), ("weekly", "--weekly"):
        config.addinivalue_line("markers", f"{mark}: run only with {option}")


def pytest_report_header(config: pytest.Config) -> str:
    size = size_asked_for(config)
    return f"size: {size.name.lower()}, which leaves out {LEFT_OUT[size]}"


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    size = size_asked_for(config)
    if size is Size.WEEKLY:
        return
    changed = ()
    if size is Size.ALL:
        changed = changed_since(config.getoption("--base"), config.rootpath)
    whole = set(named(config))
    kept, left_out = [], []
    for item in items:
        runs = item.path in whole or size_of(item, changed) <= size
        (kept if runs else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
