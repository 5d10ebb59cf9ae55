"""A quiz in a notebook, on the site or in a terminal.

On a page, each option is a ``<details>``, which a click or a key opens: no script, no
widget, and where a host strips the style, the quiz still works. Text has the colour of
whatever is around it, light or dark.
"""

import functools
import html
import textwrap
import tomllib
from pathlib import Path

from d2l_gpu.quizzes.quiz import Option, Question, Quiz, letter
from d2l_gpu.show.live import in_jupyter

_FOLDER = Path(__file__).parent
_COLUMNS = 79


def show(quiz: Quiz) -> None:
    """Show a quiz: in a notebook, or printed elsewhere, with the answers at the end."""
    if in_jupyter():
        from IPython.display import display

        display(Shown(quiz))
    else:
        print(as_text(quiz))


class Shown:
    """A quiz that a notebook displays.

    Args:
        quiz: the quiz.
    """

    def __init__(self, quiz: Quiz):
        self.quiz = quiz

    def _repr_html_(self) -> str:
        return as_html(self.quiz)

    def __repr__(self) -> str:
        return as_text(self.quiz)


def as_html(quiz: Quiz, title: bool = True) -> str:
    """Return a quiz as a piece of a page, with its style.

    Args:
        quiz: the quiz.
        title: whether to say what it's about.
    """
    its = words(quiz.language)
    label = html.escape(f"{its['quiz']}{its['colon']}{quiz.heading}")
    lines = [f"<style>\n{style('shown')}</style>"]
    lines.append(f'<section class="d2l-quiz" lang="{quiz.language}">')
    if title:
        lines.append(f"<p><strong>{label}</strong></p>")
    if quiz.language != quiz.wanted:
        notice = words(quiz.wanted)["untranslated"]
        lines.append(f'<p lang="{quiz.wanted}"><em>{html.escape(notice)}</em></p>')
    lines.append(f"<p>{html.escape(its['how'])}</p>")
    lines.append("<ol>")
    for question in quiz.questions:
        lines += ["<li>", html_of_question(question, its)]
        lines += [_html_of_option(each, its) for each in question.options]
        lines.append("</li>")
    lines += ["</ol>", "</section>"]
    return "\n".join(lines)


def html_of_question(question: Question, its: dict[str, str]) -> str:
    """Return a question as a piece of a page, without its options."""
    text = question.text.html
    if len(question.right) > 1:
        several = its["several"].format(number=len(question.right))
        text += f"\n<p><em>{html.escape(several)}</em></p>"
    return text


def _html_of_option(option: Option, its: dict[str, str]) -> str:
    kind = "right" if option.right else "wrong"
    return (
        f'<details class="d2l-{kind}"><summary>{option.text.html}</summary>'
        f"<p><strong>{its[kind]}</strong> {option.why.html}</p></details>"
    )


def as_text(quiz: Quiz) -> str:
    """Return a quiz as text: the questions, then the answers."""
    its = words(quiz.language)
    title = f"{its['quiz']}{its['colon']}{quiz.heading}"
    lines = [title, "=" * len(title)]
    if quiz.language != quiz.wanted:
        lines += ["", words(quiz.wanted)["untranslated"]]
    for number, question in enumerate(quiz.questions, 1):
        text = question.text.markdown
        if len(question.right) > 1:
            text += "\n\n" + its["several"].format(number=len(question.right))
        lines += ["", *_item(f"{number}.", text)]
        for place, option in enumerate(question.options):
            lines += _item(f"   {letter(place)})", option.text.markdown)
    lines += ["", "", its["answers"], "-" * len(its["answers"])]
    for number, question in enumerate(quiz.questions, 1):
        lines += ["", f"{number}. {', '.join(question.right)}"]
        for place, option in enumerate(question.options):
            verdict = its["right" if option.right else "wrong"]
            text = f"{verdict}{its['space']}{option.why.markdown}"
            lines += _item(f"   {letter(place)})", text)
    return "\n".join(lines)


def _item(mark: str, text: str) -> list[str]:
    """Return Markdown as lines behind a mark; code keeps its lines."""
    margin = " " * (len(mark) + 1)
    lines, code = [], False
    for paragraph in text.split("\n"):
        fence = paragraph.startswith("```")
        if fence or code or not paragraph.strip():
            lines.append(paragraph)
        else:
            width = _COLUMNS - len(margin)
            lines += textwrap.wrap(
                paragraph, width, break_long_words=False, break_on_hyphens=False
            )
        code ^= fence
    indented = [f"{margin}{line}".rstrip() for line in lines]
    return [mark + indented[0][len(mark) :], *indented[1:]]


def style(name: str) -> str:
    """Return the CSS of a quiz that is ``shown`` or ``printed``."""
    return (_FOLDER / f"{name}.css").read_text("utf-8")


def words(language: str) -> dict[str, str]:
    """Return what a quiz says besides its questions; English where there's no other."""
    tables = _tables()
    return {**tables["en"], **tables.get(language, {})}


@functools.cache
def _tables() -> dict[str, dict[str, str]]:
    return tomllib.loads((_FOLDER / "words.toml").read_text("utf-8"))
