"""Variants: the same everywhere, unlike what is published, judged as they ask."""

import ast
import json
import re
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

import nbformat
import pytest

from d2l_gpu import cli
from d2l_gpu import torch as d2l
from d2l_gpu.course import SOLUTIONS
from d2l_gpu.exercises import grading_process
from d2l_gpu.exercises.judge import judge, value_as_json
from d2l_gpu.exercises.records import from_json, to_json
from d2l_gpu.exercises.registry import Exercise, find, lessons_of, of_lesson
from d2l_gpu.exercises.specification import specification
from d2l_gpu.exercises.variants import notebooks
from d2l_gpu.exercises.variants.draw import FRAMEWORK, Draw, current, variant_of
from d2l_gpu.exercises.variants.texts import (
    ANY,
    SOLUTION,
    filled,
    in_formula,
    of_variant,
    places,
)
from tests.exercises.test_graders import _graded
from tests.helpers.paths import REPOSITORY

LANGUAGES = ("en", "fr", "pt", "zh")
VARIANTS = ("3f9a1c72", "00000001", "9abcdef0")

EXERCISES = {
    number: exercise
    for lesson in lessons_of(FRAMEWORK)
    for number, exercise in of_lesson(FRAMEWORK, lesson).items()
}
VARYING = {number: each for number, each in EXERCISES.items() if each.vary}
# Those that ask for something else in a variant: the public answers are wrong there.
CHANGED = [
    number
    for number, each in VARYING.items()
    if any(places(each, kind) for kind in (ANY, *LANGUAGES, SOLUTION))
]
VALUES = [number for number, each in VARYING.items() if each.parameters is None]


@pytest.fixture(autouse=True)
def ordinary(monkeypatch):
    """The ordinary exercises again after each test."""
    monkeypatch.setenv("D2L_GPU_VARIANT", "")


# What CI runs; a weekly run has the others, too.
KEYS = ("03.5", "11.2")
FAST, SECOND = "01", "02"
LESSONS = sorted({number[:2] for number in VARYING if number not in VALUES})


def sized(names: Iterable[str], in_all: Collection[str]) -> list:
    """Return parameters of which some run in ``--all`` and the others weekly."""
    mark = pytest.mark
    return [
        pytest.param(name, marks=mark.all if name in in_all else mark.weekly)
        for name in names
    ]


# ---- The same on every machine and Python


def test_a_seed_makes_the_same_variant_everywhere():
    assert variant_of("spring, kiwi") == "ba145998"
    assert find(FRAMEWORK, "02.4").drawn("ba145998") == {"a": 5, "b": 8, "c": 6}
    assert find(FRAMEWORK, "13.5").drawn("ba145998")["cuts"][-1] == (46, 4, 5)
    draw = Draw("a text")
    assert [draw.integer(1, 6) for _ in range(8)] == [5, 6, 2, 1, 1, 2, 3, 2]
    assert draw.number(2.0, 3.0) == 2.9553107184821377
    assert draw.sample("abcdef", 3) == ["e", "d", "f"]


