"""Show a lesson in a browser while you edit it; used by ``tools.build --watch``.

The page shows all cells of the source, including the solutions, as JupyterLab does.
When you save, changed prose is rendered again; the first changed code cell and all
later ones run again, in the same kernel. Nothing is written to ``notebooks/``.
"""

import contextlib
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import (
    CellExecutionError,
    CellTimeoutError,
    DeadKernelError,
)
from nbconvert import HTMLExporter
from nbformat import NotebookNode

from d2l_gpu.course.kernel import client_for
from tools import environments
from tools.edition import Edition
from tools.equivalents import with_table
from tools.lesson import LessonError, read_lesson
from tools.notebook import CELL_TIMEOUT, assemble

_LOOK_EVERY = 0.1  # seconds
_DRAW_EVERY = 2.0  # seconds, while cells run

# The page polls the server for a newer version of itself.
_RELOAD = """\
<script>
(() => {
  const mine = "%d";
  setInterval(async () => {
    try {
      const newest = await (await fetch("version")).text();
      if (newest !== mine) location.reload();
    } catch {}
  }, 200);
})();
</script></body>"""
_PROBLEM = '<pre style="background:#fee;color:#900;padding:1em">%s</pre>'


@dataclass
class Page:
    """The HTML that the browser shows, and its version number."""

    html: str = ""
    version: int = 0

    def show(self, html: str) -> None:
        self.version += 1
        self.html = html.replace("</body>", _RELOAD % self.version)


@dataclass
class Preview:
    """A lesson that is being edited, and its kernel.

    Attributes:
        edition: the lesson's English edition.
        client: runs the cells.
        page: the page that shows the lesson.
        notebook: the notebook as last shown.
        ran: the code cells that the kernel has run, in order.
    """

    edition: Edition
    client: NotebookClient
    page: Page = field(default_factory=Page)
    notebook: NotebookNode | None = None
    ran: list[NotebookNode] = field(default_factory=list)

    def update(self, is_newer: Callable[[], bool] = lambda: False) -> str:
        """Bring the page up to date with the source; return a line for the log.

        Args:
            is_newer: tells whether the source has been saved again; called between
                cells.

        Raises:
            CellTimeoutError: a cell ran too long.
            DeadKernelError: the kernel died.
        """
        start = time.perf_counter()
        try:
            notebook = self._read()
        except (LessonError, ValueError, OSError) as error:
            self._render(str(error))
            return str(error)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        same = 0
        for old, new in zip(self.ran, code, strict=False):
            if old.source != new.source:
                break
            new.outputs, new.execution_count = old.outputs, old.execution_count
            same += 1
        self.notebook = notebook
        self._render()
        said = f"shown after {time.perf_counter() - start:.2f} s"
        if same < len(code):
            del self.ran[same:]
            said += f", {self._run(code[same:], start, is_newer)}"
        return said

    def _read(self) -> NotebookNode:
        project = self.edition.project
        lesson = read_lesson(self.edition.lesson.path)
        others = project.beside(self.edition.lesson)
        cells = with_table(lesson.cells, {**others, self.edition.framework: lesson})
        return assemble(cells, project.lessons, self.notebook)

    def _run(
        self, code: list[NotebookNode], start: float, is_newer: Callable[[], bool]
    ) -> str:
        self.client.nb = self.notebook
        shown = 0.0
        for number, cell in enumerate(code):
            if number and is_newer():
                return f"{number} of {len(code)} cells run, then saved again"
            cell.outputs = []
            try:
                self.client.execute_cell(cell, self.notebook.cells.index(cell))
            except CellExecutionError as error:
                self._render()
                return f"cell {cell.id} failed: {error.ename}: {error.evalue}"
            except (CellTimeoutError, DeadKernelError) as error:
                self._render(f"cell {cell.id}: {error}")
                raise
            self.ran.append(cell)
            # Rendering takes a fraction of a second, so don't do it after every cell.
            if time.perf_counter() - shown > _DRAW_EVERY:
                self._render()
                shown = time.perf_counter()
            if number == 0:
                first = time.perf_counter() - start
        self._render()
        seconds = time.perf_counter() - start
        return (
            f"first cell run after {first:.2f} s, all {len(code)} after {seconds:.1f} s"
        )

    def _render(self, problem: str = "") -> None:
        html = "<html><body></body></html>"
        if self.notebook is not None:
            exporter = HTMLExporter(embed_images=True)
            html, _ = exporter.from_notebook_node(self.notebook)
        if problem:
            told = problem.replace("&", "&amp;").replace("<", "&lt;")
            html = re.sub(r"(<body[^>]*>)", rf"\g<1>{_PROBLEM}", html, count=1)
            html = html.replace(_PROBLEM, _PROBLEM % told)
        self.page.show(html)


@contextlib.contextmanager
def preview(edition: Edition) -> Iterator[Preview]:
    """Start a kernel for a lesson, and shut it down after the block."""
    with tempfile.TemporaryDirectory() as folder:
        client = client_for(
            NotebookNode(cells=[], metadata={}),
            Path(folder),
            timeout=CELL_TIMEOUT,
            kernel=environments.kernel(edition.framework),
        )
        with client.setup_kernel(cleanup_kc=True):
            yield Preview(edition, client)


@contextlib.contextmanager
def serving(page: Page, port: int = 0) -> Iterator[str]:
    """Serve a page on localhost only; yield its address.

    Raises:
        OSError: the port can't be opened.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = {"/": page.html, "/version": str(page.version)}.get(self.path)
            body = (found or "").encode()
            self.send_response(404 if found is None else 200)
            kind = "text/html" if self.path == "/" else "text/plain"
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass  # a line per request would drown the messages about the lesson

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def watch(edition: Edition, port: int = 0) -> None:
    """Show a lesson and follow its source, until Ctrl-C or SIGTERM.

    Raises:
        OSError: the port can't be opened.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    path = edition.lesson.path
    page = Page()
    page.show("<html><body>The lesson runs for the first time.</body></html>")
    with serving(page, port) as address:
        print(f"{edition.lesson.label}: {address} (press Ctrl-C to stop)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                try:
                    with preview(edition) as shown:
                        shown.page = page
                        _follow(shown, path)
                except (CellTimeoutError, DeadKernelError) as error:
                    print(
                        f"{error}; a new kernel starts at the next change", flush=True
                    )
                    _wait_for_change(path, _stamp(path))
    print(f"now build it: python -m tools.build {edition.framework.tag}/{path.stem}")


def _follow(shown: Preview, path: Path) -> None:
    while True:
        stamp = _stamp(path)
        said = shown.update(is_newer=partial(_is_saved_again, path, stamp))
        print(f"{time.strftime('%H:%M:%S')} {said}", flush=True)
        _wait_for_change(path, stamp)


def _stamp(path: Path) -> object:
    """Return a value that changes whenever the source or a figure is saved."""
    figures = sorted((path.parents[1] / "figures").glob("*"))
    found = []
    for each in (path, *figures):
        with contextlib.suppress(FileNotFoundError):  # an editor is replacing it
            status = each.stat()
            found.append((each.name, status.st_mtime_ns, status.st_size))
    return found


def _is_saved_again(path: Path, stamp: object) -> bool:
    return _stamp(path) != stamp


def _wait_for_change(path: Path, stamp: object) -> None:
    """Wait until the source has been saved and the editor has finished writing."""
    new = stamp
    while new == stamp or new != _stamp(path):
        new = _stamp(path)
        time.sleep(_LOOK_EVERY)
