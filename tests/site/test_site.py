"""The web book: what the pages of editions contain, and where their links lead."""

import json
import posixpath
import re
import shutil
from urllib.parse import unquote, urlsplit

import pytest

from tools.edition import ROOT
from tools.site.book import Edition
from tools.site.links import Site

ENGLISH, CHINESE = Edition("en", "pytorch"), Edition("zh", "jax")


def test_every_notebook_of_an_edition_has_a_page(book, pages):
    for edition in book.built:
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


def test_links_within_the_site_lead_to_files_and_anchors_that_exist(site):
    assert list(Site(site).broken()) == []


def test_broken_links_are_found(site, tmp_path):
    for name in "glossary.html", "solutions.html":
        shutil.copy(site / "en/jax" / name, tmp_path)
    (tmp_path / "page.html").write_text(
        '<a href="glossary.html#term-kernel">there</a> <a href="none.html">no</a>'
        '<a href="glossary.html#none">no</a> <img src="none.png">'
        '<a href="#none">no</a> <a href="https://example.org/none">elsewhere</a>'
    )
    broken = [each for each in Site(tmp_path).broken() if each.startswith("page.html")]
    assert broken == [
        "page.html: none.html leads to no file",
        "page.html: glossary.html#none leads to no anchor",
        "page.html: #none leads to no anchor",
        "page.html: none.png leads to no file",
    ]
    assert Site(tmp_path).external()["https://example.org/none"] == ["page.html"]


def test_identifiers_are_unique_on_a_page(pages):
    for name, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), name


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
    # At the top, and where the exercises begin.
    assert hosts == 2 * [
        "colab.research.google.com",
        "kaggle.com",
        "studiolab.sagemaker.aws",
        "github.com",
    ]


def test_a_notebook_is_downloaded_from_the_site(book, site, pages):
    for edition in book.built:
        for path in (ROOT / "notebooks" / edition.folder).rglob("*.ipynb"):
            name = path.relative_to(ROOT / "notebooks")
            assert (site / name).read_bytes() == path.read_bytes()
            page = pages[name.with_suffix(".html").as_posix()]
            assert path.name in page.links, name


def test_every_page_leads_to_the_start_in_its_language(book, site, pages):
    starts = {each.folder: site / each.language / "index.html" for each in book.built}
    starts["vgpu"] = starts["en/pytorch"] = starts["en/jax"] = site / "index.html"
    for name in pages:
        for folder, start in starts.items():
            if name.startswith(f"{folder}/"):
                text = (site / name).read_text("utf-8")
                links = re.findall(r'<a class="brand" href="([^"]+)"', text)
                assert len(links) == 2, name  # beside the text, and above on a phone
                for link in links:
                    assert ((site / name).parent / link).resolve() == start, name


@pytest.mark.parametrize(
    "edition, anchor",
    [
        ("en/jax", "README.md#start"),
        ("fr/jax", "#lancer-le-cours"),
        ("zh/jax", "#运行课程"),
    ],
)
def test_a_lesson_leads_to_the_installation_in_its_language(pages, edition, anchor):
    links = pages[f"{edition}/03_copying.html"].links
    assert sum(unquote(each).endswith(anchor) for each in links) == 2


def test_the_puzzle_can_be_played(site, pages):
    link = "../../playground/puzzle.html"
    leading = [name for name, page in pages.items() if link in page.links]
    assert leading == ["en/pytorch/17_puzzle.html"]
    assert (site / "playground/puzzle.html").is_file()


def test_english_editions_have_the_page_for_teachers(pages):
    assert "en/pytorch/teaching.html" in pages
    assert "fr/jax/teaching.html" not in pages
    assert "en/pytorch/teaching.html" in pages["index.html"].links
    assert "../en/pytorch/teaching.html" in pages["fr/index.html"].links


def test_the_pages_for_teachers_are_below_the_first(pages):
    first = pages["en/pytorch/teaching.html"].links
    for name in "workshop", "semester", "notes/README":
        assert f"teaching/{name}.html" in first
        assert f"en/pytorch/teaching/{name}.html" in pages
    assert "../../03_copying.html" in pages["en/pytorch/teaching/notes/03.html"].links
    assert not any(name.startswith("en/jax/teaching/") for name in pages)


def test_the_switch_keeps_the_lesson(site):
    text = (site / "en/pytorch/03_copying.html").read_text("utf-8")
    switch = text.partition('<details class="switch">')[2].partition("</details>")[0]
    assert '<strong aria-current="true">English</strong>' in switch
    assert re.search(r'<a href="[^"]*/notebooks/fr/pytorch/03_copying.ipynb"', switch)
    text = (site / "zh/jax/03_copying.html").read_text("utf-8")
    assert '<strong aria-current="true">JAX</strong>' in text


def test_the_switch_says_where_a_lesson_does_not_exist(site):
    for name, others in (
        ("06_overlap", "TensorFlow, JAX, MXNet"),
        ("05_time", "TensorFlow, MXNet"),
    ):
        text = (site / f"en/pytorch/{name}.html").read_text("utf-8")
        switch = text.partition('<details class="switch">')[2]
        switch = switch.partition("</details>")[0]
        assert f"This lesson doesn't exist for {others}." in switch
        assert (f"jax/{name}" in switch) == ("JAX" not in others)


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


def test_chinese_is_cut_into_pairs_and_words(build):
    from tools.site.extension import SearchChinese

    cut = SearchChinese({}).split("反向传播, all-reduce 和 fp16")
    assert cut == ["反向", "向传", "传播", "all", "reduce", "和", "fp16"]
