"""Install the book's package d2l alongside the course, for the lesson that uses it.

    python -m tools.companion

d2l pins old versions of its dependencies. We install it without them, so that PyTorch
and NumPy stay as they are. Without d2l, lessons that need it are skipped.
"""

import subprocess
import sys
from importlib import metadata, util
from pathlib import Path

from packaging.version import Version

LESSONS = ("A1_beside_the_book",)
COMMAND = "python -m tools.companion"

# Stand-ins for torchvision's operators; the reason is given there.
OPERATORS = Path(__file__).resolve().parents[1] / "tests" / "book"


def missing(lesson: str) -> str | None:
    """Return why a lesson can't be executed here; None if it can."""
    if lesson not in LESSONS or util.find_spec("d2l"):
        return None
    return f"{lesson} needs the book's package d2l; install it with: {COMMAND}"


def main() -> int:
    """Install the package; return 0, or 1 if that fails or changes PyTorch or NumPy."""
    # Not at the top: pytest imports this module before it sets PyTorch's threads.
    from d2l_gpu.torch.book import VERSION

    before = _versions()
    kept = [f"{name}=={Version(version).public}" for name, version in before.items()]
    try:
        _install("pandas", "torchvision", *kept)
        if _fails("import torchvision"):
            _install("--no-deps", "--no-build-isolation", str(OPERATORS))
        # Last, since pip complains about its pins whenever it installs something later.
        _install("--no-deps", f"d2l=={VERSION}")
        _python("-c", "from d2l_gpu.torch import book; book.require_book()")
    except subprocess.CalledProcessError as error:
        print(f"failed: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    after = _versions()
    if after != before:
        print(f"pip changed {before} to {after}", file=sys.stderr)
        return 1
    print(f"d2l {VERSION} is installed, beside {' and '.join(kept)} as before")
    return 0


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("torch", "numpy")}


def _install(*arguments: str) -> None:
    _python("-m", "pip", "install", "--quiet", *arguments)


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True)


def _fails(code: str) -> bool:
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    return done.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
