"""Check translated messages for mistakes that need no understanding of the language.

    python -m tools.translation_checks [language ...]

A translation must have the same placeholders, links, numbers, code and formulas as its
source, and the same Markdown blocks in the same order. It must follow the language's
glossary and punctuation, and leave no English over. Names and frameworks' messages
that stay English on purpose are listed in ``lessons/locale/names.txt``.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it.token import Token

from tools.edition import ROOT, Project
from tools.glossary import Glossary
from tools.languages import ENGLISH, LOCALE, Language
from tools.lesson import LessonError
from tools.paragraphs import parser

_PLACEHOLDER = re.compile(r"\$\{\w+\}")
_REPLACED = re.compile("\ue000\\w+\ue001")
_IN_NAMES = re.compile(r"(?<=[A-Za-z])\d+")
_FRACTION = re.compile(r"(?<![\w.])(?<![A-Z] )0\.\d+(?![.\d])")  # not as in JAX 0.10
_WORD = re.compile(r"[A-Za-z][A-Za-z’'-]*")
_TEXT_IN_FORMULA = re.compile(r"\\(?:text|mathrm|textrm)\{[^}]*\}")
_MARKS = re.compile(r"\*\*|__|\*\w|\w\*")
MOST_ENGLISH = 4  # successive words that may be the same as in the source
_MOST_IN_WORDS = 20  # numbers up to this may be words in English


@dataclass(frozen=True)
class Parts:
    """The parts of a Markdown text.

    Attributes:
        blocks: the types of its blocks, in order, with HTML tags.
        code: inline code, code blocks, HTML and placeholders.
        formulas: formulas, without the words in them.
        links: URLs of links and images.
        prose: the remaining text of each block.
        headings: the texts of `prose` that are headings.
    """

    blocks: tuple[str, ...]
    code: Counter
    formulas: Counter
    links: Counter
    prose: tuple[str, ...]
    headings: tuple[str, ...]


def parts(text: str) -> Parts:
    """Split a Markdown text into its parts."""
    blocks, prose, headings = [], [], []
    code, formulas, links = Counter(), Counter(), Counter()
    in_heading = False
    code.update(_PLACEHOLDER.findall(text))
    # The parser would take the $ of ${…} for a formula, so use other delimiters.
    text = _PLACEHOLDER.sub(lambda match: f"\ue000{match[0][2:-1]}\ue001", text)
    for token in parser().parse(text):
        if token.type == "inline":
            words = []
            for child in token.children:
                _take_inline(child, words, code, formulas, links)
            prose.append(_REPLACED.sub("\u2060", "".join(words)))
            if in_heading:
                headings.append(prose[-1])
        elif token.type == "math_block":
            formulas[_formula(token.content)] += 1
            blocks.append(token.type)
        elif token.type in ("fence", "code_block"):
            code[token.content] += 1
            blocks.append(token.type)
        elif token.type == "html_block":
            code[token.content.strip()] += 1
            blocks.append(token.type)
        else:
            in_heading = token.type == "heading_open"
            blocks.append(f"{token.type} {token.tag}")
    return Parts(tuple(blocks), code, formulas, links, tuple(prose), tuple(headings))


def _has_nested_emphasis(text: str) -> bool:
    """Return whether ** marks are paired in a way that nobody can have meant.

    Beside full-width punctuation, a mark may fail to open or close emphasis. It is then
    paired with the next one.
    """
    for token in parser().parse(text):
        opened = 0
        for child in token.children or ():
            opened += (child.type == "strong_open") - (child.type == "strong_close")
            if opened > 1:
                return True
    return False


def _take_inline(
    token: Token, words: list[str], code: Counter, formulas: Counter, links: Counter
) -> None:
    if token.type == "code_inline":
        code[token.content] += 1
        words.append("\u2060")  # a stand-in for code
    elif token.type.startswith("math_inline"):
        formulas[_formula(token.content)] += 1
        words.append("\u2060")
    elif token.type == "link_open":
        links[token.attrs["href"]] += 1
    elif token.type == "image":
        links[token.attrs["src"]] += 1
        words.append("\n")
        for child in token.children:  # its alt text
            _take_inline(child, words, code, formulas, links)
        words.append("\n")
    elif token.type == "html_inline":
        code[token.content] += 1
    elif token.type in ("softbreak", "hardbreak"):
        words.append("\n")
    else:
        words.append(token.content)


def _formula(content: str) -> str:
    # A decimal comma, which needs a space between factors where a point needs none.
    content = content.replace("{,}", ".").replace(r"\,", "")
    return re.sub(r"\s+", "", _TEXT_IN_FORMULA.sub("", content))


@dataclass(frozen=True)
class Checker:
    """Checks translations into one language.

    Attributes:
        english: English, for the number format of the source.
        language: the language of the translations.
        glossary: that language's glossary.
        names: texts that stay English, one per line.
    """

    english: Language
    language: Language
    glossary: Glossary = field(default_factory=Glossary)
    names: str = ""

    def problems(self, source: str, text: str) -> Iterator[str]:
        """Yield the problems found in a translation, one line each.

        Args:
            source: the English text.
            text: the translation.
        """
        english, other = parts(source), parts(text)
        if english.blocks != other.blocks:
            yield f"different blocks: {_first_difference(english.blocks, other.blocks)}"
        for what in "code", "formulas", "links":
            yield from _differing(what, getattr(english, what), getattr(other, what))
        yield from self._number_problems(
            "\n".join(english.prose), "\n".join(other.prose)
        )
        yield from _left_over(english, other, self.names)
        for heading in other.headings:
            if heading in english.headings and not _may_stay(heading, self.names):
                yield f"an English heading: {heading.strip()}"
        if _has_nested_emphasis(text):
            yield "nested emphasis: a mark does not open or close where it should"
        if not any(_MARKS.search(prose) for prose in english.prose):
            for prose in filter(_MARKS.search, other.prose):
                yield f"emphasis marks that would be shown as they are: {prose.strip()}"
        yield from self.glossary.problems(
            self._without_names(english.prose), self._without_names(other.prose)
        )
        for rule in self.language.rules:
            yield from rule.problems(other.prose)
        if text != text.strip():
            yield "white space at the beginning or the end"

    def _without_names(self, prose: Sequence[str]) -> str:
        """Return prose without the multi-word names, such as titles of papers."""
        text = " ".join(prose)
        for name in self.names.splitlines():
            if " " in name:
                text = text.replace(name, " ")
        return text

    def _number_problems(self, english: str, other: str) -> Iterator[str]:
        if self.language.decimal != self.english.decimal:
            for fraction in _FRACTION.findall(other):
                yield f"the number {fraction} has an English decimal point"
        one, two = self.english.numbers(english), self.language.numbers(other)
        for gone in (one - two).elements():
            yield f"the number {gone} is missing"
        names = _IN_NAMES.findall(other)  # as in V100, where English may say "it"
        for new in (two - one - Counter(names)).elements():
            if "." in new or int(new) > _MOST_IN_WORDS:
                yield f"the number {new} is not in the source"


def _first_difference(one: Sequence[str], other: Sequence[str]) -> str:
    for a, b in zip(one, other, strict=False):
        if a != b:
            return f"{b} instead of {a}"
    longer = max(one, other, key=len)
    more = longer[min(len(one), len(other))]
    return f"{more} is {'missing' if longer is one else 'extra'}"


def _differing(what: str, english: Counter, other: Counter) -> Iterator[str]:
    for gone in (english - other).elements():
        yield f"{what}: {gone!r} is missing"
    for new in (other - english).elements():
        # A name may be there where English says "it".
        if what == "links" or new not in english:
            yield f"{what}: {new!r} is not in the source"


def _left_over(english: Parts, other: Parts, names: str) -> Iterator[str]:
    """Yield the first run of words that is copied from the source, except names."""
    source = " ".join(_WORD.findall(" ".join(english.prose))).lower()
    for prose in other.prose:
        for clause in re.split(r"[^A-Za-z’'\s-]+", prose):
            words = _WORD.findall(clause)
            n = MOST_ENGLISH + 1
            for i in range(len(words) - n + 1):
                run = " ".join(words[i : i + n])
                if run.lower() in source and not _may_stay(run, names):
                    yield f"English left over: {run}"
                    return


def _may_stay(text: str, names: str) -> bool:
    """Return whether a text consists of names, or is part of a text that may stay."""
    words = _WORD.findall(text)
    joined = " ".join(words).lower()
    listed = [" ".join(_WORD.findall(line)).lower() for line in names.splitlines()]
    if any(joined and f" {joined} " in f" {name} " for name in listed):
        return True
    single = {name for name in listed if " " not in name}
    return all(word.lower() in single for word in words)


def check(project: Project, languages: Sequence[str] = ()) -> Iterator[str]:
    """Yield all problems of a project's translations, one line each.

    Args:
        project: the project.
        languages: codes of the languages to check; empty for all.

    Raises:
        LessonError: the problems of the sources, or there is no such translation.
        ValueError: a PO file, a glossary or the list of languages can't be parsed.
    """
    names = _names(project.lessons / LOCALE / "names.txt")
    for translation in project.translations_into(languages):
        code = translation.language.code
        checker = Checker(
            project.languages[ENGLISH],
            translation.language,
            Glossary.read(project.lessons / LOCALE / f"{code}.tsv"),
            names,
        )
        by_text = {message.text: message for message in translation.wanted}
        for (context, text), entry in translation.entries.items():
            if entry.fuzzy or not entry.msgstr.strip():
                continue  # `tools.translate --check` reports it
            where = by_text[text] if not context else f"{context}: {by_text[text]}"
            for problem in checker.problems(text, entry.msgstr):
                yield f"{code}: {where}: {problem}"


def _names(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the problems of translations; return 0 if there are none, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.translation_checks",
        description=__doc__.splitlines()[0],
    )
    parser.add_argument("languages", nargs="*", metavar="language")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(arguments)
    try:
        found = list(check(Project(options.root), options.languages))
    except (LessonError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    for problem in found:
        print(problem)
    print(f"problems: {len(found)}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
