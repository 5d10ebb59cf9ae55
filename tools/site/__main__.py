"""Build the site: ``python -m tools.site``."""

import argparse
import sys
from pathlib import Path

from tools.edition import ROOT, Project
from tools.site import __doc__ as usage
from tools.site.book import Book
from tools.site.links import Site

OUT = ROOT / "site"


def main(arguments: list[str] | None = None) -> str | None:
    """Run the command; return what was wrong, if anything."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.site", description=usage.partition("\n")[0]
    )
    parser.add_argument("--language", action="append", default=[], help="such as fr")
    parser.add_argument("--framework", action="append", default=[], help="such as jax")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder to write")
    parser.add_argument("--jobs", type=int, default=1, help="editions at a time")
    parser.add_argument(
        "--links",
        action="store_true",
        help="build nothing, but list all links to other hosts, and the pages they're "
        "on, of the site in this folder",
    )
    given = parser.parse_args(arguments)
    if given.links:
        for url, pages in Site(given.out).external().items():
            print(url, *pages, sep="\t")
        return None
    try:
        from tools.site.build import build_site
    except ModuleNotFoundError as error:
        return f"{error.name} is missing: pip install -e '.[site]'"
    project = Project(ROOT)
    try:
        book = Book.of(project, given.language, given.framework)
        warnings = build_site(project, book, given.out, given.jobs)
    except (FileNotFoundError, ValueError) as error:
        return str(error)
    if warnings:
        return "\n".join([*warnings, "the site was built, but with these warnings"])
    print(f"open {given.out / 'index.html'}")
    return None


if __name__ == "__main__":
    sys.exit(main())
