"""Replace parts of Markdown files, between marks that are hidden from readers."""


def replace_between(text: str, begin: str, end: str, part: str, name: str) -> str:
    """Return a text with ``part`` between its marks.

    Args:
        text: the file's content.
        begin, end: the marks, each on a line of its own.
        part: the new text between them.
        name: the file's name, for the error message.

    Raises:
        ValueError: a mark is missing.
    """
    before, first, rest = text.partition(begin)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise ValueError(f"{name} has no lines {begin} and {end}.")
    return f"{before}{begin}\n\n{part}\n\n{end}{after}"
