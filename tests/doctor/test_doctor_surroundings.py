"""`d2l-gpu doctor` where disks, data, Jupyter, networks or the book are in disorder."""

import os
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from d2l_gpu.common.requirements import install
from d2l_gpu.data.sources import Source
from d2l_gpu.doctor import downloads as data
from d2l_gpu.doctor import network, room
from tests.helpers.broken_machines import look, look_once, until_begun
from tests.helpers.file_server import md5
from tests.helpers.recorded_machines import pretend
from tests.helpers.waiting import runs, wait_until

TRAIN, TEST = "train.gz", "test.gz"


# ------------------------------------------------------------------ memory and disk


@pytest.mark.parametrize(
    ("left", "status"), [(8 * 2**20, "ok"), (2 * 2**20, "note"), (2**19, "problem")]
)
def test_memory_that_is_left(monkeypatch, tmp_path, left, status):
    monkeypatch.setattr("sys.platform", "linux")
    pretend(monkeypatch, tmp_path, {"/proc/meminfo": f"MemAvailable: {left} kB\n"})
    assert look_once("memory").status == status


def test_memory_that_is_not_known_is_no_problem(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.platform", "linux")
    pretend(monkeypatch, tmp_path, {})
    assert look_once("memory").status == "ok"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one MiB, where this process may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a file system needs the rights of root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_real_disk_without_room_is_a_problem(small_disk, monkeypatch):
    monkeypatch.setenv("D2L_GPU_DATA", str(small_disk / "data"))
    findings = {each.what: each for each in look("disk")}
    (full,) = [what for what in findings if str(small_disk) in what]
    assert full == f"Only 1 MiB left at {small_disk}, for downloaded data."
    assert findings[full].status == "problem"
    assert "D2L_GPU_DATA" in findings[full].what_to_do
    assert len(findings) > 1  # the others are named, too


@pytest.mark.parametrize(
    ("left", "status"), [(2**40, "ok"), (2**29, "note"), (2**20, "problem")]
)
def test_room_on_a_disk(monkeypatch, left, status):
    usage = type("Usage", (), {"free": left})
    monkeypatch.setattr(room.shutil, "disk_usage", lambda folder: usage)
    assert {finding.status for finding in look("disk")} == {status}


def unwritable(tmp_path: Path) -> Path:
    """Return a folder in which this process can make no file."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        if not Path("/proc/self").exists():
            pytest.skip("root may write everywhere but in /proc, which is not here")
        return Path("/proc")
    if os.name == "nt":
        pytest.skip("Windows has no such permissions")
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    return folder


def test_working_folder_that_cannot_be_written_is_a_problem(tmp_path, monkeypatch):
    folder = unwritable(tmp_path)
    monkeypatch.chdir(folder)
    problems = [each for each in look("disk") if each.status == "problem"]
    assert problems
    assert f"Nothing can be written to the working folder {folder}" in problems[0].what


# ------------------------------------------------------------------ data


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of a data set of two small files, both of which are there."""
    contents = {TRAIN: b"train", TEST: b"test"}
    files = {name: md5(content) for name, content in contents.items()}
    source = Source("toys", ("https://nowhere.invalid/",), files)
    monkeypatch.setattr(data, "FASHION_MNIST", source)
    monkeypatch.setenv("D2L_GPU_DATA", str(tmp_path / "data"))
    folder = tmp_path / "data" / "toys"
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def test_whole_data_are_mentioned(cache):
    finding = look_once("data")
    assert finding.status == "ok"
    assert "Fashion-MNIST is there." in finding.what
    assert str(cache.parent) in finding.what


def test_missing_data_are_no_problem(cache):
    for path in cache.iterdir():
        path.unlink()
    cache.rmdir()
    cache.parent.rmdir()
    finding = look_once("data")
    assert finding.status == "ok"
    assert "is not there yet: a lesson that needs it downloads 30 MB" in finding.what
    assert not cache.parent.exists()


def test_damaged_file_is_a_problem(cache):
    (cache / TRAIN).write_bytes(b"trai")
    finding = look_once("data")
    assert finding.status == "problem"
    assert str(cache / TRAIN) in finding.what
    assert "is damaged" in finding.what
    assert finding.what_to_do.endswith(
        f"{'del' if os.name == 'nt' else 'rm'} {cache / TRAIN}"
    )


def test_what_a_download_that_broke_off_has_left_is_named(cache):
    part = cache / f"{TRAIN}.0123.part"
    part.touch()
    assert look_once("data").status == "ok"  # it may be going on
    os.utime(part, (time.time() - 3600,) * 2)
    finding = look_once("data")
    assert finding.status == "note"
    assert str(part) in finding.what_to_do


def test_data_folder_that_is_a_file_is_a_problem(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("D2L_GPU_DATA", str(path))
        finding = look_once("data")
        assert finding.status == "problem"
        assert f"({tmp_path / 'file'} is a file)" in finding.what
        assert "D2L_GPU_DATA" in finding.what_to_do


def test_data_folder_that_cannot_be_written_is_a_problem(tmp_path, monkeypatch):
    folder = unwritable(tmp_path)
    monkeypatch.setenv("D2L_GPU_DATA", str(folder / "data"))
    finding = look_once("data")
    assert finding.status == "problem"
    assert f"Data cannot be saved in {folder / 'data'}" in finding.what


def test_folder_with_all_data_need_not_be_writable(cache, monkeypatch):
    monkeypatch.setattr(data, "why_unwritable", lambda folder: "Permission denied")
    assert look_once("data").status == "ok"
    (cache / TEST).unlink()
    assert look_once("data").status == "problem"


# ------------------------------------------------------------------ Jupyter


def test_missing_packages_of_the_course_are_named(plant):
    plant.package(
        "d2l-gpu",
        "0.1.0",
        [
            "surely-missing>=1.2; extra == 'course'",
            "tqdm>=99; extra == 'course'",
            "not-asked-for>=1; extra == 'test'",
            "nor-this",
        ],
    )
    missing, old = look("course")
    assert missing.what == "Not installed: surely-missing."
    assert missing.what_to_do.endswith(install("course"))
    assert old.what.startswith("Too old: tqdm 4")
    assert old.what.endswith("(at least 99).")
    assert {missing.status, old.status} == {"problem"}


def test_package_that_does_not_import_is_named(plant):
    requires = ["scikit-learn>=0.1; extra == 'course'", "tqdm; extra == 'course'"]
    plant.package("d2l-gpu", "0.1.0", requires)
    plant.package("scikit-learn", "1.0")
    plant.module("sklearn", "raise ValueError('numpy.dtype size changed')")
    finding = look_once("course")
    assert finding.status == "problem"
    assert finding.what == (
        "scikit-learn is installed, but cannot be imported "
        "(ValueError: numpy.dtype size changed)."
    )


def test_package_that_ends_python_is_named(plant):
    plant.package("d2l-gpu", "0.1.0", ["tqdm>=1; extra == 'course'"])
    plant.module("tqdm", "import os; os._exit(7)")
    finding = look_once("course")
    assert "tqdm is installed, but cannot be imported (Python exited" in finding.what


def test_jupyter_of_another_environment_is_named(plant):
    plant.program("jupyter-lab", "exit")
    finding = look_once("jupyter")
    assert finding.status == "note"
    assert str(plant.programs / "jupyter-lab") in finding.what
    assert finding.what_to_do.endswith("-m jupyterlab")


@pytest.fixture
def other_python(tmp_path, monkeypatch) -> str:
    """The Python of another environment, which knows nothing of the course."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "other", symlinks=os.name != "nt")
    scripts = tmp_path / "other" / ("Scripts" if os.name == "nt" else "bin")
    return str(scripts / "python")


def plant_kernel(plant, monkeypatch, *argv: str) -> None:
    for name, value in plant.kernel(argv).items():
        monkeypatch.setenv(name, value)


def test_kernel_of_another_environment_is_a_problem(plant, monkeypatch, other_python):
    plant_kernel(plant, monkeypatch, other_python, "-m", "ipykernel_launcher")
    finding = look_once("kernelspec")
    assert finding.status == "problem"
    assert (
        f"another Python, {other_python}, which does not have d2l_gpu and torch"
        in finding.what
    )
    assert finding.what_to_do.endswith("-m jupyter kernelspec remove python3")
    assert look_once("kernel").what.startswith("Not started: ")


def test_kernel_of_another_environment_that_knows_the_course_is_a_note(
    plant, monkeypatch, other_python
):
    plant.module("d2l_gpu", "")
    plant.module("torch", "")
    monkeypatch.setenv("PYTHONPATH", str(plant.modules))
    # This process and those that it starts have the real one.
    sys.path.remove(str(plant.modules))
    plant_kernel(plant, monkeypatch, other_python, "-m", "ipykernel_launcher")
    finding = look_once("kernelspec")
    assert finding.status == "note"
    assert "another Python" in finding.what


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("/nowhere/bin/python", "which does not exist"),
        ("refuses", "does not answer (no Python at all)"),
    ],
)
def test_kernel_that_is_none_is_a_problem(plant, monkeypatch, program, words):
    plant.program("refuses", "echo no Python at all >&2; exit 1")
    plant_kernel(plant, monkeypatch, program, "-f", "{connection_file}")
    finding = look_once("kernelspec")
    assert finding.status == "problem"
    assert words in finding.what


@pytest.mark.parametrize("program", ["python", sys.executable])
def test_kernel_of_this_python_is_fine(plant, monkeypatch, program):
    plant_kernel(plant, monkeypatch, program, "-m", "ipykernel_launcher")
    assert look_once("kernelspec").status == "ok"


def test_kernel_that_fails_to_start_is_a_problem(plant, monkeypatch):
    plant_kernel(plant, monkeypatch, sys.executable, "-c", "raise SystemExit(1)")
    finding = look_once("kernel")
    assert finding.status == "problem"
    assert finding.what.startswith("A kernel does not start (")
    assert "ipykernel" in finding.what_to_do


@pytest.mark.all
@pytest.mark.skipif(os.name == "nt", reason="Windows has no signal to ask with")
def test_kernel_that_hangs_is_a_problem_and_is_ended(plant, monkeypatch, tmp_path):
    code = (
        "import os, pathlib, time; "
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); "
        "time.sleep(600)"
    )
    plant_kernel(plant, monkeypatch, sys.executable, "-c", code)
    finding = until_begun(tmp_path / "pid", lambda limit: look_once("kernel", limit))
    assert finding.status == "problem"
    assert finding.what.startswith("A kernel does not start (")
    wait_until(lambda: not runs(int((tmp_path / "pid").read_text())))


# ------------------------------------------------------------------ network


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for scheme in ("http", "https", "all", "no"):
        for name in (f"{scheme}_proxy", f"{scheme}_PROXY".upper()):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def port():
    """A port of this machine at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def test_machine_without_a_network_has_no_problem(monkeypatch):
    source = Source("toys", ("https://nowhere.invalid/data/",), {})
    monkeypatch.setattr(network, "FASHION_MNIST", source)
    finding = look_once("network")
    assert finding.status == "ok"
    assert finding.what.startswith("Offline (")


def test_proxy_that_answers_is_fine(monkeypatch, port):
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
    assert look_once("network").what == "The proxy answers."


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_proxy_that_does_not_answer_is_named(monkeypatch, scheme):
    address = f"{scheme}127.0.0.1:{free_port()}"
    monkeypatch.setenv("http_proxy", address)
    monkeypatch.setenv("https_proxy", address)
    finding = look_once("network")
    assert finding.status == "note"  # the course works without
    assert f"The proxy in http_proxy and https_proxy, {address}," in finding.what
    assert "HTTPS_PROXY" in finding.what_to_do


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://proxy:port", "its port is not a number"),
        ("http://proxy:99999", "its port is not a number"),
        ("http://", "it names no host"),
        ("htp://proxy:3128", "'htp' is not http, https or socks5"),
        ('"http://proxy:3128"', "it begins with a quotation mark"),
        ("http://pro xy:3128", "there is a space in it"),
    ],
)
def test_malformed_proxy_is_a_problem(monkeypatch, address, reason):
    monkeypatch.setenv("https_proxy", address)
    finding = look_once("network")
    assert finding.status == "problem"
    assert (
        f"https_proxy is {address!r}, which is not the address of a proxy"
        in finding.what
    )
    assert reason in finding.what
    assert "unset https_proxy" in finding.what_to_do or os.name == "nt"


