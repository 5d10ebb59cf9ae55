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
from collections.abc import Sequence
from pathlib import Path, PurePath

from d2l_gpu import __version__
from d2l_gpu.frameworks import Framework
from tools.lesson import Cell, LessonError, parse_lesson

SOURCE = "header.md"

# Keys of cells that not every notebook has: links to hosted platforms, to the same
# lesson for other frameworks, and what stands there where no other has it.
_OPEN, _OTHERS, _ALONE = "header-open", "header-frameworks", "header-alone"

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


def header_cells(
    lessons: Path,
    path: PurePath,
    framework: Framework,
    others: Sequence[Framework] = (),
) -> list[Cell]:
    """Return the cells of the header of one notebook.

    Args:
        lessons: the folder of the sources; without a header there, there are none.
        path: of the notebook, relative to the repository: language, framework, name.
        framework: that the notebook is for.
        others: the other frameworks that have this lesson.

    Raises:
        LessonError: what is wrong with the source.
    """
    source = lessons / SOURCE
    if not source.is_file():
        return []
    names = {
        **platform_links(path),
        "version": __version__,
        "title": framework.title,
        "module": framework.module,
        "others": " · ".join(
            f"[{each.title}]({_on_github(_beside(path, each))})" for each in others
        ),
    }
    text = source.read_text(encoding="utf-8")
    try:
        text = string.Template(text).substitute(names)
    except (KeyError, ValueError) as error:
        raise LessonError(
            f"{source.name}: {error} is none of {', '.join(names)}, which are what "
            "can stand in ${…}"
        ) from None
    cells = parse_lesson(text, source, known=None).cells_for(framework.tag)
    left_out = {_ALONE if others else _OTHERS}
    if not framework.hosted:
        left_out.add(_OPEN)
    return [cell for cell in cells if cell.key not in left_out]


def _beside(path: PurePath, framework: Framework) -> PurePath:
    """Return the path of the same lesson for another framework."""
    return path.parent.with_name(framework.tag) / path.name


def _on_github(path: PurePath) -> str:
    return f"https://github.com/{_in_release(path)}"


def _in_release(path: PurePath) -> str:
    return f"{repository()}/blob/v{__version__}/{path.as_posix()}"


def platform_links(path: PurePath) -> dict[str, str]:
    """Return for each of `PLATFORMS` the address that opens a notebook there."""
    file = _in_release(path)
    return {name: prefix + file for name, (_, prefix) in PLATFORMS.items()}


@functools.cache
def repository() -> str:
    """Return ``owner/name`` on GitHub, as the metadata of the project have it."""
    project = tomllib.loads(_PROJECT.read_text("utf-8"))["project"]
    return re.fullmatch(
        r"https://github\.com/([\w.-]+/[\w.-]+)", project["urls"]["Source"]
    ).group(1)
