"""What the simulator says, as HTML."""

import html
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from d2l_gpu.vgpu.sim.drawing import COLOURS, EDGES, OTHERS, number
from d2l_gpu.vgpu.sim.expected import RECORDED
from d2l_gpu.vgpu.sim.plans import Plan
from d2l_gpu.vgpu.sim.play import choices
from d2l_gpu.vgpu.sim.puzzle import ENOUGH
from d2l_gpu.vgpu.sim.puzzle_map import svg as puzzle_map
from d2l_gpu.vgpu.sim.units import size_text, time_text
from d2l_gpu.vgpu.sim.words import shown

if TYPE_CHECKING:
    from d2l_gpu.vgpu.sim.puzzle import Level, Score

PICO = 10**12

# In whose colour something is drawn: as in the pictures of memory and in timelines.
_KINDS = {
    "parameters": "host",
    "gradients": "communicate",
    "optimizer state": "copy",
    "activations": "compute",
    "temporary": "wait",
    "buffers": "reference",
    "computing": "compute",
    "the pipeline": "wait",
    "gathering parameters": "communicate",
    "the optimizer": "copy",
    "issuing work on the host": "host",
}
# What expected.RECORDED calls the work of each kind of model.
_WORK = {"replicas": "convolutions", "plans": "products"}
# A smaller share would be shown as 0.0%.
_SMALL = 0.0005
# A part of a bar that is narrower can't be seen.
_NARROW = 0.002


