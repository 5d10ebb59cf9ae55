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
        "autograd does not complain",
        not refused,
        "A parameter that is written into is, to autograd, an operation as any other, "
        "and one that it could not undo. It has to be told that this one is not to be "
        "recorded.",
    )
    if refused:
        return
    wanted = float(before[3, 5])
    hint = f"It was {wanted:.6f}, and {value:.6f} came back."
    if value == 0:
        hint = "Zero came back. When was it read?"
    elif math.isclose(value, float(before[5, 3]), rel_tol=1e-6):
        hint = "What came back was at `[j, i]`."
    yield Claim(
        "the number that was at `[i, j]` is returned",
        math.isclose(value, wanted, rel_tol=1e-6),
        hint,
    )
    yield Claim(
        "`layer.weight` is the parameter that it was, on its device",
        layer.weight is weight and weight.device == d2l.gpu(0),
        "It is another one, of which an optimizer that was given the old one does not "
        "know.",
    )
    after = layer.weight.detach().cpu()
    changed = after != before
    expected = torch.zeros_like(changed)
    expected[3, 5] = True
    if changed.any():
        hint = f"{int(changed.sum())} numbers have changed."
    else:
        hint = "All numbers are what they were: what was written into was a copy."
    yield Claim(
        "that number is zero now, and no other has changed",
        torch.equal(changed, expected) and float(after[3, 5]) == 0,
        hint,
    )
    yield Claim(
        "training can go on",
        recording and layer.weight.requires_grad and layer.weight.is_leaf,
        "The parameter wants no gradients any more."
        if recording
        else "Autograd records nothing any more, for no parameter at all.",
    )
    nbytes = log.nbytes
    if nbytes > layer.weight.nbytes:
        hint = f"{nbytes:,} bytes crossed: the whole weight was fetched, and sent back."
    elif nbytes == layer.weight.nbytes:
        hint = f"{nbytes:,} bytes crossed: the whole weight, for one of its numbers."
    else:
        hint = (
            f"{nbytes} bytes crossed. One number was wanted on the host; did the zero "
            "come from there?"
        )
    yield Claim("4 bytes cross, to the host", len(log) == 1 and nbytes == 4, hint)


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
        "there is a number of bytes, an integer, for each of the three",
        set(whole) == set(right) and len(answer) == len(right),
        f"The keys are to be {', '.join(map(repr, right))}, and the values integers.",
    )
    if set(whole) != set(right):
        return
    parameters = 4 * 512 * 1024
    told = ""
    for text, mistake in {
        "These are numbers. How many bytes has a number of `float32`?": {
            name: x // 4 for name, x in right.items()
        },
        "This is what the optimizers remember. Parameters and gradients are there, "
        "too.": {name: x - 2 * parameters for name, x in right.items()},
        "Something that each of the three needs is missing: what does an optimizer "
        "read to know where to go?": {
            name: x - parameters for name, x in right.items()
        },
    }.items():
        if whole == mistake:
            told = text
    for name in right:
        times = whole[name] / parameters
        yield Claim(
            f"{name}: that is what lies on the GPU",
            whole[name] == right[name],
            told or _wrong_bytes(name, times, whole[name] > right[name]),
        )


def _wrong_bytes(name: str, times: float, more: bool) -> str:
    text = f"You say {times:g} times the bytes of the parameters"
    if name == "SGD":
        reason = "what does it know of the step before?"
    elif name == "momentum":
        reason = "what does it keep from step to step?"
    else:
        reason = "of how many kinds are the averages that Adam keeps?"
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
        "There are no batches." if not given else "Another thing was given.",
    )
    if not pairs or not given:
        return
    sizes = [len(images) for images, _ in given]
    yield Claim(
        "three epochs have three times as many examples as the data set, in batches "
        "of `batch_size` and what is left of each epoch",
        sizes == 3 * [8, 8, 8, 8, 8, 8, 2],
        _wrong_sizes(sizes),
    )
    devices = {images.device for images, _ in given}
    labels_on = {labels.device for _, labels in given}
    yield Claim(
        "the images are on `device`", devices == {gpu}, _elsewhere(devices, gpu)
    )
    yield Claim(
        "the labels are there as well",
        labels_on == {gpu},
        f"{_elsewhere(labels_on, gpu)} The loss needs them where the output of the "
        "network is.",
    )
    if sizes != 3 * [8, 8, 8, 8, 8, 8, 2]:
        return
    numbers = torch.cat([images[:, 0].cpu() for images, _ in given]).long()
    labels = torch.cat([labels.cpu() for _, labels in given])
    yield Claim(
        "each image has its own label",
        torch.equal(numbers + 100, labels),
        "Images and labels were mixed, each in an order of their own.",
    )
    epochs = numbers.reshape(3, 50)
    once = all(len(epoch.unique()) == 50 for epoch in epochs)
    yield Claim(
        "in each epoch every example comes once",
        once,
        "Some come twice in an epoch, and others not at all.",
    )
    plain = torch.arange(50)
    orders = {tuple(epoch.tolist()) for epoch in epochs}
    yield Claim(
        "each epoch has an order of its own",
        len(orders) == 3 and tuple(plain.tolist()) not in orders,
        "They come as they lie in the data set."
        if tuple(plain.tolist()) in orders
        else "They were mixed once, and come in that order in all epochs.",
    )
    nbytes = X.nbytes + y.nbytes
    yield Claim(
        "two copies cross for all epochs, the images and the labels",
        len(log) == 2 and log.nbytes == nbytes,
        _wrong_copies(log, nbytes),
    )


