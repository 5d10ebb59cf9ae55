"""What .ci/pages publishes: the newest release at the root, and main beside it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.edition import ROOT

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="what is published is built on Linux"
)

# A stand-in that writes its version where the web book would be built.
RUN = """\
pages() {
    mkdir -p "$SITE" && echo %s >"$SITE/index.html"
}
[ "$1" = pages ] && pages
"""


def git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True)


@pytest.fixture
def repository(tmp_path) -> Path:
    folder = tmp_path / "repository"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "pages", folder / ".ci")
    git(folder, "init", "--quiet")
    return folder


def commit(folder: Path, script: str, tag: str = "") -> None:
    (folder / ".ci" / "run").write_text(script, "utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "a commit")
    if tag:
        git(folder, "tag", tag)


def published(folder: Path) -> dict[str, str]:
    out = folder.parent / "public"
    script = ["bash", str(folder / ".ci" / "pages"), str(out)]
    subprocess.run(script, check=True)
    return {
        path.relative_to(out).as_posix(): path.read_text("utf-8").strip()
        for path in out.rglob("*.html")
    }


def test_without_releases_main_is_at_the_root(repository):
    commit(repository, RUN % "main")
    assert published(repository) == {"index.html": "main"}


def test_the_newest_release_is_at_the_root_and_main_beside_it(repository):
    commit(repository, RUN % "nine", "v0.9.0")
    commit(repository, RUN % "ten", "v0.10.0")
    commit(repository, RUN % "candidate", "v0.11.0rc1")
    commit(repository, RUN % "main")
    assert published(repository) == {"index.html": "ten", "main/index.html": "main"}
    # Nothing is left over that would stop the next time.
    assert published(repository) == {"index.html": "ten", "main/index.html": "main"}


def test_releases_without_a_web_book_do_not_count(repository):
    commit(repository, "echo there are no pages here", "v0.1.0")
    commit(repository, RUN % "main")
    assert published(repository) == {"index.html": "main"}
