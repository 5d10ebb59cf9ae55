"""Arguments that several commands take, and their types."""

import argparse
import re
from pathlib import Path

from d2l_gpu.common.frameworks import FRAMEWORKS


def number_of_seconds(text: str) -> int:
    """Read a whole number of seconds, at least 1."""
    return _positive(text)


def number_of_notebooks(text: str) -> int:
    """Read a number of notebooks, at least 1."""
    return _positive(text)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


# argparse names the type in its message: "invalid number of seconds value: 'x'"
number_of_seconds.__name__ = "number of seconds"
number_of_notebooks.__name__ = "number of notebooks"


def exercises_and_lessons(text: str) -> list[str]:
    """Read numbers of exercises and lessons, separated by commas; 3.1 means 03.1."""
    names = [each.strip() for each in text.split(",") if each.strip()]
    if not names:
        raise argparse.ArgumentTypeError(
            "name exercises or lessons, separated by commas, such as 03.1,03.2,07"
        )
    return [re.sub(r"^(?=\d(\.\d+)?$)", "0", each) for each in names]


def folder(text: str) -> Path:
    """Read the name of a folder, which may be missing."""
    path = Path(text)
    try:
        is_file = path.exists() and not path.is_dir()
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{text} cannot be used ({error.strerror}); name a folder of your own"
        ) from None
    if is_file:
        raise argparse.ArgumentTypeError(
            f"{text} is a file; name a folder, which is created if it is missing"
        )
    return path


def page_name(text: str) -> Path:
    """Read the name of an HTML file."""
    path = Path(text)
    if path.suffix.lower() not in (".html", ".htm") or path.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text} isn't the name of a page; give one that ends in .html"
        )
    return path


def add_lessons(parser: argparse.ArgumentParser) -> None:
    """Add the lessons, any number of them."""
    parser.add_argument(
        "lessons",
        nargs="*",
        metavar="lesson",
        help="number or name, such as 03, copying or 03_copying (default: everything "
        "but the appendices)",
    )


def add_edition(parser: argparse.ArgumentParser) -> None:
    """Add the language and the framework."""
    parser.add_argument(
        "--language",
        help="language of the notebooks, such as en (default: yours, if there is an "
        "edition)",
    )
    parser.add_argument(
        "--framework",
        metavar="{" + ",".join(each.tag for each in FRAMEWORKS) + "}",
        default="pytorch",
        help="framework that the notebooks use (default: %(default)s)",
    )


def add_output(
    parser: argparse.ArgumentParser,
    default: str = "d2l-gpu-course",
    what: str = "notebooks",
) -> None:
    """Add the folder to write to."""
    parser.add_argument(
        "--output",
        type=folder,
        default=Path(default),
        metavar="DIR",
        help=f"where to put the {what} (default: ./%(default)s)",
    )
