#!/usr/bin/env python3
"""Install the course from the bundle that this file lies in, without a network.

``d2l-gpu bundle`` puts this file into the archive, as ``install.py``; it takes from
here what both sides have to agree upon. It needs nothing but Python, and Python 3.7
understands enough of it to say that it is too old.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

MANIFEST = "manifest.json"
FORMAT = 1  # of the manifest
ENVIRONMENT = ".venv"
SECONDS_BETWEEN_LOOKS = 0.2

_LAB = "-m d2l_gpu.cli lab --output . --language {language} --framework {framework}"
START = {
    "start.sh": '#!/bin/sh\n# Opens the course.\ncd "$(dirname "$0")" || exit\n'
    f'exec .venv/bin/python {_LAB} "$@"\n',
    "start.bat": '@rem Opens the course.\r\n@cd /d "%~dp0"\r\n'
    f"@.venv\\Scripts\\python.exe {_LAB} %*\r\n@if errorlevel 1 pause\r\n",
}


def main(arguments: list[str] | None = None) -> int:
    """Install what is in the bundle.

    Args:
        arguments: without the name of the program; those of the process if None.

    Returns:
        0, or 1 if it could not be installed, 130 if interrupted by Ctrl-C.
    """
    parser = argparse.ArgumentParser(
        prog="install.py",
        description="Install the course from this bundle; needs no network.",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path.home() / "d2l-gpu-course",
        help="where to put the notebooks and everything they need (default: "
        "%(default)s)",
    )
    options = parser.parse_args(arguments)
    try:
        install(Path(__file__).absolute().parent, options.folder.absolute())
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except (OSError, RuntimeError) as error:
        print(f"install.py: {error}", file=sys.stderr)
        return 1
    return 0


def install(bundle: Path, folder: Path) -> None:
    """Install a bundle, or leave everything as it was.

    Args:
        bundle: folder of the unpacked archive.
        folder: where notebooks and a virtual environment are put; notebooks that the
            reader has changed there stay, an environment of the same Python is used.

    Raises:
        RuntimeError: the bundle is for another machine, or pip failed.
        OSError: files of the bundle are missing or damaged, or the disk is full.
    """
    manifest = read_manifest(bundle)
    check_machine(manifest)
    files = manifest["files"]
    check_files(bundle, files)
    if not (folder / ENVIRONMENT).exists():
        # Beside what is in the wheels: what Python compiles of it, data, notebooks.
        check_space(folder, int(1.1 * manifest["unpacked_bytes"]))
    wheels = [name for name in files if name.startswith("wheels/")]
    data = make_environment(bundle, manifest, wheels, folder / ENVIRONMENT)
    for name in files:
        kind, _, inside = name.partition("/")
        if kind == "notebooks":
            copy_notebook(bundle / name, folder / inside)
        elif kind == "data":
            copy_whole(bundle / name, data / inside)
    if any(name.startswith("data/") for name in files):
        print(f"the data are in {data}")
    start = folder / ("start.bat" if os.name == "nt" else "start.sh")
    start.write_bytes(START[start.name].format(**manifest).encode())
    start.chmod(0o755)
    print(f"\nThe course is in {folder}. To open it:\n\n    {command(start)}")


# ------------------------------------------------------------------ this machine


def this_python() -> str:
    """Return the Python for which wheels are made, as ``3.11``, or ``3.13t``."""
    threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    version = "{}.{}".format(*sys.version_info) + threads
    name = sys.implementation.name
    return version if name == "cpython" else f"{version} ({name})"


def this_platform() -> str:
    """Return system and processor, as ``linux-x86_64``, without the system's version.

    It is the Python's rather than the machine's: one of 32 bits needs other wheels.
    """
    if sys.platform == "darwin":
        return f"macos-{platform.machine()}"
    name = sysconfig.get_platform()
    is_musl = sys.platform == "linux" and not glibc()
    return name.replace("linux", "linux-musl") if is_musl else name


def glibc() -> str:
    """Return the version of the GNU C library, as ``2.36``, or nothing elsewhere."""
    try:
        name, _, version = os.confstr("CS_GNU_LIBC_VERSION").partition(" ")
    except (AttributeError, ValueError, OSError):
        return ""
    return version if name == "glibc" else ""


def system_version() -> tuple[str, list[int]] | None:
    """Return what wheels need a least version of, and the one here; None if nothing."""
    if sys.platform == "darwin":
        return "macOS", version_numbers(platform.mac_ver()[0])
    return ("glibc", version_numbers(glibc())) if glibc() else None


def version_numbers(text: str) -> list[int]:
    """Return the first two numbers of a version."""
    return [int(number) for number in re.findall(r"\d+", text)[:2]]


def check_machine(manifest: dict) -> None:
    """Raise RuntimeError if the wheels are for another Python or system."""
    wanted, here = manifest["python"], this_python()
    if here != wanted:
        raise RuntimeError(
            f"this bundle is for Python {wanted}, but this is Python {here}: run "
            f"install.py with Python {wanted}, or ask for a bundle made with {here}"
        )
    wanted, here = manifest["platform"], this_platform()
    if here != wanted:
        raise RuntimeError(
            f"this bundle is for {wanted}, but this is {here}: ask for a bundle that "
            f"was made on {here}"
        )
    least, system = manifest["least_version"], system_version()
    if least and system and system[1] < least:
        name, version = system[0], ".".join(map(str, system[1]))
        raise RuntimeError(
            f"this bundle needs {name} {'.'.join(map(str, least))}, but this system "
            f"has {version}: use a newer system, or ask for a bundle made on this one"
        )


def check_space(folder: Path, needed: int) -> None:
    """Raise OSError if the disk of a folder, there or to be made, has not the room."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise OSError(
            f"{megabytes(needed)} are needed in {there}, but only {megabytes(free)} "
            "are free: free some space, or name a folder on another disk"
        )


