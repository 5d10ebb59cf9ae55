"""Timelines and pictures of memory that answer, in a browser and without scripts."""

import re
from html import unescape
from itertools import chain
from pathlib import Path

import pytest

from d2l_gpu.vgpu.sim.catalogue import LINKS, MODELS
from d2l_gpu.vgpu.sim.clock import HOST, Clock, Part, Work
from d2l_gpu.vgpu.sim.commands import CopyCommand, HostWaits
from d2l_gpu.vgpu.sim.machine import Machine
from d2l_gpu.vgpu.sim.memory_use import MemoryUse
from d2l_gpu.vgpu.sim.timeline import Timeline
from tests.helpers.chromium import chromium
from tools.edition import ROOT
from tools.site.answering import SCRIPTS, STYLE, inlined

STATIC = ROOT / "tools" / "site" / "static"
UNITS = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
TIMELINE, MEMORY = "svg[data-picture=timeline]", "svg[data-picture=memory]"
FOREIGN = '<svg id="other" viewBox="0 0 9 9"><rect width="9" height="9"/></svg>'


def clock() -> Clock:
    return Clock(
        dict.fromkeys((0, 1), MODELS["V100"]),
        LINKS["NVLink2"],
        lambda key: Work(key[0], [Part(0, "fp32", key[1] * 10**6)]),
    )


@pytest.fixture(scope="module")
def timeline() -> str:
    """Bars of all kinds and widths, those of a thousand small kernels among them."""
    one = clock()
    for i in range(12):
        one.note((f"kernel{i}", 50 + i), i % 2, 0)
        if i % 3:
            one.note(HostWaits([i % 2]), 0, 0)
    one.note(CopyCommand(10**7, 0, 1, True, False, (0, 0)), 0, 0)
    for i in range(1000):
        one.note(("abcde"[i % 5], 0), 0, 0)
    one.note(CopyCommand(10**7, 1, HOST, False, True, (0, 0)), 1, 0)
    one.note(HostWaits([0]), 0, 0)
    return Timeline(one, "simulated", "Everything at once").svg()


@pytest.fixture(scope="module")
def memory() -> MemoryUse:
    phase = [""]
    machine = Machine(1, 2**40, clock=clock())
    use = MemoryUse(machine, 0, "a program", lambda: (phase[0], ""))
    use.start()
    held = []
    for i in range(40):
        phase[0] = "forward" if i < 20 else "backward"
        held.append(machine.charge(0, 2**20 * (1 + i)))
        machine.kernel_issued(0, ("mm", 30))
        if i >= 20:
            held.pop(0)
    use.stop()
    return use


@pytest.fixture(scope="module")
def file(timeline, memory, tmp_path_factory) -> Path:
    """A page with both, and with a picture that isn't ours."""
    path = tmp_path_factory.mktemp("page") / "index.html"
    scripts = "".join(
        f'<script defer src="{(STATIC / name).as_uri()}"></script>' for name in SCRIPTS
    )
    path.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>page</title>'
        f'<link rel="stylesheet" href="{(STATIC / STYLE).as_uri()}">{scripts}'
        f"<body>{timeline}{memory.svg()}{FOREIGN}</body></html>",
        "utf-8",
    )
    return path


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser, file):
    """The page, which must not have any error when the test ends."""
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    opened, errors = context.new_page(), []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(file.as_uri())
    yield opened
    assert errors == []
    context.close()


def rows(svg: str) -> list[list[str]]:
    """What the bars of each row say, as it's written in the picture."""
    groups = re.findall(r'<g data-part="row".*?</g>', svg, re.DOTALL)
    return [
        [unescape(x) for x in re.findall("<title>(.*?)</title>", group)]
        for group in groups
    ]


def all_of(svg: str) -> list[str]:
    return list(chain(*rows(svg)))


def seconds(text: str) -> float:
    value, unit = text.split()
    return float(value) * UNITS[unit]


def drawn(page, selector: str = TIMELINE) -> str:
    """The picture as it is once it has been drawn."""
    page.evaluate("() => new Promise(requestAnimationFrame)")
    return page.locator(selector).evaluate(
        """svg => {
          const copy = svg.cloneNode(true);
          copy.querySelector('.answers-mark')?.remove();
          return copy.outerHTML;
        }"""
    )


def card(page, of: str = TIMELINE) -> str | None:
    frame = page.locator(".answers").filter(has=page.locator(of))
    shown = frame.locator(".answers-card")
    return shown.inner_text() if shown.is_visible() else None


def said(page, of: str = TIMELINE) -> str:
    frame = page.locator(".answers").filter(has=page.locator(of))
    return frame.locator(".answers-said").text_content()


def focus(page, selector: str = TIMELINE) -> None:
    """Go to a picture as somebody does who uses the keyboard."""
    page.keyboard.press("Shift")
    page.locator(selector).focus()


