"""The course in a real browser: `d2l-gpu lab`, driven as a reader drives it.

Chromium runs the page; the outputs are those that it shows. Where there is no Chromium
these tests are skipped, unless D2L_GPU_BROWSER=require, as in CI: then they fail.
"""

import base64
import contextlib
import hashlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbval.plugin import get_sanitize_patterns

from d2l_gpu.course.page import LessonResult, report_html
from tests.helpers.chromium import chromium
from tests.helpers.lab_server import Lab, running_lab
from tests.helpers.paths import REPOSITORY, SANITIZE
from tests.helpers.waiting import PATIENCE, wait_until
from tools.check import is_compared

NOTEBOOKS = REPOSITORY / "notebooks" / "en" / "pytorch"
SETTINGS = {
    # All cells are in the page, also those out of sight, whose outputs are compared.
    "notebook-extension/tracker": {"windowingMode": "none"},
}
# What each cell shows: outputs with their MIME types, their text and their parts.
READ = """
cells => cells.map(cell => Array.from(
  cell.querySelectorAll('.jp-OutputArea-output'),
  output => ({
    mime: output.dataset.mimeType,
    text: output.textContent,
    rows: Array.from(output.querySelectorAll('tr'), row =>
      Array.from(row.cells, each => each.innerText)),
    images: Array.from(output.querySelectorAll('img'), image =>
      ({width: image.naturalWidth, shown: image.width})),
  })))
"""
KERNEL_IDLE = "#jp-main-statusbar >> text=Python 3 | Idle"
STREAM = "application/vnd.jupyter."  # followed by stdout or stderr
ANIMATOR = """
import time
from pathlib import Path
from d2l_gpu.show import live

live.SHARE_OF_TIME = 10  # where drawing is slow, redraws are not fewer here
epoch = 0
animator = d2l.Animator('epoch', 'value', legend=['loss', 'accuracy'])
while not Path('seen').exists():
    epoch += 1
    animator.add(epoch, (1 / epoch, 1 - 1 / epoch))
    time.sleep(0.05)
"""
DIGEST = """
import base64, hashlib
picture = base64.b64decode(animator._repr_mimebundle_()[0]['image/png'])
print(hashlib.sha256(picture).hexdigest())
"""


@pytest.fixture(scope="module")
def marker(tmp_path_factory) -> Iterator[str]:
    """A variable's value that all processes started here inherit; in the end, none
    of them runs."""
    value = str(tmp_path_factory.mktemp("marker"))
    yield value
    wait_until(lambda: not left_behind(value))


def left_behind(marker: str) -> list[str]:
    """The processes, but this one, with the marker in their environment (on Linux)."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marker.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
    return found


@pytest.fixture(scope="module")
def browser(marker):
    with chromium(env={"D2L_GPU_TEST": marker}) as running:
        yield running


@pytest.fixture
def opened(browser, marker, tmp_path):
    """A function that starts `d2l-gpu lab` and opens the page that it names."""
    for name, setting in SETTINGS.items():
        path = tmp_path / f"config/lab/user-settings/@jupyterlab/{name}"
        path.parent.mkdir(parents=True)
        path.with_name(f"{path.name}.jupyterlab-settings").write_text(
            json.dumps(setting)
        )
    with contextlib.ExitStack() as stack:

        def open_lesson(*arguments: str, published: Path = NOTEBOOKS.parents[1]):
            lab = stack.enter_context(
                running_lab(
                    *(published, tmp_path, "--port", "0", *arguments),
                    D2L_GPU_TEST=marker,
                    D2L_GPU_VIRTUAL="16",
                )
            )
            page = stack.enter_context(browser.new_context()).new_page()
            page.set_default_timeout(1000 * PATIENCE)
            page.goto(address(lab))
            # What the page shows in the end, for those who look into a failure.
            stack.callback(page.screenshot, path=tmp_path / "page.png")
            name = re.search(r"/tree/(\w+\.ipynb)", page.url)[1]
            count = len(code_cells(lab.notebooks / name))
            page.wait_for_selector(f".jp-CodeCell >> nth={count - 1}")
            # What is run before there is a kernel is not run.
            page.wait_for_selector(KERNEL_IDLE)
            return page, lab

        yield open_lesson


def address(lab: Lab) -> str:
    """The address that JupyterLab prints for the reader to open."""
    return re.search(r"http://\S+\?token=\S+", lab.log.read_text()).group()


def choose(page, menu: str, entry: str) -> None:
    """Choose an entry of JupyterLab's menu bar."""
    page.click(f".lm-MenuBar-item:has-text('{menu}')")
    page.click(f".lm-Menu-itemLabel:text-is('{entry}')")


