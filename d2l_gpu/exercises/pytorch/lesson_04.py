"""Models on devices: parameters, optimizer state and data."""

import math
import random
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


# ------------------------------------------------------------------ evaluation

_TESTED, _AT_ONCE = 20, (20, 4)


def _evaluated() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a network in training, and test data of which it gets 14 of 20 right.

    Its second BatchNorm is in evaluation mode, as if it were frozen.
    """
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU()),
        *(nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 5)),
    )
    with torch.no_grad():
        for _ in range(30):
            net(3 * torch.randn(64, 6) + 1)
        X = torch.randn(_TESTED, 6)
        y = net.eval()(X).argmax(dim=1)
    y[3::3] = (y[3::3] + 1) % 5
    net.train()
    net[3].eval()
    return net, X, y


def _counted(answer: Callable, gpus: Gpus, size: int) -> dict:
    """Return what came of evaluating the network in batches of a size."""
    net, X, y = _evaluated()
    net = net.to(gpus[1])
    recorded = []
    net[-1].register_forward_hook(
        lambda module, inputs, output: recorded.append(output.requires_grad)
    )
    before = {name: x.clone() for name, x in net.state_dict().items()}
    with d2l.transfers() as log:
        count = answer(
            net, list(zip(X.split(size), y.split(size), strict=True)), gpus[1]
        )
    enabled = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    torch.set_grad_enabled(True)
    return {
        "count": count,
        "changed": [
            name for name, x in net.state_dict().items() if not x.equal(before[name])
        ],
        "modes": [module.training for module in net],
        "whole": net.training,
        "recorded": any(recorded),
        "enabled": enabled,
        "trains": all(p.requires_grad for p in net.parameters()),
        "fetched": [copy for copy in gpus.copies(log) if copy[2] == HOST],
    }


@EXERCISES.add("04.2", "net, batches, device", returns=int, changes="net")
def count_right(run: Run):
    net, X, y = _evaluated()
    modes = [module.training for module in net]
    with torch.no_grad():
        right = int((net.eval()(X).argmax(dim=1) == y).sum())
    whole, small = (run(_counted, size) for size in _AT_ONCE)
    a, b = whole["count"], small["count"]
    yield Claim(
        "the count is right, whatever the size of the batches",
        a == b == right,
        f"In one batch of {_AT_ONCE[0]} you count {a} right answers, in batches of "
        f"{_AT_ONCE[1]} you count {b}. An image's result must not depend on the other "
        "images in its batch."
        if a != b
        else f"You count {a} right answers, but there are {right}.",
    )
    changed = small["changed"]
    yield Claim(
        "evaluating changes no parameter and no buffer",
        not changed,
        f"`{changed[0] if changed else ''}` has changed: the network has learned "
        "something from the test images.",
    )
    now = small["modes"]
    yield Claim(
        "each module is in the mode that it was in before",
        now == modes and small["whole"],
        "The network is still in evaluation mode. What will the next epoch of training "
        "do?"
        if not any(now)
        else "One BatchNorm was in evaluation mode before, because somebody has frozen "
        "it. Now it's in training mode."
        if all(now)
        else "Some modules, or the network itself, are in another mode than before.",
    )
    yield Claim(
        "no activations are kept for a backward pass",
        not small["recorded"],
        "The scores require gradients, so PyTorch kept the activations of each batch "
        "for a backward pass that never comes.",
    )
    yield Claim(
        "training can continue",
        small["enabled"] and small["trains"],
        "The parameters no longer require gradients."
        if small["enabled"]
        else "Gradients are still switched off, for everything that comes afterwards.",
    )
    fetched = len(small["fetched"])
    yield Claim(
        "only one copy reaches the host",
        fetched <= 1,
        f"{fetched} copies reached the host, and Python waited for the GPU each time.",
    )


# ------------------------------------------------------------------ data on the GPU


_EXAMPLES, _EPOCHS, _BATCH = 50, 3, 8
_SIZES = _EPOCHS * [8, 8, 8, 8, 8, 8, 2]


def _data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images that contain their numbers, and labels that are larger by 100."""
    X = torch.arange(float(_EXAMPLES))[:, None].repeat(1, 6)
    return X, 100 + torch.arange(_EXAMPLES)


def _given_batches(answer: Callable, gpus: Gpus) -> dict:
    X, y = _data()
    torch.manual_seed(0)
    with d2l.transfers() as log:
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
        "copies": gpus.copies(log),
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


