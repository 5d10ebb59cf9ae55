import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_13 import add_answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

add_answers(ANSWERS, lambda n: np.zeros(n, np.float32), np.concatenate)

# ------------------------------------------------------------------ 13.2


def along(shape, axes):
    """Return a spec that cuts the first of the axes, if there's one."""
    return P(*("data" if axes[:1] == [i] else None for i in range(len(shape))))


def divided(shape, n):
    return [i for i, size in enumerate(shape) if size % n == 0]


def both(shapes, cut, params, averages):
    whole = {name: P() for name in shapes}
    cut = {name: cut(shape) for name, shape in shapes.items()}
    return (cut if params else whole), (cut if averages else whole)


@right("13.2")
def last_axes(shapes, n, stage):
    def cut(shape):
        return along(shape, divided(shape, n)[::-1])

    return both(shapes, cut, stage > 1, stage > 0)


@wrong("13.2", "In stage 1, every GPU has all parameters")
def cuts_parameters_too_soon(shapes, n, stage):
    return both(shapes, lambda x: along(x, divided(x, n)), stage > 0, stage > 0)


@wrong("13.2", "In DDP, every GPU has all")
def cuts_in_ddp(shapes, n, stage):
    return both(shapes, lambda x: along(x, divided(x, n)), stage > 1, True)


@wrong("13.2", "In stage 2, you don't cut the parameters")
def cuts_parameters_in_stage_three(shapes, n, stage):
    return both(shapes, lambda x: along(x, divided(x, n)), stage > 2, stage > 0)


@wrong("13.2", "4 doesn't divide 15")
def cuts_the_first_axis(shapes, n, stage):
    return both(shapes, lambda x: P("data") if x else P(), stage > 1, stage > 0)


@wrong("13.2", "stays whole, but 4 divides one of its axes")
def looks_at_the_first_axis(shapes, n, stage):
    def cut(shape):
        return P("data") if 0 in divided(shape, n) else P()

    return both(shapes, cut, stage > 1, stage > 0)


@wrong("13.2", "has a value of another type")
def returns_names(shapes, n, stage):
    return both(shapes, lambda x: "data", stage > 1, stage > 0)


# ------------------------------------------------------------------ 13.3


def own_square(shards):
    return sum((g**2).sum() for g in shards)


def scaled(shards, factor):
    return [factor * g for g in shards]


def at_most_one(largest, norm):
    return jnp.minimum(1, largest / norm)


@right("13.3")
def with_where(shards, largest):
    flat = jnp.concatenate([g.ravel() for g in shards])
    norm = jnp.sqrt(jax.lax.psum(flat @ flat, "data"))
    factor = jnp.where(norm > largest, largest / norm, 1.0)
    return scaled(shards, factor), norm


@wrong("13.3", "each the norm of its own shards")
def forgets_the_others(shards, largest):
    norm = jnp.sqrt(own_square(shards))
    return scaled(shards, at_most_one(largest, norm)), norm


@wrong("13.3", "but what does")
def adds_norms(shards, largest):
    norm = jax.lax.psum(jnp.sqrt(own_square(shards)), "data")
    return scaled(shards, at_most_one(largest, norm)), norm


@wrong("13.3", "the square of the norm")
def forgets_the_root(shards, largest):
    norm = jax.lax.psum(own_square(shards), "data")
    return scaled(shards, at_most_one(largest, norm)), norm


@wrong("13.3", "Are all GPUs' shards counted")
def takes_the_mean(shards, largest):
    norm = jnp.sqrt(jax.lax.pmean(own_square(shards), "data"))
    return scaled(shards, at_most_one(largest, norm)), norm


@wrong("13.3", "You return them as they were")
def returns_the_old_ones(shards, largest):
    norm = jnp.sqrt(jax.lax.psum(own_square(shards), "data"))
    scaled(shards, at_most_one(largest, norm))
    return shards, norm


@wrong("13.3", "isn't too large, but you change it")
def scales_always(shards, largest):
    norm = jnp.sqrt(jax.lax.psum(own_square(shards), "data"))
    return scaled(shards, largest / norm), norm


@wrong("13.3", "aren't finite")
def divides_by_zero(shards, largest):
    norm = jnp.sqrt(jax.lax.psum(own_square(shards), "data"))
    return scaled(shards, jnp.minimum(norm, largest) / norm), norm


@wrong("13.3", "Afterwards, the norm of the whole")
def scales_by_own_norm(shards, largest):
    own = own_square(shards)
    norm = jnp.sqrt(jax.lax.psum(own, "data"))
    return scaled(shards, at_most_one(largest, jnp.sqrt(own))), norm


@wrong("13.3", "Which number do the other GPUs need")
def gathers_everything(shards, largest):
    own = jnp.concatenate([g.ravel() for g in shards])
    norm = jnp.linalg.norm(jax.lax.all_gather(own, "data"))
    return scaled(shards, at_most_one(largest, norm)), norm


# ------------------------------------------------------------------ 13.4


def whole(layer):
    return jax.tree.map(lambda w: jax.reshard(w, P()), layer)


def computed(X, layer):
    return X + jax.nn.relu(X @ layer["up"]) @ layer["down"]


def scanned(body, params, X, **how):
    return jax.lax.scan(lambda X, layer: (body(X, layer), None), X, params, **how)[0]


@right("13.4")
def forgets_what_was_gathered(params, X):
    body = jax.checkpoint(
        lambda X, layer: computed(X, whole(layer)),
        policy=lambda primitive, *_, **__: primitive.name != "reshard",
    )
    return scanned(body, params, X)


@wrong("13.4", "How many are gathered when the first one starts")
def at_once(params, X):
    return scanned(computed, whole(params), X)


@wrong("13.4", "What's kept from the forward pass")
def keeps_them(params, X):
    return scanned(lambda X, layer: computed(X, whole(layer)), params, X)


@wrong("13.4", "in reverse order")
def from_the_last(params, X):
    body = jax.checkpoint(lambda X, layer: computed(X, whole(layer)))
    return scanned(body, params, X, reverse=True)


@wrong("13.4", "isn't that of all layers")
def only_the_first(params, X):
    return computed(X, whole(jax.tree.map(lambda w: w[0], params)))
