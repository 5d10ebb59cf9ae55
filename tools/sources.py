"""Bring programs that aren't on PyPI into a folder, each at the commit checks know.

    python -m tools.sources DIR              all of tests/ecosystem/sources.toml
    python -m tools.sources DIR nanoGPT      only these

For ``python -m tools.ecosystem --sources DIR`` and ``python -m tools.device_generic
DIR/pytorch``. A program that is there at its commit stays as it is.
"""

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "ecosystem" / "sources.toml"


def listed() -> dict[str, dict]:
    """Return what is listed: by name, the repository, the commit, and any folders."""
    sources = tomllib.loads(LIST.read_text(encoding="utf-8"))
    for entry in sources.values():
        release = version("torch").partition("+")[0]
        entry["commit"] = entry["commit"].replace("{version of torch}", release)
    return sources


def bring(
    folder: Path, repository: str, commit: str, folders: Sequence[str] = ()
) -> None:
    """Check out one commit of a repository, without its history.

    Args:
        folder: where to; it is made if it isn't there.
        commit: its name in full, or a tag.
        folders: check out only these of the repository, and what lies at its top.

    Raises:
        subprocess.CalledProcessError: git failed, and has said why.
    """
    marks = folder / ".git" / "brought"
    if marks.exists() and marks.read_text() == commit:
        return
    folder.mkdir(parents=True, exist_ok=True)

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(folder), *arguments], check=True)

    git("init", "--quiet")
    if folders:
        git("sparse-checkout", "set", *folders)
    # Of a part, only the files in it are fetched, when they are checked out.
    some = ["--filter=blob:none"] if folders else []
    git("fetch", "--quiet", "--depth=1", *some, repository, commit)
    # In a partial clone, git asks this for the files.
    git("config", "remote.origin.url", repository)
    git("config", "remote.origin.promisor", "true")
    git("checkout", "--quiet", "--force", "FETCH_HEAD")
    marks.write_text(commit)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(listed()))
    options = parser.parse_args(arguments)
    sources = listed()
    for name in options.names:
        if name not in sources:
            parser.error(f"there is no source {name!r}, but: {', '.join(sources)}.")
    for name in options.names or sources:
        print(f"{name} at {sources[name]['commit']}", flush=True)
        try:
            bring(options.folder / name, **sources[name])
        except subprocess.CalledProcessError as error:
            sys.exit(f"{name} could not be brought: {error}")


if __name__ == "__main__":
    main()
