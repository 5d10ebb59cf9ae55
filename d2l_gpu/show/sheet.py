"""The page that a figure is drawn on: title, subtitle, and room for what's below.

Everything is placed by its measured size, in inches from the top left corner, so no
text is clipped and no two overlap.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from d2l_gpu.show.live import LiveFigure
from d2l_gpu.show.style import PAD, PANEL_TITLE, TEXT, TITLE, WIDTH
from d2l_gpu.vgpu.sim.drawing import GRID, INK, PAPER, SOFT, text_width, wrapped
from d2l_gpu.vgpu.sim.words import columns, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 72  # in an inch
LEADING = 1.3  # height of a line of text, in font sizes


def wide(text: str, size: float, bold: bool = False) -> float:
    """Return the width of a text in inches; size is in points."""
    return text_width(text, size, bold) / POINTS


def high(lines: int, size: float) -> float:
    """Return the height of lines of text in inches; size is in points."""
    return lines * size * LEADING / POINTS


def lines_of(text: str, width: float, size: float, bold: bool = False) -> list[str]:
    """Return a text in lines of at most this width in inches; size is in points."""
    return wrapped(text, width * POINTS, size, bold)


def in_sentences(*texts: str) -> str:
    """Return texts as sentences in the reader's language, without empty ones."""
    found = [shown(text).rstrip(".。") for text in texts if text]
    ends = ["。" if columns(text[-1]) > 1 else ". " for text in found if text]
    pairs = zip(filter(None, found), ends, strict=True)
    return "".join(f"{text}{end}" for text, end in pairs).strip()


class Sheet:
    """A Matplotlib figure on which places are inches from the top left corner."""

    def __init__(self, figure: "Figure", width: float, height: float):
        figure.clear()
        figure.set_layout_engine("none")
        figure.set_size_inches(width, height)
        figure.set_facecolor(PAPER)
        self.figure, self.width, self.height = figure, width, height

    def write(
        self,
        left: float,
        top: float,
        lines: Sequence[str],
        size: float,
        colour: str = INK,
        bold: bool = False,
        align: str = "left",
    ) -> None:
        """Write lines of text below ``top``."""
        for i, line in enumerate(lines):
            self.figure.text(
                left / self.width,
                1 - (top + high(i, size) + size / POINTS) / self.height,
                shown(line),
                fontsize=size,
                color=colour,
                fontweight="bold" if bold else "normal",
                horizontalalignment=align,
                verticalalignment="baseline",
                parse_math=False,
            )

    def line(
        self,
        corner: tuple[float, float],
        start: tuple[float, float],
        end: tuple[float, float],
        colour: str,
    ) -> None:
        """Draw a thin line, dotted so that it isn't taken for a curve.

        Both places are seen from the corner.
        """
        from matplotlib.lines import Line2D

        xs = [(corner[0] + place[0]) / self.width for place in (start, end)]
        ys = [1 - (corner[1] + place[1]) / self.height for place in (start, end)]
        transform = self.figure.transFigure
        line = Line2D(
            xs, ys, linewidth=0.9, linestyle=":", color=colour, transform=transform
        )
        self.figure.add_artist(line)

    def axes(self, left: float, top: float, width: float, height: float) -> "Axes":
        """Return new axes without a frame, with a line below and faint grid lines."""
        axes = self.figure.add_axes(
            (
                left / self.width,
                1 - (top + height) / self.height,
                width / self.width,
                height / self.height,
            )
        )
        axes.set_facecolor("none")
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(SOFT)
        axes.tick_params(which="both", length=0, labelsize=TEXT, labelcolor=SOFT)
        axes.yaxis.grid(True, color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        return axes


class Heading:
    """A title and a subtitle, as high as they need to be."""

    def __init__(self, title: str, subtitle: str, width: float, size: float = TITLE):
        self.size = size
        self.title = lines_of(title, width, size, bold=True)
        self.subtitle = lines_of(subtitle, width, TEXT)
        self.height = high(len(self.title), size) + high(len(self.subtitle), TEXT)
        if self.title or self.subtitle:
            self.height += 0.15

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        sheet.write(left, top, self.title, self.size, bold=True)
        below = top + high(len(self.title), self.size)
        sheet.write(left, below, self.subtitle, TEXT, SOFT)


class Plot(LiveFigure):
    """A figure that draws itself in a notebook; ``savefig`` writes it to a file.

    A subclass says how high its body is at a width, and draws it.

    Args:
        title: the finding, in a sentence without a period.
        subtitle: the conditions.
        width: of the figure in inches; default: that of all figures.
    """

    def __init__(self, title: str, subtitle: str, width: float | None = None):
        super().__init__()
        self.width = width or WIDTH
        self.title, self.subtitle = title, subtitle

    # ---------------------------------------------------------------- for subclasses

    def body_height(self, width: float) -> float:
        """Return how high everything below the subtitle is, in inches."""
        raise NotImplementedError

    def draw_body(self, sheet: Sheet, left: float, top: float, width: float) -> None:
        """Draw everything below the subtitle, from this corner on."""
        raise NotImplementedError

    def _contents(self) -> str:
        """Return a sentence on what is plotted, with its range and units."""
        raise NotImplementedError

    # ---------------------------------------------------------------- the figure

    def panel_heading(self, width: float) -> Heading:
        """Return the heading of this figure as a panel of another."""
        return Heading(self.title, self.subtitle, width, PANEL_TITLE)

    def paint(self, figure: "Figure") -> None:
        """Draw everything on a figure, which gets the size that this needs."""
        width = self.width - 2 * PAD
        heading = Heading(self.title, self.subtitle, width)
        height = heading.height + self.body_height(width) + 2 * PAD
        sheet = Sheet(figure, self.width, height)
        heading.draw(sheet, PAD, PAD)
        self.draw_body(sheet, PAD, PAD + heading.height, width)

    def _paint(self, figure: "Figure") -> None:
        self.paint(figure)

    def _description(self) -> str:
        return in_sentences(self.title, self.subtitle, self._contents())

    def __repr__(self) -> str:
        return f"<Figure: {self.words()}>"
