"""Devices: how fast they are, where arrays go, and which platforms there are."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from d2l_gpu import jax as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.jax.arrays import ARRAYS
from d2l_gpu.exercises.registry import Claim, Registry, Run, given
from d2l_gpu.exercises.shared import lesson_01 as common
from d2l_gpu.exercises.shared.lesson_01_speed import add_exercises

EXERCISES = Registry()

add_exercises(EXERCISES)
EXERCISES.add("01.3", "f, device")(
    given(common.run_on, common.Devices(ARRAYS, d2l._gpus, lambda: jnp.ones(1)))
)

# ------------------------------------------------------------------ 01.4


def _found(answer: Callable, gpus: Gpus, platforms: Sequence[str]) -> list[str] | str:
    """Return the names of the devices, or the message of the error that is raised."""
    try:
        return [str(device) for device in answer(list(platforms))]
    except RuntimeError as error:
        return f"RuntimeError: {error}"


def _missing() -> list[str]:
    """Return two platforms that this machine doesn't have."""
    missing = []
    for platform in ("rocm", "tpu", "cuda"):
        try:
            jax.devices(platform)
        except RuntimeError:
            missing.append(platform)
    return missing[:2]


@EXERCISES.add("01.4", "platforms", returns=list)
def first_available(run: Run):
    cpus = [str(device) for device in jax.devices("cpu")]
    one, other = _missing()
    alone = run(_found, ["cpu", one])
    hint = f"For {['cpu', one]}, it returns {alone}."
    if alone == cpus[:1]:
        hint = "You return one device. The platform has more, and all are wanted."
    yield Claim("it returns all devices of the first platform", alone == cpus, hint)
    later = run(_found, [one, other, "cpu"])
    hint = f"For {[one, other, 'cpu']}, it returns {later}."
    if later[: len("RuntimeError")] == "RuntimeError":
        hint = (
            f"This machine has no {one}, and then your function doesn't get as far as "
            "the next platform."
        )
    yield Claim("if that isn't there, it tries the next", later == cpus, hint)
    none = run(_found, [one, other])
    raised = isinstance(none, str)
    if none == cpus:
        hint = f"Only {one} and {other} were allowed, but it falls back to the CPU."
    else:
        hint = f"For {[one, other]}, it returns {none}, and the caller may not notice."
    yield Claim("if none is there, it raises a RuntimeError", raised, hint)
    named = [platform for platform in (one, other) if raised and platform in none]
    yield Claim(
        "the message names all the platforms that it tried",
        len(named) == 2,
        f"It names only {named[0]}." if named else "It names none of them.",
    )


# ------------------------------------------------------------------ 01.5


def _spread(
    answer: Callable, gpus: Gpus, weight: int | None, homes: Sequence[int | None]
) -> list[tuple[str, list[float]]] | str:
    """Return where each result is, and its values; or the error that is raised.

    Args:
        weight: the index of the GPU to which the weight is committed; None for none.
        homes: the same for each batch; -1 for the host.
    """

    def place(x: np.ndarray, home: int | None) -> jax.Array:
        if home is None:
            return jnp.asarray(x)
        return jax.device_put(x, d2l.cpu() if home < 0 else d2l.gpu(home))

    W = place(np.full((2, 2), 3, np.float32), weight)
    batches = [place(np.full(2, i, np.float32), home) for i, home in enumerate(homes)]
    try:
        results = answer(lambda W, x: W @ x + 1, W, batches)
    except ValueError as error:
        return str(error).partition(".")[0]
    # Names that the devices really have: this is about their order.
    return [(str(Y.device), np.asarray(Y).tolist()) for Y in results]


@EXERCISES.add("01.5", "f, W, batches", returns=list, repeat=False)
def spread(run: Run):
    gpus = [str(d2l.gpu(i)) for i in range(2)]
    wanted = [(gpus[i % 2], [6.0 * i + 1] * 2) for i in range(5)]
    cases = {
        "uncommitted arrays": (None, [None] * 5),
        "a `W` that is committed to GPU 0": (0, [None] * 5),
        "batches that are committed to the host": (None, [-1] * 5),
        "batches that are committed to GPU 1": (0, [1] * 5),
    }
    for what, case in cases.items():
        found = run(_spread, *case)
        yield Claim(
            f"with {what}, results and GPUs are right",
            found == wanted,
            _not_spread(found, wanted, what, str(d2l.cpu())),
        )
        if found != wanted:
            return


def _not_spread(found: list | str, wanted: list, what: str, host: str) -> str:
    if isinstance(found, str):
        return f"With {what}, JAX raises an error: {found}."
    if len(found) != len(wanted):
        return f"For {len(wanted)} batches, you return {len(found)} results."
    places, values = zip(*found, strict=True)
    right = tuple(each for _, each in wanted)
    if values != right:
        if sorted(values) == sorted(right):
            return "The results aren't in the order of the batches."
        return "The values are wrong. Each result should be `f(W, batch)`."
    if set(places) == {host}:
        return f"With {what}, every result is on the host, so no GPU took part."
    if len(set(places)) == 1:
        return (
            f"With {what}, every result is on {places[0]}, and the other GPU is idle."
        )
    return f"With {what}, the results are on {', '.join(places)}, in this order."
