"""What helps readers of the web book: anchors, folds, terms, descriptions."""

import re
from html.parser import HTMLParser

import pytest

from tools.edition import ROOT, Project
from tools.glossary_page import introductions
from tools.site.book import Edition
from tools.site.terms import terms_of

FOLDED = re.compile(r'<details class="(\w+)">\s*<summary>(.+?)</summary>')
SECTION = re.compile(r'<section [^>]*\bid="([^"]+)"')


def text_of(site, name: str) -> str:
    """The page's HTML between its switch and its footer."""
    text = (site / name).read_text("utf-8")
    return text.partition('id="furo-main-content"')[2].partition("</article>")[0]


def sections(site, name: str) -> list[str]:
    """The anchors of a page's sections, without those of its title."""
    return SECTION.findall(text_of(site, name))[1:]


@pytest.mark.parametrize("lesson", ["01_devices", "solutions/03_copying"])
def test_sections_have_the_same_anchors_in_all_languages(site, lesson):
    found = [sections(site, f"{code}/jax/{lesson}.html") for code in ("en", "fr", "zh")]
    assert len(found[0]) > 4
    assert found[0] == found[1] == found[2]


def test_exercises_and_summaries_have_the_same_anchors_for_all_frameworks(site):
    ours = sections(site, "en/pytorch/03_copying.html")
    theirs = sections(site, "en/jax/03_copying.html")
    both = [each for each in ours if each in theirs]
    assert {"summary", "exercises", "exercise-03-1", "exercise-03-4"} <= set(both)
    assert both != ours


def test_what_an_anchor_names_is_the_table_of_contents_entry(site):
    text = (site / "zh/jax/03_copying.html").read_text("utf-8")
    contents = text.partition('class="toc-tree"')[2]
    for anchor in sections(site, "zh/jax/03_copying.html"):
        assert f'href="#{anchor}"' in contents


def test_the_setup_is_folded_but_not_its_output(site):
    text = text_of(site, "en/pytorch/03_copying.html")
    [(kind, summary)] = FOLDED.findall(text)
    assert (kind, summary) == ("setup", "Setup: imports and settings")
    folded, _, rest = text.partition("<details")[2].partition("</details>")
    assert "linecache" in folded
    assert "linecache" not in rest.partition("<section")[0]
    assert "Using 2 virtual GPUs" in rest.partition("<p>")[0]


def test_a_first_cell_that_the_lesson_is_about_is_not_folded(site):
    assert FOLDED.findall(text_of(site, "en/pytorch/00_start.html")) == []


def test_each_solution_is_folded_behind_its_exercise(site):
    for path in (site / "en/pytorch/solutions").glob("*.html"):
        text = text_of(site, f"en/pytorch/solutions/{path.name}")
        exercises = re.split(r'<section id="exercise-', text)[1:]
        assert exercises, path
        for exercise in exercises:
            task, _, solution = exercise.partition('<details class="solution">')
            assert "<h" in task and "Solution</strong>" not in task, path
            assert "<pre" in solution.partition("</details>")[0], path


def test_each_exercise_leads_to_its_solution(site, pages):
    for path in (site / "en/pytorch").glob("*.html"):
        name = f"en/pytorch/{path.name}"
        solutions = f"solutions/{path.name}"
        links = [each for each in pages[name].links if f"{solutions}#" in each]
        exercises = [each for each in pages[name].ids if each.startswith("exercise-")]
        assert links == [f"{solutions}#{each}" for each in exercises]
    text = text_of(site, "fr/jax/03_copying.html")
    assert 'href="solutions/03_copying.html#exercise-03-1">Solution</a>' in text


def test_a_solution_is_linked_right_after_what_its_exercise_asks_for(site, book):
    for name in book.solved(Edition("en", "pytorch")):
        text = text_of(site, f"en/pytorch/{name}.html")
        for section in re.split('(?=id="exercise-)', text)[1:]:
            exercise = section.partition("<section")[0].partition("Found a mistake")[0]
            code, link = exercise.rindex("</pre>"), exercise.index("to-solution")
            assert re.fullmatch(r"</pre>[\s</div>]*<p class=\"", exercise[code:link]), (
                name
            )


