"""Writes the playground's pages, and what they load."""

import json
import posixpath
import shutil
import string
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from html import escape
from pathlib import Path

from d2l_gpu.common.messages import Catalogue, language_tag
from d2l_gpu.vgpu.sim.plans import Plan
from d2l_gpu.vgpu.sim.play import choices, play
from d2l_gpu.vgpu.sim.puzzle import LEVELS, Level
from d2l_gpu.vgpu.sim.units import size_text
from d2l_gpu.vgpu.sim.words import shown, translated_with
from tools.site.answering import SCRIPTS, STYLE
from tools.site.book import GLOSSARY, PLAYGROUND, Book, Edition, playground_of
from tools.site.landing import folder_of as home_of
from tools.site.landing import languages_of
from tools.site.playground import form
from tools.site.playground.live import Live
from tools.site.playground.program import (
    messages_of_simulator,
    words,
    write_simulator,
)
from tools.site.playground.show import first_plan, marked

HERE = Path(__file__).parent
INSTALLED = HERE.parent / "node_modules" / "pyodide"
"""The npm package with Pyodide, once it's installed."""

PYODIDE = "_pyodide"
"""Where the site has its one copy of Pyodide, relative to its root."""

START = {"model": "ResNet-18", "gpu": "V100", "gpus": 2}
"""The setting that the page shows first, as far as it isn't the model's default."""

_LOADED = (
    *("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"),
    "pyodide-lock.json",
)
_BESIDE = ("README.md", "package.json")  # whose it is, and its license
_SOURCE = "https://github.com/pyodide/pyodide"
# Here are scripts and a style with which timelines can be magnified and pointed at.
_STATIC = HERE.parent / "static"
_STYLES = ("fades.css", STYLE)


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
    folder = out / PLAYGROUND
    folder.mkdir(exist_ok=True)
    shared = [_STATIC / name for name in (*_STYLES, *SCRIPTS)]
    for path in [*(HERE / "static").iterdir(), *shared]:
        shutil.copy(path, folder)
    write_simulator(folder / "simulator.zip")
    # What the page fetches, as its progress bar counts it.
    fetched = [out / PYODIDE / name for name in _LOADED if not name.endswith(".mjs")]
    fetched.append(folder / "simulator.zip")
    nbytes = sum(path.stat().st_size for path in fetched)
    for language in languages_of(book):
        messages = messages_of_simulator(language)
        pages = Pages(book, language, nbytes, messages)
        there = out / playground_of(language)
        there.mkdir(exist_ok=True)
        with translated_with(Catalogue(messages).shown):
            (there / "index.html").write_text(pages.training(), "utf-8")
            (there / "puzzle.html").write_text(pages.puzzle(), "utf-8")


# ------------------------------------------------------------------ the pages


