"""The page of a class: a table of all grades, and where the class is stuck."""

import re

from jinja2 import Environment
from markupsafe import Markup, escape
from nbformat.v4 import new_code_cell, new_notebook, new_output

from d2l_gpu.course.page import page_of
from d2l_gpu.grading.results import Results, state_of
from d2l_gpu.grading.stuck import where_stuck

_TITLE = "d2l-gpu: grades"

# Colours that readers with any colour vision tell apart; each state also has a sign.
_STYLE = """
<style>
.grades { color: var(--jp-content-font-color1); max-width: 100%; }
.grades .wide { overflow-x: auto; }
.grades table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.grades table :is(th, td) { border: 1px solid var(--jp-border-color2);
  max-width: none; padding: 4px 10px; text-align: right; white-space: nowrap; }
.grades table :is(th, td):first-child { text-align: left; }
.grades .table :is(th, td):first-child { background: var(--jp-layout-color0);
  left: 0; position: sticky; }
.grades .right { background: rgba(0, 114, 178, .28); }
.grades .partly { background: rgba(240, 228, 66, .28); }
.grades .wrong { background: rgba(213, 94, 0, .28); }
.grades :is(.unanswered, .missing) { color: var(--jp-content-font-color2); }
.grades .legend span { border: 1px solid var(--jp-border-color2);
  margin-right: 8px; padding: 2px 8px; }
.grades h2 { margin-top: 2em; }
.grades h3 { margin: 1.4em 0 .3em; }
.grades .bar { display: flex; height: 10px; margin: 4px 0; max-width: 30em; }
.grades .bar i { display: block; height: 100%; }
.grades .bar .right { background: #0072b2; }
.grades .bar .partly { background: #e3d32e; }
.grades .bar .wrong { background: #d55e00; }
.grades .bar :is(.unanswered, .missing) { background: rgba(128, 128, 128, .25); }
.grades :is(ul, p) { max-width: 60em; }
.grades .times { color: var(--jp-content-font-color2); }
</style>
"""

_BODY = """
<div class="grades">
<h1>Grades</h1>
<p>{{ students | length }} student{{ '' if students | length == 1 else 's' }},
{{ exercises | length }} exercise{{ '' if exercises | length == 1 else 's' }},
{{ points(most) }} point{{ '' if most == 1 else 's' }}.</p>
<p class="legend"><span class="right">1 ✓ passes</span>
<span class="partly">0.5 some checks pass</span><span class="wrong">0 none</span>
<span class="unanswered">– not answered</span>
<span class="missing">no notebook</span></p>
<div class="wide table"><table>
<thead><tr><th>Student</th><th>Total</th>
{%- for each in exercises %}<th title="{{ each.title }}">
<a href="#exercise-{{ each.number }}">{{ each.number }}</a></th>{% endfor -%}
</tr></thead>
<tbody>
{%- for student in students %}
<tr><td>{{ student.name }}{% if student.notes %}
<a href="#notes" title="{{ student.notes | join('; ') }}">⚠</a>{% endif %}</td>
<td><b>{{ points(student.total) }}</b></td>
{%- for cell in student.cells %}<td class="{{ cell.state }}" title="{{ cell.told }}">
{{- cell.text }}</td>{% endfor -%}
</tr>
{%- endfor %}
</tbody></table></div>

<h2>Where the class is stuck</h2>
{%- for each in stuck %}
<h3 id="exercise-{{ each.number }}">{{ each.number }} {{ titles[each.number] }}</h3>
<div class="bar" aria-hidden="true">
{%- for state, n in each.states.items() if n and state != 'missing' -%}
<i class="{{ state }}" style="flex: {{ n }}"></i>{% endfor %}</div>
<p>{{ each.states.right }} of {{ each.handed_in }} passed
({{ '%.0f' % (100 * each.share) }} %)
{%- if each.states.unanswered %}; {{ each.states.unanswered }} without an answer
{%- endif %}.</p>
{%- if each.claims %}
<p>Checks that fail most often:</p>
<ul>{% for text, n in each.claims %}<li>{{ text | code }}
<span class="times">({{ n }} ×)</span></li>{% endfor %}</ul>
{%- endif %}
{%- if each.hints %}
<p>What these students were told:</p>
<ul>{% for text, n in each.hints %}<li>{{ text | code }}
<span class="times">({{ n }} ×)</span></li>{% endfor %}</ul>
{%- endif %}
{%- endfor %}

{%- if noted %}
<h2 id="notes">What went wrong with notebooks</h2>
<ul>{% for student in noted %}<li>{{ student.name }}<ul>
{%- for note in student.notes %}<li>{{ note | code }}</li>{% endfor %}</ul></li>
{%- endfor %}</ul>
{%- endif %}
</div>
"""


def page_html(results: Results) -> str:
    """Return a page that needs no network, and shows no text of a student as HTML."""
    rows = []
    for student in results.students:
        cells = []
        for number in results.titles:
            verdict = student.verdict(number)
            state = state_of(verdict)
            text = _points(results.points.earned(verdict))
            if state == "right":
                text += " ✓"
            elif state in ("unanswered", "missing"):
                text = "–" if state == "unanswered" else ""
            told = (verdict.hint or verdict.problem) if verdict else ""
            cells.append({"state": state, "text": text, "told": told})
        total = results.total(student)
        notes = [_plain(note) for note in student.notes]
        rows.append(
            {"name": student.name, "cells": cells, "total": total, "notes": notes}
        )
    environment = Environment(autoescape=True)
    environment.filters["code"] = _with_code
    html = environment.from_string(_BODY).render(
        students=rows,
        noted=[row for row in rows if row["notes"]],
        exercises=[{"number": n, "title": t} for n, t in results.titles.items()],
        titles=results.titles,
        stuck=where_stuck(results),
        most=results.most,
        points=_points,
    )
    output = new_output("display_data", data={"text/html": _STYLE + html})
    notebook = new_notebook(
        cells=[new_code_cell("", outputs=[output])], metadata={"title": _TITLE}
    )
    return page_of(notebook, exclude_input=True, exclude_output_prompt=True)


def _with_code(text: str) -> Markup:
    """Return a text as HTML, with what is between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _points(points: float) -> str:
    return f"{points:.2f}".rstrip("0").rstrip(".")


def _plain(text: str) -> str:
    """Return a text without what isn't to be seen."""
    return "".join(c if c.isprintable() else " " for c in text)
