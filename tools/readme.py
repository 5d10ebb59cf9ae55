"""The README's table of where each notebook opens, which the build writes."""

from collections.abc import Iterable
from pathlib import PurePath

from tools.header import PLATFORMS, platform_links
from tools.marks import replace_between

BEGIN, END = "<!-- from tools/readme.py -->", "<!-- end -->"


def readme_with(text: str, notebooks: Iterable[PurePath]) -> str:
    """Return the README with the table of these notebooks between its marks.

    Args:
        text: of the README.
        notebooks: paths relative to the repository.

    Raises:
        ValueError: the marks are not there.
    """
    head = ["Notebook", *(name for name, _ in PLATFORMS.values())]
    rows = [head, ["---"] * len(head), *map(_row, notebooks)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return replace_between(text, BEGIN, END, table, "README.md")


def _row(path: PurePath) -> list[str]:
    links = platform_links(path)
    opens = [f"[{name}]({links[key]})" for key, (name, _) in PLATFORMS.items()]
    return [f"[{path.stem}]({path.as_posix()})", *opens]
