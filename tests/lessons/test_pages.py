"""The pages that people read on GitHub are short, and their links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.helpers.paths import REPOSITORY

PAGES = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
PAGES += [
    REPOSITORY / "d2l_gpu/vgpu/README.md",
    REPOSITORY / "lessons/locale/README.md",
]


def targets(path: Path) -> Iterator[str]:
    """Yield the addresses of a page's links and pictures."""
    parser = MarkdownIt("commonmark").enable("table")
    for block in parser.parse(path.read_text("utf-8")):
        for token in block.children or ():
            address = token.attrGet("href") or token.attrGet("src")
            if address:
                yield str(address)


def anchors(path: Path) -> set[str]:
    """Return the names that GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ (.*)", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path):
    for target in targets(path):
        if re.match("[a-z]+:", target):
            continue
        name, _, heading = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), target
        assert not heading or heading in anchors(file), target


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_the_first_pages_are_short(name):
    assert len((REPOSITORY / name).read_text("utf-8").splitlines()) <= 150
