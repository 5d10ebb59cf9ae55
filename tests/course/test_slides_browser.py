"""Slides in a real browser: they fit, need no network and have notes."""

import contextlib

import nbformat
import pytest

from d2l_gpu.course import lesson_names, notebooks_dir
from d2l_gpu.course.slides.write import slides_page
from tests.helpers.chromium import chromium, watched_page

SCREENS = ({"width": 1920, "height": 1080}, {"width": 1280, "height": 720})
DECKS = {
    "en/pytorch": (),  # all
    "en/jax": ("03_copying",),
    "fr/pytorch": ("03_copying", "13_sharding"),
    "pt/pytorch": ("01_devices", "12_memory"),
    "zh/pytorch": ("07_data_parallel", "11_precision"),
}
OFTEN = ("en/pytorch/03_copying", "en/pytorch/07_data_parallel")
FEWEST_PIXELS = 13  # of type, on a screen of 1280 × 720
# What of a slide is outside of it, or too small to be read.
WRONG = """
fewest => {
  const wrong = [];
  document.head.append(Object.assign(document.createElement('style'), {
    textContent: '.reveal .fragment { transition: none !important; }'}));
  Reveal.getSlides().forEach((slide, i) => {
    const { h, v } = Reveal.getIndices(slide);
    Reveal.slide(h, v ?? 0);
    const frame = slide.getBoundingClientRect();
    const scale = frame.width / slide.offsetWidth;
    for (const each of slide.querySelectorAll('p, li, pre, table, img, h1, h2, math')) {
      if (each.closest('aside')) continue;
      const box = each.getBoundingClientRect();
      const edge = 8 * scale;
      if (box.bottom > frame.bottom - edge || box.right > frame.right - edge) {
        wrong.push(`slide ${i + 1}: ${each.tagName} at ${box.right}, ${box.bottom}`);
      }
      if (each.tagName === 'IMG' && box.height < 150 * scale) {
        wrong.push(`slide ${i + 1}: a picture of ${box.height} pixels`);
      }
      const size = parseFloat(getComputedStyle(each).fontSize);
      if (size < fewest) wrong.push(`slide ${i + 1}: type of ${size} pixels`);
    }
  });
  return wrong;
}
"""


@pytest.fixture(scope="module")
def decks(tmp_path_factory):
    """The files of slides by language, framework and lesson."""
    folder = tmp_path_factory.mktemp("slides")
    files = {}
    for edition, names in DECKS.items():
        notebooks = notebooks_dir(*edition.split("/"))
        for name in names or lesson_names(notebooks):
            lesson = nbformat.read(notebooks / f"{name}.ipynb", as_version=4)
            path = folder / f"{edition.replace('/', '-')}-{name}.html"
            path.write_text(slides_page(lesson, name, notebooks), "utf-8")
            files[f"{edition}/{name}"] = path
    return files


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def opened(browser):
    """A function that opens a file; no page may ask a host, or complain."""
    wrong = []
    with contextlib.ExitStack() as stack:

        def open_file(path, query="", **options):
            allowed = ("file:", "data:", "blob:", "about:")
            page = watched_page(browser, str(path), allowed, wrong, **options)
            stack.callback(page.context.close)
            page.goto(path.as_uri() + query)
            page.wait_for_function("Reveal.isReady()")
            return page

        yield open_file
    assert wrong == []


@pytest.mark.parametrize("screen", SCREENS, ids=lambda each: f"{each['width']}")
def test_what_slides_show_fits_and_is_large_enough(decks, opened, screen):
    page = None
    for name, path in decks.items():
        if screen is SCREENS[1] and name not in OFTEN:
            continue
        page = page or opened(path, viewport=screen)
        page.goto(path.as_uri())
        page.wait_for_function("Reveal.isReady()")
        assert page.evaluate(WRONG, FEWEST_PIXELS) == [], path


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out(decks, opened, theme):
    page = opened(decks[OFTEN[0]], f"?theme={theme}")
    ink, paper = page.evaluate(
        """() => [
          getComputedStyle(document.querySelector('.slides section section p')).color,
          getComputedStyle(document.body).backgroundColor]"""
    )
    brightness = [sum(map(int, each[4:-1].split(","))) for each in (ink, paper)]
    assert abs(brightness[0] - brightness[1]) > 500
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != theme


def test_the_speaker_has_notes(decks, opened):
    page = opened(decks[OFTEN[0]])
    said = page.evaluate(
        """() => Reveal.getSlides().map(
          slide => slide.querySelector('aside.notes')?.textContent.trim() ?? '')"""
    )
    assert sum(map(bool, said)) > len(said) / 2
    page.evaluate("Reveal.slide(2, 1)")
    with page.expect_popup() as opening:
        page.keyboard.press("s")
    view = opening.value
    notes = view.locator(".speaker-controls-notes .value")
    notes.get_by_text("PyTorch could choose one of the two GPUs").wait_for()


def test_an_output_appears_after_the_question(decks, opened):
    from playwright.sync_api import expect

    page = opened(decks[OFTEN[0]])
    page.evaluate("Reveal.slide(3, 2)")  # What will Z contain?
    slide = page.locator("section.present > section.present")
    question = slide.locator(".celltag_question")
    output = slide.locator(".celltag_output")
    expect(question).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(question).to_be_visible()
    expect(output).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(output).to_be_visible()


def test_slides_can_be_printed(decks, opened):
    page = opened(decks[OFTEN[1]], "?print-pdf")
    page.locator(".pdf-page").first.wait_for()
    slides, pages = page.evaluate(
        "[Reveal.getTotalSlides(), document.querySelectorAll('.pdf-page').length]"
    )
    assert slides == pages > 30