def test_without_scripts_it_is_the_picture_with_its_titles(browser, file, timeline):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.locator(".answers, button").count() == 0
    for selector in TIMELINE, MEMORY:
        assert page.locator(selector).is_visible()
    titles = page.locator(f"{TIMELINE} rect > title")
    assert titles.all_text_contents() == all_of(timeline)
    context.close()


def test_pointing_at_a_bar_tells_everything_about_it(page, timeline):
    bars = page.locator(f"{TIMELINE} [data-part=row] rect")
    titles = all_of(timeline)
    assert bars.count() == len(titles)
    for i in range(0, len(titles), 3):
        box = bars.nth(i).bounding_box()
        # A bar narrower than a pixel is drawn as wide as one, under its neighbour.
        x = box["x"] + (box["width"] / 2 if box["width"] > 1 else 0.2)
        page.mouse.move(x, box["y"] + box["height"] / 2)
        shown = card(page).replace("\n", " ")
        for fact in re.split(r": (?=at )|; ", titles[i]):
            assert fact in shown
    page.mouse.move(5, 890)
    page.wait_for_function("document.querySelector('.answers-card').hidden")
    # The browser's own tooltip would cover the card.
    assert page.locator(".answers-scroll svg title").count() == 0


def test_the_wheel_magnifies_what_it_points_at_and_only_with_ctrl(page):
    before = drawn(page)
    bar = page.locator(f"{TIMELINE} [data-part=row] rect").nth(8)
    box = bar.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 5
    page.mouse.move(x, y)
    page.mouse.wheel(0, -1)
    assert "is-zoomed" not in page.content()
    page.keyboard.down("Control")
    for _ in range(5):
        page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_selector(".is-zoomed")
    drawn(page)
    after = bar.bounding_box()
    assert after["width"] > 3 * box["width"]
    assert after["x"] <= x <= after["x"] + after["width"] + 2
    page.mouse.dblclick(x, y)
    page.wait_for_selector(".is-zoomed", state="detached")
    page.mouse.move(5, 890)
    page.wait_for_function("document.querySelector('.answers-card').hidden")
    assert drawn(page) == before


def test_the_axis_tells_the_time_of_bars_however_it_is_magnified(page, timeline):
    titles = all_of(timeline)
    begins = [seconds(re.search(": at (0 s|.+?) for", each)[1]) for each in titles]
    focus(page)
    for times in range(6):
        for _ in range(times):
            page.keyboard.press("+")
        drawn(page)
        ticks = page.locator(f"{TIMELINE} [data-part=axis] text").evaluate_all(
            "all => all.map(each => [each.textContent, Number(each.getAttribute('x'))])"
        )
        assert 2 <= len(ticks) <= 9
        (first, left), (last, right) = (
            (seconds(text) if text != "0" else 0, x)
            for text, x in (ticks[0], ticks[-1])
        )
        places = page.locator(f"{TIMELINE} [data-part=row] rect").evaluate_all(
            "all => all.map(each => Number(each.getAttribute('x')))"
        )
        pixel = (last - first) / (right - left)
        for begin, x in zip(begins, places, strict=True):
            told = first + (x - left) * pixel
            assert told == pytest.approx(begin, abs=2 * pixel + 1e-3 * max(begins))
        page.keyboard.press("0")


def test_dragging_pans_what_is_magnified(page):
    frame = page.locator(TIMELINE).bounding_box()
    for _ in range(4):
        page.locator(".answers-tools button").nth(1).click()
    drawn(page)
    bar = page.locator(f"{TIMELINE} [data-part=row] rect").first
    before = bar.bounding_box()["x"]
    x, y = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 80, y, steps=4)
    page.mouse.up()
    drawn(page)
    assert bar.bounding_box()["x"] == pytest.approx(before + 80, abs=2)


def test_arrow_keys_go_from_bar_to_bar_and_are_spoken(page, timeline):
    host, first, *_ = rows(timeline)
    focus(page)
    assert host[0].partition(":")[0] in card(page)
    for title in host[1:4]:
        page.keyboard.press("ArrowRight")
        assert said(page) == f"host. {title}"
    page.keyboard.press("ArrowLeft")
    assert said(page) == f"host. {host[2]}"
    page.keyboard.press("End")
    assert said(page) == f"host. {host[-1]}"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    assert said(page) == f"GPU 0 compute. {first[0]}"
    page.keyboard.press("Escape")
    assert card(page) is None


def test_a_bar_that_keys_lead_to_comes_into_sight(page):
    focus(page)
    for _ in range(6):
        page.keyboard.press("+")
    page.keyboard.press("ArrowDown")
    plot = page.locator(f"{TIMELINE} > svg").bounding_box()
    for key in ["ArrowRight"] * 4 + ["End", "Home"]:
        page.keyboard.press(key)
        drawn(page)
        mark = page.locator(f"{TIMELINE} .answers-mark").bounding_box()
        assert mark["x"] < plot["x"] + plot["width"]
        assert mark["x"] + mark["width"] > plot["x"]
        assert card(page)


