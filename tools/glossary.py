"""Check that translations use the right words for technical terms.

``lessons/locale/<language>.tsv`` has a line for each term, with tab-separated fields:
the English term; its translations, one of which must occur in every message with the
term; words that must not be used for it; and the native source that the translation
was checked against. The last two may be missing. Alternatives are separated by
`` | ``, and beginnings of words are enough, but the first translation of a term on the
page of terms (`tools.glossary_page`) is a whole word, since that page shows it. A space
in a term also matches a hyphen. Lines that begin with ``#`` are comments.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


def matching(english: str) -> re.Pattern:
    """Return what matches an English term, singular or plural."""
    words = re.escape(english).replace(r"\ ", r"[\s-]+")
    plural = "(?:es|s)?" if english[-1].isalpha() else ""
    if english.endswith("y"):
        words, plural = words[:-1], "(?:y|ies)"
    return re.compile(rf"(?<!\w){words}{plural}(?!\w)", re.IGNORECASE)


@dataclass(frozen=True)
class Term:
    """A line of a glossary.

    Attributes:
        english: the term.
        translations: words, or their beginnings, of which one must be used.
        wrong: words, or their beginnings, that must not be used.
        source: a text where native speakers use the translation.
    """

    english: str
    translations: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    source: str = ""

    @cached_property
    def pattern(self) -> re.Pattern:
        """Matches the English term, singular or plural."""
        return matching(self.english)


@dataclass(frozen=True)
class Glossary:
    """The terms of one language."""

    terms: tuple[Term, ...] = ()

    @classmethod
    def read(cls, path: Path) -> "Glossary":
        """Read a glossary; empty if there is no file.

        Raises:
            ValueError: a line has the wrong fields, or a term has two lines.
        """
        if not path.is_file():
            return cls()
        terms: dict[str, Term] = {}
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            english, *fields = (field.strip() for field in line.split("\t"))
            if not fields or not english or not fields[0] or len(fields) > 3:
                raise ValueError(
                    f"{path.name}:{number}: expected a term, its translations, wrong "
                    "ones and the source, separated by tabs"
                )
            if english in terms:
                raise ValueError(f"{path.name}:{number}: {english!r} is listed twice")
            fields += [""] * (3 - len(fields))
            terms[english] = Term(
                english, _several(fields[0]), _several(fields[1]), fields[2]
            )
        # Longer terms first, so that "virtual GPU" doesn't count as "GPU".
        return cls(tuple(sorted(terms.values(), key=lambda term: -len(term.english))))

    def name_of(self, english: str) -> str:
        """Return what a term is called, or nothing if it has no line."""
        for term in self.terms:
            if term.english.lower() == english.lower():
                return term.translations[0]
        return ""

    def problems(self, english: str, other: str) -> Iterator[str]:
        """Yield the terms that aren't translated as they should be.

        Args:
            english: the source's prose, without code.
            other: the translation's prose, without code.
        """
        folded = remaining = other.casefold()
        there = []
        for term in self.terms:
            rest = term.pattern.sub(" ", english)
            if rest == english:
                continue
            english = rest
            there.append(term)
            if not any(each.casefold() in folded for each in term.translations):
                wanted = " or ".join(term.translations)
                yield f"{term.english!r} must be translated as {wanted}"
            for each in sorted(term.translations, key=len, reverse=True):
                remaining = remaining.replace(each.casefold(), " ")
        # A word that is wrong for one term may be right for another in the message.
        for term in there:
            for wrong in term.wrong:
                # Chinese has no spaces, so a match can begin anywhere.
                begins = r"(?<!\w)" if wrong[0] < "\u3400" else ""
                if re.search(begins + re.escape(wrong.casefold()), remaining):
                    yield f"{term.english!r} must not be translated as {wrong!r} here"


def _several(field: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in field.split("|") if part.strip())
