"""Build all editions, the documentation of virtual GPUs, and the landing pages."""

import functools
import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tools.edition import Project
from tools.site.book import Book
from tools.site.landing import write_landing
from tools.site.playground.pages import write_playground
from tools.site.slides import FOLDER as SLIDES
from tools.site.sphinx_build import HERE, MATHJAX, build
from tools.site.vgpu_docs import FOLDER
from tools.site.vgpu_docs import build as build_vgpu_docs

INSTALLED = HERE / "node_modules" / "mathjax"
"""The npm package with MathJax, once it's installed."""


def build_site(
    project: Project, book: Book, out: Path, jobs: int = 1, mathjax: Path = INSTALLED
) -> list[str]:
    """Build the site, and return the warnings.

    Args:
        project: the project.
        book: its pages.
        out: the folder for the site; editions that are there already are replaced.
        jobs: how many editions to build at a time, each in a process of its own.
        mathjax: the npm package, installed.

    Raises:
        FileNotFoundError: MathJax or Pyodide isn't installed.
    """
    script = mathjax / "es5" / Path(MATHJAX).name
    if not script.is_file():
        raise FileNotFoundError(f"{script} is missing: npm ci --prefix tools/site")
    out.mkdir(parents=True, exist_ok=True)
    editions = [edition.folder for edition in book.built]
    decks = [f"{SLIDES}/{folder}" for folder in editions]
    for folder in [FOLDER, *editions, *decks]:
        shutil.rmtree(out / folder, ignore_errors=True)
    (out / MATHJAX).parent.mkdir(exist_ok=True)
    shutil.copy(script, out / MATHJAX)
    shutil.copy(mathjax / "LICENSE", (out / MATHJAX).parent)
    # GitHub Pages would leave out folders that begin with an underscore.
    (out / ".nojekyll").touch()
    # Docutils keeps the state of a build, so each has a process of its own.
    with ProcessPoolExecutor(
        max_workers=jobs,
        mp_context=multiprocessing.get_context("spawn"),
        max_tasks_per_child=1,
    ) as pool:
        one = functools.partial(build, project, book, site=out)
        library = pool.submit(build_vgpu_docs, project, out)
        found = [*pool.map(one, book.built), library.result()]
    write_playground(book, out)
    write_landing(project, book, out)
    return [line for its in found for line in its]
