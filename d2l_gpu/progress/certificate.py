"""A page to print of what a reader has solved, in one file that needs no network."""

import html
import math
from collections.abc import Sequence
from datetime import date

from d2l_gpu import __version__
from d2l_gpu.progress.table import Edition, Lesson
from d2l_gpu.progress.words import WORDS, Words

# Colours are those of the course's pictures: green has been done, grey is waiting.
_STYLE = """
:root {
  color-scheme: light dark;
  --ink: #222; --soft: #5c5c5c; --line: #ddd; --paper: #fff; --desk: #eceff1;
  --done: #00805a; --on-done: #fff; --blue: #0072b2;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --ink: #eee; --soft: #aaa; --line: #444; --paper: #1d1f21; --desk: #111;
    --done: #2fc493; --on-done: #10231c; --blue: #6db9ea;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 2rem 1rem; background: var(--desk); color: var(--ink);
  font: 15px/1.45 system-ui, "Segoe UI", Roboto, "Noto Sans", "PingFang SC",
    "Microsoft YaHei", "Noto Sans CJK SC", sans-serif;
}
main {
  max-width: 50rem; margin: 0 auto; padding: 2.75rem clamp(1.25rem, 6vw, 3.5rem);
  background: var(--paper); border-top: 10px solid var(--blue);
  box-shadow: 0 2px 18px rgb(0 0 0 / 16%);
}
header { display: flex; gap: 1.5rem; align-items: center; }
header > div { flex: 1; min-width: 0; overflow-wrap: anywhere; }
h1 { margin: 0; font-size: 1.15rem; font-weight: 600; color: var(--blue); }
.by { margin: .3rem 0 0; font-size: 1.75rem; font-weight: 650; line-height: 1.2; }
h2 { margin: 2rem 0 .1rem; font-size: 1.1rem; }
.sum { margin: 0 0 .6rem; color: var(--soft); }
.ring { flex: none; width: 6.5rem; height: 6.5rem; }
.ring circle { fill: none; stroke: var(--line); stroke-width: 9; }
.ring .part { stroke: var(--done); }
.ring text {
  fill: var(--ink); font-size: 19px; font-weight: 650; text-anchor: middle;
}
table { width: 100%; border-collapse: collapse; }
th, td { padding: .32rem .5rem .32rem 0; text-align: left; vertical-align: middle; }
thead th {
  border-bottom: 2px solid var(--ink); font-size: .8rem; font-weight: 600;
  color: var(--soft);
}
tbody tr { border-bottom: 1px solid var(--line); break-inside: avoid; }
tbody th { font-weight: 400; }
tbody th b { display: inline-block; min-width: 2rem; font-weight: 600; }
td:last-child, thead th:last-child { padding-right: 0; text-align: right; }
td:last-child { white-space: nowrap; color: var(--soft); }
ul { display: flex; flex-wrap: wrap; gap: .22rem; margin: 0; padding: 0; }
li {
  display: block; width: 1.5rem; height: 1.5rem; border: 1px solid var(--line);
  border-radius: .3rem; font-size: .8rem; line-height: 1.4rem; text-align: center;
  color: var(--soft);
}
li.done {
  border-color: var(--done); background: var(--done); color: var(--on-done);
  font-weight: 650; print-color-adjust: exact; -webkit-print-color-adjust: exact;
}
.unseen {
  position: absolute; width: 1px; height: 1px; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap;
}
footer {
  margin-top: 1.75rem; padding-top: .8rem; border-top: 1px solid var(--line);
  font-size: .85rem; color: var(--soft);
}
footer p { margin: .2rem 0; }
@media (max-width: 34rem) {
  td:last-child, thead th:last-child { display: none; }
}
@page { size: A4; margin: 14mm 15mm; }
@media print {
  body { padding: 0; background: none; font-size: 10pt; }
  main { max-width: none; padding: 6mm 0 0; box-shadow: none; }
  h2 { margin-top: 1.1rem; break-after: avoid; }
  th, td { padding-block: .16rem; }
}
"""


def page(editions: Sequence[Edition], name: str = "", language: str = "en") -> str:
    """Return the page as HTML.

    Args:
        editions: what is solved, of each framework to be shown.
        name: the reader's; may be empty.
        language: of the page; English if the page doesn't know it.
    """
    words = WORDS.get(language, WORDS["en"])
    name = " ".join(name.split())
    by = words.by if name else words.solved
    who = html.escape(by).replace("{name}", f"<bdi>{html.escape(name)}</bdi>")
    made = words.made.format(today=words.date(_today()), version=__version__)
    title = html.escape(f"{words.title}: {name or words.solved}")
    return f"""<!DOCTYPE html>
<html lang="{words.tag}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'unsafe-inline'">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<header>
<div>
<h1>{html.escape(words.title)}</h1>
<p class="by">{who}</p>
</div>
{_ring(editions)}
</header>
{"".join(_edition(each, words) for each in editions)}
<footer>
<p>{html.escape(words.about)}</p>
<p>{html.escape(made)}</p>
</footer>
</main>
</body>
</html>
"""


def _today() -> str:
    return date.today().isoformat()


def _ring(editions: Sequence[Edition]) -> str:
    """Return a ring that's closed when everything is solved; the text says the same."""
    some = sum(len(each.solved) for each in editions)
    most = sum(each.exercises for each in editions)
    around = 2 * math.pi * 42
    part = around * some / most if most else 0
    return (
        '<svg class="ring" viewBox="0 0 100 100" aria-hidden="true">'
        '<circle cx="50" cy="50" r="42"/>'
        '<circle class="part" cx="50" cy="50" r="42" transform="rotate(-90 50 50)" '
        f'stroke-dasharray="{part:.2f} {around:.2f}"/>'
        f'<text x="50" y="57">{some}/{most}</text></svg>'
    )


def _edition(edition: Edition, words: Words) -> str:
    some, most = len(edition.solved), edition.exercises
    parts = [
        words.exercises.format(some=some, most=most),
        words.lessons.format(some=edition.complete, most=len(edition.lessons)),
    ]
    days = sorted(each.date for each in edition.solved)
    if days and days[0] != days[-1]:
        first, last = words.date(days[0]), words.date(days[-1])
        parts.append(words.between.format(first=first, last=last))
    return f"""<section>
<h2>{html.escape(edition.title)}</h2>
<p class="sum">{html.escape(" · ".join(parts))}</p>
<table>
<thead><tr><th scope="col">{words.lesson}</th><th scope="col">{words.solved}</th>
<th scope="col">{words.last}</th></tr></thead>
<tbody>
{"".join(_row(each, words) for each in edition.lessons)}</tbody>
</table>
</section>
"""


def _row(lesson: Lesson, words: Words) -> str:
    marks = "".join(_mark(n, n in lesson.solved, words) for n in lesson.exercises)
    days = sorted(each.date for each in lesson.solved.values())
    last = words.date(days[-1]) if days else ""
    return (
        f'<tr><th scope="row"><b>{lesson.number}</b>{html.escape(lesson.title)}</th>'
        f"<td><ul>{marks}</ul></td><td>{html.escape(last)}</td></tr>\n"
    )


def _mark(number: str, done: bool, words: Words) -> str:
    state, kind = (words.yes, ' class="done"') if done else (words.no, "")
    short = number.partition(".")[2]
    return (
        f'<li{kind} title="{number}: {state}"><span aria-hidden="true">{short}</span>'
        f'<span class="unseen">{number}: {state}</span></li>'
    )
