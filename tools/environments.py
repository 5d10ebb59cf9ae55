"""Make separate environments for frameworks that can't be installed with the others.

    python -m tools.environments            make those that are missing
    python -m tools.environments mxnet      make this one again

A framework needs one if ``environments/<tag>.txt`` exists. Readers install the same
requirements. The comment ``# Python 3.11`` in that file sets the Python version.
Environments go to ``.environments``, or to the folder that the environment variable
``D2L_GPU_ENVIRONMENTS`` names. Each has a kernelspec, and an editable install of this
clone.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager

from d2l_gpu.common.files import write_atomically
from d2l_gpu.common.frameworks import FRAMEWORKS, Framework
from d2l_gpu.course.kernelspec import kernel_argv

ROOT = Path(__file__).resolve().parents[1]
VARIABLE = "D2L_GPU_ENVIRONMENTS"


def requirements(tag: str) -> Path:
    """Return the path of the requirements for a framework's environment."""
    return ROOT / "environments" / f"{tag}.txt"


def has_its_own(framework: Framework) -> bool:
    """Return whether a framework needs a separate environment."""
    return requirements(framework.tag).is_file()


def folder(tag: str) -> Path:
    """Return the folder of a framework's environment, which may not exist yet."""
    return Path(os.environ.get(VARIABLE) or ROOT / ".environments").absolute() / tag


def interpreter(tag: str) -> Path:
    """Return the Python of a framework's environment, which may not exist yet."""
    scripts = "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
    return folder(tag) / scripts


def kernel_name(framework: Framework) -> str | None:
    """Return the name of a framework's kernel; None for the default kernel."""
    return f"d2l-gpu-{framework.tag}" if has_its_own(framework) else None


def jupyter_path(framework: Framework) -> Path:
    """Return the folder where Jupyter finds the kernel of an environment."""
    return folder(framework.tag) / "share" / "jupyter"


def kernel(framework: Framework) -> KernelSpecManager | None:
    """Return the kernelspec manager for a framework's notebooks; None for Jupyter's."""
    if not has_its_own(framework):
        return None
    return _Renamed(kernel_name(framework), jupyter_path(framework) / "kernels")


class _Renamed(KernelSpecManager):
    """Finds an environment's one kernel under any name.

    Notebooks ask for ``python3``, the kernel's name on readers' machines.
    """

    def __init__(self, name: str, kernels: Path):
        super().__init__(kernel_dirs=[str(kernels)])
        self._name = name

    def get_kernel_spec(self, kernel_name: str):
        return super().get_kernel_spec(self._name)


def missing(framework: Framework) -> str | None:
    """Return why a framework's notebooks can't be executed here; None if they can."""
    if has_its_own(framework):
        if (jupyter_path(framework) / "kernels").is_dir():
            return None
        command = f"python -m tools.environments {framework.tag}"
        return f"{framework.title} needs an environment of its own; make it: {command}"
    if framework.is_installed:
        return None
    return f"{framework.title} is not installed: {framework.install}"


def make(framework: Framework) -> None:
    """Make a framework's environment, replacing an existing one.

    Raises:
        FileNotFoundError: this machine lacks the Python that it needs.
        subprocess.CalledProcessError: the installation failed.
    """
    python = _python_for(framework)
    place = folder(framework.tag)
    shutil.rmtree(place, ignore_errors=True)
    own = interpreter(framework.tag)
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        _run([python, "-m", "venv", place])
        _run([*pip, "--requirement", requirements(framework.tag)])
        # Replaces the non-editable copy that the requirements installed.
        _run([*pip, "--no-deps", "--editable", ROOT])
        _write_kernelspec(framework)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)  # else it would seem complete
        raise


def _write_kernelspec(framework: Framework) -> None:
    spec = {
        "argv": kernel_argv(str(interpreter(framework.tag))),
        "display_name": framework.title,
        "language": "python",
    }
    place = jupyter_path(framework) / "kernels" / kernel_name(framework)
    write_atomically(place / "kernel.json", json.dumps(spec, indent=1) + "\n")


def _python_for(framework: Framework) -> str:
    """Return the interpreter to make a framework's environment with.

    Raises:
        FileNotFoundError: there is none of the right version.
    """
    text = requirements(framework.tag).read_text(encoding="utf-8")
    wanted = re.search(r"^# Python (\d+\.\d+)\b", text, re.MULTILINE)[1]
    if wanted == "{}.{}".format(*sys.version_info):
        return sys.executable
    found = shutil.which(f"python{wanted}")
    if found is None:
        raise FileNotFoundError(
            f"{framework.title} needs Python {wanted}, but there is no python{wanted} "
            "here: install it, or run this with it"
        )
    return found


def _run(command: Sequence[str | Path]) -> None:
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make environments; return 0, or 1 if one can't be made."""
    own = [each for each in FRAMEWORKS if has_its_own(each)]
    parser = argparse.ArgumentParser(
        prog="python -m tools.environments", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "frameworks",
        nargs="*",
        metavar="framework",
        help="framework whose environment to make from scratch: "
        + ", ".join(each.tag for each in own),
    )
    named = parser.parse_args(arguments).frameworks
    if unknown := set(named) - {each.tag for each in own}:
        parser.error(
            f"these have no environment of their own: {', '.join(sorted(unknown))}"
        )
    wanted = [
        each for each in own if each.tag in named or (not named and missing(each))
    ]
    for each in wanted:
        try:
            make(each)
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
            return 1
        except subprocess.CalledProcessError as error:
            print(f"failed: {' '.join(error.cmd)}", file=sys.stderr)
            return 1
        print(f"{each.title}: {interpreter(each.tag)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
