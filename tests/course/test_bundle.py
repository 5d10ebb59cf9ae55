"""`d2l-gpu bundle` makes an archive, which installs the course without a network."""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import venv
import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.tags import Tag

from d2l_gpu import __version__, cli, course
from d2l_gpu.course import bundle, install_bundle
from d2l_gpu.course.install_bundle import START, this_platform, this_python
from d2l_gpu.data.sources import Source
from tests.helpers.file_server import md5, serving
from tests.helpers.paths import REPOSITORY
from tests.helpers.waiting import PATIENCE, wait_until

NAME = (
    f"d2l-gpu-bundle-{__version__}-{this_platform()}-py{this_python().replace('.', '')}"
)
IMAGES = b"images of clothing"

# What the installer asks of the course: where its data are. It hangs or fails if told.
TOY_SETTINGS = """
import os, pathlib, time
import toy
def data_folder():
    if "TOY_HANGS" in os.environ:
        pathlib.Path(os.environ["TOY_HANGS"]).touch()
        time.sleep(600)
    if "TOY_FAILS" in os.environ:
        raise OSError("a library of the system is missing")
    return pathlib.Path(os.environ["D2L_GPU_DATA"])
"""


# ---- A course of toys, and a store in which pip finds its wheels


def put_package(
    site: Path, name: str, version: str, files: dict[str, str], metadata: str = ""
) -> importlib.metadata.Distribution:
    """Lay out a package as pip would have installed it."""
    information = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        **files,
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\n"
        f"Version: {version}\n{metadata}",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: toy\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
        f"{information}/INSTALLER": "pip\n",
    }
    listed = [*files, "../../../bin/toy", f"{information}/RECORD"]
    files[f"{information}/RECORD"] = "".join(f"{path},,\n" for path in listed)
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    return importlib.metadata.PathDistribution(site / information)


def put_course(site: Path, requires: str = "toy>=1") -> None:
    metadata = f"Provides-Extra: course\nRequires-Dist: {requires}; extra == 'course'\n"
    modules = {
        "d2l_gpu/__init__.py": "",
        "d2l_gpu/torch/__init__.py": "",
        "d2l_gpu/common/settings.py": TOY_SETTINGS,
    }
    put_package(site, "d2l-gpu", "0.1.0", modules, metadata)


@pytest.fixture(scope="module")
def pip_wheel(tmp_path_factory) -> Path:
    pip = importlib.metadata.distribution("pip")
    return bundle.repack(pip, tmp_path_factory.mktemp("pip"))


