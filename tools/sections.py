"""How long each section of a lesson takes, for the notes for teachers.

    python -m tools.sections measure [lesson ...]    run the cells, and keep their times
    python -m tools.sections write                   put the tables into the notes

`measure` runs PyTorch's lessons in English and keeps the processor time of every cell,
by the cell's name, in ``benchmarks/results/sections.json``. `write` adds it up by
section, counts the words, and puts a table into each page of ``docs/teaching/notes``.
The seconds are those of one machine; nothing is compared with them. Processor time,
that of all threads and of processes that have ended, says the same on a machine that's
busy with other work. Products of matrices use one thread. It leaves out what a cell
waits for, such as a timeout.
"""

import argparse
import datetime
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from d2l_gpu.common.files import write_atomically
from d2l_gpu.course import lesson_names, notebooks_dir, select_lessons
from tools.check import prose_of
from tools.durations import RESULTS as DURATIONS
from tools.durations import hardware
from tools.lesson import aims_and_minutes
from tools.marks import replace_between

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "sections.json"
NOTES = ROOT / "docs" / "teaching" / "notes"
BEGIN, END = "<!-- from tools/sections.py -->", "<!-- end -->"

WORDS_PER_MINUTE = 150

# Cells of every notebook, which aren't read as part of a lesson.
_COMMON = re.compile(r"header|lang|report|exercises$|solution")
_HEADING = re.compile(r"(?m)^## (.*)$")
_NOT_READ = re.compile(r"```.*?```|!?\[([^]]*)\]\([^)]*\)|<[^>]*>", re.DOTALL)


@dataclass
class Section:
    """What lies between two headings of a lesson.

    Attributes:
        title: the heading; the lesson's own title for what comes before the first.
        words: of text, without code.
        lines: of code.
        seconds: of processor time for its cells; None if they haven't been measured.
        exercises: their numbers.
        cells: the names of its code cells.
    """

    title: str
    words: int = 0
    lines: int = 0
    seconds: float | None = None
    exercises: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)

    @property
    def minutes(self) -> float:
        """To read the text and run the cells."""
        return self.words / WORDS_PER_MINUTE + (self.seconds or 0) / 60


def words_in(text: str) -> int:
    """Count the words that somebody reads aloud, without code, pictures and links."""
    return len(_NOT_READ.sub(lambda found: found[1] or " ", text).split())


def sections(notebook: NotebookNode, seconds: dict[str, float]) -> list[Section]:
    """Return the sections of a lesson, in order.

    Args:
        notebook: the lesson.
        seconds: how long cells took, by their names.
    """
    found = [Section("")]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if cell.id in seconds:
                found[-1].seconds = (found[-1].seconds or 0) + seconds[cell.id]
            found[-1].cells.append(cell.id)
            if not cell.metadata.get("jupyter", {}).get("source_hidden"):
                found[-1].lines += len(cell.source.splitlines())
            continue
        before, *parts = _HEADING.split(cell.source)
        if not found[-1].title and before.startswith("# "):
            title, _, before = before.partition("\n")
            found[-1].title = title.removeprefix("# ")
        if not _COMMON.match(cell.id):
            found[-1].words += words_in(before)
        found[-1].exercises += re.findall(r"^### (\w\d\.\d+) ", before, re.MULTILINE)
        for title, text in zip(parts[::2], parts[1::2], strict=True):
            found.append(Section(title.strip(), words_in(text)))
    return found


def table(name: str, notebook: NotebookNode, measured: dict) -> str:
    """Return the Markdown table of a lesson's sections, with a sentence about it."""
    run = measured.get(name, {})
    parts = sections(notebook, run.get("seconds", {}))
    rows = ["| Section | Words | Lines of code | Cells | Minutes |"]
    rows.append("|---|---:|---:|---:|---:|")
    rows += [_row(each) for each in parts if each.words or each.lines]
    read = [each for each in parts if not each.exercises]
    minutes = round(sum(each.minutes for each in read))
    says = aims_and_minutes(prose_of(notebook))[1]
    text = (
        f"Without the exercises, that's {minutes} minutes; the lesson says {says}, "
        "which leaves time for predictions and for reading code."
    )
    if run:
        text += (
            " The cells' seconds are processor time, with one thread, on "
            f"{run['hardware']}, {run['date']}."
        )
    if idle := _idle(name):
        seconds, machine, date = idle
        text += f" Run All took {seconds:.0f} s on {machine}, {date}."
    return "\n".join(rows) + "\n\n" + text


