"""Graders for the exercises on models (lesson 04) that several frameworks share."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from d2l_gpu.exercises.crossing import HOST, Crossing, Port
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run, given

OPTIMIZERS = ("sgd", "momentum", "adam")
UNITS = (784, 256, 10)  # layer sizes of the network in 04.1
FLOAT = 4  # bytes


class Models(ABC):
    """Builds and trains a framework's models for the graders.

    Args:
        port: the framework's tensors and copies.
    """

    def __init__(self, port: Port):
        self.port = port

    @abstractmethod
    def training_bytes(self, optimizer: str) -> int:
        """Train a network with `UNITS` for one step; return the total size in bytes of
        its parameters, gradients and optimizer state."""

    @abstractmethod
    def whole(self, device: Any) -> Any:
        """Return a model with several parameters, all on one device."""

    @abstractmethod
    def spread(self, first: Any, second: Any) -> Mapping[str, Any]:
        """Return models whose parameters are spread over two GPUs, by description.

        The first has only its first layer on the first GPU.
        """

    @abstractmethod
    def weight(self, values: np.ndarray, device: Any) -> Any:
        """Return parameters on a GPU."""

    def exchanged(
        self, answer: Callable, weight: Any, i: int, j: int, value: float
    ) -> tuple[Any, Any]:
        """Have the answer replace element (i, j) of a weight by `value`; return what it
        returns as the old element, and the weight afterwards."""
        return answer(weight, i, j, value), weight

    @abstractmethod
    def layers(
        self, parameters: Sequence[tuple[np.ndarray, np.ndarray]], devices: Sequence
    ) -> list:
        """Return linear layers, each on its device.

        Args:
            parameters: each layer's weight (inputs, outputs) and bias (outputs,).
            devices: as many.
        """

    @abstractmethod
    def gradients(
        self, answer: Callable, layers: list, devices: Sequence, X: Any
    ) -> list:
        """Return the gradient of the sum of all outputs for each layer's weight, of
        shape (inputs, outputs); None if it has none."""


def memory(models: Models, answer: Mapping):
    right = {optimizer: models.training_bytes(optimizer) for optimizer in OPTIMIZERS}
    given = {name: answer.get(name) for name in OPTIMIZERS}
    numbers = all(isinstance(value, Real) for value in given.values())
    yield Claim(
        "there's a number for each of the three",
        numbers and set(answer) == set(OPTIMIZERS),
        f"The keys must be {', '.join(map(repr, OPTIMIZERS))}, and the values numbers.",
    )
    if not numbers:
        return
    weights = FLOAT * sum(a * b for a, b in itertools.pairwise(UNITS))
    parameters = weights + FLOAT * sum(UNITS[1:])
    for name, what in (
        ("sgd", "without momentum"),
        ("momentum", "with momentum"),
        ("adam", "with Adam"),
    ):
        value, wanted = given[name], right[name]
        more = "more" if value < wanted else "less"
        hint = f"You say {value:,} bytes, but it's {more}."
        if value * FLOAT == wanted:
            hint = "That's how many numbers there are. Each takes 4 bytes."
        elif value * parameters == wanted * weights:
            hint = "The biases are parameters too."
        elif value == wanted - parameters:
            hint = (
                "Your number is too small by the size of the parameters. Training "
                "keeps gradients, and an optimizer may keep more for each parameter."
            )
        elif value == wanted + parameters:
            hint = "Your number is too large by the size of the parameters."
        yield Claim(f"the number of bytes {what} is right", value == wanted, hint)


def _homes(models: Models, answer: Callable, gpus: Gpus) -> dict:
    """Ask for the home of models on one device, and of others on two."""
    spread = models.spread(gpus[0], gpus[1])
    return {
        "whole": [_said(models, answer, gpus, models.whole(gpus[i])) for i in (0, 1)],
        "spread": {
            what: _said(models, answer, gpus, model) for what, model in spread.items()
        },
    }


def _said(models: Models, answer: Callable, gpus: Gpus, model: Any) -> dict:
    """Return what an answer returns, and which device that is, or what it raises."""
    try:
        said = answer(model)
    except Exception as error:
        return {
            "error": type(error).__name__,
            "refused": isinstance(error, ValueError),
            "text": str(error),
            "device": "",
        }
    try:
        device = gpus.called(models.port.name(said))
    except Exception:  # it's no device; frameworks raise different ones for that
        device = ""
    return {"error": "", "refused": False, "text": repr(said), "device": device}


def home(models: Models, run: Run):
    port, found = models.port, run(_homes)
    whole, spread = found["whole"], found["spread"]
    names = ["GPU 0", "GPU 1"]
    yield Claim(
        "for a model on one device, it returns the device",
        [each["device"] for each in whole] == names,
        f"For two models, on {names[0]} and on {names[1]}, you return "
        f"{_shown(whole[0])} and {_shown(whole[1])}.",
    )
    for what, said in spread.items():
        hint = f"It returned {said['text']}."
        if said["error"]:
            hint = f"It raised {said['error']}."
        elif said["device"] in names:
            hint = (
                f"It returned {said['device']}, although {what}. Which parameters "
                "did it look at?"
            )
        yield Claim(f"if {what}, it raises a ValueError", said["refused"], hint)
    errors = [said["text"] for said in spread.values() if said["refused"]]

    def named(error: str) -> bool:
        devices = [port.gpu(i) for i in (0, 1)]
        return all(port.name(x) in error or repr(x) in error for x in devices)

    yield Claim(
        "the error names both devices",
        bool(errors) and all(map(named, errors)),
        next(
            (f"Your message is {error!r}." for error in errors if not named(error)), ""
        ),
    )


def _shown(said: dict) -> str:
    return f"{said['error']}: {said['text']}" if said["error"] else said["text"]


_ROWS, _COLUMNS = 64, 32


def _exchanged(
    models: Models, answer: Callable, gpus: Gpus, i: int, j: int, value: float
) -> dict:
    port = models.port
    weight = models.weight(_numbers(), gpus[0])
    with port.watch() as copies:
        old, after = models.exchanged(answer, weight, i, j, value)
    return {
        "copies": gpus.crossings(copies),
        "old": old if isinstance(old, float) else None,
        "kind": "" if old is None else type(old).__name__,
        "new": port.values(after),
        "same array": after is weight,
        "homes": [
            " and ".join(gpus.called(name) for name in port.home(x).split(" and "))
            for x in (weight, after)
        ],
    }


def _numbers() -> np.ndarray:
    return np.arange(_ROWS * _COLUMNS, dtype=np.float32).reshape(_ROWS, _COLUMNS)


def exchange(models: Models, run: Run):
    i, j, value = 5, 7, -1.5
    found, values = run(_exchanged, i, j, value), _numbers()
    copies = [Crossing(*each) for each in found["copies"]]
    old, new = found["old"], found["new"]
    yield Claim(
        "it returns the old number, as a Python number",
        old is not None and old == values[i, j],
        _wrong_number(old, found["kind"], value),
    )
    wanted = values.copy()
    wanted[i, j] = value
    same = new.shape == wanted.shape
    yield Claim(
        "the new number is in its place",
        same and new[i, j] == value,
        f"Element ({i}, {j}) is {new[i, j]:g}, not {value}."
        if same
        else f"The shape is now {new.shape}.",
    )
    others = same and np.array_equal(
        np.delete(new, i * _COLUMNS + j), np.delete(wanted, i * _COLUMNS + j)
    )
    yield Claim(
        "no other number has changed",
        others,
        f"{int((new != wanted).sum())} numbers differ from what they should be."
        if same
        else f"The shape is now {new.shape}.",
    )
    if not found["same array"]:
        place, there = found["homes"]
        yield Claim(
            "the new array is on the same device as the old one",
            there == place,
            f"It's on {there}, but `weight` is on {place}.",
        )
    fetched = sum(copy.nbytes for copy in copies if copy.target == HOST)
    yield Claim(
        "only 4 bytes are fetched",
        fetched == FLOAT,
        f"You fetched {fetched:,} bytes: select the number on the device of the "
        "parameters.",
    )
    sent = sum(copy.nbytes for copy in copies if copy.target != HOST)
    yield Claim(
        "at most one number is sent",
        sent <= 2 * FLOAT,  # a Python float may take 8 bytes
        f"You sent {sent:,} bytes: you wrote more than the one number.",
    )


def _wrong_number(old: float | None, kind: str, new: float) -> str:
    if not kind:
        return "You return nothing."
    if old is None:
        return f"You return a {kind}, not a Python number."
    if old == new:
        return "You return the new number. Fetch the old one before you write."
    return f"You return {old:g}, which is the number at another index."


def _two_layers() -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Return the parameters of two layers, and a batch."""
    rng = np.random.default_rng(0)
    parameters = [
        (
            rng.standard_normal((inputs, outputs)).astype(np.float32),
            np.ones(outputs, np.float32),
        )
        for inputs, outputs in ((64, 16), (16, 200))
    ]
    return parameters, rng.standard_normal((32, 64)).astype(np.float32)


