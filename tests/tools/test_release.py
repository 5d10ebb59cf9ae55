"""A release: the tag, the version and the changelog agree, and the wheel works."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import d2l_gpu
from tests.helpers.paths import REPOSITORY
from tools import check_wheel, release

CHANGELOG = """\
# Changelog

## [0.2.0] - 2026-12-24

### Added

- Candles.

### Fixed

- The tree stands.

## [0.1.0] - 2026-11-21

### Added

- A tree.

[0.2.0]: https://host/compare/v0.1.0...v0.2.0
[0.1.0]: https://host/releases/tag/v0.1.0
"""


def test_the_newest_section_is_unreleased_or_the_version_of_the_package():
    text = release.CHANGELOG.read_text("utf-8")
    assert list(release.changelog_problems(text, d2l_gpu.__version__)) == []


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[0.2.0] - 2026-12-24", "[Unreleased]", None),
        ("[0.2.0] -", "[0.3.0] -", "the newest section is 0.3.0, but must be"),
        ("2026-12-24", "24.12.2026", "0.2.0: the heading has no date"),
        (" - 2026-12-24", "", "0.2.0: the heading has no date"),
        ("2026-12-24", "2026-01-01", "not ordered by date"),
        ("## [0.1.0] - 2026-11-21", "## 0.1.0", "a heading is not like"),
        ("[0.1.0] - 2026-11-21", "[Unreleased]", "Unreleased is not the newest"),
        ("[0.1.0]: https", "0.1.0: https", "0.1.0: the link of the heading is missing"),
        ("### Fixed", "### Mended", "0.2.0: Mended is not one of Added, Changed"),
        ("- A tree.", "", "0.1.0: it lists no change"),
        (CHANGELOG, "# Changelog", "there is no section"),
    ],
)
def test_what_is_wrong_with_a_changelog_is_said(old, new, sentence):
    assert CHANGELOG.count(old) == 1
    text = CHANGELOG.replace(old, new)
    if sentence is None:
        text = text.replace("[0.2.0]:", "[Unreleased]:")
    found = list(release.changelog_problems(text, "0.2.0"))
    if sentence is None:
        assert found == []
    else:
        assert any(sentence in problem for problem in found), found


def test_notes_are_the_newest_section_without_its_heading():
    notes = release.release_notes("v0.2.0", CHANGELOG, "0.2.0")
    assert notes == ("### Added\n\n- Candles.\n\n### Fixed\n\n- The tree stands.")


@pytest.mark.parametrize(
    ("tag", "version", "change", "sentence"),
    [
        (
            "v0.3.0",
            "0.2.0",
            "",
            "the tag is v0.3.0, but the package is 0.2.0: tag v0.2.0",
        ),
        (
            "0.2.0",
            "0.2.0",
            "",
            "the tag is 0.2.0, but the package is 0.2.0: tag v0.2.0",
        ),
        ("v0.1.0", "0.1.0", "", "the newest section is 0.2.0, but must be"),
        (
            "v0.2.0",
            "0.2.0",
            "[Unreleased]",
            r"section is Unreleased: rename it to \[0.2",
        ),
    ],
)
def test_a_tag_that_is_not_ready_is_refused(tag, version, change, sentence):
    text = CHANGELOG
    if change:
        text = text.replace("[0.2.0] - 2026-12-24", change)
        text = text.replace("[0.2.0]:", "[Unreleased]:")
    with pytest.raises(ValueError, match=sentence):
        release.release_notes(tag, text, version)


def test_the_command_says_one_sentence_or_the_notes(capsys, monkeypatch, tmp_path):
    path = tmp_path / "CHANGELOG.md"
    path.write_text(CHANGELOG, "utf-8")
    monkeypatch.setattr(release, "CHANGELOG", path)
    monkeypatch.setattr(release, "__version__", "0.2.0")
    assert release.main(["v0.2.0"]) == 0
    assert capsys.readouterr().out.startswith("### Added\n")
    assert release.main(["v0.2.1"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1


def test_the_check_of_a_release_needs_nothing_but_python():
    code = "import sys; import tools.release; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],  # without site-packages
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


@pytest.mark.skipif(sys.platform == "win32", reason="runs on Linux only")
@pytest.mark.parametrize(
    ("version", "options"), [("0.2.0", ""), ("0.2.0rc1", " --prerelease")]
)
def test_publishing_gives_github_the_notes_and_the_files(tmp_path, version, options):
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "a.whl").touch()
    for name, script in {
        "gh": f'echo "$*" > {tmp_path}/call; cat > {tmp_path}/notes',
        "python3": '[ "$*" = "-m tools.release v$VERSION" ] && echo the notes',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", ".ci/release", "publish", f"v{version}", str(dist)],
        cwd=REPOSITORY,
        env=os.environ | {"PATH": path, "VERSION": version},
        check=True,
    )
    assert (tmp_path / "notes").read_text() == "the notes\n"
    assert (tmp_path / "call").read_text() == (
        f"release create v{version} --verify-tag --title v{version} --notes-file -"
        f"{options} {dist}/a.whl\n"
    )


# ---- From pip to lesson

PROGRAM = """\
import pathlib, sys

