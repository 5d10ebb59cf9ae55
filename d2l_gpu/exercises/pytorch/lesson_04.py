"""Models on devices: parameters, optimizer state and data."""

import copy
import math
from collections.abc import Callable
from types import GeneratorType

import torch
from torch import nn

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.registry import Claim, Registry

EXERCISES = Registry()


# ------------------------------------------------------------------ one parameter


@EXERCISES.add("04.1", "layer, i, j", returns=float)
def take_out(answer):
    torch.manual_seed(0)
    layer = nn.Linear(64, 32).to(d2l.gpu(0))
    weight, before = layer.weight, layer.weight.detach().cpu()
    refused = False
    with d2l.transfers() as log:
        try:
            value = answer(layer, 3, 5)
        except RuntimeError as error:
            if "leaf Variable" not in str(error):
                raise
            refused = True
    recording = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    yield Claim(
        "autograd allows the write",
        not refused,
        "To autograd, writing into a parameter is an operation like any other, and "
        "one that it can't differentiate through. Tell it not to record this one.",
    )
    if refused:
        return
    wanted = float(before[3, 5])
    hint = f"The number was {wanted:.6f}, but you returned {value:.6f}."
    if value == 0:
        hint = "You returned zero. When did you read the number?"
    elif math.isclose(value, float(before[5, 3]), rel_tol=1e-6):
        hint = "You returned the number at `[j, i]`."
    yield Claim(
        "it returns the number that was at `[i, j]`",
        math.isclose(value, wanted, rel_tol=1e-6),
        hint,
    )
    yield Claim(
        "`layer.weight` is still the same parameter, on its device",
        layer.weight is weight and weight.device == d2l.gpu(0),
        "It's a new parameter. An optimizer that was created with the old one won't "
        "know about it.",
    )
    after = layer.weight.detach().cpu()
    changed = after != before
    expected = torch.zeros_like(changed)
    expected[3, 5] = True
    if changed.any():
        hint = (
            f"The weight has {int(changed.sum())} changed "
            f"element{'s' * (int(changed.sum()) != 1)}; only `[i, j]` should have "
            "changed, to zero."
        )
    else:
        hint = "No number has changed: you wrote into a copy."
    yield Claim(
        "that number is now zero, and no other has changed",
        torch.equal(changed, expected) and float(after[3, 5]) == 0,
        hint,
    )
    yield Claim(
        "training can continue",
        recording and layer.weight.requires_grad and layer.weight.is_leaf,
        "The parameter doesn't require gradients any more."
        if recording
        else "You left autograd switched off, for every parameter.",
    )
    nbytes = log.nbytes
    if nbytes > layer.weight.nbytes:
        hint = (
            f"{nbytes:,} bytes crossed: you fetched the whole weight and sent it back."
        )
    elif nbytes == layer.weight.nbytes:
        hint = (
            f"{nbytes:,} bytes crossed: you fetched the whole weight to read one "
            "number."
        )
    else:
        hint = (
            f"{nbytes} bytes crossed. Only one number has to reach the host. Did you "
            "send the zero from there?"
        )
    yield Claim("only 4 bytes cross, to the host", len(log) == 1 and nbytes == 4, hint)


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


@EXERCISES.add(
    "04.3",
    "X, y, batch_size, epochs, device",
    returns=(GeneratorType, list, tuple),
)
def batches(answer):
    gpu = d2l.gpu(1)
    torch.manual_seed(0)
    X = torch.arange(50.0)[:, None].repeat(1, 6)
    y = 100 + torch.arange(50)
    with d2l.transfers() as log:
        given = list(answer(X, y, 8, 3, gpu))
    pairs = all(
        isinstance(each, list | tuple)
        and len(each) == 2
        and all(map(torch.is_tensor, each))
        for each in given
    )
    yield Claim(
        "each batch is a pair of tensors, images and labels",
        pairs and bool(given),
        "You produced no batches."
        if not given
        else ("At least one batch isn't a pair of tensors."),
    )
    if not pairs or not given:
        return
    sizes = [len(images) for images, _ in given]
    yield Claim(
        "three epochs go through the data three times, in batches of `batch_size` and "
        "one smaller batch per epoch",
        sizes == 3 * [8, 8, 8, 8, 8, 8, 2],
        _wrong_sizes(sizes),
    )
    devices = {images.device for images, _ in given}
    labels_on = {labels.device for _, labels in given}
    yield Claim(
        "the images are on `device`", devices == {gpu}, _elsewhere(devices, gpu)
    )
    yield Claim(
        "the labels are on `device` too",
        labels_on == {gpu},
        f"{_elsewhere(labels_on, gpu)} The loss needs them on the same device as the "
        "network's output.",
    )
    if sizes != 3 * [8, 8, 8, 8, 8, 8, 2]:
        return
    numbers = torch.cat([images[:, 0].cpu() for images, _ in given]).long()
    labels = torch.cat([labels.cpu() for _, labels in given])
    yield Claim(
        "each image comes with its own label",
        torch.equal(numbers + 100, labels),
        "You shuffled images and labels separately, each in a different order.",
    )
    epochs = numbers.reshape(3, 50)
    once = all(len(epoch.unique()) == 50 for epoch in epochs)
    yield Claim(
        "each epoch has every example exactly once",
        once,
        "In at least one epoch, some examples come twice and others not at all.",
    )
    plain = torch.arange(50)
    orders = {tuple(epoch.tolist()) for epoch in epochs}
    yield Claim(
        "each epoch has a different order",
        len(orders) == 3 and tuple(plain.tolist()) not in orders,
        "At least one epoch is in the order of the data set."
        if tuple(plain.tolist()) in orders
        else "You shuffled once and used the same order again in another epoch.",
    )
    nbytes = X.nbytes + y.nbytes
    yield Claim(
        "only two copies cross, one for the images and one for the labels",
        len(log) == 2 and log.nbytes == nbytes,
        _wrong_copies(log, nbytes),
    )


