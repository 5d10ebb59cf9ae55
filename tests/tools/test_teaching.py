"""What the pages for teachers say about lessons and commands stays true."""

import json
import math
import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

from d2l_gpu import cli
from tests.helpers.paths import REPOSITORY
from tools import sections

FOLDER = REPOSITORY / "docs" / "teaching"
SYLLABI = [FOLDER / f"{name}.md" for name in ("workshop", "day", "semester")]
SYLLABI = [page for page in SYLLABI if page.is_file()]
NOTES = sorted((FOLDER / "notes").glob("[0-9]*.md"))
SCRIPT = FOLDER / "workshop-script.md"
PAGES = [
    *SYLLABI,
    SCRIPT,
    FOLDER / "commands.md",
    *sorted((FOLDER / "notes").glob("*.md")),
]
EDITION = REPOSITORY / "notebooks" / "en" / "pytorch"

# In code on a page of notes, though not in its lesson: other people's words for it.
NOT_IN_LESSONS = {"d2l.check", "weight.data", "README.md"}


def ids(pages):
    return [page.relative_to(FOLDER).as_posix() for page in pages]


every_page = pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
every_syllabus = pytest.mark.parametrize("page", SYLLABI, ids=ids(SYLLABI))


def lessons():
    """The text of each lesson and its solutions, with outputs, by number."""
    found = {}
    for path in sorted(EDITION.glob("[01]*.ipynb")):
        texts = []
        for file in path, EDITION / "solutions" / path.name:
            for cell in json.loads(file.read_text("utf-8"))["cells"]:
                texts.append("".join(cell["source"]))
                for output in cell.get("outputs", []):
                    texts.append("".join(output.get("text", "")))
                    plain = output.get("data", {}).get("text/plain", "")
                    texts.append("".join(plain))
        found[path.stem[:2]] = "\n".join(texts)
    return found


LESSONS = lessons()
EXERCISES = {
    number
    for text in LESSONS.values()
    for number in re.findall(r"(?m)^### (\d\d\.\d)", text)
}


def without_code(text):
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(text):
    """The anchors that GitHub gives the headings of a Markdown file."""
    headings = re.findall(r"(?m)^#+ (.*)$", without_code(text))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


@every_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text("utf-8")), target


@every_page
def test_exercises_exist_and_are_in_bold(page):
    text = without_code(page.read_text("utf-8"))
    named = re.findall(r"\*\*(\d\d\.\d)\*\*", text)
    assert set(named) <= EXERCISES
    plain = re.findall(r"(?<![\d*.,])((?:0\d|1[0-7])\.[1-6])(?![\d*%])", text)
    assert not set(plain) & EXERCISES - set(decimals(text))


def decimals(text):
    """Numbers with a unit, such as 17.8 ms, which aren't exercises."""
    units = "ms|GB|GiB|MiB|Python|images|trillion"
    return re.findall(rf"\b(\d\d\.\d)(?= (?:{units}))", text)


@every_page
def test_commands_exist(page, capsys):
    text = page.read_text("utf-8")
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    known = set(re.findall(r"(?m)^    (\w+) ", capsys.readouterr().out))
    assert "doctor" in known
    for name in re.findall(r"(?m)(?:`|^)d2l-gpu ([a-z]+)", text):
        assert name in known, name
    for module in re.findall(r"python -m ([\w.]+)", text):
        path = REPOSITORY / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or path.is_dir(), module


def timetables(text):
    """The rows of each table that has a column of starts and one of minutes."""
    for found in re.finditer(
        r"(?m)^\| Starts \| Minutes \|.*\n\|.*\n((?:\|.*\n)+)", text
    ):
        yield [
            [cell.strip() for cell in row.strip("|").split("|")]
            for row in found[1].splitlines()
        ]


def minutes_of(clock):
    hours, minutes = clock.split(":")
    return 60 * int(hours) + int(minutes)


@every_syllabus
def test_minutes_of_timetables_add_up(page):
    tables = list(timetables(page.read_text("utf-8")))
    assert tables
    for rows in tables:
        for (start, minutes, *_), (following, *_) in pairwise(rows):
            assert minutes_of(start) + int(minutes) == minutes_of(following), start
        assert rows[-1][1:3] == ["", "End"]