def main():
    if sys.argv[1:] == ["--version"]:
        print("d2l-gpu 9.9")
        return
    assert {there!r} not in sys.path
    folder = pathlib.Path("d2l-gpu-course/executed")
    folder.mkdir(parents=True)
    (folder / "01_devices.ipynb").touch()
    print("nothing works")
    sys.exit({code})
"""
NAME = "d2l_gpu-9.9-py3-none-any.whl"


@pytest.mark.all
@pytest.mark.parametrize("code", [0, 3])
def test_a_wheel_is_tried_outside_of_the_clone(code, tmp_path, capsys, monkeypatch):
    program = PROGRAM.format(code=code, there=str(REPOSITORY))
    wheel = toy_wheel(tmp_path, program)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    assert check_wheel.main([str(wheel)]) == (1 if code else 0)
    out, error = capsys.readouterr()
    assert re.search(r"^d2l-gpu run 01: \d+ s$", out, re.MULTILINE)
    assert re.search(r"^the environment: [\d.]+ MiB$", out, re.MULTILINE)
    if code:
        assert error == "nothing works\n\nd2l-gpu run 01 exited with code 3\n"
    assert out.endswith("passed\n") == (code == 0)


def toy_wheel(folder: Path, program: str) -> Path:
    """Write a wheel of our name whose command does next to nothing."""
    info = "d2l_gpu-9.9.dist-info"
    files = {
        "d2l_toy.py": program,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: d2l-gpu\nVersion: 9.9\n"
        "Provides-Extra: course\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nd2l-gpu = d2l_toy:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in files)
    with zipfile.ZipFile(folder / NAME, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return folder / NAME


@pytest.fixture
def commands(monkeypatch):
    """The commands of a check, which are not run; what they would do can be set."""

    class Commands(list):
        said, left = "9.9", ["01_devices.ipynb"]

        def run(self, command, folder):
            self.append(command)
            if "run" in command:
                for name in self.left:
                    path = folder / "d2l-gpu-course" / "executed" / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.touch()
            return f"d2l-gpu {self.said}\n"

    commands = Commands()
    monkeypatch.setattr(check_wheel.venv, "create", lambda folder, with_pip: None)
    monkeypatch.setattr(check_wheel, "_run", commands.run)
    return commands


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"said": "9.8"}, "the wheel is 9.9, but its command says it is 9.8"),
        ({"left": ["02_tensors.ipynb"]}, "but left 02_tensors.ipynb in d2l-gpu-course"),
        ({"left": []}, "but left nothing in d2l-gpu-course/executed"),
    ],
)
def test_a_command_that_does_something_else_is_found(
    commands, tmp_path, capsys, wrong, sentence
):
    (tmp_path / NAME).touch()
    assert check_wheel.main([str(tmp_path / NAME)]) == 0
    vars(commands).update(wrong)
    assert check_wheel.main([str(tmp_path / NAME)]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_pytorch_is_taken_first_and_from_where_it_is_said(commands, tmp_path):
    (tmp_path / NAME).touch()
    options = ["--torch", "torch==2.10.*", "--torch-index", "https://host"]
    assert check_wheel.main([str(tmp_path / NAME), *options]) == 0
    assert commands[0][-3:] == ["--index-url", "https://host", "torch==2.10.*"]
    assert commands[1][-1] == f"{tmp_path / NAME}[course]"
    assert "--index-url" not in commands[1]


def test_a_wheel_that_there_is_not_is_one_sentence(capsys, tmp_path):
    assert check_wheel.main([str(tmp_path / "none.whl")]) == 1
    assert capsys.readouterr().err.endswith("none.whl: build one first\n")


PAGES = ["hosted.md", "teaching/jupyterhub.md", "teaching/workshop.md"]
NAMED = re.compile(
    r'(?:d2l-gpu(?:\[\w+\])?(?: @ git\S+@v|==)|/blob/v|tag: ")(\d[\w.]+)'
)


@pytest.mark.parametrize(
    "path", [*(f"docs/{page}" for page in PAGES), "hub/kubernetes.yaml"]
)
def test_pages_name_the_version_that_is_released(path):
    text = (REPOSITORY / path).read_text("utf-8")
    assert set(NAMED.findall(text)) == {d2l_gpu.__version__}
