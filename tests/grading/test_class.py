"""Whose notebooks there are: names of files, the list of a class, and the students."""

from pathlib import Path

import pytest

from d2l_gpu.grading.class_list import read_class_list
from d2l_gpu.grading.names import Owner, owner_of
from d2l_gpu.grading.results import GradedNotebook
from d2l_gpu.grading.students import students_with
from d2l_gpu.grading.submissions import Submission


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("anna", ("anna", "", "")),
        ("Chloé Dubois_12345_assignsubmission_file", ("Chloé Dubois", "12345", "m")),
        ("Chloé Dubois_12345_assignsubmission_file_", ("Chloé Dubois", "12345", "m")),
        ("Chloé Dubois_12_assignsubmission_file_03", ("Chloé Dubois", "12", "m")),
        ("Participant_77_assignsubmission_onlinetext", ("Participant", "77", "m")),
        ("duboischloé_12345_678_03_copying", ("duboischloé", "12345", "c")),
        ("duboischloe_LATE_12345_678_03_copying", ("duboischloe", "12345", "c")),
        ("anon_aB3xY_678_03_copying", ("anon", "aB3xY", "c")),
        ("anon_LATE_aB3xY_678_03_copying", ("anon", "aB3xY", "c")),
        # Of people.
        ("anna_2026_11_precision", ("anna_2026_11_precision", "", "")),
        ("anna_notes_2026_final", ("anna_notes_2026_final", "", "")),
        ("Anna Schmidt_03_copying", ("Anna Schmidt_03_copying", "", "")),
    ],
)
def test_names_of_files_tell_the_student(name, owner):
    system = {"m": "moodle", "c": "canvas", "": ""}[owner[2]]
    assert owner_of(name) == Owner(*owner[:2], system)


MOODLE = """Identifier,Full name,Email address,Status
Participant 12345,Chloé Dubois,cd@uni.edu,Submitted
Participant 12346,Anna Schmidt,as@uni.edu,Submitted
Participant 12347,Anna Schmidt,as2@uni.edu,Submitted
"""
CANVAS = """Student,ID,SIS Login ID,Section
    Points Possible,,,
"Dubois, Chloé",12345,cdubois,A
"da Silva Souza, Maria",12346,msilva,A
"""
SEMICOLONS = "Group;Last name;First name;Email\nx;Dubois;Chloé;cd@uni.edu\n"
FRENCH = "Nom,Prénom,Adresse de courriel\nDubois,Chloé,cd@uni.edu\n"
PORTUGUESE = "Nome;Sobrenome;Matrícula\nMaria;da Silva Souza;17\n"
NAMES = "Chloé Dubois\nMaria da Silva Souza\n"
NUMBERS = "Student ID\ts\ns123\t1\ns124\t2\n"


def read(tmp_path: Path, text: str):
    path = tmp_path / "students.csv"
    path.write_text(text, "utf-8-sig")
    return read_class_list(path)


@pytest.mark.parametrize(
    ("text", "file", "name", "its_id"),
    [
        (MOODLE, "Chloé Dubois_12345_assignsubmission_file", "Chloé Dubois", "P"),
        (MOODLE, "Participant_12345_assignsubmission_file", "Chloé Dubois", "P"),
        (MOODLE, "cd", "Chloé Dubois", "P"),
        (MOODLE, "Anna Schmidt_12347_assignsubmission_file", "Anna Schmidt", "P"),
        (MOODLE, "Anna Schmidt", None, ""),  # which of them?
        (MOODLE, "Bert_1_assignsubmission_file", None, ""),
        (CANVAS, "duboischloé_12345_678_03", "Dubois, Chloé", "12345"),
        (CANVAS, "dasilvasouzamaria_LATE_12346_678_03", "da Silva Souza, Maria", "1"),
        (CANVAS, "renamed_12346_678_03", "da Silva Souza, Maria", "12346"),
        # A participant's number of Moodle's is another one.
        (CANVAS, "Bert_12345_assignsubmission_file", None, ""),
        (SEMICOLONS, "chloe_dubois", "Chloé Dubois", "cd@uni.edu"),
        (FRENCH, "Chloé DUBOIS", "Chloé Dubois", "cd@uni.edu"),
        (PORTUGUESE, "17", "Maria da Silva Souza", "17"),
        (NAMES, "Dubois Chloe", "Chloé Dubois", ""),
        (NUMBERS, "S124", "s124", "s124"),
        (NUMBERS, "s12", None, ""),
    ],
)
def test_lists_of_gradebooks_tell_whose_a_file_is(text, file, name, its_id, tmp_path):
    entry = read(tmp_path, text).find(owner_of(file))
    assert (entry and entry.name) == name
    assert entry is None or entry.id.startswith(its_id)


def test_a_list_has_students_only(tmp_path):
    assert [each.name for each in read(tmp_path, CANVAS).entries] == [
        "Dubois, Chloé",
        "da Silva Souza, Maria",
    ]
    assert len(read(tmp_path, NAMES).entries) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "students.csv can't be read"),
        (b"", "names no student"),
        (b"name,id\n", "names no student"),
        ("Chloé".encode("cp1252"), "isn't a CSV file in UTF-8"),
        ("Anna".encode("utf-16"), "isn't a CSV file in UTF-8"),
    ],
)
def test_what_is_no_list_gets_one_sentence(content, message, tmp_path):
    path = tmp_path / "students.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_class_list(path)


def students(names: list[str], class_list=None):
    graded = [
        (Submission(owner_of(name), Path(f"{name}.ipynb")), GradedNotebook(name))
        for name in names
    ]
    return students_with(graded, class_list)


def test_files_of_one_student_are_together_and_names_are_different():
    found = students(
        [
            "Anna_1_assignsubmission_file_03",
            "Anna_1_assignsubmission_file_07",
            "Anna_2_assignsubmission_file_03",
            "bert",
        ]
    )
    assert [(each.name, each.id, len(each.notebooks)) for each in found] == [
        ("Anna (1)", "1", 2),
        ("Anna (2)", "2", 1),
        ("bert", "", 1),
    ]
    assert [each.on_list for each in found] == [None] * 3
    first = found[0].feedback
    assert first == "feedback/Anna_1_assignsubmission_file_03.html"


def test_everyone_on_a_list_has_a_row_and_strangers_are_told(tmp_path):
    class_list = read(tmp_path, MOODLE)
    found = students(["cd", "Chloé Dubois_12345_assignsubmission_file", "eve"])
    assert len(found) == 3
    found = students(
        ["cd", "Chloé Dubois_12345_assignsubmission_file", "eve"], class_list
    )
    assert [(each.name, len(each.notebooks), each.on_list) for each in found] == [
        ("Anna Schmidt (Participant 12346)", 0, True),
        ("Anna Schmidt (Participant 12347)", 0, True),
        ("Chloé Dubois", 2, True),
        ("eve", 1, False),
    ]
    assert found[0].notes == ["nothing was handed in"]
    assert found[0].feedback == ""
    assert found[3].notes == ["this name isn't on the list of the class"]
