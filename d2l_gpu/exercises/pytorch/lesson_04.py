"""Models on devices: parameters, optimizer state and data."""

import math
from collections.abc import Callable, Sequence
from types import GeneratorType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.gpus import HOST, Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run

EXERCISES = Registry()


# ------------------------------------------------------------------ one parameter


_ROW, _COLUMN = 3, 5


def _layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(64, 32)


def _taken_out(answer: Callable, gpus: Gpus) -> dict | None:
    """Return what became of the layer; None if autograd refused the write."""
    layer = _layer().to(gpus[0])
    weight = layer.weight
    with d2l.transfers() as log:
        try:
            value = answer(layer, _ROW, _COLUMN)
        except RuntimeError as error:
            if "leaf Variable" not in str(error):
                raise
            return None
    recording = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    return {
        "value": value,
        "recording": recording,
        "same": layer.weight is weight,
        "where": gpus.where(layer.weight),
        "weight": layer.weight.detach().cpu().numpy(),
        "bias": layer.bias.detach().cpu().numpy(),
        "trains": layer.weight.requires_grad and layer.weight.is_leaf,
        "copies": gpus.copies(log),
    }


@EXERCISES.add("04.1", "layer, i, j", returns=float, changes="layer")
def take_out(run: Run):
    layer, found = _layer(), run(_taken_out)
    before = layer.weight.detach()
    yield Claim(
        "autograd allows the write",
        found is not None,
        "To autograd, writing into a parameter is an operation like any other, and "
        "one that it can't differentiate through. Tell it not to record this one.",
    )
    if found is None:
        return
    wanted, value = float(before[_ROW, _COLUMN]), found["value"]
    hint = f"The number was {wanted:.6f}, but you returned {value:.6f}."
    if value == 0:
        hint = "You returned zero. When did you read the number?"
    elif math.isclose(value, float(before[_COLUMN, _ROW]), rel_tol=1e-6):
        hint = "You returned the number at `[j, i]`."
    yield Claim(
        "it returns the number that was at `[i, j]`",
        math.isclose(value, wanted, rel_tol=1e-6),
        hint,
    )
    yield Claim(
        "`layer.weight` is still the same parameter, on its device",
        found["same"] and found["where"] == "GPU 0",
        "It's a new parameter. An optimizer that was created with the old one won't "
        "know about it.",
    )
    after = torch.tensor(found["weight"])
    expected = before.clone()
    expected[_ROW, _COLUMN] = 0
    changed = int((after != before).sum()) if after.shape == before.shape else None
    bias = np.array_equal(found["bias"], layer.bias.detach().numpy())
    if changed is None:
        hint = f"The weight has the shape {tuple(after.shape)} now."
    elif changed:
        hint = (
            f"The weight has {changed} changed element{'s' * (changed != 1)}; only "
            "`[i, j]` should have changed, to zero."
        )
    else:
        hint = "No number has changed: you wrote into a copy."
    if not bias:
        hint = "The bias has changed too."
    yield Claim(
        "that number is now zero, and no other has changed",
        torch.equal(after, expected) and bias,
        hint,
    )
    yield Claim(
        "training can continue",
        found["recording"] and found["trains"],
        "The parameter doesn't require gradients any more."
        if found["recording"]
        else "You left autograd switched off, for every parameter.",
    )
    copies = found["copies"]
    nbytes = sum(nbytes for nbytes, *_ in copies)
    if nbytes > before.nbytes:
        hint = (
            f"{nbytes:,} bytes crossed: you fetched the whole weight and sent it back."
        )
    elif nbytes == before.nbytes:
        hint = (
            f"{nbytes:,} bytes crossed: you fetched the whole weight to read one "
            "number."
        )
    else:
        hint = (
            f"{nbytes} bytes crossed. Only one number has to reach the host. Did you "
            "send the zero from there?"
        )
    yield Claim("only 4 bytes cross, to the host", copies == [(4, "GPU 0", HOST)], hint)


# ------------------------------------------------------------------ memory

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": torch.optim.Adam,
}


