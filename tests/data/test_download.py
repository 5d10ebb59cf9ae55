"""Downloads: only what is complete gets its name, and every failure is a sentence."""

import hashlib
import io
import logging
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from d2l_gpu.common.requirements import install
from d2l_gpu.common.settings import data_folder
from d2l_gpu.data import download
from d2l_gpu.data.download import fetch
from tests.helpers.file_server import md5, serving, truncated
from tests.helpers.fresh_process import PATH, run_program
from tests.helpers.waiting import wait_until

NAME = "images.gz"
GOOD = bytes(range(256)) * 1000
BAD = GOOD[:-1] + b"?"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as server:
        yield server


@pytest.fixture
def other():
    with serving() as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "data"


def get(folder: Path, *mirrors: str, **options) -> Path:
    return fetch(NAME, mirrors, md5(GOOD), folder, **options)


def error_of(call, kind=ConnectionError) -> str:
    """Return the message of an error of exactly this kind, one sentence."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


def no_server() -> str:
    """The address of a port at which nobody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listening.getsockname()[1]}/"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------- all is well


def test_a_file_is_downloaded_once(server, folder):
    server.files[NAME] = GOOD
    assert get(folder, server.url) == folder / NAME
    assert (folder / NAME).read_bytes() == GOOD
    get(folder, server.url)
    assert server.requests == [NAME]
    assert names_in(folder) == [NAME]


def test_nothing_is_printed_or_logged_where_there_is_no_terminal(
    server, folder, capfd, caplog
):
    server.files[NAME] = GOOD
    with caplog.at_level(logging.DEBUG, "pooch"):
        get(folder, server.url)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if "pooch" in record.name]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_shows_on_a_terminal(server, folder, monkeypatch):
    server.files[NAME] = GOOD
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    get(folder, server.url)
    assert "images" in terminal.getvalue()
    assert "100 %" in terminal.getvalue()


def test_files_are_asked_for_as_they_are(server, folder):
    # A server that compresses, or requests that decompresses, would change the file.
    server.files[NAME] = GOOD
    get(folder, server.url)
    assert server.headers["Accept-Encoding"] == "identity"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_file_can_be_read_by_those_who_may_read_new_files(server, folder):
    # A teacher fills the folder, a class reads it.
    server.files[NAME] = GOOD
    get(folder, server.url)
    (folder / "new").touch()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert len(modes) == 1


def test_the_folder_is_that_of_the_environment_or_the_systems(monkeypatch, tmp_path):
    import pooch

    monkeypatch.setenv("D2L_GPU_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.setenv("D2L_GPU_DATA", "~/data")
    assert data_folder() == Path("~/data").expanduser()
    monkeypatch.setenv("D2L_GPU_DATA", " ")
    assert data_folder() == pooch.os_cache("d2l_gpu")


def test_a_file_that_is_there_needs_no_pooch_and_no_server(folder, monkeypatch):
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(GOOD)
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert get(folder, no_server()) == folder / NAME


@pytest.mark.parametrize("missing", ["pooch", "requests"])
def test_without_pooch_the_error_says_what_to_install(folder, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    message = error_of(lambda: get(folder, no_server()), ImportError)
    assert message.startswith(f"Downloading needs {missing}")
    assert install("lessons") in message


def test_importing_the_helper_does_not_import_what_downloads():
    out = run_program("download/importing_the_helper.py")
    assert out == "[]\n"


# ---------------------------------------------------------------- bad servers


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "404 Not Found"),
        (truncated(GOOD), "the connection was lost"),
        (BAD, "the file it sent has the wrong checksum"),
        (b"<html>Please log in</html>", "the file it sent has the wrong checksum"),
    ],
)
def test_the_next_mirror_is_tried_where_one_fails(
    server, other, folder, answer, reason
):
    if answer is not None:
        server.files[NAME] = answer
    other.files[NAME] = GOOD
    assert get(folder, server.url, other.url).read_bytes() == GOOD
    assert server.requests == other.requests == [NAME]

    (folder / NAME).unlink()
    message = error_of(lambda: get(folder, server.url, no_server(), instead="go away"))
    assert message.startswith(f"{NAME} could not be downloaded (127.0.0.1:")
    assert f": {reason}; 127.0.0.1:" in message
    assert ": no connection): try again later" in message
    assert f"put the file into {folder} by hand, or go away." in message
    assert names_in(folder) == []


def test_a_server_that_hangs_does_not_hang_the_reader(server, other, folder):
    server.files[NAME] = server.hang
    other.files[NAME] = other.stop_after(GOOD)
    mirrors = [server.url, other.url]
    message = error_of(lambda: get(folder, *mirrors, timeout=0.3))
    assert message.count("no answer within 0.3 s") == 2
    assert names_in(folder) == []


def test_errors_of_certificates_and_proxies_have_their_own_words(folder, monkeypatch):
    import requests

    def failing(error):
        def download(*arguments, **options):
            assert options["timeout"] == 15
            raise error("long and technical")

        return download

    for error, words in [
        (requests.exceptions.SSLError, "its certificate cannot be verified"),
        (requests.exceptions.ProxyError, "no connection through the proxy"),
        (requests.ConnectTimeout, "no answer within 15 s"),
        (requests.TooManyRedirects, "TooManyRedirects"),
    ]:
        monkeypatch.setattr(requests, "get", failing(error))
        message = error_of(lambda: get(folder, "https://example.org/data/"))
        assert f"(example.org: {words})" in message


def test_what_is_wrong_with_the_settings_of_requests_is_said_as_it_is(
    folder, monkeypatch
):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere")
    with pytest.raises(OSError, match=r"TLS CA certificate bundle.*/nowhere"):
        get(folder, "https://localhost/")


