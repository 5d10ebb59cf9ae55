"""Sharding: specs for ZeRO's stages, clipping shards, and gathering layer by layer."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.sharding import AxisType, PartitionSpec

from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.jax.programs import collected
from d2l_gpu.exercises.registry import Claim, Registry, Run, given
from d2l_gpu.exercises.shared import lesson_13 as common

EXERCISES = Registry()
EXERCISES.add("13.1", "parameters, memory, stage", returns=(int, type(None)))(
    common.gpus_needed
)

_N = 4


def _mesh(gpus: Gpus) -> jax.sharding.Mesh:
    return jax.make_mesh(
        (_N,), ("data",), devices=gpus[:], axis_types=(AxisType.Explicit,)
    )


# ------------------------------------------------------------------ specs

_SHAPES = {"up": (12, 20), "down": (15, 8), "norm": (6,), "scale": ()}
_COUNTS = (4, 3)  # GPUs
# The axes that each number of GPUs divides.
_AXES = {
    n: {
        name: [i for i, size in enumerate(shape) if size % n == 0]
        for name, shape in _SHAPES.items()
    }
    for n in _COUNTS
}


def _specified(answer: Callable, gpus: Gpus) -> list:
    """Return what the answer says for each number of GPUs and each stage."""
    found = []
    for n in _COUNTS:
        for stage in range(4):
            result = answer(dict(_SHAPES), n, stage)
            found.append(
                [
                    {str(name): _axes(spec) for name, spec in part.items()}
                    if isinstance(part, dict)
                    else None
                    for part in result
                ]
            )
    return found


def _axes(spec: object) -> list | None:
    """Return a spec's axes of the mesh, one for each axis; None if it isn't a spec."""
    if not isinstance(spec, PartitionSpec):
        return None
    return [list(x) if isinstance(x, tuple) else [x] if x else [] for x in spec]


@EXERCISES.add("13.2", "shapes, n, stage", returns=(tuple, list))
def specs(run: Run):
    found = run(_specified)
    complete = all(
        len(result) == 2
        and all(
            part is not None and set(part) == set(_SHAPES) and None not in part.values()
            for part in result
        )
        for result in found
    )
    yield Claim(
        "it returns two dictionaries with a `PartitionSpec` for each name",
        complete,
        "One of them isn't there, lacks a name, or has a value of another type.",
    )
    if not complete:
        return
    cases = [(n, stage) for n in _COUNTS for stage in range(4)]
    for (n, stage), result in zip(cases, found, strict=True):
        name = f"stage {stage}" if stage else "DDP"
        hint = ""
        for kind, part, cut in zip(
            ("parameters", "averages"), result, (stage > 1, stage > 0), strict=True
        ):
            hint = hint or _wrong_specs(name, kind, part, cut, n)
        yield Claim(f"with {n} GPUs, they're right for {name}", not hint, hint)
        if hint:
            return


def _wrong_specs(stage: str, kind: str, part: dict, cut: bool, n: int) -> str:
    """Return what's wrong with the specs of parameters or averages; usually empty."""
    for name, spec in part.items():
        shape = _SHAPES[name]
        axes = [i for i, names in enumerate(spec) if names]
        told = f"With {n} GPUs in {stage}, the {kind}' `{name}` {shape} "
        if not cut and axes:
            return f"In {stage}, every GPU has all {kind}, but you cut `{name}`."
        if len(spec) > len(shape):
            return told + "gets a spec that's longer than its shape."
        if any(names not in ([], ["data"]) for names in spec):
            return told + f"is cut along {spec}. The mesh has one axis, `data`."
        if wrong := [i for i in axes if i not in _AXES[n][name]]:
            return told + (
                f"is cut along axis {wrong[0]}, and {n} doesn't divide "
                f"{shape[wrong[0]]}."
            )
        if cut and _AXES[n][name] and not axes:
            if not any(any(names) for other in part.values() for names in other):
                return f"In {stage}, you don't cut the {kind}."
            return told + f"stays whole, but {n} divides one of its axes."
    return ""


# ------------------------------------------------------------------ clipping

# What the gradients are multiplied by: they're clipped, not clipped, and zero.
_SCALES = (1.0, 0.01, 0.09, 0.0)


def _gradients(scale: float) -> list[np.ndarray]:
    """Return two arrays whose first shards are much smaller than the last ones."""
    rng = np.random.RandomState(0)
    sizes = np.arange(_N, dtype=np.float32)[:, None] + 0.1
    return [
        (scale * np.repeat(sizes, k, 0) * rng.randn(k * _N, 3)).astype(np.float32)
        for k in (2, 4)
    ]


def _clipped(answer: Callable, gpus: Gpus, scale: float) -> dict:
    """Return the clipped gradient, each GPU's norm, and the bytes of collectives."""

    def on_one(shards):
        shards, norm = answer(shards, common.LARGEST)
        return list(shards), jax.numpy.reshape(norm, (1,))

    data = PartitionSpec("data")
    clip = jax.jit(
        jax.shard_map(
            on_one,
            mesh=_mesh(gpus),
            in_specs=data,
            out_specs=data,
            check_vma=False,
        )
    )
    shards = jax.device_put(
        _gradients(scale), jax.sharding.NamedSharding(_mesh(gpus), data)
    )
    clipped, norms = clip(shards)
    return {
        "shards": [np.asarray(x) for x in clipped],
        "norms": np.asarray(norms).tolist(),
        "bytes": 4 * sum(collected(clip.lower(shards).compile().as_text())),
    }


