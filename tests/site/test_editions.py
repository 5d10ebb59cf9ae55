"""All editions of the web book: that no link within the site is broken."""

import os
from pathlib import Path

import pytest

from tools.edition import ROOT, Project
from tools.site.book import Book
from tools.site.links import Site


@pytest.fixture
def everything(build, tmp_path) -> Path:
    """The folder of the whole site: that of D2L_GPU_SITE if it's built already."""
    if built := os.environ.get("D2L_GPU_SITE"):
        return Path(built)
    project = Project(ROOT)
    assert build(project, Book.of(project), tmp_path, jobs=2) == []
    return tmp_path


@pytest.mark.weekly
def test_no_link_within_the_site_is_broken_in_any_edition(everything):
    site = Site(everything)
    assert list(site.broken()) == []
    book = Book.of(Project(ROOT))
    for edition in book.built:
        for name in book.lessons(edition):
            assert f"{edition.folder}/{name}.html" in site.pages
