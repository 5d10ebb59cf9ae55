"""`d2l-gpu doctor` says what is wrong, always answers, and leaves nothing behind."""

import dataclasses
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from d2l_gpu import cli, doctor
from d2l_gpu.doctor import (
    Finding,
    facts,
    python,
    pytorch,
)
from d2l_gpu.doctor import (
    output as report,
)
from d2l_gpu.doctor import (
    probe_process as child,
)
from tests.helpers.bad_probes import (
    prints_and_fails,
    speaks_then_dies,
    speaks_then_hangs,
)
from tests.helpers.broken_machines import look_once, until_begun
from tests.helpers.paths import REPOSITORY
from tests.helpers.waiting import PATIENCE, runs, wait_until

MODULE = ["-m", "d2l_gpu.cli", "doctor"]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]


def run_doctor(interpreter: str, *options: str, cwd: Path, **environment: str):
    """Run the command as readers do; return its exit code and what it printed."""
    done = subprocess.run(
        [interpreter, *MODULE, "--timeout", f"{PATIENCE:.0f}", *options],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


# ------------------------------------------------------------------ whole machines


@pytest.mark.all
def test_healthy_machine_has_no_problem(tmp_path):
    # What the machine that runs the tests has of its own is left out.
    quiet = {
        "D2L_GPU_VIRTUAL": "2",
        "D2L_GPU_DATA": str(tmp_path / "data"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_PATH": "",
    }
    code, text = run_doctor(sys.executable, "--json", cwd=tmp_path, **quiet)
    findings = json.loads(text)
    assert [each for each in findings if each["status"] == "problem"] == []
    assert code == 0
    assert list(dict.fromkeys(each["name"] for each in findings)) == list(doctor.CHECKS)
    (virtual,) = [each for each in findings if each["name"] == "virtual-gpus"]
    assert virtual["status"] == "ok"
    assert "give the same results as the CPU" in virtual["what"]
    (kernel,) = [each for each in findings if each["name"] == "kernel"]
    assert kernel["what"] == "A kernel starts, and finds the course."
    assert not (tmp_path / "data").exists()  # nothing is changed


def test_machine_with_nothing_but_python(tmp_path):
    venv.create(tmp_path / "bare", symlinks=os.name != "nt")
    bare = tmp_path / "bare" / ("Scripts" if os.name == "nt" else "bin") / "python"
    code, text = run_doctor(str(bare), "--json", cwd=tmp_path)
    assert code == 1
    findings = {each["name"]: each for each in json.loads(text)}
    assert list(findings) == list(doctor.CHECKS)
    assert findings["python"]["status"] == "ok"
    assert findings["pytorch"]["what"] == "PyTorch is not installed."
    assert "pip install 'torch>=2.10'" in findings["pytorch"]["what_to_do"]
    assert findings["numpy"]["what"] == "NumPy is not installed."
    assert "is not installed in" in findings["course"]["what"]
    assert f"{REPOSITORY}[course]" in findings["course"]["what_to_do"]
    assert "pooch is not installed" in findings["data"]["what"]
    statuses = {name: each["status"] for name, each in findings.items()}
    for name in ("build", "devices", "virtual-gpus", "kernelspec", "kernel"):
        assert statuses[name] == "note"  # one cause, one problem
    assert not [each for each in findings.values() if "itself failed" in each["what"]]


# ------------------------------------------------------------------ the report


FINDINGS = [
    Finding("disk", doctor.OK, "There is room."),
    Finding("memory", doctor.NOTE, "Little is left.", "Close programs."),
    Finding("book", doctor.PROBLEM, "d2l ist älter.", "pip install d2l"),
]


def test_report_marks_each_finding_and_ends_with_a_summary(capsys):
    assert report.show(iter(FINDINGS)) == FINDINGS
    ok, note, hint, problem, command, empty, last = capsys.readouterr().out.splitlines()
    assert re.match(r"ok +disk +There is room\.$", ok)
    assert re.match(r"note +memory +Little is left\.$", note)
    assert re.match(r"PROBLEM +book +d2l ist älter\.$", problem)
    assert hint.strip() == "-> Close programs."
    assert command.strip() == "-> pip install d2l"
    assert (empty, last) == ("", "1 problem (book), 1 note.")


def test_summary_without_problems_says_that_all_is_well(capsys):
    report.show(FINDINGS[:1])
    assert capsys.readouterr().out.endswith(
        "\nNo problem: this machine is ready for the course.\n"
    )


class Output(io.TextIOWrapper):
    def __init__(self, encoding: str, terminal: bool = False):
        super().__init__(io.BytesIO(), encoding)
        self.isatty = lambda: terminal

    @property
    def text(self) -> str:
        return self.buffer.getvalue().decode(self.encoding)


def test_terminal_that_cannot_encode_gets_what_it_can(monkeypatch):
    output = Output("ascii")
    monkeypatch.setattr(sys, "stdout", output)
    report.show(FINDINGS)
    assert r"d2l ist \xe4lter." in output.text


def test_colours_are_for_terminals_only(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for terminal, variables, coloured in [
        (True, {}, os.name != "nt"),
        (True, {"NO_COLOR": "1"}, False),
        (False, {}, False),
    ]:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            output = Output("utf-8", terminal)
            patch.setattr(sys, "stdout", output)
            report.show(FINDINGS)
            assert ("\x1b[" in output.text) == coloured
            assert "PROBLEM" in output.text


def test_json_has_a_stable_schema(capsys, monkeypatch):
    monkeypatch.setenv("D2L_GPU_VIRTUAL", "two")
    assert cli.main(["doctor", "setting", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert list(finding) == ["name", "status", "what", "what_to_do"]
    assert all(isinstance(value, str) for value in finding.values())
    assert finding["name"] == "setting"
    assert finding["status"] == "problem"
    assert json.loads(report.as_json(FINDINGS)) == [
        dataclasses.asdict(finding) for finding in FINDINGS
    ]


def test_only_the_checks_named_are_run(capsys):
    assert cli.main(["doctor", "names", "python"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:2]] == ["python", "names"]
    assert len(lines) == 4


def test_unknown_check_is_one_sentence_that_lists_the_known(capsys):
    assert cli.main(["doctor", "nonsense"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("d2l-gpu doctor: there is no check 'nonsense'; the checks")
    assert ", ".join(doctor.CHECKS) in error
    assert error.count("\n") == 1


def test_check_that_fails_itself_does_not_silence_the_others(monkeypatch, capsys):
    def broken(known):
        raise KeyError("what?")

    monkeypatch.setitem(doctor.CHECKS, "python", broken)
    assert cli.main(["doctor", "python", "names"]) == 0
    output = capsys.readouterr().out
    assert "The check itself failed (KeyError: 'what?')." in output
    assert re.search("^ok +names", output, re.MULTILINE)


def test_bounds_are_those_of_the_project():
    dependencies = PROJECT["optional-dependencies"]["torch"]
    assert f"torch>={'.'.join(map(str, pytorch.OLDEST_TORCH))}" in dependencies
    assert f"numpy>={'.'.join(map(str, pytorch.OLDEST_NUMPY))}" in dependencies
    assert PROJECT["requires-python"] == f">={'.'.join(map(str, python.OLDEST))}"
    tested = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert tested[-1] == ".".join(map(str, python.NEWEST_TESTED))


# ------------------------------------------------------------------ Python


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [
        ((3, 10, 4), "problem", "is too old: 3.11 or newer is needed."),
        ((3, 11, 0), "ok", ""),
        ((3, 14, 0), "note", "newer than the versions on which the course is tested"),
    ],
)
def test_python_version(monkeypatch, version, status, words):
    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(sys, "platform", "linux")
    finding = look_once("python")
    assert finding.status == status
    assert words in finding.what


def test_python_of_32_bits_has_no_pytorch(monkeypatch):
    monkeypatch.setattr(sys, "maxsize", 2**31 - 1)
    finding = look_once("python")
    assert finding.status == "problem"
    assert "32-bit" in finding.what


@pytest.mark.parametrize(
    ("translated", "words"), [(True, "Rosetta"), (False, "Intel processor")]
)
def test_python_for_intel_on_a_mac(monkeypatch, translated, words):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(python, "_translated", lambda: translated)
    finding = look_once("python")
    assert finding.status == "problem"
    assert words in finding.what


def test_file_that_hides_a_package_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert look_once("names").status == "ok"
    for name in ("torch.py", "jax.py", "d2l_gpu.py"):
        (tmp_path / name).touch()
        finding = look_once("names")
        assert finding.status == "problem"
        assert str(tmp_path / name) in finding.what
        (tmp_path / name).unlink()


def test_file_that_hides_a_module_of_python_is_named_and_survived(tmp_path):
    for name in ("random.py", "tempfile.py", "numpy.py", "test.py"):
        (tmp_path / name).write_text("raise RuntimeError('not for the doctor')")
    code, said = run_doctor(
        sys.executable, "--json", "names", "numpy", "disk", cwd=tmp_path
    )
    assert code == 1
    findings = json.loads(said)
    hidden = [each["what"] for each in findings if each["name"] == "names"]
    for name, kind in (
        ("numpy", "the package"),
        ("random", "Python's own module"),
        ("tempfile", "Python's own module"),
    ):
        expected = f"import {tmp_path / name}.py instead of {kind} {name}."
        assert any(what.endswith(expected) for what in hidden)
    assert len(hidden) == 3  # no program imports test
    others = {each["status"] for each in findings if each["name"] != "names"}
    assert others == {"ok"}


def test_clone_is_not_taken_for_something_that_hides_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    assert look_once("names").status == "ok"
    # Neither is one that the package was installed from, and so is not in use.
    shutil.copytree(REPOSITORY / "d2l_gpu" / "doctor", tmp_path / "d2l_gpu" / "doctor")
    (tmp_path / "d2l_gpu" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert look_once("names").status == "ok"


# ------------------------------------------------------------------ its processes


@pytest.mark.skipif(os.name == "nt", reason="Windows ends processes without signals")
def test_what_was_learnt_before_a_crash_is_known():
    answer = child.ask(speaks_then_dies, PATIENCE)
    assert answer.said == {"first": 1}
    assert answer.trouble.startswith("Python was killed by SIGABRT")


@pytest.mark.all
@pytest.mark.skipif(os.name == "nt", reason="Windows has no process groups to end")
def test_process_that_hangs_ends_with_those_it_has_started(tmp_path):
    file = tmp_path / "pids"
    answer = until_begun(
        file, lambda limit: child.ask(speaks_then_hangs, limit, str(file))
    )
    assert answer.said == {"first": 1}
    assert answer.trouble.startswith("no answer within ")
    for pid in map(int, file.read_text().split()):
        wait_until(lambda pid=pid: not runs(pid))


def test_noise_is_no_part_of_an_answer():
    answer = child.ask(prints_and_fails, PATIENCE)
    assert answer.said == {"first": "ä\n"}
    assert answer.trouble == "ValueError: one"


HANGING = """
import os, pathlib, time
pathlib.Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals to send")
@pytest.mark.parametrize(("sent", "code"), [("SIGINT", 130), ("SIGKILL", -9)])
def test_processes_end_with_the_doctor(plant, tmp_path, sent, code):
    plant.module("torch", HANGING)
    file = tmp_path / "pid"
    path = os.pathsep.join([str(plant.modules), str(REPOSITORY)])
    process = subprocess.Popen(
        [sys.executable, *MODULE, "pytorch"],
        env=os.environ | {"PYTHONPATH": path, "PID_FILE": str(file)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: file.exists() and file.read_text())
    process.send_signal(signal.Signals[sent])
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert "Traceback" not in errors
    wait_until(lambda: not runs(int(file.read_text())))


def test_facts_are_found_out_once(plant, tmp_path, monkeypatch):
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    plant.torch(
        "2.13.0",
        more="""
        import os
        with open(os.environ["COUNT"], "a") as file:
            file.write("x")
        """,
    )
    known = facts.Facts(PATIENCE)
    assert known.torch.version == known.torch.version == "2.13.0"
    assert (tmp_path / "count").read_text() == "x"
