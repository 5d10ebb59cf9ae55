"""Writes the playground's pages, and what they load."""

import json
import shutil
import string
import tomllib
import zipfile
from dataclasses import asdict
from html import escape
from pathlib import Path

from d2l_gpu.vgpu.sim.plans import Plan
from d2l_gpu.vgpu.sim.play import choices, play
from d2l_gpu.vgpu.sim.puzzle import LEVELS, Level
from d2l_gpu.vgpu.sim.units import size_text
from tools.edition import ROOT
from tools.languages import ENGLISH
from tools.site.answering import SCRIPTS, STYLE
from tools.site.book import GLOSSARY, Book, Edition
from tools.site.playground import form
from tools.site.playground.live import Live
from tools.site.playground.show import first_plan, marked

HERE = Path(__file__).parent
FOLDER = "playground"
INSTALLED = HERE.parent / "node_modules" / "pyodide"
"""The npm package with Pyodide, once it's installed."""

PYODIDE = "_pyodide"
"""Where the site has its one copy of Pyodide, relative to its root."""

COURSE = Edition(ENGLISH, "pytorch")
"""The edition to which the pages link."""

START = {"model": "ResNet-18", "gpu": "V100", "gpus": 2}
"""The setting that the page shows first, as far as it isn't the model's default."""

_LOADED = (
    *("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"),
    "pyodide-lock.json",
)
_BESIDE = ("README.md", "package.json")  # whose it is, and its license
# What importing the simulator's package imports, beside the simulator.
_PACKAGES = ("__init__.py", "vgpu/__init__.py", "vgpu/host_memory.py")
_IN_BROWSER = ("__init__.py", "live.py", "show.py", "curve.py")
_SOURCE = "https://github.com/pyodide/pyodide"
# Here are scripts and a style with which timelines can be magnified and pointed at.
_STATIC = HERE.parent / "static"
_STYLES = ("fades.css", STYLE)


def words(language: str) -> dict[str, str]:
    """Return the texts of the pages in a language; English where there are none."""
    tables = tomllib.loads((HERE / "words.toml").read_text("utf-8"))
    return {**tables[ENGLISH], **tables.get(language, {})}


def write_playground(book: Book, out: Path, pyodide: Path = INSTALLED) -> None:
    """Write the folder of the playground, and Pyodide beside it.

    Args:
        book: the pages of the site, to which the playground links.
        out: the root of the site.
        pyodide: the npm package, installed.

    Raises:
        FileNotFoundError: it isn't installed.
    """
    if not (pyodide / "package.json").is_file():
        raise FileNotFoundError(f"{pyodide} is missing: npm ci --prefix tools/site")
    (out / PYODIDE).mkdir(parents=True, exist_ok=True)
    for name in (*_LOADED, *_BESIDE):
        shutil.copy(pyodide / name, out / PYODIDE)
    folder = out / FOLDER
    folder.mkdir(exist_ok=True)
    shared = [_STATIC / name for name in (*_STYLES, *SCRIPTS)]
    for path in [*(HERE / "static").iterdir(), *shared]:
        shutil.copy(path, folder)
    write_simulator(folder / "simulator.zip")
    # What the page fetches, as its progress bar counts it.
    fetched = [out / PYODIDE / name for name in _LOADED if not name.endswith(".mjs")]
    fetched.append(folder / "simulator.zip")
    nbytes = sum(path.stat().st_size for path in fetched)
    lesson = book.link(COURSE, "17_puzzle", FOLDER)
    its = words(ENGLISH)
    its["more_hints"] = its["more_hints"].format(lesson=lesson)
    (folder / "index.html").write_text(training_page(its, nbytes, book), "utf-8")
    (folder / "puzzle.html").write_text(puzzle_page(its, nbytes, book), "utf-8")


def write_simulator(path: Path) -> None:
    """Pack the simulator, and what answers in the browser; always the same bytes."""
    files = [ROOT / "d2l_gpu" / name for name in _PACKAGES]
    files += [
        each
        for each in sorted((ROOT / "d2l_gpu" / "vgpu" / "sim").rglob("*"))
        if each.suffix in (".py", ".json")
    ]
    named = {each.relative_to(ROOT).as_posix(): each for each in files}
    named |= {f"{FOLDER}/{name}": HERE / name for name in _IN_BROWSER}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in named.items():
            # Without a time, which would differ from clone to clone.
            archive.writestr(
                zipfile.ZipInfo(name), each.read_bytes(), zipfile.ZIP_DEFLATED
            )


# ------------------------------------------------------------------ the pages


