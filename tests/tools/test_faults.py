"""The planted faults fit the code, and what plants them says the truth about tests."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.paths import REPOSITORY
from tests.helpers.waiting import wait_until
from tools.faults import __main__ as command
from tools.faults.catalogue import Fault, chosen, read_faults
from tools.faults.copies import Runs
from tools.faults.planting import Verdict, line, plant_all, summary

FAULTS = read_faults()

# ------------------------------------------------------------------ the catalogue


def test_there_are_many_faults_in_all_parts():
    assert len(FAULTS) >= 40
    parts = {Path(fault.file).parts[1] for fault in FAULTS}
    assert parts >= {"vgpu", "torch", "course", "doctor", "commands", "common"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_fits_the_code(fault):
    planted = fault.planted_in(REPOSITORY)
    assert planted != (REPOSITORY / fault.file).read_text("utf-8")
    compile(planted, fault.file, "exec", dont_inherit=True)
    assert all((REPOSITORY / path).is_file() for path in fault.tests)


ENTRY = """\
[[fault]]
name = "one-too-many"
what = "It counts one too many."
file = "d2l_gpu/__init__.py"
old = "0"
new = "1"
tests = ["tests/test_count.py"]
"""


def test_entries_are_read_in_order(tmp_path):
    second = ENTRY.replace("one-too-many", "another") + 'survives = "It does not."\n'
    (tmp_path / "a.toml").write_text(ENTRY + second)
    first, other = read_faults(tmp_path)
    assert first == Fault(
        "one-too-many",
        "It counts one too many.",
        "d2l_gpu/__init__.py",
        "0",
        "1",
        ("tests/test_count.py",),
    )
    assert (other.name, other.survives) == ("another", "It does not.")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ENTRY + ENTRY, "has a fault 'one-too-many', but that name is already taken"),
        (ENTRY.replace("what =", "why ="), "check what, why."),
        (ENTRY.replace("one-too-many", "One too many"), "in lower case with hyphens"),
        (ENTRY.replace('["tests/test_count.py"]', "[]"), "a list of tests: name some"),
        (ENTRY.replace('new = "1"', "new = 1"), "must consist of strings: quote them"),
        ("[[fault", "holds no faults that can be read"),
        ("faults = 3", "holds no faults that can be read"),
    ],
)
def test_a_wrong_entry_is_refused(text, sentence, tmp_path):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ValueError, match=r"a\.toml") as raised:
        read_faults(tmp_path)
    assert sentence in str(raised.value)


def test_faults_are_chosen_by_name():
    one, other = FAULTS[3], FAULTS[1]
    assert chosen(FAULTS, []) == FAULTS
    assert chosen(FAULTS, [one.name, other.name]) == [other, one]
    with pytest.raises(ValueError, match="no fault 'nobody'"):
        chosen(FAULTS, [one.name, "nobody"])


# ------------------------------------------------------------------ a toy project

MODULE = """\
def add(a, b):
    return a + b


def wait():
    while False:
        pass
"""

# The package as processes see it that a test starts, in whatever folder.
TESTS = """\
import subprocess
import sys

import d2l_gpu


def test_wait():
    d2l_gpu.wait()


def test_add(tmp_path):
    print("short test summary info\\nFAILED test_inner.py::test_inner")
    code = "import d2l_gpu; print(d2l_gpu.add(1, 2))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == "3"
"""

SKIPPED = "import pytest\n\npytest.skip('not here', allow_module_level=True)\n"

SUBTRACTS = Fault(
    "subtracts",
    "It subtracts.",
    "d2l_gpu/__init__.py",
    "a + b",
    "a - b",
    ("tests/test_toy.py",),
)
SWAPS = replace(SUBTRACTS, name="swaps", new="b + a")
HANGS = replace(SUBTRACTS, name="hangs", old="while False", new="while True")


@pytest.fixture
def toy(tmp_path, monkeypatch) -> Path:
    """A project of one module and its tests, which git knows."""
    # Our own plugin is installed, and would be looked for in the toy.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    if not shutil.which("git"):
        pytest.skip("git says what belongs to a project")
    project = tmp_path / "toy"
    for name, text in (
        ("d2l_gpu/__init__.py", MODULE),
        ("tests/test_toy.py", TESTS),
        ("tests/test_bad.py", "def test_bad():\n    assert not 'good'\n"),
        ("tests/test_skipped.py", SKIPPED),
        ("pyproject.toml", "[tool.pytest.ini_options]\n"),
        # What git ignores is no part of the project, and would end every test here.
        (".gitignore", "conftest.py\n"),
        ("conftest.py", "raise ImportError('this is not to be copied')\n"),
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    return project


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """The folder of temporary files, where nothing may be left behind."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_caught_and_survived_and_nothing_left_behind(toy, temporary):
    before, said = files(toy), []
    caught, survived = plant_all(toy, [SUBTRACTS, SWAPS], say=said.append)
    assert (caught.word, caught.how) == ("caught", "tests/test_toy.py::test_add")
    assert not caught.wrong
    assert (survived.word, survived.wrong) == ("survived", True)
    assert survived.how == "no test of tests/test_toy.py notices"
    assert said[0].startswith("without a fault 1/1 tests/test_toy.py: 2 passed")
    assert said[1:] == [f"1/2 {line(caught)}", f"2/2 {line(survived)}"]
    assert files(toy) == before
    assert not list(temporary.iterdir())


def test_several_at_once_say_the_same_in_order(toy, temporary):
    faults = [SWAPS, SUBTRACTS, replace(SWAPS, name="swaps-too")]
    verdicts = plant_all(toy, faults, jobs=3, say=lambda line: None)
    assert [v.fault for v in verdicts] == faults
    assert [v.word for v in verdicts] == ["survived", "caught", "survived"]


