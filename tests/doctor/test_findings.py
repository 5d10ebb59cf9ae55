"""Commands that the doctor recommends act on the Python that asks."""

import os
import sys

import pytest

from d2l_gpu.doctor.findings import this_python

pytestmark = pytest.mark.skipif(os.name == "nt", reason="environments are links")


@pytest.fixture
def environments(tmp_path):
    """Folders of three environments of one Python, and a link to the first folder."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "python").symlink_to(sys.executable)
    (tmp_path / "none").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "one")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        (["one"], True),
        (["linked"], True),
        (["none", "one"], True),
        (["one", "two"], True),
        (["two"], False),
        (["two", "one"], False),
        (["none"], False),
    ],
)
def test_python_is_enough_where_a_terminal_finds_this_one(
    environments, monkeypatch, path, plain
):
    own = str(environments / "one" / "python")
    monkeypatch.setattr(sys, "executable", own)
    folders = [str(environments / each) for each in path]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    assert this_python() == ("python" if plain else own)
