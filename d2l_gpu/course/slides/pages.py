"""One HTML page of slides with all it needs: nothing is fetched from the network."""

from functools import cache
from importlib.resources import files

from nbconvert import SlidesExporter
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter
from traitlets.config import Config

from d2l_gpu.course.formulas import WithFormulas
from d2l_gpu.course.slides.deck import deck

_HERE = files("d2l_gpu.course.slides")
_STYLES = {"": "xcode", '[data-theme="dark"]': "github-dark"}


class _Exporter(WithFormulas, SlidesExporter):
    """nbconvert's exporter of slides, whose formulas need no script."""


def page_of(notebook: NotebookNode, label: str, title: str, language: str) -> str:
    """Return the page with a lesson's slides.

    Args:
        notebook: the lesson, with its outputs.
        label: what is written above the title of the talk.
        title: of the page.
        language: its code.
    """
    slides = deck(notebook, label)
    slides.metadata = NotebookNode(slides.metadata, title=title)
    page, _ = _exporter(language).from_notebook_node(slides)
    # Only now, because nbconvert parses what it has written.
    for place, text in _inlined().items():
        page = page.replace(f"/*{place}*/", text)
    return page


@cache
def _exporter(language: str) -> SlidesExporter:
    """Return an exporter; it takes longer to make one than to write a page."""
    settings = {
        "TemplateExporter": {
            "exclude_input_prompt": True,
            "exclude_output_prompt": True,
        },
        "TagRemovePreprocessor": {"enabled": True, "remove_input_tags": {"output"}},
    }
    return _Exporter(
        config=Config(settings),
        raw_template=_text("page.html.j2"),
        exclude_anchor_links=True,
        language_code=language,
    )


def _text(name: str) -> str:
    return _HERE.joinpath(name).read_text(encoding="utf-8")


@cache
def _inlined() -> dict[str, str]:
    """Return the styles and scripts that a page needs, by the name of their place."""
    colours = (
        HtmlFormatter(style=style).get_style_defs(f":root{theme} .highlight")
        for theme, style in _STYLES.items()
    )
    license = f"/*\n{_text('reveal/LICENSE')}*/"
    styles = [license, _text("reveal/reveal.css"), *colours, _text("page.css")]
    return {
        "style": "\n".join(styles),
        "reveal": f"{license}\n{_text('reveal/reveal.js')}",
        "notes": _text("reveal/notes.js"),
        "start": _text("page.js"),
    }
