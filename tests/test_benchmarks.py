"""Benchmarks end with a line that a program can read. No test asserts a duration."""

import json
import subprocess
import sys
from itertools import count

import pytest
from conftest import REPOSITORY

sys.path.append(str(REPOSITORY / "benchmarks"))
from common import alternated


def test_import_time_prints_a_sentence_and_json():
    script = REPOSITORY / "benchmarks" / "import_time.py"
    result = subprocess.run(
        [sys.executable, str(script), "--rounds", "1"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    sentence, last = result.stdout.splitlines()
    assert sentence.startswith("import d2l_gpu.torch")
    result = json.loads(last)
    assert list(result) == ["name", "value", "unit", "baseline", "hardware"]
    assert result["name"] == "import_time"
    assert result["value"] > 0


def test_measures_take_turns_and_the_first_round_is_dropped():
    clock = count()
    # turns: 0 1 (dropped), 2 3, 4 5, 6 7
    assert alternated([lambda: next(clock), lambda: next(clock)], rounds=3) == [4, 5]


def test_no_rounds_is_an_error():
    with pytest.raises(ValueError, match="rounds is 0"):
        alternated([], rounds=0)