# ---------------------------------------------------------------- the cache


def test_a_damaged_file_is_downloaded_again(server, folder):
    server.files[NAME] = GOOD
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(BAD)
    assert get(folder, server.url).read_bytes() == GOOD


def test_a_damaged_file_is_never_returned(server, folder):
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(BAD)
    assert "404" in error_of(lambda: get(folder, server.url))


def forbid_writing(monkeypatch):
    """Make every folder read-only: root, who may run the tests, ignores modes."""

    def refuse(path, *arguments, **options):
        raise PermissionError(13, "Permission denied", str(path))

    opened = open
    for name in ("mkdir", "unlink", "rename", "replace"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(
        "builtins.open",
        lambda path, mode="r", *more, **options: (
            refuse(path)
            if set(mode) & set("wxa+")
            else opened(path, mode, *more, **options)
        ),
    )


def test_a_read_only_cache_with_good_files_works(folder, monkeypatch):
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(GOOD)
    abandoned = folder / f"{NAME}.0.part"
    abandoned.touch()
    os.utime(abandoned, (0, 0))
    forbid_writing(monkeypatch)
    assert get(folder, no_server()) == folder / NAME


@pytest.mark.parametrize("exists", [True, False])
def test_a_read_only_cache_without_files_is_a_sentence(
    server, folder, monkeypatch, exists
):
    server.files[NAME] = GOOD
    if exists:
        folder.mkdir(parents=True)
    with monkeypatch.context() as patch:
        forbid_writing(patch)
        message = error_of(lambda: get(folder, server.url), OSError)
    assert f"in {folder} (Permission denied)" in message
    assert "D2L_GPU_DATA" in message


def test_a_file_that_has_the_md5_only_is_refused(server, folder):
    server.files[NAME] = GOOD
    forged = hashlib.sha256(BAD).hexdigest()
    message = error_of(lambda: get(folder, server.url, sha256=forged))
    assert "the file it sent has the wrong checksum" in message
    assert names_in(folder) == []
    right = hashlib.sha256(GOOD).hexdigest()
    assert get(folder, server.url, sha256=right).read_bytes() == GOOD
    # Nor is it used if it is there already.
    error_of(lambda: get(folder, server.url, sha256=forged))


def test_a_file_in_place_of_the_folder_is_a_sentence(server, folder):
    server.files[NAME] = GOOD
    folder.parent.write_text("not a folder")
    message = error_of(lambda: get(folder, server.url), OSError)
    assert f"in {folder} ({folder.parent} is a file)" in message


def test_a_full_disk_is_not_the_servers_fault(server, other, folder, monkeypatch):
    import pooch

    def download(self, url, output_file, *arguments):
        Path(output_file).write_bytes(GOOD[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", download)
    message = error_of(lambda: get(folder, server.url, other.url), OSError)
    assert "(No space left on device): free some space" in message
    assert names_in(folder) == []


def test_a_file_that_another_process_holds_is_taken_as_it_is(
    server, folder, monkeypatch
):
    server.files[NAME] = GOOD
    folder.mkdir(parents=True)

    def replace(part, target):
        # Windows, after another process has written the file and reads it.
        Path(target).write_bytes(content)
        raise PermissionError(13, "Access is denied")

    monkeypatch.setattr(Path, "replace", replace)
    content = GOOD
    assert get(folder, server.url) == folder / NAME
    (folder / NAME).unlink()
    content = BAD
    assert "Access is denied" in error_of(lambda: get(folder, server.url), OSError)


def test_several_may_download_at_once(server, folder):
    server.files[NAME] = GOOD
    together = threading.Barrier(4)
    answer = server.files.pop(NAME)

    def wait_for_all(handler):
        together.wait(20)
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(answer)

    server.files[NAME] = wait_for_all
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(get(folder, server.url)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [folder / NAME] * 4
    assert (folder / NAME).read_bytes() == GOOD
    assert names_in(folder) == [NAME]


# ---------------------------------------------------------------- interruptions


def test_ctrl_c_leaves_nothing_behind(server, folder, monkeypatch):
    server.files[NAME] = GOOD
    seen = []

    def interrupted(self, content):
        seen.extend(names_in(folder))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(download._Bar, "update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            get(folder, server.url)
    assert len(seen) == 1  # in mid-stream there was a file, under another name
    assert seen[0].startswith(f"{NAME}.")
    assert seen[0].endswith(".part")
    assert names_in(folder) == []
    assert get(folder, server.url).read_bytes() == GOOD


def test_a_killed_process_leaves_nothing_that_is_used(server, folder):
    server.files[NAME] = server.stop_after(GOOD)
    code = (
        "import sys; from pathlib import Path; "
        "from d2l_gpu.data.download import fetch; "
        f"fetch({NAME!r}, [{server.url!r}], {md5(GOOD)!r}, Path({str(folder)!r}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | PATH, stderr=subprocess.PIPE
    )
    wait_until(
        lambda: (
            [path for path in folder.glob("*") if path.stat().st_size]
            or process.poll() is not None
        )
    )
    assert process.poll() is None
    process.kill()
    process.communicate()
    (left,) = names_in(folder)
    assert left != NAME

    server.files[NAME] = GOOD
    assert get(folder, server.url).read_bytes() == GOOD
    # It may belong to a process that still runs; later it cannot.
    assert names_in(folder) == [NAME, left]
    long_ago = time.time() - 3600
    os.utime(folder / left, (long_ago, long_ago))
    get(folder, server.url)
    assert names_in(folder) == [NAME]