def test_keys_of_the_browser_stay_the_browsers(page):
    focus(page)
    page.evaluate(
        """() => addEventListener('keydown', event => {
          if (event.key !== 'Control') window.kept = !event.defaultPrevented
        })"""
    )
    for key, kept in (("Control+0", True), ("Tab", True), ("0", False)):
        focus(page)
        page.keyboard.press(key)
        assert page.evaluate("window.kept") is kept, key


def test_the_memory_at_a_moment_is_that_of_the_record(page, memory):
    frame = page.locator(f"{MEMORY} > svg").bounding_box()
    times, _ = memory.series()
    sums = {sum(memory.at(time).values()) for time in times}
    for share in (0.1, 0.33, 0.5, 0.72, 0.95):
        page.mouse.move(frame["x"] + share * frame["width"], frame["y"] + 150)
        shown = card(page, MEMORY)
        assert ("forward" if share < 0.5 else "backward") in shown or share == 0.5
        total = re.search(r"together\s+([\d.]+) (\w+)", shown)
        assert any(f"{nbytes / 2**20:.3g}" == total[1] for nbytes in sums), shown
        parts = re.findall(r"^(\w[\w ]+?)\s+([\d.]+) MiB", shown, re.MULTILINE)
        *others, (name, whole) = parts
        assert name == "together"
        expected = sum(float(size) for _, size in others)
        assert float(whole) == pytest.approx(expected, rel=0.02)


def test_memory_answers_to_keys(page, memory):
    focus(page, MEMORY)
    heard = []
    for _ in range(4):
        page.keyboard.press("ArrowRight")
        heard.append(said(page, MEMORY))
    assert len(set(heard)) == 4
    before = drawn(page, f"{MEMORY} [data-part=bands]")
    page.keyboard.press("+")
    page.wait_for_selector(".is-zoomed")
    assert drawn(page, f"{MEMORY} [data-part=bands]") != before
    page.keyboard.press("0")
    page.wait_for_selector(".is-zoomed", state="detached")
    assert drawn(page, f"{MEMORY} [data-part=bands]") == before


def test_touching_a_bar_tells_about_it(browser, file, timeline):
    context = browser.new_context(
        viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    page.goto(file.as_uri())
    bar = page.locator(f"{TIMELINE} [data-part=row] rect").nth(3)
    box = bar.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 5)
    assert rows(timeline)[0][3].partition(":")[0] in card(page)
    box = page.locator(".answers-card").first.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    context.close()