@EXERCISES.add("04.2", returns=dict)
def nbytes(answer):
    right = {name: _bytes_in_training(make) for name, make in OPTIMIZERS.items()}
    whole = {name: x for name, x in answer.items() if isinstance(x, int)}
    yield Claim(
        "there's an integer number of bytes for each of the three",
        set(whole) == set(right) and len(answer) == len(right),
        f"The keys must be {', '.join(map(repr, right))}, and the values integers.",
    )
    if set(whole) != set(right):
        return
    parameters = 4 * 512 * 1024
    told = ""
    for text, mistake in {
        "You counted numbers, not bytes. How many bytes does a `float32` take?": {
            name: x // 4 for name, x in right.items()
        },
        "That's what the optimizers keep. Parameters and gradients take memory too.": {
            name: x - 2 * parameters for name, x in right.items()
        },
        "Each of the three is missing the same amount, as much as the parameters "
        "take. What does an optimizer read to decide where to go?": {
            name: x - parameters for name, x in right.items()
        },
    }.items():
        if whole == mistake:
            told = text
    for name in right:
        times = whole[name] / parameters
        yield Claim(
            f"{name}: that's how many bytes are on the GPU",
            whole[name] == right[name],
            told or _wrong_bytes(name, times, whole[name] > right[name]),
        )


def _wrong_bytes(name: str, times: float, more: bool) -> str:
    text = f"You say {times:g} times the bytes of the parameters"
    if name == "SGD":
        reason = "does it keep anything from the previous step?"
    elif name == "momentum":
        reason = "what does it keep from step to step?"
    else:
        reason = "how many averages does Adam keep for each parameter?"
    return f"{text}, which is too {'much' if more else 'little'} for {name}: {reason}"


def _bytes_in_training(make: Callable) -> int:
    gpu = d2l.gpu(0)
    before = torch.vgpu.memory_allocated(gpu)
    layer = nn.Linear(512, 1024, bias=False, device=gpu)
    optimizer = make(layer.parameters())
    layer(torch.ones(1, 512, device=gpu)).sum().backward()
    optimizer.step()
    return torch.vgpu.memory_allocated(gpu) - before


# ------------------------------------------------------------------ data on the GPU


_EXAMPLES, _EPOCHS, _BATCH = 50, 3, 8
_SIZES = _EPOCHS * [8, 8, 8, 8, 8, 8, 2]


