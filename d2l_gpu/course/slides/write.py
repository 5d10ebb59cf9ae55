"""The files of slides for several lessons."""

from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from d2l_gpu.common.files import write_atomically
from d2l_gpu.common.frameworks import framework
from d2l_gpu.course.copies import not_written
from d2l_gpu.course.slides.deck import live_deck
from d2l_gpu.course.slides.pages import page_of

SUFFIX = ".slides.html"
LIVE = ".live.ipynb"

_COURSE = {
    "en": "GPUs for deep learning",
    "fr": "Les GPU pour l’apprentissage profond",
    "pt": "GPUs para deep learning",
    "zh": "深度学习的 GPU",
}


def make_slides(
    notebooks: Path, lessons: Sequence[str], output: Path, live: bool = False
) -> None:
    """Write a page of slides for each lesson, and print its path.

    Args:
        notebooks: the folder of one edition, ``<language>/<framework>``.
        lessons: which of its lessons, by full name.
        output: the folder to write to.
        live: whether to write a notebook for a live talk, too.

    Raises:
        OSError: a file can't be read or written.
        ValueError: a lesson isn't a notebook.
    """
    for name in lessons:
        lesson = _read(notebooks / f"{name}.ipynb")
        texts = {f"{name}{SUFFIX}": slides_page(lesson, name, notebooks)}
        if live:
            texts[f"{name}{LIVE}"] = nbformat.writes(live_deck(lesson)) + "\n"
        for file, text in texts.items():
            path = output / file
            try:
                write_atomically(path, text)
            except OSError as error:
                raise OSError(not_written(path, error)) from None
            print(path, flush=True)


def slides_page(lesson: NotebookNode, name: str, edition: Path) -> str:
    """Return the page with the slides of a lesson.

    Args:
        lesson: the published notebook.
        name: its full name, as ``03_copying``.
        edition: the folder that it's published in, ``<language>/<framework>``.
    """
    language = edition.parent.name
    number = name.partition("_")[0]
    course = _COURSE.get(language, _COURSE["en"])
    label = f"{number} · {course} · {framework(edition.name).title}"
    title = next(
        (cell.source.partition("\n")[0] for cell in lesson.cells), name
    ).lstrip("# ")
    return page_of(lesson, label, f"{number} {title}", language)


def _read(path: Path) -> NotebookNode:
    try:
        return nbformat.read(path, as_version=4)
    except OSError:
        raise
    except Exception:  # nbformat raises whatever it stumbles over
        raise ValueError(
            f"{path} is not a notebook; install the course again"
        ) from None
