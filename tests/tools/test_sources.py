"""Tests of tools.sources, with repositories on this machine."""

import re
import subprocess

import pytest

from tools import ecosystem, sources


@pytest.fixture
def repository(tmp_path):
    """A repository with two commits, of which the first is tagged, and their names."""
    folder = tmp_path / "theirs"
    folder.mkdir()

    def git(*arguments: str) -> str:
        names = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        done = subprocess.run(
            ["git", "-C", str(folder), *names, *arguments],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    git("init", "--quiet")
    git("config", "uploadpack.allowFilter", "true")
    commits = []
    for i in range(2):
        for name in ("program.py", "test/test_it.py", "other/large.py"):
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"print({i})\n")
        git("add", ".")
        git("commit", "--quiet", "-m", str(i))
        commits.append(git("rev-parse", "HEAD"))
    git("tag", "v1", commits[0])
    return folder.as_uri(), commits


def files(folder) -> set[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*.py"))
    return {path.as_posix() for path in found}


@pytest.mark.parametrize("i", [0, 1])
def test_a_commit_is_brought(tmp_path, repository, i):
    url, commits = repository
    for _ in range(2):  # the second time, it is there
        sources.bring(tmp_path / "ours", url, commits[i])
        assert (tmp_path / "ours" / "program.py").read_text() == f"print({i})\n"
        assert ecosystem.commit(tmp_path / "ours") == commits[i][:7]
    sources.bring(tmp_path / "ours", url, commits[1 - i])
    assert (tmp_path / "ours" / "program.py").read_text() == f"print({1 - i})\n"


def test_only_some_folders_are_brought(tmp_path, repository):
    url, _ = repository
    sources.bring(tmp_path / "ours", url, "v1", ["test"])
    assert files(tmp_path / "ours") == {"program.py", "test/test_it.py"}
    assert (tmp_path / "ours" / "test" / "test_it.py").read_text() == "print(0)\n"


def test_what_is_half_brought_is_brought_again(tmp_path, repository):
    url, commits = repository
    with pytest.raises(subprocess.CalledProcessError):
        sources.bring(tmp_path / "ours", url, "no-such-commit")
    sources.bring(tmp_path / "ours", url, commits[0])
    assert (tmp_path / "ours" / "program.py").exists()


def test_every_check_of_a_program_knows_where_it_comes_from():
    listed = sources.listed()
    used = {check.source for check in ecosystem.selected([])} - {""}
    assert used == set(listed) - {"pytorch"}
    for name, entry in listed.items():
        assert entry["repository"].startswith("https://github.com/"), name
        pattern = r"v\d+\.\d+\.\d+.*" if name == "pytorch" else "[0-9a-f]{40}"
        assert re.fullmatch(pattern, entry["commit"]), entry


def test_an_unknown_name_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        sources.main([str(tmp_path), "nothing"])
    assert "there is no source 'nothing'" in capsys.readouterr().err
