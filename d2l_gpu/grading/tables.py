"""The files with grades: a table, JSON, and feedback for each student."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from d2l_gpu.common.files import write_atomically
from d2l_gpu.exercises.verdict import Verdict
from d2l_gpu.grading.page import page_html
from d2l_gpu.grading.results import Results, Student

TABLE, DATA, PAGE, FEEDBACK = "grades.csv", "grades.json", "grades.html", "feedback"

# Bytes; most systems allow 255 for a name with everything that is added to it.
_LONGEST_NAME = 200


def write_all(results: Results, output: Path) -> None:
    """Write the grades of a class into a folder.

    Raises:
        OSError: a file can't be written.
    """
    write_atomically(output / TABLE, as_csv(results))
    text = json.dumps(results.as_json(), indent=1, ensure_ascii=False)
    write_atomically(output / DATA, text + "\n")
    names = file_names([each.name for each in results.students])
    for student, name in zip(results.students, names, strict=True):
        path = output / FEEDBACK / f"{name}.md"
        write_atomically(path, feedback(results, student))
    write_atomically(output / PAGE, page_html(results))


def as_csv(results: Results) -> str:
    """Return a table of students and exercises, with the points that they earned.

    It begins with a mark by which spreadsheets recognize UTF-8.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["student", *results.titles, "total"])
    for student in results.students:
        earned = [
            "" if verdict is None else _number(results.points.earned(verdict))
            for verdict in map(student.verdict, results.titles)
        ]
        total = _number(results.total(student))
        writer.writerow([harmless(student.name), *earned, total])
    return f"\N{BYTE ORDER MARK}{out.getvalue()}"


def harmless(cell: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.lstrip().startswith(("=", "+", "-", "@")) else cell


def _number(points: float) -> str:
    return f"{points:.2f}".rstrip("0").rstrip(".")


def file_names(students: Sequence[str]) -> list[str]:
    """Return students' names as different names of files, for any system."""
    found: list[str] = []
    for student in students:
        name = "".join("_" if c in '<>:"/\\|?*' else c for c in student)
        name = name.encode()[:_LONGEST_NAME].decode(errors="ignore").rstrip(". ") or "_"
        known, n, first = {each.casefold() for each in found}, 1, name
        while name.casefold() in known:
            n += 1
            name = f"{first} ({n})"
        found.append(name)
    return found


def feedback(results: Results, student: Student) -> str:
    """Return what a student is told, in Markdown."""
    total, most = results.total(student), results.most
    lines = [f"# {_escaped(student.name)}", ""]
    lines += [f"{_number(total)} of {_number(most)} points.", ""]
    if student.notes:
        lines += ["What went wrong when your notebook was run:", ""]
        lines += [f"* {_escaped(note)}." for note in student.notes]
        lines.append("")
    for number, title in results.titles.items():
        verdict = student.verdict(number)
        points = _number(results.points.earned(verdict))
        worth = _number(results.points.of(number))
        heading = f"{number} {title}".strip()
        lines += [f"## {heading}", "", f"{points} of {worth} points.", ""]
        lines += _fenced(verdict) if verdict else ["No notebook has this exercise.", ""]
    return "\n".join(lines)


def _fenced(verdict: Verdict) -> list[str]:
    text = str(verdict)
    fence = "```"
    while fence in text:
        fence += "`"
    return [f"{fence}text", text, fence, ""]


def _escaped(text: str) -> str:
    """Return a text on one line that Markdown shows as it is, but for code."""
    for character in "\\<>[]*_":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
