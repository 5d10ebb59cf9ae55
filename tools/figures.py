"""Embed a lesson's figures in the prose cells of its notebooks.

Figures are SVG or PNG files in ``lessons/figures``, embedded as PNG data URIs, because
nothing else works everywhere. JupyterLab (4.6) refuses SVG attachments
(jupyterlab#10464). Colab shows no attachments at all (colabtools#3836) and no SVG data
URIs (colabtools#2092). Relative links are dead on both. Colab itself stores pasted
pictures as PNG data URIs.
"""

import base64
import hashlib
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from unicodedata import east_asian_width

from nbformat import NotebookNode

from d2l_gpu.show.fonts import font_file

_FIGURE = re.compile(r"(!\[[^\]]*\]\(\s*)\.\./(figures/[a-z0-9_-]+\.(?:svg|png))")
_EMBEDDED = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=]+)")


def embedded_figures(notebook: NotebookNode | None) -> dict[str, str]:
    """Return the pictures that a notebook already contains, by stamp."""
    found = {}
    for cell in notebook.cells if notebook is not None else ():
        stamps = cell.metadata.get("figures", [])
        # Not strict: if somebody edited the cell by hand, it is stale anyway.
        found.update(zip(stamps, _EMBEDDED.findall(cell.source), strict=False))
    return found


def embed_figures(
    source: str,
    lessons: Path,
    kept: Mapping[str, str],
    drawing: Callable[[str], str] = str,
) -> tuple[str, list[str]]:
    """Replace a prose cell's links to figures by the pictures themselves.

    If a drawing hasn't changed, the picture in the committed notebook is reused:
    versions of the renderer differ, and new pictures would swell Git's history. So
    checking a notebook needs no renderer.

    Args:
        source: Markdown that links to figures as ``![…](../figures/<name>.svg)``.
        lessons: the folder of the sources, which contains ``figures``.
        kept: the committed notebook's `embedded_figures`.
        drawing: returns the content of an SVG file in the reader's language.

    Returns:
        The Markdown with data URIs, and a stamp for each, in order: the drawing's name
        and SHA-256. The cell stores the stamps in its metadata ``figures``.

    Raises:
        FileNotFoundError: a figure does not exist.
        ValueError: an SVG can't be rendered.
    """
    stamps = []

    def embed(match: re.Match) -> str:
        opening, name = match.groups()
        content = (lessons / name).read_bytes()
        if name.endswith(".svg"):
            content = drawing(content.decode("utf-8")).encode("utf-8")
        stamp = f"{name} sha256:{hashlib.sha256(content).hexdigest()}"
        stamps.append(stamp)
        picture = kept.get(stamp)
        if picture is None:
            picture = base64.b64encode(_embedded(content, name)).decode("ascii")
        return f"{opening}data:image/png;base64,{picture}"

    return _FIGURE.sub(embed, source), stamps


def _embedded(drawing: bytes, name: str) -> bytes:
    """Return the picture to embed: small, unless it's transparent, as buttons are."""
    from PIL import Image

    from d2l_gpu.show.live import small_png

    picture = as_png(drawing, name)
    alpha = Image.open(io.BytesIO(picture)).convert("RGBA").getextrema()[3]
    return picture if alpha[0] < 255 else small_png(picture, 256)


def as_png(drawing: bytes, name: str, zoom: int = 1) -> bytes:
    """Return a figure as PNG, in a multiple of the size that the drawing states."""
    if name.endswith(".png"):
        return drawing
    # Only needed if a drawing is new or has changed.
    import resvg_py
    from matplotlib import get_data_path

    # Use matplotlib's fonts instead of the system's, so that pictures look the same for
    # every maintainer; and one more where those have no letters for a language.
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=drawing.decode("utf-8"),
            zoom=zoom,
            skip_system_fonts=True,
            font_dirs=[str(Path(get_data_path()) / "fonts" / "ttf")],
            font_files=_more_fonts(drawing.decode("utf-8")),
            font_family="DejaVu Sans",
            sans_serif_family="DejaVu Sans",
            serif_family="DejaVu Serif",
            monospace_family="DejaVu Sans Mono",
        )
    )


def _more_fonts(drawing: str) -> list[str] | None:
    """Return a font file with Chinese letters if a drawing has any.

    Raises:
        ValueError: there is no such font.
    """
    if not any(east_asian_width(letter) in "WF" for letter in drawing):
        return None
    path = font_file("zh")
    if path is None:
        raise ValueError("no font for Chinese is installed; see d2l_gpu/show/fonts.py")
    return [str(path)]
