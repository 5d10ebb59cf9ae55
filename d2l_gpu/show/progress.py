"""A progress bar, in a terminal and in Jupyter; silent elsewhere.

A notebook's output must not depend on how fast the machine is. In Jupyter, the bar is
therefore *one* display, always there, which is empty at the start and at the end: what
is saved, and what the comparison of notebooks sees, is the same after every run.
"""

import contextlib
import html
import math
import shutil
import sys
import time
from collections.abc import Iterator

from d2l_gpu.show.live import in_jupyter

SECONDS_BETWEEN_REDRAWS = 0.2
_EMPTY = "<div></div>"


class Progress:
    """A progress bar: ``with Progress(len(batches), "epoch 1") as progress: …``.

    In a terminal, it is a line on stderr (if tqdm is installed); in Jupyter, a display
    that is empty again at the end; elsewhere, nothing. Until the first ``update`` or
    ``set``, it shows the elapsed time.

    Args:
        total: number of steps that ``update`` counts up to.
        label: text beside the bar.
        display: whether to show the bar at all.
    Raises:
        TypeError, ValueError: total is not a positive, finite number.
    """

    def __init__(self, total: float = 1, label: str = "", *, display: bool = True):
        if isinstance(total, bool) or not isinstance(total, int | float):
            raise TypeError(
                "The total of a progress bar must be a number of steps, but got "
                f"{total!r} ({type(total).__name__})."
            )
        if not 0 < total < math.inf:
            raise ValueError(
                f"The total of a progress bar must be positive, but got {total}."
            )
        self.total = total
        self.label = label
        self.display = display
        self.fraction: float | None = None
        """Fraction done, from 0 to 1; None before the first update."""
        self._bar = None
        self._handle = None

    def update(self, n: float = 1) -> None:
        """Count n more steps as done, but no more than the total."""
        self.set(min((self.fraction or 0.0) + n / self.total, 1.0))

    def set(self, fraction: float) -> None:
        """Show a fraction as done.

        Args:
            fraction: from 0 to 1; it may be less than before.
        Raises:
            TypeError, ValueError: fraction is not a number from 0 to 1.
        """
        self.fraction = checked_fraction(fraction)
        self.refresh()

    def refresh(self) -> None:
        """Show the current state, unless the bar was drawn a moment ago."""
        if self._bar is None and self._handle is None:
            return
        now = time.monotonic()
        if now < self._next_redraw and self.fraction != 1:
            return
        self._next_redraw = now + SECONDS_BETWEEN_REDRAWS
        if self._bar is not None:
            self._draw_bar()
        else:
            self._show(self._html(now - self._began))

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Take the bar off the terminal while something else is printed."""
        if self._bar is None:
            yield
            return
        self._bar.clear()
        try:
            yield
        finally:
            self._bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
        if self._handle is not None:
            self._show(_EMPTY)
        self._bar = self._handle = None

    def __enter__(self) -> "Progress":
        self._began = time.monotonic()
        self._next_redraw = 0.0
        if not self.display:
            return self
        if in_jupyter():
            self._open_display()
        elif sys.stderr is not None and sys.stderr.isatty():
            self._open_bar()
        self.refresh()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ---------------------------------------------------------------- a terminal

    def _open_bar(self) -> None:
        try:
            from tqdm import tqdm
        except ImportError:  # part of the extra "course"; the bar is optional
            return
        self._bar = tqdm(
            total=1.0,
            desc=self.label or None,
            leave=False,
            bar_format="{desc} {elapsed}",
            # Set both: tqdm shows nothing if the terminal's size is unknown.
            ncols=min(72, shutil.get_terminal_size().columns),
            nrows=20,
        )

    def _draw_bar(self) -> None:
        if self.fraction is not None:
            self._bar.bar_format = "{desc} {percentage:3.0f} % {bar} {elapsed}"
            self._bar.n = self.fraction
        self._bar.refresh()

    # ---------------------------------------------------------------- Jupyter

    def _open_display(self) -> None:
        from IPython import display

        self._handle = display.display(self._bundle(_EMPTY), raw=True, display_id=True)

    def _show(self, content: str) -> None:
        self._handle.update(self._bundle(content), raw=True)

    @staticmethod
    def _bundle(content: str) -> dict:
        return {"text/plain": "<Progress>", "text/html": content}

    def _html(self, seconds: float) -> str:
        minutes, seconds = divmod(int(seconds), 60)
        text = f"{html.escape(self.label)} {minutes:02d}:{seconds:02d}"
        if self.fraction is None:
            return f"<div>{text}</div>"
        return (
            f'<div><progress value="{self.fraction:.3f}"></progress> '
            f"{100 * self.fraction:.0f} % {text}</div>"
        )


def checked_fraction(fraction: float) -> float:
    """Return a number from 0 to 1 as a float; raise an error for anything else."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float):
        raise TypeError(
            f"Progress must be a number from 0 to 1, but got {fraction!r} "
            f"({type(fraction).__name__})."
        )
    if not 0 <= fraction <= 1:
        raise ValueError(f"Progress must be a number from 0 to 1, but got {fraction}.")
    return float(fraction)
