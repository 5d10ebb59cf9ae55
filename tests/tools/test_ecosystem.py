"""Tests of tools.ecosystem: which checks there are, and what a check came to."""

import subprocess
import sys

import pytest

from tests.helpers.waiting import runs, wait_until
from tools import ecosystem


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