def _elsewhere(found: set[torch.device], wanted: torch.device) -> str:
    others = sorted(str(device) for device in found if device != wanted)
    return f"Some of them are on {', '.join(others)}."


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


def _wrong_copies(log, nbytes: int) -> str:
    at_once = [copy for copy in log if copy.nbytes >= nbytes // 8]
    if log.nbytes >= 3 * nbytes:
        if len(log) <= 6:
            return (
                f"{len(log)} copies were made: you sent the data set again in each "
                "epoch."
            )
        return f"{len(log)} copies were made: you sent each batch separately."
    if any(copy.target.type == "cpu" for copy in log):
        return "Something was fetched to the host, which doesn't need it."
    return (
        f"{len(log)} copies were made, {len(log) - len(at_once)} of them small: you "
        "sent the data set only once, but the order of its examples followed from the "
        "host."
    )


# ------------------------------------------------------------------ two devices


@EXERCISES.add("04.4", "net, devices", returns=nn.Module)
def split(answer):
    first, second = d2l.gpu(0), d2l.gpu(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))
    twin, parameters = copy.deepcopy(net), list(net.parameters())
    X = torch.randn(16, 20)
    hidden = 16 * 30 * 4
    wanted = twin(X)
    wanted.sum().backward()
    model = answer(net, [first, second])
    yield Claim(
        "the model has the parameters of `net`",
        {id(p) for p in model.parameters()} == {id(p) for p in parameters},
        "Its parameters aren't those of `net`, or some are missing. An optimizer that "
        "was created with those of `net` would train parameters that aren't used."
        if list(model.parameters())
        else (
            "The model has no parameters: PyTorch doesn't find layers that a module "
            "keeps in a Python list."
        ),
    )
    homes = [p.device for p in parameters]
    yield Claim(
        "the first layer is on the first device and the last layer on the second",
        homes == [first, first, second, second],
        f"The first layer is on {homes[0]} and the last layer on {homes[2]}.",
    )
    if homes != [first, first, second, second]:
        return
    X = X.to(first)
    apart = False
    with d2l.transfers() as forward:
        try:
            output = model(X)
        except RuntimeError as error:
            if "on the same device" not in str(error):
                raise
            apart = True
    yield Claim(
        "in the forward pass, each layer's input is on the layer's device",
        not apart,
        "A layer got its input from the other device: nothing moved the first layer's "
        "output there.",
    )
    if apart:
        return
    right = torch.is_tensor(output) and output.shape == wanted.shape
    yield Claim(
        "the output is on the second device and equals that of `net`",
        right
        and output.device == second
        and torch.allclose(output.detach().cpu(), wanted.detach(), atol=1e-5),
        f"The output is on {output.device}, not on {second}."
        if right and output.device != second
        else "Its shape or its values differ from those of `net`.",
    )
    if not right:
        return
    hint = (
        f"{len(forward)} cop{'y' if len(forward) == 1 else 'ies'} with "
        f"{forward.nbytes:,} bytes crossed; the first layer's output has {hidden:,} "
        "bytes."
    )
    if any("cpu" in (copy.source.type, copy.target.type) for copy in forward):
        hint = "Something was copied by way of the host."
    yield Claim(
        "in the forward pass, one copy crosses: the first layer's output",
        [copy[1:] for copy in forward] == [(first, second)]
        and forward.nbytes == hidden,
        hint,
    )
    if output.requires_grad:
        output.sum().backward()
    missing = [p.grad is None for p in parameters]
    yield Claim(
        "the backward pass reaches both layers",
        not any(missing)
        and all(
            torch.allclose(p.grad.cpu(), q.grad, atol=1e-4)
            for p, q in zip(parameters, twin.parameters(), strict=True)
        ),
        "The first layer has no gradients: on its way to the second device, its output "
        "was detached from autograd."
        if any(missing[:2])
        else "The gradients differ from those of `net`.",
    )


# ------------------------------------------------------------------ a model's device


