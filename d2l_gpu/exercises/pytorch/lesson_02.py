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
                said = f"For {shape} and {name} it says {got:,}, and {wanted:,} are"
                return False, f"{said} taken. {_why(got, wanted, math.prod(shape))}"
        return True, ""

    peaks: list[int] = []
    types = (torch.float16, torch.bool, torch.float64, torch.int64)
    whole, said = of(((1024, 1024), torch.float32), ((64, 32, 2), torch.float32))
    yield Claim("of large tensors in `float32`, it is right", whole, said)
    typed, said = of(*[((64, 64), dtype) for dtype in types])
    yield Claim(
        "of other types, it is right",
        typed,
        said,
    )
    blocks, said = of(((100, 100), torch.float32), ((7, 11, 13), torch.int64))
    yield Claim(
        "what is left of a block is counted",
        blocks,
        said,
    )
    full, said = of(((128,), torch.float32), ((3, 512), torch.bool))
    yield Claim("a block that is just full is one block", full, said)
    odd, said = of(((), torch.float32), ((0, 5), torch.float32))
    yield Claim(
        "one number without dimensions, and no number at all, are right",
        odd,
        said,
    )
    yield Claim(
        "no GPU's memory is taken to find out",
        not any(peaks),
        f"{max(peaks):,} bytes were taken: this is measured, not predicted.",
    )


