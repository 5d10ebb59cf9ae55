"""The conformance suite itself: what it does when something is wrong."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

if not hasattr(os, "fork"):
    pytest.skip("this system cannot fork", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parent))

import runner
from cases import Case
from compare import Comparison


def case(name: str) -> Case:
    return Case("op", "forward", name, "float32")


def fake_run(case: Case) -> Comparison:
    match case.name:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hanging":
            time.sleep(600)
        case "wrong":
            raise ValueError("wrong\nvalue")
        case "sparse":
            raise NotImplementedError("no sparse tensors")
    comparison = Comparison()
    comparison.add(torch.ones(1), torch.ones(1), "cpu", "", again=lambda: None)
    return comparison


def test_a_case_that_ends_or_hangs_is_one_failed_case(monkeypatch):
    monkeypatch.setattr(runner, "run", fake_run)
    monkeypatch.setattr(runner, "BATCH", 4)
    names = ["a", "killed", "b", "hanging", "c", "wrong", "sparse", "d", "e", "f"]
    for limit in (2, 8, 32, 128):  # a busy machine may need as long for a good case
        monkeypatch.setattr(runner, "TIME_LIMIT", limit)
        results = {r.case.name: r for r in runner.run_all([*map(case, names)], 2)}
        assert sorted(results) == sorted(names)
        late = [name for name in names if "not done" in "".join(results[name].notes)]
        if late == ["hanging"]:
            break
    verdicts = {name: r.verdict for name, r in results.items() if r.verdict != "equal"}
    assert verdicts == {
        "killed": "died",
        "hanging": "died",
        "wrong": "different",
        "sparse": "refused",
    }
    assert results["killed"].notes == ["ended by SIGKILL"]
    assert results["hanging"].notes == [f"not done after {limit} s"]
    assert results["wrong"].notes == ["ValueError: wrong value"]


def test_only_what_the_lists_allow_is_expected(monkeypatch):
    allowed = runner.Result(case("linalg.lstsq"), "close", 1)
    assert runner.expected(allowed)
    assert not runner.expected(runner.Result(case("linalg.lstsq"), "different", 1))
    assert not runner.expected(runner.Result(case("add"), "close", 1))
    assert not runner.expected(runner.Result(case("add"), "refused"))
    assert not runner.expected(runner.Result(case("add"), "equal", 0))  # vacuous
    monkeypatch.setattr(runner, "REFUSED_BY_DESIGN", {r"op-.*-odd-.*": "a reason"})
    assert runner.expected(runner.Result(case("odd"), "refused"))
    assert not runner.expected(runner.Result(case("odd"), "equal", 1))


X = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (X, X.clone(), "equal"),
        (torch.tensor(float("nan")), torch.tensor(float("nan")), "equal"),
        (X, X + 1e-7, "close"),
        (X, X + 1e-3, "different"),
        (X, X.double(), "different"),
        (X, X[None], "different"),
        (X, X.requires_grad_(False).clone().requires_grad_(), "different"),
        (X.expand(2, 2), X.expand(2, 2).contiguous(), "different"),
        (torch.tensor([0.0]), torch.tensor([-0.0]), "close"),
        ((X, [X]), (X, [X + 1e-3]), "different"),
        ({"x": X}, {"x": X.clone()}, "equal"),
        ([X], (X,), "different"),
        (3, 4, "different"),
    ],
)
def test_comparison(a, b, verdict):
    comparison = Comparison()
    comparison.add(a, b, "cpu", "result", again=lambda: a)
    assert comparison.verdict == verdict
    assert bool(comparison.notes) == (verdict != "equal")


def test_a_result_on_another_device_differs():
    comparison = Comparison()
    comparison.add(X, X.clone(), "vgpu:1", "result", again=lambda: X)
    assert comparison.notes == ["result: the result is on cpu"]


def test_what_the_cpu_gives_otherwise_at_every_run_is_told_apart():
    comparison = Comparison()
    comparison.add(X, X + 1e-7, "cpu", "result", again=lambda: X + 2e-7)
    assert comparison.verdict == "varies"
