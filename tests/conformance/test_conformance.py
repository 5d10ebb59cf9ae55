"""Virtual GPUs give what the CPU gives, by PyTorch's own databases of test cases.

Each test is one operator, module or optimizer with one dtype; ``runner.py`` runs them
in processes of their own, ahead of the tests that ask for the results.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if not hasattr(os, "fork"):
    pytest.skip("this system cannot fork", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parent))

from cases import SKIPPED, Case, reason
from runner import Result, Server, expected, list_cases


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", list_cases(), ids=str)


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
