"""Puts the notebooks and their quizzes into the wheel.

A hook rather than `force-include` in pyproject.toml, which would leave a copy in
site-packages for editable installs too, where the clone's own are to be used.
"""

from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NotebooksHook(BuildHookInterface):
    """Adds them to a standard wheel, where `d2l-gpu` finds them."""

    def initialize(self, version: str, build_data: dict) -> None:
        if version == "standard":
            # Not the folder: beside a notebook that runs are the files that it writes.
            for pattern in "*.ipynb", "quizzes/*.json":
                for path in Path(self.root).glob(f"notebooks/*/*/{pattern}"):
                    carried = path.relative_to(self.root).as_posix()
                    build_data["force_include"][str(path)] = f"d2l_gpu/course/{carried}"
