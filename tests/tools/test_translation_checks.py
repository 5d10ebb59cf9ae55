"""The checks of translations accept good ones, with all traps of typography, and reject
planted bad ones."""

import pytest

from tests.helpers.paths import REPOSITORY
from tools.edition import Project
from tools.glossary import Glossary
from tools.languages import LOCALE
from tools.translate import main as translate
from tools.translation_checks import Checker, parts
from tools.translation_checks import main as check

ENGLISH = """\
## The copy

A copy of `X` to the second GPU takes 1,000 bytes, or $2n + 1$ numbers of 0.5 ms: see \
[the manual](https://example.org/a_b) and ${others}. Why? *Because it waits!*

* One `a : b`, and `n % 2`.
* Two.

| device | bytes |
|---|---|
| `gpu(0)` | 24 |

![Two boxes](../figures/boxes.svg)
"""
FRENCH = """\
## La copie

Une copie de `X` vers le second GPU prend 1\u202f000 octets, soit $2n + 1$ nombres de \
0,5 ms\u00a0: voir [le manuel](https://example.org/a_b) et ${others}. Pourquoi\u202f? \
*Parce qu’elle attend\u202f!*

* Un «\u00a0`a : b`\u00a0», et `n % 2`.
* Deux.

| périphérique | octets |
|---|---|
| `gpu(0)` | 24 |

![Deux boîtes](../figures/boxes.svg)
"""
PORTUGUESE = """\
## A cópia

Uma cópia de `X` para a segunda GPU ocupa 1.000 bytes, ou $2n + 1$ números de 0,5 ms: \
veja [o manual](https://example.org/a_b) e ${others}. Por quê? *Porque ela espera!*

* Um “`a : b`”, e `n % 2`.
* Dois.

| dispositivo | bytes |
|---|---|
| `gpu(0)` | 24 |

![Duas caixas](../figures/boxes.svg)
"""
CHINESE = """\
## 复制

把 `X` 复制到第二块 GPU 需要 1,000 字节，也就是 $2n + 1$ 个 0.5 ms 的数：\
见[手册](https://example.org/a_b)和 ${others}。为什么？*因为它在等待！*

* 一个“`a : b`”和 `n % 2`。
* 两个。

| 设备 | 字节 |
|---|---|
| `gpu(0)` | 24 |

![两个方框](../figures/boxes.svg)
"""
LANGUAGES = Project(REPOSITORY).languages
GOOD = {"fr": FRENCH, "pt": PORTUGUESE, "zh": CHINESE}


def found(text: str, language: str, english: str = ENGLISH, **more) -> list[str]:
    checker = Checker(LANGUAGES["en"], LANGUAGES[language], **more)
    return list(checker.problems(english.strip(), text.strip()))


def numbers(text: str, language: str = "en") -> dict[str, int]:
    return LANGUAGES[language].numbers(text)


@pytest.mark.parametrize("language", GOOD)
def test_good_translations_have_no_problems(language):
    assert found(GOOD[language], language) == []


