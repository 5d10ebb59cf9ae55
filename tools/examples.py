"""Run the examples on the pages of ``docs/vgpu``, and write what they print.

    python -m tools.examples                  all pages
    python -m tools.examples docs/vgpu/ranks.md
    python -m tools.examples --check          fail where an output has changed

A page's blocks run in order, in one process and in an empty folder:

* A block of Python or of shell runs, and the block of ``text`` behind it is what it
  printed. Behind ``python raises``, it's also the error that it ended with.
* A block whose first line is a comment with a file's name is written to that file.
* Lines that install packages aren't run.

So no output is typed by hand. How many seconds a program took is not compared.
"""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "vgpu"

_FENCE = re.compile(
    r"^```(?P<kind>python|sh|toml|yaml)(?P<raises> raises)?\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<said>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"# ([\w./-]+\.(?:py|toml|yml))\n")
_INSTALLS = re.compile(r"(?:python -m venv|\.|pip install|npm ci|cd) .*")
# pytest shortens what it prints unless it runs in CI, and obeys its own variables.
_VARYING = {"CI", "BUILD_NUMBER", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST"}
_TOOK = re.compile(r"\bin \d+\.\d+s\b")


@dataclass(frozen=True)
class Block:
    """An example.

    Attributes:
        kind: its language.
        raises: whether it ends with an error.
        code: its lines.
        said: what the page says that it prints.
    """

    kind: str
    raises: bool
    code: str
    said: str

    @property
    def file(self) -> str | None:
        """The file that it's written to, None if it's run."""
        name = _FILE.match(self.code)
        return name[1] if name else None

    @property
    def installs(self) -> bool:
        """Whether it only installs packages."""
        return self.kind == "sh" and all(
            _INSTALLS.fullmatch(line) for line in self.code.splitlines()
        )


def blocks(text: str) -> list[Block]:
    """Return the examples of a page."""
    return [
        Block(found["kind"], bool(found["raises"]), found["code"], found["said"] or "")
        for found in _FENCE.finditer(text)
    ]


def outputs(page: Path) -> list[str]:
    """Run a page's examples in a process of their own, and return what each printed.

    Raises:
        RuntimeError: an example ended with an error that it doesn't announce.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        work = Path(folder, "work")
        work.mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "tools.examples", "--run", page, result],
            cwd=work,
            env=_environment(),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{page.name}: {done.stderr}")
        return json.loads(result.read_text("utf-8"))


def _environment() -> dict[str, str]:
    """Return an environment in which programs print the same everywhere."""
    env = {name: os.environ[name] for name in os.environ if name not in _VARYING}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    env |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    if not entry_points(group="pytest11", name="d2l_gpu_vgpu"):
        env["PYTEST_PLUGINS"] = "d2l_gpu.vgpu.pytest_plugin"
    return env


def _run(page: Path, result: Path) -> None:
    namespace = {"__name__": "__main__"}
    printed = [_printed(block, namespace) for block in blocks(page.read_text("utf-8"))]
    result.write_text(json.dumps(printed), "utf-8")


def _printed(block: Block, namespace: dict) -> str:
    """Run an example, and return what it prints."""
    if block.file:
        Path(block.file).parent.mkdir(parents=True, exist_ok=True)
        Path(block.file).write_text(block.code, "utf-8")
        return ""
    if block.installs:
        return ""
    if block.kind == "sh":
        done = subprocess.run(
            ["bash", "-ec", block.code], capture_output=True, text=True
        )
        if bool(done.returncode) != block.raises:
            raise RuntimeError(f"{block.code}{done.stdout}{done.stderr}")
        return done.stdout
    if block.kind != "python":
        raise RuntimeError(f"an example without a file's name: {block.code}")
    printed = io.StringIO()
    with redirect_stdout(printed):
        try:
            exec(compile(block.code, "<example>", "exec"), namespace)
        except Exception as error:
            if not block.raises:
                raise
            print(traceback.format_exception_only(error)[-1], end="")
            # A prompt keeps the last error, too, and what its frames refer to.
            sys.last_type, sys.last_value = type(error), error
            sys.last_traceback = error.__traceback__
        else:
            if block.raises:
                raise RuntimeError(f"this raises no error:\n{block.code}")
    return printed.getvalue()


def with_outputs(text: str, printed: Sequence[str]) -> str:
    """Return a page with what its examples printed.

    Args:
        text: the page.
        printed: the output of each of its ``blocks``.
    """
    rest = iter(printed)

    def block(found: re.Match) -> str:
        said, new = found["said"] or "", tidied(next(rest))
        if _TOOK.sub("", said) == _TOOK.sub("", new):
            new = said
        code = f"```{found['kind']}{found['raises'] or ''}\n{found['code']}```\n"
        return f"{code}\n```text\n{new}```\n" if new else code

    return _FENCE.sub(block, text)


def tidied(text: str) -> str:
    """Return an output without blanks at the ends of lines and of the text."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "".join(f"{line}\n" for line in lines)


def main(arguments: list[str] | None = None) -> str | None:
    """Run the command; return what's out of date, if anything."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.examples", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.run:
        _run(*given.pages)
        return None
    changed = []
    for page in given.pages or sorted(PAGES.rglob("*.md")):
        text = page.read_text("utf-8")
        new = with_outputs(text, outputs(page.resolve()))
        if new != text:
            changed.append(page.name)
            if not given.check:
                page.write_text(new, "utf-8")
    if changed and given.check:
        return f"out of date: {', '.join(changed)}; run python -m tools.examples"
    return None


if __name__ == "__main__":
    sys.exit(main())