def _why(got: int, wanted: int, numbers: int) -> str:
    """Return a likely explanation for a wrong number of bytes."""
    if got == wanted + 512:
        return "That is one block too many." if wanted else "There is nothing to store."
    if got == numbers:
        return "That is how many numbers there are."
    if got % 512:
        return "In which portions is memory handed out?"
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
        16 * GIB / 4: "So many numbers fit. How many of them does a parameter need?",
        16 * GIB / 8: "That leaves room for two numbers each. Which are missing?",
        16 * GIB / 12: "That leaves room for three numbers each. Which is missing?",
        16 * GIB: "That is the number of bytes.",
        16 * GIB / 20: "That leaves room for five numbers each, one too many.",
        16 * each: "Bytes divided by bytes each, not multiplied.",
    }
    hint = next(
        (
            text
            for value, text in wrong.items()
            if math.isclose(answer, value, rel_tol=1e-3)
        ),
        "How many bytes are there, and how many does one parameter need in all?",
    )
    yield Claim(
        "as many parameters fit as Adam has room for, to a thousandth",
        math.isclose(answer, wanted, rel_tol=1e-3),
        f"{answer:,.4g} is not the number. {hint}",
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
            "it has the first numbers of `x`",
            right,
            f"For n = {n} its shape is {tuple(result.shape)}, and its values are not "
            "those of `x`.",
        )
        if not right:
            return
        yield Claim(
            "it lives where `x` lives",
            result.device == device,
            f"It lives on {result.device}, and `x` on {device}.",
        )
        x[0] = -1
        shared = result[:1].tolist() == [-1]
        del x
    if shared:
        hint = f"It still shares the memory of `x`, all {nbytes:,} bytes of it."
    else:
        hint = (
            f"{whole.held:,} bytes are still taken. It is a copy, but of how much of "
            "`x`?"
        )
    yield Claim(
        "when `x` is gone, one block of memory is taken",
        whole.held <= 512,
        hint,
    )
    yield Claim(
        "no more than that was taken on the way",
        call.peak <= 512,
        f"{call.peak:,} bytes were taken for a moment. What was copied that is not "
        "needed?",
    )
    yield Claim(
        "nothing crosses to the host",
        len(log) == 0,
        f"{len(log)} copies crossed between devices, for numbers that were there. A "
        "GPU can copy within its own memory.",
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
        hint = f"The shape has become {tuple(result.shape)}."
    elif torch.allclose(got, wanted - 4, atol=1e-4):
        hint = "The 4 is missing."
    else:
        hint = (
            f"Where `B` is 1 the sum is {wanted[-1, -1]:g}, and yours {got[-1, -1]:g}."
        )
    yield Claim("the values are right", right, hint)
    yield Claim(
        "`B` still has its values",
        torch.equal(B.cpu(), values.float()),
        "An operation in place wrote into `B`. Into which tensor may you write?",
    )
    yield Claim(
        "it is computed where `B` lives",
        result.device == device and not log,
        f"The result lives on {result.device}, and {len(log)} tensors crossed. The "
        "host has more memory, and is not asked.",
    )
    matrices = use.peak / B.nbytes
    if matrices < 2.5:
        hint = (
            "Two were there at once: an operation made a new matrix while the one that "
            "it was computed from was still there."
        )
    else:
        hint = (
            f"{matrices:.3g} were there at once. Every power, and every sum, that is "
            "needed later is a matrix of its own: can it be computed without powers?"
        )
    yield Claim(
        "at no moment is there more than one matrix besides `B`", matrices < 1.1, hint
    )


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
    hint = f"For two matrices of {tensors[0].nbytes:,} bytes it says {got:,}."
    if got >= ballast.nbytes:
        hint += " There are others on this GPU, which were not asked for."
    yield Claim("two tensors count as two, and no others count", got == wanted, hint)

    def three_views() -> list[torch.Tensor]:
        A = matrix()
        return [A, A.T, A[1], A]

    got, wanted, tensors = measured(three_views)
    hint = (
        f"A matrix, its transpose and a row: it says {got:,}, and there is one matrix."
    )
    if got == 4 * wanted:
        hint = "The same memory was counted once for each of the tensors."
    elif got == sum(x.nbytes for x in tensors):
        hint = "The numbers of each tensor were counted, and some of them are the same."
    elif got == wanted + tensors[2].nbytes:
        hint = "A view may begin elsewhere in the memory that it shares."
    yield Claim("views of the same memory count once", got == wanted, hint)

    got, wanted, tensors = measured(lambda: [matrix()[1]])
    yield Claim(
        "a row that is left of a matrix counts with all of it",
        got == wanted,
        f"The row has {tensors[0].nbytes:,} bytes, of {wanted:,} that it keeps alive. "
        f"It says {got:,}.",
    )
    got, wanted, tensors = measured(
        lambda: [torch.zeros(128, 1, device=device).expand(128, 10**7)]
    )
    yield Claim(
        "what is expanded counts as little as it takes",
        got == wanted,
        f"It says {got:,}. The {tensors[0].numel():,} numbers of an expanded tensor "
        f"are {wanted // 4} in memory, shown again and again.",
    )
    got, wanted, _ = measured(lambda: [torch.ones(i, device=device) for i in (1, 300)])
    yield Claim(
        "memory is counted in blocks",
        got == wanted,
        f"For tensors of 1 and of 300 numbers it says {got:,}. Memory is handed out in "
        "blocks of 512 bytes, to each by itself.",
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
        "each batch is given back before the next one is tried",
        not any(gpu.held for gpu in gpus),
        "While a batch was made, the one before was still there, and both have to fit. "
        "Which name holds it?",
    )
    wrong = [(gpu.limit, n) for gpu, n in zip(gpus, got, strict=True) if n != gpu.limit]
    yield Claim(
        "the largest batch that fits is found",
        not wrong,
        _not_the_largest(*wrong[0]) if wrong else "",
    )
    calls = max(gpu.calls for gpu in gpus)
    all_fit = answer(_Limited(5 * most), most)
    yield Claim(
        "where all fit, it is `most`",
        all_fit == most,
        f"With `most` = {most:,} it says {all_fit:,}. Was `most` itself ever tried?",
    )
    none = answer(_Limited(0), most)
    yield Claim(
        "where not even one fits, it is 0",
        none == 0,
        f"It says {none}, and `make(1)` raises an error there.",
    )
    few = 2 * most.bit_length() + 2
    yield Claim(
        f"{few} batches are tried at most",
        calls <= few,
        f"Up to {calls:,} were tried. Each answer, whether it fits or not, can rule "
        "out half of what is left.",
    )
    message = "shapes do not fit"

    def broken(n: int) -> torch.Tensor:
        raise RuntimeError(message)

    try:
        said, through = f"and says {answer(broken, most)}", False
    except RuntimeError as error:
        said, through = f"and raises another: {error}", str(error) == message
    yield Claim(
        "an error of another kind comes through",
        through,
        f"When a batch cannot be made for another reason, a `RuntimeError`, yours goes "
        f"on {said}. Lack of memory has an error of its own.",
    )


def _not_the_largest(limit: int, got: int) -> str:
    if got > limit:
        return f"It says {got}, and no more than {limit} fit."
    return (
        f"It says {got}. That fits, and so do {limit}. What lies between the last that "
        "failed and the first that fits?"
    )
