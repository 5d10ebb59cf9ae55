"""Tensors on devices; virtual GPUs keep track of the memory they take."""

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.registry import Claim, Registry

EXERCISES = Registry()

MIB, GIB = 2**20, 2**30


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
def _memory(device: torch.device) -> Iterator[_Use]:
    use = _Use()
    before = torch.vgpu.memory_allocated(device)
    torch.vgpu.reset_peak_memory_stats(device)
    yield use
    use.held = torch.vgpu.memory_allocated(device) - before
    use.peak = torch.vgpu.max_memory_allocated(device) - before


@EXERCISES.add("02.1", "shape, dtype", returns=int)
def bytes_on_gpu(answer):
    def taken(shape: Sequence[int], dtype: torch.dtype) -> int:
        with _memory(d2l.gpu(0)) as use:
            kept = torch.empty(shape, dtype=dtype, device=d2l.gpu(0))  # noqa: F841
        return use.held

    def of(*cases) -> tuple[bool, str]:
        """Return whether the answer is right in all cases, and a hint if it isn't."""
        for shape, dtype in cases:
            with _memory(d2l.gpu(0)) as first, _memory(d2l.gpu(1)) as second:
                got = answer(shape, dtype)
            peaks.append(first.peak + second.peak)
            wanted = taken(shape, dtype)
            if got != wanted:
                name = str(dtype).removeprefix("torch.")
                said = (
                    f"For {shape} and {name} you return {got:,}, but {wanted:,} bytes "
                    "are"
                )
                return False, f"{said} taken. {_why(got, wanted, math.prod(shape))}"
        return True, ""

    peaks: list[int] = []
    types = (torch.float16, torch.bool, torch.float64, torch.int64)
    whole, said = of(((1024, 1024), torch.float32), ((64, 32, 2), torch.float32))
    yield Claim("large `float32` tensors are right", whole, said)
    typed, said = of(*[((64, 64), dtype) for dtype in types])
    yield Claim(
        "other data types are right",
        typed,
        said,
    )
    blocks, said = of(((100, 100), torch.float32), ((7, 11, 13), torch.int64))
    yield Claim(
        "the unused part of a block is counted",
        blocks,
        said,
    )
    full, said = of(((128,), torch.float32), ((3, 512), torch.bool))
    yield Claim("a block that's exactly full counts as one", full, said)
    odd, said = of(((), torch.float32), ((0, 5), torch.float32))
    yield Claim(
        "a scalar and an empty tensor are right",
        odd,
        said,
    )
    yield Claim(
        "no GPU memory is used to find out",
        not any(peaks),
        f"Your function took {max(peaks):,} bytes of GPU memory: it measures instead "
        "of predicting.",
    )


def _why(got: int, wanted: int, numbers: int) -> str:
    """Return a likely explanation for a wrong number of bytes."""
    if got == wanted + 512:
        return "That's one block too many." if wanted else "There's nothing to store."
    if got == numbers:
        return "That's the number of elements."
    if got % 512:
        return "What's the smallest amount of memory that is handed out?"
    return "How large is one element?"


@EXERCISES.add("02.2", returns=(int, float))
def most_parameters(answer):
    n = MIB
    with _memory(d2l.gpu(0)) as use:
        parameter = torch.nn.Parameter(torch.zeros(n, device=d2l.gpu(0)))
        optimizer = torch.optim.Adam([parameter])
        parameter.sum().backward()
        optimizer.step()
    each = use.held / n
    wanted = 16 * GIB / each
    wrong = {
        16e9 / each: "A GiB is 2³⁰ bytes, not 10⁹.",
        16 * GIB / 4: "That many numbers fit, but how many does each parameter need?",
        16 * GIB / 8: (
            "That leaves room for two numbers per parameter. Which ones are missing?"
        ),
        16 * GIB / 12: (
            "That leaves room for three numbers per parameter. Which one is missing?"
        ),
        16 * GIB: "That's the number of bytes.",
        16 * GIB / 20: (
            "That leaves room for five numbers per parameter, which is one too many."
        ),
        16 * each: "Divide the bytes by the bytes per parameter; don't multiply.",
    }
    hint = next(
        (
            text
            for value, text in wrong.items()
            if math.isclose(answer, value, rel_tol=1e-3)
        ),
        "How many bytes are there, and how many does one parameter need in total?",
    )
    yield Claim(
        "the number of parameters that Adam can train is right to within 0.1%",
        math.isclose(answer, wanted, rel_tol=1e-3),
        f"{answer:,.4g} isn't right. {hint}",
    )


