"""Running a notebook's cells in a fresh kernel of this very interpreter."""

import contextlib
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import (
    CellExecutionError,
    CellTimeoutError,
    DeadKernelError,
)
from nbformat import NotebookNode
from tqdm import tqdm

from d2l_gpu.common.settings import PROGRESS
from d2l_gpu.course.kernelspec import ThisInterpreter

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Failure(Exception):
    """Why a notebook was not executed to its end.

    Attributes:
        summary: what went wrong, in one line.
    """

    def __init__(self, summary: str) -> None:
        super().__init__(summary)
        self.summary = summary


class CellFailure(Failure):
    """A cell that raised, ran out of time, or took the kernel down with it.

    Attributes:
        index: position of the cell among all cells of the notebook, from 0.
        details: the traceback without colours, or the summary if there is none.
    """

    def __init__(self, index: int, summary: str, details: str) -> None:
        super().__init__(summary)
        self.index = index
        self.details = details


def client_for(
    notebook: NotebookNode,
    folder: Path,
    *,
    timeout: int | None = None,
    kernel: KernelSpecManager | None = None,
) -> NotebookClient:
    """Return what runs the cells of a notebook; the arguments are `run_cells`'s."""
    return NotebookClient(
        notebook,
        km=AsyncKernelManager(kernel_spec_manager=kernel or ThisInterpreter()),
        timeout=timeout,
        record_timing=False,
        shutdown_kernel="immediate",
        resources={"metadata": {"path": str(folder)}},
    )


def run_cells(
    notebook: NotebookNode,
    folder: Path,
    *,
    timeout: int | None = None,
    passes: int = 1,
    after_cell: Callable[[], object] | None = None,
    kernel: KernelSpecManager | None = None,
) -> None:
    """Execute the code cells of ``notebook`` in order and store their outputs in it.

    Args:
        notebook: changed in place; what its code cells held before is discarded.
        folder: the working directory of the cells.
        timeout: seconds that a single cell may take; no limit if None.
        passes: how often all cells are run, one time after the other in the same
            kernel; the outputs of the last time are kept.
        after_cell: called whenever a code cell has run, for a progress bar.
        kernel: knows the kernel to run them in; default this interpreter's.

    Raises:
        CellFailure: the first cell that fails; the outputs up to and including
            that cell are in the notebook.
        Failure: the kernel does not start.
    """
    client = client_for(notebook, folder, timeout=timeout, kernel=kernel)
    with _started(client):
        for _ in range(passes):
            code = [
                (index, cell)
                for index, cell in enumerate(notebook.cells)
                if cell.cell_type == "code"
            ]
            for _, cell in code:
                cell.outputs = []
                cell.execution_count = None
            for index, cell in code:
                _run_cell(client, cell, index)
                if after_cell is not None:
                    after_cell()


@contextlib.contextmanager
def _started(client: NotebookClient) -> Iterator[None]:
    """Run a kernel for as long as the block takes.

    What it writes to stderr by itself appears after the block. If it doesn't start, the
    last line of that is the reason.
    """
    with tempfile.TemporaryFile() as stderr, contextlib.ExitStack() as stack:
        logging.disable(logging.ERROR)  # nbclient would log what is raised
        try:
            # The manager was handed in, so the client would leave its kernel running.
            # Nobody answers exercises here, so nobody's progress is recorded.
            env = os.environ | {PROGRESS: "0"}
            kernel = client.setup_kernel(cleanup_kc=True, stderr=stderr, env=env)
            stack.enter_context(kernel)
        except Exception as error:
            stderr.seek(0)
            said = stderr.read().decode(errors="replace").strip().splitlines()
            reason = [*str(error).splitlines()[:1], *said][-1]
            raise Failure(
                f"the kernel does not start ({reason.rstrip('.')}): d2l-gpu doctor "
                "kernel says more"
            ) from None
        finally:
            logging.disable(logging.NOTSET)
        try:
            yield
        finally:
            stack.close()
            stderr.seek(0)
            sys.stderr.write(stderr.read().decode(errors="replace"))


def progress_bar(notebook: NotebookNode, label: str) -> tqdm:
    """Return a bar on stderr, a step per code cell; silent unless on a terminal."""
    total = sum(cell.cell_type == "code" for cell in notebook.cells)
    return tqdm(total=total, desc=label, unit="cell", disable=None, leave=False)


def _run_cell(client: NotebookClient, cell: NotebookNode, index: int) -> None:
    try:
        client.execute_cell(cell, index)
    except CellExecutionError as error:
        summary = f"{error.ename}: {error.evalue}".splitlines()[0]
        raise CellFailure(index, summary, _ANSI.sub("", error.traceback)) from None
    except CellTimeoutError:
        summary = f"the cell ran for more than {client.timeout} s"
        raise CellFailure(index, summary, summary) from None
    except DeadKernelError:
        summary = "the kernel died while the cell ran"
        raise CellFailure(index, summary, summary) from None
