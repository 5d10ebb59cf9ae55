"""The READMEs: parts of the English one, which the build writes between marks, and the
others as a whole, from ``lessons/readme.md`` and its translations."""

import re
import string
from collections.abc import Sequence
from pathlib import Path, PurePath

from d2l_gpu.common.frameworks import Framework
from tools.edition import Edition, Project, editions
from tools.header import PLATFORMS, platform_links, solutions_of
from tools.languages import ENGLISH
from tools.lesson import LessonError
from tools.marks import replace_between

BEGIN, END = "<!-- from tools/readme.py -->", "<!-- end -->"
BEGIN_LESSONS, END_LESSONS = "<!-- lessons -->", "<!-- end of lessons -->"
BEGIN_LANGUAGES, END_LANGUAGES = "<!-- languages -->", "<!-- end of languages -->"
BEGIN_SHARES, END_SHARES = "<!-- translated -->", "<!-- end of translated -->"

# On top of a README that is made as a whole.
_MADE = "<!-- from lessons/readme.md and lessons/locale/${language}.po: edit these -->"

_COLAB = "colab"


def new_readmes(project: Project) -> dict[Path, str]:
    """Return what READMEs are to be where they are not that.

    Raises:
        LessonError: what is wrong with the sources.
        ValueError: the English one has no place for what it is to show.
    """
    found = {}
    english = project.root / "README.md"
    if english.is_file():
        found[english] = _english(project, english.read_text(encoding="utf-8"))
    if project.readme is not None:
        for language in project.translations:
            found[readme_of(project, language)] = _translated(project, language)
    return {
        path: text
        for path, text in found.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    }


def readme_of(project: Project, language: str) -> Path:
    """Return the path of the README in a language."""
    name = "README.md" if language == ENGLISH else f"README.{language}.md"
    return project.root / name


def _english(project: Project, text: str) -> str:
    parts = [(BEGIN, END, _tables(project))]
    if BEGIN_LESSONS in text:
        parts.append((BEGIN_LESSONS, END_LESSONS, _aims(project)))
    if project.translations:
        line = _languages(project, ENGLISH)
        parts.append((BEGIN_LANGUAGES, END_LANGUAGES, line))
        parts.append((BEGIN_SHARES, END_SHARES, _shares(project)))
    for begin, end, part in parts:
        text = replace_between(text, begin, end, part, "README.md")
    return text


def _translated(project: Project, language: str) -> str:
    """Return the README in another language than English."""
    template = project.readme
    translation = project.translations[language]
    template = translation.translated(template, project.header)
    names = {
        "language": language,
        "languages": _languages(project, language),
        "lessons": _lessons(project, language),
        "share": str(translation.share(_texts(project))),
    }
    text = "\n\n".join([_MADE, *(cell.source for cell in template.cells)])
    try:
        return string.Template(text).substitute(names) + "\n"
    except (KeyError, ValueError) as error:
        raise LessonError(
            f"{template.path.name}, in {language!r}: {error} is none of "
            f"{', '.join(names)}, which are what can stand in ${{…}}"
        ) from None


def _languages(project: Project, here: str) -> str:
    """Return the names of the languages, with links to their READMEs."""
    return " · ".join(
        each.name if code == here else f"[{each.name}]({readme_of(project, code).name})"
        for code, each in project.languages.items()
    )


def _shares(project: Project) -> str:
    """Return the table of the share of each language that is translated."""
    wanted = _texts(project)
    rows = [("Language", "`--language`", "Translated"), ("---", "---", "---")]
    for language, translation in project.translations.items():
        name, path = translation.language.name, readme_of(project, language).name
        share = f"{translation.share(wanted)} %"
        rows.append((f"[{name}]({path})", f"`{language}`", share))
    return _markdown(rows)


def _texts(project: Project) -> list[str]:
    return [message.text for message in project.messages()]


def _lessons(project: Project, language: str) -> str:
    """Return the table of the lessons in a language, by their titles."""
    by_lesson: dict[str, dict[Framework, Edition]] = {}
    for edition in editions(project, language=language):
        if not edition.solutions:
            by_lesson.setdefault(edition.lesson.name, {})[edition.framework] = edition
    known = {each for found in by_lesson.values() for each in found}
    first, *others = [each for each in project.frameworks if each in known]
    platform = PLATFORMS[_COLAB][0]
    rows = [[first.title, platform, *(each.title for each in others)]]
    rows.append(["---"] * len(rows[0]))
    for name, found in by_lesson.items():
        number = name.partition("_")[0]
        title, colab = f"{number} {next(iter(found.values())).title}", ""
        if first in found:
            path = _relative(found[first])
            title = f"[{title}]({path.as_posix()})"
            colab = f"[{platform}]({platform_links(path)[_COLAB]})"
        more = [
            f"[{number}]({_relative(found[each]).as_posix()})" if each in found else ""
            for each in others
        ]
        rows.append([title, colab, *more])
    return _markdown(rows)


_AIMS = re.compile(r"\*You will be able to\* (.*?)\.? \*(\d+) minutes\b", re.DOTALL)


def _aims(project: Project) -> str:
    """Return the table of what each lesson teaches, as its first cell says."""
    rows = [("", "Lesson", "You will be able to", "Minutes", "With")]
    rows.append(("---",) * len(rows[0]))
    tags = [each.tag for each in project.frameworks]
    for name, of_lesson in project.sources.items():
        first = next(iter(of_lesson))
        (edition, *_) = editions(project, [name], ENGLISH, first.tag)
        link = f"[{edition.title}]({_relative(edition).as_posix()})"
        aims = _AIMS.search(edition.lesson.cells[0].source)
        says = (" ".join(aims[1].split()), aims[2]) if aims else ("", "")
        titles = [each.title for each in of_lesson]
        having = "all" if len(titles) == len(tags) else ", ".join(titles)
        rows.append((name.partition("_")[0], link, *says, having))
    return _markdown(rows)


def _tables(project: Project) -> str:
    """Return a table for each framework of where each notebook opens.

    That of the first framework is shown, those of the others unfold.
    """
    every = editions(project, language=ENGLISH)
    solved = {edition.path for edition in every if edition.solutions}
    by_framework: dict[Framework, list[Edition]] = {}
    for edition in every:
        if not edition.solutions:
            by_framework.setdefault(edition.framework, []).append(edition)
    order = [each for each in project.frameworks if each in by_framework]
    tables = {each: _table(by_framework[each], solved) for each in order}
    first, *others = tables
    return "\n\n".join(
        [tables[first]]
        + [
            f"<details><summary>{each.title}</summary>\n\n{tables[each]}\n\n</details>"
            for each in others
        ]
    )


def _table(found: Sequence[Edition], solved: set[Path]) -> str:
    framework = found[0].framework
    head = [f"With {framework.title}"]
    if framework.hosted:
        head += [name for name, _ in PLATFORMS.values()]
    if solved:
        head.append("Exercises")
    rows = [head, ["---"] * len(head)]
    for edition in found:
        path = _relative(edition)
        links = platform_links(path) if framework.hosted else {}
        opens = [f"[{PLATFORMS[key][0]}]({link})" for key, link in links.items()]
        row = [f"[{path.stem}]({path.as_posix()})", *opens]
        if solved:
            link = f"[solutions]({solutions_of(path).as_posix()})"
            row.append(link if solutions_of(edition.path) in solved else "")
        rows.append(row)
    return _markdown(rows)


def _relative(edition: Edition) -> PurePath:
    return edition.path.relative_to(edition.project.root)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
