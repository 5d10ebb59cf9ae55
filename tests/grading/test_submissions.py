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


def hand_in(folder, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


def test_students_are_notebooks_and_folders(tmp_path):
    hand_in(
        tmp_path,
        "anna.ipynb",
        "Bert Müller/03_copying.ipynb",
        "Bert Müller/deep/07 (1).IPYNB",
        "Bert Müller/.ipynb_checkpoints/03-checkpoint.ipynb",
        "Bert Müller/data.csv",
        "__MACOSX/._anna.ipynb",
        "._anna.ipynb",
        "cleo/readme.txt",
        "grades/results/x.json",
        "points.toml",
        "李雷.ipynb",
    )
    ours = tmp_path / "grades", tmp_path / "points.toml"
    found = submissions_in(tmp_path, ours).submissions
    assert [(each.owner.name, each.name.replace("\\", "/")) for each in found] == [
        ("anna", "anna.ipynb"),
        ("Bert Müller", "03_copying.ipynb"),
        ("Bert Müller", "deep/07 (1).IPYNB"),
        ("cleo", ""),
        ("李雷", "李雷.ipynb"),
    ]
    cleo = next(each for each in found if each.owner.name == "cleo")
    assert cleo.problem == "there is no notebook in this folder, only readme.txt"


def test_files_that_are_no_notebooks_are_somebodys_or_listed(tmp_path):
    hand_in(tmp_path, "anna.ipynb", "anna.pdf", "erik.docx", "fay.ipynb.txt")
    hand_in(tmp_path, "list.csv", "README.md", "hong_5_678_a.xlsx")
    (tmp_path / "link.ipynb").symlink_to(tmp_path / "anna.ipynb")
    found = submissions_in(tmp_path)
    problems = {e.owner.name: e.problem for e in found.submissions if not e.path}
    assert problems == {
        "erik": "erik.docx isn't a notebook",
        "fay": "fay.ipynb.txt isn't a notebook by its name; if it is one, call it "
        "fay.ipynb",
        "hong": "hong_5_678_a.xlsx isn't a notebook",
    }
    others = ["README.md", "anna.pdf", "link.ipynb", "list.csv"]
    assert sorted(found.others) == others
    known = submissions_in(tmp_path, is_student=lambda owner: owner.name == "list")
    assert [e.owner.name for e in known.submissions] == ["anna", "list"]


def test_feedback_is_called_what_systems_find_students_by(tmp_path):
    hand_in(
        tmp_path,
        "anna.ipynb",
        "Bert/x.ipynb",
        "Chloé Dubois_12345_assignsubmission_file/03_copying.ipynb",
        "Dan_12346_assignsubmission_file_03_copying.ipynb",
        "eve_LATE_12_3456_03_copying.ipynb",
    )
    found = submissions_in(tmp_path).submissions
    assert {each.owner.name: each.feedback.as_posix() for each in found} == {
        "anna": "anna.html",
        "Bert": "Bert.html",
        "Chloé Dubois": "Chloé Dubois_12345_assignsubmission_file/feedback.html",
        "Dan": "Dan_12346_assignsubmission_file_03_copying.html",
        "eve": "eve_LATE_12_3456_03_copying.html",
    }


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
