"""Quizzes to print: a page for students, and another with the answers."""

import html
from collections.abc import Sequence
from pathlib import Path

from d2l_gpu.common.files import write_atomically
from d2l_gpu.common.messages import say
from d2l_gpu.quizzes.quiz import Question, Quiz, letter
from d2l_gpu.quizzes.shown import html_of_question, style, words


def print_quizzes(quizzes: Sequence[Quiz], output: Path, seed: int | None) -> int:
    """Write the page for students and, beside it, the one with the answers.

    Args:
        quizzes: the quizzes, in order.
        output: the page for students, such as ``quiz.html``; the other is then
            ``quiz-key.html``.
        seed: of the order of the options; None for that of the course.

    Returns:
        The exit code of the command.
    """
    if seed is not None:
        quizzes = [each.shuffled(seed) for each in quizzes]
    key = output.with_name(f"{output.stem}-key{output.suffix}")
    write_atomically(output, page(quizzes, seed))
    write_atomically(key, page(quizzes, seed, key=True))
    say(f"{output}: for students")
    say(f"{key}: with the answers")
    return 0


def page(quizzes: Sequence[Quiz], seed: int | None = None, key: bool = False) -> str:
    """Return a page that needs no other file.

    Args:
        quizzes: the quizzes, in order, each of which begins a sheet of paper.
        seed: what to call the order of the options; None for nothing.
        key: whether to show the answers.
    """
    languages = {each.language for each in quizzes}
    language = languages.pop() if len(languages) == 1 else "en"
    its = words(language)
    title = its["key"] if key else its["quiz"]
    if seed is not None:
        title += f" · {its['version'].format(seed=seed)}"
    lines = [
        f'<!DOCTYPE html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src data: 'unsafe-inline'\">",
        f"<title>{html.escape(title)}</title>",
        f"<style>\n{style('printed')}</style>\n</head>\n<body>",
    ]
    if key:
        lines += [f"<h1>{html.escape(title)}</h1>", _table(quizzes, its)]
    for quiz in quizzes:
        lines += _key(quiz) if key else _sheet(quiz, title)
    lines.append("</body>\n</html>\n")
    return "\n".join(lines)


def _sheet(quiz: Quiz, title: str) -> list[str]:
    """Return what students get: no answers."""
    its = words(quiz.language)
    lines = [
        f'<main class="sheet" lang="{quiz.language}">',
        f'<p class="about">{html.escape(title)}</p>',
        f"<h1>{html.escape(quiz.heading)}</h1>",
        f'<p class="fields"><span>{its["name"]}</span><span>{its["date"]}</span></p>',
        f'<p class="about">{html.escape(its["choose"])}</p>',
        "<ol>",
    ]
    for question in quiz.questions:
        lines += ['<li class="question">', html_of_question(question, its), "<ul>"]
        lines += [
            f'<li><span class="box"></span><b>{letter(place)}</b>'
            f"<span>{option.text.html}</span></li>"
            for place, option in enumerate(question.options)
        ]
        lines += ["</ul>", "</li>"]
    return [*lines, "</ol>", "</main>"]


def _key(quiz: Quiz) -> list[str]:
    """Return what teachers get: which answers are right, and why."""
    its = words(quiz.language)
    lines = [
        f'<section lang="{quiz.language}">',
        f"<h2>{html.escape(quiz.heading)}</h2>",
        "<ol>",
    ]
    for question in quiz.questions:
        lines += ['<li class="question">', html_of_question(question, its), "<ul>"]
        for place, option in enumerate(question.options):
            kind = "right" if option.right else "wrong"
            lines.append(
                f'<li class="{kind}"><b>{letter(place)}</b>'
                f"<span>{option.text.html}<br>"
                f"<small><b>{its[kind]}</b> {option.why.html}</small></span></li>"
            )
        lines += ["</ul>", "</li>"]
    return [*lines, "</ol>", "</section>"]


def _table(quizzes: Sequence[Quiz], its: dict[str, str]) -> str:
    """Return the table of the right letters."""
    numbers = range(1, max(len(each.questions) for each in quizzes) + 1)
    head = "".join(f"<th scope=col>{number}</th>" for number in numbers)
    rows = [f"<tr><th scope=col>{its['question']}</th>{head}</tr>"]
    for quiz in quizzes:
        cells = "".join(f"<td>{_letters(each)}</td>" for each in quiz.questions)
        rows.append(f"<tr><th scope=row>{html.escape(quiz.heading)}</th>{cells}</tr>")
    return "\n".join(["<table>", *rows, "</table>"])


def _letters(question: Question) -> str:
    return ", ".join(question.right)
