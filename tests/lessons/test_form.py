"""Lessons have the form that their readers rely on, or are known not to have it yet."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from d2l_gpu.course import SOLUTIONS
from tests.helpers.paths import REPOSITORY
from tools.edition import Project
from tools.form import form_problems, number_of, says_only_true
from tools.lesson import Lesson, read_lesson

PROJECT = Project(REPOSITORY)
FORM = PROJECT.form
SOURCES = [path for of in PROJECT.sources.values() for path in of.values()]
COVERED = [path for path in SOURCES if path.parent.name in FORM.first_edition]


def problems(lesson: Lesson) -> Iterator[str]:
    """Yield the problems of a lesson's source and of its English notebooks."""
    yield from form_problems(lesson)
    folder = REPOSITORY / "notebooks" / "en" / lesson.framework
    name = f"{lesson.name}.ipynb"
    for path in filter(Path.is_file, (folder / name, folder / SOLUTIONS / name)):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and says_only_true(cell):
                where = path.relative_to(REPOSITORY)
                yield f"{where}: cell {cell.id} puts out only True or False"


@pytest.mark.parametrize("path", COVERED, ids=lambda path: path.stem)
def test_a_lesson_has_the_form_or_is_on_the_list(path: Path):
    lesson = read_lesson(path)
    found = list(problems(lesson))
    if FORM.applies_to(lesson):
        assert not found, "\n".join(found)
    else:
        assert found, "It has the form: take it off the list in lessons/form.toml."


def test_the_list_names_only_lessons_that_exist():
    for framework, numbers in FORM.first_edition.items():
        names = PROJECT.lessons.joinpath(framework).glob("*.md")
        there = {number_of(Lesson(path)) for path in names}
        assert set(numbers) <= there and len(set(numbers)) == len(numbers)