class _HostIndices(TorchDispatchMode):
    """Notes indices on the host that select from a tensor on a GPU.

    A real GPU needs a copy of each. Virtual ones read them where they are, so the
    record of copies doesn't have them.

    Attributes:
        copies: for each index, its bytes and the tensor's device.
    """

    OPERATORS = (
        torch.ops.aten.index,
        torch.ops.aten._unsafe_index,
        torch.ops.aten.index_put,
        torch.ops.aten.index_put_,
        torch.ops.aten.index_select,
    )

    def __init__(self):
        super().__init__()
        self.copies: list[tuple[int, torch.device]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in self.OPERATORS and args[0].device.type != "cpu":
            self.copies += [
                (index.nbytes, args[0].device)
                for index in tree_leaves((args[1:], kwargs))
                if torch.is_tensor(index) and index.device.type == "cpu" and index.dim()
            ]
        return func(*args, **(kwargs or {}))


def _data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images that contain their numbers, and labels that are larger by 100."""
    X = torch.arange(float(_EXAMPLES))[:, None].repeat(1, 6)
    return X, 100 + torch.arange(_EXAMPLES)


def _given_batches(answer: Callable, gpus: Gpus) -> dict:
    X, y = _data()
    torch.manual_seed(0)
    with d2l.transfers() as log, _HostIndices() as indices:
        given = list(answer(X, y, _BATCH, _EPOCHS, gpus[1]))
    pairs = all(
        isinstance(each, list | tuple)
        and len(each) == 2
        and all(map(torch.is_tensor, each))
        for each in given
    )
    images, labels = zip(*given, strict=True) if given and pairs else ((), ())
    return {
        "number": len(given),
        "pairs": pairs,
        "images": [x.cpu().numpy() for x in images],
        "labels": [x.cpu().numpy() for x in labels],
        "images on": {gpus.where(x) for x in images},
        "labels on": {gpus.where(x) for x in labels},
        "copies": gpus.copies(log)
        + [(nbytes, HOST, gpus.name(device)) for nbytes, device in indices.copies],
    }


@EXERCISES.add(
    "04.3",
    "X, y, batch_size, epochs, device",
    returns=(GeneratorType, list, tuple),
)
def batches(run: Run):
    found, (X, y) = run(_given_batches), _data()
    yield Claim(
        "each batch is a pair of tensors, images and labels",
        found["pairs"] and found["number"] > 0,
        "You produced no batches."
        if not found["number"]
        else ("At least one batch isn't a pair of tensors."),
    )
    if not found["pairs"] or not found["number"]:
        return
    sizes = [images.shape[0] if images.shape else 0 for images in found["images"]]
    yield Claim(
        "three epochs go through the data three times, in batches of `batch_size` and "
        "one smaller batch per epoch",
        sizes == _SIZES,
        _wrong_sizes(sizes),
    )
    devices, labels_on = found["images on"], found["labels on"]
    yield Claim("the images are on `device`", devices == {"GPU 1"}, _elsewhere(devices))
    yield Claim(
        "the labels are on `device` too",
        labels_on == {"GPU 1"},
        f"{_elsewhere(labels_on)} The loss needs them on the same device as the "
        "network's output.",
    )
    if sizes != _SIZES:
        return
    shapes = {images.shape[1:] for images in found["images"]}
    lengths = [len(labels) for labels in found["labels"] if labels.ndim == 1]
    yield Claim(
        "images and labels have the shapes that they have in `X` and `y`",
        shapes == {X.shape[1:]} and lengths == sizes,
        f"An image of `X` has the shape {tuple(X.shape[1:])} and a label of `y` is one "
        f"number. The first batch has the shapes {found['images'][0].shape} and "
        f"{found['labels'][0].shape}.",
    )
    if shapes != {X.shape[1:]} or lengths != sizes:
        return
    images = np.concatenate(found["images"])
    labels = np.concatenate(found["labels"])
    numbers = images[:, 0].astype(int)
    yield Claim(
        "each image comes with its own label",
        np.array_equal(numbers + 100, labels),
        "You shuffled images and labels separately, each in a different order.",
    )
    epochs = numbers.reshape(_EPOCHS, _EXAMPLES)
    plain = list(range(_EXAMPLES))
    whole = bool((images == numbers[:, None]).all())
    once = all(sorted(epoch.tolist()) == plain for epoch in epochs)
    yield Claim(
        "each epoch has every example exactly once",
        once and whole,
        "In at least one epoch, some examples come twice and others not at all."
        if whole
        else "Some of the images have other values than in `X`.",
    )
    orders = [epoch.tolist() for epoch in epochs]
    yield Claim(
        "each epoch has a different order",
        len(set(map(tuple, orders))) == _EPOCHS and plain not in orders,
        "At least one epoch is in the order of the data set."
        if plain in orders
        else "You shuffled once and used the same order again in another epoch.",
    )
    copies, nbytes = found["copies"], X.nbytes + y.nbytes
    yield Claim(
        "only two copies cross, one for the images and one for the labels",
        len(copies) == 2 and sum(copy[0] for copy in copies) == nbytes,
        _wrong_copies(copies, nbytes),
    )


def _elsewhere(found: set[str]) -> str:
    return f"Some of them are on {', '.join(sorted(found - {'GPU 1'}))}."


def _wrong_sizes(sizes: list[int]) -> str:
    total = sum(sizes)
    if total == 50:
        return (
            "The 50 examples come once, so that's one epoch. You were asked for three."
        )
    if total == 3 * 48:
        return (
            "Each epoch has 48 of the 50 examples: the last batch, which is smaller, "
            "is missing."
        )
    return (
        f"You produced {total} examples, in {len(sizes)} batches of {min(sizes)} to "
        f"{max(sizes)}; you were asked for three times 50, in batches of 8."
    )


def _wrong_copies(copies: Sequence[tuple[int, str, str]], nbytes: int) -> str:
    crossed = sum(copy[0] for copy in copies)
    large = sum(copy[0] >= nbytes // 8 for copy in copies)
    if crossed >= _EPOCHS * nbytes:
        if len(copies) <= 2 * _EPOCHS:
            return (
                f"{len(copies)} copies were made: you sent the data set again in each "
                "epoch."
            )
        return f"{len(copies)} copies were made: you sent each batch separately."
    if any(target == HOST for *_, target in copies):
        return "Something was fetched to the host, which doesn't need it."
    return (
        f"{len(copies)} copies were made, {len(copies) - large} of them small: you "
        "sent the data set only once, but the order of its examples followed from the "
        "host."
    )


# ------------------------------------------------------------------ two devices


def _network() -> tuple[nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))
    return net, torch.randn(16, 20)


def _divided(answer: Callable, gpus: Gpus) -> dict:
    """Return where the layers are, what crossed, and the output and gradients.

    The output is empty if a layer got its input from the other device.
    """
    (net, X), devices = _network(), list(gpus[:2])
    parameters = list(net.parameters())
    model = answer(net, devices)
    found = {
        "its": len(list(model.parameters())),
        "same": {id(p) for p in model.parameters()} == {id(p) for p in parameters},
        "homes": [gpus.where(p) for p in parameters],
        "output": None,
        "gradients": [],
    }
    if not _apart(found["homes"]):
        return found
    X = X.to(devices[0])
    with d2l.transfers() as log:
        try:
            output = model(X)
        except RuntimeError as error:
            if "on the same device" not in str(error):
                raise
            return found
    found["copies"] = gpus.copies(log)
    found["output"] = found["where"] = ""
    if torch.is_tensor(output):
        found["output"] = output.detach().cpu().numpy()
        found["where"] = gpus.where(output)
        if output.requires_grad:
            output.sum().backward()
    found["gradients"] = [
        None if p.grad is None else p.grad.cpu().numpy() for p in parameters
    ]
    return found


def _apart(homes: Sequence[str]) -> bool:
    """Return whether each layer is where it belongs."""
    return list(homes) == ["GPU 0", "GPU 0", "GPU 1", "GPU 1"]


@EXERCISES.add("04.4", "net, devices", returns=nn.Module, changes="net")
def split(run: Run):
    twin, X = _network()
    hidden = 16 * 30 * 4
    wanted = twin(X)
    wanted.sum().backward()
    found = run(_divided)
    yield Claim(
        "the model has the parameters of `net`",
        found["same"],
        "Its parameters aren't those of `net`, or some are missing. An optimizer that "
        "was created with those of `net` would train parameters that aren't used."
        if found["its"]
        else (
            "The model has no parameters: PyTorch doesn't find layers that a module "
            "keeps in a Python list."
        ),
    )
    homes, output = found["homes"], found["output"]
    yield Claim(
        "the first layer is on the first device and the last layer on the second",
        _apart(homes),
        f"The first layer is on {homes[0]} and the last layer on {homes[2]}.",
    )
    if not _apart(homes):
        return
    yield Claim(
        "in the forward pass, each layer's input is on the layer's device",
        output is not None,
        "A layer got its input from the other device: nothing moved the first layer's "
        "output there.",
    )
    if output is None:
        return
    right = isinstance(output, np.ndarray) and output.shape == wanted.shape
    where = found["where"]
    yield Claim(
        "the output is on the second device and equals that of `net`",
        right
        and where == "GPU 1"
        and np.allclose(output, wanted.detach().numpy(), atol=1e-5),
        f"The output is on {where}, not on GPU 1."
        if right and where != "GPU 1"
        else "Its shape or its values differ from those of `net`.",
    )
    if not right:
        return
    copies = found["copies"]
    hint = (
        f"{len(copies)} cop{'y' if len(copies) == 1 else 'ies'} with "
        f"{sum(copy[0] for copy in copies):,} bytes crossed; the first layer's output "
        f"has {hidden:,} bytes."
    )
    if any(HOST in copy[1:] for copy in copies):
        hint = "Something was copied by way of the host."
    yield Claim(
        "in the forward pass, one copy crosses: the first layer's output",
        copies == [(hidden, "GPU 0", "GPU 1")],
        hint,
    )
    gradients = found["gradients"]
    missing = [gradient is None for gradient in gradients]
    yield Claim(
        "the backward pass reaches both layers",
        not any(missing)
        and all(
            np.allclose(gradient, p.grad.numpy(), atol=1e-4)
            for gradient, p in zip(gradients, twin.parameters(), strict=True)
        ),
        "The first layer has no gradients: on its way to the second device, its output "
        "was detached from autograd."
        if any(missing[:2])
        else "The gradients differ from those of `net`.",
    )


# ------------------------------------------------------------------ a model's device


def _modules(gpus: Gpus) -> dict[str, nn.Module]:
    first, second = gpus[:2]
    norm = nn.BatchNorm1d(4).to(first)
    norm.running_mean = norm.running_mean.to(second)
    return {
        "whole": nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(second),
        "lazy": nn.LazyLinear(3).to(first),
        "buffers": nn.BatchNorm1d(4, affine=False).to(second),
        "empty": nn.ReLU(),
        "apart": nn.Sequential(nn.Linear(3, 4).to(first), nn.Linear(4, 2).to(second)),
        "norm": norm,
    }


def _devices_of(answer: Callable, gpus: Gpus) -> dict[str, tuple[str, str]]:
    """Return what came of each module: of which type it is, and what it says."""
    found = {}
    for name, module in _modules(gpus).items():
        try:
            result = answer(module)
        except (StopIteration, ValueError) as error:
            kind = "ValueError" if isinstance(error, ValueError) else "StopIteration"
            found[name] = kind, str(error)
        else:
            found[name] = _kind(result), _text(result, gpus)
    return found


def _kind(result: Any) -> str:
    if result is None:
        return "None"
    if isinstance(result, torch.device):
        return "device"
    return "str" if isinstance(result, str) else "other"


def _text(result: Any, gpus: Gpus) -> str:
    return gpus.name(result) if isinstance(result, torch.device) else str(result)


@EXERCISES.add("04.5", "module")
def device_of(run: Run):
    found = run(_devices_of)
    yield Claim(
        "it returns the device of a model that's on one device",
        found["whole"] == ("device", "GPU 1"),
        "You return a string; return a `torch.device`."
        if found["whole"][0] == "str"
        else f"The model is on GPU 1, but {_said(*found['whole'])}.",
    )
    yield Claim(
        "also if a layer is lazy",
        found["lazy"] == ("device", "GPU 0"),
        "Its parameters have no shape yet, but they have a device, GPU 0. For this "
        f"model, {_said(*found['lazy'])}.",
    )
    kind, _ = found["empty"]
    yield Claim(
        "it returns None for a module without parameters or buffers",
        kind == "None",
        "`next` raises StopIteration if there's no first element."
        if kind == "StopIteration"
        else f"For `nn.ReLU()`, {_said(*found['empty'])}.",
    )
    kind, text = found["apart"]
    yield Claim(
        "it raises a ValueError for a model on two devices",
        kind == "ValueError",
        "The first layer is on GPU 0 and the second on GPU 1, but "
        f"{_said(kind, text)}. If you look at only one parameter, you see only one "
        "device.",
    )
    if kind == "ValueError":
        yield Claim(
            "the error names both devices",
            all(str(d) in text or repr(d) in text for d in (d2l.gpu(0), d2l.gpu(1))),
            f"Your message is: {text or 'empty'}",
        )
    yield Claim(
        "also if only a buffer is on another device",
        found["norm"][0] == "ValueError",
        "The running mean of a BatchNorm moves with the module but isn't a parameter. "
        "Here it's on GPU 1 and the parameters are on GPU 0, but "
        f"{_said(*found['norm'])}.",
    )
    yield Claim(
        "it returns the device of a module that has only buffers",
        found["buffers"] == ("device", "GPU 1"),
        "A BatchNorm with `affine=False` has a running mean and variance but no "
        f"parameters. Here they're on GPU 1, but {_said(*found['buffers'])}.",
    )


def _said(kind: str, text: str) -> str:
    if kind in ("StopIteration", "ValueError"):
        return f"a {kind} was raised"
    return f"{text} was returned"


# ------------------------------------------------------------------ changing devices

_MOMENTS = "exp_avg", "exp_avg_sq"


def _in_training(device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    layers = nn.Linear(6, 5), nn.Tanh(), nn.BatchNorm1d(5), nn.Linear(5, 2)
    net = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for _ in range(3):
        _step(net, optimizer, device)
    return net, optimizer


def _step(net, optimizer, device: torch.device) -> None:
    X = torch.linspace(-1, 1, 24).reshape(4, 6).square().to(device)
    optimizer.zero_grad()
    net(X).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def _state_of(net: nn.Module) -> list[np.ndarray]:
    """Return the values of parameters and buffers."""
    return [x.detach().cpu().numpy() for x in (*net.parameters(), *net.buffers())]


def _moved(answer: Callable, gpus: Gpus) -> dict:
    """Return where everything is, and parameters and buffers after the next step."""
    net, optimizer = _in_training(gpus[0])
    parameters = list(net.parameters())
    with d2l.transfers() as log:
        answer(net, optimizer, gpus[1])
    held = [p for group in optimizer.param_groups for p in group["params"]]
    ids = [id(p) for p in parameters]
    states = [optimizer.state.get(p, {}) for p in parameters]
    kept = all({*_MOMENTS, "step"} <= set(state) for state in states)
    found = {
        "parameters": {gpus.where(p) for p in net.parameters()},
        "buffers": {gpus.where(x) for x in net.buffers()},
        "same": [id(p) for p in net.parameters()] == [id(p) for p in held] == ids,
        "kept": kept,
        "moments": set(),
        "counters": set(),
        "copies": gpus.copies(log),
        "after": [],
    }
    if kept:
        found["moments"] = {gpus.where(x[name]) for x in states for name in _MOMENTS}
        found["counters"] = {gpus.where(x["step"]) for x in states}
    if all(found[each] == {"GPU 1"} for each in ("parameters", "buffers", "moments")):
        _step(net, optimizer, gpus[1])
        found["after"] = _state_of(net)
    return found


@EXERCISES.add("04.6", "net, optimizer, device", changes="net optimizer")
def move(run: Run):
    found, (twin, its) = run(_moved), _in_training(d2l.cpu())
    yield Claim(
        "the parameters are on `device`",
        found["parameters"] == {"GPU 1"},
        f"They're on {_listed(found['parameters'])}, but `device` is GPU 1.",
    )
    yield Claim(
        "they're the same objects as before, and the optimizer still has them",
        found["same"],
        "The optimizer no longer holds the parameters of `net`, or not all of them.",
    )
    yield Claim(
        "the buffers are on `device` too",
        found["buffers"] == {"GPU 1"},
        f"They're on {_listed(found['buffers'])}. A BatchNorm's running mean and "
        "variance aren't parameters, but it needs them on the same device.",
    )
    yield Claim(
        "Adam keeps its state",
        found["kept"],
        "Its moments or step counters are gone. An Adam that starts over takes "
        "different steps for a while.",
    )
    if not found["kept"]:
        return
    yield Claim(
        "its moments are on `device`",
        found["moments"] == {"GPU 1"},
        f"They're on {_listed(found['moments'])}. A module doesn't know "
        "about the optimizer that trains it.",
    )
    if found["moments"] != {"GPU 1"}:
        return
    yield Claim(
        "its step counters are still on the host",
        found["counters"] == {HOST},
        "They moved too. Python reads them in each step, and would have to fetch them "
        "each time.",
    )
    tensors = [*twin.parameters(), *twin.buffers()]
    nbytes = sum(x.nbytes for x in tensors) + sum(
        state[name].nbytes for state in its.state.values() for name in _MOMENTS
    )
    if found["after"]:
        _step(twin, its, d2l.cpu())
        wanted = _state_of(twin)
        yield Claim(
            "the next step is the same as without the move",
            len(found["after"]) == len(wanted)
            and all(
                a.shape == b.shape and np.allclose(a, b, atol=1e-5)
                for a, b in zip(found["after"], wanted, strict=True)
            ),
            "The parameters or buffers differ after it: some of them or of Adam's "
            "state has changed.",
        )
    crossed = sum(copy[0] for copy in found["copies"])
    hint = (
        f"{crossed:,} bytes crossed; parameters, buffers and moments have {nbytes:,}."
    )
    by_host = any(HOST in copy[1:] for copy in found["copies"])
    if by_host:
        hint = "The copy went by way of the host. GPUs can copy directly to each other."
    yield Claim(
        "the parameters, buffers and moments each cross once",
        crossed == nbytes and not by_host,
        hint,
    )


def _listed(places: set[str]) -> str:
    return ", ".join(sorted(places))
