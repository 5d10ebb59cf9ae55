"""The images for JupyterHub and Binder: judged here, since none can be built here.

What their RUN lines do is tried in an environment of its own (`pytest --weekly`).
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tomllib
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.helpers.lab_server import jupyter_settings
from tests.helpers.paths import REPOSITORY
from tests.helpers.waiting import PATIENCE, wait_until

dockerfile_parse = pytest.importorskip("dockerfile_parse")

HUB, BINDER = REPOSITORY / "hub", REPOSITORY / "binder"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]

needs_bash = pytest.mark.skipif(
    sys.platform == "win32" or not shutil.which("bash"), reason="needs bash"
)


def instructions(name: str) -> Iterator[str]:
    """Yield the values of the Dockerfile's instructions of one name, in order."""
    parser = dockerfile_parse.DockerfileParser(fileobj=(HUB / "Dockerfile").open("rb"))
    for each in parser.structure:
        if each["instruction"] == name:
            yield each["value"]


def build_arguments() -> dict[str, str]:
    """Return the build arguments and their defaults."""
    pairs = (value.partition("=") for value in instructions("ARG"))
    return {name: default for name, _, default in pairs}


def copied() -> Iterator[tuple[list[str], str]]:
    """Yield what each COPY takes, and where it puts it."""
    for value in instructions("COPY"):
        *sources, target = [each for each in value.split() if not each.startswith("--")]
        yield sources, target


def required(package: str, extra: str) -> str:
    """Return the requirement for a package, as an extra states it."""
    stated = PROJECT["optional-dependencies"][extra]
    return next(each for each in stated if re.match(rf"{package}\b", each))


# ---- The files


