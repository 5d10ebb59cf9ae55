"""Overlap: times are simulated, on simulators that only the answer uses."""

import functools
import math
from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.pytorch.arrays import as_number
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.vgpu import PICO

EXERCISES = Registry()

# Accept answers slower than necessary by up to this factor, such as one wait too many.
LEEWAY = 1.1


def _time_of(sim, program: Callable) -> float:
    """Return the simulated seconds until host and devices have finished a program."""
    sim.reset()
    program()
    return sim.elapsed()


def _numbers(result: list) -> dict:
    """Return the elements of a list as numbers, and the names of their types."""
    return {
        "values": [as_number(x) for x in result],
        "types": [
            "float" if isinstance(x, float) else type(x).__name__ for x in result
        ],
    }


def _close(values: torch.Tensor, wanted: torch.Tensor) -> bool:
    return values.shape == wanted.shape and torch.allclose(values, wanted, rtol=1e-3)


# ------------------------------------------------------------------ two GPUs at once


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


@EXERCISES.add("06.1", "Xs, products", returns=list)
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
    W = torch.empty(512, 512, device=gpu)
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
        "waits": sum(span.lane == "wait" for span in sim.spans()),
    }


@EXERCISES.add("06.2", "step, batches, device")
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
        _too_far_ahead(max(ahead), found["waits"]),
    )
    yield Claim(
        "there are two steps in the queue whenever possible",
        min(ahead) >= 2 or max(ahead) > 2,
        "Before you asked for a step, all earlier ones had finished: the queue ran "
        f"empty, and the GPU was busy for only {found['busy']:.0%} of the time "
        "(simulated). " + _waited_too_long(ahead),
    )


def _too_far_ahead(most: int, waits: int) -> str:
    if not waits:
        return (
            f"Up to {most} steps were in the queue: nothing made Python wait. An event "
            "belongs to the queue in which it's recorded. Did you record yours in "
            "`device`'s queue?"
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


# ------------------------------------------------------------------ fetching


# Which GPU each tensor is on. The second one has more to do, and takes longer.
_HOMES = (0, 1, 1, 0, 1)
_ORDINALS = ("the first GPU", "the second GPU")


def _factors(devices) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(256, 256).to(devices[home]) for home in _HOMES]


