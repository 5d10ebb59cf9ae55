"""Which pages the book has, and the links between them."""

import json
import posixpath
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from d2l_gpu.course import SOLUTIONS
from tools.edition import Project
from tools.header import on_github, repository
from tools.languages import ENGLISH

INDEX, GLOSSARY = "index", "glossary"
"""The names of the pages that every edition has."""

TEACHING = "teaching"
"""The page for teachers, which exists in English only."""

PLAYGROUND = "playground"
"""The folder of the playground, from the root of the site."""

_WORDS = Path(__file__).with_name("words.toml")


def playground_of(language: str) -> str:
    """Return the folder of the playground's pages in a language."""
    return PLAYGROUND if language == ENGLISH else f"{PLAYGROUND}/{language}"


@dataclass(frozen=True)
class Edition:
    """A book within the book: all lessons in a language for a framework.

    Attributes:
        language: the language's code, such as ``fr``.
        framework: the framework's tag, such as ``jax``.
    """

    language: str
    framework: str

    @property
    def folder(self) -> str:
        """Its folder in the site, and within ``notebooks``."""
        return f"{self.language}/{self.framework}"


@dataclass(frozen=True)
class Place:
    """A link of a switch.

    Attributes:
        name: the language or the framework.
        code: the language's code; empty for a framework.
        link: where it leads; None if the lesson doesn't exist there.
        here: whether the reader is there already.
    """

    name: str
    code: str
    link: str | None
    here: bool


