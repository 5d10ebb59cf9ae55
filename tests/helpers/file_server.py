"""A server of files on this machine, with the bad habits of real ones."""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.helpers.waiting import PATIENCE


class FileServer:
    """What is served by ``serving``.

    Attributes:
        url: address of the folder, ends in ``/``.
        files: what a request for a name gets: bytes, or a function that is given the
            handler of the request and answers by itself.
        requests: the names that were asked for, in order.
        headers: those of the last request.
        ending: set when the server ends, for functions that wait.
    """

    def __init__(self, url: str):
        self.url = url
        self.files: dict[str, bytes | Callable] = {}
        self.requests: list[str] = []
        self.headers: dict[str, str] = {}
        self.ending = threading.Event()

    def hang(self, handler: BaseHTTPRequestHandler) -> None:
        """Take the request, and say nothing."""
        self.ending.wait(PATIENCE)

    def stop_after(self, content: bytes) -> Callable:
        """Send the beginning of a longer file, then nothing more."""

        def answer(handler):
            begin(handler, 2 * len(content))
            handler.wfile.write(content)
            self.ending.wait(PATIENCE)

        return answer


def begin(handler: BaseHTTPRequestHandler, length: int) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(length))
    handler.end_headers()


def truncated(content: bytes) -> Callable:
    """Promise a file, send half of it, and close the connection."""

    def answer(handler):
        begin(handler, len(content))
        handler.wfile.write(content[: len(content) // 2])

    return answer


@contextlib.contextmanager
def serving() -> Iterator[FileServer]:
    """Run a server for the time of a ``with`` block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.lstrip("/")
            server.requests.append(name)
            server.headers = dict(self.headers)
            answer = server.files.get(name)
            if callable(answer):
                answer(self)
            elif answer is None:
                self.send_error(404)
            else:
                begin(self, len(answer))
                self.wfile.write(answer)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        server = FileServer(f"http://127.0.0.1:{running.server_port}/")
        thread = threading.Thread(target=running.serve_forever, args=[0.01])
        thread.start()
        try:
            yield server
        finally:
            server.ending.set()
            running.shutdown()
            thread.join()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()