def test_a_workshop_takes_90_minutes_and_a_day_380_without_breaks():
    [rows] = timetables((FOLDER / "workshop.md").read_text("utf-8"))
    assert minutes_of(rows[-1][0]) - minutes_of(rows[0][0]) == 90
    text = (FOLDER / "day.md").read_text("utf-8")
    [rows] = timetables(text)
    taught = [
        int(minutes)
        for _, minutes, what, *_ in rows
        if minutes and not re.match("Break|Lunch", what)
    ]
    assert f"That's {sum(taught)} minutes of teaching" in text


def test_the_script_keeps_to_the_timetable_and_to_cells_that_exist():
    [rows] = timetables((FOLDER / "workshop.md").read_text("utf-8"))
    text = SCRIPT.read_text("utf-8")
    assert re.findall(r"(?m)^\| (\d:\d\d) ", text) == [row[0] for row in rows]
    its = "\n".join(LESSONS[number] for number in ("00", "03", "05"))
    for row in re.findall(r"(?m)^\| (?:\d:\d\d)? *\| .*$", text):
        _, _, cell, _, answer, _ = row.split("|")
        for first_line in re.findall(r"`([^`]+)`", cell):
            assert re.search(rf"(?m)^{re.escape(first_line)}", its), first_line
        for code in re.findall(r"`([^`]+)`", answer):
            assert code.partition("(")[0] in its, code


@pytest.mark.parametrize("page", NOTES, ids=ids(NOTES))
def test_what_notes_quote_is_in_the_lesson(page):
    text = page.read_text("utf-8").partition(sections.BEGIN)[0]
    its = " ".join(LESSONS[page.stem].split())
    for code in re.findall(r"`([^`]+)`", text):
        assert code in its or code in NOT_IN_LESSONS, code
    for section in re.findall(r"(?<![*\w])\*([A-Z][^*]+?)\*(?!\*)", text):
        if section in ("Answer:", "Tempting:"):
            continue
        assert section.lower() in its.lower(), section


@pytest.mark.parametrize("page", NOTES, ids=ids(NOTES))
def test_numbers_in_notes_are_in_the_lesson(page):
    """Numbers with a unit, that is; estimates are marked as such."""
    text = page.read_text("utf-8").partition("## When time is short")[0]
    its = LESSONS[page.stem]
    units = "µs|ms|MiB|KiB|GiB|TFLOP/s|bytes"
    for number, unit in re.findall(rf"([\d.,]*\d) ({units})\b", text):
        assert re.search(rf"{re.escape(number)}\D", its), f"{number} {unit}"


def test_every_lesson_has_notes_and_they_name_it():
    index = (FOLDER / "notes" / "README.md").read_text("utf-8")
    for path in sorted(EDITION.glob("[01]*.ipynb")):
        page = sections.page_of(path.stem)
        title = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0]
        title = title.removeprefix("# ")
        assert page.read_text("utf-8").startswith(f"# Lesson {page.stem}: {title}\n"), (
            page
        )
        assert f"| [{page.stem}]({page.name}) | {title} |" in index


def numbers(text):
    """The rows of a table of minutes: section, words, …, minutes."""
    part = text.partition(sections.BEGIN)[2].partition(sections.END)[0]
    return [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in re.findall(r"(?m)^\| .*$", part)[1:]
    ]


def test_tables_of_minutes_fit_the_lessons():
    """To the minute or two; `python -m tools.sections write` makes them exact."""
    for page, wanted in sections.pages():
        found, wanted = numbers(page.read_text("utf-8")), numbers(wanted)
        assert [row[0] for row in found] == [row[0] for row in wanted], page.name
        for old, new in zip(found, wanted, strict=True):
            assert abs(int(old[-1]) - int(new[-1])) <= 1, (page.name, new[0])


def lesson_of(*cells):
    made = []
    for i, (kind, source) in enumerate(cells):
        cell = (
            nbformat.v4.new_markdown_cell(source)
            if kind == "text"
            else nbformat.v4.new_code_cell(source)
        )
        cell.id = f"cell-{i}"
        made.append(cell)
    return nbformat.v4.new_notebook(cells=made)


