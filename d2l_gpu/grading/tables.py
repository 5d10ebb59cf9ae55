"""The files with grades: a table, JSON, and feedback for each student."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from d2l_gpu.common.files import write_atomically
from d2l_gpu.grading.page import feedback_html, number_text, page_html
from d2l_gpu.grading.results import Results

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
    for student in results.students:
        if student.feedback:
            path = output / student.feedback
            write_atomically(path, feedback_html(results, student))
    write_atomically(output / PAGE, page_html(results, output))


def as_csv(results: Results) -> str:
    """Return a table of students and exercises, with the points that they earned.

    It begins with a mark by which spreadsheets recognize UTF-8.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["student", "id", *results.titles, "total"])
    for student in results.students:
        earned = [
            "" if verdict is None else number_text(results.points.earned(verdict))
            for verdict in map(student.verdict, results.titles)
        ]
        total = number_text(results.total(student))
        who = harmless(student.name), harmless(student.id)
        writer.writerow([*who, *earned, total])
    return f"\N{BYTE ORDER MARK}{out.getvalue()}"


def harmless(cell: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.lstrip().startswith(("=", "+", "-", "@")) else cell


def file_names(wanted: Sequence[str]) -> list[str]:
    """Return names of files, with folders or without, as different names that any
    system takes."""
    found: list[str] = []
    for path in wanted:
        *folders, last = path.split("/")
        stem, dot, suffix = last.rpartition(".")
        begin = "".join(f"{_allowed(each)}/" for each in folders) + _allowed(stem)
        known, n, name = {each.casefold() for each in found}, 1, f"{begin}{dot}{suffix}"
        while name.casefold() in known:
            n += 1
            name = f"{begin} ({n}){dot}{suffix}"
        found.append(name)
    return found


def _allowed(name: str) -> str:
    name = "".join("_" if c in '<>:"/\\|?*' else c for c in name)
    return name.encode()[:_LONGEST_NAME].decode(errors="ignore").rstrip(". ") or "_"
