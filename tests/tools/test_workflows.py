"""What runs on GitHub: judged here, since nothing of it can be run here."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.helpers.paths import REPOSITORY
from tools import workflows

WORKFLOWS = REPOSITORY / ".github" / "workflows"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]

OLDEST = "torch==2.10.*"

needs_bash = pytest.mark.skipif(
    sys.platform == "win32" or not shutil.which("bash"), reason="needs bash and a PATH"
)


def test_nothing_is_wrong_with_the_workflows():
    assert list(workflows.problems(REPOSITORY)) == []


@pytest.fixture
def planted(tmp_path):
    """A copy of what is judged, and a function that spoils a workflow in it."""
    for name in (".github", ".ci"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)

    def plant(name: str, old: str, new: str) -> list[str]:
        path = tmp_path / ".github" / name
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")
        return list(workflows.problems(tmp_path))

    return plant


@pytest.mark.parametrize(
    ("name", "old", "new", "sentence"),
    [
        pytest.param(
            "workflows/ci.yml",
            "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1",
            "actions/checkout@v7",
            "unpinned-uses",
            id="action by a name that moves",
            marks=pytest.mark.all,
        ),
        pytest.param(
            "workflows/ci.yml",
            "bash .ci/run\n",
            "pytest\n",
            "ci.yml: test: `pytest` does not call a script in .ci",
            id="command of its own",
            marks=pytest.mark.all,
        ),
    ],
)
def test_a_bad_workflow_is_found(planted, name, old, new, sentence):
    found = planted(name, old, new)
    assert any(sentence in problem for problem in found), found


def jobs() -> list[dict]:
    """The jobs of the tests, at each push and weekly, to be spoilt."""
    texts = [
        (WORKFLOWS / f"{name}.yml").read_text("utf-8") for name in workflows.TESTED
    ]
    return [yaml.safe_load(text)["jobs"]["test"] for text in texts]


def without_the_oldest(weekly: dict, system: str) -> None:
    """Take the run of a system with the oldest PyTorch from the weekly job."""
    include = weekly["strategy"]["matrix"]["include"]
    (there,) = (x for x in include if (x["os"], x["torch"]) == (system, OLDEST))
    include.remove(there)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda matrix, gate, weekly: matrix["os"].remove("macos"), "the systems are"),
        (
            lambda matrix, gate, weekly: matrix["python"].pop(),
            "but ['3.11', '3",
        ),
        (
            lambda matrix, gate, weekly: gate["steps"][-1].update(
                run="bash .ci/run style"
            ),
            "not everything that `bash .ci/run` checks",
        ),
        (
            lambda matrix, gate, weekly: without_the_oldest(weekly, "windows"),
            f"{OLDEST} is not tested on every system",
        ),
        (
            lambda matrix, gate, weekly: [
                x.update(python="3.10") for x in weekly["strategy"]["matrix"]["include"]
            ],
            "a Python that is not promised",
        ),
    ],
)
def test_a_matrix_that_is_not_what_the_project_promises(change, sentence):
    gate, weekly = jobs()
    assert list(workflows.matrix_problems(gate, weekly, PROJECT)) == []
    change(gate["strategy"]["matrix"], gate, weekly)
    found = list(workflows.matrix_problems(gate, weekly, PROJECT))
    assert any(sentence in problem for problem in found), found


@pytest.mark.parametrize(
    ("job", "sentences"),
    [
        ({"steps": []}, ["no timeout-minutes"]),
        ({"steps": [{"run": "bash .ci/none"}]}, ["does not call a script"]),
        ({"steps": [{"run": "bash .ci/run\npytest"}]}, ["does not call a script"]),
        ({"steps": [{"run": "bash .ci/run", "shell": "pwsh"}]}, ["the shell bash"]),
        ({"steps": [{"uses": "an/action@v1"}]}, []),
        ({"uses": "./.github/workflows/ci.yml"}, []),
    ],
)
def test_steps_that_are_not_scripts(job, sentences):
    limit = {} if "no timeout-minutes" in sentences else {"timeout-minutes": 1}
    workflow = {"defaults": {"run": {"shell": "bash"}}, "jobs": {"a": job | limit}}
    found = list(workflows.step_problems(workflow, {".ci/run"}))
    assert len(found) == len(sentences)
    assert all(s in problem for s, problem in zip(sentences, found, strict=True))


def test_steps_of_a_workflow_without_a_shell_are_found():
    steps = [{"run": "bash .ci/run"}]
    workflow = {"jobs": {"a": {"timeout-minutes": 1, "steps": steps}}}
    [problem] = workflows.step_problems(workflow, {".ci/run"})
    assert problem == "a: `bash .ci/run` is not run by the shell bash"


# ---------------------------------------------------------------- .ci/run


def bash(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", *arguments],
        cwd=REPOSITORY,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@needs_bash
def test_a_part_that_there_is_not_is_one_sentence():
    done = bash(".ci/run", "style", "speed")
    assert done.returncode == 2
    assert done.stderr.startswith("there is no part 'speed': name notebooks, style")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@needs_bash
@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (
            [],
            {},
            ["torch==2", "tools.build", "ruff", "npm ci", "node", "pytest -n 2 --all"],
        ),
        (["weekly"], {}, ["torch==2.13.0", "pytest -n 2 --weekly"]),
        (["faults"], {}, ["torch==2.13.0", "python -m tools.faults"]),
        (["style"], {"TORCH": "torch==2.10.*"}, ["torch==2.10.*", "ruff", "ruff"]),
        (["style"], {"TORCH_INDEX": "https://x"}, ["--index-url https://x", "ruff"]),
        (["translations"], {}, ["torch==2.13.0", "tools.translate --check --strict"]),
        (["wheel"], {}, ["-m build --outdir", "twine", "a.whl --torch torch==2.13.0"]),
        (["style"], {"VENV_SCRIPTS": "Scripts"}, ["torch==2.13.0", "ruff", "ruff"]),
    ],
)
def test_parts_are_run_with_what_the_environment_says(
    tmp_path, arguments, environment, expected
):
    log = tmp_path / "log"
    python = fake_python(tmp_path, log)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    dist = tmp_path / "dist"
    environment = {
        **{"TORCH": "", "TORCH_INDEX": "", "DIST": str(dist)},
        **{"PYTHON": str(python), "TMPDIR": str(temporary)},
        **environment,
    }
    done = bash(".ci/run", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    assert "== passed" in done.stdout
    lines = iter(log.read_text().splitlines())
    for text in expected:
        assert any(text in line for line in lines), (text, log.read_text())
    assert list(temporary.iterdir()) == []
    assert dist.exists() == (arguments == ["wheel"])
    assert all(path.name == "a.whl" for path in dist.glob("*"))


@needs_bash
def test_distributions_that_fail_are_not_left(tmp_path):
    python = fake_python(tmp_path, tmp_path / "log", failing="python -m tools.check")
    options = {"PYTHON": str(python), "DIST": str(tmp_path / "dist")}
    assert bash(".ci/run", "wheel", **options).returncode == 3
    assert not (tmp_path / "dist").exists()


@needs_bash
def test_stale_translations_are_only_told_unless_it_is_a_release(tmp_path):
    strict = "python -m tools.translate --check --strict"
    python = fake_python(tmp_path, tmp_path / "log", failing=strict)
    options = {"PYTHON": str(python), "TMPDIR": str(tmp_path)}
    assert bash(".ci/run", "notebooks", **options).returncode == 0
    assert bash(".ci/run", "translations", **options).returncode == 3
    release = yaml.safe_load((WORKFLOWS / "release.yml").read_text("utf-8"))
    steps = [step for job in release["jobs"].values() for step in job.get("steps", [])]
    parts = [step["run"].split() for step in steps if "run" in step]
    assert any("translations" in each for each in parts)


@needs_bash
def test_a_part_that_fails_ends_the_run(tmp_path):
    python = fake_python(tmp_path, tmp_path / "log", failing="ruff check")
    done = bash(".ci/run", "style", "tests", PYTHON=str(python), TMPDIR=str(tmp_path))
    assert done.returncode == 3
    assert "== passed" not in done.stdout
    assert "pytest" not in (tmp_path / "log").read_text()


PROGRAMS = "python pip ruff pytest twine npm node"


def fake_python(folder: Path, log: Path, failing: str = "nothing") -> Path:
    """A Python whose environments have programs that note how they were called."""
    tool = folder / "tool"
    tool.write_text(
        f'#!/bin/sh\necho "$(basename "$0") $*" >> {log}\n'
        f'case "$(basename "$0") $*" in "{failing}"*) exit 3;; esac\n'
        'case "$*" in "-m build"*) mkdir "$4"; touch "$4/a.whl";; esac\n'
    )
    python = folder / "python"
    python.write_text(
        "#!/bin/sh\n"
        'if [ "$1 $2" = "-m venv" ]; then\n'
        '    bin="$3/${VENV_SCRIPTS:-bin}"; mkdir -p "$bin"; cd "$bin"\n'
        f"    for name in {PROGRAMS}; do cp {tool} $name; done\n"
        "fi\n"
    )
    for path in (tool, python):
        path.chmod(0o755)
    return python


# ---------------------------------------------------------------- .ci/report


@pytest.fixture
def report(tmp_path):
    """A function that reports a week's result to a GitHub of files."""
    gh = tmp_path / "gh"
    gh.write_text(
        "#!/bin/sh\n"
        f'cd "{tmp_path}"\n'
        'echo "$*" >> calls\n'
        'case "$1 $2" in\n'
        '"issue list") cat open 2>/dev/null || true ;;\n'
        '"run view") echo "* [windows](https://job)" ;;\n'
        '"issue create") cat > body; echo 7 > open ;;\n'
        '"issue edit") cat > body ;;\n'
        '"issue close") rm open ;;\n'
        "esac\n"
    )
    gh.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_SERVER_URL": "https://server",
        "GITHUB_REPOSITORY": "owner/name",
    }

    def run(result: str, number: int = 1) -> list[str]:
        calls = tmp_path / "calls"
        calls.unlink(missing_ok=True)
        done = bash(".ci/report", result, GITHUB_RUN_ID=str(number), **environment)
        assert done.returncode == 0, done.stderr
        return [line for line in calls.read_text().splitlines() if "list" not in line]

    return run


@needs_bash
def test_weeks_that_fail_keep_one_issue_that_a_good_week_closes(report, tmp_path):
    assert report("success") == []
    calls = report("failure", 2)
    assert [call.split(" --")[0] for call in calls][-1] == "issue create"
    assert "https://server/owner/name/actions/runs/2" in (tmp_path / "body").read_text()
    calls = report("failure", 3)
    assert calls[-1] == "issue edit 7 --body-file -"
    assert not any("create" in call for call in calls)
    body = (tmp_path / "body").read_text()
    assert "https://server/owner/name/actions/runs/3" in body
    assert "* [windows](https://job)" in body
    [call] = report("success", 4)
    assert call.startswith("issue close 7 --comment It passes again: https://server/")
    assert report("success", 5) == []


@needs_bash
def test_a_run_without_a_result_is_not_reported(report):
    assert report("cancelled") == []
