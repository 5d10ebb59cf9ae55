"""A figure that grows while a cell runs, in a single Jupyter display.

In a notebook, a figure is *one* display that is updated in place. Readers, and the
comparison of notebooks, see its last state, and its text never changes. Outside Jupyter
no window opens; ``fig`` and ``savefig`` give access to the figure. Matplotlib is
imported when something is drawn, but pyplot never is, because Jupyter would show
pyplot's figures again at the end of the cell.
"""

import base64
import io
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d2l_gpu.show.style import default_style
from d2l_gpu.vgpu.sim.words import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PIXELS_PER_INCH = 96  # CSS pixels, for the size at which the picture is shown
SHARPNESS = 2  # pixels in the picture per displayed pixel
SECONDS_BETWEEN_REDRAWS = 0.2
SHARE_OF_TIME = 0.1  # drawing takes at most this fraction of the time


def in_jupyter() -> bool:
    """Return whether this code runs in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")  # a kernel imports it before any cell runs
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


class LiveFigure:
    """Base class of figures that redraw themselves while a cell runs.

    A subclass paints its current state in ``_paint`` and calls ``_changed`` whenever
    there is more to see. In Jupyter, that redraws the display, but at most five times a
    second and for at most a tenth of the time. The end of the cell draws the last
    state, whatever was skipped.

    Args:
        fig, axes: Matplotlib figure and axes to draw on; default: new ones.
        display: whether to show the figure in Jupyter while it grows.
    """

    alt: str | None = None
    """Alternative text of the picture; None: a description made from its labels."""

    def __init__(
        self,
        fig: "Figure | None" = None,
        axes: "Axes | None" = None,
        display: bool = True,
    ):
        self.axes = axes
        self.display = display
        self._given = axes.figure if fig is None and axes is not None else fig
        self._reset_display()

    # ---------------------------------------------------------------- for subclasses

    def _paint(self, figure: "Figure") -> None:
        """Draw the current state on a figure that may hold an earlier one."""
        raise NotImplementedError

    def _title(self) -> str:
        """Return one line on what the figure shows that doesn't depend on the data."""
        raise NotImplementedError

    def words(self) -> str:
        """Return what the figure shows, for those who don't see it."""
        return shown(self.alt) if self.alt else self._description()

    def _description(self) -> str:
        """Return the alternative text: what the figure shows now."""
        return self._title()

    def _changed(self) -> None:
        """Redraw the display in Jupyter, if it's time."""
        if not (self.display and in_jupyter()):
            return
        self._behind = True
        if self._handle is None or time.monotonic() >= self._next_redraw:
            self.flush()

    # ---------------------------------------------------------------- for users

    @property
    def fig(self) -> "Figure":
        """A Matplotlib figure of the current state: a new one, or the one passed in."""
        with default_style():
            return self._painted()

    def savefig(self, path: str | Path | io.BytesIO, **kwargs: Any) -> None:
        """Save the figure to a file.

        Args:
            path: name of the file, whose extension sets the format, or a binary buffer.
            kwargs: arguments of ``matplotlib.figure.Figure.savefig``.
        """
        with default_style():
            self._painted().savefig(path, **kwargs)

    def flush(self) -> None:
        """Show the current state now, if the display is behind."""
        if not self._behind:
            return
        with default_style():  # keeps its import out of the timing
            began = time.monotonic()
            if self._handle is None:
                self._open_display()
            else:
                data, metadata = self._bundle(self._text)
                self._handle.update(data, metadata=metadata, raw=True)
            now = time.monotonic()
        self._behind = False
        pause = max(SECONDS_BETWEEN_REDRAWS, (now - began) / SHARE_OF_TIME)
        self._next_redraw = now + pause

    def __repr__(self) -> str:
        return f"<Figure: {self._title()}>"

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        return self._bundle(repr(self))

    def __getstate__(self) -> dict:
        # Copies and saved models keep the data but not the open display.
        closed = {"_given": None, "axes": None, "_handle": None, "_behind": False}
        return self.__dict__ | closed

    # ---------------------------------------------------------------- the display

    def _open_display(self) -> None:
        from IPython import display, get_ipython

        # The text must be the same in every update, whatever changes meanwhile.
        self._text = repr(self)
        data, metadata = self._bundle(self._text)
        self._handle = display.display(
            data, metadata=metadata, raw=True, display_id=True
        )
        get_ipython().events.register("post_execute", self._end_of_cell)
        if self._given is not None and "matplotlib.pyplot" in sys.modules:
            # Jupyter would show a figure made with pyplot a second time.
            sys.modules["matplotlib.pyplot"].close(self._given)

    def _end_of_cell(self) -> None:
        """Draw the last state; what comes next belongs to another cell's output."""
        self._shell_events().unregister("post_execute", self._end_of_cell)
        self.flush()
        self._reset_display()

    def _close_display(self) -> None:
        """Draw the last state; the next change opens a new display."""
        if self._handle is not None:
            self._end_of_cell()

    @staticmethod
    def _shell_events():
        return sys.modules["IPython"].get_ipython().events

    def _reset_display(self) -> None:
        self._handle = None
        self._text = ""
        self._behind = False
        self._next_redraw = 0.0

    def _bundle(self, text: str) -> tuple[dict, dict]:
        """Return the display's data and metadata: text and picture, always as PNG."""
        with default_style():
            figure = self._painted()
            width, height = figure.get_size_inches() * PIXELS_PER_INCH
            image = base64.b64encode(_png(figure)).decode("ascii")
        sizes = {"width": round(width), "height": round(height)}
        return (
            {"text/plain": text, "image/png": image},
            {"image/png": sizes | {"alt": self.words()}},
        )

    def _painted(self) -> "Figure":
        figure = self._given
        if figure is None:
            from matplotlib.figure import Figure

            # A new figure each time, since the last picture must not depend on skipped
            # redraws.
            figure = Figure()
        self._paint(figure)
        return figure


def _png(figure: "Figure") -> bytes:
    """Return the figure as a small PNG."""
    drawn = io.BytesIO()
    dpi = PIXELS_PER_INCH * SHARPNESS
    figure.savefig(drawn, format="png", dpi=dpi)
    return small_png(drawn.getvalue())


def small_png(picture: bytes, colors: int = 64) -> bytes:
    """Return an image file as a palette PNG, which takes a third of the space in git.

    It isn't transparent, so it's readable on a dark page too. It has no metadata,
    because Matplotlib would record its version there.
    """
    from PIL import Image  # a dependency of Matplotlib

    opaque = Image.open(io.BytesIO(picture)).convert("RGB")
    small = io.BytesIO()
    opaque.quantize(colors, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()
