"""Devices: how fast they are, and when a GPU pays; arithmetic, without a framework."""

from collections.abc import Callable, Iterator, Sequence
from math import isclose

from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.variants.draw import Draw, Vary


def add_exercises(registry: Registry) -> None:
    """Add 01.1 and 01.2 to a framework's lesson."""
    registry.add(
        "01.1",
        "m, k, n, seconds, peak",
        returns=(float, int),
        vary={"powers": Vary((8, 36), lambda draw: _powers(draw))},
    )(share_of_peak)
    registry.add(
        "01.2",
        "cpu, gpu",
        returns=int,
        vary={"devices": Vary((16, 20, 4), lambda draw: _devices(draw))},
    )(overtakes)


# ------------------------------------------------------------------ 01.1


def _shared(
    answer: Callable, gpus: Gpus, cases: Sequence[tuple[int, int, int, float, float]]
) -> list[float]:
    return [float(answer(*case)) for case in cases]


def _powers(draw: Draw) -> tuple[int, int]:
    """Return the size of the matrices and the peak, each as a power of two."""
    size = draw.integer(7, 11)
    return size, 3 * size + 11 + draw.integer(2, 5)  # a quarter of the peak at most


def share_of_peak(run: Run, powers: tuple[int, int] = (8, 36)) -> Iterator[Claim]:
    """Check that a measured time is compared with the peak."""
    # Powers of two: a product of 2²⁵ operations in 2⁻¹⁰ seconds is half of 2³⁶.
    size, most = powers
    n, peak = 2**size, 2.0**most
    share = 2 * n**3 / 2**-10 / peak
    square, tall, wide = run(
        _shared,
        [
            (n, n, n, 2**-10, peak),
            (8 * n, n // 4, n // 2, 2**-10, peak),
            (n // 16, 16 * n, n // 2, 2**-9, 2.0 ** (most - 4)),
        ],
    )
    yield Claim(
        "for square matrices, it's the operations per second divided by the peak",
        isclose(square, share),
        _not_the_share(square, share, n, most),
    )
    yield Claim(
        "for other shapes too",
        isclose(tall, share) and isclose(wide, 4 * share),
        _wrong_shape(tall, wide, share, n),
    )


def _not_the_share(got: float, share: float, n: int, most: int) -> str:
    known = {
        share / 2: "Each of the n³ steps is a multiplication and an addition.",
        100 * share: "That's the share in percent.",
        1 / share: "That's the other way round: how many times faster the peak is.",
        share * 2.0**most: "That's the speed in FLOP/s, without the peak.",
        share / 2**20: "You multiplied by the seconds. More time means less speed.",
    }
    for value, hint in known.items():
        if isclose(got, value):
            return hint
    return (
        f"For matrices of {n} × {n}, 1/1,024 s and a peak of 2**{most} FLOP/s, you "
        f"return {got:.4g}. How many operations is that product?"
    )


def _wrong_shape(tall: float, wide: float, share: float, n: int) -> str:
    shapes = f"For {8 * n:,} × {n // 4} by {n // 4} × {n // 2}"
    if isclose(tall, share):  # but wide isn't right
        return (
            "A share may be larger than 1, and you shouldn't hide it: it says that "
            "something is wrong with the measurement."
        )
    if isclose(tall, 2**9 * share):
        return f"{shapes}, you count m³ steps, as if both matrices were square."
    if isclose(tall, share / 8):
        return f"{shapes}, you count n³ steps, as if both matrices were square."
    return (
        f"{shapes}, you return {tall:.4g} instead of {share:g}. How many numbers does "
        "the result have, and how many steps does each one take?"
    )


# ------------------------------------------------------------------ 01.2


def _crossings(
    answer: Callable, gpus: Gpus, cases: Sequence[Sequence[tuple[int, float]]]
) -> list[int]:
    return [answer(*map(tuple, case)) for case in cases]


def _devices(draw: Draw) -> tuple[int, int, int]:
    """Return the cores of a CPU, and the seconds of two GPUs."""
    cores = draw.choice((8, 12, 24, 32, 48))
    return cores, draw.choice((15, 25, 30, 40)), draw.choice((3, 5, 6, 7))


def overtakes(run: Run, devices: tuple[int, int, int]) -> Iterator[Claim]:
    """Check the number of tasks from which the GPU finishes first."""
    cores, long, short = devices
    one_core = (1, 1.0), (64, float(short))
    many_cores = (cores, 1.0), (2048, float(long))
    between = (4, 1.0), (64, 2.5)
    found = run(_crossings, [one_core, many_cores, between])
    yield Claim(
        f"a CPU that does one task a second loses to a GPU that takes {short} s from "
        f"{short + 1} tasks on",
        found[0] == short + 1,
        _not_overtaken(found[0], *one_core),
    )
    yield Claim(
        f"a CPU with {cores} cores holds out {cores} times as long",
        found[1] == cores * long + 1,
        _not_overtaken(found[1], *many_cores),
    )
    yield Claim(
        "the last round takes its full time, even if it's not full",
        found[2] == 9,
        _not_overtaken(found[2], *between),
    )
    bigger = run(_crossings, [((4, 1.0), (10**6, 2.5))])
    yield Claim(
        "a GPU that does more at once, but isn't quicker, doesn't overtake sooner",
        bigger == [9],
        "It depends on how many tasks the GPU can do at once, although it does all of "
        "them in its first round.",
    )
    faster = run(_crossings, [((4, 1.0), (64, 0.5))])
    yield Claim(
        "a GPU that's quicker at a single task wins from the first one on",
        faster == [1],
        f"With a GPU that takes 0.5 s, you return {faster[0]}.",
    )


def _finished(tasks: int, device: tuple[int, float]) -> float:
    at_once, seconds = device
    return -(-tasks // at_once) * seconds


def _not_overtaken(got: int, cpu: tuple[int, float], gpu: tuple[int, float]) -> str:
    if got < 1:
        return f"You return {got}. There has to be at least one task."
    mine, theirs = _finished(got, cpu), _finished(got, gpu)
    what = f"With {got} task{'s' * (got != 1)}, the CPU finishes after {mine:g} s"
    if mine == theirs:
        return f"{what}, and so does the GPU. That's a tie."
    if mine < theirs:
        return f"{what} and the GPU after {theirs:g} s, so the CPU is still faster."
    return f"{what} and the GPU after {theirs:g} s, but the GPU has won before that."
