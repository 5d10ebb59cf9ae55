"""The glossary has the terms that lessons introduce, and no others."""

import pytest

from tests.helpers.paths import REPOSITORY
from tools.edition import Project
from tools.form import number_of
from tools.glossary import matching
from tools.glossary_page import bold_terms
from tools.lesson import read_lesson

PROJECT = Project(REPOSITORY)
TERMS = PROJECT.glossary
LESSONS = [
    lesson
    for of_lesson in PROJECT.sources.values()
    for lesson in map(read_lesson, of_lesson.values())
    if PROJECT.form.applies_to(lesson)
]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.label)
def test_a_lesson_introduces_the_terms_that_the_glossary_says(lesson):
    number = number_of(lesson)
    bold = list(bold_terms(lesson))
    missing = [
        f"{lesson.label}:{line}: {term!r} is in bold, "
        + (
            "but not in lessons/glossary.toml"
            if (its := TERMS.lesson_of(term)) is None
            else f"but the glossary says that lesson {its} introduces it"
        )
        for line, term in bold
        # A term of an earlier lesson may be in bold again.
        if (TERMS.lesson_of(term) or "Z") > number
    ]
    assert not missing, "\n".join(missing)


def test_some_lesson_introduces_each_term():
    bold: dict[str, set[str]] = {}
    for lesson in LESSONS:
        found = {words for _, words in bold_terms(lesson)}
        bold.setdefault(number_of(lesson), set()).update(found)
    unused = [
        (number, term)
        for number, its in TERMS.definitions.items()
        for term in its
        if not any(map(matching(term).fullmatch, bold.get(number, ())))
    ]
    assert not unused, f"In the glossary, but not in bold in its lesson: {unused}"
