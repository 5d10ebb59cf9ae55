"""One rank: how it ends, and which of several errors of ranks is the cause."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu.common.children import start_child
from d2l_gpu.common.worker import FOLDER, _lost_connection, folder_of
from tests.helpers.fresh_process import PATH
from tests.helpers.properties import sizes
from tests.helpers.waiting import PATIENCE

LOST = [
    ConnectionResetError(),
    BrokenPipeError("[Errno 32] Broken pipe"),
    RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer"),
    RuntimeError("Connection reset by peer [127.0.0.1]:29500"),
]


def chained(errors: list[Exception], explicit: list[bool]) -> Exception:
    """Raise each error while the one before is handled; return the last one."""
    last = errors[0]
    for error, cause in zip(errors[1:], explicit, strict=False):
        try:
            try:
                raise last
            except Exception as handled:
                if cause:
                    raise error from handled
                raise error  # noqa: B904  linked by its context alone
        except Exception as caught:
            last = caught
    return last


@pytest.mark.parametrize("lost", LOST, ids=repr)
@given(before=sizes(most=3), after=sizes(most=3), explicit=st.lists(st.booleans()))
def test_an_error_that_follows_from_a_lost_connection_is_no_cause(
    lost, before, after, explicit
):
    errors = [ValueError(f"first {i}") for i in range(before)]
    errors += [lost] + [KeyError(f"then {i}") for i in range(after)]
    lost.__cause__ = lost.__context__ = None
    explicit = [*explicit, *[False] * len(errors)]
    assert _lost_connection(chained(errors, explicit))


@given(n=sizes(1, 4), explicit=st.lists(st.booleans()), closes=st.booleans())
def test_other_errors_are_causes_even_in_a_circle(n, explicit, closes):
    errors = [ValueError(f"error {i}") for i in range(n)]
    last = chained(errors, [*explicit, *[True] * n])
    if closes:
        errors[0].__cause__ = last
    assert not _lost_connection(last)
    assert not _lost_connection(None)


@pytest.mark.parametrize(
    ("ends", "code", "why"),
    [
        ("", 0, []),
        ("sys.exit()", 0, []),
        ("sys.exit(0)", 0, []),
        ("sys.exit(3)", 3, ["SystemExit: 3"]),
        ("sys.exit('no data')", 1, ["SystemExit: no data"]),
        ("sys.exit(('no', 'data'))", 1, ["SystemExit: ('no', 'data')"]),
        ("raise ValueError('no data')", 1, ["ValueError: no data"]),
    ],
)
def test_a_rank_ends_as_python_would_and_records_why_it_failed(
    tmp_path, ends, code, why
):
    script = tmp_path / "train.py"
    script.write_text(f"import sys\n{ends}\n")
    rank = {FOLDER: str(tmp_path), "RANK": "0", "TORCHELASTIC_RESTART_COUNT": "0"}
    with start_child(
        [sys.executable, "-m", "d2l_gpu.common.worker", script],
        env={**os.environ, **PATH, **rank},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.wait(PATIENCE) == code
    records = folder_of(tmp_path, 0).glob("error-*.json")
    assert [json.loads(path.read_text())["summary"] for path in records] == why
