"""Tensors on devices; virtual GPUs keep track of the memory they take."""

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.variants.draw import Draw, Vary, one_of

EXERCISES = Registry()

MIB = 2**20


@dataclass
class _Use:
    """GPU memory that a block of code allocated, in bytes, relative to its start.

    Attributes:
        held: still allocated at the end of the block.
        peak: the maximum during the block.
    """

    held: int = 0
    peak: int = 0


@contextmanager
def _memory(devices: Iterable[torch.device]) -> Iterator[_Use]:
    """Measure the memory that a block of code allocates on GPUs, together."""
    use, before = _Use(), {}
    for device in devices:
        before[device] = torch.vgpu.memory_allocated(device)
        torch.vgpu.reset_peak_memory_stats(device)
    yield use
    use.held = sum(torch.vgpu.memory_allocated(d) - n for d, n in before.items())
    use.peak = sum(torch.vgpu.max_memory_allocated(d) - n for d, n in before.items())


def _type(name: str) -> torch.dtype:
    return getattr(torch, name)


def _predicted(
    answer: Callable, gpus: Gpus, shape: tuple[int, ...], dtype: str
) -> tuple[int, list[int]]:
    """Return the predicted bytes, and how many the prediction took on each GPU."""
    with ExitStack() as stack:
        uses = [stack.enter_context(_memory([gpu])) for gpu in gpus]
        got = answer(shape, _type(dtype))
    return got, [use.peak for use in uses]


def _taken(shape: Sequence[int], dtype: str) -> int:
    """Return what a tensor takes of a GPU on which nothing has been cached yet."""
    simulator = d2l.simulator(1, "T4", backing="meta", allocator=_ALLOCATOR)
    device = simulator.gpu()
    kept = torch.empty(shape, dtype=_type(dtype), device=device)  # noqa: F841
    return torch.vgpu.memory_allocated(device)


# With a setting, the variables that PyTorch reads have no say.
_ALLOCATOR = "caching,expandable_segments:False"


def _more_tensors(draw: Draw) -> list[tuple[tuple[int, ...], str]]:
    """Return the shapes and types of more tensors, of all kinds of size."""
    sizes = [draw.integer(low, 2 * low) for low in (60, 9000, 300_000, 2_700_000)]
    types = draw.sample(("float32", "int64", "int16", "uint8"), 4)
    return [((size,), dtype) for size, dtype in zip(sizes, types, strict=True)]


@EXERCISES.add(
    "02.1", "shape, dtype", returns=int, vary={"more": Vary([], _more_tensors)}
)
def bytes_on_gpu(run: Run, more: Sequence[tuple[tuple[int, ...], str]]):
    peaks: list[list[int]] = []

    def of(*cases: tuple[tuple[int, ...], str]) -> tuple[bool, str]:
        """Return whether the answer is right in all cases, and a hint if it isn't."""
        for shape, dtype in cases:
            got, peak = run(_predicted, shape, dtype)
            peaks.append(peak)
            wanted = _taken(shape, dtype)
            if got != wanted:
                said = (
                    f"For {shape} and {dtype} you return {got:,}, but it takes "
                    f"{wanted:,} bytes."
                )
                nbytes = math.prod(shape) * _type(dtype).itemsize
                return False, f"{said} {_why(got, wanted, math.prod(shape), nbytes)}"
        return True, ""

    whole, said = of(((256, 1024), "float32"), ((64, 32, 2), "float32"))
    yield Claim("tensors that fill whole blocks are right", whole, said)
    types = "float16", "bool", "float64", "int64"
    typed, said = of(*[((64, 64), dtype) for dtype in types])
    yield Claim("other data types are right", typed, said)
    blocks, said = of(((100, 100), "float32"), ((7, 11, 13), "int64"))
    yield Claim("sizes are rounded up to whole blocks", blocks, said)
    full, said = of(((128,), "float32"), ((3, 512), "bool"))
    yield Claim("a block that's exactly full counts as one", full, said)
    odd, said = of(((), "float32"), ((0, 5), "float32"))
    yield Claim("a scalar and an empty tensor are right", odd, said)
    shared, said = of(((1_100_000,), "float32"), ((2_621_000,), "float32"))
    yield Claim("tensors of 1 to 10 MiB share a segment", shared, said)
    kept, said = of(((3_000_000,), "float32"), ((10_000_001,), "int16"))
    yield Claim("a remainder of 1 MiB or less stays with its tensor", kept, said)
    cut, said = of(((10 * MIB + 1,), "uint8"), ((11 * MIB - 512,), "uint8"))
    yield Claim("a larger remainder is cut off", cut, said)
    exact, said = of(((11 * MIB,), "uint8"), ((10 * MIB,), "uint8"))
    yield Claim("the sizes at which the rules change are right", exact, said)
    if more:
        others, said = of(*more)
        yield Claim("other sizes are right", others, said)
    yield Claim(
        "no GPU memory is used to find out",
        not any(map(any, peaks)),
        _measured(peaks),
    )


