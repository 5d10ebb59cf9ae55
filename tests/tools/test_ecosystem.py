"""Tests of tools.ecosystem: which checks there are, and what a check came to."""

import ast
import re
import subprocess
import sys

import pytest

from tests.helpers.waiting import runs, wait_until
from tools import ecosystem, ecosystem_docs


@pytest.fixture
def check() -> ecosystem.Check:
    return ecosystem.Check("toy", "it_works", "It works.", ("torch",), {})


def test_every_check_says_what_users_expect():
    checks = ecosystem.selected([])
    assert len(checks) > 100
    assert all(check.promise.endswith(".") for check in checks)
    assert len({(check.area, check.name) for check in checks}) == len(checks)


def test_checks_are_selected_by_area_and_word():
    names = [check.name for check in ecosystem.selected(["ddp.join", "einops"])]
    assert names == ["ranks_with_uneven_data_join", "tensors_are_rearranged"]
    with pytest.raises(ValueError, match="no area 'nothing'"):
        ecosystem.selected(["nothing"])
    with pytest.raises(ValueError, match="no check of ddp has 'nothing'"):
        ecosystem.selected(["ddp.nothing"])


REFUSED = {"result": "refused", "error": "Virtual GPUs can't.", "where": "a.py:1"}
DIED = {"result": "died", "error": "A rank was ended by SIGSEGV.", "where": ""}


@pytest.mark.parametrize(
    ("status", "output", "reports", "result", "error"),
    [
        (0, "", [], "passes", ""),
        (0, "", [REFUSED], "passes", ""),  # and the check had expected it
        (1, "AssertionError: 3 != 4\n", [], "fails", "AssertionError: 3 != 4"),
        (1, "status 1\n", [REFUSED, DIED], "died", DIED["error"]),
        (1, "status 1\n", [REFUSED], "refused", REFUSED["error"]),
        (-11, "", [REFUSED], "died", "It was ended by SIGSEGV."),
        (-9, "", [REFUSED], "refused", REFUSED["error"]),  # by its launcher
        (-9, "", [], "died", "It was ended by SIGKILL."),
        (1, "Fatal Python error: Aborted\n", [], "died", "Fatal Python error: Aborted"),
        (None, "still here\n", [], "hung", "still here"),
        (None, "still here\n", [REFUSED], "hung", REFUSED["error"]),
    ],
)
def test_what_a_check_came_to(check, status, output, reports, result, error):
    ecosystem.judge(check, status, output, reports)
    assert (check.result, check.error) == (result, error)


def test_a_missing_library_is_named(check):
    check.needs = ("torch", "a-library-that-nobody-wrote")
    ecosystem.run(check)
    assert check.result == "not installed"
    assert check.error == "a-library-that-nobody-wrote is missing."


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_no_process_is_left_behind():
    code = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        "print(flush=True)\n"
        "time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
    )
    process.stdout.readline()
    (child,) = ecosystem.descendants(process.pid)
    ecosystem.end(process)
    assert process.returncode < 0
    wait_until(lambda: not runs(child))
    process.stdout.close()


def test_a_row_is_as_wide_as_the_terminal(check):
    check.library, check.result, check.error = "torch 2.13", "fails", "word " * 100
    row = ecosystem.row(check, [4, 12, 10, 6], 100)
    assert len(row) == 100 and row.endswith("…")


# ------------------------------------------------------------------ the record


def test_the_page_is_what_was_recorded_and_knows_every_check():
    results = ecosystem_docs.recorded()
    page = ecosystem_docs.PAGE.read_text("utf-8")
    assert page == ecosystem_docs.page(results)
    recorded = {(x["area"], x["name"]): x["promise"] for x in results["checks"]}
    checks = ecosystem.selected([])
    assert recorded == {(x.area, x.name): x.promise for x in checks}


def test_the_checks_of_ci_passed_and_are_of_each_library():
    passed = {
        (x["area"], x["name"])
        for x in ecosystem_docs.recorded()["checks"]
        if x["result"] == "passes"
    }
    short = [check for check in ecosystem.selected([]) if check.short]
    assert {(check.area, check.name) for check in short} <= passed
    libraries = {check.needs[0] for check in ecosystem.selected([])}
    assert libraries - {check.needs[0] for check in short} <= {"nvidia-ml-py", "torch"}


def test_every_name_of_a_short_check_is_that_of_a_check():
    for area in ecosystem.areas():
        text = (ecosystem.CHECKS / f"on_{area}.py").read_text("utf-8")
        constant = re.search(r"^SHORT = (\(.*?\))$", text, re.MULTILINE | re.DOTALL)
        names = ast.literal_eval(constant[1]) if constant else ()
        assert list(names) == [x.name for x in ecosystem.checks_of(area) if x.short]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(ecosystem_docs, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(ecosystem_docs, "PAGE", tmp_path / "ecosystem.md")
    return tmp_path


def entry(name: str, result: str, error: str = "") -> dict:
    return {
        "area": "toy",
        "name": name,
        "promise": f"It does a | b in {name}.",
        "library": "toy 1.0",
        "result": result,
        "error": error,
        "output": "long",
    }


def test_only_what_passed_before_can_become_worse(files):
    before = [
        entry("a", "passes"),
        entry("b", "refused", "It can't."),
        entry("c", "died"),
    ]
    ecosystem_docs.record(before, "here")
    now = [entry("a", "hung"), entry("b", "fails"), entry("c", "passes")]
    assert ecosystem_docs.worse(now) == ["toy.a passed before, and now: hung"]
    assert ecosystem_docs.worse([*now[1:], entry("new", "fails")]) == []
    ecosystem_docs.record(now, "here")
    assert ecosystem_docs.worse(before) == ["toy.c passed before, and now: died"]


def test_the_page_counts_each_result_and_shows_each_check(files):
    checks = [
        entry("a", "passes"),
        entry("b", "refused", "It can't:\n no | way."),
        entry("c", "fails", "x" * 999),
    ]
    ecosystem_docs.record(checks, "Python 3.99, Plan 9")
    page = (files / "ecosystem.md").read_text("utf-8")
    assert "The last run (Python 3.99, Plan 9): 3 checks, 1 passes, 1 refused" in page
    assert "| [toy](#toy) | toy 1.0 | 3 | 1 | 1 | 1 |" in page
    assert "| It does a \\| b in b. | **refused**: It can't: no \\| way. |" in page
    assert max(map(len, page.splitlines()[8:])) < 300


def test_a_run_of_some_checks_leaves_the_others_as_they_were(files):
    ecosystem_docs.record([entry("a", "passes"), entry("b", "fails")], "here")
    ecosystem_docs.record([entry("b", "passes"), entry("c", "died")], "there")
    results = ecosystem_docs.recorded()
    assert results["where"] == "there"
    found = [(x["name"], x["result"]) for x in results["checks"]]
    assert found == [("a", "passes"), ("b", "passes"), ("c", "died")]
    page = (files / "ecosystem.md").read_text("utf-8")
    assert page == ecosystem_docs.page(results)


def test_real_gpus_are_not_recorded(files, capsys):
    with pytest.raises(SystemExit):
        ecosystem.main(["--record", "--real", "einops"])
    assert "only what happens on virtual GPUs" in capsys.readouterr().err
    assert not list(files.iterdir())
