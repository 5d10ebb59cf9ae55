"""The web book in a real browser, which reaches no host but the site's own server."""

import contextlib
import functools
import re
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest

from tests.helpers.chromium import chromium, watched_page
from tools.edition import ROOT

AXE = ROOT / "tools/site/node_modules/axe-core/axe.min.js"
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
LESSON = "en/jax/03_copying.html"
AUDITED = (
    "index.html",
    "en/pytorch/index.html",
    "en/pytorch/03_copying.html",
    "en/pytorch/09_scaling.html",
    "en/pytorch/14_splitting.html",
    "en/pytorch/solutions/03_copying.html",
    "en/pytorch/glossary.html",
    "en/pytorch/search.html?q=mismatch",
    "zh/jax/02_tensors.html",
    "vgpu/accuracy.html",
    "vgpu/tutorial.html",
    "vgpu/reference/devices.html",
)
FIRST_PAGES = ("index.html", "en/pytorch/index.html", "en/pytorch/00_start.html")
MOST_BYTES = 500_000
# What the reader sees of what has the focus: where it is, and whether it's marked.
FOCUSED = """
() => {
  const it = document.activeElement;
  const toggle = it.matches('.sidebar-toggle');
  const shown = toggle
    ? [...document.querySelectorAll(`label.toc-overlay-icon, label.nav-overlay-icon`)]
        .filter(each => each.htmlFor === it.id)
        .map(each => each.querySelector('.icon'))
        .find(each => each.checkVisibility())
    : it;
  const box = shown?.getBoundingClientRect();
  const style = shown && getComputedStyle(shown);
  return {
    name: it.id || it.className || it.textContent.trim(),
    tag: it.tagName,
    seen: Boolean(box?.width && box.height && box.right > 0 && box.left < innerWidth
      && box.bottom > 0 && box.top < innerHeight && style.opacity !== '0'),
    marked: Boolean(style && style.outlineStyle !== 'none'),
  };
}
"""


class Handler(SimpleHTTPRequestHandler):
    """A server that says nothing."""

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    """The address of a server of the site, with a slash at its end."""
    handler = functools.partial(Handler, directory=str(site))
    with ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def opened(browser, address):
    """A function that opens a page of the site, and fails if anything is wrong.

    In the end, no page may have asked another host, or complained on the console.
    """
    wrong = []
    with contextlib.ExitStack() as stack:

        def open_page(name: str = "", *, base: str = address, **options):
            options = {"viewport": DESKTOP, "reduced_motion": "reduce", **options}
            allowed = (address, "file:", "data:", "blob:")
            page = watched_page(browser, name, allowed, wrong, **options)
            stack.callback(page.context.close)
            if name:
                page.goto(base + name)
            return page

        yield open_page
    assert wrong == []


def test_every_page_of_an_edition_opens(opened, address, site):
    page = opened()
    paths = sorted((site / "en/pytorch").rglob("*.html"))
    assert len(paths) > 40
    for path in paths:
        page.goto(address + path.relative_to(site).as_posix())
        assert page.locator("h1").count() == 1, path
        broken = page.evaluate(
            """() => [...document.images].filter(
                 each => each.complete && !each.naturalWidth).map(each => each.src)"""
        )
        assert broken == [], path


def test_pages_open_without_a_server(opened, site):
    page = opened()
    for name in (*AUDITED, "en/pytorch/11_precision.html"):
        path, _, query = name.partition("?")
        page.goto((site / path).as_uri() + f"?{query}" * bool(query))
        assert page.locator("h1").count() == 1, name
    page.goto((site / "en/pytorch/search.html").as_uri() + "?q=mismatch")
    found = page.locator("#search-results li a")
    found.first.wait_for()
    assert "Copying between devices" in found.all_inner_texts()
    found.first.click()
    page.wait_for_url(re.compile(r"file:.*/en/pytorch/\w+\.html"))


@pytest.mark.parametrize("name", FIRST_PAGES)
def test_a_first_page_is_small(opened, address, name):
    page = opened()
    sizes = {}
    page.on("requestfinished", lambda each: sizes.update({each.url: each}))
    page.goto(address + name, wait_until="networkidle")
    page.mouse.wheel(0, 100_000)  # to pictures that are loaded when they're seen
    page.wait_for_load_state("networkidle")
    total = sum(each.sizes()["responseBodySize"] for each in sizes.values())
    assert 10_000 < total <= MOST_BYTES, {
        url: each.sizes()["responseBodySize"] for url, each in sizes.items()
    }


def go_to(page, anchor: str) -> None:
    """Scroll to a section, as a reader does who doesn't click on links."""
    page.evaluate(
        """anchor => document.getElementById(anchor).scrollIntoView(
             {behavior: 'instant'})""",
        anchor,
    )


