"""Embedding a lesson's figures in the prose cells of its notebooks.

A figure is drawn as SVG in ``lessons/figures`` and embedded as a PNG in a data
URI, because nothing else shows everywhere. JupyterLab (4.6) refuses SVG
attachments (jupyterlab#10464), Colab shows no attachments at all
(colabtools#3836) and no SVG in a data URI (colabtools#2092); relative links are
dead on both. Colab itself writes pasted pictures as PNG data URIs.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from nbformat import NotebookNode

_FIGURE = re.compile(r"(!\[[^\]]*\]\(\s*)\.\./(figures/[a-z0-9_-]+\.(?:svg|png))")
_EMBEDDED = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=]+)")


def embedded_figures(notebook: NotebookNode | None) -> dict[str, str]:
    """Return the pictures that a notebook holds already, by their stamps."""
    found = {}
    for cell in notebook.cells if notebook is not None else ():
        stamps = cell.metadata.get("figures", [])
        # Not strict: somebody may have edited the cell, and then it is stale.
        found.update(zip(stamps, _EMBEDDED.findall(cell.source), strict=False))
    return found


def embed_figures(
    source: str, lessons: Path, kept: Mapping[str, str]
) -> tuple[str, list[str]]:
    """Replace the figures that a prose cell names by the pictures themselves.

    A picture that the committed notebook holds already is kept as it is when the
    drawing has not changed: renderers differ between versions, and a new picture
    each time would swell the history. So checking needs no renderer.

    Args:
        source: Markdown that names figures as ``![…](../figures/<name>.svg)``.
        lessons: the folder of the sources, in which ``figures`` is.
        kept: what `embedded_figures` returns of the committed notebook.

    Returns:
        The Markdown with data URIs, and for each of them, in order, a stamp: the
        name of the drawing and its SHA-256. The cell keeps them as its metadata
        ``figures``.

    Raises:
        FileNotFoundError: a figure that is not there.
        ValueError: an SVG that cannot be rendered.
    """
    stamps = []

    def embed(match: re.Match) -> str:
        opening, name = match.groups()
        drawing = (lessons / name).read_bytes()
        stamp = f"{name} sha256:{hashlib.sha256(drawing).hexdigest()}"
        stamps.append(stamp)
        picture = kept.get(stamp)
        if picture is None:
            picture = base64.b64encode(_as_png(drawing, name)).decode("ascii")
        return f"{opening}data:image/png;base64,{picture}"

    return _FIGURE.sub(embed, source), stamps


def _as_png(drawing: bytes, name: str) -> bytes:
    """Return a figure's file as PNG, as large as the drawing says it is."""
    if name.endswith(".png"):
        return drawing
    # Only needed where a drawing is new or has changed.
    import resvg_py
    from matplotlib import get_data_path

    # The fonts of one package rather than of one computer: the same letters
    # for every maintainer.
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=drawing.decode("utf-8"),
            skip_system_fonts=True,
            font_dirs=[str(Path(get_data_path()) / "fonts" / "ttf")],
            font_family="DejaVu Sans",
            sans_serif_family="DejaVu Sans",
            serif_family="DejaVu Serif",
            monospace_family="DejaVu Sans Mono",
        )
    )