def _elsewhere(found: set[torch.device], wanted: torch.device) -> str:
    others = sorted(str(device) for device in found if device != wanted)
    return f"Some of them are on {', '.join(others)}."


def _wrong_sizes(sizes: list[int]) -> str:
    total = sum(sizes)
    if total == 50:
        return "They come once: that is one epoch, and three were asked for."
    if total == 3 * 48:
        return (
            "Of 50 examples 48 came in each epoch: the last batch, which is smaller, "
            "is missing."
        )
    return (
        f"{total} examples came, in {len(sizes)} batches of {min(sizes)} to "
        f"{max(sizes)}; asked for were three times 50, in batches of 8."
    )


def _wrong_copies(log, nbytes: int) -> str:
    at_once = [copy for copy in log if copy.nbytes >= nbytes // 8]
    if log.nbytes >= 3 * nbytes:
        if len(log) <= 6:
            return (
                f"{len(log)} copies were made: the data set was sent again in each "
                "epoch."
            )
        return f"{len(log)} copies were made: each batch was sent by itself."
    if any(copy.target.type == "cpu" for copy in log):
        return "Something was fetched to the host, where nothing of it is needed."
    return (
        f"{len(log)} copies were made, {len(log) - len(at_once)} of them small ones: "
        "the data set went there once, and the order of its examples came after it, "
        "from the host."
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
        "They are others, or not all of them. An optimizer that was given those of "
        "`net` would train what is not used."
        if list(model.parameters())
        else "It has none: layers that a module keeps in a list of Python's are not "
        "found.",
    )
    homes = [p.device for p in parameters]
    yield Claim(
        "the first layer is on the first device, the last one on the second",
        homes == [first, first, second, second],
        f"The first one is on {homes[0]} and the last one on {homes[2]}.",
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
        "what meets in the forward pass is on one device",
        not apart,
        "A layer got an input from the other device: nobody has brought there what "
        "the first layer gives.",
    )
    if apart:
        return
    right = torch.is_tensor(output) and output.shape == wanted.shape
    yield Claim(
        "the output is on the second device, and is that of `net`",
        right
        and output.device == second
        and torch.allclose(output.detach().cpu(), wanted.detach(), atol=1e-5),
        f"It is on {output.device}."
        if right and output.device != second
        else "Its values are others, or its shape is.",
    )
    if not right:
        return
    hint = (
        f"{len(forward)} copies with {forward.nbytes:,} bytes were made; what the "
        f"first layer gives has {hidden:,}."
    )
    if any("cpu" in (copy.source.type, copy.target.type) for copy in forward):
        hint = "Something went by way of the host."
    yield Claim(
        "in the forward pass one copy crosses, of what the first layer gives",
        [copy[1:] for copy in forward] == [(first, second)]
        and forward.nbytes == hidden,
        hint,
    )
    if output.requires_grad:
        output.sum().backward()
    missing = [p.grad is None for p in parameters]
    yield Claim(
        "the backward pass reaches all layers",
        not any(missing)
        and all(
            torch.allclose(p.grad.cpu(), q.grad, atol=1e-4)
            for p, q in zip(parameters, twin.parameters(), strict=True)
        ),
        "The first layer has no gradients: autograd did not see what came to the "
        "second device from it."
        if any(missing[:2])
        else "The gradients are not those of `net`.",
    )


# ------------------------------------------------------------------ a model's device


@EXERCISES.add("04.5", "module")
def device_of(answer):
    first, second = d2l.gpu(0), d2l.gpu(1)
    whole = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(second)
    found = _device_or_error(answer, whole)
    yield Claim(
        "it returns the device of a model that is on one",
        isinstance(found, torch.device) and found == second,
        "That is a text; a `torch.device` is wanted."
        if isinstance(found, str)
        else f"The model is on {second}; {_said(found)}.",
    )
    lazy = nn.LazyLinear(3).to(first)
    found = _device_or_error(answer, lazy)
    yield Claim(
        "of one whose layers are lazy, too",
        found == first,
        f"Its parameters have no shape yet, but they have a device: {first}. "
        f"Yours: {_said(found)}.",
    )
    found = _device_or_error(answer, nn.ReLU())
    yield Claim(
        "it returns None for a module without parameters and buffers",
        found is None,
        "`next` raises a StopIteration where there is no first one."
        if isinstance(found, StopIteration)
        else f"For `nn.ReLU()`: {_said(found)}.",
    )
    apart = nn.Sequential(nn.Linear(3, 4).to(first), nn.Linear(4, 2).to(second))
    found = _device_or_error(answer, apart)
    yield Claim(
        "it raises a ValueError for a model on two devices",
        isinstance(found, ValueError),
        f"The first layer is on {first} and the second one on {second}; "
        f"{_said(found)}. Who looks at one parameter sees one device.",
    )
    if isinstance(found, ValueError):
        text = str(found)
        yield Claim(
            "the error names both devices",
            all(str(d) in text or repr(d) in text for d in (first, second)),
            f"It says: {text or 'nothing'}",
        )
    norm = nn.BatchNorm1d(4).to(first)
    norm.running_mean = norm.running_mean.to(second)
    found = _device_or_error(answer, norm)
    yield Claim(
        "also if it is a buffer that is elsewhere",
        isinstance(found, ValueError),
        "The running mean of a BatchNorm is moved with the module, and is no "
        f"parameter; it is on {second} here and the parameters on {first}, and "
        f"{_said(found)}.",
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
        f"They are on {next(net.parameters()).device}, where they were.",
    )
    held = [p for group in optimizer.param_groups for p in group["params"]]
    yield Claim(
        "they are the same objects, and those of the optimizer",
        [id(p) for p in net.parameters()] == [id(p) for p in parameters]
        and [id(p) for p in held] == [id(p) for p in parameters],
        "What the optimizer has in its hands are not the parameters of `net` any more, "
        "or not all of them.",
    )
    states = [optimizer.state.get(p, {}) for p in parameters]
    kept = all({"exp_avg", "exp_avg_sq", "step"} <= set(state) for state in states)
    yield Claim(
        "Adam remembers what it remembered",
        kept,
        "Its moments are gone. Who begins with new ones takes other steps for a while.",
    )
    if not kept:
        return
    homes = {
        state[name].device for state in states for name in ("exp_avg", "exp_avg_sq")
    }
    yield Claim(
        "its moments are on `device`",
        homes == {second},
        f"They are on {', '.join(sorted(map(str, homes)))}. A module knows nothing of "
        "the optimizer that trains it.",
    )
    if homes != {second}:
        return
    counters = {state["step"].device.type for state in states}
    yield Claim(
        "its step counters are on the host, as before",
        counters == {"cpu"},
        "They went along. Python reads them in each step, and would have to fetch them "
        "each time.",
    )
    _step(net, optimizer, second)
    _step(twin, its, first)
    yield Claim(
        "the next step is the one that would have come without the move",
        all(
            torch.allclose(p.cpu(), q.cpu(), atol=1e-6)
            for p, q in zip(net.parameters(), twin.parameters(), strict=True)
        ),
        "The parameters are others after it: some of what Adam remembers has other "
        "values.",
    )
    nbytes = remembered + sum(p.nbytes for p in parameters)
    hint = f"{log.nbytes:,} bytes crossed, and parameters and moments have {nbytes:,}."
    by_host = any("cpu" in (copy.source.type, copy.target.type) for copy in log)
    if by_host:
        hint = "It went by way of the host. GPUs can copy from each other."
    yield Claim(
        "each of them crosses once",
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