def _idle(name: str) -> tuple[float, str, str] | None:
    """Return how long a lesson's latest run without a GPU took, on what, and when."""
    for run in reversed(json.loads(DURATIONS.read_text("utf-8"))):
        kind = run["framework"], run["gpus"]
        if kind == ("pytorch", 0) and name in run["seconds"]:
            return run["seconds"][name], run["hardware"], run["date"]
    return None


def _row(each: Section) -> str:
    run = "—" if each.seconds is None else f"{each.seconds:.0f} s"
    title = each.title.replace("|", r"\|")
    cells = title, f"{each.words:,}", each.lines, run, f"{each.minutes:.0f}"
    return "| " + " | ".join(map(str, cells)) + " |"


def read_results() -> dict:
    """Return what has been measured, by lesson."""
    return json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}


def lessons() -> Iterator[Path]:
    """Yield the path of each lesson that has a page of notes."""
    edition = notebooks_dir("en", "pytorch")
    for name in lesson_names(edition):
        if page_of(name).is_file():
            yield edition / f"{name}.ipynb"


def page_of(name: str) -> Path:
    """Return the path of the notes on a lesson."""
    return NOTES / f"{name.partition('_')[0]}.md"


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page of notes and what it should contain."""
    measured = read_results()
    for path in lessons():
        page, notebook = page_of(path.stem), nbformat.read(path, as_version=4)
        part = table(path.stem, notebook, measured)
        text = page.read_text("utf-8")
        yield page, replace_between(text, BEGIN, END, part, page.name)


# Run first in the kernel, and last: take note of the processor time of each cell.
_BEFORE = """
import resource as _resource
def _used():
    return [sum(_resource.getrusage(who)[:2]) for who in (
        _resource.RUSAGE_SELF, _resource.RUSAGE_CHILDREN)]
_times = []
def _begin(*_):
    _times.append([sum(_used())])
def _end(*_):
    if _times:
        _times[-1].append(sum(_used()))
_shell = get_ipython()
_shell.events.register('pre_run_cell', _begin)
_shell.events.register('post_run_cell', _end)
"""
_AFTER = "import json; print(json.dumps(_times))"


def seconds_of(path: Path) -> dict[str, float]:
    """Run a lesson in a new kernel; return the processor time of each code cell."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source]
    before, after = (nbformat.v4.new_code_cell(text) for text in (_BEFORE, _AFTER))
    notebook.cells = [before, *notebook.cells, after]
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=900, resources=where).execute()
    times = json.loads(after.outputs[-1]["text"])
    # The cell that registers the callbacks ends, but doesn't begin, with them.
    times = [each for each in times if len(each) == 2]
    return {
        cell.id: round(end - begin, 2)
        for cell, (begin, end) in zip(code, times, strict=True)
    }


def measure(names: Sequence[str]) -> None:
    """Run lessons, and keep how long their cells took."""
    # Threads that wait for each other would count, too, above all on a busy machine.
    os.environ["OMP_NUM_THREADS"] = "1"
    edition = notebooks_dir("en", "pytorch")
    machine, _ = hardware("pytorch")
    for name in select_lessons(names, lesson_names(edition)):
        seconds = seconds_of(edition / f"{name}.ipynb")
        run = {
            "hardware": machine,
            "date": datetime.date.today().isoformat(),
            "seconds": seconds,
        }
        text = json.dumps(read_results() | {name: run}, indent=1, sort_keys=True)
        write_atomically(RESULTS, text + "\n")
        print(f"{name}: {sum(seconds.values()):.0f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "write"))
    parser.add_argument("lessons", nargs="*", metavar="lesson")
    options = parser.parse_args(arguments)
    if options.what == "measure":
        measure(options.lessons)
    else:
        for page, text in pages():
            write_atomically(page, text)
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
