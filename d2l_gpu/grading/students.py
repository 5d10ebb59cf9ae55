"""Whose the notebooks of a class are: what came of each student."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from d2l_gpu.grading.class_list import ClassList, Entry
from d2l_gpu.grading.names import Owner
from d2l_gpu.grading.results import GradedNotebook, Student
from d2l_gpu.grading.submissions import Submission
from d2l_gpu.grading.tables import FEEDBACK, file_names


def students_with(
    graded: Iterable[tuple[Submission, GradedNotebook]],
    class_list: ClassList | None = None,
) -> list[Student]:
    """Return the students of a class, each with all of their notebooks, sorted by name.

    Args:
        graded: what was handed in, and what came of it.
        class_list: everyone in the class, also those who handed in nothing; None if
            nobody knows.
    """
    known: dict[Entry | tuple, Owner | Entry] = {}
    theirs: dict[Entry | tuple, list[tuple[Submission, GradedNotebook]]] = {}
    for submission, notebook in graded:
        who = submission.owner
        entry = class_list.find(who) if class_list else None
        key = entry or who.key
        known.setdefault(key, entry or who)
        theirs.setdefault(key, []).append((submission, notebook))
    if class_list:
        known |= {each: each for each in class_list.entries}
    students = [
        _student(who, theirs.get(key, []), class_list) for key, who in known.items()
    ]
    students.sort(key=lambda each: (each.name.casefold(), each.name, each.id))
    return _told_apart(students)


def _student(
    who: Owner | Entry,
    its: Sequence[tuple[Submission, GradedNotebook]],
    class_list: ClassList | None,
) -> Student:
    # Of several files, a notebook's name is one that its system surely knows.
    files = sorted((each for each, _ in its), key=lambda each: each.path is None)
    return Student(
        who.name,
        [notebook for _, notebook in its],
        who.id,
        files[0].feedback.as_posix() if files else "",
        isinstance(who, Entry) if class_list else None,
    )


def _told_apart(students: Sequence[Student]) -> list[Student]:
    """Return students with different names, and with different files for feedback."""
    times = Counter(each.name for each in students)
    files = iter(file_names([each.feedback for each in students if each.feedback]))
    found: list[Student] = []
    known: set[str] = set()
    for student in students:
        name = student.name
        if times[name] > 1 and student.id:
            name = f"{name} ({student.id})"
        first, n = name, 1
        while name in known:
            n += 1
            name = f"{first} ({n})"
        known.add(name)
        feedback = f"{FEEDBACK}/{next(files)}" if student.feedback else ""
        found.append(replace(student, name=name, feedback=feedback))
    return found