@pytest.mark.parametrize("address", ["http://me:secret@proxy:port", "me:secret@:1"])
def test_password_of_a_proxy_is_not_shown(monkeypatch, address):
    monkeypatch.setenv("https_proxy", address)
    (finding,) = look("network")
    assert finding.status == "problem"
    assert "secret" not in finding.what + finding.what_to_do


def test_socks_proxy_needs_a_package(monkeypatch):
    monkeypatch.setenv("https_proxy", "socks5h://127.0.0.1:1")
    monkeypatch.setattr(network.importlib.util, "find_spec", lambda name: None)
    assert "PySocks" in look_once("network").what


# ------------------------------------------------------------------ the book


@pytest.fixture
def torch(plant):
    plant.torch("2.13.0+cpu")


VISION = "raise RuntimeError('operator torchvision::nms does not exist')"


def test_machine_without_the_book_has_no_problem(torch, monkeypatch):
    monkeypatch.setattr("d2l_gpu.doctor.companion.installed_version", lambda name: "")
    finding = look_once("book")
    assert finding.status == "ok"
    assert "--no-deps d2l==1.0.3" in finding.what


def test_book_that_imports_is_fine(plant, torch):
    plant.package("d2l", "1.0.3")
    plant.module("d2l", "")
    plant.module("d2l.torch", "")
    plant.package("torchvision", "0.28.0")
    plant.module("torchvision", "")
    assert look_once("book").what == "d2l 1.0.3 works beside the course."