def test_every_number_of_a_range_is_drawn_and_no_other():
    draw = Draw("dice")
    assert {draw.integer(1, 6) for _ in range(200)} == {1, 2, 3, 4, 5, 6}
    assert sorted(draw.sample(range(5), 5)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("number", VARYING)
def test_what_is_drawn_is_plain_data_and_not_the_ordinary(number):
    exercise = VARYING[number]
    ordinary = exercise.drawn(None)
    drawn = [exercise.drawn(variant_of(f"seed {i}")) for i in range(20)]
    assert not any(each == ordinary for each in drawn)
    for each in [ordinary, *drawn]:
        assert from_json(to_json(each)) == each


def test_seeds_make_different_variants():
    drawn = [
        {number: repr(each.drawn(variant_of(seed))) for number, each in VARYING.items()}
        for seed in ("one", "two")
    ]
    same = [number for number in VARYING if drawn[0][number] == drawn[1][number]]
    assert len(same) < len(VARYING) / 3


def test_most_exercises_vary():
    parts = [f"{i:02}" for i in (*range(1, 10), *range(11, 16))]
    functions = [
        number
        for number, each in EXERCISES.items()
        if number[:2] in parts and each.parameters is not None
    ]
    assert sum(number in VARYING for number in functions) >= len(functions) / 2
    values = {number for number, each in EXERCISES.items() if each.parameters is None}
    assert values - set(VARYING) == {"A1.4"}


# ---- The text


@cache
def cells(language: str, number: str) -> tuple[list[str], list[str]]:
    """Return the sources of an exercise's cells: for students, and in solutions."""
    folder = REPOSITORY / "notebooks" / language / FRAMEWORK
    found = []
    for where in (folder, folder / SOLUTIONS):
        (path,) = where.glob(f"{number[:2]}_*.ipynb")
        numbered = notebooks._numbered(json.loads(path.read_text("utf-8"))["cells"])
        found.append(["".join(c["source"]) for n, c in numbered if n == number])
    return tuple(found)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("number", CHANGED)
def test_what_a_variant_replaces_is_in_the_notebook(number, language):
    exercise = EXERCISES[number]
    student, solved = cells(language, number)
    pairs = places(exercise, language)
    assert all(any(old in text for text in student) for old, _ in pairs)
    pairs = places(exercise, ANY) + places(exercise, SOLUTION)
    for old, _ in pairs:
        # Decimals have a comma in some languages: what is said then, a place has, and
        # formulas follow by themselves.
        written = [old, old.replace(".", ","), in_formula(old)]
        assert any(each in text for each in written for text in solved), old


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("number", CHANGED)
def test_the_statement_of_a_variant_has_its_numbers(number, language):
    exercise, (student, _) = EXERCISES[number], cells(language, number)
    for variant in VARIANTS:
        values = exercise.drawn(variant)
        text = "\n".join(of_variant(exercise, t, language, variant) for t in student)
        assert text != "\n".join(student)
        for old, place in [*places(exercise, language), *places(exercise, ANY)]:
            if any(old in t for t in student):
                assert filled(place, values) in text
            if any(in_formula(old) in t for t in student):
                assert in_formula(filled(place, values)) in text


def test_only_names_in_braces_are_filled():
    said = filled("{a} {b[c]} {d} {'a': 1} {{a}}", {"a": 1, "b": {"c": 2}})
    assert said == "1 2 {d} {'a': 1} {1}"


# ---- The notebooks


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D2L_GPU_LANGUAGE", "en")
    return tmp_path


def texts(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def test_students_get_a_notebook_without_outputs_and_solutions(folder, capsys):
    assert cli.main(["variant", "spring, kiwi", "02", "--output", "out"]) == 0
    path = folder / "out/students/02_tensors.ipynb"
    assert path.relative_to(folder).as_posix() in capsys.readouterr().out
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata["d2l_gpu"] == {
        "variant": "ba145998",
        "lesson": "02_tensors",
        "framework": "pytorch",
    }
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert sum("d2l.variant('ba145998')" in cell.source for cell in code) == 1
    text = "\n".join(texts(path))
    assert "B³ + 5 B² + 8 B + 6" in text and "B³ + 2 B² + 3 B + 4" not in text
    assert "def polynomial(B):\n    ..." in text
    assert "/solutions/" not in text and "spring, kiwi" not in path.read_text("utf-8")


def test_the_key_has_what_is_right_in_the_variant(folder):
    cli.main(["variant", "spring, kiwi", "02", "09", "--output", "out"])
    text = "\n".join(texts(folder / "out/key/02_tensors.ipynb"))
    assert "C = B + 5\n    C.mul_(B).add_(8)\n    return C.mul_(B).add_(6)" in text
    solved = texts(folder / "out/key/09_scaling.ipynb")
    assert "images_on_each = 256\n\nd2l.check('09.2', images_on_each)" in solved
    assert "best_number = 128\n\nd2l.check('09.3', best_number)" in solved
    assert not any("min(times, key=times.get)" in cell for cell in solved)
    table = (folder / "out/key/key.md").read_text("utf-8")
    assert "`ba145998`" in table and "`spring, kiwi`" in table
    assert re.search(r"^\| 09.2 \| .*'percent': 97.* \| `256` \|$", table, re.MULTILINE)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.all
def test_a_variant_is_the_same_each_time_it_is_written(folder, language):
    for name in ("one", "two"):
        arguments = ["variant", "a seed", "--language", language, "--output", name]
        assert cli.main(arguments) == 0
    one, two = (
        {p.relative_to(folder / name): p.read_bytes() for p in Path(name).rglob("*.*")}
        for name in (folder / "one", folder / "two")
    )
    assert one == two and len(one) > 20
    for path in (folder / "one").rglob("*.ipynb"):
        nbformat.validate(nbformat.read(path, as_version=4))
        if path.parent.name == "students":
            assert "/solutions/" not in "\n".join(texts(path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a seed", "10"], "nothing varies in 10_surviving; the lessons with variants"),
        (["a seed", "99"], "there is no lesson '99'"),
        ([" ", "02"], "the seed is empty"),
        (["a seed", "--framework", "jax"], "only the lessons with PyTorch"),
        (["a seed", "--framework", "numpy"], "there is no framework 'numpy'"),
    ],
)
def test_wrong_arguments_are_one_sentence(folder, capsys, arguments, message):
    assert cli.main(["variant", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert list(folder.iterdir()) == []


# ---- In the notebook


@pytest.mark.parametrize("name", ["", "3F9A1C72", "3f9a1c7", "3f9a1c722", 1234])
def test_what_is_no_variant_is_one_sentence(name):
    with pytest.raises(ValueError, match="eight digits from 0 to f"):
        d2l.variant(name)


def test_a_wrong_variable_is_one_sentence(monkeypatch):
    monkeypatch.setenv("D2L_GPU_VARIANT", "spring")
    with pytest.raises(ValueError, match="got 'spring'"):
        d2l.check("02.4", sum)


def test_a_notebook_shows_the_exercises_of_its_variant():
    d2l.variant("ba145998")
    assert current("pytorch") == "ba145998" and current("jax") is None
    assert "B³ + 5 B² + 8 B + 6" in specification("pytorch", "02.4", "fr")
    d2l.variant(None)
    assert "B³ + 2 B² + 3 B + 4" in specification("pytorch", "02.4", "fr")


# ---- Verdicts


def value_verdict(exercise: Exercise, value, variant: str | None):
    return grading_process.grade(exercise, from_json(value_as_json(value)), variant)


def all_variants(exercise: Exercise) -> list[str]:
    """Return variants that together draw everything that an exercise can draw."""
    found = {}
    for i in range(300):
        variant = variant_of(f"seed {i}")
        found.setdefault(repr(exercise.drawn(variant)), variant)
    return list(found.values())


def check_values(number: str, variants: list[str]) -> None:
    exercise = EXERCISES[number]
    published = exercise.key(**exercise.drawn(None))
    for variant in variants:
        drawn = exercise.drawn(variant)
        right = value_verdict(exercise, exercise.key(**drawn), variant)
        assert right.all_hold, f"{drawn}\n{right}"
        wrong = value_verdict(exercise, published, variant)
        assert not wrong.all_hold, f"{drawn}\n{wrong}"


@pytest.mark.parametrize("number", ["08.1", "09.3"])
def test_the_published_value_fails_and_that_of_the_key_passes(number):
    check_values(number, all_variants(EXERCISES[number])[:1])
    exercise = EXERCISES[number]
    published = exercise.key(**exercise.drawn(None))
    assert value_verdict(exercise, published, None).all_hold


@pytest.mark.parametrize("number", VALUES)
@pytest.mark.all
def test_no_published_value_passes_in_any_variant(number):
    check_values(number, all_variants(EXERCISES[number]))


def solution(number: str, variant: str):
    """Return the function that solves an exercise, as the key has it."""
    exercise, (_, solved) = EXERCISES[number], cells("en", number)
    namespace = {"__name__": "__main__"}
    exec(
        "import torch\nimport torch.distributed as dist\nfrom torch import nn\n"
        "from torch.nn import functional as F\nfrom d2l_gpu import torch as d2l\n",
        namespace,
    )
    for text in solved:
        text = of_variant(exercise, text, "en", variant)
        if f"def {exercise.name}(" in text:
            own = [
                node
                for node in ast.parse(text).body
                if isinstance(node, ast.FunctionDef) and node.name == exercise.name
            ]
            exec(compile(ast.Module(own, []), "<string>", "exec"), namespace)
    return namespace[exercise.name]


def check_functions(number: str, variant: str) -> None:
    d2l.variant(variant)
    verdict = judge("pytorch", number, solution(number, variant))
    assert verdict.all_hold, str(verdict)


def test_the_key_of_a_function_passes():
    check_functions("02.4", VARIANTS[0])


@pytest.mark.parametrize("number", sized([n for n in CHANGED if n not in VALUES], KEYS))
def test_the_keys_of_all_functions_pass(number):
    for variant in VARIANTS[:2]:
        check_functions(number, variant)


def check_answers(lessons: list[str], variants: list[str]) -> None:
    _, counts, graded = _graded("pytorch", *lessons, "--right", "--variants", *variants)
    for count in counts[1:]:
        graded += _graded(
            "pytorch", *lessons, "--right", f"--gpus={count}", "--variants", *variants
        )[2]
    wrong = [
        f"{each['number']} {each['name']}: {each['text']}"
        for each in graded
        if each["passed"] == (each["number"] in CHANGED)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_right_function_passes_in_variants_that_ask_the_same():
    check_answers([FAST], VARIANTS[:2])


@pytest.mark.parametrize("lesson", sized(LESSONS, [SECOND]))
def test_right_functions_pass_exactly_where_the_same_is_asked(lesson):
    check_answers([lesson], VARIANTS)
