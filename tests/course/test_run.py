"""What keeps `d2l-gpu run` from executing or writing a lesson is one sentence."""

import errno
import os
import sys
from pathlib import Path

import pytest

from d2l_gpu import cli
from d2l_gpu.course import kernelspec

NAMES = ("01_devices", "02_tensors", "03_copying")


@pytest.fixture
def published(publish):
    return publish(*NAMES)


def files(folder: str) -> set[str]:
    return {path.name for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", ["run", "lab"])
def test_folder_that_cannot_be_read_is_one_sentence(
    published, command, capsys, monkeypatch
):
    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as exit:
        patch.setattr(Path, "exists", refuse)
        cli.main([command, "--output", "secret/mine"])
    assert exit.value.code == 2
    *_, error = capsys.readouterr().err.splitlines()
    assert "secret/mine cannot be used (Permission denied); name a folder" in error


def test_folder_that_cannot_be_written_is_one_sentence(published, capsys):
    Path("file").write_text("not a folder")
    assert cli.main(["run", "--output", "file/below"]) == 1
    error = capsys.readouterr().err
    copy = Path("file/below/01_devices.ipynb")
    assert error.startswith(f"d2l-gpu run: {copy} cannot be written (")
    assert "name another folder with --output" in error
    assert error.count("\n") == 1


def test_full_disk_names_the_file_and_the_others_go_on(published, capsys, monkeypatch):
    replace = Path.replace

    def full(path: Path, target: Path) -> Path:
        if Path("executed/02_tensors.ipynb") == Path(*Path(target).parts[-2:]):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", full)
    assert cli.main(["run"]) == 1
    captured = capsys.readouterr()
    assert captured.out.count(": passed (") == 2
    assert "02_tensors: failed (" in captured.out
    name = Path("d2l-gpu-course/executed/02_tensors.ipynb")
    start = f"02_tensors: {name} cannot be written (No space left on device)"
    assert captured.err.startswith(start)
    assert captured.err.count("\n") == 1
    executed = {f"{name}.ipynb" for name in NAMES if name != "02_tensors"}
    assert files("d2l-gpu-course/executed") == executed
    report = Path("d2l-gpu-course/report.html").read_text("utf-8")
    assert "No space left on device" in report


@pytest.mark.parametrize("text", ['{"cells": [', "[]", '{"nbformat": 4}', "\x00", ""])
def test_damaged_notebook_is_named_and_the_others_go_on(published, text, capsys):
    damaged = Path("d2l-gpu-course/02_tensors.ipynb")
    damaged.parent.mkdir()
    damaged.write_text(text)
    assert cli.main(["run", "02", "03"]) == 1
    captured = capsys.readouterr()
    assert "03_copying: passed" in captured.out
    assert f"02_tensors: {damaged} is damaged, or no notebook: " in captured.err
    assert damaged.read_text() == text
    assert files("d2l-gpu-course/executed") == {"03_copying.ipynb"}


def test_kernel_that_does_not_start_is_one_sentence(published, capfd, monkeypatch):
    code = "import sys; sys.exit('No module named zmq')"
    monkeypatch.setattr(
        kernelspec, "kernel_argv", lambda python: [sys.executable, "-c", code]
    )
    assert cli.main(["run", "01"]) == 1
    captured = capfd.readouterr()
    assert "01_devices: failed (" in captured.out
    assert captured.err == (
        "01_devices: the kernel does not start (No module named zmq): "
        "d2l-gpu doctor kernel says more\n"
    )
    assert files("d2l-gpu-course") == {"01_devices.ipynb", "report.html"}


def test_warnings_of_a_kernel_that_starts_are_shown(published, capfd, monkeypatch):
    argv = kernelspec.kernel_argv

    def warning(python: str) -> list[str]:
        start = "runpy.run_module('ipykernel_launcher', run_name='__main__')"
        code = f"import runpy, sys; print('a warning', file=sys.stderr); {start}"
        return [python, "-c", code, *argv(python)[3:]]

    monkeypatch.setattr(kernelspec, "kernel_argv", warning)
    assert cli.main(["run", "01"]) == 0
    assert "a warning" in capfd.readouterr().err
