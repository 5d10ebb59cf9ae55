"""A finished English text is shown in the reader's language, whatever is in it."""

import struct

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu.common import messages
from d2l_gpu.common.messages import Catalogue, localized, read_mo

FRENCH = Catalogue(
    {
        "no copies": "aucune copie",
        "one by one": "une par une",
        "{n} copies in {time} µs": "{n} copies en {time} µs",
        "{n} copies {source} → {target}, {nbytes} bytes": (
            "{n} copies {source} → {target}, {nbytes} octets"
        ),
        "fetched {how}: {time} ms": "en {time} ms, rapatriées {how}",
        "best loss {best}; {summary}": "meilleure perte {best} ; {summary}",
        "a set: {{{items}}}": "un ensemble : {{{items}}}",
        "{x}, and again {x}": "{x}, et encore {x}",
        "{low} to {high}": "de {low} à {high}",
        "{n} vectors with {k} GPUs": "{n} vecteurs avec {k} GPU",
        "{n} bytes crossed.": "{n} octets sont passés.",
        "Which ones?": "Lesquels ?",
        "{name} {work} billion operations": "{name} {work} milliards d’opérations",
        "a step of two": "un pas de deux",
        "It has {n} parts. Are all of them here?": "Il a {n} parties. Sont-elles là ?",
    }
)


@pytest.mark.parametrize(
    ("english", "french"),
    [
        ("no copies", "aucune copie"),
        (
            "a step of two      96 billion operations",
            "un pas de deux     96 milliards d’opérations",
        ),
        (
            "Which ones? It has 3 parts. Are all of them here? 3 bytes crossed.",
            "Lesquels ? Il a 3 parties. Sont-elles là ? 3 octets sont passés.",
        ),
        (
            "one by one   3 vectors with 4 GPUs, 1,024 vectors with 16 GPUs",
            "une par une  3 vecteurs avec 4 GPU, 1,024 vecteurs avec 16 GPU",
        ),
        ("  no copies\n", "  aucune copie\n"),
        ("no copies:", "aucune copie:"),
        ("12 copies in 3.4 µs", "12 copies en 3.4 µs"),
        ("fetched one by one: 31.4 ms", "en 31.4 ms, rapatriées une par une"),
        ("fetched by hand: 31.4 ms", "en 31.4 ms, rapatriées by hand"),
        ("a set: {1, 2}", "un ensemble : {1, 2}"),
        ("7, and again 7", "7, et encore 7"),
        ("7, and again 8", "7, and again 8"),
        ("8 bytes crossed. Which ones?", "8 octets sont passés. Lesquels ?"),
        ("I like it to be", "I like it to be"),
        ("{low} to {high}", "de {low} à {high}"),
        ("a\nno copies\nb", "a\naucune copie\nb"),
        (
            "6 copies a → b, 1,024 bytes; 2 copies b → a, 8 bytes",
            "6 copies a → b, 1,024 octets; 2 copies b → a, 8 octets",
        ),
        (
            "best loss 0.1; 6 copies a → b, 4 bytes; 2 copies b → a, 8 bytes",
            "meilleure perte 0.1 ; 6 copies a → b, 4 octets; 2 copies b → a, 8 octets",
        ),
    ],
)
def test_texts_are_translated_with_what_is_in_their_fields(english, french):
    assert FRENCH.localized(english) == french
    assert FRENCH.localized(english) == french  # from what it remembers


@given(st.text())
def test_what_is_no_message_stays_as_it_is(text):
    assert Catalogue({}).localized(text) == text
    assert Catalogue({"x {y} z": "z {y} x"}).localized(f"{text}!") == f"{text}!"


@given(
    st.dictionaries(
        st.from_regex(r"[a-zA-Z]{3,8} [a-z]{2,8}", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
            lambda text: "{" not in text and "}" not in text
        ),
        max_size=20,
    )
)
def test_a_compiled_catalogue_is_read_as_it_was_written(translations):
    file = polib.POFile()
    file.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    for english, its in translations.items():
        file.append(polib.POEntry(msgid=english, msgstr=its))
    found = read_mo(file.to_binary())
    assert found == translations
    catalogue = Catalogue(found)
    for english, its in translations.items():
        assert catalogue.localized(english) == its


def test_both_orders_of_bytes_are_read():
    words = b"a b\0c d\0"
    for order in "<>":
        head = struct.pack(f"{order}7I", 0x950412DE, 0, 1, 28, 36, 0, 0)
        tables = struct.pack(f"{order}4I", 3, 44, 3, 48)
        assert read_mo(head + tables + words) == {"a b": "c d"}


@pytest.mark.parametrize("content", [b"", b"PK", b"\0" * 40])
def test_another_file_is_refused_in_one_sentence(content):
    with pytest.raises(ValueError, match="is not a compiled catalogue of messages"):
        read_mo(content)


def test_the_language_is_that_of_the_environment(monkeypatch, tmp_path):
    file = polib.POFile()
    file.append(polib.POEntry(msgid="no copies", msgstr="nenhuma cópia"))
    (tmp_path / "pt.mo").write_bytes(file.to_binary())
    monkeypatch.setattr(messages, "FOLDER", tmp_path)
    messages._catalogue.cache_clear()
    try:
        for language, expected in [
            ("pt", "nenhuma cópia"),
            ("en", "no copies"),
            ("", "no copies"),
            ("../pt", "no copies"),
        ]:
            monkeypatch.setenv("D2L_GPU_LANGUAGE", language)
            assert localized("no copies") == expected
        assert localized("no copies", "pt") == "nenhuma cópia"
    finally:
        messages._catalogue.cache_clear()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("fetched", "1,000", "2.5 ms"), "rapatrié 1\u202f000 2,5 ms\n"),
        (("8 × NDR", " 7,010", "61 GiB"), "8 × NDR  7\u202f010 61\u00a0Gio\n"),
        (("64 MiB: 2,457",), "64\u00a0Mio\u00a0: 2\u202f457\n"),
        # Of nobody knows whom, or Python's own.
        (("mine", "2.5"), "mine 2.5\n"),
        (("fetched", 2.5), "rapatrié 2.5\n"),
        (("2.5", "3.5", "4.5"), "2.5 3.5 4.5\n"),
    ],
)
def test_formatted_numbers_are_written_beside_a_text_and_in_a_table(
    values, said, monkeypatch, capsys
):
    monkeypatch.setenv("D2L_GPU_LANGUAGE", "fr")
    messages.say(*values)
    assert capsys.readouterr().out == said
