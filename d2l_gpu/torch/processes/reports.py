"""How a launched script sends values to its caller: through files."""

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
"""Files in an attempt's folder to which rank 0 appends lines."""


def report(**values: Any) -> None:
    """Send values from rank 0 to the caller of ``launch``; other ranks do nothing.

    ``report(progress=0.25)`` alone is not a result: it sets the progress bar. Without
    ``launch``, under plain torchrun or Python, the values are printed as one line of
    JSON, and progress isn't shown.

    Args:
        values: numbers, strings, None, and lists and dicts of them; tensors and arrays
            of one element become numbers, which waits for their device.
    Raises:
        TypeError: JSON can't hold a value, progress is not a number, or there are no
            values.
        ValueError: progress is not between 0 and 1.
    """
    if int(os.environ.get("RANK", "0")) != 0:
        return
    if not values:
        raise TypeError(
            "report() got nothing to report: pass values by name, as in "
            "report(loss=0.5)."
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
    """Return the name of this run of ``launch``, and how many values it has reported.

    Without ``launch``, return None and 0.
    """
    run = os.environ.get(FOLDER)
    if not run:
        return None, 0
    return Path(run).name, sum(len(_whole_lines(x)) for x in results_of(Path(run)))


def take_back(run: str | None, count: int) -> None:
    """Remove, on rank 0, what was reported after ``reported`` was called.

    Args:
        run, count: what ``reported`` returned. If that was in another run, or without
            ``launch``, remove what this run's earlier attempts reported.
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
    """Return the files of what rank 0 reported, one per attempt, in order."""
    return sorted(run.glob(f"*/{RESULTS}"), key=lambda path: number_of(path.parent))


def _whole_lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [line for line in lines if line.endswith("\n")]


def _number(value: Any) -> Any:
    """Return a tensor or array of one element as a number, for JSON."""
    size = value.numel() if hasattr(value, "numel") else getattr(value, "size", None)
    if hasattr(value, "item") and size == 1:
        number = value.item()
        if isinstance(number, bool | int | float):
            return number
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    raise TypeError(
        f"report() got a {type(value).__name__}{shape}, which JSON cannot represent: "
        "pass numbers, strings, lists or dicts, or tensors of one element."
    )


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


class LogReader:
    """Reads lines that other processes append to a file that may not exist yet."""

    def __init__(self, folder: Path, pattern: str):
        self._folder, self._pattern = folder, pattern
        self._file = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def new(self, last: bool = False) -> list[str]:
        """Return the lines completed since the last call.

        Args:
            last: whether to include an unfinished line, because there will be no more.
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
    """Return torchrun's log of a rank's output, as a pattern in the run's folder."""
    return f"*/attempt_{attempt}/{rank}/{stream}.log"
