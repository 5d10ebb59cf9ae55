"""Parts of Markdown files that tools write, between marks that readers do not see."""


def replace_between(text: str, begin: str, end: str, part: str, name: str) -> str:
    """Return a text with ``part`` between its marks.

    Args:
        text: of the file.
        begin, end: the marks, each a line of the text.
        part: what shall stand between them.
        name: of the file, for the error.

    Raises:
        ValueError: the marks are not there.
    """
    before, first, rest = text.partition(begin)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise ValueError(f"{name} has no lines {begin} and {end}.")
    return f"{before}{begin}\n\n{part}\n\n{end}{after}"
