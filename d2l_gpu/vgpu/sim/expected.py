"""How far the clock was off on runs that others published, by kind of work.

``python benchmarks/published.py --tables`` writes the figures, in ``published.py``. A
report ends with those of the work that it saw most of.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from . import published
from .catalogue import Model
from .clock import Part

# The share of its time that a run must spend on products to be like those published.
LEAST = 0.1


class Expected(NamedTuple):
    """The errors of the published runs with one kind of work.

    Attributes:
        work: ``"convolutions"`` or ``"products"``.
        kind: the type of their numbers, as in ``Model.rate``.
        runs: how many there are.
        median, largest: of the relative errors of the speed, without their signs.
        gpus: on which GPUs they were.
    """

    work: str
    kind: str
    runs: int
    median: float
    largest: float
    gpus: tuple[str, ...]

    def told(self, models: Iterable[Model]) -> str:
        """Return the errors in a sentence, for work on these models of GPUs."""
        runs = f"{self.runs} published runs" if self.runs > 1 else "one published run"
        where = " and ".join(self.gpus)
        names = {model.name: model.name.partition(" ")[0] for model in models}
        if others := [name for name, short in names.items() if short not in self.gpus]:
            where += f", none on {' or '.join(others)}"
        return (
            f"The clock was off by {self.median:.0%} in the median, at most "
            f"{self.largest:.0%}, on {runs} of {self.work} in {self.kind} ({where})."
        )


class Run(NamedTuple):
    """A training run that others have timed and published.

    Attributes:
        network: what is trained, such as ``"BERT-large"``.
        gpu: the model of the GPUs.
        gpus: how many there are.
        kind: the type of their numbers, as in ``Model.rate``.
        year: of the software.
        seconds: how long a step took, as published.
        error: the relative error of the simulated speed, positive where the simulation
            is too fast.
        batch: of each GPU, in one forward.
        how: what else was different from other runs, in words.
        source: who published it, and where.
    """

    network: str
    gpu: str
    gpus: int
    kind: str
    year: int
    seconds: float
    error: float
    batch: float
    how: str
    source: str


RUNS = [
    Run(*each, batch, how, published.SOURCES[source])
    for each, (batch, how, source) in zip(
        published.RUNS, published.CONDITIONS, strict=True
    )
]
RECORDED = {each[:2]: Expected(*each) for each in published.ERRORS}


def sentence(used: Iterable[tuple[Part, Model, float]]) -> str:
    """Return what error to expect.

    Args:
        used: kernels, each with its device's model and the seconds that it took in all.
    """
    total = 0.0
    times: Counter[tuple[str, str]] = Counter()
    models: dict[tuple[str, str], dict[str, Model]] = {}
    for part, model, seconds in used:
        total += seconds
        if part.product is not None:
            named = part.algorithm.startswith(("convolution", "Winograd"))
            # What may run as TF32 is fp32 on units that don't have it.
            plain = part.kind == "tf32" and not (
                part.tensor and part.kind in model.tensor_rates
            )
            kind = "fp32" if plain else part.kind
            what = "convolutions" if named else "products", kind
            times[what] += seconds
            models.setdefault(what, {})[model.name] = model
    work, kind = max(times, key=times.__getitem__, default=("", ""))
    if times[work, kind] < LEAST * total or not total:
        return (
            "No published run has mostly such work, so the clock's error isn't known."
        )
    if (work, kind) in RECORDED:
        return RECORDED[work, kind].told(models[work, kind].values())
    return f"No published run of {work} in {kind} was compared: the error isn't known."
