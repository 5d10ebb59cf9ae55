"""`d2l-gpu run` executes the course, reports, and says clearly what went wrong."""

import importlib.util
import locale
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import d2l_gpu
from d2l_gpu import cli, course
from d2l_gpu.common import messages
from d2l_gpu.common.requirements import install
from tests.helpers.paths import REPOSITORY
from tests.helpers.toy_lessons import PUBLISHED
from tests.helpers.waiting import PATIENCE, runs, wait_until

NAMES = ("01_devices", "02_tensors", "03_copying")


@pytest.fixture
def published(publish):
    """A published course of three toy lessons; the reader is in another folder."""
    return publish(*NAMES)


def executed(name: str):
    path = Path("d2l-gpu-course/executed") / f"{name}.ipynb"
    return nbformat.read(path, as_version=4)


def test_run_writes_executed_copies_and_one_report(published, capsys):
    assert cli.main(["run"]) == 0
    for name in NAMES:
        assert executed(name).cells[0].outputs[0].text == f"this is {name}\n"
        copy = Path("d2l-gpu-course") / f"{name}.ipynb"
        assert copy.read_bytes() == (published / f"{name}.ipynb").read_bytes()
        assert f"{name}: passed" in capsys.readouterr().out or name != NAMES[0]
    report = Path("d2l-gpu-course/report.html").read_text("utf-8")
    for name in NAMES:
        assert f'href="#{name}"' in report
        assert f'id="{name}"' in report
        assert f"this is {name}" in report


def test_report_fetches_nothing_from_the_network(published):
    cli.main(["run", "01"])
    report = Path("d2l-gpu-course/report.html").read_text("utf-8")
    assert "<style" in report
    assert "<script" not in report
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", report)
    assert not re.search(r"@import|url\(['\"]?(?:https?:)?//", report)


@pytest.mark.parametrize(
    "name", ["2", "02", "tensors", "02_tensors", "02_tensors.ipynb"]
)
def test_run_executes_only_the_lessons_named(published, name):
    assert cli.main(["run", name]) == 0
    files = sorted(path.name for path in Path("d2l-gpu-course/executed").iterdir())
    assert files == ["02_tensors.ipynb"]


@pytest.mark.parametrize("name", ["0", "00", "start"])
def test_the_first_lesson_has_number_zero(name):
    assert course.select_lessons([name], ["00_start", *NAMES]) == ["00_start"]
    with pytest.raises(ValueError, match="there is no lesson ''"):
        course.select_lessons([""], ["00_start", *NAMES])


def test_lessons_are_run_once_and_in_the_order_of_the_course(published, capsys):
    cli.main(["run", "copying", "01", "03"])
    lessons = re.findall(r"^(\d\d_\w+): passed", capsys.readouterr().out, re.MULTILINE)
    assert lessons == ["01_devices", "03_copying"]


def test_unknown_lesson_is_one_sentence_that_lists_the_known(published, capsys):
    assert cli.main(["run", "01", "nonsense"]) == 2
    error = capsys.readouterr().err
    assert (
        "there is no lesson 'nonsense'; the lessons are: " + ", ".join(NAMES) in error
    )
    assert error.count("\n") == 1
    assert not Path("d2l-gpu-course").exists()


def test_missing_extra_is_one_sentence_with_the_command(published, capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "nbclient" else found(name),
    )
    assert cli.main(["run"]) == 1
    error = capsys.readouterr().err
    assert "nbclient" in error
    assert install("course") in error
    assert error.count("\n") == 1