@pytest.mark.parametrize(
    ("language", "good", "bad", "said"),
    [
        ("fr", "1\u202f000", "1\u202f100", "the number 1000 is missing"),
        ("fr", "0,5", "0.7", "the number 0.5 is missing"),
        ("pt", "1.000", "1,000", "the number 1000 is missing"),
        ("pt", "0,5", "0.5", "the number 0.5 has an English decimal point"),
        ("zh", "24 |", "42 |", "the number 24 is missing"),
        ("zh", "1,000", "1,100", "the number 1000 is missing"),
        ("fr", "de `X`", "de X", "code: 'X' is missing"),
        ("zh", "`n % 2`", "`n % 3`", "code: 'n % 3' is not in the source"),
        ("pt", "$2n + 1$", "$2n + 2$", "formulas: '2n+1' is missing"),
        ("pt", "a_b)", "a_c)", "links: 'https://example.org/a_b' is missing"),
        ("zh", "[手册](https://example.org/a_b)", "手册", "links: "),
        ("fr", "figures/boxes.svg", "figures/box.svg", "links: '../figures/boxes.svg'"),
        ("fr", "${others}", "${other}", "code: '${others}' is missing"),
        ("fr", "## La copie", "## The copy", "an English heading: The copy"),
        ("fr", "## La copie", "### La copie", "heading_open h3 instead of heading"),
        ("pt", "* Dois.\n", "", "different blocks"),
        ("pt", "| `gpu(0)` | 24 |\n", "", "different blocks"),
        (
            "pt",
            "Uma cópia de `X` para a segunda GPU ocupa",
            "A copy of `X` to the second GPU takes",
            "English left over: to the second GPU takes",
        ),
        ("zh", "*因为它在等待！*", "**“因为”**它在等待！", "emphasis marks"),
        ("zh", "*因为它在等待！*", "**因为。**它在**等待**！", "nested emphasis"),
        ("fr", "Pourquoi\u202f?", "Pourquoi ?", "ordinary space before"),
        ("fr", "Pourquoi\u202f?", "Pourquoi?", "no narrow no-break space"),
        ("fr", "ms\u00a0:", "ms:", "no no-break space before"),
        ("fr", "«\u00a0`a", "« `a", "no no-break space behind «"),
        ("fr", "qu’elle", "qu'elle", "a straight apostrophe"),
        ("fr", "Parce", '"Parce"', "quotation marks other"),
        ("pt", "quê?", "quê ?", "a space before a punctuation mark"),
        ("pt", "“`a : b`”", '"`a : b`"', "quotation marks other"),
        ("zh", "字节，也", "字节,也", "a half-width punctuation mark"),
        ("zh", "把 `X` 复", "把`X` 复", "no space beside code"),
        ("zh", "两个。", "两个.", "a half-width full stop"),
        ("zh", "块 GPU", "块GPU", "no space beside Latin"),
        ("zh", "复制到第", "复制 到第", "a space in Chinese"),
        ("zh", "为什么？", "(为什么)？", "half-width brackets"),
        ("zh", "0.5 ms 的数：", "0.5 ms: ", "a half-width punctuation mark"),
        ("zh", "和 `n % 2`。", "和 `n % 2`.", "a half-width full stop"),
        ("zh", "字节，也", "字节， 也", "a space beside punctuation"),
    ],
)
def test_planted_bad_translations_are_rejected(language, good, bad, said):
    assert good in GOOD[language]
    text = GOOD[language].replace(good, bad, 1)
    assert any(said in problem for problem in found(text, language))


def test_names_and_messages_of_frameworks_may_stay():
    english = "## PyTorch\n\nIt says: *Expected all tensors to be on the same device*."
    other = "## PyTorch\n\nDiz: *Expected all tensors to be on the same device*."
    assert len(found(other, "pt", english)) == 2
    names = "PyTorch\nExpected all tensors to be on the same device, but found"
    assert found(other, "pt", english, names=names) == []


def test_terms_in_titles_that_stay_english_are_not_translated(tmp_path):
    path = tmp_path / "pt.tsv"
    path.write_text("checkpoint\tponto de controle\tcheckpoint\n")
    english, other = "Young, The optimum checkpoint interval.", "Young, {}."
    title = "The optimum checkpoint interval"
    glossary = Glossary.read(path)
    text = other.format(title)
    assert len(found(text, "pt", english, glossary=glossary)) == 2
    assert found(text, "pt", english, glossary=glossary, names=title) == []


def test_numbers_are_read_as_the_language_writes_them():
    assert numbers("1,234.5 and 0.25") == {"1234.5": 1, "0.25": 1}
    assert numbers("1\u202f234,5 et 0,25", "fr") == {"1234.5": 1, "0.25": 1}
    assert numbers("1.234,5 e 0,25", "pt") == {"1234.5": 1, "0.25": 1}
    assert numbers("1,234.5 和 0.25", "zh") == {"1234.5": 1, "0.25": 1}


def test_small_numbers_may_have_been_words():
    assert found("Em 2 GPUs.", "pt", "On two GPUs.") == []
    assert found("Em 200 GPUs.", "pt", "On two GPUs.") == [
        "the number 200 is not in the source"
    ]


def test_digits_of_names_may_be_repeated():
    assert found("这块 V100 很快，V100 有 16 GiB。", "zh", "A V100 has 16 GiB.") == []


def test_pictures_stand_apart():
    english = "[![A b](../figures/a.svg)](https://a.org) [![B c](../figures/b.svg)](https://b.org)"
    other = english.replace("A b", "打开").replace("B c", "关闭")
    assert found(other, "zh", english) == []


