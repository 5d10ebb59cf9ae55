"""The controls of the pages: native form controls with labels."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from d2l_gpu.vgpu.sim.play import AUTOMATIC, MOST
from d2l_gpu.vgpu.sim.words import shown
from tools.site.terms import anchor

TERMS = {
    "pipeline": "pipeline parallelism",
    "tensor": "tensor parallelism",
    "shards": "FSDP",
    "replicas": "HSDP",
    "microbatches": "microbatch",
    "checkpoint": "activation checkpointing",
    "zero": "ZeRO",
    "schedule": "1F1B",
    "stages": "interleaved schedule",
}
"""The glossary's terms for settings of a plan."""

USUAL = ("link", "network")
"""Settings whose usual value depends on the GPU."""

_GPUS = (1, 2, 4, 8, 16, 72)
_CARDS = (1, 2, 4, 8)
_TENSOR = (1, 2, 4, 8)
_POWERS = [2**n for n in range(10)]
# Numbers that divide the layers of the recorded models.
_STAGES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 32)
# More than models say, because microbatches divide a batch.
_MORE_BATCHES = (64, 128, 256, 512)


@dataclass(frozen=True)
class Field:
    """A control.

    Attributes:
        name: of the setting's key.
        label: beside the control.
        options: values, None for what's usual, with their texts.
        when: on what the control depends; empty if it's always there. It's there when
            one of these conditions holds, which are separated by spaces: a setting is
            more than 1 (``gpus>1``), or has a value (``kind=plans``).
        wide: whether it takes a whole line.
        most: of a number that may be any from 1 on, for which the options are only
            suggestions; 0 if there's only what the options say.
        help: what it means, and a link with more, as HTML; empty if that's clear.
    """

    name: str
    label: str
    options: Sequence[tuple[Any, str]]
    when: str = ""
    wide: bool = False
    most: int = 0
    help: str = ""

    def html(self, setting: Mapping[str, Any]) -> str:
        """Return the control with the setting's value chosen."""
        chosen = setting.get(self.name)
        numbers = any(isinstance(value, int) for value, _ in self.options)
        options = "".join(
            f'<option value="{"" if value is None else html.escape(str(value))}"'
            f"{' selected' if value == chosen else ''}>{html.escape(text)}</option>"
            for value, text in self.options
        )
        hidden = "" if holds(self.when, setting) else " hidden"
        about = f'id="{self.name}" name="{self.name}" autocomplete="off"'
        if self.help:
            about += f' aria-describedby="{self.name}-help"'
        if self.most:
            control = (
                f'<input type="number" {about} min="1" max="{self.most}" '
                f'value="{chosen}" list="{self.name}-list" required data-number>'
                f'<datalist id="{self.name}-list">{options}</datalist>'
            )
        else:
            number = " data-number" if numbers else ""
            control = f"<select {about}{number}>{options}</select>"
        return (
            f'<div class="field{" wide" if self.wide else ""}" '
            f'data-when="{html.escape(self.when)}"{hidden}>'
            f'<label for="{self.name}">{html.escape(self.label)}</label>{control}</div>'
        )


def holds(when: str, setting: Mapping[str, Any]) -> bool:
    """Return whether one of the conditions holds, or there are none."""
    for condition in when.split():
        name, equal, value = condition.partition("=")
        if equal and str(setting.get(name)) == value:
            return True
        name, more, _ = condition.partition(">")
        if more and (setting.get(name) or 0) > 1:
            return True
    return not when


def fieldset(
    title: str,
    fields: Iterable[Field],
    setting: Mapping[str, Any],
    when: str = "",
    explain: str = "",
) -> str:
    """Return controls that belong together, and what they mean under ``explain``."""
    hidden = "" if holds(when, setting) else " hidden"
    fields = list(fields)
    return (
        f'<fieldset data-when="{html.escape(when)}"{hidden}>'
        f"<legend>{html.escape(title)}</legend>"
        f"{''.join(field.html(setting) for field in fields)}"
        f"{_explained(fields, explain)}</fieldset>"
    )


def _explained(fields: Iterable[Field], summary: str) -> str:
    """Return what the fields mean, folded; nothing if that's clear of all of them."""
    entries = "".join(
        f'<dt>{html.escape(field.label)}</dt><dd id="{field.name}-help">{field.help}'
        "</dd>"
        for field in fields
        if field.help
    )
    if not entries:
        return ""
    return (
        f'<details class="help"><summary>{html.escape(summary)}</summary>'
        f"<dl>{entries}</dl></details>"
    )


