"""All editions of the web book: that no link within the site is broken."""

import pytest

from tools.edition import ROOT, Project
from tools.site.book import Book
from tools.site.links import Site


@pytest.mark.weekly
def test_no_link_within_the_site_is_broken_in_any_edition(build, tmp_path):
    project = Project(ROOT)
    book = Book.of(project)
    assert build(project, book, tmp_path, jobs=2) == []
    site = Site(tmp_path)
    assert list(site.broken()) == []
    for edition in book.built:
        for name in book.lessons(edition):
            assert f"{edition.folder}/{name}.html" in site.pages
