"""What an answer may take of the machine, where the system can tell."""

import sys

import pytest

from tests.helpers.fresh_process import run_program_without_torch


@pytest.mark.skipif(sys.platform != "linux", reason="Linux can do this")
def test_threads_count_wherever_they_are():
    run_program_without_torch("exercises/threads_are_counted.py")