def training_page(its: dict[str, str], nbytes: int, book: Book) -> str:
    """Return the page that trains a model, with the result of its first setting."""
    live, offered = Live(its), choices()
    start = play(START)["setting"]
    answer = live.play(start)
    kinds = {each["name"]: each["kind"] for each in offered["models"]}
    setting = {**start, "kind": kinds[start["model"]]}
    parts = {**answer["parts"], **live.scaling(start)["parts"]}
    batches = {each["name"]: form.batches(each) for each in offered["models"]}
    return _page(
        "index.html",
        {**its, "title": its["train"], "lead": marked(its["train_lead"])},
        nbytes,
        {
            **{f"{name}_part": part for name, part in parts.items()},
            "headline": parts["headline"],
            "said": escape(answer["say"]),
            "form": form.training(offered, setting, its, _glossary(book)),
        },
        {"words": its, "choices": offered, "batches": batches, "start": start},
        "train.js",
    )


def puzzle_page(its: dict[str, str], nbytes: int, book: Book) -> str:
    """Return the page with the puzzle, and the score of the first plan of a level."""
    first = next(iter(LEVELS.values()))
    answer = Live(its).score(first.number, asdict(first_plan(first)))
    lesson = book.link(COURSE, "17_puzzle", FOLDER)
    levels = {
        each.number: {
            "gpus": each.machine.world_size,
            "batch": each.batch,
            "plan": asdict(first_plan(each)),
        }
        for each in LEVELS.values()
    }
    return _page(
        "puzzle.html",
        {
            **its,
            "title": its["puzzle"],
            "lead": marked(its["puzzle_lead"].format(lesson=lesson)),
        },
        nbytes,
        {
            **{f"{name}_part": part for name, part in answer["parts"].items()},
            "levels_part": "".join(_level(each, its) for each in LEVELS.values()),
            "form": form.planning(
                *(choices(), asdict(first_plan(first)), its, _glossary(book))
            ),
        },
        {"words": its, "levels": levels, "plan": asdict(Plan())},
        "puzzle.js",
    )


def _glossary(book: Book) -> str:
    """Return the address of the page that explains terms; empty if it isn't built."""
    return book.link(COURSE, GLOSSARY, FOLDER) if COURSE in book.built else ""


def _level(level: Level, its: dict[str, str]) -> str:
    """Return the control that chooses a level."""
    number, first = level.number, level is next(iter(LEVELS.values()))
    title = level.title[0].upper() + level.title[1:]
    machine = its["level_machine"].format(network=level.network, machine=level.machine)
    room = its["level_room"].format(
        memory=size_text(level.machine.capacity),
        batch=f"{level.batch:,}",
        length=f"{level.model.shape.length:,}",
    )
    return (
        '<label class="level"><input type="radio" form="form" name="level" '
        f'value="{number}"'
        f"{' checked' if first else ''}><span><strong>{number} {escape(title)}"
        f"</strong><small>{escape(machine)}; {escape(room)}</small>"
        f'<small class="best" data-best="{number}"></small></span></label>'
    )


def _page(
    name: str,
    its: dict[str, str],
    nbytes: int,
    parts: dict[str, str],
    config: dict,
    script: str,
) -> str:
    """Return a page.

    Args:
        name: of its file, and of its template.
        its: the texts, of which ``lead`` is HTML.
        nbytes: that it fetches until the simulator runs.
        parts: HTML for the template.
        config: for the scripts.
        script: of this page.
    """
    texts = {key: escape(text) for key, text in its.items()} | {"lead": its["lead"]}
    scripts = [*SCRIPTS, "simulator.js", script]
    values = texts | parts
    values |= {
        "language": ENGLISH,
        "bytes": str(nbytes),
        "tabs": "\n".join(_tabs(name, its)),
        "styles": "\n".join(
            f'<link rel="stylesheet" href="{each}">'
            for each in (*_STYLES, "playground.css")
        ),
        "about": marked(its["about"].format(pyodide=_SOURCE)),
        # So that no text ends the element.
        "config": json.dumps(config).replace("<", "\\u003c"),
        "scripts": "\n".join(f'<script src="{each}"></script>' for each in scripts),
    }
    templates = [HERE / "templates" / each for each in ("head.html", name, "foot.html")]
    text = "".join(path.read_text("utf-8") for path in templates)
    return string.Template(text).substitute(values)


def _tabs(here: str, its: dict[str, str]) -> list[str]:
    pages = {"index.html": its["train"], "puzzle.html": its["puzzle"]}
    return [
        f'<a href="{name}"{" aria-current=page" if name == here else ""}>'
        f"{escape(title)}</a>"
        for name, title in pages.items()
    ]
