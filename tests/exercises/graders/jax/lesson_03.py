import jax
import jax.numpy as jnp
import numpy as np

from d2l_gpu import jax as d2l
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


@right("03.1")
def in_two_groups(a, b, c, device):
    near = [x for x in (a, b, c) if x.device == device]
    far = [x for x in (a, b, c) if x.device != device]
    if far:
        near.append(jax.device_put(jnp.stack(far).sum(0), device))
    return jnp.stack(near).sum(0)


@wrong("03.1", "crossed to the same GPU")
def sends_each(a, b, c, device):
    a, b, c = jax.device_put((a, b, c), device)
    return a + b + c


@wrong("03.1", "then the result to the other")
def adds_where_a_is(a, b, c, device):
    b, c = jax.device_put((b, c), a.device)
    return jax.device_put(a + b + c, device)


@wrong("03.1", "by way of the CPU")
def adds_on_the_cpu(a, b, c, device):
    a, b, c = jax.device_put((a, b, c), d2l.cpu())
    return jax.device_put(a + b + c, device)


@wrong("03.1", "so the result has to be")
def forgets_one(a, b, c, device):
    a, b = jax.device_put((a, b), device)
    return a + b


@wrong("03.1", "isn't always the device you need")
def leaves_it_where_a_is(a, b, c, device):
    b, c = jax.device_put((b, c), a.device)
    return a + b + c


@wrong("03.1", "incompatible devices")
def sends_nothing(a, b, c, device):
    return jax.device_put(a + b + c, device)


@right("03.2")
def compiled(images, device):
    scaled = jax.jit(lambda X: X.astype(jnp.float32) / 255)
    return scaled(jax.device_put(images, device))


@wrong("03.2", "Which operation made the images larger")
def converts_first(images, device):
    return jax.device_put(images.astype(jnp.float32) / 255, device)


@wrong("03.2", "The values still go up to 255")
def forgets_to_scale(images, device):
    return jax.device_put(images, device).astype(jnp.float32)


@wrong("03.2", "Its type is uint8")
def forgets_to_convert(images, device):
    return jax.device_put(images, device)


