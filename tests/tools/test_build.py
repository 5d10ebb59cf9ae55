"""The build accepts good lessons, refuses bad ones, and notices stale notebooks."""

import base64
import io
import re
import sys
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_output
from PIL import Image

from d2l_gpu.common.frameworks import Framework
from tests.helpers.toy_lessons import (
    FRONT_MATTER,
    GOOD_LESSON,
    draw_figure,
    write_lesson,
)
from tools import edition, readme
from tools.build import main
from tools.check import edition_problems
from tools.edition import Project, editions
from tools.lesson import LessonError, asserts, parse_lesson, read_lesson
from tools.notebook import canonical, cells_by_id
from tools.outputs import keep_equal_pictures

BUILT = Path("notebooks/en/pytorch/01_toy.ipynb")


def build(project: Path, *arguments: str) -> int:
    return main(["--root", str(project), *arguments])


def prose(text: str) -> str:
    """Return the good lesson with this text in place of its summary's."""
    assert "One and one is two." in GOOD_LESSON
    return GOOD_LESSON.replace("One and one is two.", text)


def code(source: str, tags: str = "[]") -> str:
    """Return the good lesson with this as its second code cell, called multiply."""
    assert "2 * 3\n" in GOOD_LESSON
    return GOOD_LESSON.replace(
        "2 * 3\n", f":key: multiply\n:tags: {tags}\n\n{source}\n"
    )


def begins(cells: dict, words: str) -> str:
    """Return the id of the only cell whose id begins with some words and a hash."""
    (found,) = [key for key in cells if re.fullmatch(rf"{words}-[0-9a-f]{{8}}", key)]
    return found


def test_good_lesson_has_the_cells_of_its_source(project):
    assert build(project) == 0
    cells = cells_by_id(nbformat.read(project / BUILT, as_version=4))
    title, key, product, summary, last = cells
    assert (key, last) == ("add", "exercises")
    assert title == begins(cells, "a-toy-you-will")
    assert product == begins(cells, "2-3")
    assert summary == begins(cells, "summary-one-and-one")
    assert cells["add"].execution_count == 1
    assert [output.output_type for output in cells["add"].outputs] == [
        "stream",
        "execute_result",
    ]
    assert cells[product].outputs[0].data == {"text/plain": "6"}


def ids(text: str) -> list[str]:
    return [cell.id for cell in parse_lesson(text, Path("pytorch/01_toy.md")).cells]


def test_a_cell_keeps_its_id_whatever_changes_elsewhere():
    before = ids(GOOD_LESSON)
    more = "```{code-cell} ipython3\nnew = 1\n```\n\nAnd new prose.\n\n"
    first = "```{code-cell} ipython3\n:key: add"
    now = ids(GOOD_LESSON.replace(first, more + first))
    assert [each for each in now if each in before] == before
    assert len(now) == len(set(now)) == len(before) + 2
    edited = ids(GOOD_LESSON.replace("is two", "makes two"))
    assert [a == b for a, b in zip(before, edited, strict=True)].count(False) == 1


def test_cells_that_are_equal_have_ids_of_their_own():
    cell = "```{code-cell} ipython3\n2 * 3\n```\n"
    assert cell in GOOD_LESSON
    found = ids(GOOD_LESSON.replace(cell, 3 * (cell + "\n")))
    assert len(set(found)) == len(found) == len(ids(GOOD_LESSON)) + 2
    assert [each for each in found if each.startswith("2-3-")] == [
        f"{ids(GOOD_LESSON)[2]}{number}" for number in ("", "-2", "-3")
    ]


def test_notebook_names_no_version_but_the_format(project):
    build(project)
    metadata = nbformat.read(project / BUILT, as_version=4).metadata
    assert metadata.kernelspec.name == "python3"
    assert "jupytext" not in metadata
    assert "version" not in str(metadata)


@pytest.mark.all
def test_building_twice_gives_the_same_bytes(project):
    build(project)
    first = (project / BUILT).read_bytes()
    (project / BUILT).unlink()
    build(project)
    assert (project / BUILT).read_bytes() == first
    assert first.endswith(b"}\n")


def test_built_notebook_is_up_to_date(project, capsys):
    build(project)
    assert build(project, "--check") == 0


