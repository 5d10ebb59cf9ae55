"""What the environment variables of the package mean."""

import pytest

from d2l_gpu.common.settings import DATA, data_folder


@pytest.mark.parametrize(
    ("chosen", "inside"),
    [
        ("~", ""),
        ("~/data", "data"),
        (" ~/my data/d2l ", "my data/d2l"),
        ("{home}/data", "data"),
    ],
)
def test_data_at_home_are_there_from_every_folder(
    tmp_path, monkeypatch, chosen, inside
):
    home = tmp_path / "home"
    for name in ("HOME", "USERPROFILE"):  # the latter on Windows
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv(DATA, chosen.format(home=home))
    for folder in (tmp_path / "one", tmp_path / "~", home):
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert data_folder() == home / inside


@pytest.mark.parametrize("chosen", ["data", "./data", "../here/data"])
def test_other_names_are_those_of_the_working_folder(tmp_path, monkeypatch, chosen):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv(DATA, chosen)
    folder = data_folder()
    assert folder.is_absolute()
    assert folder.resolve() == (here / "data").resolve()