def test_names_in_other_languages_are_marked_as_such(site):
    text = text_of(site, "en/jax/glossary.html")
    entry = text.partition('id="term-device"')[2].partition("</dd>")[0]
    assert 'lang="fr">Français <span class="called">périphérique<' in entry
    text = text_of(site, "zh/jax/glossary.html")
    assert re.search(r'<dt [^>]*lang="en"[^>]*>\s*<strong>device', text)


def test_a_solution_is_named_in_the_language(site):
    found = FOLDED.findall(text_of(site, "zh/jax/solutions/03_copying.html"))
    assert ("solution", "参考答案") in found


class Terms(HTMLParser):
    """The terms that are linked, each with the elements around it."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.found = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "term" in (given.get("class") or "").split() and tag == "a":
            self.found.append((given["href"], list(self.open)))
        if tag not in ("img", "br", "input", "hr", "meta", "link", "col"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open.pop() != tag:
                pass


def test_a_term_is_linked_once_a_page_and_not_in_headings_code_or_links(site):
    numbers = {}
    for path in (site / "en/pytorch").glob("*.html"):
        found = Terms(text_of(site, f"en/pytorch/{path.name}")).found
        numbers[path.stem] = len(found)
        assert len({href for href, _ in found}) == len(found), path
        for href, around in found:
            assert not {"h1", "h2", "h3", "pre", "code", "a"} & set(around), (
                path,
                href,
            )
    assert numbers["glossary"] == 0
    assert 5 <= numbers["03_copying"] <= 12
    assert max(numbers.values()) < 20


def test_the_terms_of_a_lesson_are_those_of_the_glossary_that_it_introduces(site):
    text = text_of(site, "en/pytorch/03_copying.html")
    found = {href.partition("#")[2] for href, _ in Terms(text).found}
    project = Project(ROOT)
    introduced = introductions(project.glossary, project.read())
    own = [
        term
        for term in project.glossary.definitions["03"]
        if introduced[term].framework == "pytorch"
    ]
    assert found == {f"term-{term.lower().replace(' ', '-')}" for term in own}


@pytest.mark.parametrize("language", ["fr", "pt"])
def test_translations_introduce_the_same_terms(language):
    for path in (ROOT / "notebooks/en").glob("*/*.ipynb"):
        name = path.relative_to(ROOT / "notebooks/en").as_posix()
        theirs = set(terms_of(ROOT, language, name).values())
        assert theirs == set(terms_of(ROOT, "en", name).values()), name


def test_emphasis_in_a_translation_is_no_term():
    # Chinese sets in bold what English sets in italics.
    found = terms_of(ROOT, "zh", "pytorch/03_copying.ipynb")
    assert found["带宽"] == "bandwidth"
    assert not {"的确", "传到", "一次", "锁页"} & set(found)


def test_pictures_say_what_they_show(book, site):
    folders = [site / edition.folder for edition in book.built]
    for path in (path for folder in folders for path in folder.rglob("*.html")):
        article = path.read_text("utf-8").partition('id="furo-main-content"')[2]
        for image in re.findall(r"<img [^>]*>", article):
            alt = re.search(r'alt="([^"]*)"', image)[1]
            assert len(alt) > 15 or "由上面" in alt, (path, image)
            assert "_images/" not in alt, (path, image)


def test_the_theme_speaks_the_language_of_the_page(site):
    for code, says in ("fr", "Aller au contenu"), ("zh", "跳到正文"):
        text = (site / code / "jax/03_copying.html").read_text("utf-8")
        assert f">{says}</a>" in text.replace("\n", "").replace("  ", "")
        outside = re.sub("(?s)<svg.*?</svg>|<article.*?</article>", "", text)
        assert not re.findall(r"Toggle|Back to top|On this page|Skip to", outside)