# ------------------------------------------------------------------ the bundle


def read_manifest(bundle: Path) -> dict:
    """Return what the bundle says of itself; raise OSError if it cannot be used."""
    path = bundle / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OSError(
            f"{MANIFEST} is not next to install.py: unpack the whole archive, and run "
            "install.py there"
        ) from None
    except ValueError:
        raise OSError(f"{path} is damaged: unpack the archive again") from None
    if manifest["format"] != FORMAT:
        raise OSError(
            f"{path} has format {manifest['format']}, but this install.py reads "
            f"format {FORMAT}: use the install.py that came with it"
        )
    return manifest


def check_files(bundle: Path, files: dict[str, str]) -> None:
    """Raise OSError unless every file is there and has its checksum."""
    for name in files:
        if not (bundle / name).is_file():
            raise OSError(
                f"{name} is missing from the bundle: copy and unpack the archive again"
            )
    size = sum((bundle / name).stat().st_size for name in files)
    print(f"checking {len(files)} files ({megabytes(size)})", flush=True)
    for name, wanted in files.items():
        if sha256(bundle / name) != wanted:
            raise OSError(
                f"{name} is damaged (its checksum differs from the one in "
                f"{MANIFEST}): copy and unpack the archive again"
            )


def sha256(path: Path) -> str:
    """Return a file's checksum in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ------------------------------------------------------------------ the environment


def make_environment(
    bundle: Path, manifest: dict, wheels: list[str], environment: Path
) -> Path:
    """Install wheels into a virtual environment that is made unless it is there.

    Args:
        bundle: folder of the unpacked archive.
        manifest: of the bundle.
        wheels: names of all wheels in it; one is pip's, which does the installing.
        environment: the folder; if it was not there, it is removed after a failure.

    Returns:
        The folder in which the course looks for its data.
    """
    import venv

    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    is_new = not environment.exists()
    if not is_new:
        check_environment(environment, python)
    try:
        if is_new:
            # Not with ensurepip, which Debian and Ubuntu keep in a package of its own.
            links = os.name != "nt"
            venv.EnvBuilder(with_pip=False, symlinks=links).create(environment)
        install_wheels(bundle, wheels, python, manifest["extras"])
        return data_folder(python, manifest["module"])
    except BaseException:
        if is_new:
            shutil.rmtree(environment, ignore_errors=True)
            with contextlib.suppress(OSError):  # there is something else in it
                environment.parent.rmdir()
        raise


def check_environment(environment: Path, python: Path) -> None:
    """Raise OSError if a folder that is there is no environment of such a Python."""
    wanted = "{}.{}".format(*sys.version_info)
    code = "import sys; print('{}.{}'.format(*sys.version_info))"
    found = b""
    with contextlib.suppress(OSError):  # it does not run
        found = subprocess.run(
            [str(python), "-I", "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        ).stdout
    if found.decode().strip() != wanted or not (environment / "pyvenv.cfg").exists():
        raise OSError(
            f"{environment} exists already, but is not an environment of Python "
            f"{wanted}: remove it, or name another folder with --folder"
        )


def install_wheels(bundle: Path, wheels: list[str], python: Path, extras: str) -> None:
    """Have the pip of the bundle install all wheels into an environment."""
    (pip,) = (name for name in wheels if name.startswith("wheels/pip-"))
    # Wheels by name: only those that were checked. Without --no-deps, and with the
    # extra: pip refuses a bundle in which something is missing. Compiling takes most
    # of the time, and Python does it itself for what it imports.
    (course,) = (name for name in wheels if name.startswith("wheels/d2l_gpu-"))
    wanted = [f"{name}[{extras}]" if name == course else name for name in wheels]
    run_pip = [str(python), "-I", f"{pip}/pip", "--isolated", "install", "--quiet"]
    options = [
        "--no-index",
        "--no-compile",
        "--no-input",
        "--disable-pip-version-check",
    ]
    settings = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
    print(
        f"installing {len(wheels)} packages into {python.parents[1]}, which takes a "
        "few minutes",
        flush=True,
    )
    with tempfile.TemporaryFile() as log:
        # Relative names: the length of a command is limited on Windows.
        process = subprocess.Popen(
            [*run_pip, *options, *wanted],
            cwd=bundle,
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            follow(process, python.parents[1], len(wheels))
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            log.seek(0)
            raise RuntimeError(f"pip failed: {last_error(log.read())}")


def follow(process: subprocess.Popen, environment: Path, total: int) -> None:
    """Wait for pip, and say in a terminal how many packages are installed."""
    while True:
        try:
            process.wait(SECONDS_BETWEEN_LOOKS)
        except subprocess.TimeoutExpired:
            ended = False
        else:
            ended = True
        if sys.stdout.isatty():
            where = "Lib" if os.name == "nt" else "lib/python*"
            done = sum(
                1 for _ in environment.glob(f"{where}/site-packages/*.dist-info")
            )
            print(f"\r{done:5} of {total} ", end="\n" if ended else "", flush=True)
        if ended:
            return


def last_error(output: bytes) -> str:
    """Return the line that says best what went wrong in what a program wrote."""
    lines = output.decode(errors="replace").strip().splitlines() or [
        "it printed nothing"
    ]
    errors = [line for line in lines if line.startswith("ERROR: ")]
    return (errors or lines)[-1].replace("ERROR: ", "", 1).strip()


def data_folder(python: Path, module: str) -> Path:
    """Return the folder for data, as told by what was installed: so it works."""
    code = f"import {module}, d2l_gpu.common.settings as s; print(s.data_folder())"
    result = subprocess.run(
        [str(python), "-I", "-X", "utf8", "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if result.returncode:
        raise RuntimeError(
            "all packages were installed, but do not work here: "
            + last_error(result.stderr)
        )
    return Path(result.stdout.decode().splitlines()[-1])


# ------------------------------------------------------------------ files


def copy_notebook(source: Path, target: Path) -> None:
    """Copy a notebook unless the reader has changed the one that is there."""
    if target.exists() and target.read_bytes() != source.read_bytes():
        print(
            f"{target} differs from the notebook in the bundle; yours is kept (delete "
            "it and install again to get the original)"
        )
    else:
        copy_whole(source, target)


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file so that a part of it is never found under its name."""
    if target.exists() and target.read_bytes() == source.read_bytes():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not by `d2l_gpu.common.files`: this runs before the course is installed.
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        shutil.copyfile(source, part)
        part.replace(target)
    finally:
        if part.exists():
            part.unlink()


def command(start: Path) -> str:
    """Return how to run a script from a shell of this system."""
    if os.name == "nt":
        return subprocess.list2cmdline([str(start)])
    return f"sh {shlex.quote(str(start))}"


def megabytes(size: int) -> str:
    """Return a number of bytes for people to read."""
    return f"{size / 1e6:,.0f} MB"


if __name__ == "__main__":
    sys.exit(main())