def set_up(folder: Path, pip_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a teacher's computer: toys are installed, and pip has a store of wheels."""
    store = folder / "store"
    store.mkdir()
    shutil.copy(pip_wheel, store)
    for site, version in (("site", "1.0"), ("newer", "2.0")):
        files = {"toy.py": f"version = {version}\n"}
        bundle.repack(put_package(folder / site, "toy", version, files), store)
    monkeypatch.syspath_prepend(folder / "site")
    put_course(folder / "own")
    monkeypatch.setattr(bundle, "own_wheel", lambda work: toy_course(folder))
    for name, value in {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(store),
        "D2L_GPU_DATA": str(folder / "data"),
    }.items():
        monkeypatch.setenv(name, value)
    published = folder / "published" / "en" / "pytorch"
    published.mkdir(parents=True)
    for name in ("01_devices", "02_tensors", "A1_more"):
        (published / f"{name}.ipynb").write_text(f"the notebook {name}")
    monkeypatch.setattr(course, "editions_root", lambda: folder / "published")
    (folder / "teacher").mkdir()
    monkeypatch.chdir(folder / "teacher")
    return folder


def toy_course(folder: Path) -> Path:
    wheels = folder / "wheel"
    wheels.mkdir(exist_ok=True)
    information = folder / "own" / "d2l_gpu-0.1.0.dist-info"
    return bundle.repack(importlib.metadata.PathDistribution(information), wheels)


def cache_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the teacher used Fashion-MNIST, which is smaller here."""
    source = Source("fashion-mnist", (), {"images.gz": md5(IMAGES)})
    monkeypatch.setattr(bundle, "FASHION_MNIST", source)
    cache = folder / "data" / "fashion-mnist"
    cache.mkdir(parents=True)
    (cache / "images.gz").write_bytes(IMAGES)
    return cache


@pytest.fixture
def workshop(tmp_path, pip_wheel, monkeypatch) -> Path:
    return set_up(tmp_path, pip_wheel, monkeypatch)


@pytest.fixture
def cached_data(workshop, monkeypatch) -> Path:
    return cache_data(workshop, monkeypatch)


@pytest.fixture(scope="module")
def archive(tmp_path_factory, pip_wheel) -> Path:
    """An archive with everything, made once for all students."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = set_up(tmp_path_factory.mktemp("teacher"), pip_wheel, monkeypatch)
        cache_data(folder, monkeypatch)
        assert cli.main(["bundle"]) == 0
    return folder / "teacher" / f"{NAME}.zip"


@pytest.fixture
def unpacked(archive, tmp_path) -> Path:
    """What a student gets from unpacking the archive."""
    shutil.unpack_archive(archive, tmp_path / "stick")
    return tmp_path / "stick" / NAME


def one_sentence(text: str) -> str:
    """Return what a command said, having checked that it is one line."""
    assert text.count("\n") == 1, text
    return text


# ---- Making the archive


def inside(archive: str | Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        assert opened.testzip() is None
        return {
            name.removeprefix(f"{NAME}/"): opened.read(name)
            for name in opened.namelist()
        }


def test_bundle_holds_what_is_installed_and_one_edition(workshop, capsys):
    assert cli.main(["bundle"]) == 0
    files = inside(f"{NAME}.zip")
    pip = importlib.metadata.version("pip")
    assert set(files) == {
        "README.txt",
        "install.bat",
        "install.py",
        "install.sh",
        "manifest.json",
        "notebooks/01_devices.ipynb",
        "notebooks/02_tensors.ipynb",
        "wheels/d2l_gpu-0.1.0-py3-none-any.whl",
        f"wheels/pip-{pip}-py3-none-any.whl",
        "wheels/toy-1.0-py3-none-any.whl",  # the store has 2.0, too
    }
    said = capsys.readouterr()
    size = Path(f"{NAME}.zip").stat().st_size / 1e6
    assert f"{NAME}.zip: {size:,.0f} MB, 3 wheels, 2 notebooks\n" in said.out
    assert "Fashion-MNIST is not included" in said.out
    assert said.err == ""
    assert [path.name for path in Path().iterdir()] == [f"{NAME}.zip"]


def test_manifest_has_the_checksum_of_every_other_file(workshop):
    cli.main(["bundle"])
    files = inside(f"{NAME}.zip")
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["files"] == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()
    }
    text = " ".join(files["README.txt"].decode().split())
    assert "finds a damaged copy, but not a malicious one" in text


def test_same_files_make_the_same_archive(workshop):
    assert cli.main(["bundle", "--output", "a"]) == 0
    for path in workshop.rglob("*.ipynb"):
        os.utime(path, (0, 0))
        path.chmod(0o600)
    assert cli.main(["bundle", "--output", f"b/{NAME}.zip"]) == 0
    first, second = (Path(folder, f"{NAME}.zip").read_bytes() for folder in "ab")
    assert first == second


def test_only_the_lessons_named_are_in_it(workshop):
    assert cli.main(["bundle", "A1", "tensors"]) == 0
    files = inside(f"{NAME}.zip")
    assert [name for name in files if name.startswith("notebooks/")] == [
        "notebooks/02_tensors.ipynb",
        "notebooks/A1_more.ipynb",
    ]


def test_data_in_the_cache_are_included_unless_refused(cached_data, capsys):
    assert cli.main(["bundle", "--output", "with"]) == 0
    assert f"included, from {cached_data}" in capsys.readouterr().out
    assert inside(f"with/{NAME}.zip")["data/fashion-mnist/images.gz"] == IMAGES
    assert cli.main(["bundle", "--output", "without", "--no-data"]) == 0
    assert "left out" in capsys.readouterr().out
    assert "data/fashion-mnist/images.gz" not in inside(f"without/{NAME}.zip")


def test_data_that_are_wanted_and_damaged_are_one_sentence(cached_data, capsys):
    (cached_data / "images.gz").write_bytes(b"damaged")
    assert cli.main(["bundle", "--data"]) == 1
    assert f"is not in {cached_data}" in one_sentence(capsys.readouterr().err)
    assert list(Path().iterdir()) == []


def test_what_is_not_installed_is_one_sentence(workshop, capsys):
    put_course(workshop / "own", "toy>=3")
    assert cli.main(["bundle"]) == 1
    assert "missing: toy>=3; install them" in one_sentence(capsys.readouterr().err)
    put_course(workshop / "own", "absent-toy")
    assert cli.main(["bundle"]) == 1
    assert "missing: absent-toy; install them" in one_sentence(capsys.readouterr().err)


def test_environment_without_pip_is_one_sentence(workshop, monkeypatch, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pip" else found(name)
    )
    assert cli.main(["bundle"]) == 1
    assert "has no pip" in one_sentence(capsys.readouterr().err)


def test_wheel_that_pip_does_not_find_keeps_the_old_archive(workshop, capsys):
    Path(f"{NAME}.zip").write_text("the old one")
    (workshop / "store" / "toy-1.0-py3-none-any.whl").unlink()
    assert cli.main(["bundle"]) == 1
    error = one_sentence(capsys.readouterr().err)
    assert "No matching distribution found for toy==1.0" in error
    assert Path(f"{NAME}.zip").read_text() == "the old one"
    assert len(list(Path().iterdir())) == 1


def test_disk_that_fills_up_keeps_the_old_archive(workshop, monkeypatch, capsys):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    Path(f"{NAME}.zip").write_text("the old one")
    monkeypatch.setattr(os, "fsync", full)
    assert cli.main(["bundle"]) == 1
    error = one_sentence(capsys.readouterr().err)
    assert "(No space left on device): free some space" in error
    assert Path(f"{NAME}.zip").read_text() == "the old one"
    assert len(list(Path().iterdir())) == 1


def test_too_small_a_disk_is_refused_before_pip_runs(workshop, monkeypatch, capsys):
    usage = shutil._ntuple_diskusage(100, 99, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    monkeypatch.setattr(bundle, "run_pip", None)
    assert cli.main(["bundle"]) == 1
    assert re.search(
        r"\d+ MB are needed in .*, but only 0 MB are free: free some space",
        one_sentence(capsys.readouterr().err),
    )
    assert list(Path().iterdir()) == []


def test_output_that_cannot_be_a_folder_is_one_sentence(workshop, capsys):
    Path("taken").touch()
    assert cli.main(["bundle", "--output", "taken"]) == 1
    assert "cannot write" in one_sentence(capsys.readouterr().err)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send")
def test_ctrl_c_ends_pip_and_leaves_nothing(workshop):
    toy_course(workshop)
    code = f"""
        import pathlib, sys
        from d2l_gpu import cli, course
        from d2l_gpu.course import bundle
        folder = pathlib.Path({str(workshop)!r})
        course.editions_root = lambda: folder / "published"
        bundle.own_wheel = lambda work: next((folder / "wheel").glob("*.whl"))
        sys.path.insert(0, str(folder / "site"))
        sys.exit(cli.main(["bundle", "--no-data"]))
    """
    with serving() as server:
        server.files["pip/"] = server.hang
        environment = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "PIP_INDEX_URL": server.url,
        }
        del environment["PIP_NO_INDEX"]
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: server.requests)
        (pip,) = children(process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert errors == "\ninterrupted\n"
    assert list(Path().iterdir()) == []
    assert not Path(f"/proc/{pip}").exists()


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children")
    if not listed.exists():
        pytest.skip("this system does not list a process's children in /proc")
    return [int(number) for number in listed.read_text().split()]


def test_cpu_build_is_looked_for_in_the_index_of_pytorch(workshop, monkeypatch):
    (information,) = (workshop / "site").glob("toy-*.dist-info")
    shutil.rmtree(information)
    build = put_package(workshop / "site", "toy", "1.0+cpu", {"toy.py": ""})
    (workshop / "elsewhere").mkdir()
    wheel = bundle.repack(build, workshop / "elsewhere")
    with serving() as server:
        server.files["whl/cpu/toy/"] = page(f'<a href="/{wheel.name}">x</a>')
        server.files[quote(wheel.name)] = wheel.read_bytes()
        monkeypatch.setattr(bundle, "PYTORCH_INDEX", f"{server.url}whl/")
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}simple/")
        assert cli.main(["bundle"]) == 0
        assert "whl/cpu/pip/" not in server.requests
    assert f"wheels/{wheel.name}" in inside(f"{NAME}.zip")