def _to_fetch(Xs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Queue products, and return results that have yet to be computed."""
    results = []
    for X, home in zip(Xs, _HOMES, strict=True):
        for _ in range(1 + 2 * home):
            Y = X @ X
        results.append(Y)
    return results


def _fetched(answer: Callable, gpus: Gpus) -> dict:
    """Return what an answer fetched, what hadn't arrived, and how long it took."""
    sim = d2l.simulator(2)
    Xs = _factors(sim.gpus())
    sim.reset()
    tensors = _to_fetch(Xs)
    result = answer(tensors)
    now = sim.clock.host()
    took, spans = sim.elapsed(), sim.spans()
    there = [torch.is_tensor(x) and x.device.type == "cpu" for x in result]
    arriving = [span for span in spans if span.lane == "out" and span.end > now]
    first = tensors[0].device.index
    return {
        "number": len(result),
        "there": there,
        "values": [
            _close(x, wanted.cpu())
            for x, wanted in zip(result, tensors, strict=False)
            if all(there)
        ],
        "arriving": [int(span.index != first) for span in arriving],
        "waits": sum(span.lane == "wait" for span in spans),
        "took": took,
    }


def _fetch(tensors: list[torch.Tensor]) -> None:
    for x in tensors:
        x.to("cpu", non_blocking=True)
    for device in dict.fromkeys(x.device for x in tensors):
        torch.get_device_module(device).synchronize(device)


@EXERCISES.add("06.3", "tensors", returns=list)
def fetch(run: Run):
    found, n = run(_fetched), len(_HOMES)
    number, there = found["number"], found["there"]
    yield Claim(
        "it returns one tensor on the CPU for each of the tensors",
        number == n and all(there),
        f"There are {n} tensors, but you return {number}."
        if number != n
        else f"{there.count(False)} of {n} are still on a GPU.",
    )
    if number != n or not all(there):
        return
    wrong = found["values"].count(False)
    yield Claim(
        "they have the same values, in the same order",
        not wrong,
        f"{wrong} of {n} have other values.",
    )
    late = found["arriving"]
    yield Claim(
        "every copy has arrived when it returns",
        not late,
        _not_arrived(late, found["waits"]),
    )
    if late:
        return
    sim = d2l.simulator(2)
    Xs = _factors(sim.gpus())
    least = _time_of(sim, lambda: _fetch(_to_fetch(Xs)))
    ratio, waits = found["took"] / least, found["waits"]
    yield Claim(
        "all copies are queued before Python waits, once for each GPU at most",
        waits <= len(_ORDINALS) and ratio < LEEWAY,
        f"Python waited {waits} times for {n} copies from {len(_ORDINALS)} GPUs, and "
        f"it took {ratio:.1f} times as long as necessary (simulated). "
        + _fetched_slowly(waits, n),
    )


def _not_arrived(late: list[int], waits: int) -> str:
    if not waits:
        return (
            f"None of the {len(_HOMES)} copies was sure to be there: Python didn't "
            "wait for anything. If you called `synchronize`, which device did it wait "
            "for?"
        )
    homes = " and ".join(_ORDINALS[home] for home in sorted(set(late)))
    return (
        f"Python waited, but {len(late)} of the copies were still on their way, from "
        f"{homes}."
    )


def _fetched_slowly(waits: int, n: int) -> str:
    if waits == n:
        return "You wait for each copy before the next one is queued."
    return "After the first wait, something remained to be queued."


# ------------------------------------------------------------------ three streams


_PIECES = 8


def _pieces() -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return batches that take about as long to send as to multiply or to fetch."""
    torch.manual_seed(0)
    batches = [torch.randn(256, 1024) for _ in range(_PIECES)]
    return batches, torch.randn(1024, 1024) / 32


def _streamed(answer: Callable, gpus: Gpus) -> dict:
    """Return an answer's results, and when the GPU sent, computed and fetched."""
    sim = d2l.simulator(1)
    batches, W = _pieces()
    wanted = [batch @ W for batch in batches]
    batches, W = [batch.pin_memory() for batch in batches], W.to(sim.gpu())
    sim.reset()
    result = answer(batches, W)
    now = sim.clock.host()
    took, spans = sim.elapsed(), sim.spans()
    there = [torch.is_tensor(Y) and Y.device.type == "cpu" for Y in result]
    return {
        "number": len(result),
        "there": there,
        "values": [
            _close(Y, values)
            for Y, values in zip(result, wanted, strict=False)
            if all(there)
        ],
        "overwritten": _overwritten(answer),
        "arriving": sum(span.lane == "out" and span.end > now for span in spans),
        "waits": sum(span.lane == "wait" for span in spans),
        "took": took,
        **{
            lane: sorted((s.start, s.end) for s in spans if s.lane == lane)
            for lane in ("in", "compute", "out")
        },
    }


class _Accesses(TorchDispatchMode):
    """Notes which memory of the GPU each copy and each product reads and writes.

    Attributes:
        found: by lane, as in a span, and in the order of the calls: the addresses that
            are read, and the address that is written (None if it's the host's).
    """

    def __init__(self):
        super().__init__()
        self.found = {"in": [], "compute": [], "out": []}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if torch.is_tensor(result) and name in {"_to_copy", "copy_", "mm", "addmm"}:
            sources = [x for x in args if torch.is_tensor(x)]
            if name == "copy_":
                sources = sources[1:]
            inside = [x.device.type != "cpu" for x in (*sources, result)]
            if any(inside):
                lane = "compute" if all(inside) else "in" if inside[-1] else "out"
                read = [x.data_ptr() for x in sources if x.device.type != "cpu"]
                written = result.data_ptr() if inside[-1] else None
                self.found[lane].append((read, written))
        return result


def _overwritten(answer: Callable) -> dict[str, int]:
    """Return how often memory is written while earlier work is still reading it.

    Sending takes less time than computing here, and computing less than fetching. So
    if nothing prevents it, each of them runs ahead of the next.

    Returns:
        The number of copies to the GPU (``"in"``) and of products (``"compute"``) that
        begin too early. Each lane must have run its work in the order of the calls.
    """
    sim = d2l.simulator(1, allocator="caching")
    torch.manual_seed(0)
    batches = [torch.randn(256, 1024).pin_memory() for _ in range(_PIECES)]
    W = torch.randn(1024, 4096).to(sim.gpu())
    sim.reset()
    with _Accesses() as accesses:
        answer(batches, W)
    sim.synchronize()
    spans = sim.spans()
    reads, writes = [], []
    for lane, found in accesses.found.items():
        ran = sorted((s.start, s.end) for s in spans if s.lane == lane)
        if len(ran) != len(found):
            return {"in": 0, "compute": 0}
        for k, ((start, end), (read, written)) in enumerate(
            zip(ran, found, strict=True)
        ):
            reads += [(k, address, end) for address in read]
            writes.append((k, lane, written, start))
    return {
        lane: sum(
            any(
                earlier < k and address == written and start < end
                for earlier, address, end in reads
            )
            for k, its, written, start in writes
            if its == lane and written is not None
        )
        for lane in ("in", "compute")
    }


def _through(batches: list[torch.Tensor], W: torch.Tensor) -> None:
    backend = torch.get_device_module(W.device)
    computing = backend.current_stream(W.device)
    sending, fetching = (backend.Stream(W.device) for _ in range(2))
    for batch in batches:
        with backend.stream(sending):
            X = batch.to(W.device, non_blocking=True)
        computing.wait_stream(sending)
        Y = X @ W
        fetching.wait_stream(computing)
        with backend.stream(fetching):
            Y.to("cpu", non_blocking=True)
    backend.synchronize(W.device)


@EXERCISES.add("06.4", "batches, W", returns=list)
def through(run: Run):
    found = run(_streamed)
    number, there = found["number"], found["there"]
    yield Claim(
        "it returns one result on the CPU for each batch",
        number == _PIECES and all(there),
        f"There are {_PIECES} batches, but you return {number} "
        f"result{'s' * (number != 1)}."
        if number != _PIECES
        else f"{there.count(False)} of {_PIECES} are still on the GPU.",
    )
    if number != _PIECES or not all(there):
        return
    wrong = found["values"].count(False)
    yield Claim(
        "each batch is multiplied by `W`",
        not wrong,
        f"{wrong} of {_PIECES} results have other values.",
    )
    sent, computed, fetched = (found[lane] for lane in ("in", "compute", "out"))
    numbers = len(sent), len(computed), len(fetched)
    yield Claim(
        "each batch is sent, multiplied and fetched once",
        set(numbers) == {_PIECES},
        f"For {_PIECES} batches, there were {len(sent)} copies to the GPU, "
        f"{len(computed)} operators on it and {len(fetched)} copies back.",
    )
    if wrong or set(numbers) != {_PIECES}:
        return
    early = _begun_early(sent, computed), _begun_early(computed, fetched)
    yield Claim(
        "nothing begins before what it needs is there",
        not any(early),
        f"{early[0]} of {_PIECES} products began before their batch had arrived. On a "
        "virtual GPU the values are right all the same."
        if early[0]
        else f"{early[1]} of {_PIECES} results were fetched before they had been "
        "computed. On a virtual GPU the values are right all the same.",
    )
    yield Claim(
        "the results have arrived when it returns",
        not found["arriving"],
        f"{found['arriving']} of {_PIECES} were still on their way.",
    )
    if any(early) or found["arriving"]:
        return
    sim = d2l.simulator(1)
    batches, W = _pieces()
    batches, W = [batch.pin_memory() for batch in batches], W.to(sim.gpu())
    ratio = found["took"] / _time_of(sim, lambda: _through(batches, W))
    yield Claim(
        "it sends, computes and fetches at the same time",
        ratio < LEEWAY,
        f"It takes {ratio:.1f} times as long as necessary (simulated). "
        + _not_overlapping(sent, computed, fetched, found["waits"]),
    )
    if ratio >= LEEWAY:
        return
    early = found["overwritten"]
    yield Claim(
        "no memory is used again before the work that needs it is done",
        not any(early.values()),
        f"{early['in']} of {_PIECES} batches were sent to memory from which a product "
        "was still reading an earlier batch."
        if early["in"]
        else f"{early['compute']} of {_PIECES} products were written to memory from "
        "which an earlier result was still being fetched.",
    )


def _begun_early(first: list, then: list) -> int:
    """Return how many spans begin before the ones that they depend on have ended."""
    return sum(begin < end for (_, end), (begin, _) in zip(first, then, strict=True))


def _common(first: list, second: list) -> float:
    """Return the seconds in which spans of both lists run."""
    both = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in first for b in second)
    return both / PICO


def _not_overlapping(sent: list, computed: list, fetched: list, waits: int) -> str:
    pairs = {
        "sends while it computes": (sent, computed),
        "computes while it fetches": (computed, fetched),
        "sends while it fetches": (sent, fetched),
    }
    never = [what for what, lists in pairs.items() if not _common(*lists)]
    if len(never) == len(pairs):
        text = "Nothing overlaps."
    elif never:
        text = f"The GPU never {' and '.join(never)}."
    else:
        text = "Everything overlaps, but not all the time."
    return f"{text} Python waited {waits} times." if waits > 1 else text
