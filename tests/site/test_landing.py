"""The landing pages: what they say is recorded or computed, in every language."""

import itertools
import json
import re
import string
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from d2l_gpu.vgpu.sim.published import RUNS
from tests.helpers.chromium import chromium
from tools.edition import ROOT, Project
from tools.languages import ENGLISH
from tools.site.book import Book, Edition
from tools.site.landing import FILES, landing_page, runs, texts, write_landing
from tools.site.landing.recordings import MISMATCH, STEPS, recorded
from tools.site.landing.steps import panels
from tools.site.landing.texts import Texts
from tools.site.links import Page

AXE = ROOT / "tools/site/node_modules/axe-core/axe.min.js"
LANGUAGES = ("en", "fr", "pt", "zh")
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
NARROW = {"width": 320, "height": 640}  # or a phone at 120 %
MOST_BYTES = 300_000
VIOLATIONS = """
async () => {
  const { violations } = await axe.run({ preload: false });
  return violations.map(each => [each.id, ...each.nodes.map(node => node.html)]);
}
"""
SHIFT = """
() => new Promise(resolve => {
  let sum = 0;
  const seen = list => list.getEntries().forEach(each => { sum += each.value; });
  new PerformanceObserver(seen).observe({ type: 'layout-shift', buffered: true });
  setTimeout(() => resolve(sum), 200);
})
"""


def tables() -> dict[str, dict]:
    return tomllib.loads(texts._TEXTS.read_text("utf-8"))


def placeholders(text: str) -> list[str]:
    return sorted(name for _, name, *_ in string.Formatter().parse(text) if name)


@pytest.fixture(scope="module")
def whole() -> Book:
    """The book with all editions."""
    return Book.of(Project(ROOT))


@pytest.fixture(scope="module")
def landing(whole, tmp_path_factory) -> Path:
    """A site that has nothing but its landing pages."""
    out = tmp_path_factory.mktemp("landing")
    write_landing(Project(ROOT), whole, out)
    return out


def path_in(landing: Path, language: str) -> Path:
    return landing / ("" if language == ENGLISH else language) / "index.html"


# ------------------------------------------------------------------ recordings


