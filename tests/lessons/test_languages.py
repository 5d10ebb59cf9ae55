"""A notebook that speaks a language does so in all that it puts out."""

import html
import json
import re
import tomllib
from copy import deepcopy

import nbformat
import pytest

from d2l_gpu.common.messages import FIELD, FOLDER, Catalogue, plain, read_mo
from d2l_gpu.course.kernel import run_cells
from tests.helpers.paths import REPOSITORY
from tools.agreement import disagreements
from tools.edition import Project, editions
from tools.languages import ENGLISH
from tools.messages import compiled, outputs_of_cell, pairs
from tools.notebook import read_notebook

PROJECT = Project(REPOSITORY)
SPEAKING = [each for each in editions(PROJECT) if each.speaks]

# Words of English sentences that the other languages don't have.
ENGLISH_WORDS = re.compile(
    r"\b(the|this|that|and|with|without|is|are|was|were|not|of|for|your|you|it|has|have"
    r"|each|which|from|how|times|simulated|took|takes)\b"
)

# What stays English, beside names: errors of the frameworks, and those that virtual
# GPUs raise in their place; what a network writes; a script for Slurm.
FOREIGN = re.compile(
    r"Expected all tensors|out of memory|total capacity|GiB of which|memory in use"
    r"|allocated by|unallocated|Tried to allocate|\(?Simulated memory|of a virtual GPU"
    r"|deserialize|map_location|is_available\(\)|device_count\(\)|storages to"
    r"|Tensors of the same index|leaf Variable|reads a copy|copies\.$|for example with"
    r"|Timed out|mismatch between collectives|would wait for ever|monitoredBarrier"
    r"|does not exist: this process|^Alice [a-z]|weight is on|allowed global|"
    r"^wait \$!|Largest: |"
    # of JAX
    r"Unknown backend|Array has been deleted|incompatible devices for|Sharding spec|"
    r"Contracting dimensions|output values are meant to be replicated|"
    # of TensorFlow
    r"OOM when allocating|conflicting devices|input #0 was expected to be on|"
    # of MXNet, and of its helper
    r"larger than 2\^31 elements|is non-convertible|initialization was deferred|"
    r"was not initialized on context|Cannot differentiate node|has not been updated|"
    r"GPUs are counted from 0|holds no parameters|holds the parameters of another"
)


def lines_of(notebook) -> list[str]:
    return [
        line
        for cell in notebook.cells
        if cell.cell_type == "code"
        for text in outputs_of_cell(cell)
        for line in text.splitlines()
    ]


def shown_in_pictures(notebook) -> list[str]:
    """Return what is written in a notebook's pictures, seen or said, with tooltips."""
    return [
        html.unescape(text)
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        for texts in (
            re.findall(
                r"<(?:text|title|desc)\b[^>]*>([^<]+)<",
                output.get("data", {}).get("image/svg+xml", ""),
            ),
            [
                about["alt"]
                for about in output.get("metadata", {}).values()
                if isinstance(about, dict) and "alt" in about
            ],
        )
        for text in texts
    ]


def test_the_web_page_finds_what_each_lesson_is_for():
    path = REPOSITORY / "tools/site/landing/texts.toml"
    texts = tomllib.loads(path.read_text("utf-8"))
    for each in editions(PROJECT):
        if each.framework == "pytorch" and not each.solutions:
            text = read_notebook(each.path).cells[0].source.replace("*", "")
            line = re.sub("[ \n]+", " ", text)
            assert re.search(texts[each.language]["aims"], line), each.label


def test_all_that_is_translated_speaks_its_language():
    translated = [each for each in editions(PROJECT) if each.language != ENGLISH]
    assert [each.label for each in translated if not each.speaks] == []
    assert {each.language for each in SPEAKING} == set(PROJECT.translations)


@pytest.mark.parametrize("language", PROJECT.translations)
def test_a_message_is_told_as_it_is_translated(language):
    """Also one that stays English while its parts don't."""
    translation = PROJECT.catalogues[language]
    content = compiled(translation)
    assert (FOLDER / f"{language}.mo").read_bytes() == content
    catalogue = Catalogue(read_mo(content))
    wrong = [
        (english, told)
        for english, its in pairs(translation)
        if not FIELD.search(english)
        and (told := catalogue.localized(english)).split() != plain(its).split()
    ]
    # Only what drawings say isn't compiled, since the build draws them.
    drawn = {x.text for x in translation.wanted if x.places[0].endswith(".svg")}
    assert [pair for pair in wrong if pair[0] not in drawn] == []


@pytest.mark.parametrize("edition", SPEAKING, ids=lambda each: each.label)
def test_no_english_sentence_is_left(edition):
    notebook = read_notebook(edition.path)
    code = "".join(cell.source for cell in notebook.cells)
    names = (PROJECT.lessons / "locale" / "names.txt").read_text("utf-8").splitlines()
    left = [
        line
        for line in lines_of(notebook)
        if len(ENGLISH_WORDS.findall(line)) > 1
        and not FOREIGN.search(line)
        and line.strip() not in code
        and not any(name and name in line for name in names)
    ]
    assert left == []
    pictures = shown_in_pictures(notebook)
    assert [text for text in pictures if ENGLISH_WORDS.search(text)] == []


@pytest.mark.parametrize("language", PROJECT.translations)
def test_a_wrong_answer_is_told_what_is_wrong_in_the_language(
    language, tmp_path, monkeypatch
):
    """Whatever language the system has: the notebook says which is the reader's."""
    for name in "LANGUAGE", "LC_ALL", "LANG", "D2L_GPU_LANGUAGE":
        monkeypatch.setenv(name, "en_US.UTF-8" if name == "LANG" else "")
    notebook = nbformat.read(
        REPOSITORY / f"notebooks/{language}/pytorch/03_copying.ipynb", as_version=4
    )
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    wrong = nbformat.v4.new_code_cell(
        "def total(a, b, c, device):\n"
        "    return a.to(device) + b.to(device) + c.to(device)\n\n\n"
        "d2l.check('03.1', total)"
    )
    notebook.cells = [*code[:2], wrong]
    run_cells(notebook, tmp_path, timeout=300)
    (said,) = outputs_of_cell(wrong)
    catalogue = dict(pairs(PROJECT.catalogues[language]))
    assert catalogue["nothing is copied unnecessarily"] in said
    assert catalogue["Hint: {said}"].format(said="") in said
    assert not ENGLISH_WORDS.search(said), said


def test_outputs_that_lag_behind_are_told():
    (edition,) = (
        each
        for each in SPEAKING
        if each.label == "notebooks/fr/pytorch/03_copying.ipynb"
    )
    english = read_notebook(edition.path_in(ENGLISH))
    notebook = read_notebook(edition.path)
    catalogue = PROJECT.catalogues["fr"]
    assert list(disagreements(english, notebook, catalogue)) == []
    # As if a translation had changed since, or a value in English.
    changed = deepcopy(catalogue)
    changed.entry("the same tensor:").msgstr += " ainsi"
    (problem,) = disagreements(english, notebook, changed)
    assert "the same tensor:" in problem and "ainsi" in problem
    text = json.dumps(english, ensure_ascii=False).replace("381 µs", "382 µs")
    problems = list(disagreements(nbformat.reads(text, 4), notebook, catalogue))
    assert problems
    assert all("other numbers than in English" in problem for problem in problems)
