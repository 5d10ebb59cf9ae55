"""Links from the first use of a term to its entry in the edition's glossary.

A lesson sets a term in bold where it first appears, so only words in bold become links,
and each term once a page. In a translation, a word in bold is a term if the English
cell sets that term in bold too, so that emphasis isn't mistaken for a term.
"""

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

from tools.glossary import Glossary, matching
from tools.glossary_page import UNKNOWN, page_of
from tools.languages import ENGLISH, LOCALE
from tools.lesson import FENCED
from tools.site.book import GLOSSARY

# Chinese has no spaces around words in bold.
_BOLD = re.compile(r"\*\*(?=[^\s*])([^*]+?)\*\*")
_ROW = re.compile(r"^\| \*\*(?P<term>.+?)\*\* \| (?P<meaning>.+?) \| \[", re.MULTILINE)


@dataclass(frozen=True)
class Entries:
    """What the page of terms has in a language.

    Attributes:
        meanings: the meanings by English term.
        names: the terms' names in the language.
    """

    meanings: dict[str, str]
    names: Glossary

    @classmethod
    @functools.cache
    def read(cls, root: Path, language: str) -> "Entries":
        """Read the page of a language; empty if there is none."""
        page = page_of(root, language)
        rows = _ROW.findall(page.read_text("utf-8")) if page.is_file() else []
        names = Glossary.read(root / "lessons" / LOCALE / f"{language}.tsv")
        return cls(dict(rows), names)

    def english(self, text: str) -> str | None:
        """Return the term that an English text is, in the singular or plural."""
        for term in self.meanings:
            if matching(_plain(term)).fullmatch(text):
                return term
        return None

    def likeness(self, text: str, term: str) -> int:
        """Return how many characters a text has in common with a term's name.

        Args:
            text: of the language.
            term: the English term.
        """
        if matching(_plain(term)).fullmatch(text):
            return len(text)
        names = [
            name
            for each in self.names.terms
            if each.english.lower() == term.lower()
            for name in each.translations
        ]
        folded = text.casefold()
        alike = [len(each) for each in names if folded.startswith(each.casefold())]
        return max(alike, default=0)


def anchor(term: str) -> str:
    """Return the anchor of a term's entry."""
    return nodes.make_id(f"term-{term}")


def _plain(text: str) -> str:
    return " ".join(text.replace("`", "").split())


@functools.cache
def _bold(notebook: Path) -> dict[str, list[str]]:
    """Return what each cell of a notebook has in bold, by the cell's identifier."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return {
        cell["id"]: [
            _plain(each)
            for each in _BOLD.findall(FENCED.sub("", "".join(cell["source"])))
        ]
        for cell in cells
        if cell["cell_type"] == "markdown"
    }


def terms_of(root: Path, language: str, path: str) -> dict[str, str]:
    """Return the English terms that a lesson introduces, by the words in bold.

    Args:
        root: the project's folder.
        language: the lesson's language.
        path: the lesson, such as ``pytorch/03_copying.ipynb``.
    """
    folder = root / "notebooks"
    entries = Entries.read(root, language)
    found: dict[str, str] = {}
    english = _bold(folder / ENGLISH / path)
    for key, texts in _bold(folder / language / path).items():
        known = {text: entries.english(text) for text in english.get(key, ())}
        if language == ENGLISH:
            pairs = ((text, term) for text, term in known.items() if term)
        else:
            pairs = _translated(entries, texts, known)
        for text, term in pairs:
            found.setdefault(text, term)
    return found


def _translated(
    entries: Entries, texts: list[str], known: dict[str, str | None]
) -> Iterator[tuple[str, str]]:
    """Yield the words in bold of a translated cell that are terms, and the terms.

    Args:
        entries: the glossary in the language.
        texts: what the cell has in bold.
        known: what the English cell has in bold, and the terms among it.
    """
    terms = list(known.values())
    found: dict[int, int] = {}  # places of terms, by the places of their names
    for place, text in enumerate(texts):
        alike = {
            i: entries.likeness(text, term)
            for i, term in enumerate(terms)
            if term and i not in found.values()
        }
        best = max(alike, key=alike.get, default=None)
        if best is not None and alike[best]:
            found[place] = best
    # The rest has no name in the glossary. If all that has one is in the order of the
    # original, so is the rest.
    if len(texts) == len(terms) and all(i == place for place, i in found.items()):
        found = {place: place for place in range(len(terms))}
    for place, i in found.items():
        if terms[i]:
            yield texts[place], terms[i]


def list_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Turn the glossary's table into a list, which fits on a phone.

    A term is followed by its meaning, and by the lesson and the term's names in other
    languages if it has any.
    """
    if app.env.docname != GLOSSARY:
        return
    codes = {name: code for code, name in app.config.d2l_book.languages.items()}
    for table in list(doctree.findall(nodes.table)):
        head, *rows = table.findall(nodes.row)
        _, _, lesson, *languages = (entry.astext() for entry in head)
        items = nodes.definition_list(classes=["glossary"])
        for row in rows:
            term, meaning, link, *names = (entry[0] for entry in row)
            note = nodes.paragraph("", "", nodes.Text(f"{lesson} "), *link.children)
            for language, name in zip(languages, names, strict=True):
                if (called := name.astext()) != UNKNOWN:
                    note += nodes.Text(" · ")
                    # Docutils makes an attribute of this class.
                    note += nodes.inline(
                        "",
                        "",
                        nodes.Text(f"{language} "),
                        nodes.inline("", called, classes=["called"]),
                        classes=[f"language-{codes[language]}"],
                    )
            items += nodes.definition_list_item(
                "",
                nodes.term(
                    "",
                    "",
                    *term.children,
                    ids=[anchor(term.astext())],
                    classes=[f"language-{ENGLISH}"],
                ),
                nodes.definition("", meaning, note),
            )
        table.replace_self(items)


def link_terms(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link the first use of each term in a lesson to its entry."""
    edition, root = app.config.d2l_edition, app.config.d2l_root
    path = f"{edition.framework}/{docname}.ipynb"
    if "/" in docname or not (root / "notebooks" / ENGLISH / path).is_file():
        return
    meanings = Entries.read(root, edition.language).meanings
    terms = terms_of(root, edition.language, path)
    seen = set()
    for strong in list(doctree.findall(nodes.strong)):
        term = terms.get(_plain(strong.astext()))
        if term is None or term in seen or _inside(strong):
            continue
        seen.add(term)
        link = nodes.reference(
            refuri=f"{GLOSSARY}.html#{anchor(term)}",
            reftitle=_plain(meanings[term]),
            internal=True,
            classes=["term"],
        )
        strong.replace_self(link)
        link += strong


def _inside(node: nodes.Node) -> bool:
    """Return whether a node is part of a heading or of a link."""
    while node := node.parent:
        if isinstance(node, nodes.title | nodes.reference):
            return True
    return False