def run_all(page) -> None:
    """Clear all outputs, which come with the notebook, and run all cells."""
    choose(page, "Edit", "Clear Outputs of All Cells")
    page.wait_for_selector(".jp-OutputArea-output", state="detached")
    choose(page, "Run", "Run All Cells")
    # A cell that is folded shows no number; it comes before others, which do.
    page.wait_for_function(
        """() => Array.from(
          document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt'),
          prompt => /^\\[\\d+\\]:$/.test(prompt.innerText)
        ).every(Boolean)"""
    )


def shown_outputs(page) -> list[list[dict]]:
    """What each code cell shows."""
    page.wait_for_function(
        "() => Array.from(document.images).every(image => image.complete)"
    )
    return page.eval_on_selector_all(".jp-CodeCell", READ)


def sanitised(text: str) -> str:
    for pattern, replacement in get_sanitize_patterns(SANITIZE.read_text()):
        text = re.sub(pattern, replacement, text)
    return text.rstrip()


def code_cells(path: Path) -> list[NotebookNode]:
    notebook = nbformat.read(path, as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def expected(output: NotebookNode) -> tuple[str, str]:
    """The MIME type that JupyterLab shows of an output, and its text if it has one."""
    if output.output_type == "stream":
        return f"{STREAM}{output.name}", output.text
    for mime in ("text/html", "image/svg+xml", "image/png"):
        if mime in output.data:
            return mime, ""
    return "text/plain", output.data["text/plain"]


@pytest.mark.all
@pytest.mark.parametrize(
    "view",
    [(), pytest.param(("--classic",), marks=pytest.mark.weekly)],
    ids=["lab", "classic"],
)
def test_run_all_shows_what_is_committed(opened, view):
    page, lab = opened("01", *view)
    assert f"/{'doc' if view else 'lab'}/tree/01_devices.ipynb" in page.url
    # The classic view has no file browser beside the notebook.
    assert page.locator(".jp-FileBrowser:visible").count() == (0 if view else 1)
    run_all(page)
    shown = shown_outputs(page)
    cells = code_cells(NOTEBOOKS / "01_devices.ipynb")
    assert len(shown) == len(cells)
    compared = 0
    for cell, outputs in zip(cells, shown, strict=True):
        kinds = [expected(output)[0] for output in cell.outputs]
        assert [output["mime"] for output in outputs] == kinds, cell.id
        for output, committed in zip(outputs, cell.outputs, strict=True):
            mime, text = expected(committed)
            if text and is_compared(cell):
                assert sanitised(output["text"]) == sanitised(text), cell.id
                compared += 1
            if mime == "text/html":
                check_table(output, committed)
            if mime == "image/png":
                check_picture(output, committed)
    assert compared > 10
    assert page.locator(".Toastify__toast").count() == 0  # neither news nor questions
    assert str(lab.notebooks) not in page.inner_text("body")


def check_table(output: dict, committed: dict) -> None:
    """A table has the heading that its text form has, and full rows."""
    heading, *rows = output["rows"]
    text = "".join(committed["data"]["text/plain"])
    assert " ".join(heading).split() == text.splitlines()[0].split()
    if heading[0] == "device":
        assert heading == ["device", "kind", "model", "memory"]
        assert rows[0][:2] == ["cpu", "real"]
    assert rows
    assert {len(row) for row in rows} == {len(heading)}


def check_picture(output: dict, committed: NotebookNode) -> None:
    [image] = output["images"]
    assert image["width"] > 0
    assert image["shown"] == committed.metadata["image/png"]["width"]


@pytest.mark.all
def test_animator_is_one_picture_that_changes_while_the_cell_runs(
    opened, write_notebook, tmp_path
):
    path = write_notebook(
        "published/en/pytorch/01_live.ipynb",
        "from d2l_gpu import torch as d2l",
        ANIMATOR,
        DIGEST,
    )
    notebook = nbformat.read(path, as_version=4)
    # Without a kernel JupyterLab would ask for one.
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, path)
    page, lab = opened(published=tmp_path / "published")
    choose(page, "Run", "Run All Cells")
    # The cell ends when the page has seen enough, however fast the machine is.
    page.wait_for_function(
        """() => {
          const cell = document.querySelectorAll('.jp-CodeCell')[1];
          window.sources ??= new Set();
          window.outputs ??= new Set();
          for (const image of cell.querySelectorAll('img')) sources.add(image.src);
          if (sources.size)
            outputs.add(cell.querySelectorAll('.jp-OutputArea-output').length);
          return sources.size >= 5;
        }"""
    )
    assert page.inner_text(".jp-CodeCell >> nth=1 >> .jp-InputPrompt") == "[*]:"
    (lab.notebooks / "seen").touch()
    page.wait_for_selector(".jp-CodeCell >> nth=2 >> .jp-OutputArea-output")
    assert page.evaluate("Array.from(outputs)") == [1]
    _, _, [digest] = shown_outputs(page)
    source = page.get_attribute(".jp-CodeCell >> nth=1 >> img", "src")
    last = base64.b64decode(source.partition(",")[2])
    assert hashlib.sha256(last).hexdigest() == digest["text"].strip()


