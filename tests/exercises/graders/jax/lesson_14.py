import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_14 import add_shared

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


def summed(x):
    return jax.lax.psum(x, "model")


# ------------------------------------------------------------------ 14.1


@right("14.1")
def bias_on_the_first_gpu(H, W, b):
    first = jax.lax.axis_index("model") == 0
    return summed(H @ W + jnp.where(first, b, 0))


@right("14.1")
def a_part_of_the_bias(H, W, b):
    return summed(H @ W + b / jax.lax.axis_size("model"))


@right("14.1")
def gathers_the_products(H, W, b):
    return jax.lax.all_gather(H @ W, "model").sum(0) + b


@wrong("14.1", "The bias is in it 4 times with 4 GPUs")
def as_it_was(H, W, b):
    return summed(H @ W + b)


@wrong("14.1", "The bias is missing")
def without_bias(H, W, b):
    return summed(H @ W)


@wrong("14.1", "4 GPUs and 0.5 times")
def for_four_gpus(H, W, b):
    return summed(H @ W + b / 4)


@wrong("14.1", "isn't a multiple of the bias")
def takes_the_mean(H, W, b):
    return jax.lax.pmean(H @ W, "model") + b


@wrong("14.1", "some have added what others haven't")
def forgets_to_add(H, W, b):
    return H @ W + b


@wrong("14.1", "yours has the shape (5, 24)")
def gathers_instead(H, W, b):
    return jax.lax.all_gather(H @ W + b, "model", axis=1, tiled=True)


@wrong("14.1", "a value of type NoneType")
def returns_nothing(H, W, b):
    summed(H @ W)


# ------------------------------------------------------------------ 14.2


def put(W, mesh, *spec):
    return jax.device_put(W, NamedSharding(mesh, P(*spec)))


@right("14.2")
def with_moved_axes(W, heads, mesh):
    W = jnp.moveaxis(jnp.asarray(W.reshape(3, heads, -1, W.shape[1])), -1, 0)
    return put(W, mesh, None, None, "model", None)


@wrong("14.2", "The shape is right, but")
def forgets_to_transpose(W, heads, mesh):
    return put(W.reshape(W.shape[1], 3, heads, -1), mesh, None, None, "model")


@wrong("14.2", "instead of (32, 3, 8, 4)")
def as_in_pytorch(W, heads, mesh):
    return put(W.reshape(3, heads, -1, W.shape[1]), mesh, None, "model")


@wrong("14.2", "from the queries of head 1")
def heads_first(W, heads, mesh):
    W = W.T.reshape(W.shape[1], heads, 3, -1).swapaxes(1, 2)
    return put(W, mesh, None, None, "model")


@wrong("14.2", "That's the whole array")
def everywhere(W, heads, mesh):
    return put(W.T.reshape(W.shape[1], 3, heads, -1), mesh)


@wrong("14.2", "a bit of every head")
def inside_the_heads(W, heads, mesh):
    W = W.T.reshape(W.shape[1], 3, heads, -1)
    return put(W, mesh, None, None, None, "model")


@wrong("14.2", "That would be row-parallel")
def by_inputs(W, heads, mesh):
    return put(W.T.reshape(W.shape[1], 3, heads, -1), mesh, "model")


@wrong("14.2", "your array is on 1 GPU")
def on_one(W, heads, mesh):
    W = W.T.reshape(W.shape[1], 3, heads, -1)
    return jax.device_put(W, mesh.devices.flat[0])


# ------------------------------------------------------------------ 14.3 and 14.4

add_shared(ANSWERS, "GPU")

# ------------------------------------------------------------------ 14.5


def largest_of(logits):
    return jax.lax.pmax(jax.lax.stop_gradient(logits).max(1), "model")


def parts(logits, y):
    """Return the largest logit, the sum of exponentials, and the right logit."""
    largest = largest_of(logits)
    total = summed(jnp.exp(logits - largest[:, None]).sum(1))
    return largest, total, summed(right_logit(logits, y))


def right_logit(logits, y):
    words = logits.shape[1]
    columns = jax.lax.axis_index("model") * words + jnp.arange(words)
    return jnp.where(columns == y[:, None], logits, 0).sum(1)


@right("14.5")
def with_logsumexp(logits, y):
    sums = jax.lax.all_gather(jax.nn.logsumexp(logits, 1), "model")
    return (jax.nn.logsumexp(sums, 0) - summed(right_logit(logits, y))).mean()


@wrong("14.5", "1,024 numbers per token")
def gathers(logits, y):
    logits = jax.lax.all_gather(logits, "model", axis=1, tiled=True)
    right = jnp.take_along_axis(logits, y[:, None], 1)[:, 0]
    return (jax.nn.logsumexp(logits, 1) - right).mean()


@wrong("14.5", "With logits beyond 500")
def without_the_largest(logits, y):
    total = summed(jnp.exp(logits).sum(1))
    return (jnp.log(total) - summed(right_logit(logits, y))).mean()


@wrong("14.5", "has no derivative")
def stops_too_late(logits, y):
    largest = jax.lax.stop_gradient(jax.lax.pmax(logits.max(1), "model"))
    total = summed(jnp.exp(logits - largest[:, None]).sum(1))
    return (jnp.log(total) + largest - summed(right_logit(logits, y))).mean()


@wrong("14.5", "knows only the logits of the right words")
def stops_too_much(logits, y):
    largest, total, _ = parts(jax.lax.stop_gradient(logits), y)
    return (jnp.log(total) + largest - summed(right_logit(logits, y))).mean()


@wrong("14.5", "The GPUs return different numbers")
def of_its_own_words(logits, y):
    largest, total, _ = parts(logits, y)
    return (jnp.log(total) + largest - right_logit(logits, y)).mean()


@wrong("14.5", "It's the sum over the tokens")
def adds(logits, y):
    largest, total, found = parts(logits, y)
    return (jnp.log(total) + largest - found).sum()


@wrong("14.5", "The logit of the right word is missing")
def forgets_the_right_word(logits, y):
    largest, total, _ = parts(logits, y)
    return (jnp.log(total) + largest).mean()


@wrong("14.5", "but yours is")
def forgets_to_add_it_back(logits, y):
    _, total, found = parts(logits, y)
    return (jnp.log(total) - found).mean()


@wrong("14.5", "Its shape is (512,)")
def for_each_token(logits, y):
    largest, total, found = parts(logits, y)
    return jnp.log(total) + largest - found