class _Crossed(TorchDispatchMode):
    """Keeps what operators copy from one GPU to another.

    Attributes:
        tensors: copies of it, where it came from.
    """

    def __init__(self, source: torch.device, target: torch.device):
        super().__init__()
        self.source, self.target = source, target
        self.tensors: list[torch.Tensor] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if torch.is_tensor(x)]
        if any(x.device == self.target for x in tensors):
            self.tensors += [
                x.detach().clone() for x in tensors if x.device == self.source
            ]
        return result


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
    crossed = _Crossed(*devices)
    with d2l.transfers() as log, crossed:
        try:
            output = model(X)
        except RuntimeError as error:
            if "on the same device" not in str(error):
                raise
            return found
    found["copies"] = gpus.copies(log)
    found["crossed"] = [x.cpu().numpy() for x in crossed.tensors]
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
    hidden = twin[:2](X).detach().numpy()
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
        f"{sum(copy[0] for copy in copies):,} bytes crossed; the output of the ReLU "
        f"has {hidden.nbytes:,} bytes."
    )
    once = copies == [(hidden.nbytes, "GPU 0", "GPU 1")]
    crossed = found["crossed"]
    same = not crossed or any(_same_numbers(each, hidden) for each in crossed)
    if once and any((each < 0).any() for each in crossed):
        hint = (
            "What crosses has negative numbers, which the output of a ReLU doesn't "
            "have. You apply the ReLU only after the copy."
        )
    elif once:
        hint = "What crosses has the size of the ReLU's output, but other values."
    if any(HOST in copy[1:] for copy in copies):
        hint = "Something was copied by way of the host."
    yield Claim(
        "in the forward pass, one copy crosses: the output of the ReLU",
        once and same,
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


def _same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays have the same numbers, in whatever order and shape."""
    return a.size == b.size and np.allclose(
        np.sort(a, axis=None), np.sort(b, axis=None), atol=1e-5
    )


# ------------------------------------------------------------------ a model's device


def _with_buffer(module: nn.Module, device: torch.device) -> nn.Module:
    """Give a module a buffer that its `state_dict` doesn't have."""
    module.register_buffer("mask", torch.ones(4, device=device), persistent=False)
    return module


_MODULES = 10


def _modules(gpus: Gpus) -> dict[str, nn.Module]:
    first, second = gpus[:2]
    norm = nn.BatchNorm1d(4).to(first)
    norm.running_mean = norm.running_mean.to(second)
    inner = nn.Sequential(nn.ReLU(), nn.BatchNorm1d(4, affine=False).to(second))
    return {
        "whole": nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(second),
        "lazy": nn.LazyLinear(3).to(first),
        "buffers": nn.BatchNorm1d(4, affine=False).to(second),
        "empty": nn.ReLU(),
        "apart": nn.Sequential(nn.Linear(3, 4).to(first), nn.Linear(4, 2).to(second)),
        "norm": norm,
        "inner": nn.Sequential(nn.Linear(3, 4).to(first), nn.Sequential(inner)),
        "unsaved": _with_buffer(nn.Linear(3, 4).to(first), second),
        "only unsaved": nn.Sequential(_with_buffer(nn.ReLU(), second)),
        "three": nn.Sequential(
            nn.Linear(3, 4).to(first), nn.Linear(4, 4).to(second), nn.Linear(4, 2)
        ),
    }


def _devices_of(
    answer: Callable, gpus: Gpus, order: Sequence[int]
) -> dict[str, tuple[str, str]]:
    """Return what came of each module: of which type it is, and what it says."""
    modules, found = list(_modules(gpus).items()), {}
    for i in order:
        name, module = modules[i]
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
    # In an order that no answer can know, so that none can count its calls.
    found = run(_devices_of, random.sample(range(_MODULES), _MODULES))
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
            _names(text, d2l.gpu(0), d2l.gpu(1)),
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
    yield Claim(
        "it also looks into modules that are inside another module",
        found["inner"][0] == "ValueError",
        "A BatchNorm inside a `Sequential` inside the model has its buffers on GPU 1. "
        f"The parameters are on GPU 0, but {_said(*found['inner'])}.",
    )
    apart, alone = found["unsaved"], found["only unsaved"]
    yield Claim(
        "buffers with `persistent=False` count too",
        apart[0] == "ValueError" and alone == ("device", "GPU 1"),
        "A buffer registered with `persistent=False` is on GPU 1. It isn't in the "
        "module's `state_dict`, but it's a buffer all the same. "
        + (
            f"With the parameters on GPU 0, that's two devices, but {_said(*apart)}."
            if apart[0] != "ValueError"
            else f"There's nothing else in this module, but {_said(*alone)}."
        ),
    )
    kind, text = found["three"]
    yield Claim(
        "for a model on three devices, the error names all three",
        kind == "ValueError" and _names(text, d2l.gpu(0), d2l.gpu(1), d2l.cpu()),
        "The three layers are on GPU 0, GPU 1 and the CPU. "
        + (
            f"Your message is: {text or 'empty'}"
            if kind == "ValueError"
            else f"For this model, {_said(kind, text)}."
        ),
    )


def _names(text: str, *devices: torch.device) -> bool:
    return all(str(device) in text or repr(device) in text for device in devices)


def _said(kind: str, text: str) -> str:
    if kind in ("StopIteration", "ValueError"):
        return f"a {kind} was raised"
    return f"{text} was returned"


# ------------------------------------------------------------------ changing devices

_MOMENTS = {
    False: ("exp_avg", "exp_avg_sq"),
    True: ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
}


class _Scaled(nn.Module):
    """Multiplies by a buffer that isn't in the `state_dict`."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.5, 2.0]), persistent=False)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return X * self.scale


def _in_training(
    device: torch.device, amsgrad: bool
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a network and its Adam after some steps.

    Args:
        amsgrad: whether Adam has a third moment, and two groups of parameters.
    """
    torch.manual_seed(0)
    layers = nn.Linear(6, 5), nn.Tanh(), nn.BatchNorm1d(5), nn.Linear(5, 2), _Scaled()
    net = nn.Sequential(*layers).to(device)
    parameters = list(net.parameters())
    groups = [{"params": parameters}]
    if amsgrad:
        groups = [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.05}]
    optimizer = torch.optim.Adam(groups, lr=0.1, amsgrad=amsgrad)
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


