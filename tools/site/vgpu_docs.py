"""The documentation of virtual GPUs: the pages of ``docs/vgpu``, and docstrings.

The reference is made by Sphinx's own autodoc and napoleon. They're part of Sphinx, so
they are as well kept as the rest of the site, and they import what they describe:
signatures are the real ones, and nothing is described that isn't there.
"""

import posixpath
import re
import shutil
from pathlib import Path, PurePosixPath

from tools.edition import Project
from tools.header import on_github
from tools.site.sphinx_build import THEME, run
from tools.vgpu_figures import BEGIN, with_figures

FOLDER = "vgpu"
"""Where the pages are, within the site and within ``docs``."""

TITLE = "Virtual GPUs for PyTorch"

_LINK = re.compile(r"\]\((\.\./[^)#\s]+)((?:#[^)\s]*)?)\)")


def write_source(project: Project, folder: Path) -> None:
    """Write what Sphinx reads: the pages, with links to files on GitHub.

    Args:
        project: the project.
        folder: an empty folder.
    """
    pages = project.root / "docs" / FOLDER
    shutil.copytree(pages, folder, dirs_exist_ok=True)
    for path in folder.rglob("*.md"):
        text = path.read_text("utf-8")
        if BEGIN in text:
            text = with_figures(text)
        start = PurePosixPath("docs", FOLDER, path.parent.relative_to(folder))
        path.write_text(_with_links(text, start), "utf-8")


def _with_links(text: str, start: PurePosixPath) -> str:
    """Return a page whose links to files outside the documentation lead to GitHub."""

    def link(match: re.Match) -> str:
        target = PurePosixPath(posixpath.normpath(start / match[1]))
        if target.is_relative_to(PurePosixPath("docs", FOLDER)):
            return match[0]
        return f"]({on_github(target)}{match[2]})"

    return _LINK.sub(link, text)


def configuration() -> dict:
    """Return what would otherwise be in Sphinx's ``conf.py``."""
    return THEME | {
        "project": TITLE,
        "extensions": [
            "myst_parser",
            "sphinx.ext.autodoc",
            "sphinx.ext.napoleon",
            "sphinx_copybutton",
            "tools.site.vgpu_extension",
        ],
        "root_doc": "index",
        "myst_heading_anchors": 3,
        "html_title": TITLE,
        "html_css_files": [*THEME["html_css_files"], "vgpu.css"],
        "html_context": {
            "home": "../index.html",
            "elsewhere": [
                ("Playground: run the simulator", "../playground/index.html"),
                ("The course: GPUs for deep learning", "../index.html"),
            ],
        },
        "autodoc_member_order": "bysource",
        "autodoc_typehints_format": "short",
        # Only dashes: quotes are as they are written.
        "smartquotes": True,
        "smartquotes_action": "D",
        "python_use_unqualified_type_names": True,
        "python_maximum_signature_line_length": 88,
        "add_module_names": False,
        "napoleon_use_ivar": True,
        "napoleon_use_rtype": False,
        "toc_object_entries_show_parents": "hide",
        # Only code, and not what it prints.
        "copybutton_selector": "[class*=highlight-]:not(.highlight-text) pre",
    }


def build(project: Project, site: Path) -> list[str]:
    """Build the documentation, and return Sphinx's warnings.

    Args:
        project: the project.
        site: the root of the site.
    """
    return run(
        configuration(), lambda folder: write_source(project, folder), site, FOLDER
    )
