"""Whose notebooks there are, of which lesson and framework, and which are none."""

import json

import pytest

from d2l_gpu.grading.submissions import (
    Notebook,
    Unreadable,
    defined,
    framework_of,
    lesson_of,
    mentioned,
    parsed,
    submissions_in,
    variants_in,
)
from tests.helpers.paths import REPOSITORY

EDITIONS = sorted((REPOSITORY / "notebooks").glob("*/*"))
KNOWN = [f"{i:02}" for i in range(18)] + ["A1", "A2"]


def test_students_are_notebooks_and_folders(tmp_path):
    for name in (
        "anna.ipynb",
        "Bert Müller_123_assignsubmission_file/03_copying.ipynb",
        "Bert Müller_123_assignsubmission_file/deep/07 (1).IPYNB",
        "Bert Müller_123_assignsubmission_file/.ipynb_checkpoints/03-checkpoint.ipynb",
        "Bert Müller_123_assignsubmission_file/data.csv",
        "__MACOSX/._anna.ipynb",
        "._anna.ipynb",
        "cleo/readme.txt",
        "grades/results/x.json",
        "list.csv",
        "李雷.ipynb",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (tmp_path / "link.ipynb").symlink_to(tmp_path / "anna.ipynb")
    found = submissions_in(tmp_path, tmp_path / "grades")
    assert [(each.student, each.name.replace("\\", "/")) for each in found] == [
        ("anna", "anna.ipynb"),
        ("Bert Müller_123_assignsubmission_file", "03_copying.ipynb"),
        ("Bert Müller_123_assignsubmission_file", "deep/07 (1).IPYNB"),
        ("cleo", ""),
        ("李雷", "李雷.ipynb"),
    ]


@pytest.mark.parametrize(
    "edition", EDITIONS, ids=lambda each: "-".join(each.parts[-2:])
)
def test_every_notebook_of_the_course_tells_its_lesson_and_framework(edition):
    for path in edition.glob("*.ipynb"):
        notebook = parsed(path.read_bytes())
        numbers = mentioned(notebook)
        if numbers:
            lesson = path.name.partition("_")[0]
            assert lesson_of(sorted(numbers), "x.ipynb", KNOWN, []) == lesson
            assert {each.partition(".")[0] for each in numbers} == {lesson}
            assert framework_of(notebook) == edition.name


@pytest.mark.parametrize(
    ("name", "lesson"),
    [
        ("03_copying.ipynb", "03"),
        ("anna_03_copying (2).ipynb", "03"),
        ("07-mine.ipynb", "07"),
        ("2026 homework.ipynb", None),
        ("99_more.ipynb", None),
    ],
)
def test_a_name_tells_the_lesson_if_nothing_else_does(name, lesson):
    assert lesson_of([], name, KNOWN, ["03_copying", "07_data_parallel"]) == lesson


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"{", "isn't valid JSON (line 1"),
        (b"\xff\xfe\x00", "isn't valid JSON"),
        (b"[" * 100_000, "isn't valid JSON"),
        (b"[]", "has no cells"),
        (b'{"cells": 3}', "has no cells"),
        (b'{"cells": [3]}', "cell 1 is no cell"),
        (b'{"cells": [{"source": 3}]}', "cell 1 is no cell"),
        (b'{"worksheets": []}', "before 2015"),
        (b'{"cells": []}', "has no code"),
    ],
)
def test_what_is_no_notebook_is_told_in_a_sentence(data, message):
    with pytest.raises(Unreadable) as error:
        parsed(data)
    assert message in str(error.value)


def test_sources_may_be_lists_and_files_may_begin_with_a_mark():
    cell = {"cell_type": "code", "source": ["a = 1\n", "b = 2"]}
    data = json.dumps({"cells": [{"cell_type": "raw"}, cell]}).encode("utf-8-sig")
    assert parsed(data).code == {1: "a = 1\nb = 2"}


def test_a_notebook_tells_its_variant():
    code = {0: "from d2l_gpu import torch as d2l\nd2l.variant('3f9a1c72')", 1: "x"}
    assert variants_in(Notebook(code, "")) == {"3f9a1c72"}
    assert not variants_in(Notebook({0: "variant('none')"}, ""))


def test_what_a_notebook_defines_is_found():
    notebook = Notebook(
        {0: "def f(x):\n    y = 1\n    return y", 2: "a = 3\nb: int = 4\nc == 5"}, ""
    )
    assert defined(notebook) == {"f", "a", "b"}
