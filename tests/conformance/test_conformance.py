"""Virtual GPUs give what the CPU gives, by PyTorch's own databases of test cases.

Each test is one operator, module or optimizer with one dtype; ``runner.py`` runs them
in processes of their own, ahead of the tests that ask for the results. A plain run
takes a sample of the cases.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

if not hasattr(os, "fork"):
    pytest.skip("this system cannot fork", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parent))

from cases import SKIPPED, Case, reason
from runner import Result, Server, expected, list_cases

from d2l_gpu.vgpu.records import RECORDS

SHARE = 20  # the sample is one case in so many


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        cases = list_cases()
        sample = sampled(cases)
        params = [
            pytest.param(
                case, id=str(case), marks=() if case in sample else pytest.mark.all
            )
            for case in cases
        ]
        metafunc.parametrize("case", params)


def sampled(cases: list[Case]) -> set[Case]:
    """Return the cases that every run takes; ``pytest --all`` takes them all.

    They are every twentieth case of each kind and, of each operator that has a record,
    the first forward and the first backward case.
    """
    recorded = {record.partition(".")[0].strip("_") for record in RECORDS}
    sample, counts, seen = set(), Counter(), set()
    for case in cases:
        kind = case.database, case.mode
        name = case.name.removeprefix("nn.functional.").replace("linalg.", "linalg_")
        special = name.partition(".")[0].strip("_") in recorded
        first = special and (kind, name) not in seen
        seen.add((kind, name))
        if first or counts[kind] % SHARE == 0:
            sample.add(case)
        counts[kind] += 1
    return sample


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    selected = [
        item.callspec.params["case"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    server = Server([case for case in selected if reason(case, SKIPPED) is None])
    yield server
    server.close()


def test_same_as_on_the_cpu(case: Case, server: Server):
    skipped = reason(case, SKIPPED)
    if skipped is not None:
        pytest.skip(skipped)
    result: Result = server.result(case)
    assert expected(result), "\n".join([result.verdict, *result.notes])
