"""Each PyTorch lesson has a quiz, which readers can take anywhere, without scripts."""

import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from d2l_gpu import cli
from d2l_gpu.course import is_appendix, lesson_names
from d2l_gpu.quizzes import Quizzes, find_quiz
from d2l_gpu.quizzes import quiz as reading
from d2l_gpu.quizzes.quiz import NoQuiz, lessons_with_quiz
from d2l_gpu.quizzes.shown import Shown, as_html, as_text, words
from tests.helpers.paths import REPOSITORY

PYTORCH = REPOSITORY / "notebooks" / "en" / "pytorch"
LESSONS = [name for name in lesson_names(PYTORCH) if not is_appendix(name)]
QUIZZES = lessons_with_quiz(PYTORCH)


def quiz(name: str = "03", language: str = "en") -> reading.Quiz:
    return find_quiz("pytorch", name, language)


class Page(HTMLParser):
    """The tags of a page, and the text outside its details, or inside."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.open, self.hidden = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "details" in self.open and "summary" not in self.open:
            self.hidden.append(data)


def test_every_lesson_but_the_appendices_has_a_quiz():
    assert QUIZZES == LESSONS


@pytest.mark.parametrize("name", QUIZZES)
def test_no_place_is_right_too_often(name):
    first = [question.right[0] for question in quiz(name).questions]
    assert max(map(first.count, first)) <= 2, first


def test_the_right_answer_is_not_always_the_longest():
    longest = [
        max(question.options, key=lambda each: len(each.text.markdown)).right
        for name in QUIZZES
        for question in quiz(name).questions
    ]
    assert sum(longest) < 0.6 * len(longest)


@pytest.mark.parametrize("name", QUIZZES)
def test_a_quiz_is_html_without_scripts_and_other_hosts(name):
    page = Page(as_html(quiz(name)))
    assert page.open == []
    kinds = {tag for tag, _ in page.tags}
    assert not kinds & {"script", "input", "button", "a", "img", "iframe", "link"}
    assert not [a for _, a in page.tags if any(key.startswith("on") for key in a)]
    assert not [a for _, a in page.tags if "id" in a]


@pytest.mark.parametrize("name", QUIZZES)
def test_every_option_opens_and_explains_itself(name):
    found = quiz(name)
    page = Page(as_html(found))
    kinds = [a["class"] for tag, a in page.tags if tag == "details"]
    options = [each for question in found.questions for each in question.options]
    assert kinds == ["d2l-right" if each.right else "d2l-wrong" for each in options]
    assert page.hidden.count("Right.") == kinds.count("d2l-right")
    assert page.hidden.count("Wrong.") == kinds.count("d2l-wrong")
    assert not [a for tag, a in page.tags if tag == "details" and "open" in a]


def test_text_has_the_answers_after_all_questions():
    text = as_text(quiz())
    questions, answers = text.split("\nAnswers\n")
    assert "Right." not in questions
    assert "Wrong." not in questions
    assert len(re.findall(r"^\d\. ", questions, re.MULTILINE)) == 5
    assert len(re.findall(r"^\d\. [a-e](?:, [a-e])*$", answers, re.MULTILINE)) == 5
    assert max(map(len, text.splitlines())) <= 79


def test_a_notebook_gets_html_and_a_terminal_text(capsys):
    shown = Shown(quiz())
    assert shown._repr_html_().startswith("<style>")
    assert repr(shown) == as_text(quiz())
    Quizzes("pytorch").quiz("03", "en")
    assert capsys.readouterr().out == as_text(quiz()) + "\n"


@pytest.mark.parametrize("name", ["3", "03", "copying", "03_copying"])
def test_a_quiz_is_found_by_number_or_name(name):
    assert quiz(name).lesson == "03_copying"


def test_wrong_lessons_are_refused():
    with pytest.raises(TypeError, match="must be a string such as '03', but got 3"):
        quiz(3)
    with pytest.raises(ValueError, match="there is no lesson '99'"):
        quiz("99")
    with pytest.raises(ValueError, match="no edition in 'xx'"):
        quiz("03", "xx")
    with pytest.raises(NoQuiz, match=r"^Lesson A1 has no quiz\.$"):
        quiz("A1")


def test_another_framework_says_where_the_quiz_is(capsys):
    Quizzes("jax").quiz("03", "en")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("Lesson 03 has no quiz for JAX yet, only for PyTorch: ")


def test_what_is_not_translated_is_in_english_and_says_so(edition):
    found = find_quiz("pytorch", "03", "fr")
    assert (found.language, found.wanted) == ("en", "fr")
    notice = words("fr")["untranslated"]
    assert f'<p lang="fr"><em>{notice}</em></p>' in as_html(found)
    assert notice in as_text(found)


def test_a_translated_quiz_is_shown_in_its_language(edition):
    english = (edition / "en/pytorch/quizzes/03_copying.json").read_text("utf-8")
    data = json.loads(english) | {"language": "fr", "title": "Copier"}
    path = edition / "fr/pytorch/quizzes/03_copying.json"
    path.parent.mkdir()
    path.write_text(json.dumps(data), "utf-8")
    text = as_html(find_quiz("pytorch", "03", "fr"))
    assert "Quiz : 03 Copier" in text
    assert "<strong>Juste.</strong>" in text
    assert words("fr")["untranslated"] not in text


@pytest.fixture
def edition(tmp_path, monkeypatch) -> Path:
    """Notebooks with one lesson in English and French, whose quiz isn't translated."""
    for language in "en", "fr":
        folder = tmp_path / language / "pytorch"
        folder.mkdir(parents=True)
        (folder / "03_copying.ipynb").write_text("{}")
    quizzes = tmp_path / "en/pytorch/quizzes"
    quizzes.mkdir()
    source = PYTORCH / "quizzes/03_copying.json"
    (quizzes / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(
        reading, "notebooks_dir", lambda language, tag: tmp_path / language / tag
    )
    return tmp_path


# ------------------------------------------------------------------ on paper


@pytest.fixture
def printed(tmp_path, monkeypatch):
    """A function that runs the command in an empty folder and returns both pages."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[str, str]:
        assert cli.main(["quiz", "--language", "en", *arguments]) == 0
        return Path("quiz.html").read_text(), Path("quiz-key.html").read_text()

    return run


def test_students_get_the_questions_and_teachers_the_answers(printed):
    page, key = printed("03", "07")
    whys = [
        each.why.html
        for name in ("03", "07")
        for question in quiz(name).questions
        for each in question.options
    ]
    assert not [why for why in whys if why in page]
    assert 'class="right"' not in page
    assert [why for why in whys if why not in key] == []
    for text in page, key:
        assert [text.count(f">{quiz(n).heading}</h") for n in ("03", "07")] == [1, 1]
        assert "<script" not in text
        assert Page(text).open == []


def test_the_key_has_a_table_of_letters(printed):
    _, key = printed("03")
    letters = [", ".join(each.right) for each in quiz().questions]
    cells = "".join(f"<td>{each}</td>" for each in letters)
    assert f"<th scope=row>{quiz().heading}</th>{cells}</tr>" in key


def test_without_lessons_all_quizzes_are_printed(printed):
    page, _ = printed()
    assert page.count('<main class="sheet"') == len(QUIZZES)


def test_a_seed_gives_the_same_order_everywhere():
    assert quiz().shuffled(7) == quiz().shuffled(7)
    orders = {
        str([each.right for each in quiz().shuffled(i).questions]) for i in range(9)
    }
    assert len(orders) > 5
    for before, after in zip(
        quiz().questions, quiz().shuffled(7).questions, strict=True
    ):
        assert before.text == after.text
        assert set(before.options) == set(after.options)
    # Python promises the same order for the same seed.
    order = list(range(5))
    random.Random("7/03_copying").shuffle(order)
    assert order == [0, 2, 4, 3, 1]


def test_shuffled_pages_say_their_version(printed):
    page, key = printed("03", "--shuffle", "12")
    assert "Quiz · Version 12" in page
    assert "Answer key · Version 12" in key


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["99"], "there is no lesson '99'"),
        (["A1"], "Lesson A1 has no quiz."),
        (["--framework", "mxnet"], "no lesson has a quiz for 'mxnet'"),
    ],
)
def test_the_command_says_in_one_line_what_is_missing(arguments, sentence, capsys):
    assert cli.main(["quiz", "--language", "en", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"d2l-gpu quiz: {sentence}")


def test_the_output_must_be_a_page(capsys):
    with pytest.raises(SystemExit):
        cli.main(["quiz", "03", "--output", "quiz.pdf"])
    assert "quiz.pdf isn't the name of a page" in capsys.readouterr().err


# ------------------------------------------------------------------ the lessons

_IN_THE_LESSON = re.compile(r"\bin th(?:e|is) lesson\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def shown_in(name: str) -> str:
    """Return what a reader of a lesson sees: prose, code and what it puts out."""
    cells = json.loads((PYTORCH / f"{name}.ipynb").read_text("utf-8"))["cells"]
    parts = ["".join(cell["source"]) for cell in cells]
    for cell in cells:
        for output in cell.get("outputs", ()):
            parts.append("".join(output.get("text", "")))
            parts.append("".join(output.get("data", {}).get("text/plain", "")))
    return "\n".join(parts)


@pytest.mark.parametrize("name", QUIZZES)
def test_numbers_that_are_said_to_be_in_the_lesson_are_there(name):
    shown = set(_NUMBER.findall(shown_in(name)))
    found = quiz(name).questions
    texts = [question.text for question in found]
    texts += [t for q in found for each in q.options for t in (each.text, each.why)]
    missing = [
        (number, sentence)
        for text in texts
        for sentence in re.split(r"(?<=[.?!])\s", text.markdown)
        if _IN_THE_LESSON.search(sentence)
        for number in _NUMBER.findall(sentence)
        if number not in shown
    ]
    assert missing == []
