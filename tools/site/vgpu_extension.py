"""A Sphinx extension: the reference of virtual GPUs, and links to it from any page."""

import re
from collections.abc import Iterator

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.util.nodes import make_refnode

from d2l_gpu import vgpu
from tools.languages import ENGLISH
from tools.site.reading import mended

PACKAGE = "d2l_gpu.vgpu"

# What variables of these names are in our examples.
_VARIABLES = {
    "sim": f"{PACKAGE}.simulators.Simulator",
    "use": f"{PACKAGE}.MemoryUse",
    "cluster": f"{PACKAGE}.clusters.Cluster",
    "run": f"{PACKAGE}.cluster_run.Run",
}
# Where links would be inside of others.
_NO_LINKS = (nodes.reference, nodes.title, addnodes.pending_xref)
# The classes that programs get from functions, and don't make.
_got: set[str] = set()
# Classes that modules import for type checkers only, so autodoc can't look them up.
_FULL = {
    "Cluster": f"{PACKAGE}.clusters.Cluster",
    "Network": f"{PACKAGE}.sim.fabric.Network",
    "Simulator": f"{PACKAGE}.simulators.Simulator",
}
_SIGNATURE = re.compile(r'<dt class="sig .*?</dt>', re.DOTALL)
_NAME = re.compile(r"([\w.]+)(?:\(.*\))?")


def _link_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Turn code that is a public name into a link to its entry.

    So pages are plain Markdown and docstrings plain text, and both have links here.
    """
    entries = app.env.domains.python_domain.objects
    for literal in list(doctree.findall(nodes.literal)):
        if any(isinstance(each, _NO_LINKS) for each in _ancestors(literal)):
            continue
        for name in _full_names(literal.astext()):
            entry = entries.get(name)
            if entry is None or _describes(literal, name):
                continue
            link = make_refnode(
                app.builder, docname, entry.docname, entry.node_id, literal.deepcopy()
            )
            literal.replace_self(link)
            break


def _full_names(text: str) -> Iterator[str]:
    """Yield the names that a piece of code can mean."""
    match = _NAME.fullmatch(text.strip().replace("\n", " "))
    if match is None:
        return
    name = match[1]
    first, _, rest = name.partition(".")
    if name.startswith(("torch.vgpu.", PACKAGE)):
        yield name
    elif first == "vgpu":
        yield f"{PACKAGE}.{rest}"
    elif first in _VARIABLES and rest:
        yield f"{_VARIABLES[first]}.{rest}"
    if name in vgpu.__all__ or first in vgpu.__all__:
        yield f"{PACKAGE}.{name}"
    if first == "sim":
        yield f"{PACKAGE}.{name}"


def _ancestors(node: nodes.Node) -> Iterator[nodes.Element]:
    while node := node.parent:
        yield node


def _describes(node: nodes.Node, name: str) -> bool:
    """Return whether a node is part of the entry of this name."""
    for each in _ancestors(node):
        signature = each.children[0] if each.children else None
        if getattr(signature, "tagname", "") == "desc_signature":
            return name in signature["ids"]
    return False


def _mark_code(app: Sphinx, what, name, obj, options, lines: list[str]) -> None:
    """Mark the examples of a docstring, indented lines after a sentence, as code."""
    marked, inside = [], False
    for i, line in enumerate(lines):
        begins = line.startswith("    ") and i > 0 and not lines[i - 1]
        heading = next((each for each in reversed(lines[:i]) if each), "")
        if begins and not inside and not heading.startswith((" ", "*")):
            inside = not heading.endswith("::")
            marked += [".. code-block:: python", ""] if inside else []
        elif line and not line.startswith(" "):
            inside = False
        marked.append(line)
    lines[:] = marked


def _without_signature(app: Sphinx, what, name, obj, options, signature, returned):
    """Leave out the arguments of classes that programs get, but don't make.

    Their entries say so by a pair of brackets.
    """
    if what == "class" and signature == "()":
        _got.add(name)
        return "", ""
    return None


def _without_arguments(app: Sphinx, what, name, obj, options, lines: list[str]) -> None:
    """Leave out what describes the arguments of such a class."""
    if name in _got and "Args:" in lines:
        start = lines.index("Args:")
        end = start + 1
        while end < len(lines) and (not lines[end] or lines[end].startswith(" ")):
            end += 1
        del lines[start:end]


def _leave_out(app: Sphinx, what, name, obj, skip, options) -> bool | None:
    """Leave out the fields of named tuples, which the class's text describes."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def _wrap_sentences(app: Sphinx, doctree: nodes.document) -> None:
    """Mark outputs of one line, such as errors, for the style sheet."""
    for block in doctree.findall(nodes.literal_block):
        if block.get("language") == "text" and "\n" not in block.astext().strip():
            block["classes"].append("one-line")


def _mend_attributes(app: Sphinx, doctree: nodes.document) -> None:
    """Shorten types in lists of attributes, complete types, and unlink names.

    Sphinx takes the names of attributes for those of other entries.
    """
    for type_ in list(doctree.findall(addnodes.literal_emphasis)):
        if (text := type_.astext()).startswith(("d2l_gpu.", "collections.")):
            type_[0].parent.replace(type_[0], nodes.Text(text.rpartition(".")[2]))
    for xref in list(doctree.findall(addnodes.pending_xref)):
        xref["reftarget"] = _FULL.get(xref["reftarget"], xref["reftarget"])
        if xref["reftype"] == "obj" and isinstance(xref[0], addnodes.literal_strong):
            xref.replace_self(xref.children)


def _set_up_devices(app: Sphinx) -> None:
    """Set up a device, without which there is no ``torch.vgpu`` to describe."""
    vgpu.enable(1)


def _for_templates(app: Sphinx, pagename, templatename, context: dict, doctree):
    """Give the templates what mends the theme and Sphinx's own HTML."""
    context["mended"] = lambda html: _readable(mended(html, ENGLISH))


def _readable(html: str) -> str:
    """Return a page that screen readers and keyboards can follow.

    A signature in several lines is no list of definitions, and what is too wide for the
    page can have the focus, so that it can be scrolled by keys.
    """
    html = _SIGNATURE.sub(
        lambda found: (
            found[0]
            .replace("<dl>", '<span class="sig-lines">')
            .replace("</dl>", "</span>")
            .replace("<dd>", '<span class="sig-line">')
            .replace("</dd>", "</span>")
        ),
        html,
    )
    html = html.replace("<pre>", '<pre tabindex="0">')
    return html.replace(
        '<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'
    )


def setup(app: Sphinx) -> dict:
    """Add the extension to Sphinx."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.connect("builder-inited", _set_up_devices)
    # Before napoleon, which makes indented lists of fields.
    app.connect("autodoc-process-docstring", _mark_code, priority=400)
    app.connect("autodoc-process-docstring", _without_arguments, priority=300)
    app.connect("autodoc-process-signature", _without_signature)
    app.connect("autodoc-skip-member", _leave_out)
    app.connect("doctree-read", _mend_attributes)
    app.connect("doctree-resolved", _link_names)
    app.connect("html-page-context", _for_templates)
    app.connect("doctree-read", _wrap_sentences)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
