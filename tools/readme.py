"""The README's table of where each notebook opens, which the build writes."""

from collections.abc import Iterable, Set
from pathlib import PurePath

from d2l_gpu.frameworks import Framework
from tools.header import PLATFORMS, platform_links, solutions_of
from tools.marks import replace_between

BEGIN, END = "<!-- from tools/readme.py -->", "<!-- end -->"


def readme_with(
    text: str, notebooks: Iterable[tuple[Framework, PurePath]], solved: Set[PurePath]
) -> str:
    """Return the README with a table for each framework between its marks.

    The table of the first framework is shown, those of the others unfold.

    Args:
        text: of the README.
        notebooks: frameworks, and paths relative to the repository.
        solved: the notebooks that have solutions to their exercises.

    Raises:
        ValueError: the marks are not there.
    """
    by_framework: dict[Framework, list[PurePath]] = {}
    for framework, path in notebooks:
        by_framework.setdefault(framework, []).append(path)
    shown, *folded = (
        _table(framework, by_framework[framework], solved)
        for framework in sorted(by_framework)
    )
    titles = [framework.title for framework in sorted(by_framework)][1:]
    tables = [shown] + [
        f"<details><summary>{title}</summary>\n\n{table}\n\n</details>"
        for title, table in zip(titles, folded, strict=True)
    ]
    return replace_between(text, BEGIN, END, "\n\n".join(tables), "README.md")


def _table(
    framework: Framework, paths: Iterable[PurePath], solved: Set[PurePath]
) -> str:
    head = [f"With {framework.title}"]
    if framework.hosted:
        head += [name for name, _ in PLATFORMS.values()]
    if solved:
        head.append("Exercises")
    rows = [head, ["---"] * len(head)]
    for path in paths:
        links = platform_links(path) if framework.hosted else {}
        opens = [f"[{PLATFORMS[key][0]}]({link})" for key, link in links.items()]
        row = [f"[{path.stem}]({path.as_posix()})", *opens]
        if solved:
            link = f"[solutions]({solutions_of(path).as_posix()})"
            row.append(link if path in solved else "")
        rows.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
