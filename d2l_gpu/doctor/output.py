"""Findings as text for readers, and as JSON for programs."""

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from d2l_gpu.common.messages import localized
from d2l_gpu.vgpu.sim.words import columns, padded

from . import CHECKS
from .findings import NOTE, OK, PROBLEM, Finding

_WIDTH = max(map(len, CHECKS))
_MARKS = {OK: "ok", NOTE: "note", PROBLEM: "PROBLEM"}
_COLOURS = {OK: "\x1b[32m", NOTE: "\x1b[33m", PROBLEM: "\x1b[1;31m"}
_PLAIN = "\x1b[0m"


def as_json(findings: Iterable[Finding]) -> str:
    """Return findings as a JSON list of objects.

    Each has the strings ``name`` (of the check), ``status`` (``ok``, ``note`` or
    ``problem``), ``what`` and ``what_to_do`` (empty where there is nothing to do).
    """
    return json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2)


def show(findings: Iterable[Finding]) -> list[Finding]:
    """Print each finding as it comes, then a summary; return all of them."""
    seen = []
    for finding in findings:
        _print(line(finding, coloured=_colours(sys.stdout)))
        seen.append(finding)
    _print(summary(seen))
    return seen


def line(finding: Finding, coloured: bool = False) -> str:
    """Return a finding in one line, and in a second one what to do."""
    marks = {status: localized(mark) for status, mark in _MARKS.items()}
    width = max(map(columns, marks.values()))
    mark = padded(marks[finding.status], width)
    if coloured:
        mark = f"{_COLOURS[finding.status]}{mark}{_PLAIN}"
    text = f"{mark}  {finding.name:<{_WIDTH}}  {localized(finding.what)}"
    if finding.what_to_do:
        text += f"\n{'':<{width + _WIDTH + 4}}-> {localized(finding.what_to_do)}"
    return text


def summary(findings: Sequence[Finding]) -> str:
    """Return how many problems and notes there are, in one line."""
    problems = [finding.name for finding in findings if finding.status == PROBLEM]
    notes = sum(finding.status == NOTE for finding in findings)
    also = localized(f"{notes} note{'s' * (notes > 1)}") if notes else ""
    if not problems:
        no = f"No problem, {also}" if notes else "No problem"
        return "\n" + localized(f"{no}: this machine is ready for the course.")
    n, names = len(problems), ", ".join(dict.fromkeys(problems))
    said = localized(f"{n} problem{'s' * (n > 1)} ({names})")
    return f"\n{said}, {also}." if notes else f"\n{said}."


def _colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.name != "nt"


def _print(text: str) -> None:
    # A terminal of another encoding shows what it cannot as \xe9, and nothing fails.
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
