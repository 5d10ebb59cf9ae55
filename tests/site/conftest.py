"""The site that the tests of the web book read: four editions, built once."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.edition import ROOT, Project
from tools.site.book import Book, Edition
from tools.site.links import Page, Site

# Without the extra `site`, these modules can't be imported.
SITE = "sphinx", "furo", "myst_nb", "sphinx_copybutton", "sphinx_design"
collect_ignore_glob = [] if all(map(find_spec, SITE)) else ["test_*.py"]

EDITIONS = (
    Edition("en", "pytorch"),
    Edition("en", "jax"),
    Edition("fr", "jax"),
    Edition("zh", "jax"),
)


@pytest.fixture(scope="session")
def build():
    """The function that builds a site, if what it needs is installed."""
    from tools.site.build import INSTALLED, build_site

    if not INSTALLED.is_dir():
        pytest.skip("MathJax needs npm ci --prefix tools/site")
    return build_site


@pytest.fixture(scope="session")
def book() -> Book:
    """The book with these editions."""
    return replace(Book.of(Project(ROOT)), built=EDITIONS)


@pytest.fixture(scope="session")
def site(build, book, tmp_path_factory) -> Path:
    """The editions, built without warnings."""
    out = tmp_path_factory.mktemp("site")
    assert build(Project(ROOT), book, out, jobs=2) == []
    return out


@pytest.fixture(scope="session")
def pages(site) -> dict[str, Page]:
    """The pages by address."""
    return Site(site).pages
