"""What we say about installing depends on where this package came from."""

import json
import shlex
from pathlib import Path

import pytest

from d2l_gpu.common import requirements
from d2l_gpu.common.frameworks import framework
from d2l_gpu.common.requirements import install
from tests.helpers.paths import REPOSITORY

SOURCE = "https://github.com/d2l-gpu/d2l-gpu"


@pytest.fixture
def installed(plant, monkeypatch):
    """A function that makes this package one that pip has installed from somewhere."""

    def install_from(**origin: object) -> None:
        (plant.modules / "d2l_gpu").mkdir()
        plant.package("d2l-gpu", "0.1.0")
        folder = plant.modules / "d2l_gpu-0.1.0.dist-info"
        if origin:
            (folder / "direct_url.json").write_text(json.dumps(origin))
        monkeypatch.setattr(requirements, "_HERE", plant.modules.resolve())

    return install_from


def test_in_a_clone_it_is_installed_from_the_clone(tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    assert install("course") == "pip install -e '.[course]'"
    mxnet = "pip install -r environments/mxnet.txt"
    assert framework("mxnet").install == mxnet
    monkeypatch.chdir(tmp_path)
    assert shlex.split(install("course"))[-1] == f"{REPOSITORY}[course]"
    assert framework("mxnet").install == f"cd {REPOSITORY} && {mxnet}"


def test_what_came_from_an_index_is_installed_from_the_index(installed):
    installed()
    assert install("jupyter,jax") == "pip install 'd2l-gpu[jupyter,jax]'"


def test_what_came_from_a_folder_is_installed_from_the_folder(installed, tmp_path):
    installed(url=tmp_path.as_uri(), dir_info={})
    assert shlex.split(install("course"))[-1] == f"{tmp_path}[course]"


def test_what_came_from_a_wheel_is_installed_from_the_wheel(installed, tmp_path):
    wheel = tmp_path / "d2l_gpu-0.1.0-py3-none-any.whl"
    wheel.touch()
    installed(url=wheel.as_uri(), archive_info={})
    assert shlex.split(install("course"))[-1] == f"{wheel}[course]"
    wheel.unlink()  # no index need have this release, but the repository is there
    assert install("course") == f"pip install 'd2l-gpu[course] @ git+{SOURCE}'"


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ({"url": f"{SOURCE}/x.whl", "archive_info": {}}, f"{SOURCE}/x.whl"),
        (
            {"url": SOURCE, "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            f"git+{SOURCE}@abc",
        ),
    ],
)
def test_what_came_from_an_address_is_installed_from_there(installed, origin, words):
    installed(**origin)
    assert install("torch") == f"pip install 'd2l-gpu[torch] @ {words}'"


def test_what_was_never_installed_comes_from_the_repository(monkeypatch, tmp_path):
    monkeypatch.setattr(requirements, "_HERE", tmp_path)
    assert install("course") == f"pip install 'd2l-gpu[course] @ git+{SOURCE}'"
    assert framework("mxnet").install.startswith(f"git clone {SOURCE} && cd d2l-gpu")


def test_no_other_code_says_where_this_package_is_installed_from():
    for path in REPOSITORY.glob("d2l_gpu/**/*.py"):
        text = path.read_text("utf-8")
        assert "pip install 'd2l-gpu" not in text, path
        assert 'pip install "d2l-gpu' not in text, path
        assert path == Path(requirements.__file__) or "install '{OURS}" not in text