def test_everything_that_the_image_copies_is_there_and_not_ignored():
    ignored = (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
    assert ignored[1] == "*"
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    sources = {source for names, _ in copied() for source in names}
    assert [name for name in sources if not (REPOSITORY / name).exists()] == []
    assert kept == sources


def test_the_wheel_can_be_built_from_what_the_image_copies():
    here = {source for names, _ in copied() for source in names}
    needed = {"pyproject.toml", "README.md", "hatch_build.py", "d2l_gpu", "notebooks"}
    needed |= {path.name for path in REPOSITORY.glob("LICENSE*")}
    assert needed <= here


def test_versions_are_those_of_the_project():
    arguments = build_arguments()
    assert arguments["TORCH"] == required("torch", "torch")
    assert required("torch", "torch") in (BINDER / "requirements.txt").read_text()
    assert arguments["EXTRAS"] in PROJECT["optional-dependencies"]
    python = re.search(r"python-([\d.]+)$", arguments["BASE"])[1]
    binders = (BINDER / "runtime.txt").read_text().strip().removeprefix("python-")
    offered = [each.rpartition(" ")[2] for each in PROJECT["classifiers"]]
    assert python in offered and binders in offered


def test_students_run_without_the_rights_of_root():
    assert list(instructions("USER")) == []  # so it's the base image's, jovyan
    base = build_arguments()["BASE"]
    assert base.startswith("quay.io/jupyter/")


@needs_bash
@pytest.mark.parametrize("script", [HUB / "copy_lessons.sh", BINDER / "postBuild"])
def test_scripts_are_valid_and_can_be_executed(script):
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/bin/bash\n")


def test_examples_are_valid_and_name_the_image_as_it_is_built():
    kubernetes = yaml.safe_load((HUB / "kubernetes.yaml").read_text("utf-8"))
    assert kubernetes["singleuser"]["image"]["name"].endswith("/d2l-gpu")
    example = (HUB / "jupyterhub_config.py").read_text("utf-8")
    settings: dict = {}
    exec(
        compile(example, "jupyterhub_config.py", "exec"),
        {"get_config": _Config},
        settings,
    )
    spawner = settings["c"].DockerSpawner
    assert spawner.image == "d2l-gpu"
    assert f"docker build -t {spawner.image} -f hub/Dockerfile ." in example
    limit = kubernetes["singleuser"]["memory"]["limit"]
    assert spawner.mem_limit == limit  # two examples, one figure


class _Config:
    """Any settings of any classes, as traitlets collects them."""

    def __getattr__(self, name: str) -> "_Config":
        self.__dict__[name] = _Config()
        return self.__dict__[name]


# ---- What the image does


@needs_bash
def test_a_server_starts_even_if_lessons_cannot_be_copied(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "d2l-gpu-course").write_text("a file, not a folder")
    started = _source(HUB / "copy_lessons.sh", home, sys.executable)
    assert started.returncode == 0
    assert "is a file" in started.stderr and "couldn't be copied" in started.stderr
    assert started.stdout.endswith("server\n")


@needs_bash
def test_a_start_copies_the_lessons_and_keeps_what_a_student_changed(tmp_path):
    assert _source(HUB / "copy_lessons.sh", tmp_path, sys.executable).returncode == 0
    lesson = tmp_path / "d2l-gpu-course" / "03_copying.ipynb"
    notebook = json.loads(lesson.read_text("utf-8"))
    notebook["cells"][0]["source"] = "# mine"
    lesson.write_text(json.dumps(notebook), "utf-8")
    assert _source(HUB / "copy_lessons.sh", tmp_path, sys.executable).returncode == 0
    assert "# mine" in lesson.read_text("utf-8")


def _source(script: Path, home: Path, python: str) -> subprocess.CompletedProcess:
    """Read a script as the image's start does, which then starts the server."""
    environment = {
        **os.environ,
        "HOME": str(home),
        "PATH": os.pathsep.join([str(Path(python).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(REPOSITORY),
    }
    return subprocess.run(
        ["bash", "-c", 'set -e; source "$0"; echo server', str(script)],
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.weekly
@needs_bash
def test_every_run_line_works_and_a_lesson_opens(tmp_path):
    root, home = tmp_path / "image", tmp_path / "home"
    home.mkdir()
    venv.create(root / "opt" / "python", with_pip=True)
    for sources, target in copied():
        for source in sources:
            _copy(REPOSITORY / source, root, target)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        **build_arguments(),
        **_torch_that_is_here(),
        "HOME": str(home),
        "PATH": os.pathsep.join(
            [str(root / "opt" / "python" / "bin"), os.environ["PATH"]]
        ),
    }
    for line in instructions("RUN"):
        line = line.replace("/opt/d2l-gpu", str(root / "opt" / "d2l-gpu"))
        subprocess.run(["sh", "-c", line], env=environment, cwd=home, check=True)
    hook = root / "usr/local/bin/before-notebook.d/50-copy-lessons.sh"
    subprocess.run(["bash", str(hook)], env=environment, cwd=home, check=True)
    assert _served(home, environment, "d2l-gpu-course/03_copying.ipynb")["content"]


def _copy(source: Path, root: Path, target: str) -> None:
    to = root / target.lstrip("/")
    if target.endswith("/"):
        to /= source.name
    to.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, to)


def _torch_that_is_here() -> dict[str, str]:
    """Return build arguments for this version of PyTorch, from pip's own index."""
    import torch

    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    index = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return {
        "TORCH": f"torch=={torch.__version__.partition('+')[0]}",
        "TORCH_INDEX": index or "https://pypi.org/simple",
    }


def _served(home: Path, environment: dict[str, str], path: str) -> dict:
    """Start JupyterLab in a home, and return what it says of a file there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex()
    server = subprocess.Popen(
        [
            *("jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1"),
            *(f"--ServerApp.port={port}", f"--IdentityProvider.token={token}"),
        ],
        env={**environment, **jupyter_settings(home / ".jupyter")},
        cwd=home,
    )
    url = f"http://127.0.0.1:{port}/api/contents/{path}?token={token}"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as response:
                said.update(json.load(response))
        except OSError:
            return False
        return True

    said: dict = {}
    try:
        wait_until(answers)
        return said
    finally:
        server.kill()
        server.wait()
