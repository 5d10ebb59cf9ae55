"""Checks of arguments that several functions share."""


def check_integer(name: str, value: int, least: int) -> None:
    """Raise TypeError or ValueError unless a value is an integer of at least that."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"{name} is an integer such as {least}, not {value!r} "
            f"({type(value).__name__})."
        )
    if value < least:
        raise ValueError(f"{name} is at least {least}, not {value}.")
