"""The cells that all notebooks share: links, setup, how to do the exercises.

The source is ``lessons/header.md``, formatted like a lesson, with placeholders
``${…}`` for what differs between notebooks and between releases. The links, and the
package that hosted platforms install, both belong to the notebook's *release*, so that
they always match; the version changes only in the commit that makes a release.
"""

import functools
import re
import string
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from urllib.parse import quote, urlencode

from d2l_gpu import __version__
from d2l_gpu.common.frameworks import Framework
from d2l_gpu.course import SOLUTIONS
from tools.course_map import keys_of
from tools.languages import ENGLISH
from tools.lesson import Cell, Lesson, LessonError, check
from tools.translation import MISSING, STALE

SOURCE = "header.md"

# Keys of cells that only some notebooks have: links to hosted platforms, links to the
# lesson in other frameworks, and what to show if no other framework has it.
_OPEN, _OTHERS, _ALONE = "header-open", "header-frameworks", "header-alone"

# Only in translations; in all notebooks, if there are translations.
_TRANSLATED, _LANGUAGES = "header-translated", "header-languages"

# The setup; with "-<tag>" appended, the setup for one framework.
_INSTALL = "header-install"

# Cells placed elsewhere: before the exercises if the lesson has a quiz, before the
# exercises, as the title of solutions, and at the end of both.
QUIZ, INTRODUCTION, TITLE, REPORT = "quiz", "exercises", "solutions-title", "report"

# What chooses the language of outputs, at the end of the setup.
_CHOICE = """

# What the course says is in this language.
import os
os.environ['D2L_GPU_LANGUAGE'] = '{}'"""

# Prepended to the first cell of every solution.
MARK = "solution-mark"

# Each platform's name, and its URL prefix for `owner/name/blob/tag/path` on GitHub.
PLATFORMS = {
    "colab": ("Colab", "https://colab.research.google.com/github/"),
    "kaggle": ("Kaggle", "https://kaggle.com/kernels/welcome?src=https://github.com/"),
    "studio_lab": (
        "SageMaker Studio Lab",
        "https://studiolab.sagemaker.aws/import/github/",
    ),
}

_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


@dataclass(frozen=True)
class Header:
    """The cells of `SOURCE`, filled in for one notebook.

    Attributes:
        template: the cells with placeholders; None for no header.
        path: the notebook's path from the repository's root, with language, framework
            and name.
        framework: the notebook's framework.
        others: the other frameworks that have this lesson.
        title: the lesson's title.
        languages: the native names of the lesson's languages, by code.
        share: the percentage of paragraphs that are translated.
        speaks: whether its outputs are in its language.
    """

    template: Lesson | None
    path: PurePath
    framework: Framework
    others: Sequence[Framework] = ()
    title: str = ""
    languages: Mapping[str, str] = field(default_factory=dict)
    share: int = 100
    speaks: bool = False

    def cells(self) -> list[Cell]:
        """Return the cells below the title.

        Raises:
            LessonError: the problems of the source.
        """
        left_out = {QUIZ, INTRODUCTION, TITLE, _ALONE if self.others else _OTHERS}
        every = self._all()
        left_out |= {MISSING, STALE, MARK} | self._other_setups(every)
        left_out |= {REPORT} | keys_of(self.template)
        if len(self.languages) < 2:
            left_out.add(_LANGUAGES)
        if self._language == ENGLISH:
            left_out.add(_TRANSLATED)
        if _are_solutions(self.path):
            left_out |= {_ALONE, _OTHERS}
        if not self.framework.hosted:
            left_out.add(_OPEN)
        return [
            replace(cell, id=_INSTALL) if cell.key.startswith(_INSTALL) else cell
            for cell in every
            if cell.key not in left_out
        ]

    def cell(self, key: str) -> list[Cell]:
        """Return the cell with this key in a list; empty if there is none.

        Raises:
            LessonError: the problems of the source.
        """
        return [cell for cell in self._all() if cell.key == key]

    def _other_setups(self, cells: Sequence[Cell]) -> set[str]:
        setups = {cell.key for cell in cells if cell.key.startswith(_INSTALL)}
        own = f"{_INSTALL}-{self.framework.tag}"
        return setups - {own if own in setups else _INSTALL}

    @property
    def _language(self) -> str:
        return self.path.parts[1] if len(self.path.parts) > 1 else ENGLISH

    def _all(self) -> list[Cell]:
        if self.template is None:
            return []
        names = {
            **platform_links(self.path),
            "version": __version__,
            "title": self.framework.title,
            "module": self.framework.module,
            "others": " · ".join(
                f"[{each.title}]({on_github(_beside(self.path, each))})"
                for each in self.others
            ),
            "languages": self._line_of_languages(),
            "share": str(self.share),
            "language": _CHOICE.format(self._language) if self.speaks else "",
            "lesson_title": self.title,
            "lesson_number": self.path.stem.partition("_")[0],
            "lesson": on_github(_lesson_of(self.path)),
            "solutions": on_github(solutions_of(self.path)),
            "report": self._report(),
        }
        try:
            cells = [
                replace(cell, source=string.Template(cell.source).substitute(names))
                for cell in self.template.cells
            ]
        except (KeyError, ValueError) as error:
            raise LessonError(
                f"{SOURCE}: ${{…}} may name {', '.join(names)}, but not {error}"
            ) from None
        check(replace(self.template, cells=cells))
        return cells

    def _report(self) -> str:
        """Return the URL that opens a new issue about this notebook."""
        number = self.path.stem.partition("_")[0]
        what = "Solutions" if _are_solutions(self.path) else "Lesson"
        about = {
            "title": f"{what} {number} ({self.framework.title}, {self._language}): ",
            "body": f"d2l-gpu {__version__}\n\n",
        }
        query = urlencode(about, quote_via=quote)
        return f"https://github.com/{repository()}/issues/new?{query}"

    def _line_of_languages(self) -> str:
        links = []
        for language, name in self.languages.items():
            path = PurePath(self.path.parts[0], language, *self.path.parts[2:])
            here = language == self._language
            links.append(name if here else f"[{name}]({on_github(path)})")
        return " · ".join(links)


def solutions_of(path: PurePath) -> PurePath:
    """Return the path of the notebook with a lesson's solutions."""
    return path.parent / SOLUTIONS / path.name


def _are_solutions(path: PurePath) -> bool:
    return path.parent.name == SOLUTIONS


def _lesson_of(path: PurePath) -> PurePath:
    return path.parents[1] / path.name if _are_solutions(path) else path


def _beside(path: PurePath, framework: Framework) -> PurePath:
    """Return the path of the same lesson for another framework."""
    return path.parent.with_name(framework.tag) / path.name


def on_github(path: PurePath) -> str:
    """Return the URL of a file of this release, given relative to the root."""
    return f"https://github.com/{_in_release(path)}"


def _in_release(path: PurePath) -> str:
    return f"{repository()}/blob/v{__version__}/{path.as_posix()}"


def platform_links(path: PurePath) -> dict[str, str]:
    """Return the URLs that open a notebook on `PLATFORMS`, by platform."""
    file = _in_release(path)
    return {name: prefix + file for name, (_, prefix) in PLATFORMS.items()}


@functools.cache
def repository() -> str:
    """Return ``owner/name`` on GitHub, from the project's metadata."""
    project = tomllib.loads(_PROJECT.read_text("utf-8"))["project"]
    return re.fullmatch(
        r"https://github\.com/([\w.-]+/[\w.-]+)", project["urls"]["Source"]
    ).group(1)
