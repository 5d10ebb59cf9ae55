"""Puts the notebooks, their solutions and their quizzes into the wheel.

A hook rather than `force-include` in pyproject.toml, which would leave a copy in
site-packages for editable installs too, where the clone's own are to be used.
"""

import json
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NotebooksHook(BuildHookInterface):
    """Adds them to a standard wheel, where `d2l-gpu` finds them."""

    def initialize(self, version: str, build_data: dict) -> None:
        if version != "standard":
            return
        root, inside = Path(self.root), build_data["force_include"]
        # Not the folder: beside a notebook that runs are the files that it writes.
        for pattern in "*.ipynb", "quizzes/*.json":
            for path in root.glob(f"notebooks/*/*/{pattern}"):
                inside[str(path)] = (
                    f"d2l_gpu/course/{path.relative_to(root).as_posix()}"
                )
        # `variant` and `export` need only the cells of solutions, whose pictures would
        # make the wheel a third larger.
        self._bare = tempfile.TemporaryDirectory()
        for path in root.glob("notebooks/en/*/solutions/*.ipynb"):
            name = path.relative_to(root)
            bare = Path(self._bare.name) / name
            bare.parent.mkdir(parents=True, exist_ok=True)
            bare.write_text(without_outputs(path.read_text("utf-8")), "utf-8")
            inside[str(bare)] = f"d2l_gpu/course/{name.as_posix()}"

    def finalize(self, version: str, build_data: dict, artifact_path: str) -> None:
        if version == "standard":
            self._bare.cleanup()


def without_outputs(notebook: str) -> str:
    """Return a notebook as nobody has run it."""
    found = json.loads(notebook)
    for cell in found["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"
