"""Check that a tag can be released, and print its section of the changelog.

    python -m tools.release v0.2.0

The tag must be `v` plus the package's version, and the changelog's newest section must
be about that version and have a date. This needs only Python, not even the package's
dependencies.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from d2l_gpu import __version__

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"
UNRELEASED = "Unreleased"

# The kinds of change of https://keepachangelog.com/en/1.1.0/
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")

_HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\S+))?$", re.MULTILINE)
_LINK = re.compile(r"^\[(?P<name>[^\]]+)\]: https://\S+$", re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """A changelog's section on one version.

    Attributes:
        name: the version, or Unreleased.
        date: the date in the heading; None if there is none.
        text: the text below the heading.
    """

    name: str
    date: str | None
    text: str


def read_sections(changelog: str) -> list[Section]:
    """Return the sections of a changelog, in the order of the file (newest first)."""
    body = _LINK.sub("", changelog)
    headings = list(_HEADING.finditer(body))
    ends = [*(heading.start() for heading in headings), len(body)][1:]
    return [
        Section(heading["name"], heading["date"], body[heading.end() : end].strip())
        for heading, end in zip(headings, ends, strict=True)
    ]


def changelog_problems(changelog: str, version: str) -> Iterator[str]:
    """Yield the problems of a changelog, one sentence each.

    Args:
        changelog: the file's content.
        version: the package's version.
    """
    sections = read_sections(changelog)
    if len(sections) != len(re.findall(r"^## ", changelog, re.MULTILINE)):
        yield "a heading is not like `## [0.1.0] - 2026-12-31` or `## [Unreleased]`"
    if not sections:
        yield "there is no section"
        return
    if sections[0].name not in (UNRELEASED, version):
        yield (
            f"the newest section is {sections[0].name}, but must be {UNRELEASED} or "
            f"{version}, the version of the package"
        )
    links = {link["name"] for link in _LINK.finditer(changelog)}
    for section in sections:
        if section.name not in links:
            yield f"{section.name}: the link of the heading is missing at the end"
        if section.name == UNRELEASED:
            if section is not sections[0]:
                yield f"{UNRELEASED} is not the newest section"
        elif not _is_date(section.date):
            yield f"{section.name}: the heading has no date such as 2026-12-31"
        kinds = re.findall(r"^### (.*)$", section.text, re.MULTILINE)
        for kind in kinds:
            if kind not in KINDS:
                yield f"{section.name}: {kind} is not one of {', '.join(KINDS)}"
        if not kinds or not re.search(r"^- ", section.text, re.MULTILINE):
            yield f"{section.name}: it lists no change"
    dated = [section.date for section in sections if _is_date(section.date)]
    if dated != sorted(dated, reverse=True):
        yield "the sections are not ordered by date, the newest first"


def release_notes(tag: str, changelog: str, version: str) -> str:
    """Return the changelog's text on the version that a tag releases.

    Args:
        tag: such as ``v0.2.0``.
        changelog: the file's content.
        version: the package's version.

    Raises:
        ValueError: tag and version disagree, or the changelog isn't ready for it.
    """
    if tag != f"v{version}":
        raise ValueError(
            f"the tag is {tag}, but the package is {version}: tag v{version}, or set "
            "the version in d2l_gpu/__init__.py"
        )
    problems = list(changelog_problems(changelog, version))
    if problems:
        raise ValueError("CHANGELOG.md: " + "; ".join(problems))
    newest = read_sections(changelog)[0]
    if newest.name != version:
        raise ValueError(
            f"CHANGELOG.md: the newest section is {newest.name}: rename it to "
            f"[{version}], with the date"
        )
    return newest.text


def _is_date(text: str | None) -> bool:
    try:
        return text is not None and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the release notes; return 0, or 1 after printing what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.release", description=__doc__.splitlines()[0]
    )
    parser.add_argument("tag", help="as v0.2.0")
    options = parser.parse_args(arguments)
    try:
        notes = release_notes(options.tag, CHANGELOG.read_text("utf-8"), __version__)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