def test_placeholders_inside_code_and_beside_formulas_are_kept_apart():
    text = "`d2l.exercise('${number}.1')` and [here](${solutions}) $x$"
    taken = parts(text)
    assert set(taken.formulas) == {"x"}
    assert {"${number}", "${solutions}"} <= set(taken.code)


# ---- The glossary


@pytest.fixture
def glossary(tmp_path):
    path = tmp_path / "pt.tsv"
    path.write_text(
        "# Words\n"
        "card\tplaca\tcarta\tNVIDIA\n"
        "operation\t运算\t手术\n"
        "accuracy\tacurácia\tprecisão\n"
        "precision\tprecisão\n"
        "virtual GPU\tGPU virtual | GPUs virtuais\n"
        "memory\tmemória\n"
    )
    return Glossary.read(path)


@pytest.mark.parametrize(
    ("english", "other", "said"),
    [
        ("A card.", "Uma placa.", []),
        (
            "Cards.",
            "Cartas.",
            ["'card' must be translated as placa", "not be translated as 'carta'"],
        ),
        ("Discards it.", "Descarta.", []),
        (
            "Operations.",
            "一次手术运算。",
            ["'operation' must not be translated as '手术'"],
        ),
        ("Two virtual GPUs.", "Duas GPUs virtuais.", []),
        ("A virtual GPU.", "Uma GPU.", ["'virtual GPU' must be translated as GPU"]),
        ("Memories.", "Memórias.", []),
        (
            "Accuracy.",
            "Precisão.",
            ["as acurácia", "'accuracy' must not be translated as 'precisão'"],
        ),
        ("Accuracy, precision.", "Acurácia, precisão.", []),
    ],
)
def test_terms_are_translated_as_the_glossary_has_them(glossary, english, other, said):
    problems = list(glossary.problems(english, other))
    assert len(problems) == len(said)
    assert all(part in problem for part, problem in zip(said, problems, strict=True))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("card", "a term, its translations"),
        ("card\t", "a term, its translations"),
        ("a\tb\tc\td\te", "a term, its translations"),
        ("a\tb\na\tc", "'a' is listed twice"),
    ],
)
def test_lines_that_are_none_are_told(tmp_path, line, said):
    path = tmp_path / "xx.tsv"
    path.write_text(line)
    with pytest.raises(ValueError, match=said):
        Glossary.read(path)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "1.28 million of 7 billion, 14 trillion"),
        ("fr", "1,28 million de 7 milliards, 14 mille milliards"),
        ("pt", "1,28 milhão de 7 bilhões, 14 trilhões"),
        ("zh", "70 亿中的 128 万，14 万亿"),
    ],
)
def test_powers_of_ten_are_those_of_the_language(language, text):
    found = numbers(text, language)
    assert sorted(found.elements()) == sorted(
        ["1280000", f"7{'0' * 9}", f"14{'0' * 12}"]
    )


# ---- All of it


def test_the_command_tells_message_and_problem(project, capsys):
    (project / "lessons" / LOCALE).mkdir()
    (project / "lessons" / LOCALE / "languages.toml").write_text('pt.name = "P"\n')
    translate(["--root", str(project)])
    path = project / "lessons" / LOCALE / "pt.po"
    summary = 'msgid "One and one is two."\nmsgstr "'
    assert summary in path.read_text()
    path.write_text(path.read_text().replace(summary, f"{summary}Um e um."))
    assert check(["--root", str(project)]) == 0
    path.write_text(path.read_text().replace("Um e um", "`Um` e um"))
    capsys.readouterr()
    assert check(["--root", str(project)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "pt: lessons/pytorch/01_toy.md:27 “One and one is two.”: code: 'Um' is not in "
        "the source",
        "problems: 1",
    ]


def test_translations_of_the_lessons_have_no_problems(capsys):
    status = check([])
    assert status == 0, capsys.readouterr().out


@pytest.mark.parametrize("language", ["fr", "pt", "zh"])
def test_glossaries_have_terms_that_occur(language):
    project = Project(REPOSITORY)
    prose = "\n".join(message.text for message in project.messages())
    terms = Glossary.read(project.lessons / LOCALE / f"{language}.tsv").terms
    assert len(terms) >= 60
    assert [term.english for term in terms if not term.pattern.search(prose)] == []
    assert [term.english for term in terms if not term.source] == []
