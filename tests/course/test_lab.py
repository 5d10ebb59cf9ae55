"""`d2l-gpu lab` opens the course in JupyterLab, with a kernel of this interpreter."""

import http.client
import importlib.util
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import nbformat
import pytest
from jupyter_client.blocking import BlockingKernelClient
from nbformat.sign import NotebookNotary

from d2l_gpu import cli
from d2l_gpu.common.requirements import install
from tests.helpers.lab_server import PATH, Lab, jupyter_settings, running_lab
from tests.helpers.waiting import PATIENCE, runs, wait_until

NAMES = ("01_devices", "02_tensors", "A1_more")


@pytest.fixture
def published(publish, monkeypatch):
    """A published course of three toy lessons; the reader is in another folder."""
    edition = publish(*NAMES)
    for name, value in jupyter_settings(Path.cwd() / "jupyter").items():
        monkeypatch.setenv(name, value)
    return edition.parents[1]


@pytest.fixture
def launched(monkeypatch):
    """The arguments that JupyterLab was given, which is not started."""
    from jupyterlab.labapp import LabApp

    arguments = []
    monkeypatch.setattr(LabApp, "launch_instance", arguments.extend)
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "")  # which the command adds to
    return arguments


def copies() -> list[str]:
    return sorted(path.stem for path in Path("d2l-gpu-course").iterdir())


# ---------------------------------------------------------------- what is asked for


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        ([], "/lab/tree/01_devices.ipynb"),
        (["02"], "/lab/tree/02_tensors.ipynb"),
        (["--classic"], "/doc/tree/01_devices.ipynb"),
        (["more", "--classic"], "/doc/tree/A1_more.ipynb"),
    ],
)
def test_lesson_named_is_opened_and_all_are_copied(published, launched, arguments, url):
    assert cli.main(["lab", *arguments]) == 0
    assert f"--LabApp.default_url={url}" in launched
    folder = Path("d2l-gpu-course").resolve()
    assert f"--ServerApp.root_dir={folder}" in launched
    assert copies() == list(NAMES)


def test_options_reach_jupyterlab(published, launched):
    cli.main(["lab", "--output", "here"])
    assert f"--ServerApp.root_dir={Path('here').resolve()}" in launched
    assert "--no-browser" not in launched
    assert not [each for each in launched if "port" in each]
    launched.clear()
    cli.main(["lab", "--no-browser", "--port", "0", "--", "--debug", "--", "x"])
    assert "--no-browser" in launched
    assert "--ServerApp.port=0" in launched
    # The reader's own come last, where they win.
    assert launched[-3:] == ["--debug", "--", "x"]


def test_unknown_lesson_is_one_sentence_and_nothing_is_copied(
    published, launched, capsys
):
    assert cli.main(["lab", "nonsense"]) == 2
    assert capsys.readouterr().err == (
        "d2l-gpu lab: there is no lesson 'nonsense'; the lessons are: "
        "01_devices, 02_tensors, A1_more\n"
    )
    assert not Path("d2l-gpu-course").exists()
    assert launched == []


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_bad_port_is_refused(published, port, capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main(["lab", "--port", port])
    assert exit.value.code == 2
    assert f"invalid port value: '{port}'" in capsys.readouterr().err


def test_port_that_is_taken_is_one_sentence(published, launched, capsys):
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["lab", "--port", str(port)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"d2l-gpu lab: cannot listen on port {port} (")
    assert "leave out --port" in error
    assert error.count("\n") == 1
    assert launched == []


def test_missing_jupyterlab_is_one_sentence_with_the_command(
    published, capsys, monkeypatch
):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "jupyterlab" else found(name),
    )
    assert cli.main(["lab"]) == 1
    error = capsys.readouterr().err
    assert "jupyterlab not installed" in error
    assert install("course") in error
    assert error.count("\n") == 1


