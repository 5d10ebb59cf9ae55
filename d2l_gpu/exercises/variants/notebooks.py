"""The notebooks of a variant: those for students, and the teacher's key."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from d2l_gpu.common.files import write_atomically
from d2l_gpu.course import (
    lesson_names,
    notebooks_dir,
    select_lessons,
    solutions_of,
    without_solutions,
)
from d2l_gpu.exercises.registry import Exercise, of_lesson
from d2l_gpu.exercises.variants.draw import FRAMEWORK, variant_of
from d2l_gpu.exercises.variants.texts import of_variant

STUDENTS, KEY = "students", "key"
"""The folders for what's handed out, and for what isn't."""

# Cells that link to the ordinary notebooks.
_LINKS = {"header-languages", "header-open", "header-frameworks"}

_NOTE = {
    "en": "These are your own exercises, variant `{}`. Some of their numbers and data "
    "aren't those of the public course.",
    "fr": "Voici vos propres exercices, variante `{}`. Certains nombres et certaines "
    "données ne sont pas ceux du cours public.",
    "pt": "Estes são os seus próprios exercícios, variante `{}`. Alguns números e "
    "dados não são os do curso público.",
    "zh": "这是你自己的练习，版本为 `{}`。其中一些数字和数据与公开课程的不同。",
}

_HEADING = re.compile(r"#+ (?:(\w\d\.\d+)\b)?")
_IMPORT = re.compile(r"^from d2l_gpu import \w+ as d2l$", re.MULTILINE)


def write(
    seed: str, wanted: Sequence[str], output: Path | None, language: str | None
) -> list[Path]:
    """Write the notebooks for students and the key; return the paths, in this order.

    Args:
        seed: any text that the students don't know.
        wanted: lessons, by number or name; all that vary if there are none.
        output: the folder; None for one that's named after the variant.
        language: of the notebooks; None for the reader's.
    Raises:
        ValueError: there is no such lesson or edition, or nothing in it varies.
        OSError: a file can't be read or written.
    """
    variant = variant_of(seed)
    folder = notebooks_dir(language, FRAMEWORK)
    language = folder.parent.name
    known = lesson_names(folder)
    varying = {name: own for name in known if (own := _exercises(name))}
    names = select_lessons(wanted, known)
    same = [name for name in names if name not in varying]
    if wanted and same:
        raise ValueError(
            f"nothing varies in {', '.join(same)}; the lessons with variants are: "
            + ", ".join(varying)
        )
    output = output or Path(f"variant-{variant}")
    written, lines = [], []
    for name in [name for name in names if name in varying]:
        own = varying[name]
        student = _read(folder / f"{name}.ipynb")
        solved = _read(solutions_of(folder / f"{name}.ipynb"))
        stubs = {cell["id"] for cell in student["cells"]}
        key = solved | {"cells": list(_answered(solved["cells"], stubs, own, variant))}
        for kind, notebook in ((STUDENTS, student), (KEY, key)):
            made = _made(notebook, own, language, variant, name)
            path = output / kind / f"{name}.ipynb"
            text = json.dumps(made, indent=1, ensure_ascii=False)
            write_atomically(path, text + "\n")
            written.append(path)
        lines += [_line(exercise, variant) for exercise in own.values()]
    path = output / KEY / "key.md"
    write_atomically(path, _table(seed, variant, lines))
    return [*written, path]


def _exercises(lesson: str) -> dict[str, Exercise]:
    """Return the exercises of a lesson that vary, by number."""
    found = of_lesson(FRAMEWORK, lesson.partition("_")[0])
    return {number: exercise for number, exercise in found.items() if exercise.vary}


def _read(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def _numbered(cells: Sequence[dict]) -> Iterator[tuple[str, dict]]:
    """Yield each cell with the number of its exercise, or an empty one."""
    number = ""
    for cell in cells:
        if cell["cell_type"] == "markdown":
            heading = _HEADING.match(_source(cell))
            if heading or cell["id"] == "report":
                number = (heading and heading[1]) or ""
        yield number, cell


def _source(cell: dict) -> str:
    return "".join(cell["source"])


def _made(
    notebook: dict,
    exercises: Mapping[str, Exercise],
    language: str,
    variant: str,
    name: str,
) -> dict:
    """Return a notebook as a variant has it, without outputs."""
    cells, noted, imported = [], False, False
    for number, cell in _numbered(notebook["cells"]):
        if cell["id"] in _LINKS:
            continue
        text = _source(cell)
        if number in exercises:
            text = of_variant(exercises[number], text, language, variant)
        if cell["id"] == "exercises":
            text = without_solutions(text)
        if cell["cell_type"] == "code":
            cell = cell | {"outputs": [], "execution_count": None}
            if not imported and _IMPORT.search(text):
                text, imported = f"{text}\nd2l.variant('{variant}')", True
        cells.append(cell | {"source": text.splitlines(keepends=True)})
        if not noted:  # below the title
            note = _NOTE.get(language, _NOTE["en"]).format(variant)
            cells.append(_cell("markdown", "variant", note))
            noted = True
    if not imported:
        raise ValueError(f"{name} has no cell that imports d2l_gpu")
    mark = {"variant": variant, "lesson": name, "framework": FRAMEWORK}
    metadata = notebook["metadata"] | {"d2l_gpu": mark}
    return notebook | {"cells": cells, "metadata": metadata}


def _cell(kind: str, name: str, text: str) -> dict:
    own = {"outputs": [], "execution_count": None} if kind == "code" else {}
    source = text.splitlines(keepends=True)
    return {"cell_type": kind, "id": name, "metadata": {}, "source": source} | own


def _answered(
    cells: Sequence[dict],
    stubs: set[str],
    exercises: Mapping[str, Exercise],
    variant: str,
) -> Iterator[dict]:
    """Yield the cells of solutions; a value's are replaced by what's right here."""
    done = set()
    for number, cell in _numbered(cells):
        exercise = exercises.get(number)
        stated = cell["cell_type"] == "markdown" and cell["id"] in stubs
        if exercise is None or exercise.key is None or stated:
            yield cell
        elif number not in done:
            done.add(number)
            name, value = exercise.name, _answer(exercise, variant)
            code = f"{name} = {value!r}\n\nd2l.check('{number}', {name})"
            yield _cell("code", f"key-{number.replace('.', '-')}", code)


def _answer(exercise: Exercise, variant: str) -> Any:
    return exercise.key(**exercise.drawn(variant)) if exercise.key else None


def _line(exercise: Exercise, variant: str) -> str:
    values = exercise.drawn(variant)
    said = ", ".join(f"{name} = {value!r}" for name, value in values.items())
    answer = f"`{_answer(exercise, variant)!r}`" if exercise.key else ""
    return f"| {exercise.number} | `{said}` | {answer} |"


def _table(seed: str, variant: str, lines: Sequence[str]) -> str:
    return "\n".join(
        [
            "# Key",
            "",
            f"Variant `{variant}`, made with the seed `{seed}`. Don't hand out this "
            "folder or the seed: with the seed, `d2l-gpu variant` writes it again.",
            "",
            "The notebooks beside this file have the solutions. Where they explain an "
            "exercise, their numbers can be those of the public course.",
            "",
            "| Exercise | What's drawn | Answer |",
            "|---|---|---|",
            *lines,
            "",
        ]
    )