def test_new_prose_executes_nothing_and_takes_no_new_code(project, capsys, monkeypatch):
    assert build(project, "--prose") == 1
    assert "01_toy.ipynb: build it first, without --prose" in capsys.readouterr().err
    build(project)
    before = cells_by_id(nbformat.read(project / BUILT, as_version=4))
    monkeypatch.setattr("tools.build.run_cells", None)
    write_lesson(project, prose("One and one makes two."))
    assert build(project, "--prose") == 0
    now = cells_by_id(nbformat.read(project / BUILT, as_version=4))
    assert now[begins(now, "summary-one-and-one")].source.endswith("makes two.")
    assert before.keys() - now.keys() == {begins(before, "summary-one-and-one")}
    assert all(now[key] == before[key] for key in now.keys() & before.keys())
    assert build(project, "--check") == 0
    text = (project / BUILT).read_bytes()
    cell = "```{code-cell} ipython3\n2 * 3\n```\n\n"
    more = GOOD_LESSON.replace(cell, cell + cell.replace("2 * 3", "1"))
    for lesson in GOOD_LESSON.replace("2 * 3", "2 * 4"), more:
        write_lesson(project, lesson)
        assert build(project, "--prose") == 1
        assert "code has changed; build without --prose" in capsys.readouterr().err
    assert (project / BUILT).read_bytes() == text


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        pytest.param(
            GOOD_LESSON.replace('"exercises"', '"add"'),
            r"pytorch/01_toy\.md:\d+: the key 'add' is taken by the cell at 14",
            id="duplicate key",
        ),
        pytest.param(
            GOOD_LESSON.replace(":key: add", ":key: Add_up"),
            "'Add_up' is not in kebab-case",
            id="malformed key",
        ),
        pytest.param(
            GOOD_LESSON.replace(":key: add", f":key: {'a' * 65}"),
            "longer than 64",
            id="key too long for a cell id",
        ),
        pytest.param(
            GOOD_LESSON.replace(":key: add", ":key: add\n:name: x"),
            "metadata 'name'",
            id="unknown metadata",
        ),
        pytest.param(code("2", "[setpu]"), "tag 'setpu' is not", id="misspelt tag"),
        pytest.param(code("2", "setup"), "'setup' is not of type", id="no list"),
        pytest.param(code("2", "[approx-51]"), "the maximum, 50 %", id="too loose"),
        pytest.param(code("2", "[approx-x]"), "tag 'approx-x' is not", id="how loose"),
        pytest.param(code("2", "[notes]"), "tag 'notes' is not", id="code in notes"),
        pytest.param(code("2", "[slide, skip]"), "slide, skip, a cell", id="two types"),
        pytest.param(
            code("assert n", "[approx, timing]"), "only one may say", id="two tags"
        ),
        pytest.param(
            code("2", "[raises-exception]"),
            "catch the error and print it",
            id="raises-exception",
        ),
        pytest.param(
            code("2", "[timing]"),
            r"cell multiply: its output is not compared \(timing\)",
            id="ignored output without assertion",
        ),
        pytest.param(
            code("assert True", "[random]"),
            "nor the next code cell asserts",
            id="assertion that cannot fail",
        ),
        pytest.param(
            code("# NBVAL_IGNORE_OUTPUT\n2"), "an NBVAL comment", id="nbval comment"
        ),
        pytest.param(code("x = '" + 80 * "a" + "'"), "86 columns", id="long code line"),
        pytest.param(code("2 * 3;\n"), "trailing semicolon", id="semicolon"),
        pytest.param(code("#@tab pytorch\n2"), "book markup", id="book tab"),
        pytest.param(code(""), "the code cell is empty", id="empty code cell"),
        pytest.param(prose("![a](img/a.svg)"), "image img/a.svg", id="other image"),
        pytest.param(
            prose("![a](figures/boxes.svg)"), "image figures/boxes", id="not from here"
        ),
        pytest.param(
            prose("![a](https://example.org/a.png)"), "missing offline", id="web image"
        ),
        pytest.param(
            prose('<img src="../figures/a.svg">'), "HTML image", id="html image"
        ),
        pytest.param(prose("[b](02_tensors.ipynb)"), "relative link", id="link"),
        pytest.param(prose("[b][c]\n\n[c]: ../b.md"), "relative link", id="reference"),
        pytest.param(prose('<a href="b.md">b</a>'), "relative link", id="html link"),
        pytest.param(prose("See :numref:`sec_gpu`."), "book markup", id="numref"),
        pytest.param(prose(":label:`sec_gpu`"), "book markup", id="label"),
        pytest.param(prose("[**We copy.**]"), "book markup", id="bracket marks"),
        pytest.param(prose("(**We copy.**)"), "book markup", id="parenthesis marks"),
    ],
)
def test_bad_source_is_refused(project, source, complaint, capsys):
    assert source != GOOD_LESSON
    path = write_lesson(project, source)
    with pytest.raises(LessonError, match=complaint):
        read_lesson(path)
    assert build(project) == 1
    assert re.search(complaint, capsys.readouterr().err)
    assert not (project / BUILT).exists()


