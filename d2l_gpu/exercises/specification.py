"""What an exercise asks for, out of the notebook that the reader has."""

import json
import re

from d2l_gpu.course import notebooks_dir
from d2l_gpu.exercises.registry import find
from d2l_gpu.show.live import in_jupyter


def specification(framework: str, number: str, language: str | None = None) -> str:
    """Return the text of an exercise, in Markdown.

    Args:
        framework: the tag of the edition.
        number: of the exercise, as ``03.1``.
        language: of the edition; None for the reader's.

    Raises:
        TypeError, ValueError: there is no such exercise, or no such edition.
        FileNotFoundError: the notebooks are not there, or have no such exercise.
    """
    number = find(framework, number).number
    folder = notebooks_dir(language, framework)
    lesson = number.partition(".")[0]
    heading = re.compile(rf"^#+ {re.escape(number)}\b", re.MULTILINE)
    for path in folder.glob(f"{lesson}_*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"])
            if cell["cell_type"] == "markdown" and heading.match(text):
                return text
    raise FileNotFoundError(
        f"Exercise {number} is not in the notebooks of {folder}: they are older than "
        "the package d2l_gpu; get those of its version."
    )


def show(framework: str, number: str, language: str | None = None) -> None:
    """Show the text of an exercise: rendered in a notebook, else printed."""
    text = specification(framework, number, language)
    if in_jupyter():
        from IPython.display import Markdown, display

        display(Markdown(text))
    else:
        print(text)