def first_plan(level: "Level") -> Plan:
    """Return the plan that a level begins with.

    It's the published one, or FSDP over all GPUs with full checkpointing; if there are
    more GPUs than sequences, those that have to share each layer do.
    """
    if level.published is not None:
        return level.published.plan
    gpus = level.machine.world_size
    tensor = max(1, gpus // level.batch)
    shards = gpus // tensor
    return Plan(
        tensor=tensor,
        shards=shards,
        sequences=level.batch // shards,
        checkpoint="full",
    )


class Part(NamedTuple):
    """Of a bar."""

    name: str
    share: float
    text: str


class Show:
    """Writes results in the words of a language.

    Attributes:
        words: the texts, by what they are for.
    """

    def __init__(self, words: Mapping[str, str]):
        self.words = words
        self._models = {each["name"]: each for each in choices()["models"]}

    def unit(self, model: str) -> str:
        """Return what a model trains on: ``"images"`` or ``"tokens"``."""
        return self._models[model]["unit"]

    # -------------------------------------------------------------- training

    def result(self, result: Mapping) -> dict[str, str]:
        """Return a result of ``play`` as the HTML of each part of the page."""
        return {
            "headline": self._headline(result),
            "limits": self._limits(result),
            "memory": self._memory(result),
            "memory_picture": self._memory_picture(result),
            "timeline": result["timeline"],
            "published": self._published(result),
            "code": _code(result),
        }

    def sentence(self, result: Mapping) -> str:
        """Return a result in a sentence or two."""
        its, setting = self.words, result["setting"]
        return its["said"].format(
            model=setting["model"],
            machine=shown(result["machine"]),
            precision=setting["precision"],
            batch=self._batch(setting),
            time=shown(time_text(result["picoseconds"] / PICO)),
            rate=shown(number(result["rate"], 4)),
            unit=shown(result["unit"]),
            memory=self._room(result),
        )

    def _batch(self, setting: Mapping) -> str:
        n, size = setting["batch"], self._models[setting["model"]]["size"]
        if self.unit(setting["model"]) == "images":
            return self.words["said_images"].format(n=n, size=size)
        key = "said_one_sequence" if n == 1 else "said_sequences"
        return self.words[key].format(n=n, size=size)

    def _room(self, result: Mapping) -> str:
        """Return whether there's enough memory, in a sentence."""
        allocated, capacity = result["allocated"], result["capacity"]
        if not result["fits"]:
            missing = shown(size_text(allocated - capacity))
            return self.words["too_much"].format(missing=missing)
        return self.words["fits"].format(
            allocated=shown(size_text(allocated)),
            capacity=shown(size_text(capacity)),
        )

    def _headline(self, result: Mapping) -> str:
        its, fits = self.words, result["fits"]
        rate = f"rate_{self.unit(result['setting']['model'])}"
        unless = "" if fits else its["if_fitted"]
        figures = [
            (its["step"], time_text(result["picoseconds"] / PICO), unless, ""),
            (its[rate], number(result["rate"], 4), unless, ""),
            (
                its["memory"],
                size_text(result["allocated"]),
                its["of_capacity"].format(
                    capacity=shown(size_text(result["capacity"]))
                ),
                "" if fits else "bad",
            ),
        ]
        picoseconds = f'data-picoseconds="{result["picoseconds"]}"'
        return f'<dl class="figures" {picoseconds}>{_figures(figures)}</dl>'

    def _limits(self, result: Mapping) -> str:
        parts = [
            Part(each["name"], each["share"], f"{each['share']:.1%}")
            for each in sorted(result["spent"], key=lambda x: -x["share"])
            if each["share"] >= _SMALL
        ]
        its = self.words
        heads = (its["spent"], its["share"])
        return (
            f'<p class="finding">{html.escape(shown(result["limit"]))}</p>'
            f"{_bar(parts)}{_key(parts, heads)}"
        )

    def _memory(self, result: Mapping) -> str:
        its, capacity = self.words, result["capacity"]
        # A bar is as long as what there is or what is needed, whichever is more.
        scale = max(capacity, result["allocated"])
        parts = [
            Part(each["category"], each["bytes"] / scale, size_text(each["bytes"]))
            for each in result["memory"]
            if each["bytes"]
        ]
        mood = "" if result["fits"] else " bad"
        room = html.escape(self._room(result))
        text = f'<p class="finding{mood}">{room}</p>'
        if result["reason"]:
            text += f"<p>{html.escape(shown(result['reason']))}</p>"
        if not result["fits"]:
            hint = html.escape(shown(result["hint"]))
            if self.unit(result["setting"]["model"]) == "tokens":
                hint += f" {marked(its['more_hints'])}"
            text += f"<p>{hint}</p>" if hint else ""
        text += _bar(parts, capacity / scale, size_text(capacity))
        return text + _key(parts, (its["category"], its["size"]))

    def _memory_picture(self, result: Mapping) -> str:
        """Return the memory over time, or nothing if there's no picture of it."""
        if not result["memory_picture"]:
            return ""
        its = self.words
        return (
            f"<h2>{html.escape(its['memory_picture'])}</h2>"
            f"<p>{html.escape(its['memory_picture_lead'])}</p>"
            f'<div class="scroll picture" tabindex="0" role="region" '
            f'aria-label="{html.escape(its["memory_picture"])}">'
            f"{result['memory_picture']}</div>"
        )

    def _published(self, result: Mapping) -> str:
        its = self.words
        rows = [self._measured(each) for each in result["published"]]
        if rows:
            heads = (
                *(its["published_work"], its["published_step"]),
                *(its["published_error"], its["published_source"]),
            )
            text = _table(heads, rows)
        else:
            text = f"<p>{html.escape(its['published_none'])}</p>"
        return f'{text}<p class="trust">{html.escape(self._trust(result["setting"]))}'

    def _measured(self, found: Mapping) -> list[str]:
        its, error = self.words, found["error"]
        way = its["faster" if error > 0 else "slower"]
        how = f", {found['how']}" if found["how"] else ""
        batch = shown(number(found["batch"]))
        return [
            its["year"].format(**{**found, "batch": batch, "how": how}),
            shown(time_text(found["seconds"])),
            way.format(percent=shown(f"{abs(error):.1%}")),
            found["source"],
        ]

    def _trust(self, setting: Mapping) -> str:
        work = _WORK[self._models[setting["model"]]["kind"]]
        precision = setting["precision"]
        errors = {
            kind: found for (what, kind), found in RECORDED.items() if what == work
        }
        if precision not in errors:
            return self.words["trust_others"].format(precision=precision)
        found = errors[precision]
        text = self.words["trust"].format(
            runs=found.runs,
            precision=precision,
            gpus=", ".join(found.gpus),
            median=shown(f"{found.median:.0%}"),
            largest=shown(f"{found.largest:.0%}"),
        )
        if setting["gpu"].partition(" ")[0] not in found.gpus:
            text += " " + self.words["trust_elsewhere"].format(gpu=setting["gpu"])
        return text

    # -------------------------------------------------------------- the puzzle

    def verdict(self, score: "Score") -> str:
        """Return whether a plan solves its level, in a few words."""
        if score.plan == first_plan(score.level):
            return self.words["start_plan"]
        if not score.outcome.fits:
            return self.words["does_not_fit"]
        return self.words["solved" if score.solved else "not_solved"]

    def scored(self, score: "Score") -> str:
        """Return how fast a plan is beside others, in a sentence."""
        if score.ties:
            speed = shown(number(score.outcome.tokens_per_second, 6))
            return self.words["score_ties"].format(speed=speed)
        return shown(score.sentence.removesuffix(".") + ".")

    def score(self, score: "Score") -> dict[str, str]:
        """Return the score of a plan as the HTML of each part of the page."""
        return {
            "verdict": self._verdict(score),
            "map_lead": self._grid(score.level),
            "map": puzzle_map(score.level, score),
            "details": self._details(score),
            "code": _puzzle_code(score),
        }

    def _grid(self, level: "Level") -> str:
        """Return what the grid of a level is, in a sentence or two."""
        plans, fitting = len(level.neighbours), len(level.fitting)
        text = self.words["map_lead"].format(
            plans=shown(f"{plans:,}"), fitting=shown(f"{fitting:,}")
        )
        return html.escape(text)

    def _verdict(self, score: "Score") -> str:
        its, outcome = self.words, score.outcome
        capacity = shown(size_text(score.level.machine.capacity))
        room = its["of_capacity"].format(capacity=capacity)
        allocated = size_text(outcome.allocated)
        fits = outcome.fits
        figures = [(its["memory"], allocated, room, "" if fits else "bad")]
        if fits:
            figures = [
                (its["reached"], score.percent(), "", "good" if score.solved else ""),
                (its["step"], time_text(outcome.seconds), "", ""),
                *figures,
                (its["mfu"], f"{outcome.mfu:.1%}", "", ""),
            ]
        mood = "good" if score.solved else "" if fits else "bad"
        limits = f"<p>{html.escape(shown(outcome.limits))}</p>" if fits else ""
        enough = its["solved_from"].format(enough=shown(f"{ENOUGH:.0%}"))
        return (
            f'<p class="finding"><strong class="{mood}">'
            f"{html.escape(self.verdict(score))}</strong> "
            f"{html.escape(self.scored(score))}</p>"
            f"{limits}"
            f'<dl class="figures">{_figures(figures)}</dl>'
            f'<p class="note">{html.escape(enough)}</p>'
        )

    def _details(self, score: "Score") -> str:
        outcome, its = score.outcome, self.words
        tables = [(its["details_memory"], outcome.memories())]
        if outcome.fits:
            tables.insert(0, (its["details_times"], outcome.times()))
        return "".join(
            f"<h3>{html.escape(title)}</h3>"
            f'<div class="scroll" tabindex="0" role="group" '
            f'aria-label="{html.escape(title)}">{table._repr_html_()}</div>'
            for title, table in tables
        )


def _figures(figures: Iterable[tuple[str, str, str, str]]) -> str:
    """Return terms, values, what is said about them and classes as a list."""
    return "".join(
        f'<div class="{mood}"><dt>{html.escape(term)}</dt>'
        f"<dd>{html.escape(shown(value))}"
        + (f" <small>{html.escape(more)}</small>" if more else "")
        + "</dd></div>"
        for term, value, more, mood in figures
    )


def _looks(parts: Sequence[Part]) -> dict[str, str]:
    """Return the style of each part by its name."""
    found, others = {}, itertools.cycle(OTHERS[1:])
    for part in parts:
        kind = _KINDS.get(part.name)
        edge = f";box-shadow:inset 0 0 0 1px {EDGES[kind]}" if kind in EDGES else ""
        found[part.name] = f"background:{COLOURS.get(kind) or next(others)}{edge}"
    return found


def _bar(parts: Sequence[Part], capacity: float = 1.0, label: str = "") -> str:
    """Return parts beside each other; a mark is at the capacity if they exceed it."""
    looks = _looks(parts)
    boxes = "".join(
        f'<span style="width:{100 * part.share:.2f}%;{looks[part.name]}"></span>'
        for part in parts
        if part.share >= _NARROW
    )
    mark = ""
    if capacity < 1:
        side = "left" if capacity < 0.5 else "right"
        text = html.escape(shown(label))
        mark = f'<i style="left:{100 * capacity:.2f}%"><b class="{side}">{text}</b></i>'
    # The key below says the same in words.
    return f'<div class="bar" aria-hidden="true">{boxes}{mark}</div>'


def _key(parts: Sequence[Part], heads: tuple[str, str]) -> str:
    looks = _looks(parts)
    rows = "".join(
        f'<tr><th scope="row"><i class="swatch" style="{looks[part.name]}"></i>'
        f"{html.escape(shown(part.name))}</th><td>{html.escape(shown(part.text))}</td></tr>"
        for part in parts
    )
    head = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in heads)
    return (
        f'<table class="key"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def marked(text: str) -> str:
    """Return a text with links and code, as Markdown writes them, in HTML."""
    text = re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))
    return re.sub(r"\[([^]]+)\]\(([^)\s]+)\)", r'<a href="\2">\1</a>', text)


def _linked(text: str) -> str:
    """Return a text, whose addresses are links, in HTML."""
    return re.sub(r"(https://[^\s<]+)", r'<a href="\1">\1</a>', html.escape(text))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{_linked(text)}</td>" for text in row) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _python(value: Mapping) -> str:
    lines = (f"    {json.dumps(key)}: {item!r}," for key, item in value.items())
    return "{\n" + "\n".join(lines).replace("'", '"') + "\n}"


def _code(result: Mapping) -> str:
    text = (
        "from d2l_gpu.vgpu.sim.play import play\n\n"
        f"result = play({_python(result['setting'])})\n"
        f'result["picoseconds"]  # {result["picoseconds"]}\n'
    )
    return f'<pre tabindex="0"><code>{html.escape(text)}</code></pre>'


def _puzzle_code(score: "Score") -> str:
    text = (
        "from d2l_gpu.vgpu.sim.plans import Plan\n"
        "from d2l_gpu.vgpu.sim.puzzle import level\n\n"
        f"plan = {score.plan}\n"
        f'print(level("{score.level.number}").score(plan))\n'
    )
    return f'<pre tabindex="0"><code>{html.escape(text)}</code></pre>'