def test_book_of_an_old_version_is_a_problem(plant):
    plant.package("d2l", "0.17.6")
    finding = look_once("book")
    assert finding.status == "problem"
    assert "d2l 0.17.6 belongs to an older edition of the book" in finding.what
    assert finding.what_to_do.endswith("pip install --no-deps d2l==1.0.3")


def test_book_that_has_brought_its_numpy_is_a_problem(plant, torch):
    plant.package("d2l", "1.0.3")
    plant.module("d2l", "")
    plant.module("d2l.torch", "")
    plant.package("numpy", "1.23.5")
    findings = look("book")
    assert findings[0].status == "problem"
    assert "d2l 1.0.3 is installed together with NumPy 1.23.5" in findings[0].what
    assert "'numpy>=2'" in findings[0].what_to_do


def test_torchvision_that_does_not_import_is_a_problem_of_the_book(plant, torch):
    plant.package("d2l", "1.0.3")
    plant.module("d2l", "")
    plant.module("d2l.torch", "import torchvision")
    plant.package("torchvision", "0.28.0")
    plant.module("torchvision", VISION)
    finding = look_once("book")
    assert finding.status == "problem"
    assert finding.what == (
        "torchvision cannot be imported with PyTorch 2.13.0+cpu "
        "(RuntimeError: operator torchvision::nms does not exist)."
    )
    assert "--no-deps 'torchvision==0.28.*'" in finding.what_to_do
    assert finding.what_to_do.endswith("/whl/cpu")


