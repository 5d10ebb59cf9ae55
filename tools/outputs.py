"""Check and normalise the outputs of cells."""

import base64
import io
import re
from collections.abc import Iterator

from nbformat import NotebookNode
from PIL import Image

# Absolute paths of at least two parts, POSIX or Windows, that aren't the end of a URL,
# a unit like images/s or an HTML tag. Paths that are the same on every machine are
# allowed: the kernel's own file systems, a script's #! line, and the folders of
# SageMaker's containers.
_ABSOLUTE_PATH = re.compile(
    r"(?<![\w.:/<~\\-])/(?!(?:dev|proc|sys|opt/ml)/|usr/bin/env\s)[\w.-]+/[\w./-]+"
    r"|\bfile://\S+"
    r"|(?<![\w])[A-Za-z]:\\{1,2}\w[^\s'\"]*"
)
# What the description of a simulated timeline says: the clock is deterministic, so its
# drawing is the same everywhere, to the last byte.
_SIMULATED = re.compile(r'<svg [^>]*\bdata-picture="timeline"')
_PIXELS = ("image/png", "image/jpeg")
# What matplotlib writes beside a picture.
_NOTHING = "<Figure size "


def normalised(outputs: list[NotebookNode], count: int | None) -> list[NotebookNode]:
    """Return a cell's outputs in the form that we commit.

    Consecutive pieces of a stream are joined, because how a stream is split depends on
    timing. Results carry the execution count of their cell.
    """
    joined: list[NotebookNode] = []
    for output in outputs:
        output = NotebookNode(output)
        output.pop("transient", None)
        last = joined[-1] if joined else None
        if (
            output.output_type == "stream"
            and last is not None
            and last.output_type == "stream"
            and last.name == output.name
        ):
            last.text += output.text
        else:
            joined.append(output)
        if output.output_type == "execute_result":
            output.execution_count = count
    return joined


def output_problems(cell: NotebookNode) -> Iterator[str]:
    """Yield the problems of a committed code cell's outputs, one line each."""
    ignored = "nbval-ignore-output" in cell.metadata.get("tags", [])
    for output in cell.outputs:
        if output.output_type == "error":
            yield f"an error: {output.ename}: {output.evalue}"
        elif output.get("name") == "stderr":
            yield f"output on stderr: {output.text.strip()}"
        for mime, text in _texts(output):
            if path := _ABSOLUTE_PATH.search(text):
                yield f"an absolute path in the output: {path.group()}"
            if "\r" in text or "\x1b" in text:
                yield f"control characters in {mime}, as of a progress bar or colours"
            if mime == "image/svg+xml" and not ignored and not _SIMULATED.search(text):
                yield "an SVG output that nbval would compare byte by byte: tag figure"
            if mime.startswith("application/vnd.jupyter.widget"):
                yield "a widget, which shows nothing without a kernel"


def _texts(output: NotebookNode) -> Iterator[tuple[str, str]]:
    """Yield the texts of an output with their MIME types, leaving out pictures."""
    if output.output_type == "stream":
        yield "text/plain", output.text
    for mime, content in output.get("data", {}).items():
        if mime not in _PIXELS:
            yield mime, content if isinstance(content, str) else str(content)


def has_comparable_output(cell: NotebookNode) -> bool:
    """Return whether this cell has any output for nbval to compare.

    nbval skips the pixels of a picture but not the text beside them. Our plots state
    their title and range there; matplotlib's own ``<Figure size ...>`` states nothing.
    """
    return any(
        output.output_type == "stream"
        or not set(_PIXELS) & set(output.get("data", {}))
        or not output.data.get("text/plain", _NOTHING).startswith(_NOTHING)
        for output in cell.outputs
    )


def keep_equal_pictures(
    outputs: list[NotebookNode], committed: list[NotebookNode]
) -> None:
    """Replace new pictures by committed ones that have the same pixels.

    A PNG's bytes depend on the version of the library that wrote it, and each new file
    would stay in Git's history for ever.
    """
    for new, old in zip(outputs, committed, strict=False):
        before = old.get("data", {}).get("image/png")
        now = new.get("data", {}).get("image/png")
        if before and now and before != now and _pixels(before) == _pixels(now):
            new.data["image/png"] = before


def _pixels(encoded: str) -> tuple[tuple[int, int], bytes] | None:
    """Return the size and RGBA values of a base64-encoded PNG."""
    with Image.open(io.BytesIO(base64.b64decode(encoded))) as picture:
        return picture.size, picture.convert("RGBA").tobytes()
