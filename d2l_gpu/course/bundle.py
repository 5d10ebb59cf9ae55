"""One archive that installs the course without a network: ``d2l-gpu bundle``.

It holds the wheels of what is installed here and now, in the same versions, so that
a class gets what its teacher has tried. pip finds them, wherever it is configured to
look. ``install_bundle.py`` is the other side: what happens in class.
"""

import base64
import contextlib
import csv
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    PathDistribution,
    distribution,
)
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from tqdm import tqdm

from d2l_gpu import __version__
from d2l_gpu.common.files import replacing
from d2l_gpu.common.frameworks import framework
from d2l_gpu.common.messages import say
from d2l_gpu.common.requirements import clone_root, install
from d2l_gpu.common.settings import OURS, data_folder
from d2l_gpu.course import install_bundle
from d2l_gpu.course.install_bundle import (
    FORMAT,
    MANIFEST,
    SECONDS_BETWEEN_LOOKS,
    check_space,
    last_error,
    megabytes,
    sha256,
    system_version,
    this_platform,
    this_python,
    version_numbers,
)
from d2l_gpu.data.sources import FASHION_MNIST, cached

PYTORCH_INDEX = "https://download.pytorch.org/whl/"  # and cpu, cu128 …

# The same archive from the same files, whenever and wherever it is made.
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_FAT32_LIMIT = 2**32 - 1

# What manylinux tags were called before they named the version of glibc (PEP 600).
_OLD_MANYLINUX = {"manylinux1": [2, 5], "manylinux2010": [2, 12]}
_OLD_MANYLINUX["manylinux2014"] = [2, 17]

