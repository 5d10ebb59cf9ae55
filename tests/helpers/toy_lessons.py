"""Toy lessons for the tests of the build, which need not wait for real ones."""

from pathlib import Path

FRONT_MATTER = """\
---
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

"""
GOOD_LESSON = f"""\
{FRONT_MATTER}# A toy

*You will be able to* add. *5 minutes on a laptop; no GPU needed.*

![Two boxes](../figures/boxes.svg)

```{{code-cell}} ipython3
:key: add

print("one")
1 + 1
```

```{{code-cell}} ipython3
2 * 3
```

## Summary

One and one is two.

+++ {{"key": "exercises"}}

## Exercises

1. Subtract.
"""

FIGURE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">
<rect width="20" height="20" fill="{colour}"/></svg>
"""
PUBLISHED = "published/en/pytorch"


def write_lesson(
    project: Path, text: str, name: str = "01_toy", framework: str = "pytorch"
) -> Path:
    """Write the source of a lesson for a framework into a project; return its path."""
    path = project / "lessons" / framework / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def draw_figure(project: Path, colour: str) -> None:
    """Draw the figure of the good lesson."""
    figures = project / "lessons" / "figures"
    figures.mkdir(exist_ok=True)
    (figures / "boxes.svg").write_text(FIGURE.format(colour=colour))
