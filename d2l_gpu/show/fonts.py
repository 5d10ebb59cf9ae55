"""Fonts for labels that Matplotlib's own, DejaVu Sans, has no letters for.

Matplotlib comes with no Chinese font. One that the system has is used: Windows and
macOS have some, and Debian's package ``fonts-wqy-microhei`` installs another. Without
any, labels stay in English, since what can't be drawn would be boxes.
"""

import functools
import os
import re
from pathlib import Path

from d2l_gpu.common.settings import LANGUAGE

USUAL = "DejaVu Sans"

# Files of fonts for simplified Chinese, the best first. Of a collection, Matplotlib
# takes the first font, and in that of Noto it's a Japanese one.
_CHINESE = (
    r"NotoSansSC\b.*",
    r"SourceHanSans(SC|CN)-Regular",
    r"PingFang",
    r"msyh",
    r"wqy-microhei",
    r"wqy-zenhei",
    r"simhei",
    r"NotoSansCJK(sc)?-Regular",
)
_FONTS = {"zh": _CHINESE}


def families() -> list[str] | None:
    """Return the families to draw text with; None if the language needs one more."""
    language = os.environ.get(LANGUAGE, "").strip()
    if language not in _FONTS:
        return [USUAL]
    path = font_file(language)
    return None if path is None else [USUAL, _family(path)]


@functools.cache
def _family(path: Path) -> str:
    from matplotlib import font_manager

    # Matplotlib's own list may be older than a font that's just been installed.
    font_manager.fontManager.addfont(path)
    return font_manager.FontProperties(fname=path).get_name()


@functools.cache
def font_file(language: str) -> Path | None:
    """Return the best installed font for a language that needs one; None if none is.

    Args:
        language: such as ``zh``.
    """
    from matplotlib import font_manager

    paths = sorted(Path(path) for path in font_manager.findSystemFonts())
    for pattern in _FONTS[language]:
        for path in paths:
            if re.fullmatch(pattern, path.stem, re.IGNORECASE):
                return path
    return None