def test_sections_count_words_code_and_seconds():
    notebook = lesson_of(
        ("text", "# A title\n\nTwo words. [A link](https://example.org)."),
        ("code", "x = 1\ny = 2"),
        ("text", "Before.\n\n## Next\n\n```python\nnot text\n```\n![alt](x.png) One."),
        ("code", "z = 3"),
        ("text", "### 03.1 An exercise"),
    )
    first, second = sections.sections(notebook, {"cell-1": 2.5})
    assert (first.title, first.words, first.lines, first.seconds) == (
        "A title",
        5,
        2,
        2.5,
    )
    assert (second.title, second.lines, second.seconds) == ("Next", 1, None)
    assert second.exercises == ["03.1"]
    assert first.cells == ["cell-1"]


def test_notes_without_marks_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sections, "NOTES", tmp_path)
    (tmp_path / "03.md").write_text("# Lesson 03\n")
    with pytest.raises(ValueError, match=r"03\.md has no lines"):
        list(sections.pages())


def test_the_folder_is_where_tools_expect_it():
    assert Path(sections.NOTES) == FOLDER / "notes"


def weeks():
    """The exercises of each lesson's week in the semester, by the lesson's number."""
    text = (FOLDER / "semester.md").read_text("utf-8")
    for row in re.findall(r"(?m)^\| \d+ \| \[.*$", text):
        for lesson in re.findall(r"\[(\d\d)\]", row):
            yield lesson, set(re.findall(r"\*\*(\d\d\.\d)\*\*", row))


def test_what_notes_plan_for_the_room_and_for_home_is_in_the_semester():
    found = dict(weeks())
    assert sorted(found) == sorted(page.stem for page in NOTES)
    for page in NOTES:
        _, _, text = page.read_text("utf-8").partition("## Live and at home")
        text, _, _ = text.partition("## Minutes")
        named = set(re.findall(r"\*\*(\d\d\.\d)\*\*", text))
        assert named - found[page.stem] <= {"00.1"}, page.name


def test_weeks_with_two_lessons_name_sections_and_fit_into_a_lecture():
    text = (FOLDER / "semester.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| (\d+) \| (\d\d, .*) \| (\d\d, .*) \|$", text)
    assert len(rows) == 5
    for _, *both in rows:
        minutes = [int(re.search(r"(\d+) min", lesson)[1]) for lesson in both]
        assert sum(minutes) == 65
        for lesson in both:
            its = LESSONS[lesson[:2]].lower()
            for section in re.findall(r"\*([^*]+)\*", lesson):
                assert f"# {section.lower()}" in its, section


def test_points_of_projects_and_of_the_assignment_add_up():
    text = (FOLDER / "semester.md").read_text("utf-8")
    for table in re.findall(r"(?m)^\| \| Full points for.*\n\|.*\n((?:\|.*\n)+)", text):
        *points, together = map(int, re.findall(r"(?m)\| (\d+) \|$", table))
        assert sum(points) == together == 20
    assert sum(map(int, re.findall(r"\*\*\((\d+)\)\*\*", text))) == 90


def test_answers_of_the_assignment_are_right():
    text = (FOLDER / "semester.md").read_text("utf-8").partition("### Answers")[2]
    interval = math.sqrt(2 * 60 * 86_400)
    states = [1.3 * (kept + (16 - kept) / 8) for kept in (8, 4, 0)]
    days = 6 * 8.03e9 * 20 * 8.03e9 / (64 * 989e12 * 0.4) / 86_400
    for answer in (
        f"at least {2 * 8192**3 / 66.9e12 * 1e3:.1f} ms",
        f"{16 * 1.3:.1f} GB; {states[0]:.1f}, {states[1]:.2f} and {states[2]:.1f} GB",
        f"{2 * 7 / 8 * 400:.0f} MB, {2 * 7 / 8 * 400 / 15.75:.0f} ms",
        f"each sends {2 * 63 / 64 * 400:.0f} MB",
        f"{30_800 / 4_400:.1f}, {30_800 / 4_400 / 8:.1%}",
        f"{interval / 60:.0f} minutes ({interval:,.0f} s); {120 / interval:.1%}",
        f"3/11, or {3 / 11:.0%}; 3/19, or {3 / 19:.0%}",
        f"{days:.1f} days",
    ):
        assert answer in text, answer
