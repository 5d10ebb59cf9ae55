"""``panels``: figures side by side, or below each other if there's no room."""

from d2l_gpu.show.sheet import Plot, Sheet

NARROWEST = 3.2  # width of a panel, in inches
GAP = 0.35  # between panels, in inches


class Panels(Plot):
    """The figure that ``panels`` returns."""

    def __init__(
        self,
        plots: tuple[Plot, ...],
        title: str,
        subtitle: str,
        width: float | None = None,
    ):
        super().__init__(title, subtitle, width)
        self.plots = plots

    def _rows(self, width: float) -> list[tuple[Plot, ...]]:
        most = max(1, int((width + GAP) / (NARROWEST + GAP)))
        return [self.plots[i : i + most] for i in range(0, len(self.plots), most)]

    def _width(self, width: float) -> float:
        columns = len(self._rows(width)[0])
        return (width - GAP * (columns - 1)) / columns

    def body_height(self, width: float) -> float:
        each, rows = self._width(width), self._rows(width)
        return sum(map(sum, (self._heights(row, each) for row in rows))) + GAP * (
            len(rows) - 1
        )

    @staticmethod
    def _heights(row: tuple[Plot, ...], width: float) -> tuple[float, float]:
        """Return the heights of a row's headings and of what is below."""
        return (
            max(plot.panel_heading(width).height for plot in row),
            max(plot.body_height(width) for plot in row),
        )

    def draw_body(self, sheet: Sheet, left: float, top: float, width: float) -> None:
        each = self._width(width)
        for row in self._rows(width):
            heading, body = self._heights(row, each)
            for i, plot in enumerate(row):
                x = left + i * (each + GAP)
                plot.panel_heading(each).draw(sheet, x, top)
                plot.draw_body(sheet, x, top + heading, each)
            top += heading + body + GAP

    def _title(self) -> str:
        return self.title or "; ".join(plot._title() for plot in self.plots)

    def _contents(self) -> str:
        return " ".join(plot._description() for plot in self.plots)


def panels(*plots: Plot, title: str = "", subtitle: str = "") -> Panels:
    """Return one figure with others as its panels, side by side if there's room.

    Args:
        plots: figures that ``plot``, ``bars`` or ``roofline`` returned. Their titles
            become those of the panels.
        title: what the whole figure shows, as a finding.
        subtitle: the conditions.
    Raises:
        ValueError: there are no plots.
        TypeError: one of them isn't such a figure.
    """
    if not plots:
        raise ValueError("A figure needs at least one panel, but got none.")
    for plot in plots:
        if not isinstance(plot, Plot):
            raise TypeError(
                f"A panel must be a figure of plot, bars or roofline, but got {plot!r}."
            )
    return Panels(plots, title, subtitle)
