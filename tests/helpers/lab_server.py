"""Running `d2l-gpu lab` for tests: the real command, with a Jupyter of its own.

    python tests/helpers/lab_server.py <published> <arguments of d2l-gpu>

runs the command with the notebooks below the folder <published>, until its standard
input ends: so it ends with the test, however that one ends.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.fresh_process import PATH
from tests.helpers.waiting import PATIENCE, wait_until


@dataclass
class Lab:
    """A running `d2l-gpu lab`.

    Attributes:
        process: the command; ``log`` holds what it prints.
        url: of the server, which ends with a slash.
        token: that the server wants.
        runtime: folder in which it keeps a file for each kernel.
        notebooks: the reader's folder.
    """

    process: subprocess.Popen
    url: str
    token: str
    runtime: Path
    notebooks: Path
    log: Path


def jupyter_settings(folder: Path) -> dict[str, str]:
    """An environment in which Jupyter finds and keeps nothing outside of a folder."""
    return {
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "IPYTHONDIR": str(folder / "ipython"),
    }


@contextlib.contextmanager
def running_lab(
    published: Path, folder: Path, *arguments: str, **environment: str
) -> Iterator[Lab]:
    """Run `d2l-gpu lab` in ``folder`` for as long as the block takes.

    Args:
        published: folder with editions of the course.
        folder: where the reader is.
        arguments: of `d2l-gpu lab`; what follows ``--`` is for JupyterLab.
        environment: variables that are set on top.
    """
    settings = jupyter_settings(folder)
    own, passed_on = list(arguments), ["--", "--allow-root"]
    if "--" in own:
        end = own.index("--")
        own, passed_on = own[:end], passed_on + own[end + 1 :]
    options = ["lab", "--no-browser", *own, *passed_on]
    log = folder / "jupyter.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, __file__, str(published), *options],
            cwd=folder,
            env=os.environ | PATH | settings | environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        info = folder / "runtime" / f"jpserver-{process.pid}.json"

        def started() -> bool:
            assert process.poll() is None, log.read_text()
            # Its address stands in the log when it listens.
            return info.exists() and "To access the server" in log.read_text()

        wait_until(started)
        server = json.loads(info.read_text())
        yield Lab(
            process,
            server["url"],
            server["token"],
            folder / "runtime",
            folder / "d2l-gpu-course",
            log,
        )
    finally:
        process.stdin.close()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()


def _end_with_standard_input() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    from d2l_gpu import cli, course

    course.editions_root = lambda: Path(sys.argv[1])
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    sys.exit(cli.main(sys.argv[2:]))