def test_assertion_about_an_ignored_output_is_in_the_next_code_cell(project):
    for between, accepted in [("", True), ("print(n)\n", False)]:
        cells = ["n = 2\n", between, "assert n == 2\n"]
        source = GOOD_LESSON
        for number, cell in enumerate(filter(None, cells)):
            tags = "[machine]" if number == 0 else "[]"
            source += (
                f"\n```{{code-cell}} ipython3\n:key: extra-{number}\n"
                f":tags: {tags}\n\n{cell}```\n"
            )
        path = write_lesson(project, source)
        if accepted:
            read_lesson(path)
        else:
            with pytest.raises(LessonError, match="cell extra-0: its output is not"):
                read_lesson(path)


def test_code_in_prose_is_not_taken_for_links_or_markup(project):
    text = "`f(**kwargs)`, `x[i](y)`\n\n```python\nx[0](local) # [**a]\n```"
    read_lesson(write_lesson(project, prose(text)))


def test_links_that_work_anywhere_are_accepted(project):
    text = "[a](https://pytorch.org) and [b](#Summary) and (**kwargs)"
    read_lesson(write_lesson(project, prose(text)))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("assert x > 0", True),
        ("torch.testing.assert_close(x, y)", True),
        ("%matplotlib inline\nassert x", True),
        ("assert True", False),
        ("print('assert x')", False),
        ("assert x >", False),
    ],
)
def test_an_assertion_is_one_that_can_fail(source, expected):
    assert asserts(source) is expected


@pytest.mark.parametrize("reason", ["machine", "timing", "figure", "random"])
def test_reason_becomes_the_tag_of_nbval(project, reason):
    write_lesson(project, code("n = 2\nassert n == 2", f"[{reason}]"))
    build(project)
    cells = cells_by_id(nbformat.read(project / BUILT, as_version=4))
    assert cells["multiply"].metadata.tags == [reason, "nbval-ignore-output"]
    assert "tags" not in cells["add"].metadata


def test_what_slides_show_becomes_metadata_and_keeps_outputs(project):
    write_lesson(project, code("2 * 3"))
    assert build(project) == 0
    shown = code("2 * 3", "[fragment, output-only]")
    split = '+++ {"tags": ["subslide"]}\n\nOne and one is two.'
    write_lesson(project, shown.replace("One and one is two.", split))
    assert build(project, "--prose") == 0
    cells = cells_by_id(nbformat.read(project / BUILT, as_version=4))
    says = {"slide_type": "fragment", "show_code": False}
    assert cells["multiply"].metadata == {"slideshow": says}
    assert cells["multiply"].outputs
    types = [cell.metadata.get("slideshow") for cell in cells.values()]
    assert types.count({"slide_type": "subslide"}) == 1


def test_a_tolerance_stays_a_tag_of_its_cell(project):
    write_lesson(project, code("2 * 3", "[setup, approx-20]"))
    build(project)
    cells = cells_by_id(nbformat.read(project / BUILT, as_version=4))
    assert cells["multiply"].metadata.tags == ["approx-20"]


def test_the_readme_lists_lessons_by_what_their_first_cells_say(project):
    marks = [readme.BEGIN, readme.END, readme.BEGIN_LESSONS, readme.END_LESSONS]
    (project / "README.md").write_text("\n".join([*marks, ""]))
    write_lesson(project, GOOD_LESSON, framework="jax")
    assert build(project, "--prose") == 1  # nothing has been executed yet
    assert build(project) == 0
    row = "| 01 | [A toy](notebooks/en/pytorch/01_toy.ipynb) | add | 5 | PyTorch, JAX |"
    assert row in (project / "README.md").read_text().splitlines()
    assert build(project, "--check") == 0