def is_at(page, anchor: str) -> bool:
    """Whether a section begins in the upper half of the window."""
    top = page.locator(f"#{anchor}").bounding_box()["y"]
    return -5 <= top <= page.viewport_size["height"] / 2


def switch(page, name: str) -> None:
    page.locator(".switch-beside").get_by_role("link", name=name, exact=True).click()


def test_the_switch_of_languages_keeps_the_section(opened):
    page = opened(LESSON)
    go_to(page, "copies-to-the-host")
    switch(page, "Français")
    page.wait_for_url("**/fr/jax/03_copying.html#copies-to-the-host")
    assert is_at(page, "copies-to-the-host")
    assert page.locator("html").get_attribute("lang") == "fr"
    switch(page, "中文")
    page.wait_for_url("**/zh/jax/03_copying.html#copies-to-the-host")


def test_the_switch_of_frameworks_keeps_the_section_or_the_last_one_before(opened):
    page = opened(LESSON)
    go_to(page, "exercise-03-2")
    switch(page, "PyTorch")
    page.wait_for_url("**/en/pytorch/03_copying.html#exercise-03-2")
    page.goto(page.url.partition("#")[0].replace("pytorch", "jax"))
    go_to(page, "copies-to-the-host")  # which PyTorch's lesson lacks
    switch(page, "PyTorch")
    page.wait_for_url("**/en/pytorch/03_copying.html#copies-you-didn-t-ask-for")


def test_at_the_top_the_switch_leads_to_the_top(opened):
    page = opened(LESSON)
    switch(page, "Français")
    page.wait_for_url("**/fr/jax/03_copying.html")
    assert page.evaluate("scrollY") == 0


def test_on_a_phone_the_switch_in_the_menu_keeps_the_section(opened):
    page = opened(LESSON, viewport=PHONE)
    go_to(page, "exercise-03-1")
    assert page.locator(".switch-beside").is_hidden()
    page.locator(".nav-overlay-icon").click()
    switch(page, "Français")
    page.wait_for_url("**/fr/jax/03_copying.html#exercise-03-1")


def test_without_scripts_the_switch_keeps_the_lesson(opened):
    page = opened(LESSON, java_script_enabled=False)
    switch(page, "Français")
    page.wait_for_url("**/fr/jax/03_copying.html")


def test_the_glossary_keeps_the_term(opened):
    page = opened("en/jax/glossary.html#term-kernel")
    switch(page, "Français")
    page.wait_for_url("**/fr/jax/glossary.html#term-kernel")


def test_a_reader_who_returns_finds_her_edition_and_her_lesson(opened, address):
    page = opened("index.html")
    before = page.locator("a.start").get_attribute("href")
    assert before.endswith("en/pytorch/00_start.html")
    assert page.locator("a.continue").count() == 0
    page.goto(f"{address}fr/jax/03_copying.html")
    page.goto(f"{address}fr/jax/glossary.html")  # isn't a lesson
    page.goto(address)
    assert page.url == address  # nobody is sent away
    start = page.locator("a.start")
    assert start.get_attribute("href") == f"{address}fr/jax/01_devices.html"
    back = page.locator("a.continue")
    assert back.get_attribute("href") == f"{address}fr/jax/03_copying.html"
    assert back.get_attribute("lang") == "fr"
    assert "Copier d’un périphérique" in back.inner_text()


@pytest.mark.parametrize(
    "kept", ["{", "null", '{"edition": "xx/none"}', '{"edition": "javascript:1//"}']
)
def test_what_the_browser_kept_may_be_damaged(opened, kept):
    page = opened("index.html")
    page.evaluate("kept => localStorage.setItem('d2l-place', kept)", kept)
    page.reload()
    href = page.locator("a.start").get_attribute("href")
    assert href.endswith("en/pytorch/00_start.html")


# In French, the error about two devices speaks of « périphériques différents ».
@pytest.mark.parametrize(
    "edition, word, lesson",
    [
        ("en/pytorch", "mismatch", "Copying between devices"),
        ("fr/jax", "périphériques", "Copier d’un périphérique à l’autre"),
        ("zh/jax", "设备", "设备之间的复制"),
    ],
)
def test_search_finds_lessons_and_shows_excerpts(opened, edition, word, lesson):
    page = opened(f"{edition}/03_copying.html")
    page.fill(".sidebar-search", word)
    page.press(".sidebar-search", "Enter")
    page.wait_for_url(f"**/{edition}/search.html?q={quote(word)}*")
    result = page.locator("#search-results li").filter(has_text=lesson).first
    excerpt = result.locator(".context")
    excerpt.wait_for()
    assert word.rstrip("s") in excerpt.inner_text()
    assert "Framework" not in excerpt.inner_text()  # of the switch
    result.locator("a").first.click()
    page.locator(".highlighted").first.wait_for()