def _output(models: Models, answer: Callable, gpus: Gpus) -> dict:
    port, (parameters, batch) = models.port, _two_layers()
    devices = list(gpus[:2])
    layers, X = models.layers(parameters, devices), port.array(batch, devices[0])
    with port.watch() as copies:
        output = answer(layers, devices, X)
    return {
        "copies": gpus.crossings(copies),
        "home": gpus.called(port.home(output)),
        "values": port.values(output),
        "gradients": models.gradients(answer, layers, devices, X),
    }


def forward(models: Models, run: Run):
    parameters, batch = _two_layers()
    (W1, b1), (W2, b2) = parameters
    hidden = batch @ W1 + b1
    found = run(_output)
    copies = [Crossing(*each) for each in found["copies"]]
    values, wanted = found["values"], hidden @ W2 + b2
    yield Claim(
        "the outputs are those of both layers",
        values.shape == wanted.shape and np.allclose(values, wanted, atol=1e-3),
        f"Their shape is {values.shape}, but should be {wanted.shape}."
        if values.shape != wanted.shape
        else "The shape is right, but the values aren't those of both layers.",
    )
    yield Claim(
        "they're on the device of the last layer",
        found["home"] == "GPU 1",
        f"They're on {found['home']}, but the last layer is on GPU 1.",
    )
    yield Claim(
        "only the first layer's output crosses, once",
        len(copies) == 1 and copies[0].nbytes == hidden.nbytes,
        _crossed_otherwise(copies, X=batch, W1=W1, W2=W2, hidden=hidden),
    )
    ones = np.ones_like(wanted)
    right = [batch.T @ (ones @ W2.T), hidden.T @ ones]
    yield Claim(
        "each layer gets its gradient",
        all(
            each is not None and np.allclose(each, gradient, rtol=1e-3, atol=1e-2)
            for each, gradient in zip(found["gradients"], right, strict=True)
        ),
        "The gradient doesn't reach the first layer: somewhere your code took the "
        "numbers out of the framework's hands.",
    )


