"""Comparing outputs as nbval does, outside of nbval."""

import re
from collections.abc import Callable
from pathlib import Path

from nbformat import NotebookNode
from nbval.plugin import (
    coalesce_streams,
    find_comment_markers,
    find_metadata_tags,
    get_sanitize_patterns,
)

# What nbval compares of an output: not its pictures, counts or metadata.
_SKIPPED = ("image/png", "image/jpeg")


def sanitiser(config: Path) -> Callable[[str], str]:
    """Return the function that makes equal what differs between machines only.

    Args:
        config: a file as ``pytest --nbval-sanitize-with`` takes it.
    """
    patterns = get_sanitize_patterns(config.read_text(encoding="utf-8"))

    def sanitise(text: str) -> str:
        for pattern, replacement in patterns:
            text = re.sub(pattern, replacement, text)
        return text

    return sanitise


def is_compared(cell: NotebookNode) -> bool:
    """Return whether nbval compares what this code cell puts out."""
    options = dict(find_metadata_tags(cell.metadata))
    options.update(find_comment_markers(cell.source))
    return bool(options.get("check", True)) and not options.get("skip", False)


def compared_outputs(
    cell: NotebookNode, sanitise: Callable[[str], str]
) -> dict[str, list[str]]:
    """Return what nbval compares of a code cell, by stream or MIME type.

    Empty for a cell whose output is ignored.
    """
    compared: dict[str, list[str]] = {}
    if not is_compared(cell):
        return compared
    for output in coalesce_streams([NotebookNode(output) for output in cell.outputs]):
        if output.output_type == "stream":
            compared.setdefault(output.name, []).append(sanitise(output.text))
        for mime, content in output.get("data", {}).items():
            if mime not in _SKIPPED:
                text = content if isinstance(content, str) else repr(content)
                compared.setdefault(mime, []).append(sanitise(text))
    return compared
