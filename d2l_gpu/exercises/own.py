"""The file with a teacher's own exercises, for this process and those that it starts.

``docs/teaching.md`` has an example of one.
"""

import os
from pathlib import Path

from d2l_gpu.common.settings import EXERCISES


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
