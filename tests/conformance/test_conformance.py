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

from cases import CLOSE_ONLY, REFUSED_BY_DESIGN, SKIPPED, Case, reason
from runner import Result, Server, list_cases


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
    allowed = {"equal", "varies"}
    if reason(case, CLOSE_ONLY) is not None:
        allowed |= {"close"}
    if reason(case, REFUSED_BY_DESIGN) is not None:
        allowed = {"refused"}
    assert result.verdict in allowed, "\n".join(result.notes)
    assert result.count or result.verdict == "refused"
