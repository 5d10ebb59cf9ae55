"""The controls of the pages: native form controls with labels."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from d2l_gpu.vgpu.sim.play import AUTOMATIC

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
    """

    name: str
    label: str
    options: Sequence[tuple[Any, str]]
    when: str = ""
    wide: bool = False

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
        return (
            f'<div class="field{" wide" if self.wide else ""}" '
            f'data-when="{html.escape(self.when)}"{hidden}>'
            f'<label for="{self.name}">{html.escape(self.label)}</label>'
            f'<select id="{self.name}" name="{self.name}" autocomplete="off"'
            f"{' data-number' if numbers else ''}>{options}</select></div>"
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
    title: str, fields: Iterable[Field], setting: Mapping[str, Any], when: str = ""
) -> str:
    """Return controls that belong together."""
    hidden = "" if holds(when, setting) else " hidden"
    return (
        f'<fieldset data-when="{html.escape(when)}"{hidden}>'
        f"<legend>{html.escape(title)}</legend>"
        f"{''.join(field.html(setting) for field in fields)}</fieldset>"
    )


def training(choices: Mapping, setting: Mapping, its: Mapping[str, str]) -> str:
    """Return the controls of a setting.

    Args:
        choices: what there is to choose from, as ``play.choices`` returns it.
        setting: what's chosen, with the ``kind`` of its model.
        its: the texts of the page.
    """
    about = next(x for x in choices["models"] if x["name"] == setting["model"])
    gpu = next(x for x in choices["gpus"] if x["name"] == setting["gpu"])
    networks = _named(choices["networks"])
    usual = [(None, its["usual"])]
    precisions = [x for x in about["precisions"] if x in gpu["precisions"]]
    batch = its["batch" if about["unit"] == "images" else "sequences"]
    model = [
        Field("model", its["model"], _named(choices["models"], "name"), wide=True),
        Field("batch", batch, _same(batches(about))),
        Field("precision", its["precision"], _same(precisions)),
    ]
    machine = [
        Field("gpu", its["gpu"], _named(choices["gpus"]), wide=True),
        Field("gpus", its["gpus"], _same([1, 2, 4, 8, 16, 72])),
        Field("nodes", its["nodes"], _same(_POWERS)),
        Field("link", its["link"], usual + _named(choices["links"]), "gpus>1", True),
        Field("network", its["network"], usual + networks, "nodes>1", True),
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
        Field("tensor", its["tensor"], _same(about.get("tensor", _TENSOR))),
        Field("pipeline", its["pipeline"], _same(_STAGES)),
        Field("shards", its["shards"], rest + _same(_POWERS)),
        Field("replicas", its["replicas"], _same(_POWERS)),
        *_rest({**choices, **about}, its),
    ]
    return (
        fieldset(its["fields_model"], model, setting)
        + fieldset(its["fields_machine"], machine, setting)
        + fieldset(its["fields_plan"], divided, setting, "kind=plans")
    )


def planning(choices: Mapping, plan: Mapping, its: Mapping[str, str]) -> str:
    """Return the controls of a plan for the puzzle."""
    divided = [
        Field("tensor", its["tensor"], _same(_TENSOR)),
        Field("pipeline", its["pipeline"], _same(_STAGES)),
        Field("shards", its["shards"], _same([*_POWERS, 1024])),
        Field("replicas", its["replicas"], _same(_POWERS)),
        Field("sequences", its["sequences_plan"], _same(_POWERS[:7])),
        *_rest(choices, its),
    ]
    return fieldset(its["plan"], divided, plan)


def _rest(choices: Mapping, its: Mapping[str, str]) -> list[Field]:
    """Return the controls that both pages have."""
    return [
        Field("microbatches", its["microbatches"], _same(_POWERS)),
        Field("checkpoint", its["checkpoint"], _same(choices["checkpoints"])),
        Field("zero", its["zero"], _same(choices["zero"])),
        Field("schedule", its["schedule"], _same(choices["schedules"]), "pipeline>1"),
        Field("stages", its["stages"], _same(_STAGES[1:]), "schedule=interleaved"),
    ]


def batches(about: Mapping) -> list[int]:
    """Return the batches to choose from for a model."""
    more = _MORE_BATCHES if about["kind"] == "plans" else ()
    return sorted({*about["batches"], *more})


def _named(entries: Iterable[Mapping], title: str = "title") -> list[tuple[str, str]]:
    return [(each["name"], each[title]) for each in entries]


def _same(values: Iterable) -> list[tuple[Any, str]]:
    return [(value, str(value)) for value in values]
