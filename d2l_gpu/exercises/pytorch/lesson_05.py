"""Time: simulated, on simulators that only the answer uses."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.pytorch.arrays import as_number
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.shared.lesson_05 import wrong_norms
from d2l_gpu.exercises.variants.draw import Draw, Vary, one_of

EXERCISES = Registry()

# ------------------------------------------------------------------ CPU or GPU?

SIZES = tuple(range(64, 1537, 64))
CASES = (("V100", 1), ("V100", 3), ("H100", 1), ("H100", 3))


def _other_cases(draw: Draw) -> tuple[tuple[str, int], ...]:
    """Return two GPUs, each with one product and with several."""
    models = draw.sample(("V100", "H100", "A100"), 2)
    products = draw.choice((2, 4, 5, 6))
    return tuple((model, k) for model in models for k in (1, products))


# Which copies an answer may have timed, all but the first by mistake: that of the
# matrix to the GPU, and that of the result back.
COUNTED = {
    "right": (True, True),
    "no copies": (False, False),
    "only there": (True, False),
    "only back": (False, True),
}
TOLD = {
    "no copies": (
        "From these sizes on, the GPU is faster if the matrix is already there and "
        "the result can stay. Here both have to be copied."
    ),
    "only there": (
        "These sizes leave out the copy back: the result is needed in the host's "
        "memory."
    ),
    "only back": (
        "These sizes leave out the copy to the GPU: the matrix starts in the host's "
        "memory."
    ),
}


@functools.cache
def _simulator(model: str):
    return d2l.simulator(1, model, backing="meta")


@functools.cache
def _seconds(n: int, products: int, model: str, what: str) -> tuple[float, float]:
    """Return how long the products take on the CPU and on the GPU, in seconds."""
    there, back = COUNTED[what]

    def on_cpu(device):
        X = torch.empty(n, n, device=device)
        for _ in range(products):
            X @ X

    def on_gpu(device):
        X = torch.empty(n, n, device="meta" if there else device).to(device)
        for _ in range(products):
            Y = X @ X
        if back:
            Y.to("meta")

    cpu, gpu = _simulator("Xeon E5-2698 v4").gpu(), _simulator(model).gpu()
    return d2l.bench(on_cpu, cpu)[0].seconds, d2l.bench(on_gpu, gpu)[0].seconds


@functools.cache
def _crossings(what: str, cases: tuple[tuple[str, int], ...]) -> list[int]:
    """Return the answer to each of the cases if `what` is timed on the GPU."""
    return [
        next(
            n
            for n in SIZES
            for cpu, gpu in [_seconds(n, products, model, what)]
            if gpu < cpu
        )
        for model, products in cases
    ]


def _answered(
    answer: Callable, gpus: Gpus, cases: Sequence[tuple[str, int]]
) -> list[tuple[int, int]]:
    """Return the size, and the number of kernels on the GPU, for each of the cases."""
    cpu, found = _simulator("Xeon E5-2698 v4").gpu(), []
    for model, products in cases:
        sim = _simulator(model)
        sim.reset()
        size = answer(cpu, sim.gpu(), list(SIZES), products)
        found.append((size, sim.report().devices[0].kernels))
    return found


@EXERCISES.add(
    "05.1",
    "cpu, gpu, sizes, products",
    returns=int,
    vary={"cases": Vary(CASES, _other_cases)},
)
def crossing(run: Run, cases: tuple[tuple[str, int], ...]):
    found, kernels = map(list, zip(*run(_answered, cases), strict=True))
    several = cases[1][1]
    yield Claim(
        "it returns sizes from the list",
        set(found) <= set(SIZES),
        f"You return {next((n for n in found if n not in SIZES), None)}, which isn't "
        "in the list.",
    )
    if not set(found) <= set(SIZES):
        return
    right = _crossings("right", cases)
    told = ""
    if found != right:
        told = next(
            (TOLD[what] for what in TOLD if _crossings(what, cases) == found), ""
        )
    if found[0] == found[1] == right[0]:
        told = f"With {several} products you return the same sizes as with one. " + (
            "The GPU did no more work for them."
            if kernels[0] == kernels[1]
            else (
                "How often do you copy the matrix there, and how many results do you "
                "copy back?"
            )
        )
    # A wrong method may happen to give the right answer in one case.
    for products in (1, several):
        rows = [
            (model, mine, true)
            for (model, k), mine, true in zip(cases, found, right, strict=True)
            if k == products
        ]
        yield Claim(
            f"with {products} product{'s' * (products > 1)}, it returns the smallest "
            "size at which the GPU is faster, copies included",
            all(mine == true for _, mine, true in rows),
            told or _why_not(products, rows),
        )


def _why_not(products: int, rows: Sequence[tuple[str, int, int]]) -> str:
    for model, mine, true in rows:
        if mine != true:
            cpu, gpu = (s * 1e6 for s in _seconds(mine, products, model, "right"))
            if mine < true:
                return (
                    f"At n = {mine}, the {model} takes {gpu:.0f} µs, copies included, "
                    f"and the CPU {cpu:.0f} µs (simulated): the GPU isn't faster yet."
                )
            return (
                f"At n = {mine}, the {model} takes {gpu:.0f} µs, copies included, and "
                f"the CPU {cpu:.0f} µs (simulated), but the GPU is already faster at a "
                "smaller n."
            )
    return ""


# ------------------------------------------------------------------ norms


_STEPS, _EVERIES = 95, (1, 10, 95)


def _matrix(growth: float) -> torch.Tensor:
    torch.manual_seed(0)
    return growth * torch.linalg.qr(torch.randn(100, 100))[0]


def _logged(answer: Callable, gpus: Gpus, every: int, growth: float) -> dict:
    """Return the norms, and what it cost to find them."""
    sim = d2l.simulator(1)
    X = _matrix(growth).to(sim.gpu())
    before = torch.vgpu.memory_allocated(sim.gpu())
    torch.vgpu.reset_peak_memory_stats(sim.gpu())
    sim.reset()
    result = answer(X, _STEPS, every)
    used = sim.report().links
    found = {
        "copies": sum(link.copies for link in used),
        "nbytes": sum(link.nbytes for link in used),
        "peak": torch.vgpu.max_memory_allocated(sim.gpu()) - before,
        "waits": sum(span.lane == "wait" for span in sim.spans()),
    }
    return found | _numbers(result)


def _numbers(result: list) -> dict:
    """Return the elements of a list as numbers, and the names of their types."""
    return {
        "values": [as_number(x) for x in result],
        "types": [
            "float" if isinstance(x, float) else type(x).__name__ for x in result
        ],
    }


@EXERCISES.add(
    "05.2",
    "X, steps, every",
    returns=list,
    vary={"growth": Vary(1.01, lambda draw: draw.number(1.004, 1.02))},
)
def norms(run: Run, growth: float):
    X = Y = _matrix(growth)
    wanted = []
    for _ in range(_STEPS):
        Y = Y @ X
        wanted.append(float(Y.norm()))
    runs = {every: run(_logged, every, growth) for every in _EVERIES}
    numbers = {every: len(found["values"]) for every, found in runs.items()}
    yield Claim(
        "it returns one norm for each step",
        set(numbers.values()) == {_STEPS},
        _wrong_number(numbers),
    )
    if set(numbers.values()) != {_STEPS}:
        return
    kinds = [kind for found in runs.values() for kind in found["types"]]
    yield Claim(
        "the norms are Python numbers",
        set(kinds) == {"float"},
        f"The first one is a {runs[10]['types'][0]}: you never fetched its value.",
    )
    values = next(
        (found["values"] for found in runs.values() if not _same(found, wanted)),
        wanted,
    )
    yield Claim(
        "they're the norms of the products, in order",
        values is wanted,
        wrong_norms(values, wanted, float(X.norm()), ".4f"),
    )
    needed = {every: math.ceil(_STEPS / every) for every in runs}
    copies = {every: found["copies"] for every, found in runs.items()}
    yield Claim(
        "each copy fetches `every` norms at once",
        copies == needed,
        _wrong_copies(copies, needed),
    )
    nbytes = {found["nbytes"] for found in runs.values()}
    yield Claim(
        "only the norms are fetched, 4 bytes each",
        nbytes == {4 * _STEPS},
        f"You fetched {max(nbytes):,} bytes for {_STEPS} norms: more than one number "
        "for each step.",
    )
    peak = max(found["peak"] for found in runs.values()) / X.nbytes
    yield Claim(
        "the products don't stay in the GPU's memory",
        peak < 10,
        f"There were {peak:.0f} matrices in memory at once. A norm is one number. "
        "What keeps the products until the end?",
    )
    waits = runs[95]["waits"]
    yield Claim(
        "with `every=95`, Python waits only once, at the end",
        waits <= 1,
        f"Python waited {waits} times, although you made no more copies than "
        "necessary: something in the loop waits without fetching a value.",
    )


def _same(found: dict, wanted: list[float]) -> bool:
    return np.allclose(found["values"], wanted, rtol=1e-3)


def _wrong_number(numbers: dict[int, int]) -> str:
    for every, number in numbers.items():
        came = f"With `every={every}`, you return {number} norms for 95 steps."
        if number == 95 // every * every != 95:
            return (
                f"{came} The last {95 - number} are missing, because 95 isn't a "
                f"multiple of {every}."
            )
        if number == math.ceil(95 / every) != 95:
            return (
                f"{came} There is one for each fetch, but you were asked for the norms "
                "of *all* steps."
            )
        if number != 95:
            return came
    return ""


def _wrong_copies(copies: dict[int, int], needed: dict[int, int]) -> str:
    if copies[10] >= 95:
        return (
            f"With `every=10`, you made {copies[10]} copies for 95 steps: you fetched "
            "each norm separately, and Python waited each time."
        )
    if copies[10] == 1:
        return (
            "With `every=10`, you fetched nothing before the end. Fetch ten norms "
            "after every tenth step, so that the log can be read while the program "
            "runs."
        )
    for every in copies:
        if copies[every] != needed[every]:
            return (
                f"With `every={every}`, you made {copies[every]} copies, and "
                f"{needed[every]} would be enough."
            )
    return ""


# ------------------------------------------------------------------ timing


def _multiply(Xs: Sequence[torch.Tensor], times: Sequence[int]) -> None:
    for X, products in zip(Xs, times, strict=True):
        for _ in range(products):
            X @ X


def _timed(answer: Callable, gpus: Gpus, work: Sequence[int], n: int) -> dict:
    """Return the seconds that an answer measured, and how."""
    sim = d2l.simulator(2, backing="meta")
    Xs = [torch.empty(n, n, device=gpu) for gpu in sim.gpus()]
    calls = readings = 0

    def program():
        nonlocal calls
        calls += 1
        _multiply(Xs, work)
        if calls == 1:
            _multiply(Xs, (20, 20))  # the overhead of first use

    def clock():
        nonlocal readings
        readings += 1
        return sim.now()

    sim.reset()
    _multiply(Xs, (50, 50))  # earlier work, still in the queue
    answered = answer(program, sim.gpus(), clock)
    return {"answered": answered, "calls": calls, "readings": readings}


@EXERCISES.add(
    "05.3",
    "program, devices, clock",
    returns=float,
    vary={"products": one_of(6, 5, 7, 8, 9)},
)
def seconds(run: Run, products: int):
    cases = ((1, products), 2048), ((products, 1), 2048), ((1, products), 4096)
    runs = [_Timed(**run(_timed, *case), **_right_times(*case)) for case in cases]
    yield Claim(
        "`program` is called",
        all(run.calls for run in runs),
        "You never call it.",
    )
    yield Claim(
        "`clock` is read at least twice",
        all(run.readings > 1 for run in runs),
        "You need two readings of `clock` to measure a time. Any other clock measures "
        "your own computer, not the virtual GPUs.",
    )
    if not all(run.calls and run.readings > 1 for run in runs):
        return
    wrong = [run for run in runs if not 0.95 < run.answered / run.right < 1.05]
    hint = _wrong_time(wrong[0]) if wrong else ""
    yield Claim(
        "the time is that of one run, until both devices have finished",
        not wrong,
        hint,
    )


@dataclass(frozen=True)
class _Timed:
    """The time that an answer measured, and others for comparison, in seconds.

    Attributes:
        answered: the answer's time.
        calls, readings: how often the program was called, and the clock read.
        right: the time of one run, with all devices idle before and after.
        asking: the time until Python has queued everything.
        one: for each device, the time until that one is done.
    """

    answered: float
    calls: int
    readings: int
    right: float
    asking: float
    one: Sequence[float]


def _right_times(work: Sequence[int], n: int) -> dict:
    sim = d2l.simulator(2, backing="meta")
    Xs = [torch.empty(n, n, device=gpu) for gpu in sim.gpus()]
    one = []
    for gpu in sim.gpus():
        sim.reset()
        _multiply(Xs, work)
        asking = sim.now()
        torch.vgpu.synchronize(gpu)
        one.append(sim.now())
    return {"right": max(one), "asking": asking, "one": one}


def _wrong_time(run: _Timed) -> str:
    answered = f"{run.answered * 1e3:.2f} ms"
    if run.answered < 2 * run.asking:
        return (
            f"{answered} is how long Python takes to queue the work. You read the "
            "clock while the devices were still working."
        )
    shorter = min(run.one)
    if 0.95 < run.answered / shorter < 1.05:
        return (
            f"After {answered}, only one of the devices has finished. Waiting for one "
            "device doesn't wait for the other."
        )
    if run.answered < run.right:
        return (
            f"{answered} is less than the work takes, which is {run.right * 1e3:.2f} "
            "ms. Did you measure exactly one run?"
        )
    if run.calls == 1:
        return (
            f"{answered} is more than the work takes: it includes the overhead of the "
            "first call."
        )
    for times in (run.calls, run.calls - 1):
        if times > 1 and 0.95 < run.answered / run.right / times < 1.05:
            return f"{answered} is the time of {times} runs, not one."
    return (
        f"{answered} is longer than a warm run, which takes {run.right * 1e3:.2f} ms. "
        "The queues weren't empty when you first read the clock."
    )


# ------------------------------------------------------------------ a slow loop


_EXAMPLES, _FEATURES, _CLASSES = 64, 32, 10


def _network_and_data() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    hidden, out = nn.Linear(_FEATURES, 16), nn.Linear(16, _CLASSES)
    X = 4 * torch.randn(_EXAMPLES, _FEATURES)
    return nn.Sequential(hidden, nn.ReLU(), out), X, X[:, :_CLASSES].argmax(dim=1)


def _train(net, X, y, steps: int, rate: float, shrink: bool = True) -> list[float]:
    losses = []
    for _ in range(steps):
        net.zero_grad()
        loss = F.cross_entropy(net(X), y)
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= rate * p.grad / (p.grad.norm().clamp(min=1) if shrink else 1)
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _cost_of_training(train: Callable, gpus: Gpus, steps: int) -> dict:
    """Return the losses, the parameters, and what training cost."""
    sim = d2l.simulator(1)
    net, X, y = (each.to(sim.gpu()) for each in _network_and_data())
    sim.reset()
    losses = train(net, X, y, steps)
    found = {
        "took": sim.elapsed(),
        "kernels": sim.report().devices[0].kernels,
        "waits": sum(span.lane == "wait" for span in sim.spans()),
    }
    parameters = [p.detach().cpu().numpy() for p in net.parameters()]
    return found | _numbers(losses) | {"parameters": parameters}


@EXERCISES.add(
    "05.4",
    "net, X, y, steps",
    returns=list,
    changes="net",
    vary={"rate": one_of(0.1, 0.05, 0.2, 0.3)},
)
def train(run: Run, rate: float):
    steps = 8
    found = run(_cost_of_training, steps)
    net, X, y = _network_and_data()
    wanted = _train(net, X, y, steps, rate)
    number = len(found["values"])
    yield Claim(
        "it returns one loss for each step",
        number == steps,
        f"You return {number} for {steps} steps.",
    )
    if number != steps:
        return
    yield Claim(
        "the losses are Python numbers",
        set(found["types"]) == {"float"},
        f"The first one is a {found['types'][0]}. Fetch their values at the end.",
    )
    parameters = [p.detach().numpy() for p in net.parameters()]
    same = _same(found, wanted)
    yield Claim(
        "the losses are those of `train_slowly`",
        same,
        _wrong_losses(found["values"], wanted, rate),
    )
    if not same:
        return
    yield Claim(
        "the parameters end up as after `train_slowly`",
        all(map(_close, found["parameters"], parameters)),
        "The losses are right, but the parameters aren't those after the last step.",
    )
    fast = _cost_of_training(functools.partial(_train, rate=rate), None, steps)
    kernels, waits = found["kernels"] / steps, found["waits"]
    yield Claim(
        "the whole batch goes through the network at once",
        found["kernels"] < 3 * fast["kernels"],
        f"The GPU runs {kernels:,.0f} kernels per step, and "
        f"{fast['kernels'] / steps:.0f} would do. What do you do {_EXAMPLES} times "
        "that could be done once?",
    )
    yield Claim(
        "Python doesn't wait in each step",
        waits < steps,
        f"Python waits {waits} times in {steps} steps: "
        + (
            "once per step. Which value do you fetch there, and who needs it so soon?"
            if waits < 2 * steps
            else "several times per step. A choice between two values needn't be made "
            "in Python: is there an operation that makes it on the GPU?"
        ),
    )
    ratio = found["took"] / fast["took"]
    yield Claim(
        "it takes no longer than necessary",
        ratio < 1.5,
        f"It takes {ratio:.1f} times as long as it has to (simulated), although Python "
        "doesn't wait. Which operations could be left out?",
    )


def _wrong_losses(values: list[float], wanted: list[float], rate: float) -> str:
    plain = _train(*_network_and_data(), len(wanted), rate, shrink=False)
    if math.isclose(values[0], _EXAMPLES * wanted[0], rel_tol=1e-3):
        return "They're sums over the batch. `train_slowly` has the mean."
    if math.isclose(values[0], wanted[1], rel_tol=1e-3):
        return "The first one is the loss after the first step, not before it."
    if np.allclose(values, wanted[0], rtol=1e-3):
        return "They're all the same: the parameters don't change."
    if np.allclose(values, plain, rtol=1e-3):
        return (
            "They're those of training with the full gradients. `train_slowly` shrinks "
            "gradients whose norm is larger than 1."
        )
    for i, (value, loss) in enumerate(zip(values, wanted, strict=True), 1):
        if not math.isclose(value, loss, rel_tol=1e-3):
            return f"That of step {i} should be {loss:.4f}, but yours is {value:.4f}."
    return ""


def _close(values, wanted) -> bool:
    return values.shape == wanted.shape and np.allclose(values, wanted, atol=1e-4)


# ------------------------------------------------------------------ a lower bound


# Operators, operations, bytes, GPU: each limit decides on each GPU, and the same
# program is limited by arithmetic on one and by memory on another.
_PROGRAMS = (
    (1000, 10**9, 10**9, "V100"),
    (1000, 10**9, 10**9, "B200"),
    (10, 10**12, 10**9, "V100"),
    (10, 10**12, 10**9, "B200"),
    (1, 10**8, 10**9, "V100"),
    (1, 10**8, 10**9, "B200"),
    (10, 14 * 10**9, 10**9, "V100"),
    (10, 14 * 10**9, 10**9, "B200"),
)
_LIMITS = ("Python", "arithmetic", "memory")


def _least(
    micros: float, operators: int, operations: int, nbytes: int, name: str
) -> list[float]:
    """Return the seconds of each of `_LIMITS`."""
    model = vgpu.MODELS[name]
    return [
        operators * micros * 1e-6,
        operations / model.rates["fp32"],
        nbytes / model.bandwidth,
    ]


def _bounds(answer: Callable, gpus: Gpus) -> list[dict]:
    """Return what an answer says of `_PROGRAMS`, each as an experiment may return."""
    said = [answer(*case, vgpu.MODELS[name]) for *case, name in _PROGRAMS]
    return [
        {
            "length": len(each),
            "seconds": as_number(each[0]) if each else math.nan,
            "limit": str(each[-1]) if each else "",
        }
        for each in said
    ]


@EXERCISES.add(
    "05.5",
    "operators, operations, nbytes, model",
    returns=tuple,
    vary={"micros": one_of(5.9, 4, 5, 7, 8)},
)
def at_least(run: Run, micros: float):
    said = run(_bounds)
    pairs = all(each["length"] == 2 for each in said)
    yield Claim(
        "it returns two values",
        pairs,
        "Return a tuple of the seconds and the name of the limit.",
    )
    if not pairs:
        return
    times = [_least(micros, *program) for program in _PROGRAMS]
    seconds = [each["seconds"] for each in said]
    right = [max(each) for each in times]
    yield Claim(
        "the seconds are the least that the program takes",
        np.allclose(seconds, right, rtol=1e-3),
        _wrong_bound(seconds, times, micros),
    )
    named = [each["limit"] for each in said]
    limits = [_LIMITS[each.index(max(each))] for each in times]
    yield Claim(
        "the limit is 'Python', 'arithmetic' or 'memory', whichever takes longest",
        named == limits,
        _wrong_limit(named, limits),
    )


def _wrong_bound(seconds: list[float], times: list[list[float]], micros: float) -> str:
    right = [max(each) for each in times]
    tensor = [
        max(t[0], operations / vgpu.MODELS[name].tensor_rates["fp16"], t[2])
        for (_, operations, _, name), t in zip(_PROGRAMS, times, strict=True)
    ]
    told = {
        "You add up what happens at the same time: Python queues, and the arithmetic "
        "units compute, while the memory delivers more data.": [sum(t) for t in times],
        "You return the smallest of the three times. A program isn't done before the "
        "last of them is.": [min(t) for t in times],
        f"You leave out Python, which needs {micros:g} µs for each operator.": [
            max(t[1:]) for t in times
        ],
        "Those aren't seconds: they're 1,000 times too large.": [
            1e3 * t for t in right
        ],
        "You use the peak of the tensor cores in fp16. The program computes in fp32.": (
            tensor
        ),
    }
    for hint, wrong in told.items():
        if np.allclose(seconds, wrong, rtol=1e-3):
            return hint
    for program, mine, true in zip(_PROGRAMS, seconds, right, strict=True):
        if not math.isclose(mine, true, rel_tol=1e-3):
            operators, operations, nbytes, name = program
            return (
                f"{operators:,} operators with {operations:,} operations on {nbytes:,} "
                f"bytes take a {name} at least {true * 1e3:.3f} ms. You return "
                f"{mine * 1e3:.3f} ms."
            )
    return ""


def _wrong_limit(named: list[str], limits: list[str]) -> str:
    if not set(named) <= set(_LIMITS):
        other = next(each for each in named if each not in _LIMITS)
        return f"You return {other!r}."
    for program, mine, true in zip(_PROGRAMS, named, limits, strict=True):
        if mine != true:
            operators, operations, nbytes, name = program
            return (
                f"{operators:,} operators with {operations:,} operations on {nbytes:,} "
                f"bytes are limited by {true} on a {name}. You return {mine!r}."
            )
    return ""
