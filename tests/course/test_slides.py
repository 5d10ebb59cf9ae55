"""Slides of a lesson: what they show, what their speaker says, and the command."""

import importlib.util

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from d2l_gpu import cli
from d2l_gpu.course import notebooks_dir
from d2l_gpu.course.slides.deck import deck, live_deck
from d2l_gpu.course.slides.parts import MOST_LINES
from d2l_gpu.course.slides.prose import blocks, is_question, sentences
from d2l_gpu.course.slides.rules import slides_of

AIMS = "*After this lesson you can add. You need 5 minutes.*"
PNG = "iVBORw0KGgoAAAANSUhEUgAABaAAAAMbCAMAAACMo8J2AAAAwFBMVEX////+/v79/f3+/Pz8"


def prose(source, kind=""):
    metadata = {"slideshow": {"slide_type": kind}} if kind else {}
    return new_markdown_cell(source, metadata=metadata)


def code(source, text="", kind="", **metadata):
    if kind:
        metadata["slideshow"] = {"slide_type": kind}
    outputs = [new_output("stream", text=text)] if text else []
    return new_code_cell(source, outputs=outputs, metadata=metadata)


def lesson(*cells):
    return new_notebook(cells=[prose(f"# A toy\n\n{AIMS}"), *cells])


def shown(*cells):
    """The slides after the title, each as title and pairs of kind and text."""
    return [
        (slide.title, [(part.kind, part.text) for part in slide.parts])
        for slide in slides_of(lesson(*cells))[1:]
    ]


def test_a_talk_begins_with_title_and_aims():
    [slide] = slides_of(lesson())
    assert (slide.title, slide.opening) == ("A toy", True)
    assert [part.text for part in slide.parts] == [AIMS.strip("*")]


def test_a_heading_begins_a_slide_with_lead_question_code_and_output():
    long = "We add them now, " + "slowly and carefully, " * 12 + "as we must."
    cells = (
        prose(f"## Adding\n\n{long} It takes a moment. What will 1 + 1 print?"),
        code("print(1 + 1)", "2\n"),
        prose("It printed the sum of both numbers. (Not 11.)\n\n## The end\n\nBye."),
    )
    [adding, end] = slides_of(lesson(*cells))[1:]
    assert [(part.kind, part.click) for part in adding.parts] == [
        ("lead", False),
        ("code", False),
        ("question", True),
        ("output", True),
        ("takeaway", True),
    ]
    texts = {part.kind: part.text for part in adding.parts}
    assert texts["lead"] == long
    assert texts["question"] == "It takes a moment. What will 1 + 1 print?"
    assert texts["takeaway"] == "It printed the sum of both numbers."
    assert adding.notes == [
        f"{long} It takes a moment. What will 1 + 1 print?",
        "It printed the sum of both numbers. (Not 11.)",
    ]
    assert adding.first and end.first
    assert (end.title, [part.text for part in end.parts]) == ("The end", ["Bye."])


@pytest.mark.parametrize(
    "cell",
    [
        code("import torch\nfrom torch import nn\n\ntorch.set_num_threads(1)"),
        code("# For the tests\nassert x", jupyter={"source_hidden": True}),
        code("show(1)", "1", "skip"),
        prose("Only for readers.", "skip"),
    ],
)
def test_setup_tests_and_what_is_skipped_are_left_out(cell):
    assert shown(cell) == []
    assert all(
        "readers" not in note for s in slides_of(lesson(cell)) for note in s.notes
    )


def test_of_folded_code_the_output_is_shown():
    folded = code("draw()", "a table", jupyter={"source_hidden": True})
    silent = code("draw()", "a table", slideshow={"show_code": False})
    for cell in folded, silent:
        assert shown(cell) == [("A toy", [("output", "")])]


def test_types_that_an_author_chose():
    cells = (
        prose("## New\n\nOne sentence. " + "And more. " * 60 + "End.", "slide"),
        prose("On a click.", "fragment"),
        prose("Only said.", "notes"),
        prose("A third slide. With two sentences.", "subslide"),
        code("f()", "done"),
    )
    [new, third] = slides_of(lesson(*cells))[1:]
    assert new.parts[0].text.endswith("End.")
    assert (new.parts[1].text, new.parts[1].click) == ("On a click.", True)
    assert "Only said." in new.notes and "Only said." not in new.parts[0].text
    assert [part.kind for part in third.parts] == ["text", "code", "output"]


def test_exercises_have_a_slide_each_without_the_empty_function():
    cells = (
        new_markdown_cell("## Exercises\n\nEach ends with …", id="exercises"),
        prose("### 01.1 Add\n\nWrite `add`. It adds.\n\n* `a` is a number."),
        code("def add(a, b):\n    ...\n\n\nd2l.check('01.1', add)"),
        prose("### 01.2 Mend\n\nThis is slow."),
        code("def slow():\n    wait()\n\n\nslow()", "3 s"),
    )
    assert shown(*cells) == [
        (
            "01.1 Add",
            [("text", "Write `add`. It adds."), ("list", "* `a` is a number.")],
        ),
        (
            "01.2 Mend",
            [
                ("text", "This is slow."),
                ("code", "def slow():\n    wait()\n\n\nslow()"),
                ("output", ""),
            ],
        ),
    ]