def test_search_without_a_result_says_so(opened):
    page = opened("en/pytorch/search.html?q=xylophone")
    page.get_by_text("did not match any documents").wait_for()


@pytest.mark.parametrize(
    "scheme, viewport",
    [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE)],
    ids=["light", "dark", "phone"],
)
def test_axe_finds_nothing_serious(opened, address, scheme, viewport):
    if not AXE.is_file():
        pytest.skip("axe-core needs npm ci --prefix tools/site")
    page = opened(color_scheme=scheme, viewport=viewport)
    serious = []
    for name in AUDITED:
        page.goto(address + name, wait_until="networkidle")
        page.eval_on_selector_all("details", "all => all.forEach(d => d.open = true)")
        page.wait_for_timeout(100)  # what scrolls is found by then
        page.evaluate(AXE.read_text("utf-8"))
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious += [
            (name, each["id"], each["nodes"][0]["html"][:200], len(each["nodes"]))
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
    assert serious == []


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_everything_is_reached_by_keyboard_and_seen_when_it_is(opened, viewport):
    page = opened("en/pytorch/solutions/03_copying.html", viewport=viewport)
    page.keyboard.press("Tab")
    reached = [page.evaluate(FOCUSED)]
    assert "skip-to-content" in reached[0]["name"]
    for _ in range(300):
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUSED)
        if focus["tag"] == "BODY":
            break
        reached.append(focus)
    hidden = [each for each in reached if not (each["seen"] and each["marked"])]
    assert hidden == []
    folds = page.locator("details > summary:visible").count()
    assert sum(each["tag"] == "SUMMARY" for each in reached) == folds > 4
    links = page.locator("article a[href]:visible").count()
    assert sum(each["tag"] == "A" for each in reached) >= links


def test_the_keyboard_skips_to_the_text_and_opens_a_solution(opened):
    page = opened("en/pytorch/solutions/03_copying.html")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    solution = page.locator("details.solution").first
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.parentNode.className") == "solution":
            break
    page.keyboard.press("Enter")
    assert solution.locator("pre").first.is_visible()


def test_without_scripts_a_key_opens_an_answer_of_the_quiz(opened):
    page = opened("en/pytorch/03_copying.html", java_script_enabled=False)
    answer = page.locator(".d2l-quiz details.d2l-right").first
    assert not answer.get_by_text("Right.").is_visible()
    answer.locator("summary").press("Enter")
    assert answer.get_by_text("Right.").is_visible()
    assert page.locator(".d2l-quiz details[open]").count() == 1


def test_the_keyboard_opens_and_closes_the_menu_of_a_phone(opened):
    page = opened("en/pytorch/03_copying.html", viewport=PHONE)
    lesson = page.locator(".sidebar-tree").get_by_role("link", name="05 Time")
    assert lesson.is_hidden()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    lesson.wait_for()
    page.keyboard.press("Escape")
    lesson.wait_for(state="hidden")
    assert page.evaluate("document.activeElement.id") == "__navigation"


def test_what_is_wider_than_the_page_scrolls_in_its_frame(opened):
    for name in "03_copying", "15_planning", "glossary":
        page = opened(f"en/pytorch/{name}.html", viewport=PHONE)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], name
    page = opened("en/pytorch/03_copying.html", viewport=PHONE)
    frame = page.locator("article pre[tabindex='0']").first
    frame.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0")


def test_a_printed_page_has_the_text_only_and_all_of_it(opened):
    page = opened("en/pytorch/solutions/03_copying.html")
    assert page.locator("details.solution pre").first.is_hidden()
    page.emulate_media(media="print")
    for outside in ".sidebar-drawer", ".toc-drawer", ".switch", "footer", ".copybtn":
        assert page.locator(outside).first.is_hidden(), outside
    for solution in page.locator("details.solution").all():
        assert solution.bounding_box()["height"] > 100
    page.set_viewport_size({"width": 700, "height": 900})  # of a sheet of paper
    assert page.evaluate("document.documentElement.scrollWidth") <= 700


def test_a_term_leads_to_its_entry(opened):
    page = opened("en/pytorch/03_copying.html")
    page.locator("a.term", has_text="bandwidth").click()
    page.wait_for_url("**/en/pytorch/glossary.html#term-bandwidth")
    assert "bytes" in page.locator("#term-bandwidth + dd").inner_text()
