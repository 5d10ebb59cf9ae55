"""Compare notebooks with an earlier version: their text, code and outputs.

    python -m tools.compare_notebooks main             with those in a commit
    python -m tools.compare_notebooks ../before        with those in a folder
    python -m tools.compare_notebooks main --except 07_data_parallel
    python -m tools.compare_notebooks main --renames tools/renames.tsv

Metadata, cell ids and execution counts may differ; nothing that a reader sees may.
Prints each difference, and exits with 1 if there are any.
"""

import argparse
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.edition import ROOT
from tools.notebook import notebooks_in


def seen(cell: NotebookNode) -> tuple[str, str, list]:
    """Return what a reader sees of a cell: its type, source and outputs."""
    outputs = [
        (output.output_type, output.get("name"), output.get("text"), output.get("data"))
        for output in cell.get("outputs", [])
    ]
    return cell.cell_type, cell.source, outputs


def differences(before: NotebookNode, now: NotebookNode) -> Iterator[str]:
    """Yield the differences that a reader can see between two notebooks, one a line."""
    if len(before.cells) != len(now.cells):
        yield f"{len(before.cells)} cells before, {len(now.cells)} now"
    for number, (one, other) in enumerate(zip(before.cells, now.cells, strict=False)):
        parts = zip(("kind", "text", "outputs"), seen(one), seen(other), strict=True)
        for what, old, new in parts:
            if old != new:
                yield (
                    f"cell {number}: different {what}: {_changed(repr(old), repr(new))}"
                )


def _changed(old: str, new: str) -> str:
    """Return excerpts of two texts, around the first difference."""
    pairs = enumerate(zip(old, new, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), min(len(old), len(new)))
    return " → ".join(_part(text, max(0, same - 60)) for text in (old, new))


def _part(text: str, begin: int, length: int = 160) -> str:
    before, after = "…" * (begin > 0), "…" * (len(text) > begin + length)
    return f"{before}{text[begin : begin + length]}{after}"


def notebooks_below(folder: Path) -> dict[str, str]:
    """Return the contents of the notebooks below a folder, by relative path."""
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in notebooks_in(folder)
    }


def notebooks_of(commit: str, root: Path = ROOT) -> dict[str, str]:
    """Return the contents of the notebooks in a commit, by relative path.

    Raises:
        ValueError: there is no such commit, or it has no notebooks.
    """
    command = ["git", "archive", "--format=tar", commit, "notebooks"]
    done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr.decode().strip())
    found = {}
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive.getmembers():
            if member.isfile() and member.name.endswith(".ipynb"):
                text = archive.extractfile(member).read().decode("utf-8")
                found[member.name.removeprefix("notebooks/")] = text
    return found


def compare(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield all differences between two sets of notebooks, one line each."""
    for path in sorted({*before, *now}):
        if path not in now:
            yield f"{path}: it is gone"
        elif path not in before:
            yield f"{path}: it is new"
        else:
            one, other = (nbformat.reads(each[path], 4) for each in (before, now))
            yield from (f"{path}: {text}" for text in differences(one, other))


def renamed(text: str, renames: Sequence[tuple[str, str]]) -> str:
    """Return a text with each old name replaced by the new one, in order."""
    for old, new in renames:
        text = text.replace(old, new)
    return text


def read_renames(path: Path) -> list[tuple[str, str]]:
    """Read a tab-separated table of old and new names.

    Lines that begin with ``#`` are comments.

    Raises:
        ValueError: a line doesn't have two columns.
    """
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line and not line.startswith("#"):
            columns = line.split("\t")
            if len(columns) != 2:
                raise ValueError(
                    f"{path}:{number}: expected two columns, but got: {line}"
                )
            found.append((columns[0], columns[1]))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; return 0 if readers see no difference, else 1, also on an error."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.compare_notebooks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("before", help="a commit, or a folder with notebooks/")
    parser.add_argument(
        "--except",
        dest="left_out",
        nargs="*",
        default=[],
        metavar="lesson",
        help="lessons to leave out, such as 07_data_parallel",
    )
    parser.add_argument(
        "--renames",
        type=Path,
        help="a table of old names and those that readers now see instead",
    )
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(arguments)
    folder = Path(options.before) / "notebooks"
    try:
        if folder.is_dir():
            before = notebooks_below(folder)
        else:
            before = notebooks_of(options.before, options.root)
        renames = read_renames(options.renames) if options.renames else []
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    before = {path: renamed(text, renames) for path, text in before.items()}
    now = notebooks_below(options.root / "notebooks")
    for notebooks in before, now:
        for path in list(notebooks):
            if Path(path).stem in options.left_out:
                del notebooks[path]
    found = list(compare(before, now))
    for line in found:
        print(line)
    print(f"compared: {len(before)} notebooks, differences: {len(found)}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
