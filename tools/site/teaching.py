"""The pages for teachers: ``docs/teaching.md`` and those in ``docs/teaching``.

They're in English and about PyTorch's lessons, so only that edition has all of them;
the other English editions have the first, with links to the rest on GitHub.
"""

import posixpath
import re
from pathlib import Path, PurePosixPath

from tools.header import on_github
from tools.site.book import TEACHING, Edition

_DOCS = PurePosixPath("docs")
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)((?:#[^)\s]*)?)\)")
# What the menu lists, in order; the notes come below their own first page.
_ORDER = (
    "workshop",
    "workshop-script",
    "day",
    "semester",
    "notes/README",
    "commands",
    "jupyterhub",
)


def write_teaching(root: Path, edition: Edition, folder: Path) -> None:
    """Write what Sphinx reads of the pages for teachers.

    Args:
        root: the project's folder.
        edition: the edition that gets them.
        folder: where its source is written.
    """
    docs = root / _DOCS
    pages = [docs / f"{TEACHING}.md"]
    if edition.framework == "pytorch":
        pages += sorted((docs / TEACHING).rglob("*.md"))
    names = {PurePosixPath(path.relative_to(root).as_posix()) for path in pages}
    for name in names:
        text = _with_links((root / name).read_text("utf-8"), name, names)
        inner = name.relative_to(_DOCS)
        if listed := _below(inner, {each.relative_to(_DOCS) for each in names}):
            lines = "\n".join(listed)
            text += f"\n```{{toctree}}\n:hidden:\n\n{lines}\n```\n"
        target = folder / inner
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")


def _below(page: PurePosixPath, pages: set[PurePosixPath]) -> list[str]:
    """Return the pages that the menu has below another, relative to it."""
    if page.name == f"{TEACHING}.md":
        known = [PurePosixPath(TEACHING, f"{name}.md") for name in _ORDER]
        rest = {
            each for each in pages if each.parent == PurePosixPath(TEACHING)
        }.difference(known)
        listed = [each for each in known if each in pages] + sorted(rest)
    elif page.name == "README.md":
        listed = sorted(
            each for each in pages if each.parent == page.parent and each != page
        )
    else:
        listed = []
    return [
        posixpath.relpath(each.with_suffix("").as_posix(), page.parent.as_posix())
        for each in listed
    ]


def _with_links(text: str, page: PurePosixPath, pages: set[PurePosixPath]) -> str:
    """Return a page whose links to files that the site lacks lead to GitHub."""

    def link(match: re.Match) -> str:
        target = PurePosixPath(posixpath.normpath(page.parent / match[1]))
        if target in pages:
            return match[0]
        return f"]({on_github(target)}{match[2]})"

    return _LINK.sub(link, text)