def _moved(answer: Callable, gpus: Gpus, amsgrad: bool) -> dict:
    """Return where everything is, and parameters and buffers after the next step."""
    net, optimizer = _in_training(gpus[0], amsgrad)
    parameters = list(net.parameters())
    with d2l.transfers() as log:
        answer(net, optimizer, gpus[1])
    held = [p for group in optimizer.param_groups for p in group["params"]]
    ids = [id(p) for p in parameters]
    states = [optimizer.state.get(p, {}) for p in parameters]
    names = _MOMENTS[amsgrad]
    kept = all({*names, "step"} <= set(state) for state in states)
    found = {
        "parameters": {gpus.where(p) for p in net.parameters()},
        "buffers": {name: gpus.where(x) for name, x in net.named_buffers()},
        "same": [id(p) for p in net.parameters()] == [id(p) for p in held] == ids,
        "kept": kept,
        "moments": {},
        "counters": set(),
        "copies": gpus.copies(log),
        "now": _state_of(net),
        "after": [],
    }
    if kept:
        found["moments"] = {
            name: {gpus.where(state[name]) for state in states} for name in names
        }
        found["counters"] = {gpus.where(x["step"]) for x in states}
    places = found["parameters"].union(
        found["buffers"].values(), *found["moments"].values()
    )
    if kept and places == {"GPU 1"}:
        _step(net, optimizer, gpus[1])
        found["after"] = _state_of(net)
    return found