def test_the_page_about_the_notebooks_says_how_they_are_compared(project, capsys):
    (project / "README.md").write_text(f"{readme.BEGIN}\n{readme.END}\n")
    write_lesson(project, code("2 * 3", "[approx]"))
    assert build(project) == 0
    page = project / "notebooks" / "README.md"
    assert "| pytorch | 1 | 1 | 0 |  | 100.0 % |" in page.read_text()
    assert build(project, "--check") == 0
    page.write_text("")
    assert build(project, "--check") == 1
    assert "notebooks/README.md: it does not match" in capsys.readouterr().out


def test_hidden_cell_is_folded_where_that_is_known(project):
    write_lesson(project, code("2 * 3", "[hide-input]"))
    build(project)
    cells = cells_by_id(nbformat.read(project / BUILT, as_version=4))
    assert cells["multiply"].metadata == {
        "jupyter": {"source_hidden": True},  # JupyterLab
        "cellView": "form",  # Colab, with a line `# @title`
    }
    assert cells["add"].metadata == {}


def test_every_framework_has_a_lesson_of_its_own_under_the_same_name(project):
    write_lesson(project, GOOD_LESSON.replace("1 + 1", "jnp.ones(2)"), framework="jax")
    labels = {edition.framework.tag: edition for edition in editions(Project(project))}
    assert list(labels) == ["pytorch", "jax"]
    assert labels["jax"].path == project / "notebooks/en/jax/01_toy.ipynb"
    assert "jnp.ones(2)" in labels["jax"].lesson.cells[1].source


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["jax/01"], ["jax/01_toy"]),
        (["lessons/jax/01_toy.md"], ["jax/01_toy"]),
        (["notebooks/en/jax/01_toy.ipynb"], ["jax/01_toy"]),
        (["toy"], ["pytorch/01_toy", "jax/01_toy"]),
        (["jax/01", "more"], ["jax/01_toy", "pytorch/02_more"]),
        ([], ["pytorch/01_toy", "jax/01_toy", "pytorch/02_more"]),
    ],
)
def test_lessons_are_named_for_all_frameworks_or_for_one(project, names, labels):
    write_lesson(project, GOOD_LESSON, framework="jax")
    write_lesson(project, GOOD_LESSON, "02_more")
    read = Project(project).read(names)
    assert [lesson.label for lesson in read] == [f"{label}.md" for label in labels]


def test_lesson_that_a_framework_does_not_have_is_told(project):
    write_lesson(project, GOOD_LESSON, "02_more", framework="jax")
    with pytest.raises(
        ValueError, match="no lesson 'jax/01'; the lessons are: 02_more"
    ):
        Project(project).read(["jax/01"])


TOY_HELPER = """\
def gpu(i=0):
    return f"toy:{i}"
"""
HEADER = """\
+++ {"key": "header-frameworks"}

Also with ${others}.

+++ {"key": "header-alone"}

With ${title} only.
"""


@pytest.mark.all
def test_fifth_framework_is_a_row_a_helper_and_cells_and_nothing_else(
    project, tmp_path, monkeypatch, capsys
):
    """From these alone: notebook, links both ways, README, checks."""
    cell = "from toy import gpu\n\nprint(gpu(1))\n"
    write_lesson(project, GOOD_LESSON.replace("2 * 3\n", cell), framework="toy")
    (project / "lessons" / "header.md").write_text(FRONT_MATTER + HEADER)
    (project / "README.md").write_text(f"{readme.BEGIN}\n{readme.END}\n")
    assert build(project) == 1
    said = capsys.readouterr().err
    assert "toy/01_toy.md: there is no framework 'toy'; the frameworks are: py" in said

    known = edition.FRAMEWORKS
    toy = Framework("toy", "Toy", "fractions")
    monkeypatch.setattr(edition, "FRAMEWORKS", (*known, toy))
    (tmp_path / "helper").mkdir()
    (tmp_path / "helper" / "toy.py").write_text(TOY_HELPER, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "helper"))
    assert build(project) == 0
    built = project / "notebooks/en/toy/01_toy.ipynb"
    cells = cells_by_id(nbformat.read(built, as_version=4))
    assert cells[begins(cells, "from-toy-import-gpu")].outputs[0].text == "toy:1\n"
    assert "Also with [PyTorch](https://" in cells["header-frameworks"].source
    cells = cells_by_id(nbformat.read(project / BUILT, as_version=4))
    assert "/notebooks/en/toy/01_toy.ipynb)" in cells["header-frameworks"].source
    table = (project / "README.md").read_text("utf-8")
    assert "<summary>Toy</summary>" in table
    assert "](notebooks/en/toy/01_toy.ipynb)" in table
    assert build(project, "--check") == 0
    assert build(project, "--check", "--framework", "toy") == 0
    assert list(edition_problems([built])) == []

    toy = replace(toy, module="not_there")
    monkeypatch.setattr(edition, "FRAMEWORKS", (*known, toy))
    assert build(project) == 0
    assert "left out: Toy is not installed" in capsys.readouterr().err
    assert build(project, "01", "--framework", "toy") == 1
    assert "Toy is not installed: pip install" in capsys.readouterr().err


