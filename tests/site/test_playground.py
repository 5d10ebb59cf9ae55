"""The playground: its pages, and the simulator in them, which is that of Python."""

import functools
import json
import re
import string
import threading
from collections.abc import Iterator
from dataclasses import fields
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode

import pytest

from d2l_gpu.vgpu.sim import play, puzzle
from d2l_gpu.vgpu.sim.plans import Plan
from tests.helpers.chromium import chromium
from tools.edition import ROOT, Project
from tools.site.book import Book
from tools.site.playground import curve, pages, program

if not pages.INSTALLED.is_dir():
    pytest.skip("Pyodide needs npm ci --prefix tools/site", allow_module_level=True)

AXE = ROOT / "tools/site/node_modules/axe-core/axe.min.js"
# How long a page may take until the simulator runs, on a busy machine.
PATIENCE = 90_000
COUNTS = (1, 2, 4, 8, 16)
START = play.play(pages.START)
LLAMA = {"model": "Llama 3.1 8B"}
SOLUTION = Plan(shards=256, sequences=2, checkpoint="full")  # of level 17.1


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site")
    pages.write_playground(Book.of(Project(ROOT)), out)
    for page in (out / "playground").glob("*.html"):
        icon = re.search('rel="icon" href="([^"]+)"', page.read_text("utf-8"))[1]
        (page.parent / icon).write_bytes(b"")
    return out


# ------------------------------------------------------------------ what is built


def picoseconds(text: str) -> list[int]:
    """Return the times of steps in a page: the result's, then those of the curve."""
    return [int(found) for found in re.findall(r'data-picoseconds="(\d+)"', text)]


def test_pages_show_a_result_before_any_script_runs(site):
    text = (site / "playground" / "index.html").read_text("utf-8")
    curve = play.scaling(pages.START, COUNTS)
    times = [START["picoseconds"], *(row["picoseconds"] for row in curve)]
    assert picoseconds(text) == times
    assert START["timeline"] in text
    text = (site / "playground" / "puzzle.html").read_text("utf-8")
    level = puzzle.level("17.1")
    assert level.score(pages.first_plan(level)).sentence in text
    assert program.words("en")["start_plan"] in text


@pytest.mark.parametrize("number", puzzle.LEVELS)
def test_a_level_begins_with_a_plan_that_keeps_its_rules(number):
    level = puzzle.level(number)
    plan = pages.first_plan(level)
    assert level.problem(plan) == ""
    assert not level.score(plan).solved


def test_packing_again_gives_the_same_file(site, tmp_path):
    program.write_simulator(tmp_path / "again.zip")
    again = (tmp_path / "again.zip").read_bytes()
    assert again == (site / "playground" / "simulator.zip").read_bytes()


def test_the_site_has_the_pyodide_with_which_the_simulator_is_tested():
    versions = [
        json.loads((ROOT / "tools" / name / "package-lock.json").read_text("utf-8"))
        for name in ("site", "pyodide")
    ]
    site, tested = (
        each["packages"]["node_modules/pyodide"]["version"] for each in versions
    )
    assert site == tested


def test_a_curve_warns_of_real_clusters_as_the_first_lesson_does():
    lesson = (ROOT / "lessons/pytorch/00_start.md").read_text("utf-8")
    assert f"grew by up to {curve.grown()['largest']}" in lesson
    rows = play.scaling({"model": "Llama 3.1 70B"}, (8, 16, 32, 64))
    text = curve.figure(rows, "tokens", program.words("en"))
    assert "relative to 32 GPUs" in text
    assert text.count("<td>–</td>") == 2 and "<td>100.0%</td>" in text


def test_only_shards_are_a_reason_to_scale_better_than_ideally():
    its = program.words("en")
    rows = play.scaling({"model": "Llama 3.1 8B"}, (8, 16))
    rows[-1]["efficiency"] = 1.02
    assert its["scaling_above"] in curve.figure(rows, "tokens", its, sharded=True)
    assert its["scaling_above"] not in curve.figure(rows, "images", its)