@pytest.mark.all
def test_drawings_are_shown_before_anything_has_run(opened):
    page, _ = opened("05")
    cells = code_cells(NOTEBOOKS / "05_time.ipynb")
    kinds = [[expected(output)[0] for output in cell.outputs] for cell in cells]
    shown = shown_outputs(page)
    assert [[output["mime"] for output in outputs] for outputs in shown] == kinds
    drawings = [
        image
        for outputs in shown
        for output in outputs
        if output["mime"] == "image/svg+xml"
        for image in output["images"]
    ]
    assert len(drawings) == sum(cell.count("image/svg+xml") for cell in kinds) > 0
    assert all(image["width"] > 0 for image in drawings)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_is_read_without_a_network_as_the_reader_likes_it(
    browser, tmp_path, scheme
):
    path = tmp_path / "report.html"
    server = socket.create_server(("localhost", 0))
    address = f"http://localhost:{server.getsockname()[1]}/x.png"
    cells = [
        new_markdown_cell(f"So $\\frac{{B}}{{n}}$ bytes. ![]({address})"),
        new_code_cell("# @title Setup", metadata={"jupyter": {"source_hidden": True}}),
    ]
    result = LessonResult("01_toy", new_notebook(cells=cells), 1.0)
    path.write_text(report_html([result]), encoding="utf-8")
    with server, browser.new_context(color_scheme=scheme) as context:
        page = context.new_page()
        page.goto(path.as_uri())
        server.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has asked
            server.accept()
        above, below = (
            page.locator("mfrac > *").nth(i).bounding_box()["y"] for i in range(2)
        )
        assert above + 5 < below
        assert not page.locator("text='# @title Setup'").is_visible()
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = int(re.search(r"\d+", colour)[0])
        assert brightness == 255 if scheme == "light" else brightness < 50