def test_what_is_recorded_comes_out_again():
    command = [sys.executable, "-m", "tools.site.landing.record", "--check"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_sum_fails_just_where_the_devices_differ():
    sums = recorded(MISMATCH)
    places = {each["x"] for each in sums}
    pairs = [(each["x"], each["y"]) for each in sums]
    assert sorted(pairs) == sorted(itertools.product(places, repeat=2))
    for each in sums:
        assert ("error" in each) == (each["x"] != each["y"])
        assert each["result"].startswith("tensor(")
        if "error" in each:
            assert "Expected all tensors to be on the same device" in each["error"]
            assert each["copied"] == 3 * 4  # three numbers of fp32


def test_bars_lie_within_their_step():
    for step in recorded(STEPS):
        bars = [bar for row in step["rows"].values() for bar in row]
        assert bars
        assert all(0 <= start <= end <= step["end"] for _, start, end, _ in bars)
        assert all(busy <= step["end"] for busy in step["busy"])


def test_two_gpus_are_said_to_be_slower_just_where_they_are():
    steps = {(step["batch"], step["gpus"]): step["end"] for step in recorded(STEPS)}
    batches = sorted({batch for batch, _ in steps})
    slower = [steps[batch, 2] > steps[batch, 1] for batch in batches]
    assert slower == [True, False]  # or the section has nothing to show
    found = [panel.finding for panel in panels(Texts(ENGLISH))]
    assert ["times as long" in each for each in found] == slower
    assert ["times as fast" in each for each in found] != slower


def test_times_are_those_that_the_lesson_prints(whole):
    path = ROOT / "notebooks/en/pytorch/07_data_parallel.ipynb"
    cells = json.loads(path.read_text("utf-8"))["cells"]
    printed = [
        line.split("  simulated")[0].split("  ")[-1].strip()
        for cell in cells
        for output in cell.get("outputs", ())
        for line in output.get("text", ())
    ]
    for step in recorded(STEPS):
        assert Texts(ENGLISH).time(step["end"] / 1e12).replace("\xa0", " ") in printed


# ------------------------------------------------------------------ published runs


def test_half_of_the_runs_are_within_the_median_error():
    within = sum(abs(run[-1]) <= runs.median_error() for run in RUNS)
    assert within >= len(RUNS) / 2 >= len(RUNS) - within


def test_the_worst_run_of_each_network_is_shown(landing):
    shown = {run.network: run for run in runs.worst_of_each_network()}
    assert shown.keys() == {run[0] for run in RUNS}
    for run in runs.runs():
        assert abs(run.error) <= abs(shown[run.network].error)
    text = path_in(landing, ENGLISH).read_text("utf-8")
    for run in shown.values():
        assert f"<td>{Texts(ENGLISH).percent(run.error, sign=True)}</td>" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_memory_has_a_unit(landing, language):
    text = path_in(landing, language).read_text("utf-8")
    assert any("-" in run.gpu for run in runs.runs())
    for run in runs.runs():
        if "-" in run.gpu:
            assert run.gpu not in text
    unit = "\xa0Go" if language == "fr" else " GB"
    assert f"8 × H100 (96{unit})" in text


def test_speed_and_time_agree():
    for run in runs.runs():
        assert run.published / run.simulated - 1 == pytest.approx(run.error)


def test_no_two_dots_are_in_the_same_place():
    dots = list(runs.dots(Texts(ENGLISH)))
    assert len(dots) == len(RUNS)
    assert len({(dot.place, dot.level) for dot in dots}) == len(dots)
    assert all(0 < dot.place < 100 for dot in dots)
    assert [dot.worst for dot in dots].count(True) == 1


# ------------------------------------------------------------------ languages


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_there_with_the_same_places_to_fill(language):
    english, own = tables()[ENGLISH], tables()[language]
    assert own.keys() - {"networks"} == english.keys() - {"networks"}
    for name in english.keys() - {"networks"}:
        text = english[name]
        if name != "aims":
            assert placeholders(own[name]) == placeholders(text), name


def test_french_spaces_do_not_break():
    for name, text in tables()["fr"].items():
        if name == "aims" or not isinstance(text, str):
            continue
        assert not re.search(r"[ \w][;!?]", text), (name, text)
        assert not re.search(r"(?:[ \w][:»](?!\d)|« |[ \d]%)", code_free(text)), name


def code_free(text: str) -> str:
    return re.sub("`[^`]*`", "", text)


@pytest.mark.parametrize(
    ("language", "number", "share", "time"),
    [
        ("en", "2,048.5", "+44%", "1.45 ms"),
        ("fr", "2\u202f048,5", "+44\u00a0%", "1,45 ms"),
        ("pt", "2.048,5", "+44%", "1,45 ms"),
        ("zh", "2,048.5", "+44%", "1.45 ms"),
    ],
)
def test_numbers_are_written_as_in_the_language(language, number, share, time):
    its = Texts(language)
    assert its.number(2048.5, 1) == number
    assert its.percent(0.437, sign=True) == share
    assert its.percent(0.437) == share.removeprefix("+")
    assert its.percent(-0.437) == share.replace("+", "\N{MINUS SIGN}")
    assert its.time(1.45e-3) == time.replace(" ", "\N{NO-BREAK SPACE}")


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_lesson_is_on_the_map_once_with_its_aims(landing, whole, language):
    text = path_in(landing, language).read_text("utf-8")
    table = text.partition('<div class="map">')[2].partition("</section>")[0]
    names = re.findall(r'pytorch/(\w+)\.html"', table)
    assert names == whole.lessons(Edition(language, "pytorch"))
    assert len(re.findall(r"<p>\S", table)) == len(names)


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_say_what_was_recorded(landing, language):
    text = path_in(landing, language).read_text("utf-8")
    assert f'<html lang="{language}">' in text
    assert text.count("<h1>") == 1
    errors = re.findall(r'<samp class="error">([^<]*)</samp>', text)
    assert errors == [each["error"] for each in recorded(MISMATCH) if "error" in each]
    assert Texts(language).percent(runs.median_error()) in text


def test_languages_lead_to_each_other(landing):
    for one, other in itertools.permutations(LANGUAGES, 2):
        path = path_in(landing, one)
        links = [(path.parent / url).resolve() for url in Page(path).links]
        assert path_in(landing, other).resolve() in links


# ------------------------------------------------------------------ links


def test_what_is_not_built_is_on_github_and_the_playground_is_left_out(whole):
    book = replace(whole, built=(Edition("zh", "jax"),))
    page = landing_page(Project(ROOT), book, ENGLISH, set())
    assert "/notebooks/en/pytorch/00_start.ipynb" in page
    assert "/d2l_gpu/vgpu/README.md" in page
    assert "playground" not in page
    page = landing_page(Project(ROOT), book, "zh", {"vgpu", "playground"})
    assert 'href="jax/01_devices.html"' in page
    assert 'href="../vgpu/index.html"' in page
    assert 'href="../playground/zh/index.html"' in page


# ------------------------------------------------------------------ in a browser


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def opened(browser, landing):
    """A function that opens a landing page, whose requests stay in its folder."""
    pages = []

    def opened(language=ENGLISH, keep=None, **options):
        page = browser.new_context(**options).new_page()
        pages.append(page)
        page.requested = []
        page.on("request", lambda request: page.requested.append(request.url))
        page.on("console", lambda message: page.requested.append(message.text))
        if keep:
            page.add_init_script(f"localStorage.setItem('d2l-place', '{keep}')")
        page.goto(path_in(landing, language).as_uri())
        return page

    yield opened
    for page in pages:
        page.context.close()


def test_moving_a_tensor_shows_what_pytorch_says(opened):
    page = opened()
    for each in recorded(MISMATCH):
        for name in "x", "y":
            place = page.locator(f"input[name={name}][value='{each[name]}']")
            place.check(force=True)
        shown = page.locator(".answer:visible")
        assert shown.count() == 1
        said = shown.locator("samp").all_text_contents()
        error = [each["error"]] if "error" in each else []
        assert said == [*error, each["result"]]
        told = page.get_by_role("status").text_content()
        assert told in (said[0], "")  # empty before anything was moved


def test_tensors_move_with_the_arrow_keys(opened):
    page = opened()
    page.locator("input[name=y]:checked").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("input[name=y]:checked").input_value() == "gpu(0)"
    assert page.locator(".answer:visible samp").count() == 1  # no error


def test_without_scripts_the_failing_sum_is_shown(opened):
    page = opened(java_script_enabled=False)
    assert not page.locator(".board").is_visible()
    assert page.locator(".answer:visible .error").count() == 1
    assert page.locator("a.start").is_visible()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everyone_can_read_it(opened, language, size, theme):
    page = opened(language, viewport=size, color_scheme=theme)
    assert page.evaluate(SHIFT) == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(VIOLATIONS) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_narrow_page_scrolls_in_one_direction(opened, language):
    page = opened(language, viewport=NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]


def test_nothing_moves_when_a_reader_returns(opened):
    place = (
        '{"edition": "fr/pytorch", "first": "00_start.html", "page": "05_time.html",'
        ' "title": "Entraîner ResNet-18 sur plusieurs GPU", "word": "Continuer :"}'
    )
    for size in PHONE, DESKTOP:
        page = opened(keep=place, viewport=size)
        assert page.locator("a.continue").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert page.evaluate(SHIFT) == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_is_small_and_asks_nobody_for_more(opened, landing, language):
    page = opened(language)
    assert set(page.requested) <= {
        path.as_uri() for path in landing.rglob("*") if path.is_file()
    }
    needed = [path_in(landing, language), *(landing / name for name in FILES)]
    assert sum(path.stat().st_size for path in needed) <= MOST_BYTES
