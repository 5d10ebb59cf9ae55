"""The text of an exercise, read from the reader's notebook."""

import json
import re

from d2l_gpu.course import notebooks_dir
from d2l_gpu.exercises.registry import find
from d2l_gpu.exercises.variants.draw import current
from d2l_gpu.exercises.variants.texts import of_variant
from d2l_gpu.show.live import in_jupyter


def specification(framework: str, number: str, language: str | None = None) -> str:
    """Return the text of an exercise, in Markdown, as the current variant has it.

    Args:
        framework: the framework's tag.
        number: the exercise, such as ``03.1``.
        language: the edition's language; None for the reader's.

    Raises:
        TypeError: `number` is not a string.
        ValueError: there is no such exercise or edition.
        FileNotFoundError: the notebooks are missing, or lack this exercise.
    """
    exercise, variant = find(framework, number), current(framework)
    number = exercise.number
    folder = notebooks_dir(language, framework)
    lesson = number.partition(".")[0]
    heading = re.compile(rf"^#+ {re.escape(number)}\b", re.MULTILINE)
    for path in folder.glob(f"{lesson}_*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"])
            if cell["cell_type"] == "markdown" and heading.match(text):
                if variant:
                    text = of_variant(exercise, text, folder.parent.name, variant)
                return text
    raise FileNotFoundError(
        f"The notebooks in {folder} don't contain exercise {number}: they're older "
        "than the package d2l_gpu. Get the notebooks of its version."
    )


def show(framework: str, number: str, language: str | None = None) -> None:
    """Show the text of an exercise: rendered in a notebook, printed elsewhere.

    Takes the arguments of `specification`, and raises the same errors.
    """
    text = specification(framework, number, language)
    if in_jupyter():
        from IPython.display import Markdown, display

        display(Markdown(text))
    else:
        print(text)
