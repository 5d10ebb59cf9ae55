"""What a launched script hands to its caller, and how it gets there: through files."""

import codecs
import json
import os
import re
from pathlib import Path
from typing import Any

from d2l_gpu.common.files import write_whole
from d2l_gpu.common.worker import FOLDER, attempt_folder, number_of
from d2l_gpu.show.progress import checked_fraction

RESULTS, PROGRESS = "results.jsonl", "progress"
"""Files in the folder of an attempt to which rank 0 appends lines."""


def report(**values: Any) -> None:
    """Hand values to the caller of ``launch``, from rank 0; other ranks do nothing.

    ``report(progress=0.25)`` alone is no result: it sets the progress bar. Without
    ``launch``, under plain torchrun or Python, the values are printed as one line of
    JSON, and progress is not shown.

    Args:
        values: numbers, strings, None, lists and dicts of them; tensors and arrays of
            one element become numbers, which waits for their device.
    Raises:
        TypeError: JSON cannot hold a value, or there is none.
        ValueError: progress is not between 0 and 1.
    """
    if int(os.environ.get("RANK", "0")) != 0:
        return
    if not values:
        raise TypeError(
            "report() was given nothing: name what it reports, as in report(loss=0.5)."
        )
    line = json.dumps(values, default=_number)
    launched = bool(os.environ.get(FOLDER))
    if values.keys() == {"progress"}:
        line = json.dumps(checked_fraction(json.loads(line)["progress"]))
        if launched:
            _append(attempt_folder() / PROGRESS, line)
    elif launched:
        _append(attempt_folder() / RESULTS, line)
    else:
        print(line, flush=True)


def reported() -> tuple[str | None, int]:
    """Return the run of ``launch`` that this is, None without one, and how many values
    were reported in it."""
    run = os.environ.get(FOLDER)
    if not run:
        return None, 0
    return Path(run).name, sum(len(_whole_lines(x)) for x in results_of(Path(run)))


def take_back(run: str | None, count: int) -> None:
    """Forget, on rank 0, what was reported since ``reported`` was asked.

    Args:
        run, count: what ``reported`` returned. If that was not in this run, what ranks
            reported before their last restart is forgotten.
    """
    if not os.environ.get(FOLDER) or int(os.environ["RANK"]) != 0:
        return
    this = Path(os.environ[FOLDER])
    for path in results_of(this):
        if run == this.name:
            lines = _whole_lines(path)[:count]
            count -= len(lines)
            write_whole(path, "".join(lines))
        elif path.parent != attempt_folder():
            path.unlink()


def results_of(run: Path) -> list[Path]:
    """The files with what rank 0 reported, one for each attempt that reported, in
    order."""
    return sorted(run.glob(f"*/{RESULTS}"), key=lambda path: number_of(path.parent))


def _whole_lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [line for line in lines if line.endswith("\n")]


def _number(value: Any) -> Any:
    """A tensor or array of one element as a number, for JSON."""
    size = value.numel() if hasattr(value, "numel") else getattr(value, "size", None)
    if hasattr(value, "item") and size == 1:
        number = value.item()
        if isinstance(number, bool | int | float):
            return number
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    raise TypeError(
        f"report() was given a {type(value).__name__}{shape}, which JSON cannot hold: "
        "give numbers, strings, lists or dicts, or tensors of one element."
    )


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


class LogReader:
    """The lines that other processes append to a file that may not be there yet."""

    def __init__(self, folder: Path, pattern: str):
        self._folder, self._pattern = folder, pattern
        self._file = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def new(self, last: bool = False) -> list[str]:
        """Return the lines that were completed since the last call.

        Args:
            last: whether a line without an end counts, since there will be no more.
        """
        if self._file is None:
            path = next(self._folder.glob(self._pattern), None)
            if path is None:
                return []
            self._file = path.open("rb")
        text = self._rest + self._decoder.decode(self._file.read(), final=last)
        *lines, self._rest = re.split(r"(?<=\n)", text)
        if last and self._rest:
            lines.append(self._rest)
            self._rest = ""
        return lines


def log_of(rank: int, stream: str, attempt: int) -> str:
    """Where torchrun writes what a rank says, as a pattern below the run's folder."""
    return f"*/attempt_{attempt}/{rank}/{stream}.log"
