"""What nbval compares."""

from nbformat import NotebookNode
from nbval.plugin import find_comment_markers, find_metadata_tags


def is_compared(cell: NotebookNode) -> bool:
    """Return whether nbval compares what this code cell puts out."""
    options = dict(find_metadata_tags(cell.metadata))
    options.update(find_comment_markers(cell.source))
    return bool(options.get("check", True)) and not options.get("skip", False)
