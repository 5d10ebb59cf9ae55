"""Curves as lines of text, for terminals and files, where no figure can grow."""

from collections.abc import Mapping


class TextCurves:
    """Prints ``epoch 3: train loss 0.52, test acc 0.81``, one line per integer x.

    A line is printed once all curves have a point at its x. If some have fewer points,
    it is printed when the next x comes, or at the end. After 20 lines only every tenth
    is printed, after 200 every hundredth; the last one always is.

    Args:
        xlabel: what x is.
        curves: how many curves there are.
    """

    def __init__(self, xlabel: str, curves: int):
        self.xlabel, self.curves = xlabel, curves
        self._x: float | None = None
        self._latest: dict[str, float] = {}
        self._arrived: set[str] = set()  # the curves with a point at this x
        self._waiting = False  # for the other curves, before the line is printed
        self._lines = 0
        self._left_out = ""

    def add(self, x: float, values: Mapping[str, float]) -> None:
        """Record the values that some of the curves have at x."""
        if x != self._x:
            self._print()
            self._x, self._waiting = x, float(x).is_integer()
            self._arrived.clear()
        self._latest.update(values)
        self._arrived.update(values)
        if len(self._arrived) == self.curves:
            self._print()

    def finish(self) -> None:
        """Print the last line, if it hasn't been printed yet."""
        self._print()
        if self._left_out:
            print(self._left_out, flush=True)
        self._left_out = ""

    def _print(self) -> None:
        if not self._waiting:
            return
        self._waiting = False
        values = ", ".join(f"{name} {y:.4g}" for name, y in self._latest.items())
        line = f"{self.xlabel} {self._x:.0f}: {values}"
        every = 10 ** (len(str(self._lines // 2)) - 1)
        self._lines += 1
        self._left_out = line if self._lines % every else ""
        if not self._left_out:
            print(line, flush=True)  # even if the output goes to a file