@pytest.mark.all
def test_a_hang_is_caught_and_says_so(toy, temporary):
    (verdict,) = plant_all(toy, [HANGS], say=lambda line: None, least=1)
    assert (verdict.word, verdict.hung, verdict.wrong) == ("caught", True, False)
    assert verdict.how.startswith("a hang: tests/test_toy.py had not finished after ")
    assert not list(temporary.iterdir())


def test_what_is_understood_may_survive_and_may_not_be_caught(toy, temporary):
    faults = [replace(fault, survives="Why.") for fault in (SUBTRACTS, SWAPS)]
    caught, survived = plant_all(toy, faults, say=lambda line: None)
    assert (survived.wrong, survived.how) == (False, "as expected: Why.")
    assert caught.wrong
    assert caught.how.endswith("it is listed as surviving: remove that from its entry")


def test_nothing_is_caught_by_tests_that_fail_anyway(toy, temporary):
    faults = [replace(SUBTRACTS, tests=("tests/test_bad.py",)), SUBTRACTS]
    said = []
    bad, caught = plant_all(toy, faults, say=said.append)
    assert (bad.word, bad.wrong) == ("not tried", True)
    assert bad.how == "its tests fail without it: tests/test_bad.py::test_bad"
    assert "assert not 'good'" in said[0]  # as pytest shows it
    assert caught.word == "caught"


def test_nothing_is_said_of_faults_whose_tests_are_skipped(toy, temporary):
    fault = replace(SUBTRACTS, tests=("tests/test_skipped.py",))
    said = []
    (verdict,) = plant_all(toy, [fault], say=said.append)
    assert (verdict.word, verdict.wrong) == ("not tried", False)
    assert said[0].endswith("all tests are skipped here")


@pytest.mark.parametrize(
    ("old", "count"), [("a * b", "occurs 0 times"), ("def ", "occurs 2 times")]
)
def test_a_fault_that_fits_no_more_is_one_sentence(old, count, toy, temporary):
    said = []
    with pytest.raises(ValueError, match="adapt the fault to the code") as raised:
        plant_all(toy, [SWAPS, replace(SUBTRACTS, old=old)], say=said.append)
    assert str(raised.value).startswith("The fault subtracts replaces a text that")
    assert count in str(raised.value)
    with pytest.raises(ValueError, match=r"d2l_gpu/gone\.py, which does not exist"):
        plant_all(toy, [replace(SWAPS, file="d2l_gpu/gone.py")], say=said.append)
    assert not said


def test_another_package_than_the_copys_is_noticed(toy, temporary, monkeypatch):
    monkeypatch.setattr(Runs, "imported", lambda *args: toy / "d2l_gpu/__init__.py")
    with pytest.raises(RuntimeError, match=r"would import the package from .*toy"):
        plant_all(toy, [SWAPS])
    assert not list(temporary.iterdir())


def test_outside_a_clone_nothing_can_be_copied(tmp_path, temporary):
    shutil.copytree(REPOSITORY / "d2l_gpu", tmp_path / "d2l_gpu")
    fault = FAULTS[0]
    with pytest.raises(RuntimeError, match="run this in a clone"):
        plant_all(tmp_path, [fault])


def test_summary_counts():
    verdicts = [
        Verdict(SUBTRACTS, "caught", "x"),
        Verdict(HANGS, "caught", "a hang", hung=True),
        Verdict(SWAPS, "survived", "y"),
        Verdict(SWAPS, "not tried", "z"),
    ]
    assert summary(verdicts[:1]) == "1 of 1 faults were caught."
    assert summary(verdicts) == (
        "2 of 3 faults were caught, 1 of them by a hang; 1 survived: swaps; "
        "1 not tried: swaps."
    )


# ------------------------------------------------------------------ the command


def test_the_list_names_every_fault(capsys):
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [text.partition(" ")[0] for text in lines] == [f.name for f in FAULTS]


def test_an_unknown_name_is_one_sentence(capsys):
    assert command.main(["nobody"]) == 2
    assert capsys.readouterr().err.startswith("There is no fault 'nobody'")


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Verdict(SUBTRACTS, "caught", "x"), 0),
        (Verdict(SWAPS, "survived", "as expected"), 0),
        (Verdict(SWAPS, "survived", "x", wrong=True), 1),
        (Verdict(SUBTRACTS, "not tried", "skipped"), 0),
        (Verdict(SUBTRACTS, "not tried", "they fail", wrong=True), 1),
    ],
)
def test_status_says_whether_all_is_as_it_should_be(verdict, status, monkeypatch):
    monkeypatch.setattr(command, "plant_all", lambda *args, **kwargs: [verdict])
    assert command.main([]) == status


SCRIPT = """\
import sys
from pathlib import Path

sys.path.insert(0, {repository!r})
from tools.faults.catalogue import Fault
from tools.faults.planting import plant_all

plant_all(Path({toy!r}), [{fault!r}], least=1e6)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at Linux's processes")
@pytest.mark.parametrize("how", ["SIGINT", "SIGKILL"])
def test_no_process_outlives_it(how, toy, tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    code = SCRIPT.format(repository=str(REPOSITORY), toy=str(toy), fault=HANGS)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout.readline().startswith("without a fault")
    wait_until(lambda: processes_of(folder))
    process.send_signal(getattr(signal, how))
    process.wait()
    wait_until(lambda: not processes_of(folder))
    if how == "SIGINT":
        assert not list(folder.iterdir())


def processes_of(folder: Path) -> list[int]:
    """The processes that have their temporary files below a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes()
        except OSError:
            continue
        if f"TMPDIR={folder}/faults-".encode() in environment:
            found.append(int(path.name))
    return found
