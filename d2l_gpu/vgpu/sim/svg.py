"""A picture as the text of an SVG file, with a title, a subtitle and a description.

It's readable on pages of any colour, because it's drawn on a white card of its own.
"""

import html
from collections.abc import Mapping, Sequence

from .drawing import INK, PAPER, SOFT, text_width, wrapped
from .words import shown

WIDTH, PAD = 720, 18  # of a picture, and around everything
SIZE, TITLE = 12, 16  # of text, in pixels
LINE = 16  # between lines of text


class Svg:
    """The parts of a picture so far; places are pixels from the top left corner.

    Args:
        title: what the picture shows.
        subtitle: the conditions.
    Attributes:
        top: where the room below the subtitle begins.
    """

    def __init__(self, title: str, subtitle: str):
        self.title, self.subtitle = title, subtitle
        self.parts: list[str] = []
        y = PAD + TITLE - 2
        for line in wrapped(title, WIDTH - 2 * PAD, TITLE, bold=True):
            self.write(PAD, y, line, size=TITLE, bold=True)
            y += TITLE + 5
        for line in wrapped(subtitle, WIDTH - 2 * PAD, SIZE):
            self.write(PAD, y, line, SOFT)
            y += LINE
        self.top = y

    def write(
        self,
        x: float,
        y: float,
        text: str,
        colour: str | None = INK,
        size: float = SIZE,
        bold: bool = False,
        anchor: str = "start",
    ) -> None:
        """Write a line of text whose baseline is at y.

        Without a colour it has that of the group that it's in.
        """
        more = f' fill="{colour}"' if colour is not None else ""
        more += ' font-weight="bold"' if bold else ""
        more += f' text-anchor="{anchor}"' if anchor != "start" else ""
        more += f' font-size="{size:g}"' if size != SIZE else ""
        self.parts.append(
            f'<text x="{x:.5g}" y="{y:.5g}"{more}>'
            f"{html.escape(shown(text), quote=False)}</text>"
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: str | None,
        edge: str | None = None,
        title: str = "",
    ) -> None:
        """Draw a rectangle.

        Args:
            x, y, width, height: its place and size.
            colour: None for that of the group that it's in.
            edge: the colour of a thin line inside its edge; None for no line.
            title: what it says when somebody points at it.
        """
        if edge is not None and min(width, height) > 2:
            x, y, width, height = x + 0.5, y + 0.5, width - 1, height - 1
        place = f'x="{x:.5g}"' + (f' y="{y:.5g}"' if y else "")
        paint = f' fill="{colour}"' if colour is not None else ""
        paint += f' stroke="{edge}"' if edge is not None else ""
        end = f">{_title(title)}</rect>" if title else "/>"
        self.parts.append(
            f'<rect {place} width="{width:.4g}" height="{height:.4g}"{paint}{end}'
        )

    def key(self, y: float, entries: Sequence[tuple[str, str, str | None]]) -> float:
        """Write what each colour means, in lines from y on; return where they end.

        Args:
            entries: what something is called, its colour and that of its edge.
        """
        x = float(PAD)
        for name, colour, edge in entries:
            room = 18 + text_width(name, SIZE)
            if x > PAD and x + room > WIDTH - PAD:
                x, y = PAD, y + LINE + 2
            self.box(x, y, 12, 12, colour, edge)
            self.write(x + 18, y + 10.5, name)
            x += room + 22
        return y + LINE

    def text(
        self, height: float, description: str, about: Mapping[str, str] | None = None
    ) -> str:
        """Return the whole picture.

        Args:
            height: of the picture.
            description: for those who can't see it.
            about: what scripts need to know, which becomes ``data-`` attributes. Parts
                of such a picture can be pointed at, so it's a document and no image.
        """
        role, more = "img", ""
        if about is not None:
            role = "graphics-document document"
            more = "".join(f' data-{key}="{value}"' for key, value in about.items())
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} '
                f'{height:g}" width="{WIDTH}" height="{height:g}" role="{role}" '
                f'font-family="sans-serif" font-size="{SIZE}"{more}>',
                _title(self.title),
                f"<desc>{html.escape(shown(description), quote=False)}</desc>",
                f'<rect width="{WIDTH}" height="{height:g}" fill="{PAPER}"/>',
                *self.parts,
                "</svg>",
            ]
        )


def _title(text: str) -> str:
    return f"<title>{html.escape(shown(text), quote=False)}</title>"
