"""Pages whose formulas need no script to be shown."""

import html

from jinja2 import pass_context
from jinja2.runtime import Context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath


class WithFormulas(HTMLExporter):
    """An exporter of nbconvert that writes formulas as MathML.

    Browsers show that by themselves.
    """

    @pass_context
    def markdown2html(self, context: Context, source: str) -> str:
        renderer = _Renderer(
            escape=False,
            attachments=context.get("cell", {}).get("attachments", {}),
            embed_images=self.embed_images,
            anchor_link_text=self.anchor_link_text,
            exclude_anchor_links=self.exclude_anchor_links,
        )
        return MarkdownWithMath(renderer=renderer).render(source)


class _Renderer(IPythonRenderer):
    def inline_math(self, body: str) -> str:
        return _mathml(body, "inline")

    def block_math(self, body: str) -> str:
        return _mathml(body, "block")

    def latex_environment(self, name: str, body: str) -> str:
        return _mathml(f"\\begin{{{name}}}{body}\\end{{{name}}}", "block")


def _mathml(formula: str, display: str) -> str:
    try:
        return convert(formula, display=display)
    except Exception:  # a reader's own notebook may hold anything
        return f"<code>{html.escape(formula)}</code>"
