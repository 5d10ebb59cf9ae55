"""The links of a site that's built: which are broken, and which lead to other hosts."""

import posixpath
from collections.abc import Iterator
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

REQUESTS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "link": "href",
    "image": "href",
    "use": "href",
    "object": "data",
}
"""What a browser requests without being asked: not links, which readers follow."""


class Page(HTMLParser):
    """A page's links, requests, identifiers and tags, in order."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.requests: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of a tag."""
        given = dict(attrs)
        self.tags.append(tag)
        if identifier := given.get("id"):
            self.ids.append(identifier)
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in REQUESTS and given.get(REQUESTS[tag]):
            self.requests.append(given[REQUESTS[tag]])


class Site:
    """A site that's built.

    Args:
        root: its folder.
    """

    def __init__(self, root: Path):
        self.root = root

    @cached_property
    def pages(self) -> dict[str, Page]:
        """The pages by address, such as ``en/jax/index.html``."""
        paths = sorted(self.root.rglob("*.html"))
        return {path.relative_to(self.root).as_posix(): Page(path) for path in paths}

    def broken(self) -> Iterator[str]:
        """Yield the links and requests to files or anchors that don't exist."""
        for name, page in self.pages.items():
            for url in dict.fromkeys([*page.links, *page.requests]):
                parts = urlsplit(url)
                if parts.scheme or parts.netloc:
                    continue
                target = name
                if parts.path:
                    folder = posixpath.dirname(name)
                    target = posixpath.normpath(f"{folder}/{unquote(parts.path)}")
                    target = target.removeprefix("/")
                anchor = unquote(parts.fragment)
                if not (self.root / target).is_file():
                    yield f"{name}: {url} leads to no file"
                elif anchor and anchor not in self._anchors(target):
                    yield f"{name}: {url} leads to no anchor"

    def _anchors(self, name: str) -> list[str]:
        return self.pages[name].ids if name in self.pages else []

    def external(self) -> dict[str, list[str]]:
        """Return the links to other hosts, sorted, each with the pages that have it."""
        found: dict[str, list[str]] = {}
        for name, page in self.pages.items():
            for url in dict.fromkeys(page.links):
                if urlsplit(url).netloc:
                    found.setdefault(url, []).append(name)
        return dict(sorted(found.items()))