# What installers write beside the files of a wheel.
_NOT_OF_A_WHEEL = {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json"}

README = """\
d2l-gpu {version}, a course on GPUs for deep learning that needs neither a GPU nor,
with this bundle, a network.

It is for Python {python} on {system}.

1. Unpack the whole archive.
2. In the folder that this creates, run

       python install.py

   or, to have Python {python} found for you, run install.bat on Windows (or
   double-click it), and elsewhere: sh install.sh

3. It tells you how to open the course.

The course goes into the folder d2l-gpu-course in your home folder. To choose another:

       python install.py --folder FOLDER

It takes up {unpacked} of disk space. To remove it, delete that folder.

install.py compares every file with the checksums in manifest.json. That finds a damaged
copy, but not a malicious one: whoever changes a file can change its checksum too. So
install a bundle only if you trust the person who made it.
"""

INSTALL_SH = """\
#!/bin/sh
# Runs install.py with the Python that this bundle is for, if it is found.
for python in python{python} python3 python; do
    if [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' \\
            2>/dev/null)" = {number} ]; then
        exec "$python" "$(dirname "$0")/install.py" "$@"
    fi
done
echo "Python {python} is needed, but was not found: install it first" >&2
exit 1
"""

INSTALL_BAT = """\
@rem Runs install.py with the Python that this bundle is for, if it is found.
@py -{python} -c "" >nul 2>nul
@if errorlevel 1 (
    @python "%~dp0install.py" %*
) else (
    @py -{python} "%~dp0install.py" %*
)
@pause
"""


@dataclass(frozen=True)
class Pin:
    """A package, in the version that is installed.

    Attributes:
        name: as pip knows it.
        version: with the local part, as ``2.13.0+cpu``.
        size: bytes of its files.
    """

    name: str
    version: str
    size: int

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def make_bundle(
    notebooks: Path, lessons: Sequence[str], output: Path, data: bool | None = None
) -> int:
    """Make the archive that installs the course where there is no network.

    Args:
        notebooks: folder of the notebooks as they are published.
        lessons: which of them, by full name.
        output: the archive if it ends in ``.zip``, else a folder for it.
        data: whether to include Fashion-MNIST; None: if it is in the cache.

    Returns:
        0.

    Raises:
        FileNotFoundError: something that is to go into the archive is not here.
        ConnectionError: pip could not get a wheel.
        OSError: the archive cannot be written.
    """
    if not importlib.util.find_spec("pip"):
        raise FileNotFoundError(
            f"{sys.executable} has no pip, which is needed to get the wheels: install "
            f"it with `{sys.executable} -m ensurepip`"
        )
    target = _target(output)
    entries: dict[str, Path | bytes] = {}
    for name in lessons:
        entries[f"notebooks/{name}.ipynb"] = notebooks / f"{name}.ipynb"
    entries |= _data_entries(data)
    with _work_folder(target) as work:
        own = own_wheel(work)
        its = framework(notebooks.name)
        if not its.hosted:
            raise FileNotFoundError(
                f"{its.title} needs an environment of its own, which cannot be "
                f"bundled: {its.install}"
            )
        pins = pinned(own, its.all_extras)
        size = sum(pin.size for pin in pins)
        say(
            f"{OURS} {__version__} and the {len(pins)} packages that it needs take "
            f"{megabytes(size)} when installed; their wheels are smaller",
            flush=True,
        )
        # Wheels, and an archive of them: of less than two thirds of the size each.
        check_space(target.parent, int(1.3 * size))
        wheels = [own, *get_wheels(pins, work)]
        entries |= {f"wheels/{wheel.name}": wheel for wheel in wheels}
        least = least_version(wheels)
        edition = {
            "language": notebooks.parent.name,
            "framework": its.tag,
            "extras": its.all_extras,
            "module": f"d2l_gpu.{its.module}",
        }
        entries |= _installer_entries(wheels, least, entries, edition)
        write_archive(target, entries)
    say(_summary(target, len(wheels), len(lessons), least))
    return 0


def _target(output: Path) -> Path:
    if output.suffix == ".zip":
        target = output
    else:
        python = this_python().replace(".", "")
        name = f"d2l-gpu-bundle-{__version__}-{this_platform()}-py{python}.zip"
        target = output / name
    with _writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    return target


@contextlib.contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    """Make a folder for wheels on the disk of the archive: ``/tmp`` may be small."""
    here = target.parent.absolute()  # pip's own processes work in other folders
    with _writing(target):
        folder = Path(tempfile.mkdtemp(dir=here, prefix=".d2l-gpu-bundle-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Say in one sentence that the archive cannot be written."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"cannot write {target} ({error.strerror or error}): free some space and "
            "check the permissions, or choose another place with --output"
        ) from error


def _summary(target: Path, wheels: int, lessons: int, least: list[int]) -> str:
    size = target.stat().st_size
    text = (
        f"{target}: {megabytes(size)}, {wheels} wheels, {lessons} "
        f"notebook{'s' * (lessons != 1)}\n"
        f"for Python {this_python()} on {system_name(least)}"
    )
    if size > _FAT32_LIMIT:
        text += (
            "\nthat is more than a memory stick with FAT32 can hold in one file; "
            "with a CPU build of PyTorch it is much smaller"
        )
    return f"{text}\nin class: unpack it, and run `python install.py` there"


# ------------------------------------------------------------------ what is installed


def own_wheel(work: Path) -> Path:
    """Return a wheel of this package: built from a clone, or of what is installed.

    Raises:
        FileNotFoundError: it was installed by something else than pip.
        ConnectionError: it cannot be built.
    """
    folder = work / "own"
    folder.mkdir()
    clone = clone_root()
    if clone:
        # Where what it is built with is installed, it need not be downloaded.
        there = importlib.util.find_spec("hatchling")
        options = ["--no-build-isolation"] if there else []
        run_pip(["wheel", "--no-deps", *options, "-w", str(folder), str(clone)], work)
        return next(folder.glob("*.whl"))
    here = Path(__file__).resolve().parents[1]
    try:
        installed = distribution(OURS)
        # pip lists the files of what it installs.
        is_this = Path(installed.locate_file("d2l_gpu")).resolve() == here
        if not is_this or installed.files is None:
            raise PackageNotFoundError
    except PackageNotFoundError:
        raise FileNotFoundError(
            f"{here} was not installed by pip, so no wheel can be made from it: "
            f"install {OURS} with pip, or use a clone"
        ) from None
    return repack(installed, folder)


def repack(installed: Distribution, folder: Path) -> Path:
    """Make a wheel, in a folder, of the files of an installed pure Python package.

    So it need not be on any index, and is what was tried. The format is that of
    https://packaging.python.org/specifications/binary-distribution-format.
    """
    name = canonicalize_name(installed.name).replace("-", "_")
    wheel = folder / f"{name}-{installed.version}-py3-none-any.whl"
    files = installed.files or []
    information = next(file.parent for file in files if file.name == "METADATA")
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted(files):
            if path.parts[0] == ".." or path.suffix == ".pyc":  # commands, compiled
                continue
            if path.parent == information and path.name in _NOT_OF_A_WHEEL:
                continue
            content = path.read_binary()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
            checksum = f"sha256={digest.decode().rstrip('=')}"
            rows.writerow([path.as_posix(), checksum, len(content)])
            info = _zip_info(path.as_posix())
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
        listing = (information / "RECORD").as_posix()
        rows.writerow([listing, "", ""])
        archive.writestr(_zip_info(listing), record.getvalue())
    return wheel


def pinned(own: Path, extras: str) -> list[Pin]:
    """Return what a wheel with some extras needs, as it is installed; and pip.

    Args:
        own: the wheel.
        extras: as ``jupyter,jax``.

    Raises:
        FileNotFoundError: something is not installed, or in a version too old.
    """
    information = next(
        name for name in zipfile.ZipFile(own).namelist() if name.endswith("/METADATA")
    )
    ours = PathDistribution(zipfile.Path(own, information).parent)
    found: dict[str, Distribution] = {OURS: ours}
    lacking, seen = [], set()
    waiting = [Requirement(f"{OURS}[{extras}]"), Requirement("pip")]
    while waiting:
        needed = waiting.pop()
        name = canonicalize_name(needed.name)
        try:
            package = found[name] if name in found else distribution(name)
        except PackageNotFoundError:
            lacking.append(needed.name)
            continue
        found[name] = package
        if not needed.specifier.contains(package.version, prereleases=True):
            lacking.append(f"{needed.name}{needed.specifier}")
        for extra in {"", *needed.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += _required(package, extra)
    if lacking:
        raise FileNotFoundError(
            "the bundle is made from installed packages, but these are missing: "
            f"{', '.join(sorted(lacking))}; install them with `{install(extras)}`"
        )
    del found[OURS]
    return [
        Pin(name, package.version, sum(file.size or 0 for file in package.files or []))
        for name, package in sorted(found.items())
    ]


def _required(package: Distribution, extra: str) -> Iterator[Requirement]:
    for text in package.requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": extra}):
            yield requirement


# ------------------------------------------------------------------ wheels


def get_wheels(pins: Sequence[Pin], work: Path) -> list[Path]:
    """Have pip get or build the wheels of pinned packages, from where it is configured.

    Builds of PyTorch for one kind of device are not on PyPI: if pip does not find
    them, it looks into PyTorch's own index, too.

    Raises:
        ConnectionError: a wheel could not be had.
    """
    folder = work / "wheels"
    folder.mkdir()
    local = [pin for pin in pins if "+" in pin.version]
    common = [pin for pin in pins if pin not in local]
    for pin in local:
        build = re.search(r"\+(cpu|xpu|cu\d+|rocm[\d.]+)$", pin.version)
        try:
            _get([pin], folder, work)
        except ConnectionError:
            if not build:
                raise
            index = ["--extra-index-url", PYTORCH_INDEX + build.group(1)]
            _get([pin], folder, work, index)
    _get(common, folder, work)
    return sorted(folder.glob("*.whl"))


def _get(
    pins: Sequence[Pin], folder: Path, work: Path, options: Sequence[str] = ()
) -> None:
    """Have pip put the wheels of some packages, and of no others, into a folder."""
    listed = work / "requirements.txt"
    listed.write_text("".join(f"{pin}\n" for pin in pins), encoding="utf-8")
    arguments = ["wheel", "--no-deps", "-w", str(folder), "-r", str(listed)]
    run_pip([*arguments, *options], work)


def run_pip(arguments: Sequence[str], work: Path) -> None:
    """Run pip, and show in a terminal how much it has fetched.

    Args:
        arguments: the command and its options.
        work: folder for the temporary files of pip, and for what it makes.

    Raises:
        ConnectionError: it failed; the message has pip's own reason.
    """
    temporary = work / "pip"
    temporary.mkdir(exist_ok=True)
    settings = {name: str(temporary) for name in ("TMPDIR", "TEMP", "TMP")}
    with (
        tempfile.TemporaryFile() as log,
        tqdm(
            desc="wheels", unit="B", unit_scale=True, disable=None, leave=False
        ) as bar,
    ):
        process = subprocess.Popen(
            [sys.executable, "-m", "pip", *arguments, "--quiet", "--no-input"],
            env={**os.environ, **settings, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(SECONDS_BETWEEN_LOOKS)
                if not bar.disable:
                    bar.update(_fetched(work) - bar.n)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            log.seek(0)
            reason = last_error(log.read())
            raise ConnectionError(
                f"pip could not get the packages for the bundle ({reason}): check the "
                "network and pip's configuration"
            )


def _fetched(work: Path) -> int:
    """Return the bytes of the wheels in a folder, of which pip moves some around."""
    sizes: dict[str, int] = {}
    for path in work.rglob("*.whl"):
        with contextlib.suppress(FileNotFoundError):
            sizes[path.name] = max(path.stat().st_size, sizes.get(path.name, 0))
    return sum(sizes.values())


def least_version(wheels: Sequence[Path]) -> list[int]:
    """Return the oldest version of glibc or macOS on which all wheels work.

    An empty list where wheels do not depend on it, as on Windows.
    """
    here = system_version()
    usable = set(sys_tags())
    least: list[int] = []
    for wheel in wheels if here else []:
        tags = parse_wheel_filename(wheel.name)[3] & usable
        versions = [_version_of(tag.platform, here[1]) for tag in tags]
        least = max(least, min(versions, default=here[1]))
    return least


def system_name(least: list[int]) -> str:
    """Return the system on which the wheels work, for people to read."""
    here = system_version()
    if not here or not least:
        return this_platform()
    return f"{this_platform()} ({here[0]} {'.'.join(map(str, least))} or newer)"


def _version_of(platform: str, here: list[int]) -> list[int]:
    """Return the version of the system in a tag such as ``manylinux_2_28_x86_64``."""
    name = platform.partition("_")[0]
    if name == "any":
        return []
    if name in _OLD_MANYLINUX:
        return _OLD_MANYLINUX[name]
    if name in ("manylinux", "macosx"):
        return version_numbers(platform)
    return here  # built on this machine, for the like of it


# ------------------------------------------------------------------ the archive


def _data_entries(wanted: bool | None) -> dict[str, Path | bytes]:
    """Return the files of Fashion-MNIST if they are to be included, having said so."""
    if wanted is False:
        say("Fashion-MNIST is left out")
        return {}
    folder = data_folder() / FASHION_MNIST.folder
    paths = [
        cached(name, md5, folder, FASHION_MNIST.sha256.get(name, ""))
        for name, md5 in FASHION_MNIST.files.items()
    ]
    if None not in paths:
        say(f"Fashion-MNIST is included, from {folder}")
        return {f"data/{FASHION_MNIST.folder}/{path.name}": path for path in paths}
    if wanted:
        raise FileNotFoundError(
            f"Fashion-MNIST is not in {folder}: download it first with "
            "d2l.load_data_fashion_mnist(256), or leave out --data"
        )
    say(f"Fashion-MNIST is not included, since it is not in {folder}")
    return {}


def _installer_entries(
    wheels: Sequence[Path],
    least: list[int],
    entries: dict[str, Path | bytes],
    edition: dict[str, str],
) -> dict[str, Path | bytes]:
    """Return the installers, what they say, and the manifest of all files."""
    unpacked = sum(
        member.file_size
        for wheel in wheels
        for member in zipfile.ZipFile(wheel).infolist()
    )
    python = this_python()
    words = {
        "version": __version__,
        "python": python,
        "number": python.rstrip("t"),
        "system": system_name(least),
        "unpacked": megabytes(unpacked),
    }
    windows = INSTALL_BAT.format(**words).replace("\n", "\r\n")
    added: dict[str, Path | bytes] = {
        "README.txt": README.format(**words).encode(),
        "install.py": Path(install_bundle.__file__),
        "install.sh": INSTALL_SH.format(**words).encode(),
        "install.bat": windows.encode(),
    }
    manifest = {
        "format": FORMAT,
        "version": __version__,
        **edition,
        "python": python,
        "platform": this_platform(),
        "least_version": least,
        "unpacked_bytes": unpacked,
        "files": {
            name: hashlib.sha256(entry).hexdigest()
            if isinstance(entry, bytes)
            else sha256(entry)
            for name, entry in sorted({**entries, **added}.items())
        },
    }
    return {**added, MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode()}


def write_archive(target: Path, entries: dict[str, Path | bytes]) -> None:
    """Write an archive under its name when it is complete; the old one stays till then.

    Args:
        target: its path; what it is called is the name of the folder inside, too.
        entries: names inside that folder, and their contents or files.

    Raises:
        OSError: it cannot be written.
    """
    size = sum(
        len(entry) if isinstance(entry, bytes) else entry.stat().st_size
        for entry in entries.values()
    )
    check_space(target.parent, size)
    with _writing(target), replacing(target, durable=True) as file:
        _fill(file, target.stem, entries, size)


def _fill(
    file: io.BufferedIOBase, top: str, entries: dict[str, Path | bytes], size: int
) -> None:
    # Stored: wheels are compressed already, and the rest is small.
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        tqdm(
            total=size,
            desc="archive",
            unit="B",
            unit_scale=True,
            disable=None,
            leave=False,
        ) as bar,
    ):
        for name, entry in sorted(entries.items()):
            is_program = name.endswith((".py", ".sh"))
            info = _zip_info(f"{top}/{name}", mode=0o755 if is_program else 0o644)
            if isinstance(entry, bytes):
                archive.writestr(info, entry)
                bar.update(len(entry))
                continue
            info.file_size = entry.stat().st_size  # which may need ZIP64
            with entry.open("rb") as source, archive.open(info, "w") as member:
                while chunk := source.read(2**20):
                    member.write(chunk)
                    bar.update(len(chunk))


def _zip_info(name: str, mode: int = 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _TIMESTAMP)
    info.create_system = _UNIX
    info.external_attr = (0o100000 | mode) << 16
    return info
