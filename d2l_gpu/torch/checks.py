"""Checks of arguments that several functions share."""


def check_integer(
    name: str, value: int, least: int, example: int | None = None
) -> None:
    """Raise TypeError or ValueError unless a value is an integer of at least that.

    Args:
        name: what the value is, as the sentence begins.
        value: the value.
        least: the smallest that makes sense.
        example: one that makes sense, for the sentence; default ``least``.
    """
    example = least if example is None else example
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"{name} is an integer such as {example}, not {value!r} "
            f"({type(value).__name__})."
        )
    if value < least:
        raise ValueError(f"{name} is at least {least}, not {value}.")