def test_torchvision_that_does_not_import_is_no_problem_of_the_course(
    plant, torch, monkeypatch
):
    plant.package("torchvision", "0.28.0")
    plant.module("torchvision", VISION)
    monkeypatch.setattr(
        "d2l_gpu.doctor.companion.installed_version",
        lambda name: "0.28.0" if name == "torchvision" else "",
    )
    finding = look_once("book")
    assert finding.status == "note"
    assert "The course does not need it." in finding.what


def test_torchvision_that_the_book_lacks_is_that_of_this_pytorch(plant, torch):
    plant.package("d2l", "1.0.3")
    plant.module("d2l", "")
    missing = "raise ModuleNotFoundError(\"No module named 'torchvision'\")"
    plant.module("d2l.torch", missing)
    finding = look_once("book")
    assert finding.status == "problem"
    assert "--no-deps 'torchvision==0.28.*'" in finding.what_to_do


def test_package_that_the_book_lacks_is_named(plant, torch):
    plant.package("d2l", "1.0.3")
    plant.module("d2l", "")
    plant.module("d2l.torch", "import PIL_is_missing")
    plant.package("torchvision", "0.28.0")
    plant.module("torchvision", "")
    finding = look_once("book")
    assert finding.status == "problem"
    assert "No module named 'PIL_is_missing'" in finding.what
    assert finding.what_to_do.endswith("pip install PIL_is_missing")
