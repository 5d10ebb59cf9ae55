"""Timelines that can be saved. The simulation itself touches no files."""

import gzip
import os
import warnings
from collections.abc import Callable
from pathlib import Path

from .sim import timeline
from .sim.trace import INCOMPLETE

# What a file holds, by how its name ends.
TEXTS: dict[str, Callable[["Timeline"], str]] = {
    ".json.gz": lambda drawing: drawing.trace.text(),
    ".json": lambda drawing: drawing.trace.text(),
    ".svg": lambda drawing: drawing.svg(),
    ".txt": lambda drawing: f"{drawing!r}\n",
}


class Timeline(timeline.Timeline):
    """A drawing of what ran when, which can be saved."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline to a file, as a whole or not at all.

        Args:
            path: a name that ends in ``.json`` or ``.json.gz`` for a trace, which
                chrome://tracing and ui.perfetto.dev open; in ``.svg`` or ``.txt`` for
                the drawing.
        Raises:
            ValueError: it ends otherwise.
            OSError: the file can't be written.
        """
        path = Path(path)
        ending = next((x for x in TEXTS if path.name.lower().endswith(x)), None)
        if ending is None:
            raise ValueError(
                "A timeline is saved as a trace (.json or .json.gz) or as a drawing "
                f"(.svg or .txt), but got {str(path)!r}."
            )
        content = TEXTS[ending](self).encode("utf-8")
        if ending == ".json.gz":
            content = gzip.compress(content, mtime=0)  # the same bytes at any time
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            unfinished.write_bytes(content)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        if not self.complete:
            warnings.warn(f"{path} is incomplete. {INCOMPLETE}", stacklevel=2)