def _measured(peaks: Sequence[Sequence[int]]) -> str:
    most, gpu = max((nbytes, i) for own in peaks for i, nbytes in enumerate(own))
    return (
        f"Your function took {most:,} bytes of memory on GPU {gpu}: it measures "
        "instead of predicting."
    )


def _why(got: int, wanted: int, numbers: int, nbytes: int) -> str:
    """Return a likely explanation for a wrong number of bytes."""
    if got == wanted + 512:
        return "That's one block too many." if wanted else "There's nothing to store."
    if got == numbers != nbytes:
        return "That's the number of elements."
    if nbytes < MIB and got % 512:
        return "What's the smallest amount of memory that is handed out?"
    if nbytes < MIB:
        return "How large is one element?"
    segment = -(-nbytes // (2 * MIB)) * 2 * MIB
    if got == nbytes and got % 512:
        return "A large tensor has whole blocks, too."
    if nbytes < 10 * MIB:
        return "It shares a segment of 20 MiB, so what is left of that is cut off."
    if wanted == segment:
        return (
            f"Its segment has {segment:,} bytes. How much of that is left, and is it "
            "cut off?"
        )
    return (
        f"Its segment has {segment:,} bytes, of which {segment - wanted:,} can be cut "
        "off. Is that more than 1 MiB?"
    )


class _Step:
    """A step that fits for small batches only, and needs memory while it runs.

    Attributes:
        most: the largest batch that fits, in examples.
        tried: the size of each batch that it was called for.
        held: the most bytes that GPUs held from before, apart from results, when a
            step began.
    """

    def __init__(self, most: int, gpus: Gpus):
        self.most, self.tried, self.held = most, [], 0
        self._gpus, self._results = gpus, 0
        self._before = self._allocated()

    def _allocated(self) -> int:
        return sum(map(torch.vgpu.memory_allocated, self._gpus))

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        held = self._allocated() - self._before - self._results
        self.held = max(self.held, held)
        self.tried.append(len(batch))
        work = torch.empty(len(batch), MIB // 4, device=batch.device)  # 1 MiB for each
        if len(batch) > self.most:
            raise torch.OutOfMemoryError(f"Tried a batch of {len(batch)} examples.")
        result = 2 * batch + work[:, :1].zero_()
        self._results += 512
        return result


_BATCH = 48


def _halved(answer: Callable, gpus: Gpus, most: int) -> dict:
    batch = torch.arange(float(_BATCH), device=gpus[1]).reshape(-1, 1)
    step = _Step(most, gpus)
    try:
        result = answer(step, batch)
    except torch.OutOfMemoryError as error:
        return {"error": str(error), "tried": step.tried, "held": step.held}
    return {
        "error": "",
        "values": result.cpu().numpy(),
        "tried": step.tried,
        "held": step.held,
    }


def _sizes(tried: Sequence[int]) -> str:
    """Return the sizes of the first batches that were tried."""
    if not tried:
        return "none at all"
    return f"{', '.join(map(str, tried[:4]))}{' …' if len(tried) > 4 else ''}"


def _step_fails(answer: Callable, gpus: Gpus) -> dict:
    """Return what comes of a step that fails for another reason than memory."""

    def broken(batch: torch.Tensor) -> torch.Tensor:
        raise ValueError(_MESSAGE)

    try:
        answer(broken, torch.ones(4, 1, device=gpus[1]))
    except ValueError as error:
        return {"error": str(error)}
    except torch.OutOfMemoryError as error:
        return {"error": f"an OutOfMemoryError: {error}"}
    return {"error": ""}


@EXERCISES.add("02.2", "step, batch", returns=torch.Tensor)
def in_halves(run: Run):
    runs = {most: run(_halved, most) for most in (_BATCH, _BATCH // 2, 7, 1)}
    whole, half = runs[_BATCH], runs[_BATCH // 2]
    yield Claim(
        "a batch that fits is computed in one step",
        not whole["error"] and whole["tried"] == [_BATCH],
        f"A batch of {_BATCH} fits, but you tried {_sizes(whole['tried'])}.",
    )
    lost = next((found["error"] for found in runs.values() if found["error"]), "")
    yield Claim(
        "a batch that doesn't fit is computed in smaller ones",
        not lost,
        f"The error reached the caller: {lost} A smaller batch would have fitted.",
    )
    if lost:
        return
    wanted = 2 * np.arange(float(_BATCH)).reshape(-1, 1)
    values = [found["values"] for found in runs.values()]
    shapes = {each.shape for each in values} - {wanted.shape}
    if shapes:
        said = f"The result has the shape {shapes.pop()} instead of {wanted.shape}."
    else:
        said = "The result isn't what one large step would have returned."
    yield Claim(
        "the result is that of the whole batch",
        all(np.array_equal(each, wanted) for each in values),
        said,
    )
    yield Claim(
        "a batch is halved only if it doesn't fit",
        half["tried"] == [_BATCH, _BATCH // 2, _BATCH // 2],
        f"Batches of {_BATCH // 2} fit, but you tried {_sizes(half['tried'])}.",
    )
    held = max(found["held"] for found in runs.values())
    yield Claim(
        "nothing of a failed step is in memory when the next one begins",
        held < MIB,
        f"When a smaller step began, {held / MIB:.0f} MiB of failed ones were still "
        "in use. Who refers to the variables of a function that has failed, and until "
        "when?",
    )
    single = run(_halved, 0)
    yield Claim(
        "if not even one example fits, the error reaches the caller",
        bool(single["error"]) and len(single["tried"]) < 2 * _BATCH,
        "Not even one example fits, and yet no `OutOfMemoryError` comes out.",
    )
    error = run(_step_fails)["error"]
    yield Claim(
        "any other error reaches the caller",
        error == _MESSAGE,
        "A step failed with a `ValueError`, and your function "
        + (f"raised {error}" if error else "carried on as if nothing had happened."),
    )


def _cut(answer: Callable, gpus: Gpus, n: int) -> dict:
    """Return the first elements of a large tensor, and what the call and its result
    take of memory."""
    with _memory(gpus) as whole:
        x = torch.arange(float(MIB), device=gpus[1])
        with _memory(gpus) as call, d2l.transfers() as log:
            result = answer(x, n)
        found = {
            "values": result.detach().cpu().numpy(),
            "where": gpus.where(result),
            "copies": len(log),
        }
        x[0] = -1
        found["shared"] = result.flatten()[:1].tolist() == [-1]
        del x
    return found | {"held": whole.held, "peak": call.peak}


@EXERCISES.add(
    "02.3",
    "x, n",
    returns=torch.Tensor,
    vary={"n": Vary(10, lambda draw: draw.integer(11, 120))},
)
def first_of(run: Run, n: int):
    found = run(_cut, n)
    values, where = found["values"], found["where"]
    right = np.array_equal(values, np.arange(n))
    yield Claim(
        "it contains the first `n` elements of `x`",
        right,
        f"For n = {n}, the result has the shape {values.shape}, and its "
        f"values aren't the first {n} of `x`.",
    )
    if not right:
        return
    yield Claim(
        "it's on the same device as `x`",
        where == "GPU 1",
        f"It's on {where}, but `x` is on GPU 1.",
    )
    held, peak, copies = found["held"], found["peak"], found["copies"]
    if found["shared"]:
        hint = (
            f"It still shares the memory of `x`, and keeps all {4 * MIB:,} bytes of it "
            "alive."
        )
    else:
        hint = (
            f"{held:,} bytes are still in use after `x` is deleted. The result "
            "is a copy, but of how much of `x`?"
        )
    yield Claim(
        "after `x` is deleted, only one block of memory is in use",
        held <= 512,
        hint,
    )
    if 0 <= peak - 4 * MIB <= 512:
        hint = (
            f"The call briefly took {peak:,} bytes, enough for a copy of `x`. Which "
            "part of that copy isn't needed?"
        )
    else:
        hint = (
            f"The call briefly took {peak:,} bytes, but the result needs only one "
            "block of 512. What else was on the GPU for a moment?"
        )
    yield Claim(
        "memory use is never higher than that on the way",
        peak <= 512,
        hint,
    )
    yield Claim(
        "nothing is copied between devices",
        copies == 0,
        f"The call made {copies} cop{'y' if copies == 1 else 'ies'} between "
        "devices, although the numbers were on the right GPU already. A GPU can copy "
        "within its own memory.",
    )


def _matrix() -> torch.Tensor:
    return torch.linspace(-1, 1, 512 * 512, dtype=torch.float64).reshape(512, 512)


def _computed(answer: Callable, gpus: Gpus) -> dict:
    B = _matrix().float().to(gpus[1])
    with _memory(gpus) as use, d2l.transfers() as log:
        result = answer(B)
    return {
        "values": result.detach().cpu().double().numpy(),
        "where": gpus.where(result),
        "copies": len(log),
        "matrices": use.peak / B.nbytes,
    }


@EXERCISES.add(
    "02.4",
    "B",
    returns=torch.Tensor,
    vary={"a": one_of(2, 5, 6, 7), "b": one_of(3, 2, 5, 8), "c": one_of(4, 6, 7, 9)},
)
def polynomial(run: Run, a: int, b: int, c: int):
    found, values = run(_computed), _matrix().numpy()
    wanted, got = values**3 + a * values**2 + b * values + c, found["values"]
    same_shape = got.shape == wanted.shape
    right = same_shape and np.allclose(got, wanted, atol=1e-4)
    if not same_shape:
        hint = f"The result has the shape {got.shape}."
    elif np.allclose(got, wanted - c, atol=1e-4):
        hint = f"The {c} is missing."
    else:
        hint = (
            f"Where `B` is 1, the result should be {wanted[-1, -1]:g}, but yours is "
            f"{got[-1, -1]:g}."
        )
    yield Claim("the values are right", right, hint)
    where, copies = found["where"], found["copies"]
    yield Claim(
        "it's computed on the device of `B`",
        where == "GPU 1" and not copies,
        f"The result is on {where}, after {copies} "
        f"cop{'y' if copies == 1 else 'ies'} between devices. The host has more "
        "memory, but you can't use it here.",
    )
    matrices = found["matrices"]
    if matrices < 2.5:
        hint = (
            "Two existed at once: an operation created a new matrix before the one it "
            "was computed from had been freed."
        )
    else:
        hint = (
            f"{matrices:.3g} existed at once. Every power and every partial sum that "
            "you need later is a matrix of its own. Can you compute the polynomial "
            "without powers?"
        )
    yield Claim("there's never more than one matrix besides `B`", matrices < 1.1, hint)


def _square(device: torch.device, n: int) -> torch.Tensor:
    return torch.ones(n, n, device=device)


def _two(device: torch.device, n: int) -> list[torch.Tensor]:
    return [_square(device, n), _square(device, n)]


def _views(device: torch.device, n: int) -> list[torch.Tensor]:
    A = _square(device, n)
    return [A, A.T, A[1], A]


def _row(device: torch.device, n: int) -> list[torch.Tensor]:
    return [_square(device, n)[1]]


def _expanded(device: torch.device, n: int) -> list[torch.Tensor]:
    return [torch.zeros(n // 2, 1, device=device).expand(n // 2, 10**7)]


def _small(device: torch.device, n: int) -> list[torch.Tensor]:
    return [torch.ones(i, device=device) for i in (1, n + 44)]


_KEPT = {"two": _two, "views": _views, "row": _row, "expanded": _expanded}
_KEPT["small"] = _small


def _kept(answer: Callable, gpus: Gpus, case: str, n: int) -> int:
    """Return the bytes that some tensors keep alive, according to the answer."""
    ballast = torch.ones(MIB, device=gpus[0])  # noqa: F841  doesn't count
    return answer(_KEPT[case](gpus[0], n))


def _really_kept(case: str, n: int) -> tuple[int, list[torch.Tensor]]:
    """Return the bytes of the storages that tensors keep alive, and the tensors."""
    tensors = _KEPT[case](d2l.gpu(0), n)
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage() for x in tensors}
    return sum(each.nbytes() for each in storages.values()), tensors


@EXERCISES.add(
    "02.5",
    "tensors",
    returns=int,
    vary={"n": Vary(256, lambda draw: 2 * draw.integer(80, 250))},
)
def bytes_kept(run: Run, n: int):
    got, (wanted, tensors) = run(_kept, "two", n), _really_kept("two", n)
    hint = f"For two matrices of {tensors[0].nbytes:,} bytes you return {got:,}."
    if got >= 4 * MIB:
        hint += " There are other tensors on this GPU, and they don't count."
    yield Claim(
        "two tensors count as two, and other tensors don't count", got == wanted, hint
    )
    got, (wanted, tensors) = run(_kept, "views", n), _really_kept("views", n)
    hint = (
        f"For a matrix, its transpose and one of its rows you return {got:,}, but "
        "there's only one matrix in memory."
    )
    if got == 4 * wanted:
        hint = "You counted the same memory once for each tensor."
    elif got == sum(x.nbytes for x in tensors):
        hint = (
            "You counted the elements of each tensor, but some of them are the same "
            "numbers in memory."
        )
    elif got == wanted + tensors[2].nbytes:
        hint = (
            "You counted the row separately. A view may begin elsewhere in the memory "
            "that it shares."
        )
    yield Claim("views of the same memory count only once", got == wanted, hint)
    got, (wanted, tensors) = run(_kept, "row", n), _really_kept("row", n)
    yield Claim(
        "a row counts as the whole matrix that it keeps alive",
        got == wanted,
        f"The row has {tensors[0].nbytes:,} bytes, but it keeps {wanted:,} alive. You "
        f"return {got:,}.",
    )
    got, (wanted, tensors) = run(_kept, "expanded", n), _really_kept("expanded", n)
    yield Claim(
        "an expanded tensor counts only the memory it takes",
        got == wanted,
        f"You return {got:,}. The expanded tensor has {tensors[0].numel():,} "
        f"elements, but only {wanted // 4} numbers in memory, used again and again.",
    )
    got, (wanted, _) = run(_kept, "small", n), _really_kept("small", n)
    yield Claim(
        "small tensors aren't rounded up",
        got == wanted,
        f"For tensors of 1 and of {n + 44} numbers you return {got:,}. What the "
        "allocator adds isn't asked for here.",
    )


class _Limited:
    """Makes batches on a GPU with room for a limited number of examples.

    Attributes:
        limit: the largest batch that fits, in examples.
        calls: how many batches were requested.
        held: what the GPUs still held from before when one was requested: ``the
            batch`` itself, or ``something else``; empty if nothing.
    """

    def __init__(self, limit: int, gpus: Gpus):
        self.limit, self.calls, self.held = limit, 0, ""
        self._last: Callable = lambda: None
        self._gpus = gpus
        self._before = self._allocated()

    def _allocated(self) -> int:
        return sum(map(torch.vgpu.memory_allocated, self._gpus))

    def __call__(self, n: int) -> torch.Tensor:
        self.calls += 1
        if not self.held and self._allocated() > self._before:
            self.held = "something else" if self._last() is None else "the batch"
        if n > self.limit:
            raise torch.OutOfMemoryError(f"Tried to make a batch of {n} examples.")
        batch = torch.ones(n, device=self._gpus[1])
        self._last = weakref.ref(batch)
        return batch


def _tried(answer: Callable, gpus: Gpus, limit: int, most: int) -> dict:
    make = _Limited(limit, gpus)
    return {"got": answer(make, most), "calls": make.calls, "held": make.held}


_MESSAGE = "shapes do not fit"


def _failed(answer: Callable, gpus: Gpus, most: int) -> dict:
    """Return what comes of a `make` that fails for another reason than memory."""

    def broken(n: int) -> torch.Tensor:
        raise RuntimeError(_MESSAGE)

    try:
        return {"got": answer(broken, most), "error": None}
    except RuntimeError as error:
        return {"error": str(error)}


_HELD = {
    "": "",
    "the batch": "The previous batch was still in memory when the next one was made, "
    "so both had to fit. Which variable keeps it alive?",
    "something else": "The previous batch was gone when the next one was made, but "
    "something of its size was still in memory, such as a copy. Which variable keeps "
    "it alive?",
}


def _some_limits(draw: Draw) -> tuple[int, list[int]]:
    """Return the largest batch to try, and how many examples fit."""
    most = draw.integer(600, 3000)
    return most, [draw.integer(2, most // 2), 1, draw.integer(2, most - 2), most - 1]


@EXERCISES.add(
    "02.6",
    "make, most",
    returns=int,
    vary={"limits": Vary((1000, [77, 1, 640, 999]), _some_limits)},
)
def most_that_fit(run: Run, limits: tuple[int, Sequence[int]]):
    most, fit = limits
    tries = {limit: run(_tried, limit, most) for limit in fit}
    all_fit, none = run(_tried, 5 * most, most), run(_tried, 0, most)
    all_tries = *tries.values(), all_fit, none
    yield Claim(
        "each batch is freed before the next one is tried",
        not any(each["held"] for each in all_tries),
        _HELD[next((each["held"] for each in all_tries if each["held"]), "")],
    )
    wrong = [
        (limit, each["got"]) for limit, each in tries.items() if each["got"] != limit
    ]
    # Who knows that a size fits, and that one more doesn't, has tried both.
    unseen = [limit for limit, each in tries.items() if each["calls"] < 2]
    yield Claim(
        "it finds the largest batch that fits",
        not wrong and not unseen,
        _not_the_largest(*wrong[0])
        if wrong
        else f"You return {unseen[0]}, but `make` was hardly called. How do you know?"
        if unseen
        else "",
    )
    yield Claim(
        "if every size fits, it returns `most`",
        all_fit["got"] == most,
        f"Every size fits and `most` is {most:,}, but you return {all_fit['got']:,}. "
        "Did you ever try `most` itself?",
    )
    yield Claim(
        "if not even one example fits, it returns 0",
        none["got"] == 0,
        f"You return {none['got']}, although `make(1)` raises an error.",
    )
    calls, few = max(each["calls"] for each in all_tries), 2 * most.bit_length() + 2
    yield Claim(
        f"it tries at most {few} batches",
        calls <= few,
        f"You tried up to {calls:,} batches. Each attempt, whether it fits or not, "
        "can rule out half of the remaining sizes.",
    )
    found = run(_failed, most)
    error = found["error"]
    if error is None:
        said = f"and returns {found['got']}"
    else:
        said = f"and raises a different one: {error}"
    yield Claim(
        "any other error reaches the caller",
        error == _MESSAGE,
        "When `make` fails with a `RuntimeError` for another reason, your function "
        f"carries on {said}. Running out of memory has its own error.",
    )


def _not_the_largest(limit: int, got: int) -> str:
    if got > limit:
        return f"You return {got}, but only {limit} fit."
    return (
        f"You return {got}. That fits, but so do {limit}. Which sizes lie between the "
        "largest one that fitted and the smallest one that failed?"
    )
