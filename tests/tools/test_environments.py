"""Environments of their own: asked for in one sentence, whole or not there at all."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from d2l_gpu.common.frameworks import FRAMEWORKS, Framework
from d2l_gpu.common.requirements import install
from tests.helpers.paths import REPOSITORY
from tools import environments, pytest_setup

MXNET = next(each for each in FRAMEWORKS if each.tag == "mxnet")
OTHERS = [each for each in FRAMEWORKS if each != MXNET]
VERSION = "{}.{}".format(*sys.version_info)


@pytest.fixture
def toy(tmp_path, monkeypatch) -> Framework:
    """A framework whose environment needs nothing but what every one has."""
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "toy.txt").write_text(f"# Python {VERSION}\n")
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.delenv(environments.VARIABLE, raising=False)
    return Framework("toy", "Toy", "toy", hosted=False)


def test_mxnet_has_its_own_and_the_others_share_one():
    assert environments.has_its_own(MXNET)
    assert not any(map(environments.has_its_own, OTHERS))
    assert all(environments.kernel_name(each) is None for each in OTHERS)


def test_environments_are_where_the_variable_says(toy, tmp_path, monkeypatch):
    assert environments.folder("toy") == tmp_path / ".environments" / "toy"
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path / "else"))
    assert environments.folder("toy") == tmp_path / "else" / "toy"


def test_what_is_missing_is_said_with_the_command_that_makes_it(toy):
    assert environments.missing(toy) == (
        "Toy needs an environment of its own; make it: python -m tools.environments toy"
    )
    absent = Framework("absent", "Absent", "no_such_module")
    assert environments.missing(absent) == (
        f"Absent is not installed: {install('jupyter,no_such_module')}"
    )
    assert environments.missing(Framework("json", "JSON", "json")) is None


def test_environment_is_made_of_its_requirements_and_this_clone(toy, monkeypatch):
    commands = []
    monkeypatch.setattr(environments, "_run", commands.append)
    environments.make(toy)
    own = environments.interpreter("toy")
    assert commands[0] == [sys.executable, "-m", "venv", environments.folder("toy")]
    assert commands[1][0] == own
    assert commands[1][-2:] == ["--requirement", environments.requirements("toy")]
    assert commands[2][-3:] == ["--no-deps", "--editable", environments.ROOT]
    assert environments.missing(toy) is None
    spec = environments.kernel(toy).get_kernel_spec("python3")
    assert spec.argv[0] == str(own)


def test_half_of_an_environment_does_not_stay(toy, monkeypatch):
    def fail(command):
        if "pip" in command:
            raise subprocess.CalledProcessError(1, [str(part) for part in command])
        environments.folder("toy").mkdir(parents=True)

    monkeypatch.setattr(environments, "_run", fail)
    with pytest.raises(subprocess.CalledProcessError):
        environments.make(toy)
    assert not environments.folder("toy").exists()


def test_python_that_is_not_here_is_one_sentence(toy, monkeypatch, capsys):
    environments.requirements("toy").write_text("# Python 3.2\n")
    monkeypatch.setattr(environments, "FRAMEWORKS", (toy,))
    assert environments.main([]) == 1
    assert capsys.readouterr().err == (
        "Toy needs Python 3.2, but there is no python3.2 here: install it, or run this "
        "with it\n"
    )


def test_framework_without_its_own_environment_is_refused(capsys):
    with pytest.raises(SystemExit):
        environments.main(["jax"])
    assert "these have no environment of their own: jax" in capsys.readouterr().err


def test_notebooks_are_run_by_the_kernel_of_their_framework(pytestconfig, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", "mine")
    folder = REPOSITORY / "notebooks" / "en"
    option = pytestconfig.option
    before = option.nbval_current_env, option.nbval_kernel_name
    for each in FRAMEWORKS:
        its = pytest_setup.framework_of(folder / each.tag / "01_devices.ipynb")
        assert its == each
        with pytest_setup.kernel_for(its, pytestconfig):
            if each == MXNET:
                assert option.nbval_kernel_name == "d2l-gpu-mxnet"
                assert not option.nbval_current_env
            else:
                assert (option.nbval_current_env, option.nbval_kernel_name) == before
    assert (option.nbval_current_env, option.nbval_kernel_name) == before
    elsewhere = pytest_setup.framework_of(Path("anywhere/toy.ipynb"))
    assert elsewhere.tag == "pytorch"


def test_kernelspec_is_whole_json(toy, monkeypatch):
    monkeypatch.setattr(environments, "_run", lambda command: None)
    environments.make(toy)
    (path,) = environments.jupyter_path(toy).rglob("kernel.json")
    spec = json.loads(path.read_text())
    assert spec["display_name"] == "Toy"
    assert "{connection_file}" in spec["argv"]