def page(text: str):
    """Return an answer of a server that says that it is HTML, as pip wants it."""

    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/html")
        handler.end_headers()
        handler.wfile.write(f"<!doctype html>{text}".encode())

    return answer


@pytest.mark.parametrize(
    ("names", "least"),
    [
        (["a-1-py3-none-any.whl"], []),
        (["a-1-py3-none-manylinux_2_5_x86_64.manylinux1_x86_64.whl"], [2, 5]),
        (["a-1-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"], [2, 17]),
        (
            [
                "a-1-py3-none-manylinux_2_17_x86_64.whl",
                "b-1-py3-none-manylinux_2_12_x86_64.manylinux_2_5_x86_64.whl",
                "c-1-py3-none-any.whl",
            ],
            [2, 17],
        ),
        (["a-1-py3-none-linux_x86_64.whl"], [2, 99]),  # built on this machine
    ],
)
def test_newest_need_of_a_wheel_is_that_of_the_bundle(monkeypatch, names, least):
    if this_platform() != "linux-x86_64":
        pytest.skip("these are wheels for Linux")
    monkeypatch.setattr(bundle, "system_version", lambda: ("glibc", [2, 99]))
    assert bundle.least_version([Path(name) for name in names]) == least


@given(
    wheels=st.lists(
        st.lists(st.integers(5, 40), min_size=1, max_size=4, unique=True), max_size=4
    )
)
def test_a_bundle_needs_what_its_most_demanding_wheel_needs_at_least(wheels):
    if this_platform() != "linux-x86_64":
        pytest.skip("these are wheels for Linux")
    paths = []
    for i, versions in enumerate(wheels):
        tags = ".".join(f"manylinux_2_{version}_x86_64" for version in versions)
        paths.append(Path(f"a{i}-1-py3-none-{tags}.whl"))
    tags = [
        Tag("py3", "none", f"manylinux_2_{version}_x86_64") for version in range(5, 41)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle, "system_version", lambda: ("glibc", [2, 99]))
        patch.setattr(bundle, "sys_tags", lambda: tags)
        needed = max((min(versions) for versions in wheels), default=None)
        assert bundle.least_version(paths) == ([] if needed is None else [2, needed])


