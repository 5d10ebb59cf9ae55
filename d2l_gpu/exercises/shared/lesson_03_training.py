"""Copying: parts of the graders for clipping (03.3) and for a slow program (03.5)."""

import math
import random
from collections.abc import Callable, Generator, Iterator, Sequence

import numpy as np

from d2l_gpu.exercises.registry import Claim, Run

# ------------------------------------------------------------------ clipping

MOST = 2.0
SHAPES = (3,), (2, 5), (4, 1, 2)


def gradients(norm: float, seed: int) -> list[np.ndarray]:
    """Return gradients of all shapes, which have a norm together."""
    values = np.random.default_rng(seed).normal(size=sum(map(math.prod, SHAPES)))
    values = (values * (norm / np.linalg.norm(values))).astype(np.float32)
    ends = np.cumsum([math.prod(shape) for shape in SHAPES])[:-1]
    parts = np.split(values, ends)
    return [x.reshape(shape) for x, shape in zip(parts, SHAPES, strict=True)]


def norm_of(arrays: Sequence[np.ndarray]) -> float:
    """Return the norm of all arrays together."""
    return float(np.linalg.norm(np.concatenate([x.ravel() for x in arrays])))


def all_close(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> bool:
    """Return whether arrays are equal, up to rounding."""
    return all(
        np.allclose(*pair, rtol=1e-4) for pair in zip(found, wanted, strict=True)
    )


def scaled(found: Sequence[np.ndarray], norm: float, seed: int, kept: str) -> Claim:
    """Claim that gradients with too large a norm are clipped together.

    Args:
        found: what became of `gradients`.
        norm: the norm that they had.
        seed: what they were drawn with.
        kept: the hint if they're as they were.
    """
    before, now = gradients(norm, seed), norm_of(found)
    if all_close(found, before):
        hint = kept
    elif max(map(norm_of, ([x] for x in found))) > 0.99 * MOST:
        hint = (
            "You clipped each gradient separately. `max_norm` is for the norm of all "
            f"of them together, which is {now:.3g} now."
        )
    else:
        hint = f"Together they have a norm of {now:.3g} now."
    return Claim(
        "gradients whose norm is too large are scaled to `max_norm`",
        all_close(found, [x * (MOST / norm) for x in before]),
        hint,
    )


def unchanged(holds: bool, found: Sequence[np.ndarray], norm: float) -> Claim:
    """Claim that gradients with a small norm keep their values."""
    return Claim(
        "gradients whose norm is small enough keep their values",
        holds,
        f"With a norm of {norm:.3g} and a `max_norm` of {MOST}, they have a norm "
        f"of {norm_of(found):.3g} afterwards.",
    )


def still_zero(found: Sequence[np.ndarray]) -> Claim:
    """Claim that gradients that were all zero still are."""
    return Claim(
        "gradients that are all zero stay zero",
        not any(np.any(x) for x in found),
        "They became `nan`. What's 0 divided by 0?"
        if any(np.isnan(x).any() for x in found)
        else "They aren't zero afterwards.",
    )


# ------------------------------------------------------------------ a slow program

BATCH, WEIGHTS = 64, [1.0] * 5 + [2.0] * 5
STEPS = 3, 9
MOST_COPIES = 3


def losses_of(
    found: dict,
    losses: Sequence[float],
    unweighted: Callable[[], Sequence[float]],
    one: str = "a tensor",
    several: str = "tensors",
) -> Generator[Claim, None, bool]:
    """Claim that an answer returned the losses of all steps, and the smallest.

    Args:
        found: what it returned, as Python numbers, and whether they were that before.
        losses: the right ones.
        unweighted: returns those of a loss without the weights of the classes.
        one, several: what the framework calls its arrays.
    Returns:
        Whether there is a loss for each step.
    """
    history, steps = found["history"], len(losses)
    yield Claim(
        "`history` has one Python number for each step",
        found["numbers"] and len(history) == steps,
        f"It has {len(history)} elements after {steps} steps."
        if len(history) != steps
        else f"Its elements are {several}: their values never reached the host.",
    )
    if len(history) != steps:
        return False
    i = int(np.argmax(~np.isclose(history, losses, rtol=1e-4)))
    hint = (
        f"In step {i + 1}, the loss should be {losses[i]:.4f}, but you have "
        f"{history[i]:.4f}."
    )
    if np.allclose(history, unweighted(), rtol=1e-4):
        hint = "They are the losses without the weights of the classes."
    yield Claim(
        "they are the losses of `fit_slowly`",
        np.allclose(history, losses, rtol=1e-4),
        hint,
    )
    best = min(losses)
    yield Claim(
        "`best` is the smallest of them, as a Python number",
        math.isclose(found["best"], best, rel_tol=1e-4) and found["best is a number"],
        f"The smallest loss is {best:.4f}, but you return {found['best']:.4f}."
        if found["best is a number"]
        else f"`best` is {one}: its value never reached the host.",
    )
    return True


def fit(
    run: Run,
    fitted: Callable,
    reference: Callable[..., tuple[list, list]],
    in_each_step: Callable[[Sequence[tuple]], str],
) -> Iterator[Claim]:
    """Check a program that trains a network in place, with few copies.

    Args:
        run: runs the answer.
        fitted: trains with the answer, for a seed and a number of steps.
        reference: returns the losses of all steps, and the parameters after them.
        in_each_step: names one of the copies that are made again and again.
    """
    seed, steps = random.randrange(1000), STEPS[1]
    few, many = (run(fitted, seed, steps) for steps in STEPS)
    losses, parameters = reference(seed, steps)
    complete = yield from losses_of(
        many, losses, lambda: reference(seed, steps, weighted=False)[0]
    )
    if not complete:
        return
    yield Claim(
        "the network is trained as before",
        all(
            np.allclose(*pair, rtol=1e-3, atol=1e-5)
            for pair in zip(many["parameters"], parameters, strict=True)
        ),
        "Afterwards its parameters aren't those that `fit_slowly` would leave.",
    )
    copies = many["copies"]
    yield Claim(
        f"it makes at most {MOST_COPIES} copies, however many the steps",
        len(copies) <= MOST_COPIES and len(few["copies"]) <= MOST_COPIES,
        f"It makes {len(copies)} copies in {steps} steps. {in_each_step(copies)}",
    )