@wrong("03.2", "you divided integers")
def divides_integers(images, device):
    return (jax.device_put(images, device) // 255).astype(jnp.float32)


@wrong("03.2", "send the whole batch at once")
def sends_image_by_image(images, device):
    sent = jnp.stack(jax.device_put(list(images), device))
    return sent.astype(jnp.float32) / 255


@wrong("03.2", "returned an ndarray")
def forgets_jax(images, device):
    return (images / 255).astype(np.float32)


@wrong("03.2", "The batch is still on the host")
def forgets_to_send(images, device):
    return jnp.asarray(images).astype(jnp.float32) / 255


@right("03.4")
def with_slices(tensors, device):
    bucket = jax.device_put(jnp.concatenate([x.ravel() for x in tensors]), device)
    parts, start = [], 0
    for x in tensors:
        parts.append(bucket[start : start + x.size].reshape(x.shape))
        start += x.size
    return parts


@wrong("03.4", "copies were made")
def as_a_tree(tensors, device):
    return jax.device_put(tensors, device)


@wrong("03.4", "had the shape")
def forgets_the_shapes(tensors, device):
    bucket = jax.device_put(jnp.concatenate([x.ravel() for x in tensors]), device)
    return jnp.split(bucket, np.cumsum([x.size for x in tensors])[:-1])


@wrong("03.4", "bytes crossed, but the tensors have")
def pads(tensors, device):
    most = max(x.size for x in tensors)
    rows = jnp.stack([jnp.pad(x.ravel(), (0, most - x.size)) for x in tensors])
    rows = jax.device_put(rows, device)
    return [
        row[: x.size].reshape(x.shape) for row, x in zip(rows, tensors, strict=True)
    ]


@wrong("03.4", "The first one is on GPU 0")
def forgets_the_device(tensors, device):
    return [x.copy() for x in tensors]


@wrong("03.4", "went in, but 39 came out")
def loses_the_last(tensors, device):
    return jax.device_put(tensors[:-1], device)


@right("03.3")
def sends_before_the_loop(X, rounds):
    half, one = jax.device_put((np.float32(0.5), np.float32(1)), X.device)
    for _ in range(rounds):
        X = half * X + one
    return X


@right("03.3")
def compiles_the_loop(X, rounds):
    def one_round(i, X):
        return 0.5 * X + 1

    loop = jax.jit(lambda X, n: jax.lax.fori_loop(0, n, one_round, X))
    return loop(X, jax.device_put(rounds, X.device))


@wrong("03.3", "One number was sent")
def plain(X, rounds):
    for _ in range(rounds):
        X = 0.5 * X + 1
    return X


@wrong("03.3", "An argument of a compiled function was sent")
def sends_the_rounds(X, rounds):
    return jax.jit(lambda X, n: jax.lax.fori_loop(0, n, lambda i, X: 0.5 * X + 1, X))(
        X, rounds
    )


@wrong("03.3", "An array was sent")
def computes_with_arrays_of_numpy(X, rounds):
    half = np.full(X.shape, 0.5, np.float32)
    for _ in range(rounds):
        X = half * X + half + half
    return X


@wrong("03.3", "fetched its values to the host")
def computes_with_numpy(X, rounds):
    values = np.asarray(X)
    for _ in range(rounds):
        values = np.float32(0.5) * values + np.float32(1)
    return jax.device_put(values, X.device)


@wrong("03.3", "inside the loop")
def sends_in_the_loop(X, rounds):
    for _ in range(rounds):
        X = jax.device_put(0.5, X.device) * X + jax.device_put(1, X.device)
    return X


@wrong("03.3", "It recognizes a function by its identity")
def compiles_in_the_loop(X, rounds):
    for _ in range(rounds):
        X = jax.jit(lambda X: 0.5 * X + 1)(X)
    return X


@wrong("03.3", "as after a single round")
def makes_one_round(X, rounds):
    return jax.jit(lambda X: 0.5 * X + 1)(X)


@wrong("03.4", "aren't in the order")
def begins_in_the_middle(tensors, device):
    parts = with_slices(tensors, device)
    return parts[5:] + parts[:5]


def loss_of(params, X, y, weights):
    H = jax.nn.relu(X.reshape(len(X), -1) @ params["W1"] + params["b1"])
    log_p = jax.nn.log_softmax(H @ params["W2"] + params["b2"])
    each = -jnp.take_along_axis(log_p, y[:, None], axis=1)[:, 0]
    return (weights[y] * each).sum() / weights[y].sum()


CLASSES = np.array([1.0] * 5 + [2.0] * 5, np.float32)


@jax.jit
def gradient_at(params, images, labels, step):
    X = jax.lax.dynamic_slice_in_dim(images, 64 * step, 64)
    y = jax.lax.dynamic_slice_in_dim(labels, 64 * step, 64)
    return jax.value_and_grad(loss_of)(params, X, y, jnp.array(CLASSES))


@jax.jit
def one_step(params, images, labels, step):
    value, grads = gradient_at(params, images, labels, step)
    return jax.tree.map(lambda p, g: p - 0.5 * g, params, grads), value, step + 1


@right("03.5")
def counts_on_the_device(params, images, labels, steps):
    step = jax.device_put(jnp.array(0), labels.sharding)
    losses = []
    for _ in range(steps):
        params, value, step = one_step(params, images, labels, step)
        losses.append(value)
    history = jax.device_get(jnp.stack(losses)).tolist()
    return params, history, min(history)


@wrong("03.5", "Which of your functions is a new one in each step")
def compiles_in_each_step(params, images, labels, steps):
    step = jax.device_put(jnp.array(0), labels.sharding)
    losses = []
    for _ in range(steps):
        compiled = jax.jit(lambda *args: one_step(*args))
        params, value, step = compiled(params, images, labels, step)
        losses.append(value)
    history = jnp.stack(losses).tolist()
    return params, history, min(history)


@wrong("03.5", "a truth value")
def compares_in_each_step(params, images, labels, steps):
    step = jax.device_put(jnp.array(0), labels.sharding)
    losses, best = [], jax.device_put(jnp.array(jnp.inf), labels.sharding)
    for _ in range(steps):
        params, value, step = one_step(params, images, labels, step)
        losses.append(value)
        if value < best:
            best = value
    return params, jnp.stack(losses).tolist(), float(best)


@wrong("03.5", "bytes come to the host: a loss")
def fetches_each_loss(params, images, labels, steps):
    step = jax.device_put(jnp.array(0), labels.sharding)
    history = []
    for _ in range(steps):
        params, value, step = one_step(params, images, labels, step)
        history.append(float(value))
    return params, history, min(history)


@wrong("03.5", "something goes to the GPU")
def sends_the_number_of_the_step(params, images, labels, steps):
    losses = []
    for step in range(steps):
        params, value, _ = one_step(params, images, labels, step)
        losses.append(value)
    history = jnp.stack(losses).tolist()
    return params, history, min(history)


@wrong("03.5", "their values never reached the host")
def returns_arrays(params, images, labels, steps):
    params, history, best = counts_on_the_device(params, images, labels, steps)
    return params, list(jnp.array(history)), best


@wrong("03.5", "`best` is an array")
def returns_an_array_as_best(params, images, labels, steps):
    params, history, _ = counts_on_the_device(params, images, labels, steps)
    return params, history, jnp.array(history).min()


@wrong("03.5", "without the weights of the classes")
def forgets_the_weights(params, images, labels, steps):
    losses = []
    for step in range(steps):
        X, y = (x[64 * step : 64 * step + 64] for x in (images, labels))
        value, grads = jax.value_and_grad(loss_of)(params, X, y, jnp.ones(10))
        params = jax.tree.map(lambda p, g: p - 0.5 * g, params, grads)
        losses.append(value)
    history = jnp.stack(losses).tolist()
    return params, history, min(history)


@wrong("03.5", "Are they those after the last step")
def returns_the_first_parameters(params, images, labels, steps):
    _, history, best = counts_on_the_device(params, images, labels, steps)
    return params, history, best


@wrong("03.5", "The smallest loss is")
def returns_the_last_as_best(params, images, labels, steps):
    params, history, _ = counts_on_the_device(params, images, labels, steps)
    return params, history, max(history)
