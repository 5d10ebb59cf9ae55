"""What a teacher sets for this process and those that it starts.

That's the file with exercises of her own, of which ``docs/teaching.md`` has an example,
and the folders that answers can't read.
"""

import os
from pathlib import Path

from d2l_gpu.common.settings import EXERCISES, HIDDEN


def chosen_file(path: str | Path | None = None) -> Path | None:
    """Return the file that is given, or that ``D2L_GPU_EXERCISES`` names, if any.

    Raises:
        ValueError: it doesn't exist.
    """
    chosen = str(path) if path is not None else os.environ.get(EXERCISES, "").strip()
    if not chosen:
        return None
    file = Path(chosen).expanduser().absolute()
    if not file.is_file():
        raise ValueError(f"there is no file {file}, which should hold exercises.")
    return file


def hidden_folders() -> list[Path]:
    """Return the folders that ``D2L_GPU_HIDDEN`` names; usually none."""
    names = os.environ.get(HIDDEN, "").split(os.pathsep)
    return [Path(name) for name in names if name]
