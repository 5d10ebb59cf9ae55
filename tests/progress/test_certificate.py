"""`d2l-gpu progress` shows what is recorded: as a table, as JSON, and as a page."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from d2l_gpu import cli
from d2l_gpu.progress.record import record
from d2l_gpu.progress.words import WORDS
from tests.helpers.fresh_process import run_without_torch


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Three exercises of PyTorch, two of them first solved on other days."""
    folder = tmp_path / "progress"
    monkeypatch.setenv("D2L_GPU_PROGRESS", str(folder))
    monkeypatch.setenv("D2L_GPU_LANGUAGE", "en")
    monkeypatch.chdir(tmp_path)
    for number, day in (("00.1", "2026-03-01"), ("03.1", "2026-03-09"), ("03.4", "")):
        record("pytorch", number)
        file = folder / f"pytorch/{number}.json"
        fields = json.loads(file.read_text("utf-8"))
        fields["date"] = day or "2026-05-31"
        file.write_text(json.dumps(fields), "utf-8")
    return folder


def test_a_table_counts_the_exercises_of_each_lesson(recorded, capsys):
    assert cli.main(["progress"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^03  Copying between devices +2 of 5$", out, re.MULTILINE)
    assert re.search(r"^04  Models on devices +0 of 6$", out, re.MULTILINE)
    assert re.search(r"^ +3 of \d\d$", out, re.MULTILINE)
    assert "no proof" in out
    assert "JAX" not in out


def test_other_frameworks_are_shown_if_something_is_solved(recorded, capsys):
    record("jax", "03.1")
    cli.main(["progress"])
    out = capsys.readouterr().out
    assert "PyTorch, exercises solved" in out and "JAX, exercises solved" in out
    cli.main(["progress", "--framework", "jax"])
    out = capsys.readouterr().out
    assert "PyTorch" not in out and "1 of 5" in out


def test_nothing_solved_is_a_table_too(recorded, monkeypatch, capsys):
    monkeypatch.setenv("D2L_GPU_PROGRESS", "empty")
    assert cli.main(["progress"]) == 0
    assert re.search(r"^03 .* 0 of 5$", capsys.readouterr().out, re.MULTILINE)


def test_columns_line_up_where_letters_are_wide(recorded, capsys):
    cli.main(["progress", "--language", "zh"])
    rows = re.findall(r"^\d\d .*", capsys.readouterr().out, re.MULTILINE)
    wide = re.compile(r"[\u2e80-\uffef]")
    assert len({len(row) + len(wide.findall(row)) for row in rows}) == 1


def test_json_has_everything(recorded, capsys):
    assert cli.main(["progress", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert "no proof" in content["about"]
    (pytorch,) = content["frameworks"]
    assert pytorch["framework"] == "pytorch" and pytorch["solved"] == 3
    lessons = {each["lesson"]: each for each in pytorch["lessons"]}
    copying = lessons["03_copying"]
    assert copying["exercises"] == ["03.1", "03.2", "03.3", "03.4", "03.5"]
    assert [(each["exercise"], each["date"]) for each in copying["solved"]] == [
        ("03.1", "2026-03-09"),
        ("03.4", "2026-05-31"),
    ]
    every = [number for each in lessons.values() for number in each["exercises"]]
    assert len(every) == len(set(every)) == pytorch["exercises"]


class Page(HTMLParser):
    """Collects the text of a page and its elements; notices what isn't closed."""

    def __init__(self, text: str):
        super().__init__()
        self.words, self.elements, self._open = "", [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("meta",):
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("style", "title"):
            self.words += data


def page(*arguments: str) -> Page:
    assert cli.main(["progress", "--output", "certificate.html", *arguments]) == 0
    return Page(Path("certificate.html").read_text("utf-8"))


@pytest.mark.parametrize("language", WORDS)
def test_the_page_is_in_each_language(recorded, language):
    found = page("--language", language, "--name", "Ana Souza")
    words = WORDS[language]
    assert ("html", {"lang": words.tag}) in found.elements
    assert words.by.format(name="Ana Souza") in found.words
    assert words.about in found.words
    assert words.date("2026-03-01") in found.words
    assert words.lessons.format(some=1, most=20) in found.words
    assert f"03.1: {words.yes}" in found.words and f"03.2: {words.no}" in found.words


@pytest.mark.parametrize(
    ("language", "written"),
    [
        ("en", "1 March 2026"),
        ("fr", "1er mars 2026"),
        ("pt", "1 de março de 2026"),
        ("zh", "2026年3月1日"),
    ],
)
def test_dates_are_written_as_in_the_language(language, written):
    assert WORDS[language].date("2026-03-01") == written


def test_the_page_needs_no_network_and_runs_no_script(recorded):
    page()
    text = Path("certificate.html").read_text("utf-8")
    assert not re.search(r"https?:|url\(|@import|<script|<link|src=", text)


def test_a_name_is_text_whatever_it_contains(recorded):
    name = "<script>alert(1)</script> & {some} \n ‮O’Neil"
    found = page("--name", name)
    assert " ".join(name.split()) in found.words
    assert "script" not in [tag for tag, _ in found.elements]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "Ana"], "--output FILE"),
        (["--framework", "numpy"], "there is no framework 'numpy'"),
        (["--language", "xx"], "there is no edition in 'xx'"),
    ],
)
def test_wrong_arguments_are_one_sentence(recorded, capsys, arguments, message):
    assert cli.main(["progress", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("name", ["certificate.pdf", "."])
def test_the_page_is_an_html_file(recorded, capsys, name):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["progress", "--output", name])
    assert "give one that ends in .html" in capsys.readouterr().err.replace("\n", " ")


def test_a_page_that_cannot_be_written_is_one_sentence(recorded, capsys):
    Path("file").write_text("")
    assert cli.main(["progress", "--output", "file/certificate.html"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("d2l-gpu progress: ") and error.count("\n") == 1


def test_no_framework_is_imported():
    said = run_without_torch(
        """
        import sys
        from d2l_gpu import cli
        cli.main(["progress"])
        print([name for name in ("torch", "jax", "nbformat") if name in sys.modules])
        """
    )
    assert said.splitlines()[-1] == "[]"