def training(
    choices: Mapping, setting: Mapping, its: Mapping[str, str], glossary: str
) -> str:
    """Return the controls of a setting.

    Args:
        choices: what there is to choose from, as ``play.choices`` returns it.
        setting: what's chosen, with the ``kind`` of its model.
        its: the texts of the page.
        glossary: the address of the page that explains terms, empty if there's none.
    """
    about = next(x for x in choices["models"] if x["name"] == setting["model"])
    gpu = next(x for x in choices["gpus"] if x["name"] == setting["gpu"])
    links, networks = _named(choices["links"], its), _named(choices["networks"], its)
    cards = [(None, its["cards_usual"])]
    usual = {key: [(None, its["usual"].format(name=gpu[key]))] for key in USUAL}
    precisions = [x for x in about["precisions"] if x in gpu["precisions"]]
    batch = its["batch" if about["unit"] == "images" else "sequences"]
    model = [
        Field("model", its["model"], _named(choices["models"], its), wide=True),
        Field("batch", batch, _same(batches(about))),
        Field("precision", its["precision"], _same(precisions)),
    ]
    machine = [
        Field("gpu", its["gpu"], _named(choices["gpus"], its), wide=True),
        Field("gpus", its["gpus"], _same(_GPUS), most=MOST["gpus"]),
        Field("nodes", its["nodes"], _same(_POWERS)),
        Field("link", its["link"], usual["link"] + links, "gpus>1", True),
        Field("network", its["network"], usual["network"] + networks, "nodes>1", True),
        Field("cards", its["cards"], cards + _same(_CARDS), "nodes>1", True),
        Field(
            "algorithm",
            its["algorithm"],
            [
                (x, its["automatic"] if x == AUTOMATIC else x)
                for x in choices["algorithms"]
            ],
            "gpus>1 nodes>1",
            wide=True,
        ),
    ]
    rest = [(None, its["rest"])]
    divided = [
        Field("pipeline", its["pipeline"], _same(_STAGES)),
        Field("tensor", its["tensor"], _same(about.get("tensor", _TENSOR))),
        Field("shards", its["shards"], rest + _same(_POWERS)),
        Field("replicas", its["replicas"], _same(_POWERS)),
        *_rest({**choices, **about}, its, MOST["microbatches"]),
    ]
    return (
        fieldset(its["fields_model"], model, setting)
        + fieldset(its["fields_machine"], machine, setting)
        + fieldset(
            *(its["fields_plan"], _helped(divided, its, glossary), setting),
            *("kind=plans", its["help"]),
        )
    )


def planning(
    choices: Mapping, plan: Mapping, its: Mapping[str, str], glossary: str
) -> str:
    """Return the controls of a plan for the puzzle; see ``training``."""
    divided = [
        Field("pipeline", its["pipeline"], _same(_STAGES)),
        Field("tensor", its["tensor"], _same(_TENSOR)),
        Field("shards", its["shards"], _same([*_POWERS, 1024])),
        Field("replicas", its["replicas"], _same(_POWERS)),
        Field("sequences", its["sequences_plan"], _same(_POWERS[:7])),
        *_rest(choices, its),
    ]
    fields = _helped(divided, its, glossary)
    return fieldset(its["plan"], fields, plan, explain=its["help"])


def _helped(
    fields: Iterable[Field], its: Mapping[str, str], glossary: str
) -> list[Field]:
    """Return fields with what they mean."""
    found = []
    for field in fields:
        text, term = html.escape(its[f"help_{field.name}"]), TERMS.get(field.name)
        if glossary and term:
            more = html.escape(its["help_more"].format(term=term))
            text += f' <a href="{glossary}#{anchor(term)}">{more}</a>'
        found.append(replace(field, help=text))
    return found


def _rest(
    choices: Mapping, its: Mapping[str, str], most: int = max(_POWERS)
) -> list[Field]:
    """Return the controls that both pages have, with so many microbatches at most."""
    parts = [n for n in _POWERS if n <= most]
    return [
        Field("microbatches", its["microbatches"], _same(parts)),
        Field("checkpoint", its["checkpoint"], _same(choices["checkpoints"])),
        Field("zero", its["zero"], _same(choices["zero"])),
        Field("schedule", its["schedule"], _same(choices["schedules"]), "pipeline>1"),
        Field("stages", its["stages"], _same(_STAGES[1:]), "schedule=interleaved"),
    ]


def batches(about: Mapping) -> list[int]:
    """Return the batches to choose from for a model."""
    more = _MORE_BATCHES if about["kind"] == "plans" else ()
    return sorted({*about["batches"], *more})


def _named(entries: Iterable[Mapping], its: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the name and the title of each, such as ``V100, 16.00 GiB``."""
    found = []
    for each in entries:
        title, _, more = each["title"].partition(", ")
        if each["name"] == "ResNet-18":  # the one that isn't torchvision's
            title = its["resnet18"]
        found.append((each["name"], f"{title}, {shown(more)}"))
    return found


def _same(values: Iterable) -> list[tuple[Any, str]]:
    return [(value, str(value)) for value in values]