def test_unknown_framework_is_an_error_that_lists_the_known(project, capsys):
    assert build(project, "--framework", "theano") == 1
    assert "'theano'; the frameworks are: pytorch, " in capsys.readouterr().err


def test_framework_without_content_is_an_error(project, capsys):
    assert build(project, "--framework", "mxnet") == 1
    assert "no mxnet lessons" in capsys.readouterr().err


def test_language_without_translation_is_an_error(project, capsys):
    assert build(project, "--language", "fr") == 1
    assert "no translation into 'fr'" in capsys.readouterr().err


def test_unknown_lesson_is_an_error_that_lists_the_known(project, capsys):
    assert build(project, "nonsense") == 1
    assert "'nonsense'; the lessons are: 01_toy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        pytest.param("1 / 0", r" failed(.|\n)*ZeroDivisionError", id="error"),
        pytest.param(
            "import sys\nprint('no', file=sys.stderr)", "on stderr: no", id="stderr"
        ),
        pytest.param(
            "import os\nos.path.abspath('a/b.txt')",
            "absolute path in the output",
            id="absolute path",
        ),
        pytest.param(
            "from IPython.display import SVG\nSVG('<svg></svg>')",
            "SVG output",
            id="svg",
            marks=pytest.mark.all,
        ),
        pytest.param(
            "print('1%', end='\\r')",
            "control characters",
            id="progress bar",
            marks=pytest.mark.all,
        ),
    ],
)
def test_bad_output_is_refused_and_nothing_written(project, source, complaint, capsys):
    build(project)
    before = (project / BUILT).read_bytes()
    write_lesson(project, code(source))
    assert build(project) == 1
    assert re.search(
        rf"pytorch/01_toy\.md: cell multiply.*{complaint}", capsys.readouterr().err
    )
    assert (project / BUILT).read_bytes() == before


def test_simulated_timeline_needs_no_tag(project):
    source = """import torch
from d2l_gpu import torch as d2l
sim = d2l.simulator(1)
torch.ones(2).to(sim.gpu())
sim.timeline(title='A copy')"""
    write_lesson(project, code(source))
    assert build(project) == 0
    assert "image/svg+xml" in (project / BUILT).read_text(encoding="utf-8")


def test_no_notebook_is_written_when_one_of_them_fails(project):
    write_lesson(project, code("1 / 0"), "02_bad")
    assert build(project) == 1
    assert not (project / "notebooks").exists()


def test_figure_is_embedded_and_changes_with_its_drawing(project, capsys):
    build(project)
    cell = nbformat.read(project / BUILT, as_version=4).cells[0]
    picture = re.search(
        r"!\[Two boxes\]\(data:image/png;base64,([^)]+)\)", cell.source
    ).group(1)
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        assert image.size == (40, 20)
        assert image.convert("RGB").getpixel((10, 10)) == (255, 0, 0)
    draw_figure(project, "blue")
    assert build(project, "--check") == 1
    said = capsys.readouterr().out
    assert re.search(r"cell a-toy-you-will-\w+ has another source", said)
    build(project)
    assert build(project, "--check") == 0


def test_checking_needs_no_renderer_for_unchanged_figures(project, monkeypatch):
    build(project)
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    assert build(project, "--check") == 0


