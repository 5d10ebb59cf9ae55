"""The table of fidelity on the page about virtual GPUs is that of the records."""

import pytest

from tools import conformance


def record(**counts):
    return {
        "torch": "2.13.0",
        "build": "CPU",
        "python": "3.11",
        "comparisons": 1234,
        "cases": {key: counts or {"equal": 2} for key in conformance.GROUPS},
        "to rounding": {"rounding": ["`a`", "`b`"]},
        "refused": {},
        "skipped": {},
    }


def test_the_page_is_up_to_date():
    text = conformance.PAGE.read_text(encoding="utf-8")
    table = conformance.table(conformance.read_records())
    assert conformance.page_with(text, table) == text


def test_records_hold_nothing_unexpected():
    records = conformance.read_records()
    assert records
    for one in records:
        assert one["unexpected"] == {}, one["torch"]
        assert set(one["cases"]) == set(conformance.GROUPS)


def test_a_table():
    older = record(equal=3, close=1) | {"torch": "2.9.1"}
    table = conformance.table([older, record()])
    assert "PyTorch 2.13.0, Python 3.11: 1,234 results compared." in table
    assert "| operators, forward | 2 | 2 | 0 |" in table
    assert "* rounding: `a`, `b`" in table
    assert "Refused: nothing." in table
    groups = len(conformance.GROUPS)
    row = f"| 2.9.1 (CPU), Python 3.11 | {4 * groups} | {3 * groups} | {groups} | 0 |"
    assert row in table


def test_a_page_without_marks_is_an_error():
    with pytest.raises(ValueError, match="has no lines <!-- from tools/conformance"):
        conformance.page_with("# Virtual GPUs", "table")
