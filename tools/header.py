"""What every notebook begins with, below its title: where to open it, and the setup.

The source is ``lessons/header.md``, a lesson of its own in form, in which names in
``${…}`` stand for what differs between notebooks and between releases. Both the links
and the package that hosted platforms install are those of the *release* that the
notebook belongs to, so that they always fit each other; the version changes only in
the commit that makes a release.
"""

import functools
import re
import string
import tomllib
from pathlib import Path, PurePath

from d2l_gpu import __version__
from tools.lesson import Cell, LessonError, parse_lesson

SOURCE = "header.md"

# What to put before `owner/name/blob/tag/path` of a file on GitHub.
PLATFORMS = {
    "colab": ("Colab", "https://colab.research.google.com/github/"),
    "kaggle": ("Kaggle", "https://kaggle.com/kernels/welcome?src=https://github.com/"),
    "studio_lab": (
        "SageMaker Studio Lab",
        "https://studiolab.sagemaker.aws/import/github/",
    ),
}

_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def header_cells(lessons: Path, path: PurePath, framework: str) -> list[Cell]:
    """Return the cells of the header of one notebook.

    Args:
        lessons: the folder of the sources; without a header there, there are none.
        path: of the notebook, relative to the repository.
        framework: that the notebook is for.

    Raises:
        LessonError: what is wrong with the source.
    """
    source = lessons / SOURCE
    if not source.is_file():
        return []
    names = {**platform_links(path), "version": __version__}
    text = source.read_text(encoding="utf-8")
    try:
        text = string.Template(text).substitute(names)
    except (KeyError, ValueError) as error:
        raise LessonError(
            f"{source.name}: {error} is none of {', '.join(names)}, which are what "
            "can stand in ${…}"
        ) from None
    return parse_lesson(text, source).cells_for(framework)


def platform_links(path: PurePath) -> dict[str, str]:
    """Return for each of `PLATFORMS` the address that opens a notebook there."""
    file = f"{repository()}/blob/v{__version__}/{path.as_posix()}"
    return {name: prefix + file for name, (_, prefix) in PLATFORMS.items()}


@functools.cache
def repository() -> str:
    """Return ``owner/name`` on GitHub, as the metadata of the project have it."""
    project = tomllib.loads(_PROJECT.read_text("utf-8"))["project"]
    return re.fullmatch(
        r"https://github\.com/([\w.-]+/[\w.-]+)", project["urls"]["Source"]
    ).group(1)
