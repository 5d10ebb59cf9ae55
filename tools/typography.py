"""Punctuation of the languages of the translations: a function for each rule.

A rule is given the prose of a message, a text for each block, without code, formulas
and links, in place of which there is a word joiner, U+2060; it yields what is wrong.
"""

import re
from collections.abc import Callable, Iterator, Sequence

Rule = Callable[[Sequence[str]], Iterator[str]]

_HAN = "\u3400-\u9fff"
_FULL = "，。；：！？、（）《》“”"  # punctuation as wide as a character


def _found(pattern: str, what: str) -> Rule:
    """Return a rule by which nothing matches a pattern."""
    compiled = re.compile(pattern)

    def rule(prose: Sequence[str]) -> Iterator[str]:
        for text in prose:
            for match in compiled.finditer(text):
                around = text[max(0, match.start() - 15) : match.end() + 15]
                yield f"{what}: …{' '.join(around.split())}…"

    return rule


RULES: dict[str, tuple[Rule, ...]] = {
    "fr": (
        _found(r"[^\u202f\s][;!?](?!\w)", "no narrow no-break space before ; ! ?"),
        _found(r"[^\u00a0\s][:»](?=\s|$)", "no no-break space before : or »"),
        _found(r" [;:!?»]", "an ordinary space before ; : ! ? »"),
        _found(r"«(?![\u00a0\u202f])", "no no-break space behind «"),
        _found(r"[\"“”]", "quotation marks other than « »"),
        _found(r"\w'[\w\u2060]", "a straight apostrophe"),
        _found(r"\d %|\d%", "no no-break space before %"),
    ),
    "pt": (
        _found(r"\s[;:!?,.](?=\s|$)", "a space before a punctuation mark"),
        _found(r"[\"«»]", "quotation marks other than “ ”"),
    ),
    "zh": (
        _found(rf"[{_HAN}][,;:!?]", "a half-width punctuation mark behind Chinese"),
        _found(rf"[{_HAN}]\.(?!\w)", "a half-width full stop behind Chinese"),
        _found(rf"[,;:!?][{_HAN}]", "a half-width punctuation mark before Chinese"),
        _found(rf"[{_HAN}{_FULL}][()]|[()][{_HAN}{_FULL}]", "half-width brackets"),
        _found(rf"[{_HAN}][A-Za-z0-9]|[A-Za-z0-9%][{_HAN}]", "no space beside Latin"),
        _found(rf"[{_HAN}]\u2060|\u2060[{_HAN}]", "no space beside code or a formula"),
        _found(
            rf"[{_HAN}，。；：！？、（）《》“”] +[{_HAN}，。；：！？、（）《》“”]",
            "a space in Chinese",
        ),
        _found(
            r" [，。；：！？、）》”]|[，。；：！？、（《“] ",
            "a space beside punctuation",
        ),
        _found(rf"[A-Za-z0-9\u2060][,;:!?] ?[{_HAN}]", "a half-width punctuation mark"),
        _found(rf"[{_HAN}].*[A-Za-z0-9\u2060]\.$", "a half-width full stop"),
        _found(rf"\"|'[{_HAN}]|[{_HAN}]'", "a straight quotation mark"),
        _found(r"\d %", "a space before %"),
    ),
}
