"""What it costs: times are simulated, on simulators that only the answer uses."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run

EXERCISES = Registry()

# Accept answers slower than necessary by up to this factor, such as one wait too many.
LEEWAY = 1.1


def _time_of(sim, program: Callable) -> float:
    """Return the simulated seconds until host and devices have finished a program."""
    sim.reset()
    program()
    return sim.elapsed()


# ------------------------------------------------------------------ CPU or GPU?

SIZES = tuple(range(64, 1537, 64))
CASES = (("V100", 1), ("V100", 3), ("H100", 1), ("H100", 3))

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
def _crossings(what: str) -> list[int]:
    """Return the answer to each of `CASES` if `what` is timed on the GPU."""
    return [
        next(
            n
            for n in SIZES
            for cpu, gpu in [_seconds(n, products, model, what)]
            if gpu < cpu
        )
        for model, products in CASES
    ]


def _answered(answer: Callable, gpus: Gpus) -> list[tuple[int, int]]:
    """Return the size, and the number of kernels on the GPU, for each of `CASES`."""
    cpu, found = _simulator("Xeon E5-2698 v4").gpu(), []
    for model, products in CASES:
        sim = _simulator(model)
        sim.reset()
        size = answer(cpu, sim.gpu(), list(SIZES), products)
        found.append((size, sim.report().devices[0].kernels))
    return found


@EXERCISES.add("05.1", "cpu, gpu, sizes, products", returns=int)
def crossing(run: Run):
    found, kernels = map(list, zip(*run(_answered), strict=True))
    yield Claim(
        "it returns sizes from the list",
        set(found) <= set(SIZES),
        f"You return {next((n for n in found if n not in SIZES), None)}, which isn't "
        "in the list.",
    )
    if not set(found) <= set(SIZES):
        return
    right = _crossings("right")
    told = ""
    if found != right:
        told = next((TOLD[what] for what in TOLD if _crossings(what) == found), "")
    if found[0] == found[1] == right[0]:
        told = "With three products you return the same sizes as with one. " + (
            "The GPU did no more work for them."
            if kernels[0] == kernels[1]
            else (
                "How often do you copy the matrix there, and how many results do you "
                "copy back?"
            )
        )
    # A wrong method may happen to give the right answer in one case.
    for products in (1, 3):
        rows = [
            (model, mine, true)
            for (model, k), mine, true in zip(CASES, found, right, strict=True)
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


def _matrix() -> torch.Tensor:
    torch.manual_seed(0)
    return 1.01 * torch.linalg.qr(torch.randn(100, 100))[0]


def _logged(answer: Callable, gpus: Gpus, every: int) -> dict:
    """Return the norms, and what it cost to find them."""
    sim = d2l.simulator(1)
    X = _matrix().to(sim.gpu())
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
        "values": [_number(x) for x in result],
        "types": [
            "float" if isinstance(x, float) else type(x).__name__ for x in result
        ],
    }


@EXERCISES.add("05.2", "X, steps, every", returns=list)
def norms(run: Run):
    X = Y = _matrix()
    wanted = []
    for _ in range(_STEPS):
        Y = Y @ X
        wanted.append(float(Y.norm()))
    runs = {every: run(_logged, every) for every in _EVERIES}
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
        _wrong_norms(values, wanted, float(X.norm())),
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


def _number(x) -> float:
    return float(x) if isinstance(x, float | int) or _is_scalar(x) else math.nan


def _is_scalar(x) -> bool:
    return isinstance(x, torch.Tensor) and x.numel() == 1


def _wrong_number(numbers: dict[int, int]) -> str:
    for every, number in numbers.items():
        came = f"With `every={every}`, you return {number} norms for 95 steps"
        if number == 95 // every * every != 95:
            return (
                f"{came}: the last {95 - number} are missing, because 95 isn't a "
                f"multiple of {every}."
            )
        if number == math.ceil(95 / every) != 95:
            return (
                f"{came}, one for each fetch. You were asked for the norms of *all* "
                "steps."
            )
        if number != 95:
            return f"{came}."
    return ""


def _wrong_norms(values: list[float], wanted: list[float], first: float) -> str:
    if math.isclose(values[0], first, rel_tol=1e-3):
        return "The first one is the norm of `X` itself, not of the first product."
    if math.isclose(values[0], wanted[0] ** 2, rel_tol=1e-3):
        return "The first one is the square of the norm: the square root is missing."
    if math.isclose(values[-1], wanted[0], rel_tol=1e-3):
        return (
            "All of them are the norm of `X @ X`. Each step has to multiply the result "
            "of the previous step."
        )
    for i, (value, norm) in enumerate(zip(values, wanted, strict=True), 1):
        if not math.isclose(value, norm, rel_tol=1e-3):
            return (
                f"The norm of step {i} should be {norm:.4f}, but yours is {value:.4f}."
            )
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


@EXERCISES.add("05.3", "program, devices, clock", returns=float)
def seconds(run: Run):
    cases = ((1, 6), 2048), ((6, 1), 2048), ((1, 6), 4096)
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


# ------------------------------------------------------------------ two devices


PRODUCTS = 15


def _two_matrices() -> list[torch.Tensor]:
    torch.manual_seed(0)
    Xs = [1.01 * torch.linalg.qr(torch.randn(512, 512))[0] for _ in range(2)]
    Xs[1] *= 1.01
    return Xs


def _power_norms(answer: Callable, gpus: Gpus) -> dict:
    sim = d2l.simulator(2)
    Xs = [X.to(gpu) for X, gpu in zip(_two_matrices(), sim.gpus(), strict=True)]
    sim.reset()
    result = answer(Xs, PRODUCTS)
    took, links = sim.elapsed(), sim.report().links
    return _numbers(result) | {
        "took": took,
        "crossed": sum(link.nbytes for link in links),
        "fetched": sum(link.copies for link in links if link.target == "host"),
    }


def _power(X: torch.Tensor) -> torch.Tensor:
    Y = X
    for _ in range(PRODUCTS):
        Y = Y @ X
    return Y.norm()


@EXERCISES.add("05.4", "Xs, products", returns=list)
def at_once(run: Run):
    Xs, found = _two_matrices(), run(_power_norms)
    wanted, values = [float(_power(X)) for X in Xs], found["values"]
    yield Claim(
        "it returns two Python numbers",
        found["types"] == ["float", "float"],
        f"You return {found['types']}.",
    )
    if len(values) != 2:
        return
    yield Claim(
        "they're the norms, in the order of the matrices",
        all(map(functools.partial(math.isclose, rel_tol=1e-3), values, wanted)),
        _wrong_power_norms(values, wanted),
    )
    crossed = found["crossed"]
    yield Claim(
        "no matrix is copied off its device",
        crossed < Xs[0].nbytes,
        f"{crossed:,} bytes crossed. Only the norm has to leave each device.",
    )
    if crossed >= Xs[0].nbytes:
        return
    sim = d2l.simulator(1)
    X = Xs[0].to(sim.gpu())
    ratio = found["took"] / _time_of(sim, lambda: _power(X).item())
    fetched = found["fetched"]
    if fetched > 2:
        waited = (
            f"You made {fetched} copies for two norms, and Python waits for each copy."
        )
    else:
        waited = (
            "The second device was idle until the first had finished: Python waited "
            "for the first before it had queued any work for the second."
        )
    yield Claim(
        "both devices work at the same time",
        ratio < 1.7,
        f"It took {ratio:.1f} times as long as one device needs for its own matrix "
        f"(simulated). {waited}",
    )


def _wrong_power_norms(values: list[float], wanted: list[float]) -> str:
    if all(map(functools.partial(math.isclose, rel_tol=1e-3), values, wanted[::-1])):
        return "They're in reverse order."
    if math.isclose(values[0] * 1.01, wanted[0], rel_tol=1e-3):
        return (
            "You made one product too few: the first of the `products` products is "
            "already `X @ X`."
        )
    return f"The first norm should be {wanted[0]:.4f}, but yours is {values[0]:.4f}."


# ------------------------------------------------------------------ at most two steps


_BATCHES = 12


def _queued(answer: Callable, gpus: Gpus) -> dict:
    """Return the batches in the order of the calls of `step`, and when each call was
    made and its work done, in simulated seconds."""
    sim = d2l.simulator(1, backing="meta")
    gpu = sim.gpu()
    W = torch.empty(1024, 1024, device=gpu)
    seen, asked, ends = [], [], []

    def step(batch):
        seen.append(batch)
        asked.append(sim.now())
        for _ in range(1 + batch % 3):  # make steps differ in length
            W @ W
        event = torch.vgpu.Event(enable_timing=True)
        event.record(torch.vgpu.current_stream(gpu))
        ends.append(event)

    start = torch.vgpu.Event(enable_timing=True)
    sim.reset()
    start.record(torch.vgpu.current_stream(gpu))
    answer(step, list(range(_BATCHES)), gpu)
    busy = sim.report().devices[0].busy / sim.elapsed() if ends else 0.0
    return {
        "seen": seen,
        "asked": asked,
        "done": [start.elapsed_time(end) / 1e3 for end in ends],
        "busy": busy,
    }


@EXERCISES.add("05.5", "step, batches, device")
def at_most_two(run: Run):
    found, batches = run(_queued), list(range(_BATCHES))
    seen, asked, done = found["seen"], found["asked"], found["done"]
    yield Claim(
        "`step` is called once for each batch, in order",
        seen == batches,
        f"There were {len(batches)} batches, but you called it {len(seen)} times."
        if len(seen) != len(batches)
        else "You called it in a different order.",
    )
    if seen != batches:
        return
    # Steps unfinished whenever one is requested, including that one.
    ahead = [
        1 + sum(end > asked[k] for end in done[:k]) for k in range(2, len(batches))
    ]
    yield Claim(
        "there are never more than two steps in the queue",
        max(ahead) <= 2,
        _too_far_ahead(max(ahead), len(batches)),
    )
    yield Claim(
        "there are two steps in the queue whenever possible",
        min(ahead) >= 2 or max(ahead) > 2,
        "Before you asked for a step, all earlier ones had finished: the queue ran "
        f"empty, and the GPU was busy for only {found['busy']:.0%} of the time "
        "(simulated). " + _waited_too_long(ahead),
    )


def _too_far_ahead(most: int, batches: int) -> str:
    if most >= batches:
        return (
            f"Up to {most} steps were in the queue: nothing made Python wait. An event "
            "belongs to the queue in which it's recorded. Did you record yours in that "
            "of `device`?"
        )
    if most == 3:
        return (
            "Up to three steps were in the queue. When you ask for step k, step k - 1 "
            "may still be running. Which step must have finished?"
        )
    return (
        f"Up to {most} steps were in the queue. Python waited now and then, but ran "
        "ahead in between: it has to wait once for each step."
    )


def _waited_too_long(ahead: list[int]) -> str:
    if all(each == 1 for each in ahead):
        return (
            "That happened at every step: Python waited for the step it had just asked "
            "for."
        )
    return (
        f"That happened at {ahead.count(1)} of {len(ahead)} steps: where Python "
        "waited, it waited for too much."
    )


# ------------------------------------------------------------------ a chain


_CHAIN = 4  # devices


def _small_matrices() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    torch.manual_seed(0)
    batches = [torch.randn(3, 8) for _ in range(5)]
    return batches, [torch.randn(8, 8) for _ in range(_CHAIN)]


def _values_of_chain(answer: Callable, gpus: Gpus) -> dict:
    """Run the answer on small matrices; return its results, where they are, and how
    many copies went to the host."""
    sim = d2l.simulator(_CHAIN)
    batches, Ws = _small_matrices()
    Ws = [W.to(gpu) for W, gpu in zip(Ws, sim.gpus(), strict=True)]
    batches = [X.to(sim.gpu(0)) for X in batches]
    sim.reset()
    result = answer(batches, Ws)
    links = sim.report().links
    tensors = all(map(torch.is_tensor, result))
    names = {gpu: f"the device of `Ws[{i}]`" for i, gpu in enumerate(sim.gpus())}
    return {
        "number": len(result),
        "tensors": tensors,
        "where": [names.get(Y.device, gpus.where(Y)) for Y in result if tensors],
        "values": [Y.cpu().numpy() for Y in result if tensors],
        "by host": sum(link.copies for link in links if link.target == "host"),
    }


def _cost_of_chain(answer: Callable, gpus: Gpus) -> dict:
    """Run the answer on large matrices; return which devices were idle, the bytes that
    crossed, and the simulated seconds until Python, and everything, was done."""
    sim = d2l.simulator(_CHAIN, backing="meta")
    batches, Ws = _large_matrices(sim)
    sim.reset()
    result = answer(batches, Ws)  # noqa: F841  keeps the results alive
    through, took, report = sim.now(), sim.elapsed(), sim.report()
    return {
        "idle": [i for i, device in enumerate(report.devices) if not device.busy],
        "crossed": sum(
            link.nbytes for link in report.links if link.target == "other GPUs"
        ),
        "through": through,
        "took": took,
    }


def _large_matrices(sim) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    n = 4096
    first, *_ = gpus = sim.gpus()
    return (
        [torch.empty(n, n, device=first) for _ in range(12)],
        [torch.empty(n, n, device=gpu) for gpu in gpus],
    )


@EXERCISES.add("05.6", "batches, Ws", returns=list)
def chain(run: Run):
    found, (batches, Ws) = run(_values_of_chain), _small_matrices()
    wanted = [torch.linalg.multi_dot([X, *Ws]).numpy() for X in batches]
    number = found["number"]
    yield Claim(
        "it returns one result for each batch",
        number == len(wanted) and found["tensors"],
        f"There are {len(wanted)} batches, but you return {number} "
        f"result{'s' * (number != 1)}."
        if number != len(wanted)
        else "Some of the results aren't tensors.",
    )
    if number != len(wanted) or not found["tensors"]:
        return
    places, last = found["where"], f"the device of `Ws[{_CHAIN - 1}]`"
    yield Claim(
        "the results are on the last device",
        set(places) == {last},
        f"One of them is on {next((each for each in places if each != last), '')}.",
    )
    values, by_host = found["values"], found["by host"]
    yield Claim(
        "each batch is multiplied by all matrices, in order",
        all(map(_close, values, wanted)),
        "The results are in the wrong order: the first one belongs to the last batch."
        if _close(values[0], wanted[-1])
        else "The values aren't those of `batch @ Ws[0] @ Ws[1] @ …`.",
    )
    yield Claim(
        "no batch is copied by way of the host",
        not by_host,
        f"You made {by_host} copies to the host for {len(wanted)} batches, and Python "
        "waited for each of them.",
    )
    if by_host:
        return
    found = run(_cost_of_chain)
    idle = [f"the device of `Ws[{i}]`" for i in found["idle"]]
    yield Claim(
        "every device computes",
        not idle,
        f"Nothing was computed on {', '.join(idle)}: you moved matrices instead of "
        "batches.",
    )
    sim = d2l.simulator(_CHAIN, backing="meta")
    batches, Ws = _large_matrices(sim)
    crossed, needed = found["crossed"], 3 * sum(X.nbytes for X in batches)
    hint = (
        f"{crossed:,} bytes crossed, and {needed:,} are enough: each batch once from "
        "each device to the next."
    )
    yield Claim(
        "each batch crosses once from each device to the next, and nothing else "
        "crosses",
        crossed == needed,
        hint,
    )
    if crossed != needed:
        return
    least = _time_of(sim, lambda: _batch_by_batch(batches, Ws))
    through, took = found["through"], found["took"]
    if through > 0.5 * took:
        hint = "Python spent most of that time waiting, and queued nothing meanwhile."
    else:
        hint = (
            "Python didn't wait, but it queued all the work of one device before any "
            "work for the next. A queue runs in order, and copies are part of it."
        )
    yield Claim(
        "each device starts on the next batch while the others work on the last one",
        took < LEEWAY * least,
        f"It took {took / least:.1f} times as long as necessary (simulated). {hint}",
    )


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-3, atol=1e-4)


def _batch_by_batch(batches: list, Ws: list) -> None:
    for X in batches:
        for W in Ws:
            X = X.to(W.device) @ W