def test_root_is_told_how_to_go_on(published, launched, capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    assert cli.main(["lab"]) == 1
    error = capsys.readouterr().err
    assert "-- --allow-root" in error
    assert error.count("\n") == 1
    assert launched == []
    assert not Path("d2l-gpu-course").exists()
    assert cli.main(["lab", "--", "--allow-root"]) == 0
    assert launched[-1] == "--allow-root"


@pytest.mark.parametrize("command", ["lab", "run"])
def test_output_that_is_a_file_is_refused(published, launched, command, capsys):
    Path("taken").write_text("mine")
    with pytest.raises(SystemExit) as exit:
        cli.main([command, "--output", "taken"])
    assert exit.value.code == 2
    assert "taken is a file; name a folder" in capsys.readouterr().err
    assert Path("taken").read_text() == "mine"


def test_output_that_cannot_be_written_is_one_sentence(published, launched, capsys):
    Path("file").touch()
    assert cli.main(["lab", "--output", "file/below"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("d2l-gpu lab: ")
    assert "file/below" in error
    assert error.count("\n") == 1
    assert launched == []


# ---------------------------------------------------------------- the reader's copies


def test_notebooks_that_the_reader_changed_are_kept_and_one_line_says_so(
    published, launched, write_notebook, capsys
):
    cli.main(["lab"])
    assert capsys.readouterr().out == ""
    folder = Path("d2l-gpu-course")
    write_notebook(f"reader/{folder}/01_devices.ipynb", "print('mine')")
    (folder / "02_tensors.ipynb").write_text("broken")
    before = [path.read_bytes() for path in sorted(folder.iterdir())]
    cli.main(["lab"])
    out = capsys.readouterr().out
    assert f"{folder / '01_devices.ipynb'}, {folder / '02_tensors.ipynb'} (" in out
    assert "A1_more" not in out
    assert out.count("\n") == 1
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == before


def test_notebook_that_was_only_looked_at_counts_as_unchanged(
    published, launched, capsys
):
    cli.main(["lab"])
    copy = Path("d2l-gpu-course/01_devices.ipynb")
    notebook = nbformat.read(copy, as_version=4)
    notebook.metadata["language_info"] = {"name": "python", "version": "3.11.7"}
    nbformat.write(notebook, copy)
    before = copy.read_bytes()
    cli.main(["lab"])
    assert capsys.readouterr().out == ""
    assert copy.read_bytes() == before


def test_notebook_that_was_run_is_the_readers_and_is_not_trusted(
    published, launched, write_notebook, capsys
):
    write_notebook("published/fr/pytorch/01_devices.ipynb", "print('fr')")
    cli.main(["lab", "--language", "fr"])
    copy = Path("d2l-gpu-course/01_devices.ipynb")
    notebook = nbformat.read(copy, as_version=4)
    notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="fr\n")]
    nbformat.write(notebook, copy)
    before = copy.read_bytes()
    for language in ("fr", "en"):
        cli.main(["lab", "--language", language])
        assert str(copy) in capsys.readouterr().out  # it says that it's kept
        assert copy.read_bytes() == before
    assert not NotebookNotary().check_signature(notebook)


def test_unchanged_copies_follow_the_language(published, launched, write_notebook):
    french = write_notebook("published/fr/pytorch/01_devices.ipynb", "print('fr')")
    cli.main(["lab", "--language", "en"])
    cli.main(["lab", "--language", "fr"])
    copy = Path("d2l-gpu-course/01_devices.ipynb")
    assert copy.read_bytes() == french.read_bytes()


def test_notebooks_of_the_course_are_trusted_and_others_are_not(
    published, launched, write_notebook
):
    changed = write_notebook("reader/d2l-gpu-course/02_tensors.ipynb", "print('?')")
    cli.main(["lab"])
    trusted = NotebookNotary().check_signature
    assert trusted(nbformat.read("d2l-gpu-course/01_devices.ipynb", as_version=4))
    assert not trusted(nbformat.read(changed, as_version=4))


# ---------------------------------------------------------------- the real JupyterLab


def request(lab: Lab, path: str, data: dict | None = None):
    """What the server's interface answers."""
    body = None if data is None else json.dumps(data).encode()
    headers = {"Authorization": f"token {lab.token}"}
    wanted = urllib.request.Request(f"{lab.url}{path}", body, headers)
    with urllib.request.urlopen(wanted, timeout=PATIENCE) as answer:
        return json.load(answer)


def evaluated(lab: Lab, code: str) -> str:
    """What code prints in a kernel of the first notebook."""
    session = {"path": "01_devices.ipynb", "name": "", "type": "notebook"}
    session["kernel"] = {"name": "python3"}
    kernel = request(lab, "api/sessions", session)["kernel"]["id"]
    client = BlockingKernelClient(
        connection_file=str(lab.runtime / f"kernel-{kernel}.json")
    )
    client.load_connection_file()
    # Or a kernel that is slow to start counts as dead.
    client.hb_channel.time_to_dead = PATIENCE
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        printed = []
        client.execute_interactive(
            code,
            timeout=PATIENCE,
            output_hook=lambda message: printed.append(
                message["content"].get("text", "")
            ),
        )
    finally:
        client.stop_channels()
    return "".join(printed)


def install_other_python(data: Path) -> None:
    """Install a kernel python3 that is another program, as a user's own may be."""
    folder = data / "kernels" / "python3"
    folder.mkdir(parents=True)
    other = {"argv": ["/bin/false"], "display_name": "Other", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(other))


IDENTITY = "import os, sys; print(sys.executable, os.getpid(), os.getcwd(), end='')"


@pytest.mark.all
def test_kernel_is_this_interpreter_whatever_the_reader_has_installed(
    published, tmp_path
):
    reader = tmp_path / "reader"
    elsewhere = tmp_path / "elsewhere"
    install_other_python(reader / "data")
    install_other_python(elsewhere)
    settings = {"JUPYTER_PATH": str(elsewhere), "JUPYTER_PREFER_ENV_PATH": "0"}
    # Jupyter itself would take the reader's own.
    listed = subprocess.run(
        [sys.executable, "-m", "jupyter_client.kernelspecapp", "list"],
        env=os.environ | jupyter_settings(reader) | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(elsewhere / "kernels" / "python3") in listed.stdout + listed.stderr
    with running_lab(published, reader, "--port", "0", **settings) as lab:
        specs = request(lab, "api/kernelspecs")["kernelspecs"]
        assert {name: spec["spec"]["argv"][0] for name, spec in specs.items()} == {
            "python3": sys.executable
        }
        executable, _, folder = evaluated(lab, IDENTITY).split(maxsplit=2)
    assert executable == sys.executable
    assert Path(folder) == lab.notebooks


@pytest.mark.all
@pytest.mark.parametrize("theirs", [{}, {"fetchNews": "true"}])
def test_readers_are_not_asked_about_news_but_may_want_them(
    published, tmp_path, theirs
):
    reader = tmp_path / "reader"
    settings = reader / "config/lab/user-settings/@jupyterlab/apputils-extension"
    settings.mkdir(parents=True)
    own = settings / "notification.jupyterlab-settings"
    own.write_text(json.dumps(theirs))
    with running_lab(published, reader, "--port", "0") as lab:
        name = "@jupyterlab/apputils-extension:notification"
        found = request(lab, f"lab/api/settings/{name}")
    properties = found["schema"]["properties"]
    assert properties["fetchNews"]["default"] == "false"  # neither yes nor a question
    assert properties["checkForUpdates"]["default"] is False
    assert found["settings"] == json.loads(own.read_text()) == theirs


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send")
@pytest.mark.parametrize(
    "how",
    [
        *(pytest.param(x, marks=pytest.mark.all) for x in ("SIGINT", "SIGTERM")),
        "SIGKILL",
    ],
)
def test_kernels_end_with_the_command(published, tmp_path, how):
    with running_lab(published, tmp_path / "reader", "--port", "0") as lab:
        kernel = int(evaluated(lab, IDENTITY).split()[1])
        assert runs(kernel)
        lab.process.send_signal(getattr(signal, how))
        status = lab.process.wait(PATIENCE)
        wait_until(lambda: not runs(kernel))
    assert status == (-signal.SIGKILL if how == "SIGKILL" else 0)
    assert "Traceback" not in lab.log.read_text()


@pytest.mark.all
@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
def test_ctrl_c_in_a_terminal_ends_it_without_a_question(published, tmp_path):
    import pty

    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINAL, str(published)],
        env=os.environ | PATH | jupyter_settings(tmp_path),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    shown = b""
    try:
        while not (address := ADDRESS.search(shown)):
            chunk = _read(master)
            assert chunk, shown.decode()
            shown += chunk
        # It says where it is before it serves, and may not be ready to be ended.
        wait_until(lambda: _serves(int(address[1])))
        os.write(master, b"\x03")
        while chunk := _read(master):
            shown += chunk
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)
    assert b"Shut down this" not in shown
    assert b"Traceback" not in shown


ADDRESS = re.compile(rb"To access the server.*?http://[\w.]+:(\d+)/", re.DOTALL)

TERMINAL = """
import fcntl, pathlib, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is sent to this process
from d2l_gpu import cli, course
course.editions_root = lambda: pathlib.Path(sys.argv[1])
sys.exit(cli.main(["lab", "--no-browser", "--port", "0", "--", "--allow-root"]))
"""


def _serves(port: int) -> bool:
    server = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        server.request("GET", "/api")
        return server.getresponse().status == 200
    except OSError:
        return False
    finally:
        server.close()


def _read(terminal: int) -> bytes:
    """What comes next, or nothing when there is nothing, or nobody to write it."""
    if not select.select([terminal], [], [], PATIENCE)[0]:
        return b""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""