@EXERCISES.add("04.5", "module")
def device_of(answer):
    first, second = d2l.gpu(0), d2l.gpu(1)
    whole = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(second)
    found = _device_or_error(answer, whole)
    yield Claim(
        "it returns the device of a model that's on one device",
        isinstance(found, torch.device) and found == second,
        "You return a string; return a `torch.device`."
        if isinstance(found, str)
        else f"The model is on {second}, but {_said(found)}.",
    )
    lazy = nn.LazyLinear(3).to(first)
    found = _device_or_error(answer, lazy)
    yield Claim(
        "also if a layer is lazy",
        found == first,
        f"Its parameters have no shape yet, but they have a device, {first}. For this "
        f"model, {_said(found)}.",
    )
    found = _device_or_error(answer, nn.ReLU())
    yield Claim(
        "it returns None for a module without parameters or buffers",
        found is None,
        "`next` raises StopIteration if there's no first element."
        if isinstance(found, StopIteration)
        else f"For `nn.ReLU()`, {_said(found)}.",
    )
    apart = nn.Sequential(nn.Linear(3, 4).to(first), nn.Linear(4, 2).to(second))
    found = _device_or_error(answer, apart)
    yield Claim(
        "it raises a ValueError for a model on two devices",
        isinstance(found, ValueError),
        f"The first layer is on {first} and the second on {second}, but "
        f"{_said(found)}. If you look at only one parameter, you see only one device.",
    )
    if isinstance(found, ValueError):
        text = str(found)
        yield Claim(
            "the error names both devices",
            all(str(d) in text or repr(d) in text for d in (first, second)),
            f"Your message is: {text or 'empty'}",
        )
    norm = nn.BatchNorm1d(4).to(first)
    norm.running_mean = norm.running_mean.to(second)
    found = _device_or_error(answer, norm)
    yield Claim(
        "also if only a buffer is on another device",
        isinstance(found, ValueError),
        "The running mean of a BatchNorm moves with the module but isn't a parameter. "
        f"Here it's on {second} and the parameters are on {first}, but {_said(found)}.",
    )


def _device_or_error(answer, module: nn.Module):
    try:
        return answer(module)
    except (StopIteration, ValueError) as error:
        return error


def _said(found) -> str:
    if isinstance(found, Exception):
        return f"a {type(found).__name__} was raised"
    return f"{found!s} was returned"


# ------------------------------------------------------------------ changing devices


@EXERCISES.add("04.6", "net, optimizer, device")
def move(answer):
    first, second = d2l.gpu(0), d2l.gpu(1)
    net, optimizer = _in_training(first)
    twin, its = _in_training(first)
    parameters = list(net.parameters())
    remembered = sum(
        value.nbytes
        for state in optimizer.state.values()
        for value in state.values()
        if value.dim()
    )
    with d2l.transfers() as log:
        answer(net, optimizer, second)
    yield Claim(
        "the parameters are on `device`",
        all(p.device == second for p in net.parameters()),
        f"They're on {next(net.parameters()).device}, but `device` is {second}.",
    )
    held = [p for group in optimizer.param_groups for p in group["params"]]
    yield Claim(
        "they're the same objects as before, and the optimizer still has them",
        [id(p) for p in net.parameters()] == [id(p) for p in parameters]
        and [id(p) for p in held] == [id(p) for p in parameters],
        "The optimizer no longer holds the parameters of `net`, or not all of them.",
    )
    states = [optimizer.state.get(p, {}) for p in parameters]
    kept = all({"exp_avg", "exp_avg_sq", "step"} <= set(state) for state in states)
    yield Claim(
        "Adam keeps its state",
        kept,
        "Its moments or step counters are gone. An Adam that starts over takes "
        "different steps for a while.",
    )
    if not kept:
        return
    homes = {
        state[name].device for state in states for name in ("exp_avg", "exp_avg_sq")
    }
    yield Claim(
        "its moments are on `device`",
        homes == {second},
        f"They're on {', '.join(sorted(map(str, homes)))}. A module doesn't know "
        "about the optimizer that trains it.",
    )
    if homes != {second}:
        return
    counters = {state["step"].device.type for state in states}
    yield Claim(
        "its step counters are still on the host",
        counters == {"cpu"},
        "They moved too. Python reads them in each step, and would have to fetch them "
        "each time.",
    )
    _step(net, optimizer, second)
    _step(twin, its, first)
    yield Claim(
        "the next step is the same as without the move",
        all(
            torch.allclose(p.cpu(), q.cpu(), atol=1e-6)
            for p, q in zip(net.parameters(), twin.parameters(), strict=True)
        ),
        "The parameters differ after it: part of Adam's state has changed.",
    )
    nbytes = remembered + sum(p.nbytes for p in parameters)
    hint = f"{log.nbytes:,} bytes crossed; parameters and moments have {nbytes:,}."
    by_host = any("cpu" in (copy.source.type, copy.target.type) for copy in log)
    if by_host:
        hint = "The copy went by way of the host. GPUs can copy directly to each other."
    yield Claim(
        "the parameters and moments each cross once",
        log.nbytes == nbytes and not by_host,
        hint,
    )


def _in_training(device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for _ in range(3):
        _step(net, optimizer, device)
    return net, optimizer


def _step(net, optimizer, device: torch.device) -> None:
    X = torch.linspace(-1, 1, 24).reshape(4, 6).to(device)
    optimizer.zero_grad()
    net(X).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