@pytest.mark.all
def test_wheel_of_what_is_installed_is_the_one_that_was_installed(tmp_path):
    built = bundle.own_wheel(tmp_path)
    assert bundle.clone_root() == REPOSITORY
    site = tmp_path / "site"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--no-index"),
            *("--target", str(site), str(built)),
        ],
        check=True,
    )
    code = (
        "import pathlib; from d2l_gpu.course import bundle; "
        "print(bundle.own_wheel(pathlib.Path('work')))"
    )
    (tmp_path / "work").mkdir()
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    made = tmp_path / result.stdout.strip()
    assert made.name == built.name
    files, wanted = (contents(wheel) for wheel in (made, built))
    assert files == wanted
    assert any(name.endswith(".ipynb") for name in files)


def contents(wheel: Path) -> dict[str, object]:
    with zipfile.ZipFile(wheel) as opened:
        files = {name: opened.read(name) for name in opened.namelist()}
    # Its lines may come in any order.
    return {
        name: sorted(content.splitlines()) if name.endswith("/RECORD") else content
        for name, content in files.items()
    }


def test_package_that_pip_did_not_install_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(bundle, "clone_root", lambda: None)
    monkeypatch.setattr(bundle, "distribution", importlib.metadata.distribution)
    monkeypatch.setattr(bundle, "OURS", "not-installed-at-all")
    with pytest.raises(FileNotFoundError, match="was not installed by pip"):
        bundle.own_wheel(tmp_path)


