"""Bring the PO files up to date with the English lessons, or list stale messages.

    python -m tools.translate            add new messages, mark changed ones as fuzzy
    python -m tools.translate --check    list stale messages, write nothing
    python -m tools.translate --check --strict    the same, and fail if there are any

A message is a paragraph (see `tools.translation`), or a text in code that readers see
(see `tools.messages`). To translate one, edit ``lessons/locale/<language>.po`` or
``lessons/locale/messages/<language>.po``, by hand or in a PO editor, and remove the
flag ``fuzzy``. Then run this again, which compiles the second, and build the notebooks.
The English text may change before its translations do; only a release needs all of
them, so it checks with ``--strict``.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from d2l_gpu.common.files import write_whole
from tools.edition import ROOT, Project
from tools.languages import LOCALE
from tools.lesson import LessonError
from tools.messages import CATALOGUES, compiled
from tools.translation import MISSING, STALE, Translation, key_of


def problems(translation: Translation) -> Iterator[str]:
    """Yield the missing, stale and unused messages of a translation, one line each."""
    what = {
        MISSING: "is not translated",
        STALE: "is stale: the English has changed, or the translation is fuzzy",
    }
    code = translation.language.code
    for message in translation.wanted:
        for place in "", *message.places:
            if place and (place, message.text) not in translation.entries:
                continue  # the lesson has no entry of its own
            if problem := translation.problem(message.text, place):
                yield f"{code}: {message} {what[problem]}"
    yield from unwanted(translation)


def unwanted(translation: Translation) -> Iterator[str]:
    """Yield the messages that no lesson contains any more, one line each."""
    code = translation.language.code
    there = {key_of(entry) for entry in translation.file if not entry.obsolete}
    used = {
        (context, entry.previous_msgid or entry.msgid)
        for (context, _), entry in translation.entries.items()
    }
    for context, text in there - used - set(translation.entries):
        words = " ".join(text.split())[:50]
        where = context or "any lesson"
        yield f"{code}: “{words}…” is in the PO file, but no longer in {where}"


def _compile(project: Project) -> None:
    """Write the catalogues of what code says, for `d2l_gpu.common.messages`."""
    folder = project.root / CATALOGUES
    for code, translation in project.catalogues.items():
        if not translation.wanted:
            continue
        fresh = replace(translation)  # reads the file that has just been written
        path, content = folder / f"{code}.mo", compiled(fresh)
        if not path.is_file() or path.read_bytes() != content:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)


def main(arguments: Sequence[str] | None = None) -> int:
    """Update or check the PO files.

    Returns:
        0; 1 on an error, or if ``--check --strict`` finds problems.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.translate", description=__doc__.splitlines()[0]
    )
    parser.add_argument("languages", nargs="*", metavar="language")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="with --check: fail if any message is missing or stale",
    )
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(arguments)
    found = []
    try:
        project = Project(options.root)
        every = project.translations_into(options.languages)
        every += [project.catalogues[each.language.code] for each in every]
        for translation in every:
            if options.check:
                found += problems(translation)
                continue
            for problem in unwanted(translation):
                print(f"put away: {problem}")
            changed = "written" if translation.write() else "unchanged"
            share = translation.share([each.text for each in translation.wanted])
            path = translation.path.relative_to(project.lessons / LOCALE)
            print(
                f"{path}: {changed}, {share} % of {len(translation.wanted)} messages "
                "translated"
            )
        if not options.check:
            _compile(project)
    except (LessonError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    for problem in found:
        print(problem)
    if found:
        print(
            "`python -m tools.translate` brings the PO files in line; then translate "
            "what is missing or fuzzy there",
            file=sys.stderr,
        )
        if "GITHUB_ACTIONS" in os.environ:  # an annotation on the run's page
            print(f"::warning::{len(found)} translated messages are missing or stale")
    return int(bool(found) and options.strict)


if __name__ == "__main__":
    sys.exit(main())