def _crossed_otherwise(copies: Sequence, **sizes: np.ndarray) -> str:
    crossed = sorted(copy.nbytes for copy in copies)
    if any(HOST in (copy.source, copy.target) for copy in copies):
        return (
            "Something was copied by way of the host. GPUs can copy directly to each "
            "other."
        )
    if sizes["W2"].nbytes in crossed:
        return "The parameters of the last layer crossed. Leave them where they are."
    if sizes["W1"].nbytes in crossed:
        return "The parameters of the first layer crossed. Leave them where they are."
    if crossed.count(sizes["hidden"].nbytes) > 1:
        return (
            "The first layer's output crossed "
            f"{crossed.count(sizes['hidden'].nbytes)} times."
        )
    return (
        f"{sum(crossed):,} bytes crossed, in {len(crossed)} "
        f"cop{'y' if len(crossed) == 1 else 'ies'}; the first layer's output has "
        f"{sizes['hidden'].nbytes:,} bytes."
    )


def exercises(models: Models) -> Registry:
    """Return the shared exercises of lesson 04, for one framework."""
    registry = Registry()
    registry.add("04.1", returns=dict)(given(memory, models))
    registry.add("04.2", "model")(given(home, models))
    registry.add("04.3", "weight, i, j, value", changes="weight")(
        given(exchange, models)
    )
    registry.add("04.4", "layers, devices, X", returns=models.port.tensor)(
        given(forward, models)
    )
    return registry