# ---- Installing it


def run_installer(
    unpacked: Path, folder: Path, **environment: str
) -> subprocess.CompletedProcess:
    """Run the installer as a student, who has none of the teacher's settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "PYTHON"))
    }
    return subprocess.run(
        [sys.executable, str(unpacked / "install.py"), "--folder", str(folder)],
        env={**kept, "D2L_GPU_DATA": str(folder.parent / "class data"), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def python_of(folder: Path) -> Path:
    inside = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    return folder / ".venv" / inside


def test_installer_needs_nothing_but_the_bundle(unpacked, tmp_path):
    folder = tmp_path / "my course"
    # What the student has configured is for other purposes.
    configured = tmp_path / "pip.conf"
    configured.write_text(f"[install]\nroot = {tmp_path / 'elsewhere'}\n")
    settings = {"PIP_CONFIG_FILE": str(configured), "PIP_TARGET": str(tmp_path / "t")}
    result = run_installer(unpacked, folder, **settings)
    assert (result.returncode, result.stderr) == (0, "")
    code = "import toy, importlib.metadata as m; print(toy.version, m.version('toy'))"
    said = subprocess.check_output([python_of(folder), "-c", code], text=True)
    assert said == "1.0 1.0\n"
    for name in ("01_devices", "02_tensors"):
        assert (folder / f"{name}.ipynb").read_text() == f"the notebook {name}"
    data = tmp_path / "class data" / "fashion-mnist" / "images.gz"
    assert data.read_bytes() == IMAGES
    start = next(name for name in START if (folder / name).exists())
    assert result.stdout.splitlines()[-1].endswith(f"{folder / start}'")
    opens = "-m d2l_gpu.cli lab --output . --language en --framework pytorch"
    assert opens in (folder / start).read_text()


@pytest.mark.all
def test_installing_again_keeps_changed_notebooks_and_the_environment(
    unpacked, tmp_path
):
    folder = tmp_path / "course"
    assert run_installer(unpacked, folder).returncode == 0
    mine = folder / "01_devices.ipynb"
    mine.write_text("mine")
    (folder / "02_tensors.ipynb").unlink()
    (folder / ".venv" / "mine").touch()
    result = run_installer(unpacked, folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert mine.read_text() == "mine"
    assert f"{mine} differs" in result.stdout
    assert "02_tensors.ipynb differs" not in result.stdout
    assert (folder / "02_tensors.ipynb").exists()
    assert (folder / ".venv" / "mine").exists()


def refused(unpacked: Path, folder: Path, **environment: str) -> str:
    """Return the one sentence of the installer, if nothing has changed."""
    before = sorted(folder.rglob("*"))
    result = run_installer(unpacked, folder / "course", **environment)
    assert result.returncode == 1
    assert sorted(folder.rglob("*")) == before
    return one_sentence(result.stderr)


def test_damaged_file_is_refused(unpacked, tmp_path):
    wheel = unpacked / "wheels" / "toy-1.0-py3-none-any.whl"
    content = bytearray(wheel.read_bytes())
    content[len(content) // 2] ^= 1
    wheel.write_bytes(content)
    error = refused(unpacked, tmp_path)
    assert f"wheels/{wheel.name} is damaged (its checksum" in error


def test_missing_file_is_refused(unpacked, tmp_path):
    (unpacked / "notebooks" / "02_tensors.ipynb").unlink()
    error = refused(unpacked, tmp_path)
    assert "notebooks/02_tensors.ipynb is missing from the bundle" in error


@pytest.mark.parametrize(
    ("entry", "value", "sentence"),
    [
        ("python", "3.9", "this bundle is for Python 3.9, but this is Python 3."),
        ("platform", "win-amd64", "this bundle is for win-amd64, but this is "),
        ("least_version", [99, 1], " 99.1, but this system has "),
        ("unpacked_bytes", 10**18, " MB are needed in "),
        ("format", 2, "has format 2, but this install.py reads format 1"),
    ],
)
def test_bundle_for_another_machine_is_refused(
    unpacked, tmp_path, entry, value, sentence
):
    if entry == "least_version" and os.name == "nt":
        pytest.skip("wheels for Windows do not depend on its version")
    manifest = json.loads((unpacked / "manifest.json").read_text())
    assert entry in manifest
    (unpacked / "manifest.json").write_text(json.dumps({**manifest, entry: value}))
    assert sentence in refused(unpacked, tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "unpack the whole archive"), ("{", "is damaged: unpack the archive again")],
)
def test_bundle_without_its_manifest_is_refused(unpacked, tmp_path, content, sentence):
    (unpacked / "manifest.json").unlink()
    if content:
        (unpacked / "manifest.json").write_text(content)
    assert sentence in refused(unpacked, tmp_path)


def test_bundle_that_lacks_a_wheel_is_refused(unpacked, tmp_path):
    manifest = json.loads((unpacked / "manifest.json").read_text())
    del manifest["files"]["wheels/toy-1.0-py3-none-any.whl"]
    (unpacked / "manifest.json").write_text(json.dumps(manifest))
    assert "No matching distribution found for toy" in refused(unpacked, tmp_path)


@pytest.mark.all
def test_packages_that_do_not_work_are_removed(unpacked, tmp_path):
    error = refused(unpacked, tmp_path, TOY_FAILS="1")
    assert "do not work here: OSError: a library of the system is missing" in error


@pytest.mark.parametrize("fails", ["install_wheels", "data_folder"])
@pytest.mark.parametrize("error", [OSError, RuntimeError, KeyboardInterrupt])
def test_failure_keeps_an_environment_only_if_it_was_there(
    tmp_path, monkeypatch, fails, error
):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(install_bundle, "install_wheels", lambda *arguments: None)
    monkeypatch.setattr(install_bundle, fails, fail)
    environment = tmp_path / "course" / ".venv"

    def install():
        with pytest.raises(error):
            install_bundle.make_environment(
                tmp_path, {"extras": "", "module": ""}, [], environment
            )

    install()
    assert list(tmp_path.iterdir()) == []
    venv.EnvBuilder(symlinks=os.name != "nt").create(environment)
    before = sorted(environment.rglob("*"))
    for _ in range(2):
        install()
        assert sorted(environment.rglob("*")) == before


def test_folder_named_as_the_environment_is_kept(unpacked, tmp_path):
    (tmp_path / "course" / ".venv").mkdir(parents=True)
    (tmp_path / "course" / ".venv" / "mine").touch()
    assert "is not an environment of Python 3." in refused(unpacked, tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="the other Python is a script of the shell")
def test_environment_of_another_python_is_kept(unpacked, tmp_path):
    python = python_of(tmp_path / "course")
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 3.9\n")
    python.chmod(0o755)
    (tmp_path / "course" / ".venv" / "pyvenv.cfg").touch()
    assert "is not an environment of Python 3." in refused(unpacked, tmp_path)


@pytest.mark.all
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send")
def test_ctrl_c_leaves_nothing_installed(unpacked, tmp_path):
    begun = tmp_path / "begun"
    process = subprocess.Popen(
        [sys.executable, unpacked / "install.py", "--folder", tmp_path / "course"],
        env={**os.environ, "TOY_HANGS": str(begun)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(begun.exists)
    assert (tmp_path / "course" / ".venv").exists()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert errors == "\ninterrupted\n"
    assert not (tmp_path / "course").exists()


@pytest.mark.skipif(os.name == "nt", reason="it is a script for the shell")
def test_script_finds_the_python_of_the_bundle(unpacked, tmp_path):
    installer = ["sh", unpacked / "install.sh", "--help"]
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "dirname").symlink_to(shutil.which("dirname"))
    (tools / "sh").symlink_to(shutil.which("sh"))
    environment = {"PATH": str(tools)}
    result = subprocess.run(
        installer, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert f"Python {this_python()} is needed" in one_sentence(result.stderr)
    (tools / "python3").symlink_to(shutil.which("false"))
    (tools / "python").symlink_to(sys.executable)
    said = subprocess.check_output(installer, env=environment, text=True)
    assert said.startswith("usage: install.py")


# ---- The real thing, without a network

# Runs a command where there is no network but a loopback of its own, which kernels
# need, and which every computer has. First it says whether an address can be reached.
OFFLINE = """
import fcntl, os, socket, struct, sys
with socket.socket() as probe:
    request = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # up and running
    fcntl.ioctl(probe, 0x8914, request)  # SIOCSIFFLAGS
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5).close()
except OSError as error:
    print("no connection:", error, flush=True)
