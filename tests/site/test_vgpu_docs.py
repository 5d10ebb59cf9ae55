"""The documentation of virtual GPUs: what it describes, and that its examples run."""

import codeop
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from importlib import import_module
from inspect import isclass, isfunction
from pathlib import Path

import pytest
import yaml

from d2l_gpu import vgpu
from tests.vgpu.test_boundary import PUBLIC
from tools import vgpu_figures
from tools.edition import ROOT, Project
from tools.examples import PAGES, blocks, outputs, with_outputs
from tools.site.links import Page, Site

for module in "sphinx", "furo", "myst_parser", "sphinx_copybutton", "torch":
    pytest.importorskip(module, reason="the site needs pip install -e '.[site]'")

from tools.site.sphinx_build import run  # noqa: E402
from tools.site.vgpu_docs import FOLDER, build, configuration  # noqa: E402

TEXTS = sorted(PAGES.rglob("*.md"))
PACKAGE = "d2l_gpu.vgpu"


class Entries(HTMLParser):
    """The text below each entry of the reference on a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.texts: dict[str, str] = {}
        self._open: list[str | None] = []  # the entry that each open <dd> describes
        self._last = None
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "dt":
            is_entry = "sig" in (given.get("class") or "").split()
            self._last = given.get("id") if is_entry else None
            if is_entry:
                self.texts[self._last] = ""
        if tag == "dd":
            self._open.append(self._last)

    def handle_endtag(self, tag):
        if tag == "dd":
            self._open.pop()

    def handle_data(self, data):
        for name in self._open:
            if name:
                self.texts[name] += data.strip()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The documentation, built without warnings, beside what it links to."""
    out = tmp_path_factory.mktemp("site")
    for name in ("index.html", "playground/index.html"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).touch()
    assert build(Project(ROOT), out) == []
    return out


@pytest.fixture(scope="module")
def pages(site) -> dict[str, Page]:
    """The pages by address."""
    found = Site(site).pages
    return {name: page for name, page in found.items() if name.startswith(FOLDER)}


@pytest.fixture(scope="module")
def entries(site) -> dict[str, str]:
    """The text of each entry of the reference by name."""
    found = {}
    for path in (site / FOLDER / "reference").glob("*.html"):
        found |= Entries(path).texts
    return found


@pytest.mark.parametrize("name", vgpu.__all__)
def test_every_exported_name_has_an_entry(entries, name):
    assert f"{PACKAGE}.{name}" in entries


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_function_and_class_of_a_public_module_has_an_entry(entries, name):
    module = import_module(f"{PACKAGE}.{name}")
    own = [
        key
        for key, value in vars(module).items()
        if (isfunction(value) or isclass(value)) and value.__module__ == module.__name__
    ]
    for key in getattr(module, "__all__", own):
        if not key.startswith("_"):
            assert {f"{PACKAGE}.{name}.{key}", f"{PACKAGE}.{key}"} & set(entries), key


def test_every_function_and_class_of_torch_vgpu_has_an_entry(entries):
    from d2l_gpu.vgpu import device_api

    ours = {
        name
        for name, value in vars(device_api).items()
        if (isfunction(value) or isclass(value))
        and value.__module__.startswith(PACKAGE)
        and not name.startswith("_")
    }
    left_out = {"Devices"}  # an internal class that this module uses
    assert {f"torch.vgpu.{name}" for name in ours - left_out} <= set(entries)


def test_every_entry_says_something(entries):
    assert len(entries) > 200
    assert [name for name, text in entries.items() if len(text) < 10] == []


def test_no_entry_is_private(entries):
    assert not [name for name in entries if re.search(r"(?:^|\.)_", name)]


def test_names_in_texts_link_to_their_entries(pages):
    assert (
        "reference/devices.html#d2l_gpu.vgpu.enable"
        in pages["vgpu/tutorial.html"].links
    )
    links = pages["vgpu/traces.html"].links
    assert "reference/time.html#d2l_gpu.vgpu.simulators.Simulator.report" in links
    assert "#d2l_gpu.vgpu.measure_host" not in pages["vgpu/traces.html"].links
    devices = pages["vgpu/reference/devices.html"].links
    assert "time.html#d2l_gpu.vgpu.measure_host" in devices


def test_no_link_is_broken(site):
    assert list(Site(site).broken()) == []


def test_links_to_files_of_the_project_lead_to_github(pages):
    links = pages["vgpu/accuracy.html"].links
    ours = [url for url in links if url.endswith("/benchmarks/results/published.txt")]
    assert ours and all(url.startswith("https://github.com/") for url in ours)


def test_the_course_is_one_click_away(pages):
    for name, page in pages.items():
        up = "../" * name.count("/")
        assert f"{up}index.html" in page.links, name


def test_a_name_that_does_not_exist_is_a_warning(tmp_path):
    def write(folder: Path) -> None:
        text = (
            "# A page\n\n```{eval-rst}\n.. autofunction:: d2l_gpu.vgpu.nothing\n```\n"
        )
        (folder / "index.md").write_text(text)

    assert "nothing" in " ".join(run(configuration(), write, tmp_path, "toy"))


# ------------------------------------------------------------------ examples


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_examples_print_what_the_page_says(path):
    text = path.read_text("utf-8")
    assert with_outputs(text, outputs(path)) == text


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_examples_can_be_typed_into_a_prompt(path):
    for block in blocks(path.read_text("utf-8")):
        if block.kind == "python" and not block.file:
            waiting = []
            for line in [*block.code.splitlines(), ""]:
                waiting.append(line)
                if codeop.compile_command("\n".join(waiting)):  # or a SyntaxError
                    waiting = []
            assert not any(waiting)


def test_figures_are_those_of_the_records():
    text = vgpu_figures.PAGE.read_text("utf-8")
    assert vgpu_figures.with_figures(text) == text


def test_what_pages_install_is_what_the_project_offers():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = set()
    for path in TEXTS:
        found |= set(re.findall(r"d2l-gpu\[(\w+)\]", path.read_text("utf-8")))
    assert found and found <= set(project["optional-dependencies"])


def test_the_workflow_is_one(tmp_path):
    text = (PAGES / "github_actions.md").read_text("utf-8")
    (block,) = (each for each in blocks(text) if each.kind == "yaml")
    path = tmp_path / "tests.yml"
    path.write_text(block.code)
    check = ("check_jsonschema", "--builtin-schema", "vendor.github-workflows")
    subprocess.run([sys.executable, "-m", *check, path], check=True)
    assert yaml.safe_load(block.code)["jobs"]["test"]["steps"][-1] == {"run": "pytest"}
