"""How Sphinx is configured and run for an edition."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from sphinx.application import Sphinx

from tools.edition import Project
from tools.site.book import INDEX, Book, Edition, playground_of, words
from tools.site.landing import folder_of
from tools.site.slides import write_slides
from tools.site.source import pages_of, solution_mark, write_source

HERE = Path(__file__).parent
MATHJAX = "_mathjax/tex-svg.js"
"""Where the site has its one copy of MathJax, relative to its root."""

_FONTS = "system-ui, sans-serif"

THEME = {
    "author": "The d2l_gpu authors",
    "smartquotes": False,
    "templates_path": [str(HERE / "templates")],
    "html_theme": "furo",
    "html_static_path": [str(HERE / "static")],
    "html_css_files": ["fades.css", "book.css", "brand.css"],
    "html_favicon": str(HERE / "static" / "icon.svg"),
    "html_sidebars": {
        "**": [
            "sidebar-brand.html",
            "sidebar/search.html",
            "sidebar-switch.html",
            "sidebar/scroll-start.html",
            "sidebar/navigation.html",
            "sidebar-elsewhere.html",
            "sidebar/scroll-end.html",
        ]
    },
    "html_theme_options": {
        "light_css_variables": {"font-stack": _FONTS},
        "dark_css_variables": {"font-stack": _FONTS},
    },
    "html_copy_source": False,
    "html_show_sourcelink": False,
    "html_show_copyright": False,
    "html_use_index": False,
}
"""What Sphinx projects of the site have in common."""


def configuration(project: Project, book: Book, edition: Edition) -> dict:
    """Return what would otherwise be in Sphinx's ``conf.py``."""
    its, playground = words(edition.language), playground_of(edition.language)
    return THEME | {
        "project": its["title"],
        "extensions": [
            "myst_nb",
            "sphinx_copybutton",
            "sphinx_design",
            "tools.site.extension",
            "tools.site.reading",
            "tools.site.answering",
        ],
        "root_doc": INDEX,
        "language": its["sphinx"],
        "exclude_patterns": ["pictures"],
        "d2l_book": book,
        "d2l_edition": edition,
        "d2l_root": project.root,
        "d2l_solution_mark": solution_mark(project, edition.language),
        # Notebooks are shown as committed, and their Markdown is that of Jupyter.
        "nb_execution_mode": "off",
        "nb_merge_streams": True,
        "myst_enable_extensions": ["dollarmath"],
        "myst_heading_anchors": 3,
        # A notebook may begin with a heading of any level, and tables in outputs with
        # none.
        "suppress_warnings": ["myst.header"],
        "html_title": f"{its['title']} · {book.frameworks[edition.framework]}",
        "html_context": {
            "home": f"../../{folder_of(edition.language)}/index.html",
            "elsewhere": [
                (its["playground"], f"../../{playground}/index.html"),
                (its["library"], "../../vgpu/index.html"),
            ],
        },
        # An SVG of each formula needs no fonts, which browsers refuse to load from
        # files of other folders.
        "mathjax_path": f"../../../{MATHJAX}",
        "mathjax3_config": {"options": {"enableMenu": False}},
        # Only code, and not what it puts out.
        "copybutton_selector": ".cell_input pre, .highlight-sh pre, "
        "section > [class*=highlight-] pre",
    }


def build(project: Project, book: Book, edition: Edition, site: Path) -> list[str]:
    """Build an edition and its slides, and return Sphinx's warnings.

    Args:
        project: the project.
        book: its pages.
        edition: what to build.
        site: the root of the site.
    """
    warnings = run(
        configuration(project, book, edition),
        lambda folder: write_source(project, book, edition, folder),
        site,
        edition.folder,
    )
    (site / edition.folder / "objects.inv").unlink()
    for page in pages_of(book, edition):
        notebook = f"{edition.folder}/{page}.ipynb"
        shutil.copy(project.root / "notebooks" / notebook, site / notebook)
    write_slides(project, book, edition, site)
    return warnings


def run(
    settings: dict, write: Callable[[Path], None], site: Path, name: str
) -> list[str]:
    """Run Sphinx, and return its warnings.

    Args:
        settings: what would be in ``conf.py``.
        write: writes the source into an empty folder.
        site: the root of the site.
        name: the folder in the site for what comes out.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "source"), Path(folder, "build", "html")
        warnings = Path(folder, "warnings")
        source.mkdir()
        write(source)
        with warnings.open("w", encoding="utf-8") as stream:
            app = Sphinx(
                source,
                None,
                out,
                Path(folder, "doctrees"),
                "html",
                settings,
                status=None,
                warning=stream,
            )
            app.build()
        (out / ".buildinfo").unlink(missing_ok=True)
        # What myst-nb makes of the notebooks stays behind, beside this folder.
        shutil.move(out, site / name)
        return [
            f"{name}: {line.replace(f'{source}/', '')}"
            for line in warnings.read_text("utf-8").splitlines()
        ]
