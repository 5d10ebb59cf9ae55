"""Devices: how fast they are, and when a GPU pays; arithmetic, without a framework."""

from collections.abc import Callable, Iterator, Sequence
from math import isclose

from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run


def add_exercises(registry: Registry) -> None:
    """Add 01.1 and 01.2 to a framework's lesson."""
    registry.add("01.1", "m, k, n, seconds, peak", returns=(float, int))(share_of_peak)
    registry.add("01.2", "cpu, gpu", returns=int)(overtakes)


# ------------------------------------------------------------------ 01.1


def _shared(
    answer: Callable, gpus: Gpus, cases: Sequence[tuple[int, int, int, float, float]]
) -> list[float]:
    return [float(answer(*case)) for case in cases]


def share_of_peak(run: Run) -> Iterator[Claim]:
    """Check that a measured time is compared with the peak."""
    # Powers of two: a product of 2²⁵ operations in 2⁻¹⁰ seconds is half of 2³⁶.
    square, tall, wide = run(
        _shared,
        [
            (256, 256, 256, 2**-10, 2.0**36),
            (2048, 64, 128, 2**-10, 2.0**36),
            (16, 4096, 128, 2**-9, 2.0**32),
        ],
    )
    yield Claim(
        "for square matrices, it's the operations per second divided by the peak",
        isclose(square, 0.5),
        _not_the_share(square),
    )
    yield Claim(
        "for other shapes too",
        isclose(tall, 0.5) and isclose(wide, 2.0),
        _wrong_shape(tall, wide),
    )


def _not_the_share(got: float) -> str:
    known = {
        0.25: "Each of the n³ steps is a multiplication and an addition.",
        50.0: "That's the share in percent.",
        2.0: "That's the other way round: how many times faster the peak is.",
        2.0**35: "That's the speed in FLOP/s, without the peak.",
        0.5 / 2**20: "You multiplied by the seconds. More time means less speed.",
    }
    for value, hint in known.items():
        if isclose(got, value):
            return hint
    return (
        f"For matrices of 256 × 256, 1/1,024 s and a peak of 2³⁶ FLOP/s, you return "
        f"{got:.4g}. How many operations is that product?"
    )


def _wrong_shape(tall: float, wide: float) -> str:
    shapes = "For 2,048 × 64 by 64 × 128"
    if isclose(tall, 0.5):  # but wide isn't right
        return (
            "A share may be larger than 1, and you shouldn't hide it: it says that "
            "something is wrong with the measurement."
        )
    if isclose(tall, 2**8):
        return f"{shapes}, you count m³ steps, as if both matrices were square."
    if isclose(tall, 0.5 / 8):
        return f"{shapes}, you count n³ steps, as if both matrices were square."
    return (
        f"{shapes}, you return {tall:.4g} instead of 0.5. How many numbers does the "
        "result have, and how many steps does each one take?"
    )


# ------------------------------------------------------------------ 01.2


def _crossings(
    answer: Callable, gpus: Gpus, cases: Sequence[Sequence[tuple[int, float]]]
) -> list[int]:
    return [answer(*map(tuple, case)) for case in cases]


def overtakes(run: Run) -> Iterator[Claim]:
    """Check the number of tasks from which the GPU finishes first."""
    one_core = (1, 1.0), (64, 4.0)
    many_cores = (16, 1.0), (2048, 20.0)
    between = (4, 1.0), (64, 2.5)
    found = run(_crossings, [one_core, many_cores, between])
    yield Claim(
        "a CPU that does one task a second loses to a GPU that takes 4 s from 5 tasks "
        "on",
        found[0] == 5,
        _not_overtaken(found[0], *one_core),
    )
    yield Claim(
        "a CPU with 16 cores holds out 16 times as long",
        found[1] == 321,
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
