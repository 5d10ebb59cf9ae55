"""Puts the English PyTorch notebooks into the wheel.

A hook rather than `force-include` in pyproject.toml, which would leave a copy in
site-packages for editable installs too, where the clone's own are to be used.
"""

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NotebooksHook(BuildHookInterface):
    """Adds the notebooks to a standard wheel, where `d2l-gpu run` finds them."""

    def initialize(self, version: str, build_data: dict) -> None:
        if version == "standard":
            source = "notebooks/en/pytorch"
            build_data["force_include"][source] = "d2l_gpu/course/en/pytorch"