else:
    sys.exit("the network is on")
os.execvp(sys.argv[3], sys.argv[3:])
"""


def without_network() -> list[str]:
    """Return the beginning of a command that runs the rest in an empty network."""
    for options in (["--net"], ["--net", "--map-root-user"]):
        command = ["unshare", *options]
        if (
            shutil.which("unshare")
            and not subprocess.run([*command, "true"], capture_output=True).returncode
        ):
            return command
    pytest.skip("network namespaces cannot be made here (unshare --net fails)")


@pytest.mark.weekly
def test_bundle_of_this_environment_runs_a_lesson_without_a_network(
    tmp_path, monkeypatch
):
    unshare = without_network()
    student = {
        "HOME": str(tmp_path),
        "PATH": os.defpath,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "OMP_NUM_THREADS": "1",
        "LC_ALL": "C.UTF-8",
    }

    def offline(*command: str | Path) -> str:
        probed = [sys.executable, "-c", OFFLINE, *map(str, server.getsockname())]
        result = subprocess.run(
            [*unshare, *probed, *map(str, command)],
            cwd=tmp_path,
            env=student,
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,  # pip installs PyTorch
        )
        assert result.returncode == 0, result.stderr
        first, _, rest = result.stdout.partition("\n")
        assert first.startswith("no connection:")
        return rest

    monkeypatch.setenv("D2L_GPU_DATA", str(tmp_path / "none"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        # Here it can be reached, there it cannot.
        socket.create_connection(server.getsockname()).close()
        try:
            assert cli.main(["bundle", "--output", str(tmp_path)]) == 0
            archive = tmp_path / f"{NAME}.zip"
            shutil.unpack_archive(archive, tmp_path / "stick")
            archive.unlink()
            said = offline(sys.executable, tmp_path / "stick" / NAME / "install.py")
            folder = tmp_path / "d2l-gpu-course"
            assert said.endswith(f"    sh {folder / 'start.sh'}\n")
            assert (folder / "09_scaling.ipynb").exists()
            installed = folder / ".venv" / "bin"
            assert "01_devices: passed" in offline(installed / "d2l-gpu", "run", "01")
            version = importlib.metadata.version("jupyterlab")
            options = ("--", "--allow-root", "--version")
            said = offline("sh", folder / "start.sh", *options)
            assert said == f"{version}\n"
            code = "import importlib.metadata as m; print(m.version('torch'))"
            version = importlib.metadata.version("torch")
            assert offline(installed / "python", "-c", code) == f"{version}\n"
        finally:  # more than a gigabyte, which pytest would keep for a while
            shutil.rmtree(tmp_path, ignore_errors=True)
