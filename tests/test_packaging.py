"""What pip and conda install is what the course needs, and no more."""

import importlib
import itertools
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from conftest import REPOSITORY

from d2l_gpu.course import lesson_names

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
EXTRA_REQUIREMENTS = list(itertools.chain.from_iterable(EXTRAS.values()))


def package_name(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement).group()


def test_base_needs_torch_and_numpy_only():
    names = {package_name(requirement) for requirement in PROJECT["dependencies"]}
    assert names == {"torch", "numpy"}


def test_requirements_have_lower_bounds_only():
    requirements = [*PROJECT["dependencies"], *EXTRA_REQUIREMENTS]
    extras = {f"d2l-gpu[{name}]" for name in EXTRAS}
    for requirement in requirements:
        assert requirement in extras or re.fullmatch(r"[\w.-]+>=[\d.]+", requirement)


def test_each_extra_takes_in_the_one_before():
    assert "d2l-gpu[lessons]" in EXTRAS["course"]
    assert "d2l-gpu[course]" in EXTRAS["test"]


def test_conda_environment_agrees_with_the_project():
    environment = yaml.safe_load((REPOSITORY / "environment.yml").read_text("utf-8"))
    assert environment["name"] == PROJECT["name"]
    assert environment["channels"] == ["conda-forge"]
    *conda, last = environment["dependencies"]
    assert last == {"pip": ["-e .[test]"]}
    assert conda[:2] == ["python", "pip"]
    extras = {package_name(entry) for entry in EXTRA_REQUIREMENTS}
    for name in conda:
        assert re.fullmatch(r"[a-z]+", name), f"{name} has a version"
    assert set(conda[2:]) == {"jupyterlab", "matplotlib", "nbval"}
    assert set(conda[2:]) <= extras


def test_pytest_is_told_of_the_plugin():
    ((name, target),) = PROJECT["entry-points"]["pytest11"].items()
    assert name == "d2l_gpu_vgpu"
    assert importlib.import_module(target).virtual_gpus


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    written = REPOSITORY / "notebooks" / "en" / "pytorch" / "by_a_running_lesson.py"
    written.touch()
    try:
        pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), ".")
    finally:
        written.unlink()
    (built,) = folder.glob("*.whl")
    return built


def pip(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments],
        cwd=REPOSITORY,
        check=True,
    )


def test_wheel_carries_the_notebooks_and_nothing_of_the_workshop(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    carried = {Path(name).stem for name in names if name.endswith(".ipynb")}
    lessons = set(lesson_names(REPOSITORY / "lessons", ".md"))
    assert carried == lessons
    assert lessons
    inside = {Path(name).suffix for name in names if "/course/notebooks/" in name}
    assert inside == {".ipynb"}
    assert {name.split("/")[0].split("-")[0] for name in names} == {"d2l_gpu"}
    tests = ("test_", "conftest", "fresh_process")
    assert not [name for name in names if Path(name).name.startswith(tests)]


def test_installed_wheel_runs_outside_of_the_clone(wheel, tmp_path):
    site = tmp_path / "site"
    pip("install", "--no-deps", "--target", str(site), str(wheel))
    module = [sys.executable, "-m", "d2l_gpu.cli", "run"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    options = {
        "cwd": tmp_path,
        "env": environment,
        "capture_output": True,
        "text": True,
    }
    result = subprocess.run([*module, "--help"], check=True, **options)
    assert "--timeout" in result.stdout
    # The installed command knows the lessons, so it has found its own notebooks.
    result = subprocess.run([*module, "nonsense"], check=False, **options)
    assert result.returncode == 2
    notebooks = lesson_names(site / "d2l_gpu/course/notebooks/en/pytorch")
    assert ", ".join(notebooks) in result.stderr
    assert notebooks