def test_a_curve_can_be_asked_for_point_by_point():
    live = pages.Live(program.words("en"))
    setting = play.play({"model": "LeNet"})["setting"]
    whole = live.scaling(setting)
    for first in range(1, len(whole["rows"])):
        assert live.scaling(setting, first) == {"rows": whole["rows"][:first]}
    assert live.scaling(setting, len(whole["rows"])) == whole


def test_every_text_is_used():
    words = set(program.words("en"))
    code = [*pages.HERE.glob("*.py"), *(pages.HERE / "static").glob("*.js")]
    text = "\n".join(path.read_text("utf-8") for path in code)
    templates = [x.read_text("utf-8") for x in (pages.HERE / "templates").iterdir()]
    asked = {x for t in templates for x in string.Template(t).get_identifiers()}
    quoted = set(re.findall(r'["\'](\w+)["\']', text))
    quoted |= set(re.findall(r"\bwords\.(\w+)", text))
    quoted |= {"rate_images", "rate_tokens"}  # composed
    quoted |= {f"help_{field.name}" for field in fields(Plan)}
    assert words <= asked | quoted


# ------------------------------------------------------------------ in a browser


class _Files(SimpleHTTPRequestHandler):
    """A server such as ``python -m http.server``."""

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    handler = functools.partial(_Files, directory=site)
    with ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        yield f"http://localhost:{server.server_port}/playground/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    """Chromium that knows no host but this one."""
    with chromium(["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost"]) as it:
        yield it


@pytest.fixture(scope="module")
def watched(browser, address):
    """A function that opens pages and keeps what goes wrong in them, in a list."""
    wrong, root = [], address.removesuffix("playground/")
    context = browser.new_context()

    def foreign(request) -> None:
        if not request.url.startswith((root, "blob:", "data:")):
            wrong.append(request.url)

    def opened(name: str):
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("requestfailed", lambda request: wrong.append(request.url))
        page.on("request", foreign)
        page.goto(address + name)
        page.wait_for_function("document.getElementById('loaded').hidden")
        its = program.words("en")
        assert page.inner_text("#state") in (its["ready"], its["computing"])
        return page

    yield opened, wrong
    context.close()


@pytest.fixture(scope="module")
def only_page(watched):
    return watched[0]("")


@pytest.fixture
def page(watched, only_page):
    """The page that trains, as it begins; in the end nothing may have gone wrong."""
    only_page.click("#reset")
    settled(only_page, pages.START)
    yield only_page
    assert watched[1] == []


def choose(page, **values) -> None:
    for name, value in values.items():
        if name == "gpus":  # may be any number
            page.fill("#gpus", str(value))
            continue
        page.select_option(f"#{name}", "" if value is None else str(value))


def follow(page, setting: dict) -> None:
    """Follow a link to a setting."""
    page.goto(f"{page.url.partition('#')[0]}#{urlencode(setting)}")


def settled(page, setting: dict) -> None:
    """Wait until the page shows everything about a setting."""
    whole = json.dumps(play.play(setting)["setting"])
    page.wait_for_function(
        """(whole) => {
          const results = document.getElementById("results");
          if (results.getAttribute("aria-busy")) return false;
          const shown = JSON.parse(results.dataset.setting ?? "{}");
          return Object.entries(JSON.parse(whole))
            .every(([key, value]) => shown[key] === value);
        }""",
        arg=whole,
    )


def shown(page) -> list[int]:
    return picoseconds(page.inner_html("#results"))


def expected(setting: dict) -> list[int]:
    found = play.play(setting)
    gpus = found["setting"]["nodes"] * found["setting"]["gpus"]
    rows = play.scaling(setting, sorted({*COUNTS, gpus}))
    return [found["picoseconds"], *(row["picoseconds"] for row in rows)]


def test_a_page_computes_what_python_computes(page, site):
    built = (site / "playground" / "index.html").read_text("utf-8")
    assert shown(page) == picoseconds(built) == expected(pages.START)
    other = LLAMA | {"gpu": "A100", "gpus": 4, "batch": 1}
    choose(page, **other)
    settled(page, other)
    assert shown(page) == expected(other)


@pytest.mark.parametrize("gpus", [*COUNTS, 5])
def test_resnet_on_so_many_gpus_takes_as_long_as_in_python(page, gpus):
    setting = {"model": "ResNet-18", "gpu": "V100", "gpus": gpus, "precision": "fp16"}
    choose(page, **setting)
    settled(page, setting)
    assert shown(page) == expected(setting)


def test_a_link_opens_the_same_setting(page, watched):
    setting = LLAMA | {"gpus": 2, "checkpoint": "full", "microbatches": 2, "tensor": 2}
    choose(page, **setting)
    settled(page, setting)
    again = watched[0](page.url.rpartition("/")[2])
    settled(again, setting)
    assert shown(again) == shown(page) == expected(setting)
    assert again.input_value("#checkpoint") == "full"
    assert again.is_hidden("#problem")
    again.close()


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_link_and_a_reload_keep_the_precision(watched, precision):
    setting = {"model": "LeNet", "gpu": "H100", "precision": precision}
    page = watched[0](f"#{urlencode(setting)}")
    for again in (False, True):
        if again:
            page.reload()
        settled(page, setting)
        assert page.is_hidden("#problem")
        assert page.input_value("#precision") == precision
    page.close()


def test_nonsense_in_a_link_is_named_and_the_rest_of_it_shown(page):
    follow(page, {"gpu": "V900", "gpus": 4, "colour": "red", "batch": -1})
    settled(page, pages.START | {"gpus": 4})
    assert "gpu=V900, colour=red, batch=-1" in page.inner_text("#problem")
    assert page.input_value("#gpus") == "4"


def test_a_bad_combination_is_explained_beside_the_last_good_result(page):
    follow(page, LLAMA)
    settled(page, LLAMA)
    with pytest.raises(ValueError) as error:
        play.play(LLAMA | {"pipeline": 3})
    choose(page, pipeline=3)
    page.wait_for_selector("#results.stale")
    assert str(error.value) in page.inner_text("#problem")
    assert shown(page) == expected(LLAMA)
    choose(page, pipeline=1)
    page.wait_for_selector("#results:not(.stale)")
    assert page.is_hidden("#problem")
    # Somebody who is typing a number is left in peace.
    page.fill("#gpus", "")
    assert page.is_hidden("#problem")
    page.fill("#gpus", "0")
    page.wait_for_selector("#results.stale")
    assert "gpus must be from 1 to 72" in page.inner_text("#problem")


def test_a_gpu_without_the_only_precision_is_answered_with_one_that_has_it(page):
    follow(page, LLAMA)
    settled(page, LLAMA)
    choose(page, gpu="V100")
    page.wait_for_selector("#results.stale")
    assert "A V100 trains in fp32 or fp16, but not in" in page.inner_text("#problem")
    assert page.input_value("#precision") == "bf16"


def test_the_form_says_what_is_usual_and_what_settings_mean(page):
    for gpu in play.choices()["gpus"][:3]:
        choose(page, gpu=gpu["name"], gpus=2, nodes=2)
        for name in ("link", "network"):
            chosen = page.locator(f"#{name} option:checked").text_content()
            assert gpu[name] in chosen
    choose(page, **LLAMA)
    for control in page.locator("[data-when='kind=plans'] select").all():
        about = page.locator(f"#{control.get_attribute('aria-describedby')}")
        assert about.text_content().strip()


def test_controls_that_do_not_apply_are_not_shown(page):
    choose(page, **LLAMA, gpus=8, nodes=1)
    assert page.is_hidden("#network") and page.is_hidden("#schedule")
    choose(page, nodes=2, pipeline=2)
    assert page.is_visible("#network") and page.is_visible("#schedule")
    assert page.is_hidden("#stages")
    choose(page, schedule="interleaved")
    assert page.is_visible("#stages")
    assert page.input_value("#stages") == "2"
    assert page.locator("#stages option[value='1']").count() == 0
    interleaved = LLAMA | {"nodes": 2, "pipeline": 2, "schedule": "interleaved"}
    page.wait_for_selector("#results:not([aria-busy])")
    follow(page, interleaved | {"stages": 4})
    assert page.input_value("#stages") == "4"
    choose(page, pipeline=1)
    assert page.is_hidden("#stages")
    choose(page, pipeline=2)
    assert page.input_value("#schedule") == "1F1B" and page.is_hidden("#stages")
    choose(page, nodes=1, gpus=1)
    assert page.is_hidden("#link") and page.is_hidden("#algorithm")


def test_no_more_microbatches_are_offered_than_can_be_simulated(page):
    offered = page.locator("#microbatches option").all_text_contents()
    assert max(map(int, offered)) == play.MOST["microbatches"]


def test_what_does_not_fit_is_said(page):
    large = LLAMA | {"batch": 64}
    found = play.play(large)
    assert not found["fits"]
    choose(page, **large)
    settled(page, large)
    assert found["reason"] in page.inner_text("[data-part=memory]")
    assert found["hint"] and found["hint"] in page.inner_text("[data-part=memory]")
    assert "doesn't fit" in page.inner_text("#said")


def barriers(page) -> list[str]:
    """Return what axe-core finds seriously wrong."""
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    return [each["id"] for each in found if each["impact"] in ("serious", "critical")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("setting", [{}, {"batch": 64}, {"pipeline": 3}])
def test_everybody_can_use_the_page(page, scheme, setting):
    page.emulate_media(color_scheme=scheme)
    choose(page, **LLAMA, **setting)
    page.wait_for_selector("#results:not([aria-busy])")
    page.wait_for_timeout(600)  # what was dimmed brightens slowly
    assert barriers(page) == []


def scored(page, sentence: str) -> None:
    """Wait until the page says a score."""
    page.wait_for_function(
        "(text) => document.getElementById('said').textContent.includes(text)",
        arg=sentence,
    )


def test_the_puzzle_is_scored_and_the_best_plan_kept(watched):
    opened, wrong = watched
    page, level = opened("puzzle.html"), puzzle.level("17.1")
    # The plan that the page begins with is nobody's.
    page.click("button[type=submit]")
    page.wait_for_selector("#results[data-scored]")
    assert page.inner_text("[data-best='17.1']") == program.words("en")["best_none"]
    choose(page, tensor=1, shards=256, sequences=2)
    assert "256 of 256" in page.inner_text("#gpus_used")
    assert "changed the plan" in page.inner_text("#problem")
    assert page.locator("#results.stale").count() == 1
    page.click("button[type=submit]")
    score = level.score(SOLUTION)
    assert score.ties
    said = "as fast as the fastest plan of the grid"
    scored(page, said)
    assert said in page.inner_text("[data-part=verdict]")
    assert page.locator("#results.stale").count() == 0
    # After a plan that's worse, and in a new page, it's still the best.
    choose(page, tensor=8, shards=32, sequences=16)
    page.click("button[type=submit]")
    scored(page, level.score(pages.first_plan(level)).sentence)
    page.close()
    page = opened("puzzle.html")
    assert score.percent() in page.inner_text("[data-best='17.1']")
    page.click("#best")
    scored(page, said)
    assert page.input_value("#shards") == "256"
    # Another level, with a plan that breaks its rules.
    level = puzzle.level("17.3")
    page.check("input[value='17.3']")
    scored(page, level.score(pages.first_plan(level)).sentence)
    choose(page, shards=8)
    page.click("button[type=submit]")
    page.wait_for_selector("#results.stale")
    plan = Plan(shards=8, sequences=2, checkpoint="full")
    assert level.problem(plan) in page.inner_text("#problem")
    assert barriers(page) == []
    page.close()
    assert wrong == []


def test_a_link_is_not_the_players_own_best(watched):
    opened, wrong = watched
    level, its = puzzle.level("17.1"), program.words("en")
    solution = {"level": "17.1", "tensor": 1, "shards": 256, "sequences": 2}
    page = opened("")
    page.evaluate("localStorage.clear()")
    page.close()
    page = opened(f"puzzle.html#{urlencode(solution)}")
    scored(page, "as fast as the fastest plan of the grid")
    assert page.inner_text("[data-best='17.1']") == its["best_none"]
    assert page.is_hidden("#best")
    # If nothing can be kept, the page itself remembers, and says nothing of others.
    page.evaluate(
        "() => { for (const name of ['getItem', 'setItem'])"
        " Storage.prototype[name] = () => { throw Error(); }; }"
    )
    page.click("button[type=submit]")
    page.wait_for_selector("#best:not([hidden])")
    best = page.inner_text("[data-best='17.1']")
    assert level.score(SOLUTION).percent() in best
    assert page.inner_text("[data-best='17.2']") == ""
    page.close()
    assert wrong == []


def test_a_copied_link_is_said_only_for_a_moment(page):
    label = page.inner_text("#copy-link")
    page.evaluate("navigator.clipboard.writeText = async () => {}")
    page.click("#copy-link")
    page.click("#copy-link")
    copied = program.words("en")["copied"]
    assert page.inner_text("#copy-link") == copied
    page.wait_for_timeout(2000)
    assert page.inner_text("#copy-link") == label


@pytest.mark.parametrize("file", ["simulator.zip", "pyodide.asm.wasm", "worker.mjs"])
def test_a_page_says_if_the_simulator_does_not_arrive(browser, address, file):
    with browser.new_context() as context:
        page = context.new_page()
        context.route(f"**/{file}", lambda route: route.abort())
        page.goto(address + "#gpus=4")
        page.wait_for_selector("#state.bad", timeout=PATIENCE)
        assert "couldn't be loaded" in page.inner_text("#state")
        assert page.is_hidden("#loaded")
        assert shown(page) == expected(pages.START)
        # It doesn't promise anything that won't come.
        its = program.words("en")
        assert page.inner_text("#problem") == its["other_setting"]
        assert page.locator("#results.stale:not([aria-busy])").count() == 1


@pytest.mark.parametrize(
    "file", ["simulator.zip", "pyodide.asm.wasm", "python_stdlib.zip"]
)
@pytest.mark.parametrize("kind", ["HTML", "truncated"])
def test_a_page_says_if_something_else_arrives(browser, address, site, file, kind):
    path = next(site.glob(f"*/{file}"))
    body = path.read_bytes()[: path.stat().st_size // 2]
    body, sort = {
        "HTML": (b"<!doctype html><title>Hello</title>", "text/html"),
        "truncated": (body, "application/wasm"),
    }[kind]
    with browser.new_context() as context:
        page = context.new_page()
        context.route(
            f"**/{file}", lambda route: route.fulfill(body=body, content_type=sort)
        )
        page.goto(address)
        page.wait_for_selector("#state.bad", timeout=PATIENCE)
        assert "couldn't be loaded" in page.inner_text("#state")
        assert page.is_hidden("#problem")


def test_a_page_stops_waiting_if_nothing_arrives(browser, address):
    with browser.new_context() as context:
        page = context.new_page()
        page.clock.install()
        context.route("**/simulator.zip", lambda route: None)
        page.goto(address)
        page.clock.fast_forward(61_000)
        page.wait_for_selector("#state.bad")
        assert program.words("en")["silent"] in page.inner_text("#state")


def test_a_page_without_scripts_shows_the_result(browser, address):
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(address)
        assert shown(page) == expected(pages.START)
        assert program.words("en")["no_scripts"] in page.inner_text("header")
        assert page.locator("button:visible").count() == 0


@pytest.mark.parametrize("name", ["index.html", "puzzle.html"])
def test_a_page_opened_as_a_file_says_what_to_do(browser, site, name):
    with browser.new_context() as context:
        page, wrong = context.new_page(), []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto((site / "playground" / name).as_uri())
        assert "python -m http.server" in page.inner_text("#state")
        assert page.is_visible("#results svg")
        assert page.locator("#results.stale").count() == 0
        if name == "puzzle.html":
            page.check("input[value='17.3']")
            assert page.locator("#results.stale").count() == 1
            said = program.words("en")["other_level"].format(level="17.1")
            assert page.inner_text("#problem") == said
        assert wrong == []