@EXERCISES.add("02.3", "x, n", returns=torch.Tensor)
def first_of(answer):
    device, n = d2l.gpu(1), 10
    with _memory(device) as whole:
        x = torch.arange(float(MIB), device=device)
        wanted, nbytes = x[:n].tolist(), x.nbytes
        with _memory(device) as call, d2l.transfers() as log:
            result = answer(x, n)
        right = result.tolist() == wanted
        yield Claim(
            "it contains the first `n` elements of `x`",
            right,
            f"For n = {n}, the result has the shape {tuple(result.shape)}, and its "
            f"values aren't the first {n} of `x`.",
        )
        if not right:
            return
        yield Claim(
            "it's on the same device as `x`",
            result.device == device,
            f"It's on {result.device}, but `x` is on {device}.",
        )
        x[0] = -1
        shared = result[:1].tolist() == [-1]
        del x
    if shared:
        hint = (
            f"It still shares the memory of `x`, and keeps all {nbytes:,} bytes of it "
            "alive."
        )
    else:
        hint = (
            f"{whole.held:,} bytes are still in use after `x` is deleted. The result "
            "is a copy, but of how much of `x`?"
        )
    yield Claim(
        "after `x` is deleted, only one block of memory is in use",
        whole.held <= 512,
        hint,
    )
    yield Claim(
        "memory use is never higher than that on the way",
        call.peak <= 512,
        f"The call briefly took {call.peak:,} bytes. Which part of that copy isn't "
        "needed?",
    )
    yield Claim(
        "nothing is copied between devices",
        len(log) == 0,
        f"The call made {len(log)} cop{'y' if len(log) == 1 else 'ies'} between "
        "devices, although the numbers were on the right GPU already. A GPU can copy "
        "within its own memory.",
    )


@EXERCISES.add("02.4", "B", returns=torch.Tensor)
def polynomial(answer):
    device = d2l.gpu(1)
    values = torch.linspace(-1, 1, 512 * 512, dtype=torch.float64).reshape(512, 512)
    B = values.float().to(device)
    with _memory(device) as use, d2l.transfers() as log:
        result = answer(B)
    wanted = values**3 + 2 * values**2 + 3 * values + 4
    same_shape = result.shape == B.shape
    got = result.cpu().double()
    right = same_shape and torch.allclose(got, wanted, atol=1e-4)
    if not same_shape:
        hint = f"The result has the shape {tuple(result.shape)}."
    elif torch.allclose(got, wanted - 4, atol=1e-4):
        hint = "The 4 is missing."
    else:
        hint = (
            f"Where `B` is 1, the result should be {wanted[-1, -1]:g}, but yours is "
            f"{got[-1, -1]:g}."
        )
    yield Claim("the values are right", right, hint)
    yield Claim(
        "`B` keeps its values",
        torch.equal(B.cpu(), values.float()),
        "An in-place operation wrote into `B`. Which tensors may you write into?",
    )
    yield Claim(
        "it's computed on the device of `B`",
        result.device == device and not log,
        f"The result is on {result.device}, after {len(log)} "
        f"cop{'y' if len(log) == 1 else 'ies'} between devices. The host has more "
        "memory, but you can't use it here.",
    )
    matrices = use.peak / B.nbytes
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


