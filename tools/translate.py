"""Bring the PO files in line with the English lessons, or say what is stale.

    python -m tools.translate            add new messages, mark changed ones as fuzzy
    python -m tools.translate --check    write nothing, say which messages are stale

A message is a cell of prose; see `tools.translation`. To translate, edit
``lessons/locale/<language>.po``, by hand or with a program for PO files, and remove the
flag ``fuzzy``. Then build the notebooks.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.edition import ROOT, Project
from tools.lesson import LessonError
from tools.translation import MISSING, Message, Translation


def problems(translation: Translation, wanted: Sequence[Message]) -> Iterator[str]:
    """Yield what is missing or stale in a translation, a line each."""
    for message in wanted:
        if problem := translation.problem(message):
            what = (
                "is not translated"
                if problem == MISSING
                else "is stale: the English has changed, or the translation is fuzzy"
            )
            yield f"{translation.language}: {message.context} {what}"
    known = {message.context for message in wanted}
    for context in translation.entries:
        if context not in known:
            yield f"{translation.language}: {context} is no cell of a lesson any more"


def main(arguments: Sequence[str] | None = None) -> int:
    """Merge or check; return 0, or 1 if something is stale or cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.translate", description=__doc__.splitlines()[0]
    )
    parser.add_argument("languages", nargs="*", metavar="language")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(arguments)
    stale = False
    try:
        project = Project(options.root)
        wanted = project.messages()
        for translation in project.translations_into(options.languages):
            if options.check:
                for problem in problems(translation, wanted):
                    stale = True
                    print(problem)
            else:
                changed = translation.write(wanted)
                done = Translation(translation.language, translation.path)
                print(
                    f"{done.path.name}: {'written' if changed else 'unchanged'}, "
                    f"{done.share(wanted)} % of {len(wanted)} messages translated"
                )
    except (LessonError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if stale:
        print("bring up to date with: python -m tools.translate", file=sys.stderr)
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