def test_long_code_is_divided_where_something_new_begins():
    functions = [f"def f{i}():\n" + "    step()\n" * 11 for i in range(3)]
    source = "\n\n".join(functions).strip()
    parts = [part for _, parts in shown(code(source, "done")) for part in parts]
    pieces = [text for kind, text in parts if kind == "code"]
    assert [piece.split("(")[0] for piece in pieces] == ["def f0", "def f1", "def f2"]
    assert all(len(piece.split("\n")) <= MOST_LINES for piece in pieces)
    body = "def f():\n" + "\n".join(f"    step({i})" for i in range(50))
    pieces = [text for _, [(_, text)] in shown(code(body))]
    assert "\n".join(pieces) == body
    assert all(len(piece.split("\n")) <= MOST_LINES for piece in pieces)


def test_a_tall_picture_has_the_text_beside_it():
    picture = code("draw()")
    data = {"image/png": PNG, "text/plain": "<Figure: Two lines that cross>"}
    picture.outputs = [new_output("execute_result", data=data)]
    cells = (prose("## Lines\n\nLook."), picture)
    [slide] = slides_of(lesson(*cells))[1:]
    assert [part.kind for part in slide.parts] == ["lead", "code", "output"]
    picture.metadata["slideshow"] = {"show_code": False}
    [slide] = slides_of(lesson(*cells))[1:]
    assert [part.kind for part in slide.parts] == ["lead", "output-beside"]
    said = slide.parts[1].cell.outputs[0].metadata
    assert said["image/png"]["alt"] == "Two lines that cross"


@pytest.mark.parametrize(
    ("paragraph", "number"),
    [
        ("It takes 5.9 µs (in 2020, 7 µs. Or so). `X.to(a)` copies. Done.", 3),
        ("Use e.g. This. See [a. B](https://x.y/z. html). And no more", 3),
        ("Combien ? Le GPU attend. « Bien. » Voilà.", 4),
        ("它拒绝了。否则，程序要付出代价（每一步。都是）。你希望吗？好", 4),
    ],
)
def test_sentences_in_several_languages(paragraph, number):
    found = sentences(paragraph)
    assert len(found) == number
    assert "".join(found).replace(" ", "") == paragraph.replace(" ", "")


def test_questions():
    assert all(map(is_question, ["Why?", "Pourquoi ?", "为什么？", "*How?*"]))
    assert not is_question("Because.")


def test_blocks_of_markdown():
    text = (
        "# A\n\nOne\ntwo\n* x\n* y\n\n  more\n\nThree\n\n```python\n\na\n```\n"
        "> quote\n> more\n\n| a |\n|---|\n\n$$\nx\n\ny\n$$\n\n![a](b)"
    )
    kinds = [block.kind for block in blocks(text)]
    assert kinds == [
        *("heading", "paragraph", "list", "paragraph", "code"),
        *("quote", "table", "formula", "figure"),
    ]
    assert [block.text for block in blocks(text)][2] == "* x\n* y\n\n  more"


def test_a_notebook_for_a_live_talk_has_all_code_once_and_no_outputs():
    path = notebooks_dir("en", "pytorch") / "03_copying.ipynb"
    notebook = nbformat.read(path, as_version=4)
    live = live_deck(notebook)
    nbformat.validate(live)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    code_cells = [cell for cell in live.cells if cell.cell_type == "code"]
    assert [cell.source for cell in code_cells] == sources
    assert not any(cell.outputs for cell in code_cells)
    types = [cell.metadata.slideshow.slide_type for cell in live.cells]
    assert types[0] == "slide" and {"subslide", "fragment", "notes", "skip"} < {*types}


def test_slides_of_every_edition_have_all_that_they_show():
    for language in "en", "fr", "pt", "zh":
        path = notebooks_dir(language, "jax") / "03_copying.ipynb"
        cells = deck(nbformat.read(path, as_version=4)).cells
        notes = [cell for cell in cells if "notes" in cell.metadata.tags]
        assert len(cells) > 60 and len(notes) > 10


# ------------------------------------------------------------------ the command


def test_the_command_writes_a_page_and_a_notebook(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["slides", "03", "--language", "fr", "--live"]) == 0
    page, live = capsys.readouterr().out.split()
    assert page == "slides/03_copying.slides.html".replace("/", page[6])
    text = (tmp_path / page).read_text("utf-8")
    assert '<html lang="fr">' in text and "<aside" in text
    assert "https://unpkg" not in text and "cdnjs" not in text
    assert 'src="http' not in text and "url(http" not in text
    assert "Permission is hereby granted" in text  # the license of reveal.js
    nbformat.validate(nbformat.read(tmp_path / live, as_version=4))
    assert cli.main(["slides", "copying", "--language", "fr"]) == 0
    assert (tmp_path / page).read_text("utf-8") == text  # nothing depends on chance


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    assert cli.main(["slides", "99", "--language", "en"]) == 2
    assert "there is no lesson '99'" in capsys.readouterr().err
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="2"):
        cli.main(["slides", "03", "--output", str(tmp_path / "file")])
    assert "is a file; name a folder" in capsys.readouterr().err


def test_the_command_needs_no_framework(monkeypatch, tmp_path):
    found = importlib.util.find_spec
    hidden = ("torch", "ipykernel", "jupyterlab", "matplotlib")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: name not in hidden and found(name)
    )
    arguments = ["slides", "00", "--language", "en", "--output", str(tmp_path)]
    assert cli.main(arguments) == 0