@EXERCISES.add("04.6", "net, optimizer, device", changes="net optimizer")
def move(run: Run):
    both = {amsgrad: run(_moved, amsgrad) for amsgrad in _MOMENTS}
    cases = list(both.values())
    parameters = set().union(*(found["parameters"] for found in cases))
    yield Claim(
        "the parameters are on `device`",
        parameters == {"GPU 1"},
        f"They're on {_listed(parameters)}, but `device` is GPU 1.",
    )
    yield Claim(
        "they're the same objects as before, and the optimizer still has them",
        all(found["same"] for found in cases),
        "The optimizer no longer holds the parameters of `net`, or not all of them.",
    )
    buffers = {
        name: where for name, where in cases[0]["buffers"].items() if where != "GPU 1"
    }
    yield Claim(
        "the buffers are on `device` too",
        all(set(found["buffers"].values()) == {"GPU 1"} for found in cases),
        _left_behind(buffers),
    )
    kept = {amsgrad: found["kept"] for amsgrad, found in both.items()}
    yield Claim(
        "Adam keeps its state",
        all(kept.values()),
        "Its moments or step counters are gone"
        + (", if it was created with `amsgrad=True`" if kept[False] else "")
        + ". An Adam that starts over takes different steps for a while.",
    )
    if not all(kept.values()):
        return
    there = all(
        places == {"GPU 1"} for found in cases for places in found["moments"].values()
    )
    yield Claim(
        "its moments are on `device`",
        there,
        _moments_elsewhere(
            {amsgrad: each["moments"] for amsgrad, each in both.items()}
        ),
    )
    if not there:
        return
    yield Claim(
        "its step counters are still on the host",
        all(found["counters"] == {HOST} for found in cases),
        "They moved too. Python reads them in each step, and would have to fetch them "
        "each time.",
    )
    twins = {amsgrad: _in_training(d2l.cpu(), amsgrad) for amsgrad in both}
    sizes = [
        _bytes_to_move(*twin, _MOMENTS[amsgrad]) for amsgrad, twin in twins.items()
    ]
    if all(found["after"] for found in cases):
        right, kept = {}, {}
        for amsgrad, (twin, its) in twins.items():
            kept[amsgrad] = _alike(both[amsgrad]["now"], _state_of(twin))
            _step(twin, its, d2l.cpu())
            right[amsgrad] = _alike(both[amsgrad]["after"], _state_of(twin))
        yield Claim(
            "the next step is the same as without the move",
            all(right.values()),
            "The parameters or buffers differ after it"
            + (" if Adam was created with `amsgrad=True`" if right[False] else "")
            + (
                ": something of Adam's state has changed in the move."
                if all(kept.values())
                else ". They had other values before it already."
            ),
        )
    crossed = [sum(copy[0] for copy in found["copies"]) for found in cases]
    sent, nbytes = next(
        (pair for pair in zip(crossed, sizes, strict=True) if len({*pair}) > 1),
        (crossed[0], sizes[0]),
    )
    hint = f"{sent:,} bytes crossed; parameters, buffers and moments have {nbytes:,}."
    by_host = any(HOST in copy[1:] for found in cases for copy in found["copies"])
    if by_host:
        hint = "The copy went by way of the host. GPUs can copy directly to each other."
    yield Claim(
        "the parameters, buffers and moments each cross once",
        crossed == sizes and not by_host,
        hint,
    )


def _left_behind(buffers: dict[str, str]) -> str:
    """Return a hint for buffers that aren't on GPU 1, given where each is."""
    if not buffers:
        return ""
    where = _listed(set(buffers.values()))
    if any("running" in name for name in buffers):
        return (
            f"Some are on {where}. A BatchNorm's running mean and variance aren't "
            "parameters, but it needs them on the same device."
        )
    if "4.scale" in buffers:
        return (
            f"The buffer `scale` is on {where}. It was registered with "
            "`persistent=False`, so it isn't in the `state_dict`, but the forward pass "
            "needs it."
        )
    return f"The buffer `{next(iter(buffers))}` is on {where}."


def _moments_elsewhere(moments: dict[bool, dict[str, set[str]]]) -> str:
    """Return a hint for moments that aren't all on GPU 1, without and with amsgrad."""
    left = {
        name: places for name, places in moments[False].items() if places != {"GPU 1"}
    }
    if len(left) == len(moments[False]):
        where = set().union(*left.values())
        return (
            f"They're on {_listed(where)}. A module doesn't know about the optimizer "
            "that trains it."
        )
    for amsgrad, each in moments.items():
        behind = [name for name, places in each.items() if "GPU 1" not in places]
        if behind:
            more = "has one more moment and " if amsgrad else ""
            return (
                f"With `amsgrad={amsgrad}`, Adam {more}needs `{behind[0]}` in each "
                f"step, but that's on {_listed(each[behind[0]])}."
            )
    return (
        "Some of them are, but not those of all parameters. An optimizer may have "
        "several groups of parameters."
    )


def _bytes_to_move(net: nn.Module, optimizer, moments: Sequence[str]) -> int:
    states = optimizer.state.values()
    return sum(x.nbytes for x in (*net.parameters(), *net.buffers())) + sum(
        state[name].nbytes for state in states for name in moments
    )


def _alike(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> bool:
    return len(found) == len(wanted) and all(
        a.shape == b.shape and np.allclose(a, b, atol=1e-5)
        for a, b in zip(found, wanted, strict=True)
    )


def _listed(places: set[str]) -> str:
    return ", ".join(sorted(places))