def test_command_line_needs_no_extra_until_it_runs():
    code = (
        "import sys, d2l_gpu.cli; "
        "print([m for m in ('nbclient', 'nbformat', 'torch') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


def test_failing_cell_is_named_and_the_rest_still_reported(
    published, write_notebook, capsys
):
    write_notebook(
        f"{PUBLISHED}/02_tensors.ipynb", "X = 1", "X +\\\n    missing", "print('later')"
    )
    assert cli.main(["run"]) == 1
    captured = capsys.readouterr()
    assert "02_tensors: failed at cell 2" in captured.out
    assert "03_copying: passed" in captured.out
    assert "02_tensors, cell 2 failed:\n    X +\\\n        missing\n" in captured.err
    assert "NameError: name 'missing' is not defined" in captured.err
    report = Path("d2l-gpu-course/report.html").read_text("utf-8")
    assert "failed at cell 2: NameError" in report
    assert "this is 03_copying" in report
    notebook = executed("02_tensors")
    assert notebook.cells[1].outputs[0].output_type == "error"
    assert notebook.cells[2].outputs == []


@pytest.mark.all
def test_cell_that_takes_too_long_fails(published, write_notebook, capsys):
    write_notebook(f"{PUBLISHED}/01_devices.ipynb", "import time\ntime.sleep(600)")
    assert cli.main(["run", "01", "--timeout", "1"]) == 1
    assert "ran for more than 1 s" in capsys.readouterr().err


@pytest.mark.all
def test_cell_that_kills_the_kernel_fails(published, write_notebook, capsys):
    write_notebook(f"{PUBLISHED}/01_devices.ipynb", "import os\nos._exit(1)")
    assert cli.main(["run", "01"]) == 1
    assert "the kernel died" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_bad_timeout_is_refused(published, seconds, capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main(["run", "--timeout", seconds])
    assert exit.value.code == 2
    assert "number of seconds" in capsys.readouterr().err


def test_notebook_changed_by_the_reader_is_kept_and_executed(
    published, write_notebook, capsys
):
    mine = write_notebook("reader/out/01_devices.ipynb", "print('mine')")
    before = mine.read_bytes()
    assert cli.main(["run", "01", "--output", "out"]) == 0
    assert "kept, because you changed it" in capsys.readouterr().out
    assert mine.read_bytes() == before
    result = nbformat.read("out/executed/01_devices.ipynb", as_version=4)
    assert result.cells[0].outputs[0].text == "mine\n"


def test_running_again_mentions_no_change(published, capsys):
    cli.main(["run", "01"])
    cli.main(["run", "01"])
    assert "kept" not in capsys.readouterr().out


def test_kernel_is_this_interpreter_and_works_in_the_output_folder(
    published, write_notebook
):
    write_notebook(
        f"{PUBLISHED}/01_devices.ipynb",
        "import os, sys\nprint(sys.executable)\nprint(os.getcwd())",
    )
    cli.main(["run", "01"])
    lines = executed("01_devices").cells[0].outputs[0].text.splitlines()
    assert lines == [sys.executable, str(Path("d2l-gpu-course").resolve())]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send")
def test_ctrl_c_ends_the_kernel_and_exits_130(published, write_notebook):
    write_notebook(
        f"{PUBLISHED}/01_devices.ipynb",
        "import os, pathlib, time\n"
        "pathlib.Path('begun').write_text(str(os.getpid()))\n"
        "time.sleep(600)",
    )
    code = (
        "import sys, pathlib; from d2l_gpu import cli, course; "
        f"course.editions_root = lambda: pathlib.Path({str(published.parents[1])!r}); "
        "sys.exit(cli.main(['run', '01']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    begun = Path("d2l-gpu-course/begun")
    wait_until(lambda: begun.is_file() and begun.read_text())
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    kernel = int(begun.read_text())
    wait_until(lambda: not runs(kernel))


def test_version_and_help_name_the_program(capsys):
    for option, text in [
        ("--version", f"d2l-gpu {d2l_gpu.__version__}\n"),
        ("--help", "usage: d2l-gpu"),
    ]:
        with pytest.raises(SystemExit) as exit:
            cli.main([option])
        assert exit.value.code == 0
        assert text in capsys.readouterr().out


# ---- Editions and appendices


def test_clone_runs_its_own_notebooks():
    folder = REPOSITORY / "notebooks" / "en" / "pytorch"
    assert course.notebooks_dir("en", "pytorch") == folder


@pytest.fixture
def editions(published, write_notebook, monkeypatch):
    """A published course that is also in French, and for JAX in English only."""
    for edition in ("fr/pytorch", "en/jax"):
        write_notebook(f"published/{edition}/01_devices.ipynb", "print('another')")
    for name in ("LC_ALL", "LC_MESSAGES", "LANG", "LANGUAGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(locale, "getlocale", lambda: (None, None))
    return published.parents[1]


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "fr_CA.UTF-8"}, "fr"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8", "LANGUAGE": "de:fr"}, "fr"),
        ({"LANG": "fr_FR.UTF-8", "LC_ALL": "en_GB.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LANGUAGE": "fr"}, "fr"),
        ({"LC_ALL": "fr_FR.UTF-8", "LANGUAGE": "de:en:fr"}, "en"),
        ({"LC_ALL": "en_GB.UTF-8", "D2L_GPU_LANGUAGE": "fr"}, "fr"),
    ],
)
def test_edition_is_in_the_readers_language(
    editions, monkeypatch, environment, language
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert course.notebooks_dir() == editions / language / "pytorch"
    # There is none in French for JAX, so that one is English whatever is spoken.
    assert course.notebooks_dir(framework="jax") == editions / "en" / "jax"


@pytest.fixture
def speaking(monkeypatch):
    """Sets variables of the environment that tell a language, and no others."""

    def speaking(**variables: str) -> None:
        monkeypatch.setattr(messages, "_of_the_system", "")
        for name in ("LC_ALL", "LC_MESSAGES", "LANG", "LANGUAGE", "D2L_GPU_LANGUAGE"):
            monkeypatch.setenv(name, variables.get(name, ""))

    return speaking


@pytest.mark.parametrize(
    ("variables", "arguments"),
    [
        ({"LANG": "fr_FR.UTF-8"}, []),
        ({"LANG": "en_US.UTF-8", "D2L_GPU_LANGUAGE": "fr"}, []),
        ({"LANG": "zh_CN.UTF-8"}, ["--language", "fr"]),
        ({"LANG": "de_DE.UTF-8", "LANGUAGE": "de:fr"}, []),
    ],
)
def test_commands_speak_the_readers_language(speaking, capsys, variables, arguments):
    speaking(**variables)
    assert cli.main(["doctor", "names", *arguments]) == 0
    assert "aucun problème" in capsys.readouterr().out.lower()
    assert cli.main(["copy", "ninety", *arguments]) == 2
    error = capsys.readouterr().err
    assert "ninety" in error and "there is no" not in error
    with pytest.raises(SystemExit):
        cli.main(["run", "--help", *arguments])
    assert "copy the notebooks" not in capsys.readouterr().out.lower()


@pytest.mark.parametrize("variables", [{}, {"LANG": "de_DE.UTF-8"}, {"LANG": "C"}])
def test_commands_speak_english_to_everybody_else(speaking, capsys, variables):
    speaking(**variables)
    assert cli.main(["doctor", "names"]) == 0
    assert "No problem" in capsys.readouterr().out


def test_system_without_variables_tells_the_language(editions, monkeypatch):
    monkeypatch.setattr(locale, "getlocale", lambda: ("fr_FR", "UTF-8"))
    assert course.notebooks_dir() == editions / "fr" / "pytorch"


def test_notebooks_are_told_the_language_that_was_asked_for(published, write_notebook):
    code = (
        "from d2l_gpu.course import notebooks_dir; print(notebooks_dir().parent.name)"
    )
    for language in "en", "fr":
        write_notebook(f"published/{language}/pytorch/01_devices.ipynb", code)
    assert cli.main(["run", "01", "--language", "fr"]) == 0
    assert executed("01_devices").cells[0].outputs[0].text == "fr\n"


def test_unknown_edition_is_one_sentence_that_lists_the_known(editions, capsys):
    assert cli.main(["run", "--language", "de", "--framework", "jax"]) == 2
    assert capsys.readouterr().err == (
        "d2l-gpu run: there is no edition in 'de' for 'jax'; "
        "the editions are: en/jax, en/pytorch, fr/pytorch\n"
    )


@pytest.mark.all
def test_appendix_is_run_only_when_named(published, write_notebook, capsys):
    write_notebook(f"{PUBLISHED}/A1_more.ipynb", "print('more')")
    assert cli.main(["run"]) == 0
    assert "A1_more" not in capsys.readouterr().out
    assert cli.main(["run", "A1"]) == 0
    assert "A1_more: passed" in capsys.readouterr().out


@pytest.mark.parametrize(("value", "status"), [("two", 1), ("2", 0)])
def test_doctor_ends_with_1_if_there_is_a_problem_in_whatever_form(
    value, status, monkeypatch, capsys
):
    monkeypatch.setenv("D2L_GPU_VIRTUAL", value)
    assert cli.main(["doctor", "setting"]) == status
    assert cli.main(["doctor", "setting", "--json"]) == status


def test_the_lab_takes_any_port_there_is_and_zero_for_any(monkeypatch, published):
    given = []
    monkeypatch.setattr("d2l_gpu.commands.lab.lacks", lambda options, modules: False)
    monkeypatch.setattr(
        "d2l_gpu.course.lab.open_lab",
        lambda *args, port, **options: given.append(port) or 0,
    )
    for port in 0, 1, 8888, 65535:
        assert cli.main(["lab", "--port", str(port)]) == 0
    assert given == [0, 1, 8888, 65535]
    assert cli.main(["lab"]) == 0 and given[4:] == [None]


@pytest.mark.parametrize("port", ["-1", "65536", "8.5", "http"])
def test_what_is_no_port_is_refused(port, published, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["lab", f"--port={port}"])
    assert f"invalid port value: '{port}'" in capsys.readouterr().err


# ---- d2l-gpu copy


def test_copy_puts_the_named_lessons_into_a_folder_and_runs_nothing(publish, capsys):
    publish("01_toy", "02_toy", "03_toy")
    assert cli.main(["copy", "02", "03", "--output", "mine"]) == 0
    assert sorted(path.name for path in Path("mine").iterdir()) == [
        "02_toy.ipynb",
        "03_toy.ipynb",
    ]
    assert capsys.readouterr().out == "2 notebooks in mine\n"


def test_copy_keeps_what_the_reader_changed(publish, capsys):
    publish("01_toy")
    assert cli.main(["copy"]) == 0
    copy = Path("d2l-gpu-course/01_toy.ipynb")
    changed = copy.read_text("utf-8").replace("this is", "mine is")
    copy.write_text(changed, "utf-8")
    assert cli.main(["copy"]) == 0
    assert copy.read_text("utf-8") == changed
    assert "kept, because you changed it" in capsys.readouterr().out
