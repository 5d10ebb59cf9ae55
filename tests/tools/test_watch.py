"""A lesson is shown as it is saved, and its cells run again from the changed one on."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests.helpers.fresh_process import PATH
from tests.helpers.paths import REPOSITORY
from tests.helpers.toy_lessons import GOOD_LESSON, write_lesson
from tests.helpers.waiting import PATIENCE, runs, wait_until
from tools.build import main as build
from tools.edition import Project, editions
from tools.watch import preview, serving

COUNTING = GOOD_LESSON.replace("2 * 3\n", "runs = globals().get('runs', 0) + 1\n")
AFTER = "```{code-cell} ipython3\nprint('later', runs)\n```\n\n## Summary"
LESSON = COUNTING.replace("## Summary", AFTER)


@pytest.fixture
def shown(project):
    """The preview of a lesson of which each cell counts how often it ran."""
    write_lesson(project, LESSON)
    (edition,) = editions(Project(project))
    with preview(edition) as shown:
        assert ", first cell run after" in shown.update()
        yield shown


def test_a_changed_sentence_is_shown_and_nothing_runs(project, shown):
    before = shown.page.version
    write_lesson(project, LESSON.replace("is two.", "makes two."))
    assert "cell" not in shown.update()
    assert "One and one makes two." in shown.page.html
    assert "later 1" in shown.page.html
    assert shown.page.version > before


def test_from_a_changed_cell_on_cells_run_again_in_the_same_kernel(project, shown):
    write_lesson(project, LESSON.replace("0) + 1", "0) + 10"))
    assert "all 2 after" in shown.update()
    assert "later 11" in shown.page.html
    write_lesson(project, LESSON.replace("0) + 1", "0) + 10").replace("later", "last"))
    assert "all 1 after" in shown.update()
    assert "last 11" in shown.page.html


def test_what_is_saved_while_cells_run_does_not_wait_for_all_of_them(project, shown):
    write_lesson(project, LESSON.replace("1 + 1", "1 + 2"))
    said = shown.update(is_newer=lambda: True)
    assert "1 of 3 cells run, then saved again" in said
    write_lesson(project, LESSON.replace("1 + 1", "1 + 2").replace("later", "last"))
    assert "all 2 after" in shown.update()
    assert "last 2" in shown.page.html


def test_what_goes_wrong_is_shown_and_mended_by_the_next_save(project, shown):
    write_lesson(project, LESSON.replace("'later', runs", "1 / 0"))
    assert "failed: ZeroDivisionError: division by zero" in shown.update()
    assert "ZeroDivisionError" in shown.page.html
    write_lesson(project, LESSON.replace("## Summary", "[**Summary**]"))
    assert "book markup" in shown.update()
    page = shown.page.html
    assert 0 < page.index("book markup") < page.index("One and one is two.")
    write_lesson(project, "")  # as some editors leave it for a moment
    shown.update()
    write_lesson(project, LESSON)
    assert "all 1 after" in shown.update()
    assert "later 1" in shown.page.html and "ZeroDivisionError" not in shown.page.html


def test_page_is_served_here_and_says_when_there_is_a_newer_one(shown):
    with serving(shown.page) as address:
        assert address.startswith("http://127.0.0.1:")
        page = read(address)
        version = read(f"{address}version")
        assert f'mine = "{version}"' in page
        shown.page.show("<html><body>new</body></html>")
        assert read(f"{address}version") != version
        with pytest.raises(urllib.error.HTTPError):
            read(f"{address}../secret")
    with pytest.raises(OSError):
        read(address)


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        return answer.read().decode()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.all
def test_the_command_follows_the_source_and_ends_its_kernel(project, tmp_path):
    source = write_lesson(
        project, LESSON + "\n```{code-cell} ipython3\n!echo kernel $PPID\n```\n"
    )
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tools.build", "--watch", "pytorch/01"),
                *("--root", str(project)),
            ],
            cwd=REPOSITORY,
            env=os.environ | PATH,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: " all 4 after " in log.read_text())
        address = re.search(r"http://\S+", log.read_text())[0]
        source.write_text(source.read_text().replace("is two.", "makes two."))
        wait_until(lambda: "One and one makes two." in read(address))
        assert len(re.findall("all 4 after", log.read_text())) == 1
        kernel = int(re.search(r"kernel (\d+)", read(address))[1])
        assert runs(kernel)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert log.read_text().endswith(
        "now build it: python -m tools.build pytorch/01_toy\n"
    )
    wait_until(lambda: not runs(kernel))
    assert not (project / "notebooks").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            [],
            "name one lesson to watch, such as pytorch/03, not pytorch/01_toy.md, "
            "jax/01_toy.md",
        ),
        (["jax/02"], "there is no lesson 'jax/02'"),
    ],
)
def test_one_lesson_is_watched(project, capsys, arguments, said):
    write_lesson(project, LESSON, framework="jax")
    assert build(["--watch", "--root", str(project), *arguments]) == 1
    assert said in capsys.readouterr().err