@EXERCISES.add("13.3", "shards, largest", returns=(tuple, list), gpus=_N)
def clip(run: Run):
    runs = {scale: run(_clipped, scale) for scale in _SCALES}
    for scale, found in runs.items():
        whole = np.concatenate([x.ravel() for x in _gradients(scale)])
        norm = float(np.linalg.norm(whole))
        same = np.allclose(found["norms"], norm, rtol=1e-3, atol=1e-6)
        yield Claim(
            f"with a gradient of norm {norm:.2f}, every GPU returns that norm",
            same,
            common.wrong_norm(found["norms"], norm, "GPU"),
        )
        if not same:
            return
        wanted = whole * min(1, common.LARGEST / norm if norm else 1)
        mine = np.concatenate([x.ravel() for x in found["shards"]])
        close = len(mine) == len(wanted) and np.allclose(
            mine, wanted, rtol=1e-3, atol=1e-6
        )
        yield Claim(
            "and the shards are clipped together",
            close,
            "" if close else _wrong_shards(mine, whole, norm),
        )
        if not close:
            return
    most = max(found["bytes"] for found in runs.values())
    yield Claim(
        "only a few bytes are sent",
        most <= 64,
        f"The collectives return {most} bytes for a gradient of {4 * len(whole)} "
        "bytes. Which number do the other GPUs need?",
    )


def _wrong_shards(mine: np.ndarray, whole: np.ndarray, norm: float) -> str:
    if len(mine) != len(whole):
        return "They don't have the shapes of the shards you were given."
    return common.wrong_shards(mine, whole, norm, "You return them as they were.")


# ------------------------------------------------------------------ layer by layer

_DEPTH, _WIDTH, _ROWS = 12, 64, 8


def _layers() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the stacked layers, and a batch."""
    rng = np.random.RandomState(0)
    up = rng.randn(_DEPTH, _WIDTH, 4 * _WIDTH) / _WIDTH**0.5
    down = rng.randn(_DEPTH, 4 * _WIDTH, _WIDTH) / (4 * _WIDTH) ** 0.5
    layers = {"up": up.astype(np.float32), "down": down.astype(np.float32)}
    return layers, rng.randn(_ROWS, _WIDTH).astype(np.float32)


def _gathered(answer: Callable, gpus: Gpus) -> dict:
    """Return the output, and how many bytes forward and both passes need."""
    mesh = _mesh(gpus)
    layers, X = _layers()
    with jax.set_mesh(mesh):
        params = jax.device_put(layers, PartitionSpec(None, "data"))
        X = jax.device_put(X, PartitionSpec("data"))

        def loss(params, X):
            return (answer(params, X) ** 2).mean()

        forward = jax.jit(answer).lower(params, X).compile()
        gradient = jax.jit(jax.grad(loss)).lower(params, X).compile()
        return {
            "output": np.asarray(forward(params, X)),
            "forward": forward.memory_analysis().temp_size_in_bytes,
            "both": gradient.memory_analysis().temp_size_in_bytes,
        }


def _output(order: Sequence[int]) -> np.ndarray:
    layers, X = _layers()
    for i in order:
        X = X + np.maximum(X @ layers["up"][i], 0) @ layers["down"][i]
    return X


@EXERCISES.add("13.4", "params, X", gpus=_N)
def forward(run: Run):
    found = run(_gathered)
    right = _output(range(_DEPTH))
    mine = found["output"]

    def close(to):
        return mine.shape == to.shape and np.allclose(mine, to, rtol=1e-3, atol=1e-3)

    backwards = close(_output(range(_DEPTH)[::-1]))
    yield Claim(
        "the output is right",
        close(right),
        "It's the output of the layers in reverse order."
        if backwards
        else "It isn't that of all layers, one after the other.",
    )
    if not close(right):
        return
    layers, _ = _layers()
    whole = sum(x.nbytes for x in layers.values())
    used = {name: _DEPTH * found[name] / whole for name in ("forward", "both")}
    few = used["forward"] < _DEPTH / 2
    yield Claim(
        "the forward pass has few layers in memory",
        few,
        f"It needs room for {used['forward']:.1f} layers, and there are {_DEPTH}. "
        "How many are gathered when the first one starts?",
    )
    if not few:
        return
    yield Claim(
        "so does the backward pass",
        used["both"] < _DEPTH / 2,
        f"Both passes together need room for {used['both']:.1f} layers. What's kept "
        "from the forward pass for the backward pass?",
    )


# ------------------------------------------------------------------ cut again


def _vector(numbers: Sequence[float]) -> np.ndarray:
    return np.array(numbers, np.float32)


EXERCISES.add("13.5", "read, size, old, rank, new", returns=np.ndarray)(
    given(common.load_shard, _vector)
)
