"""Check the workflows in .github.

    python -m tools.workflows

They are checked against the schemas of GitHub's files, with zizmor, which finds known
security problems, and against this project's rules: workflows run only scripts in .ci,
which work anywhere, and test the versions that pyproject.toml promises. No network is
needed.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]

SYSTEMS = {"ubuntu", "macos", "windows"}

# The workflows whose job ``test`` runs the tests.
TESTED = ("ci", "weekly")

_SCRIPT = re.compile(r"bash (\.ci/[\w-]+)( [^\n]*)?")


def problems(root: Path) -> Iterator[str]:
    """Yield the problems of a repository's workflows, one or more lines each.

    Args:
        root: the repository, with ``.github``, ``.ci`` and ``pyproject.toml``.

    Raises:
        FileNotFoundError: check-jsonschema or zizmor is not installed.
    """
    paths = sorted(root.glob(".github/workflows/*.yml"))
    yield from _schema_problems("github-workflows", *paths)
    yield from _schema_problems("dependabot", root / ".github" / "dependabot.yml")
    # Below medium, findings are matters of taste, and each version adds some.
    severe = ("--offline", "--quiet", "--min-severity", "medium")
    yield from _said_by(_script("zizmor"), *severe, root / ".github")
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    scripts = {path.relative_to(root).as_posix() for path in root.glob(".ci/*")}
    workflows = {path.name: yaml.safe_load(path.read_text("utf-8")) for path in paths}
    for name, workflow in workflows.items():
        for problem in step_problems(workflow, scripts):
            yield f"{name}: {problem}"
    gate, weekly = (workflows[f"{name}.yml"]["jobs"]["test"] for name in TESTED)
    yield from matrix_problems(gate, weekly, project)


def step_problems(workflow: Mapping, scripts: set[str]) -> Iterator[str]:
    """Yield the problems of a workflow's jobs and steps, one line each.

    Args:
        workflow: the parsed file.
        scripts: the paths of the existing scripts, such as ``.ci/run``.
    """
    shell = workflow.get("defaults", {}).get("run", {}).get("shell")
    for key, job in workflow["jobs"].items():
        if "steps" not in job:
            continue  # it calls another workflow
        if "timeout-minutes" not in job:
            yield f"{key}: it has no timeout-minutes"
        for step in job["steps"]:
            if "run" not in step:
                continue
            command = step["run"].strip()
            match = _SCRIPT.fullmatch(command)
            if match is None or match[1] not in scripts:
                yield f"{key}: `{command}` does not call a script in .ci"
            if step.get("shell", shell) != "bash":
                yield f"{key}: `{command}` is not run by the shell bash"


def matrix_problems(gate: Mapping, weekly: Mapping, project: Mapping) -> Iterator[str]:
    """Yield where the test matrix differs from what the project promises.

    Args:
        gate: the job of the tests that each push runs, for every system and Python.
        weekly: the weekly one, which also has the oldest PyTorch.
        project: the table of pyproject.toml.
    """
    matrix = gate["strategy"]["matrix"]
    if set(matrix["os"]) != SYSTEMS:
        yield f"ci.yml: the systems are {matrix['os']}, not {sorted(SYSTEMS)}"
    version = re.compile(r"Programming Language :: Python :: (\d+\.\d+)")
    found = [version.fullmatch(text) for text in project["classifiers"]]
    promised = [match[1] for match in found if match]
    if matrix["python"] != promised:
        yield f"ci.yml: the Pythons are {matrix['python']}, but {promised} are promised"
    if project["requires-python"] != f">={promised[0]}":
        yield f"requires-python is {project['requires-python']}, not >={promised[0]}"
    runs = [step["run"].strip() for step in gate["steps"] if "run" in step]
    if runs != ["bash .ci/run"]:
        yield f"ci.yml: the tests are {runs}, not everything that `bash .ci/run` checks"
    requirements = project["optional-dependencies"]["torch"]
    (bound,) = (text for text in requirements if text.startswith("torch"))
    oldest = bound.replace(">=", "==") + ".*"
    others = weekly["strategy"]["matrix"].get("include", [])
    with_oldest = [other for other in others if other["torch"] == oldest]
    if {other["os"] for other in with_oldest} != SYSTEMS:
        yield f"weekly.yml: {oldest} is not tested on every system"
    if {other["python"] for other in with_oldest} - set(promised):
        yield f"weekly.yml: {oldest} is tested on a Python that is not promised"


def _schema_problems(schema: str, *paths: Path) -> Iterator[str]:
    command = (_script("check-jsonschema"), "--builtin-schema", f"vendor.{schema}")
    yield from _said_by(*command, *paths)


def _said_by(*command: str | Path) -> Iterator[str]:
    """Run a checker, and yield its output if it finds problems."""
    done = subprocess.run(
        command,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        timeout=120,
    )
    if done.returncode != 0:
        yield f"{Path(command[0]).stem}:\n{done.stdout}{done.stderr}".rstrip()


def _script(name: str) -> str:
    """Return the path of a program, preferably the one installed with this Python.

    Raises:
        FileNotFoundError: it is not installed.
    """
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        raise FileNotFoundError(
            f"{name} is not installed; install it with: pip install -e '.[test]'"
        )
    return found


def main() -> int:
    """Print all problems; return 0 if there are none, else 1."""
    found = list(problems(ROOT))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