def test_missing_figure_is_an_error(project, capsys):
    (project / "lessons/figures/boxes.svg").unlink()
    assert build(project) == 1
    assert "boxes.svg" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        pytest.param(("1 + 1", "1 + 2"), "cell add has another source", id="code"),
        pytest.param(
            ("is two", "is 2"), r"cell summary-\S+ is new in the source", id="prose"
        ),
        pytest.param(
            (":key: add", ":key: plus"), "cell plus is new in the source", id="key"
        ),
    ],
)
def test_changed_source_makes_the_notebook_stale(project, change, difference, capsys):
    build(project)
    before = (project / BUILT).read_bytes()
    write_lesson(project, GOOD_LESSON.replace(*change))
    assert build(project, "--check") == 1
    captured = capsys.readouterr()
    assert re.search(f"{BUILT}: {difference}", captured.out)
    assert "python -m tools.build" in captured.err
    assert (project / BUILT).read_bytes() == before


def test_notebook_never_built_is_stale(project, capsys):
    assert build(project, "--check") == 1
    assert f"{BUILT}: the notebook has not been built" in capsys.readouterr().out
    assert not (project / BUILT).exists()


def test_notebook_without_a_lesson_is_stale(project, capsys):
    build(project)
    write_lesson(project, GOOD_LESSON, "02_toy")
    (project / "lessons/pytorch/01_toy.md").unlink()
    assert build(project, "--check") == 1
    assert f"{BUILT}: no lesson makes it" in capsys.readouterr().out


@pytest.mark.parametrize("language", [[], ["--language", "en"]])
def test_only_translations_are_built_where_stale(project, capsys, language):
    with pytest.raises(SystemExit) as ended:
        build(project, "--stale", *language)
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("--stale needs --language with a translation, such as fr")
    assert not (project / BUILT).exists()


def test_edited_notebook_is_stale(project, capsys):
    build(project)
    text = (project / BUILT).read_text()
    for old, new, difference in [
        ('"id": "add"', '"id": "0f3a9c21"', "cell 0f3a9c21 is gone from the source"),
        ('"name": "python3"', '"name": "conda_p36"', "other metadata"),
        (' "cells": [', '  "cells": [', "formatted differently"),
        ('"metadata": {},', '"metadata": {"x": 1},', "has another metadata"),
    ]:
        assert old in text
        (project / BUILT).write_text(text.replace(old, new, 1))
        assert build(project, "--check") == 1
        assert difference in capsys.readouterr().out


@pytest.mark.all
def test_building_resolves_a_notebook_with_conflicts(project, capsys):
    build(project)
    text = (project / BUILT).read_text()
    (project / BUILT).write_text("<<<<<<< HEAD\n" + text)
    assert build(project, "--check") == 1
    assert "the file is not a notebook" in capsys.readouterr().out
    assert build(project) == 0
    assert (project / BUILT).read_text() == text


def picture(colour: str, level: int):
    buffer = io.BytesIO()
    image = Image.new("RGB", (64, 64), colour)
    image.putpixel((3, 3), (1, 2, 3))
    image.save(buffer, "PNG", compress_level=level)
    data = base64.b64encode(buffer.getvalue()).decode()
    return new_output("display_data", data={"image/png": data})


@pytest.mark.parametrize(("colour", "kept"), [("red", True), ("green", False)])
def test_committed_picture_is_kept_when_its_pixels_are_equal(colour, kept):
    committed, new = picture("red", 9), picture(colour, 0)
    bytes_before = committed.data["image/png"]
    assert new.data["image/png"] != bytes_before
    keep_equal_pictures([new], [committed])
    assert (new.data["image/png"] == bytes_before) is kept


def test_building_keeps_a_committed_picture_of_the_same_pixels(project):
    write_lesson(
        project,
        code(
            "from PIL import Image\n"
            "from IPython.display import display\n\n"
            "display(Image.new('RGB', (64, 64), 'red'))"
        ),
    )
    build(project)
    notebook = nbformat.read(project / BUILT, as_version=4)
    data = cells_by_id(notebook)["multiply"].outputs[0].data
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(buffer, "PNG", compress_level=0)
    data["image/png"] = base64.b64encode(buffer.getvalue()).decode()
    committed = canonical(notebook)
    assert committed != (project / BUILT).read_text()
    (project / BUILT).write_text(committed)
    assert build(project) == 0
    assert (project / BUILT).read_text() == committed