class Pages:
    """Writes the pages of one language.

    Args:
        book: the pages of the site, to which these link.
        language: such as ``fr``.
        nbytes: that a page fetches until the simulator runs.
        messages: what the simulator says, in translation.
    """

    def __init__(
        self, book: Book, language: str, nbytes: int, messages: Mapping[str, str]
    ):
        self.book, self.language, self.nbytes = book, language, nbytes
        self.messages = messages
        self.place = playground_of(language)
        # The edition to which the pages link.
        self.course = Edition(language, "pytorch")
        its = words(language)
        self.lesson = book.link(self.course, "17_puzzle", self.place)
        self.its = {**its, "more_hints": its["more_hints"].format(lesson=self.lesson)}

    def training(self) -> str:
        """Return the page that trains a model, with the result of its first setting."""
        its = self.its
        live, offered = Live(its), choices()
        start = play(START)["setting"]
        answer = live.play(start)
        kinds = {each["name"]: each["kind"] for each in offered["models"]}
        setting = {**start, "kind": kinds[start["model"]]}
        parts = {**answer["parts"], **live.scaling(start)["parts"]}
        batches = {each["name"]: form.batches(each) for each in offered["models"]}
        return self._page(
            "index.html",
            {**its, "title": its["train"], "lead": marked(its["train_lead"])},
            {
                **{f"{name}_part": part for name, part in parts.items()},
                "headline": parts["headline"],
                "said": escape(answer["say"]),
                "form": form.training(offered, setting, its, self._glossary()),
            },
            {"choices": offered, "batches": batches, "start": start},
            "train.js",
        )

    def puzzle(self) -> str:
        """Return the page with the puzzle, and the score of a level's first plan."""
        its, first = self.its, next(iter(LEVELS.values()))
        plan = asdict(first_plan(first))
        answer = Live(its).score(first.number, plan)
        levels = {
            each.number: {
                "gpus": each.machine.world_size,
                "batch": each.batch,
                "plan": asdict(first_plan(each)),
            }
            for each in LEVELS.values()
        }
        lead = marked(its["puzzle_lead"].format(lesson=self.lesson))
        return self._page(
            "puzzle.html",
            {**its, "title": its["puzzle"], "lead": lead},
            {
                **{f"{name}_part": part for name, part in answer["parts"].items()},
                "levels_part": "".join(_level(each, its) for each in LEVELS.values()),
                "form": form.planning(choices(), plan, its, self._glossary()),
            },
            {"levels": levels, "plan": asdict(Plan())},
            "puzzle.js",
        )

    def _glossary(self) -> str:
        """Return the address of the page that explains terms; empty if there's none."""
        if self.course not in self.book.built:
            return ""
        return self.book.link(self.course, GLOSSARY, self.place)

    def _page(
        self,
        name: str,
        its: dict[str, str],
        parts: dict[str, str],
        config: dict,
        script: str,
    ) -> str:
        """Return a page.

        Args:
            name: of its file, and of its template.
            its: the texts, of which ``lead`` is HTML.
            parts: HTML for the template.
            config: for the scripts.
            script: of this page.
        """
        texts = {key: escape(text) for key, text in its.items()} | {"lead": its["lead"]}
        config = {"words": self.its, "messages": self.messages, **config}
        here = posixpath.relpath(PLAYGROUND, self.place)
        at = "" if here == "." else f"{here}/"
        home = posixpath.relpath(home_of(self.language) or ".", self.place)
        values = texts | parts
        values |= {
            "language": language_tag(self.language),
            "home": f"{home}/index.html",
            "icon": f"{at}../icon.svg",
            "bytes": str(self.nbytes),
            "tabs": "\n".join(_tabs(name, its)),
            "languages": "\n".join(self._languages(name)),
            "styles": "\n".join(
                f'<link rel="stylesheet" href="{at}{each}">'
                for each in (*_STYLES, "playground.css")
            ),
            "about": marked(its["about"].format(pyodide=_SOURCE)),
            # So that no text ends the element.
            "config": json.dumps(config).replace("<", "\\u003c"),
            "scripts": "\n".join(
                f'<script src="{at}{each}"></script>'
                for each in (*SCRIPTS, "simulator.js", script)
            ),
        }
        files = [HERE / "templates" / each for each in ("head.html", name, "foot.html")]
        text = "".join(path.read_text("utf-8") for path in files)
        return string.Template(text).substitute(values)

    def _languages(self, name: str) -> Iterator[str]:
        """Yield links to the same page in other languages."""
        for code in languages_of(self.book):
            if code != self.language:
                title = self.book.languages[code]
                tag = language_tag(code)
                link = f"{posixpath.relpath(playground_of(code), self.place)}/{name}"
                yield f'<a href="{link}" lang="{tag}" hreflang="{tag}">{title}</a>'


def _level(level: Level, its: dict[str, str]) -> str:
    """Return the control that chooses a level."""
    number, first = level.number, level is next(iter(LEVELS.values()))
    title = shown(level.title)
    title = title[0].upper() + title[1:]
    machine = its["level_machine"].format(
        network=level.network, machine=shown(str(level.machine))
    )
    room = its["level_room"].format(
        memory=shown(size_text(level.machine.capacity)),
        batch=shown(f"{level.batch:,}"),
        length=shown(f"{level.model.shape.length:,}"),
    )
    return (
        '<label class="level"><input type="radio" form="form" name="level" '
        f'value="{number}"'
        f"{' checked' if first else ''}><span><strong>{number} {escape(title)}"
        f"</strong><small>{escape(machine)}; {escape(room)}</small>"
        f'<small class="best" data-best="{number}"></small></span></label>'
    )


def _tabs(here: str, its: dict[str, str]) -> list[str]:
    pages = {"index.html": its["train"], "puzzle.html": its["puzzle"]}
    return [
        f'<a href="{name}"{" aria-current=page" if name == here else ""}>'
        f"{escape(title)}</a>"
        for name, title in pages.items()
    ]
