"""The pages about a class: everyone's grades, and what each student is told.

They need no network and no scripts, and show nothing of a student's as HTML.
"""

import functools
import os
import re
import statistics
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from d2l_gpu.common.messages import language_tag, localized
from d2l_gpu.grading.results import Results, Student, state_of
from d2l_gpu.grading.stuck import fewest_passed, where_stuck

_HERE = Path(__file__).parent


def page_html(results: Results, output: Path) -> str:
    """Return the page of a class.

    Args:
        results: what came of the class.
        output: the folder that the page is written to, from which links start.
    """
    students = []
    for place, student in enumerate(results.students, 1):
        paths = [each.path for each in student.notebooks if each.path]
        students.append(
            _student(results, student)
            | {
                "anchor": f"student-{place}",
                "feedback": quote(student.feedback),
                "links": [(_link(path, output), _plain(path.name)) for path in paths],
            }
        )
    totals = [results.total(each) for each in results.students]
    stuck = where_stuck(results)
    least = fewest_passed(stuck)
    return _render(
        "grades",
        students=students,
        ids=any(each.id for each in results.students),
        noted=[each for each in students if each["notes"]],
        not_graded=[_plain(each) for each in results.not_graded],
        absent=sum(not each.graded for each in results.students),
        exercises=[
            {"number": number, "title": title, "points": results.points.of(number)}
            for number, title in results.titles.items()
        ],
        stuck=[
            {
                "number": each.number,
                "title": results.titles[each.number],
                "states": each.states,
                "handed_in": each.handed_in,
                "share": each.share,
                "mistakes": each.mistakes,
                "least": each.number in least,
            }
            for each in stuck
        ],
        most=results.most,
        mean=statistics.mean(totals),
        median=statistics.median(totals),
        all_or_nothing=results.points.all_or_nothing,
        about=results.about,
    )


def feedback_html(results: Results, student: Student) -> str:
    """Return what a student is told."""
    return _render(
        "feedback",
        student=_student(results, student),
        most=results.most,
        about=results.about[:2],
    )


_SIGNS = {"right": "{} ✓", "unrun": "✗", "unanswered": "–", "missing": ""}


def _student(results: Results, student: Student) -> dict[str, Any]:
    """Return what the pages say of a student."""
    answers = []
    for number, title in results.titles.items():
        best = student.best(number)
        verdict = best and best.verdicts[number]
        earned, state = results.points.earned(verdict), state_of(verdict)
        answers.append(
            {
                "number": number,
                "title": title,
                "state": state,
                "sign": _SIGNS.get(state, "{}").format(number_text(earned)),
                "earned": earned,
                "worth": results.points.of(number),
                "claims": verdict.claims if verdict else (),
                "problem": verdict.problem if verdict else "",
                "hint": verdict.hint if verdict else "",
                "printed": _plain(verdict.printed.rstrip()) if verdict else "",
                "code": _plain(best.code.get(number, "")) if best else "",
            }
        )
    return {
        "name": _plain(student.name),
        "id": _plain(student.id),
        "total": results.total(student),
        "graded": student.graded,
        "notes": student.notes,
        "answers": answers,
    }


def number_text(points: float) -> str:
    """Return points as a text, with two decimals at most."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def _link(path: Path, output: Path) -> str:
    """Return a link to a file from a page in a folder."""
    try:
        return quote(Path(os.path.relpath(path, output)).as_posix())
    except ValueError:  # on another drive
        return path.resolve().as_uri()


def _render(name: str, **what: Any) -> str:
    return _templates().get_template(f"{name}.html.j2").render(**what)


@functools.cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, extensions=["jinja2.ext.i18n"]
    )
    environment.install_gettext_callables(_gettext, _ngettext, newstyle=True)
    environment.globals["tag"] = language_tag()
    environment.globals["style"] = Markup((_HERE / "pages.css").read_text("utf-8"))
    environment.filters |= {
        "code": _with_code,
        "begun": lambda text: _with_code(_begun(localized(text))),
        "sentence": _sentence,
        "localized": lambda texts: map(localized, texts),
        "points": number_text,
    }
    return environment


def _gettext(message: str) -> str:
    """Return a message of the templates in translation, with fields as Jinja has."""
    its = localized(re.sub(r"%\((\w+)\)s", r"{\1}", message))
    return re.sub(r"\{(\w+)\}", r"%(\1)s", its)


def _ngettext(one: str, more: str, n: int) -> str:
    return _gettext(one if n == 1 else more)


def _sentence(text: str, begun: bool = True) -> Markup:
    """Return a text as a sentence in HTML.

    Args:
        text: with or without a full stop.
        begun: whether it begins with a capital letter.
    """
    text = localized(text.rstrip())
    if not text.endswith((".", "!", "?", "…", "。", "？", "！")):
        text += "。" if language_tag().startswith("zh") else "."
    return _with_code(_begun(text) if begun else text)


def _begun(text: str) -> str:
    """Return a text with a capital letter at its beginning, if it begins with a word,
    and not with code or the name of a file."""
    word = text.partition(" ")[0].rstrip(":,.").replace("'", "")
    return text[:1].upper() + text[1:] if word.isalpha() else text


def _with_code(text: str) -> Markup:
    """Return a text as HTML, with what is between backticks as code."""
    html = str(escape(_plain(text)))
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", html))


def _plain(text: str) -> str:
    """Return a text without what isn't to be seen."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)
