"""Jupyter's kernels: which Python they are, and whether they start.

Both are probes: they start other programs, which may hang.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from .findings import one_line

NAME = "python3"  # what the notebooks of the course ask for
WANTED = ("d2l_gpu", "torch")

# Asks a Python, of any version, which it is and what it knows; in the place of a
# notebook, whose folder comes first on its path.
_WHO = f"""
import json, sys
try:
    from importlib.util import find_spec
except ImportError:
    find_spec = lambda name: None
knows = [name for name in {WANTED!r} if find_spec(name)]
print(json.dumps(dict(prefix=sys.prefix, knows=knows)))
"""


def is_this(prefix: str) -> bool:
    """Whether a Python of this prefix is that of this environment.

    What its executable links to says nothing: virtual environments share it.
    """
    return bool(prefix) and Path(prefix).resolve() == Path(sys.prefix).resolve()


def look_at_kernelspec() -> Iterator[dict]:
    """Find the kernel that JupyterLab of this environment would use, and ask it."""
    from jupyter_client.kernelspec import KernelSpecManager

    spec = KernelSpecManager().get_kernel_spec(NAME)
    yield {"argv": spec.argv, "folder": spec.resource_dir}
    program = spec.argv[0]
    major, minor = sys.version_info[:2]
    if program in ("python", f"python{major}", f"python{major}.{minor}"):
        # Jupyter takes such a name for the Python that it runs on itself.
        yield {"prefix": sys.prefix, "knows": WANTED}
        return
    environment = os.environ | spec.env
    path = shutil.which(program, path=environment.get("PATH"))
    yield {"there": path is not None}
    if path is None:
        return
    done = subprocess.run(
        [path, "-c", _WHO],
        cwd=Path.home(),  # not a clone, in which every Python finds the package
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    try:
        yield json.loads(done.stdout.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):  # it is no Python
        said = done.stderr.strip().splitlines()[-1:]
        yield {"refusal": one_line("".join(said)) or f"exit code {done.returncode}"}


def start_kernel(deadline: float) -> Iterator[dict]:
    """Start the kernel as JupyterLab would, and ask it whether it knows the course."""
    from jupyter_client.manager import KernelManager

    def left() -> float:
        return max(0.0, deadline - time.time())

    if not left():
        raise TimeoutError("loading Jupyter took all the time allowed")
    manager = KernelManager(kernel_name=NAME)
    manager.start_kernel()
    try:
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=left())
            text = []
            client.execute_interactive(
                "import importlib.util\n"
                "print(importlib.util.find_spec('d2l_gpu') is not None)",
                timeout=left(),
                output_hook=lambda message: text.append(
                    message["content"].get("text", "")
                ),
            )
            yield {"knows": "".join(text).strip() == "True"}
        finally:
            client.stop_channels()
    finally:
        manager.shutdown_kernel(now=True)
