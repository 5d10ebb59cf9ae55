"""Update the READMEs, the tables on the pages in ``docs/``, and the glossaries there.

In the English pages, the build only writes the tables, between marks. READMEs in other
languages are generated as a whole, from ``lessons/readme.md`` and its translations, and
so are glossaries, from ``lessons/glossary.toml``.
"""

import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from d2l_gpu.common.frameworks import Framework
from tools import glossary_page
from tools.course_map import parts_of, table_row, with_parts
from tools.edition import Edition, Project, editions
from tools.header import PLATFORMS, platform_links, solutions_of
from tools.languages import ENGLISH
from tools.lesson import Lesson, LessonError, aims_and_minutes
from tools.marks import replace_between
from tools.quizzes import SUFFIX as QUIZ

BEGIN, END = "<!-- from tools/readme.py -->", "<!-- end -->"
BEGIN_LESSONS, END_LESSONS = "<!-- lessons -->", "<!-- end of lessons -->"
BEGIN_LANGUAGES, END_LANGUAGES = "<!-- languages -->", "<!-- end of languages -->"
BEGIN_SHARES, END_SHARES = "<!-- translated -->", "<!-- end of translated -->"

# The first line of a generated README.
_MADE = "<!-- from lessons/readme.md and lessons/locale/${language}.po: edit these -->"

_COLAB = "colab"

# A link to a file in the repository, relative to its root.
_LINK = re.compile(r"\]\((?![a-z]+:|#)")


def new_readmes(project: Project) -> dict[Path, str]:
    """Return the new contents of the READMEs and pages that are out of date, by path.

    Raises:
        LessonError: the problems of the sources.
        ValueError: no English page has a place for one of the tables.
    """
    found = {}
    if (project.root / "README.md").is_file():
        found |= _pages(project)
    if project.readme is not None:
        for language in project.translations:
            found[readme_of(project, language)] = _translated(project, language)
    if project.glossary is not None:
        tags = [framework.tag for framework in project.frameworks]
        lessons = sorted(project.read(), key=lambda each: tags.index(each.framework))
        introduced = glossary_page.introductions(project.glossary, lessons)
        for language in project.languages:
            path = glossary_page.page_of(project.root, language)
            found[path] = _glossary(project, language, introduced)
    return {
        path: text
        for path, text in found.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    }


def readme_of(project: Project, language: str) -> Path:
    """Return the path of the README in a language."""
    name = "README.md" if language == ENGLISH else f"README.{language}.md"
    return project.root / name


def _glossary(project: Project, language: str, introduced: Mapping[str, Lesson]) -> str:
    """Return the page of terms in a language."""
    terms = project.glossary
    texts = terms.as_lesson()
    if language in project.translations:
        texts = project.translations[language].translated(texts, None)
    links = {
        term: f"[{lesson.name.partition('_')[0]}]"
        f"(../notebooks/{language}/{lesson.framework}/{lesson.name}.ipynb)"
        for term, lesson in introduced.items()
    }
    others = " · ".join(
        each.name
        if code == language
        else f"[{each.name}]({glossary_page.page_of(project.root, code).name})"
        for code, each in project.languages.items()
    )
    return glossary_page.page(
        terms,
        texts,
        project.languages[language],
        project.languages,
        links,
        others if len(project.languages) > 1 else "",
    )


def _pages(project: Project) -> dict[Path, str]:
    """Return the contents of the English pages with updated tables, by path.

    Raises:
        ValueError: no page has the marks of a table.
    """
    paths = [project.root / "README.md", *sorted(project.root.glob("docs/*.md"))]
    pages = {path: path.read_text(encoding="utf-8") for path in paths}
    parts = [(BEGIN, END, _tables)]
    if any(BEGIN_LESSONS in text for text in pages.values()):
        parts.append((BEGIN_LESSONS, END_LESSONS, _aims))
    if project.translations:
        parts.append((BEGIN_LANGUAGES, END_LANGUAGES, _languages))
        parts.append((BEGIN_SHARES, END_SHARES, _shares))
    for begin, end, table in parts:
        text = table(project)
        having = [path for path in pages if begin in pages[path]] or paths[:1]
        for path in having:
            up = "../" * (len(path.relative_to(project.root).parts) - 1)
            part = _LINK.sub(f"]({up}", text) if up else text
            pages[path] = replace_between(pages[path], begin, end, part, path.name)
    return pages


def _translated(project: Project, language: str) -> str:
    """Return the README in a language other than English.

    Raises:
        LessonError: the text has an unknown placeholder.
    """
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
            f"{template.path.name}, in {language!r}: ${{…}} may name "
            f"{', '.join(names)}, but not {error}"
        ) from None


def _languages(project: Project, here: str = ENGLISH) -> str:
    """Return the names of the languages, with links to their READMEs."""
    return " · ".join(
        each.name if code == here else f"[{each.name}]({readme_of(project, code).name})"
        for code, each in project.languages.items()
    )


def _shares(project: Project) -> str:
    """Return the table of how much is translated into each language."""
    wanted = _texts(project)
    rows = [("Language", "`--language`", "Translated"), ("---", "---", "---")]
    for language, translation in project.translations.items():
        name, path = translation.language.name, readme_of(project, language).name
        share = f"{translation.share(wanted)} %"
        rows.append((f"[{name}]({path})", f"`{language}`", share))
    return _markdown(rows)


def _texts(project: Project) -> list[str]:
    """Return the texts of the lessons and what is around them, without the quizzes."""
    return [
        message.text
        for message in project.messages()
        if not all(place.endswith(QUIZ) for place in message.places)
    ]


def _lessons(project: Project, language: str) -> str:
    """Return the table of lesson titles in a language, with links to the notebooks."""
    by_lesson: dict[str, dict[Framework, Edition]] = {}
    for edition in editions(project, language=language):
        if not edition.solutions:
            by_lesson.setdefault(edition.lesson.name, {})[edition.framework] = edition
    known = {each for found in by_lesson.values() for each in found}
    first, *others = [each for each in project.frameworks if each in known]
    platform = PLATFORMS[_COLAB][0]
    head = [first.title, platform, *(each.title for each in others)]
    rows = {}
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
        rows[name] = [title, colab, *more]
    parts = parts_of(project.header_in(language))
    lessons = with_parts(rows, parts, column=0)
    return _markdown([head, ["---"] * len(head), *lessons])


def _aims(project: Project) -> str:
    """Return the table of what each lesson teaches, as its opening says."""
    head = ("", "Lesson", "After it you can", "Minutes", "With")
    rows = {}
    tags = [each.tag for each in project.frameworks]
    for name, of_lesson in project.sources.items():
        first = next(iter(of_lesson))
        (edition, *_) = editions(project, [name], ENGLISH, first.tag)
        link = f"[{edition.title}]({_relative(edition).as_posix()})"
        says = aims_and_minutes(edition.lesson.prose) or ("", "")
        titles = [each.title for each in of_lesson]
        having = "all" if len(titles) == len(tags) else ", ".join(titles)
        rows[name] = (name.partition("_")[0], link, *says, having)
    lessons = with_parts(rows, parts_of(project.header), column=1)
    return _markdown([head, ["---"] * len(head), *lessons])


def _tables(project: Project) -> str:
    """Return a table for each framework with links that open its notebooks.

    The first framework's table is shown; the others are folded.
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
    return "\n".join(map(table_row, rows))