def test_two_fingers_magnify_and_one_pans(browser, file):
    context = browser.new_context(
        viewport={"width": 800, "height": 800}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    page.goto(file.as_uri())
    bar = page.locator(f"{TIMELINE} [data-part=row] rect").nth(5)
    box = bar.bounding_box()
    x, y = box["x"], box["y"] + 5
    fingers = context.new_cdp_session(page)

    def touch(kind: str, *places: float) -> None:
        points = [{"x": place, "y": y, "id": i} for i, place in enumerate(places)]
        event = {"type": kind, "touchPoints": points}
        fingers.send("Input.dispatchTouchEvent", event)

    touch("touchStart", x - 20, x + 20)
    for apart in (30, 40, 60, 80):
        touch("touchMove", x - apart, x + apart)
    touch("touchEnd")
    page.wait_for_selector(".is-zoomed")
    drawn(page)
    wide = bar.bounding_box()
    assert wide["width"] == pytest.approx(4 * box["width"], rel=0.25)
    assert wide["x"] == pytest.approx(x, abs=30)
    touch("touchStart", x)
    for moved in (20, 40, 60):
        touch("touchMove", x - moved)
    touch("touchEnd")
    drawn(page)
    assert bar.bounding_box()["x"] == pytest.approx(wide["x"] - 60, abs=20)
    context.close()


@pytest.mark.parametrize("width", [320, 390, 540])
def test_on_a_narrow_screen_everything_is_in_sight_and_legible(
    page, timeline, memory, width
):
    before = [drawn(page, each) for each in (TIMELINE, MEMORY)]
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_selector(".answers-head")
    for selector in TIMELINE, MEMORY:
        drawn(page, selector)
        picture = page.locator(selector)
        frame = picture.bounding_box()
        assert frame["x"] + frame["width"] <= width
        shown = picture.locator("text, [data-part=row] rect")
        boxes = shown.evaluate_all("all => all.map(e => e.getBoundingClientRect())")
        # What's above the plot is written in the page instead.
        boxes = [each for each in boxes if each["width"] and each["y"] >= frame["y"]]
        assert boxes
        for box in boxes:
            assert frame["x"] - 1 <= box["x"]
            assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1
        wide = picture.evaluate("svg => svg.viewBox.baseVal.width")
        assert 12 * frame["width"] / wide >= 10  # pixels high
    heads = page.locator(".answers-head").all_inner_texts()
    for name in ("Everything at once", "kernel", "host waits", "between GPUs"):
        assert name in heads[0]
    svg = memory.svg()
    for name, most in re.findall(r"<title>([^<:]+), at most ([^<]+)</title>", svg):
        assert f"{name} {most}" in heads[1]
    page.set_viewport_size({"width": 1000, "height": 900})
    page.wait_for_selector(".answers-head", state="hidden")
    assert [drawn(page, each) for each in (TIMELINE, MEMORY)] == before


@pytest.mark.parametrize("width", [390, 1000])
def test_a_card_hides_no_button_and_not_the_bar(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    focus(page)
    page.keyboard.press("Home")
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "End", "ArrowDown"):
        page.keyboard.press(key)
        frame = page.locator(".answers").first
        shown = frame.locator(".answers-card").bounding_box()
        for each in ".answers-tools", ".answers-mark":
            other = frame.locator(each).first.bounding_box()
            assert (
                shown["y"] >= other["y"] + other["height"]
                or shown["y"] + shown["height"] <= other["y"]
            )


def test_a_picture_that_comes_later_answers_and_others_are_left_alone(page, timeline):
    other = page.locator("#other")
    assert other.evaluate("svg => svg.outerHTML") == FOREIGN.replace(
        '<rect width="9" height="9"/>', '<rect width="9" height="9"></rect>'
    )
    page.evaluate("answers(document.querySelector('#other'))")
    assert other.locator("xpath=ancestor::*[@class='answers']").count() == 0
    page.evaluate(
        """text => {
          const place = document.createElement('section');
          place.innerHTML = text;
          document.body.append(place);
          for (const _ of [1, 2]) answers(place.querySelector('svg'));
        }""",
        timeline,
    )
    assert page.locator("section .answers").count() == 1
    page.locator("section svg[data-picture]").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("section .answers-card").is_visible()


def test_what_is_printed_is_the_picture_at_rest(page):
    before = drawn(page)
    focus(page)
    for _ in range(3):
        page.keyboard.press("+")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert drawn(page) == before
    page.emulate_media(media="print")
    assert not page.locator(".answers-tools").first.is_visible()


# ------------------------------------------------------------------ on the site


def cell(drawing: str) -> dict:
    data = {"image/svg+xml": drawing.splitlines(keepends=True), "text/plain": "…"}
    return {"outputs": [{"output_type": "display_data", "data": data}]}


def test_a_drawing_becomes_part_of_the_page_unless_it_has_identifiers(timeline):
    (output,) = inlined(cell(timeline))["outputs"]
    assert output["data"] == {"text/html": timeline, "text/plain": "…"}
    (output,) = inlined(cell(timeline), english=True)["outputs"]
    assert output["data"]["text/html"].startswith('<svg lang="en" xmlns=')
    assert inlined(cell(FOREIGN)) == cell(FOREIGN)


def test_dark_pages_have_dark_pictures_but_no_negatives_of_photographs(site, browser):
    page = browser.new_page(color_scheme="dark")
    for lesson, selector, dark in (
        ("03_copying", TIMELINE, True),
        ("03_copying", "article img", True),
        ("04_models", ".tag_photographs img", False),
    ):
        page.goto((site / f"en/pytorch/{lesson}.html").as_uri())
        inverted = page.locator(selector).first.evaluate(
            "picture => getComputedStyle(picture).filter"
        )
        assert inverted.startswith("invert") == dark
    page.close()


def test_a_figure_opens_alone(site, browser):
    page = browser.new_page()
    page.goto((site / "en/pytorch/01_devices.html").as_uri())
    for figure in page.locator("article img").all():
        link = figure.locator("xpath=..")
        assert link.evaluate("a => a.href") == figure.evaluate("image => image.src")
    page.close()


def test_timelines_are_part_of_their_pages_and_answer(site, browser):
    path = site / "en/pytorch/03_copying.html"
    text = path.read_text("utf-8")
    assert text.count('data-picture="timeline"') == 2
    assert not re.search(r'<img [^>]*src="_images/[0-9a-f]{64}\.svg"', text)
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    page, errors = browser.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: said.type == "error" and errors.append(said.text))
    page.goto(path.as_uri())
    assert page.locator(".answers").count() == 2
    page.locator(f"{TIMELINE} [data-part=row] rect").first.hover()
    assert "issues mm" in page.locator(".answers-card").first.inner_text()
    assert errors == []
    page.close()