@EXERCISES.add("02.5", "tensors", returns=int)
def bytes_kept(answer):
    device = d2l.gpu(0)
    ballast = torch.ones(MIB, device=device)

    def matrix() -> torch.Tensor:
        return torch.ones(256, 256, device=device)

    def measured(make: Callable[[], list]) -> tuple[int, int, list[torch.Tensor]]:
        with _memory(device) as use:
            tensors = make()
        return answer(tensors), use.held, tensors

    got, wanted, tensors = measured(lambda: [matrix(), matrix()])
    hint = f"For two matrices of {tensors[0].nbytes:,} bytes you return {got:,}."
    if got >= ballast.nbytes:
        hint += " There are other tensors on this GPU, and they don't count."
    yield Claim(
        "two tensors count as two, and other tensors don't count", got == wanted, hint
    )

    def three_views() -> list[torch.Tensor]:
        A = matrix()
        return [A, A.T, A[1], A]

    got, wanted, tensors = measured(three_views)
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

    got, wanted, tensors = measured(lambda: [matrix()[1]])
    yield Claim(
        "a row counts as the whole matrix that it keeps alive",
        got == wanted,
        f"The row has {tensors[0].nbytes:,} bytes, but it keeps {wanted:,} alive. You "
        f"return {got:,}.",
    )
    got, wanted, tensors = measured(
        lambda: [torch.zeros(128, 1, device=device).expand(128, 10**7)]
    )
    yield Claim(
        "an expanded tensor counts only the memory it takes",
        got == wanted,
        f"You return {got:,}. The expanded tensor has {tensors[0].numel():,} "
        f"elements, but only {wanted // 4} numbers in memory, used again and again.",
    )
    got, wanted, _ = measured(lambda: [torch.ones(i, device=device) for i in (1, 300)])
    yield Claim(
        "memory is counted in whole blocks",
        got == wanted,
        f"For tensors of 1 and of 300 numbers you return {got:,}. Each tensor gets "
        "whole blocks of 512 bytes of its own.",
    )


class _Limited:
    """Makes batches on a GPU with room for a limited number of examples.

    Attributes:
        limit: the largest batch that fits, in examples.
        calls: how many batches were requested.
        held: whether one was requested while the last was still in memory.
    """

    def __init__(self, limit: int):
        self.limit, self.calls, self.held = limit, 0, False
        self._last: weakref.ref | None = None

    def __call__(self, n: int) -> torch.Tensor:
        self.calls += 1
        self.held |= self._last is not None and self._last() is not None
        if n > self.limit:
            raise torch.OutOfMemoryError(f"Tried to make a batch of {n} examples.")
        batch = torch.ones(n, device=d2l.gpu(1))
        self._last = weakref.ref(batch)
        return batch


@EXERCISES.add("02.6", "make, most", returns=int)
def most_that_fit(answer):
    most = 1000
    gpus = [_Limited(limit) for limit in (77, 1, 640, 999)]
    got = [answer(gpu, most) for gpu in gpus]
    yield Claim(
        "each batch is freed before the next one is tried",
        not any(gpu.held for gpu in gpus),
        "The previous batch was still in memory when the next one was made, so both "
        "had to fit. Which variable keeps it alive?",
    )
    wrong = [(gpu.limit, n) for gpu, n in zip(gpus, got, strict=True) if n != gpu.limit]
    yield Claim(
        "it finds the largest batch that fits",
        not wrong,
        _not_the_largest(*wrong[0]) if wrong else "",
    )
    calls = max(gpu.calls for gpu in gpus)
    all_fit = answer(_Limited(5 * most), most)
    yield Claim(
        "if every size fits, it returns `most`",
        all_fit == most,
        f"Every size fits and `most` is {most:,}, but you return {all_fit:,}. Did you "
        "ever try `most` itself?",
    )
    none = answer(_Limited(0), most)
    yield Claim(
        "if not even one example fits, it returns 0",
        none == 0,
        f"You return {none}, although `make(1)` raises an error.",
    )
    few = 2 * most.bit_length() + 2
    yield Claim(
        f"it tries at most {few} batches",
        calls <= few,
        f"You tried up to {calls:,} batches. Each attempt, whether it fits or not, "
        "can rule out half of the remaining sizes.",
    )
    message = "shapes do not fit"

    def broken(n: int) -> torch.Tensor:
        raise RuntimeError(message)

    try:
        said, through = f"and returns {answer(broken, most)}", False
    except RuntimeError as error:
        said, through = f"and raises a different one: {error}", str(error) == message
    yield Claim(
        "any other error reaches the caller",
        through,
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
