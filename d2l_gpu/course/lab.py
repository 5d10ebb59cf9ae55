"""Opening the course in JupyterLab: what ``d2l-gpu lab`` does."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat.sign import NotebookNotary

from d2l_gpu.course.copies import copy_notebooks, same_cells
from d2l_gpu.course.kernelspec import ThisInterpreter


def open_lab(
    notebooks: Path,
    lessons: Sequence[str],
    first: str,
    output: Path,
    *,
    port: int | None = None,
    browser: bool = True,
    classic: bool = False,
    more: Sequence[str] = (),
) -> int:
    """Copy lessons to the reader's folder and serve it with JupyterLab until it ends.

    JupyterLab runs in this process, so that nothing is left to end when it does. The
    kernel that it offers is this interpreter, whatever others the reader has.

    Args:
        notebooks: folder of the notebooks as they are published.
        lessons: which of them, by full name.
        first: the lesson to open.
        output: folder for the notebooks; those that the reader changed stay.
        port: to listen on, 0 for any that is free; None: 8888, or the next free one.
        browser: whether to open a browser.
        classic: whether to show a single document, without the panels around it.
        more: arguments for JupyterLab.

    Returns:
        0 when JupyterLab was ended, which Ctrl-C does without asking.

    Raises:
        OSError: the port cannot be listened on.
        PermissionError: this is root, and ``more`` does not say that this is meant.
        SystemExit: JupyterLab could not start, and has said why.
    """
    _check_root(more)
    if port:
        _check_port(port)
    for copy in copy_notebooks(notebooks, lessons, output):
        if same_cells(copy, notebooks / copy.name):
            _trust(copy)
    view = "doc" if classic else "lab"
    arguments = [
        f"--ServerApp.root_dir={output.resolve()}",
        f"--LabApp.default_url=/{view}/tree/{first}.ipynb",
        "--ServerApp.kernel_spec_manager_class="
        f"{ThisInterpreter.__module__}.{ThisInterpreter.__name__}",
        "--ServerApp.answer_yes=True",
    ]
    _add_defaults()
    if port is not None:
        # What was asked for is not replaced by another one.
        arguments += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if not browser:
        arguments.append("--no-browser")
    from jupyterlab.labapp import LabApp  # which takes seconds

    LabApp.launch_instance([*arguments, *more])
    return 0


def _add_defaults() -> None:
    """Let JupyterLab neither ask about news nor look for updates by default.

    What readers have set themselves stays in force.
    """
    variable = "JUPYTER_CONFIG_PATH"
    theirs = os.environ.get(variable)
    ours = str(Path(__file__).with_name("jupyter"))
    os.environ[variable] = os.pathsep.join(filter(None, [ours, theirs]))


def _trust(path: Path) -> None:
    """Let JupyterLab show the drawings of a notebook that the reader has not run.

    It shows no SVG of a notebook of which it does not know where it comes from.
    """
    NotebookNotary().sign(nbformat.read(path, as_version=4))


def _check_root(more: Sequence[str]) -> None:
    """Refuse before anything is copied what JupyterLab would refuse after a while."""
    is_root = getattr(os, "geteuid", lambda: -1)() == 0
    if is_root and not any(
        "allow-root" in each or "allow_root" in each for each in more
    ):
        raise PermissionError(
            "JupyterLab should not run as root; if that is what you want, as in a "
            "container of your own, add: -- --allow-root"
        )


def _check_port(port: int) -> None:
    try:
        socket.create_server(("localhost", port)).close()
    except OSError as error:
        raise OSError(
            f"cannot listen on port {port} ({error.strerror or error}); choose "
            "another one, or leave out --port"
        ) from None