def test_the_picture_of_the_readme_is_drawn(tmp_path, monkeypatch, capsys):
    from tools import overview

    monkeypatch.setattr(overview, "TARGET", tmp_path / "overview.png")
    monkeypatch.setattr(overview, "GPUS", [1, 2])
    overview.main()
    assert (tmp_path / "overview.png").read_bytes().startswith(b"\x89PNG")
    assert "ms (simulated)" in capsys.readouterr().out


# ---- Exercises and their solutions

EXERCISE = """\
+++ {"key": "exercise-1"}

### 01.1 Add

Write `add`.

```{code-cell} ipython3
:key: exercise-1-stub
:tags: [stub]

def add(): ...
print(add())
```

+++ {"key": "exercise-1-solution", "tags": ["solution"]}

As in the lesson.

```{code-cell} ipython3
:key: exercise-1-answer
:tags: [solution]

def add():
    return one + 1
print(add())
```
"""
SOLVED = Path("notebooks/en/pytorch/solutions/01_toy.ipynb")


@pytest.fixture
def with_exercise(project):
    """A project whose lesson has an exercise, which needs the lesson's first cell."""
    lesson = GOOD_LESSON.replace(":key: add\n", ":key: add\n:tags: [setup]\n")
    lesson = lesson.replace('print("one")', "one = 1")
    head, _, _ = lesson.partition('+++ {"key": "exercises"}')
    write_lesson(project, head + EXERCISE)
    header = [
        FRONT_MATTER + '+++ {"key": "setup"}\n\nSetup.',
        '+++ {"key": "exercises"}\n\n## Exercises\n\n[S](https://${solutions})',
        '+++ {"key": "solutions-title"}\n\n# Of ${lesson_title}\n\n[L](${lesson})',
        '+++ {"key": "solution-mark"}\n\n**So**\n',
    ]
    (project / "lessons" / "header.md").write_text("\n\n".join(header))
    return project


def test_lesson_has_stubs_and_solutions_are_a_notebook_of_their_own(with_exercise):
    assert build(with_exercise) == 0
    lesson = cells_by_id(nbformat.read(with_exercise / BUILT, as_version=4))
    solutions = cells_by_id(nbformat.read(with_exercise / SOLVED, as_version=4))
    shared = ["exercise-1", "exercise-1-stub"]
    assert list(lesson)[1:3] == ["setup", "add"]
    assert list(lesson)[5:] == ["exercises", *shared]
    answer = ["exercise-1", "exercise-1-solution", "exercise-1-answer"]
    assert list(solutions) == ["solutions-title", "setup", "add", *answer]
    assert solutions["exercise-1-solution"].source == "**So**\n\nAs in the lesson."
    assert lesson["exercise-1-stub"].outputs[0].text == "None\n"
    assert solutions["exercise-1-answer"].outputs[0].text == "2\n"
    assert solutions["solutions-title"].source.startswith("# Of A toy\n")
    assert f"/{SOLVED.as_posix()}" in lesson["exercises"].source
    assert f"/{BUILT.as_posix()}" in solutions["solutions-title"].source
    assert build(with_exercise, "--check") == 0


@pytest.mark.all
def test_solutions_that_no_lesson_makes_are_stale(with_exercise, capsys):
    build(with_exercise)
    write_lesson(with_exercise, GOOD_LESSON)
    (with_exercise / "lessons" / "header.md").unlink()
    build(with_exercise, "toy")
    capsys.readouterr()
    assert build(with_exercise, "--check") == 1
    said = capsys.readouterr().out
    assert f"{SOLVED.as_posix()}: no lesson makes it; delete it" in said


def test_the_readme_links_to_solutions(with_exercise):
    readme_file = with_exercise / "README.md"
    readme_file.write_text(f"# A\n\n{readme.BEGIN}\n{readme.END}\n")
    build(with_exercise)
    assert f"| [solutions]({SOLVED.as_posix()}) |" in readme_file.read_text()


def test_prose_is_no_stub_and_needs_no_setup(project):
    for tag in "stub", "setup", "timing":
        text = GOOD_LESSON.replace('"exercises"', f'"exercises", "tags": ["{tag}"]')
        with pytest.raises(LessonError, match=f"the tag '{tag}' is not one of"):
            read_lesson(write_lesson(project, text))