@dataclass(frozen=True)
class Book:
    """The pages of the site.

    Attributes:
        languages: the languages' names by code, English first.
        frameworks: the frameworks' names by tag, in order.
        notebooks: the committed notebooks, relative to the folder ``notebooks`` and
            without suffix, such as ``en/jax/solutions/03_copying``.
        built: the editions that this site contains.
    """

    languages: Mapping[str, str]
    frameworks: Mapping[str, str]
    notebooks: frozenset[str]
    built: tuple[Edition, ...]

    @classmethod
    def of(
        cls,
        project: Project,
        languages: Sequence[str] = (),
        frameworks: Sequence[str] = (),
    ) -> "Book":
        """Return the book of a project's committed notebooks.

        Args:
            project: the project.
            languages: the codes of the languages to build; empty for all.
            frameworks: the tags of the frameworks to build; empty for all.

        Raises:
            ValueError: there is no such edition.
        """
        folder = project.root / "notebooks"
        paths = sorted(folder.glob("*/*/*.ipynb"))
        paths += sorted(folder.glob(f"*/*/{SOLUTIONS}/*.ipynb"))
        notebooks = frozenset(
            path.relative_to(folder).with_suffix("").as_posix() for path in paths
        )
        found = {tuple(name.split("/")[:2]) for name in notebooks}
        editions = tuple(
            Edition(language, framework.tag)
            for language in project.languages
            for framework in project.frameworks
            if (language, framework.tag) in found
            and language in (languages or [language])
            and framework.tag in (frameworks or [framework.tag])
        )
        missing = set(languages) - {each.language for each in editions}
        missing |= set(frameworks) - {each.framework for each in editions}
        if missing or not editions:
            raise ValueError(
                f"no notebooks in {folder} for {', '.join(sorted(missing)) or 'any'}; "
                f"there are: {', '.join(sorted('/'.join(each) for each in found))}"
            )
        return cls(
            {code: each.name for code, each in project.languages.items()},
            {each.tag: each.title for each in project.frameworks},
            notebooks,
            editions,
        )

    def lessons(self, edition: Edition) -> list[str]:
        """Return the names of an edition's lessons, in order."""
        prefix = f"{edition.folder}/"
        names = (
            each.removeprefix(prefix)
            for each in self.notebooks
            if each.startswith(prefix)
        )
        return sorted(name for name in names if "/" not in name)

    def solved(self, edition: Edition) -> list[str]:
        """Return the names of an edition's lessons that have solutions, in order."""
        return [
            name
            for name in self.lessons(edition)
            if f"{edition.folder}/{SOLUTIONS}/{name}" in self.notebooks
        ]

    def has(self, edition: Edition, name: str) -> bool:
        """Return whether an edition has a page, built or not."""
        if name in (INDEX, GLOSSARY, SOLUTIONS):
            return True
        if name == TEACHING:
            return edition.language == ENGLISH
        return f"{edition.folder}/{name}" in self.notebooks

    def link(self, edition: Edition, name: str, start: str) -> str:
        """Return the link to a page, which is on GitHub if the site doesn't have it.

        Args:
            edition: the page's edition.
            name: the page's name within the edition, such as ``solutions/03_copying``.
            start: the folder that the link is in, relative to the root of the site.
        """
        if edition in self.built:
            return posixpath.relpath(f"{edition.folder}/{name}.html", start or ".")
        if name == GLOSSARY:
            suffix = "" if edition.language == ENGLISH else f".{edition.language}"
            return on_github(PurePosixPath(f"docs/glossary{suffix}.md"))
        if name == TEACHING:
            return on_github(PurePosixPath(f"docs/{TEACHING}.md"))
        if name in (INDEX, SOLUTIONS):
            return on_github(PurePosixPath(f"notebooks/{edition.folder}"))
        return on_github(PurePosixPath(f"notebooks/{edition.folder}/{name}.ipynb"))

    def rewritten(self, url: str, edition: Edition, page: str) -> str:
        """Return a URL, or the link to the page of this site that shows the same file.

        A page's link to its own notebook on GitHub stays.

        Args:
            url: of any page on the web.
            edition: the edition that links to it.
            page: the page that links to it.
        """
        match = self._github.match(url)
        if match is None:
            return url
        if glossary := re.fullmatch(r"docs/glossary(?:\.(\w+))?\.md", match["path"]):
            target = Edition(glossary[1] or ENGLISH, edition.framework)
            name = GLOSSARY
        elif match["path"] == f"docs/{TEACHING}.md":
            target, name = Edition(ENGLISH, edition.framework), TEACHING
        else:
            path = match["path"].removeprefix("notebooks/").removesuffix(".ipynb")
            if path not in self.notebooks:
                return url
            language, framework, name = path.split("/", 2)
            target = Edition(language, framework)
        if target not in self.built or (target, name) == (edition, page):
            return url
        start = posixpath.dirname(f"{edition.folder}/{page}")
        return self.link(target, name, start) + (match["anchor"] or "")

    @cached_property
    def _github(self) -> re.Pattern:
        prefix = re.escape(f"https://github.com/{repository()}/blob/")
        return re.compile(rf"{prefix}[^/]+/(?P<path>[^#?]+)(?P<anchor>#.*)?$")

    def switch_of_languages(self, edition: Edition, name: str) -> list[Place]:
        """Return the same page in all languages, for a page of this edition."""
        return [
            self._place(edition, name, Edition(code, edition.framework), title, code)
            for code, title in self.languages.items()
        ]

    def switch_of_frameworks(self, edition: Edition, name: str) -> list[Place]:
        """Return the same page for all frameworks, for a page of this edition."""
        return [
            self._place(edition, name, Edition(edition.language, tag), title)
            for tag, title in self.frameworks.items()
        ]

    def _place(
        self, here: Edition, name: str, there: Edition, title: str, code: str = ""
    ) -> Place:
        start = posixpath.dirname(f"{here.folder}/{name}")
        link = self.link(there, name, start) if self.has(there, name) else None
        return Place(title, code, link, here == there)


def words(language: str) -> dict[str, str]:
    """Return the words of the pages in a language; English where there are none."""
    tables = _tables()
    return {**tables[ENGLISH], **tables.get(language, {})}


@cache
def _tables() -> dict[str, dict[str, str]]:
    return tomllib.loads(_WORDS.read_text("utf-8"))


def titles(notebooks: Path, edition: Edition, names: Sequence[str]) -> dict[str, str]:
    """Return the titles of an edition's lessons by name, as their first lines say."""
    folder = notebooks / edition.folder
    return {name: _title(folder / f"{name}.ipynb") for name in names}


@cache  # a build asks for the titles of an edition again and again
def _title(path: Path) -> str:
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and text.startswith("# "):
            return text.partition("\n")[0].removeprefix("# ").strip()
    raise ValueError(f"{path} has no title: no cell of text begins with '# '.")
