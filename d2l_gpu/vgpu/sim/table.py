"""Tables that show as HTML in a notebook and as text elsewhere."""

import html
from collections.abc import Sequence

from .words import columns, padded, shown


class Table:
    """A table with a heading row.

    Args:
        heading: names of the columns.
        rows: lists of texts, one text for each column.
        numbers: names of the columns to align right.
    """

    def __init__(
        self,
        heading: Sequence[str],
        rows: Sequence[Sequence[str]],
        numbers: Sequence[str] = (),
    ):
        self.heading = list(heading)
        self.rows = [list(row) for row in rows]
        self.right = [name in numbers for name in heading]

    def _lines(self) -> list[list[str]]:
        """Return the heading and the rows as they're to be shown."""
        return [[shown(text) for text in line] for line in (self.heading, *self.rows)]

    def __repr__(self) -> str:
        lines = self._lines()
        widths = [max(map(columns, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                padded(text, width, right)
                for text, width, right in zip(line, widths, self.right, strict=True)
            ).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        def row(tag: str, texts: Sequence[str]) -> str:
            return "".join(
                f'<{tag} style="text-align: {"right" if right else "left"}">'
                f"{html.escape(text)}</{tag}>"
                for text, right in zip(texts, self.right, strict=True)
            )

        heading, *rows = self._lines()
        body = "\n".join(f"<tr>{row('td', texts)}</tr>" for texts in rows)
        return (
            f"<table>\n<thead><tr>{row('th', heading)}</tr></thead>\n"
            f"<tbody>\n{body}\n</tbody>\n</table>"
        )
