"""The web book: what the pages of two editions contain, and where their links lead."""

import json
import posixpath
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tools.edition import ROOT, Project
from tools.site.book import Book, Edition

for module in "sphinx", "furo", "myst_nb", "sphinx_copybutton", "sphinx_design":
    pytest.importorskip(module, reason="the site needs pip install -e '.[site]'")

from tools.site.build import INSTALLED, build_site  # noqa: E402
from tools.site.extension import SearchChinese  # noqa: E402

if not INSTALLED.is_dir():
    pytest.skip("MathJax needs npm ci --prefix tools/site", allow_module_level=True)

ENGLISH, CHINESE = Edition("en", "pytorch"), Edition("zh", "jax")
# What a browser requests without being asked: not links, which readers follow.
REQUESTS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "link": "href",
    "image": "href",
    "use": "href",
    "object": "data",
}


class Page(HTMLParser):
    """A page's links, requests, identifiers and headings."""

    def __init__(self, path: Path):
        super().__init__()
        self.links, self.requests, self.ids, self.tags = [], [], set(), []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.ids.add(given.get("id"))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in REQUESTS and given.get(REQUESTS[tag]):
            self.requests.append(given[REQUESTS[tag]])


@pytest.fixture(scope="module")
def book() -> Book:
    """The book with these two editions."""
    return replace(Book.of(Project(ROOT)), built=(ENGLISH, CHINESE))


@pytest.fixture(scope="module")
def site(book, tmp_path_factory) -> Path:
    """Two editions, built without warnings."""
    out = tmp_path_factory.mktemp("site")
    assert build_site(Project(ROOT), book, out, jobs=2) == []
    return out


@pytest.fixture(scope="module")
def pages(site) -> dict[str, Page]:
    """The pages by address."""
    return {
        path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")
    }


def test_every_notebook_of_an_edition_has_a_page(pages):
    for edition in ENGLISH, CHINESE:
        folder = ROOT / "notebooks" / edition.folder
        for path in folder.rglob("*.ipynb"):
            name = path.relative_to(folder).with_suffix(".html").as_posix()
            assert f"{edition.folder}/{name}" in pages


def test_no_page_requests_another_host(site, pages):
    for name, page in pages.items():
        for url in page.requests:
            assert not re.match(r"(?:https?:)?//", url), (name, url)
    for path in [*site.rglob("*.css"), *site.rglob("*.html")]:
        text = path.read_text("utf-8")
        assert not re.findall(r"url\(\s*[\"']?(?:https?:)?//[^)]*", text), path
        assert not re.findall(r"@import[^;]*//[^;]*", text), path


def test_links_within_the_site_lead_to_pages_and_places_that_exist(site, pages):
    for name, page in pages.items():
        for url in [*page.links, *page.requests]:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = posixpath.join(posixpath.dirname(name), unquote(parts.path))
            target = posixpath.normpath(target) if parts.path else name
            assert (site / target).is_file(), (name, url)
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].ids, (name, url)


def test_a_lesson_links_to_its_solutions_and_neighbours_within_the_site(pages):
    links = pages["en/pytorch/03_copying.html"].links
    assert "solutions/03_copying.html" in links
    assert "02_tensors.html" in links
    assert "04_models.html" in links
    solution = pages["en/pytorch/solutions/03_copying.html"].links
    assert "../03_copying.html" in solution


def test_no_link_leads_to_a_notebook_on_github_that_has_a_page(book, pages):
    for edition in book.built:
        for name, page in pages.items():
            if name.startswith(f"{edition.folder}/"):
                own = name.removeprefix(f"{edition.folder}/").removesuffix(".html")
                for url in page.links:
                    assert url == book.rewritten(url, edition, own), name


def test_a_lesson_links_to_its_notebook(pages):
    links = pages["en/pytorch/03_copying.html"].links
    ends = "/notebooks/en/pytorch/03_copying.ipynb"
    hosts = [urlsplit(url).netloc for url in links if url.endswith(ends)]
    assert hosts == [
        "colab.research.google.com",
        "kaggle.com",
        "studiolab.sagemaker.aws",
        "github.com",
    ]


def test_the_switch_keeps_the_lesson(site):
    text = (site / "en/pytorch/03_copying.html").read_text("utf-8")
    switch = text.partition('<div class="switch">')[2].partition("</div>")[0]
    assert '<strong aria-current="true">English</strong>' in switch
    assert re.search(r'<a href="[^"]*/notebooks/fr/pytorch/03_copying.ipynb"', switch)
    text = (site / "zh/jax/03_copying.html").read_text("utf-8")
    assert '<strong aria-current="true">JAX</strong>' in text


def test_the_switch_says_where_a_lesson_does_not_exist(site):
    text = (site / "en/pytorch/05_time.html").read_text("utf-8")
    switch = text.partition('<div class="switch">')[2].partition("</div>")[0]
    assert "This lesson doesn't exist for TensorFlow, JAX, MXNet." in switch
    assert "jax/05_time" not in switch


def test_every_page_has_one_title(pages):
    for name, page in pages.items():
        if posixpath.basename(name) != "search.html":  # a script writes that one
            assert page.tags.count("h1") == 1, name


def test_outputs_of_a_notebook_are_on_its_page(site):
    path = ROOT / "notebooks/en/pytorch/03_copying.ipynb"
    text = (site / "en/pytorch/03_copying.html").read_text("utf-8")
    tables = 0
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            if html := "".join(output.get("data", {}).get("text/html", ())):
                assert html.strip() in text
                tables += 1
    assert tables


def test_tests_of_the_course_are_not_shown(site):
    for path in (site / "en/pytorch").rglob("*.html"):
        assert "For the course's own tests" not in path.read_text("utf-8"), path


def test_chinese_is_cut_into_pairs_and_words():
    cut = SearchChinese({}).split("反向传播, all-reduce 和 fp16")
    assert cut == ["反向", "向传", "传播", "all", "reduce", "和", "fp16"]
