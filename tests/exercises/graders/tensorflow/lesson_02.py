import tensorflow as tf

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_02 import (
    add_bytes_of,
    add_random_on,
)

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


def put(values, device):
    with tf.device(device):
        return tf.identity(values)


add_bytes_of(ANSWERS, tf.zeros, {"float64": 8, "int64": 8})
add_random_on(ANSWERS, put)


@wrong("02.3", "from TensorFlow's generator")
def seeds_tensorflow(shape, seed, device):
    tf.random.set_seed(seed)
    with tf.device(device):
        return tf.random.uniform(shape)


@wrong("02.3", "is on the host, but you were given GPU 0")
def forgets_the_device(shape, seed, device):
    return tf.random.stateless_uniform(shape, seed=(seed, 0))


@right("02.4")
def computes_in_a_scope(W, gradient, lr):
    with tf.device(W.device):
        W.assign(W - lr * gradient)


@wrong("02.4", "What decides where an operation runs?")
def forgets_the_scope(W, gradient, lr):
    W.assign_sub(lr * gradient)


@wrong("02.4", "You created the value to assign")
def steps_in_numpy(W, gradient, lr):
    W.assign(W.numpy() - lr * gradient.numpy())


@wrong("02.4", "gives the name to something else")
def gives_the_name_away(W, gradient, lr):
    with tf.device(W.device):
        W = W - lr * gradient


@wrong("02.4", "It hasn't: you return something new")
def returns_a_new_tensor(W, gradient, lr):
    with tf.device(W.device):
        return W - lr * gradient


@wrong("02.4", "where the loss grows")
def goes_uphill(W, gradient, lr):
    with tf.device(W.device):
        W.assign_add(lr * gradient)


@wrong("02.4", "whatever the learning rate")
def forgets_the_rate(W, gradient, lr):
    with tf.device(W.device):
        W.assign_sub(gradient)


@right("02.2")
def copies_inside(parts, devices):
    def there(part, device):
        with tf.device(device):
            return tf.reduce_sum(tf.identity(part))

    return tuple(map(there, parts, devices))


@wrong("02.2", "you sent the parts to their devices, but")
def adds_outside(parts, devices):
    copies = [put(part, device) for part, device in zip(parts, devices, strict=True)]
    return [tf.reduce_sum(copy) for copy in copies]


@wrong("02.2", "No scope encloses them")
def forgets_the_scopes(parts, devices):
    return [tf.reduce_sum(part) for part in parts]


@wrong("02.2", "a whole part came back to the host")
def sends_the_sums(parts, devices):
    sums = adds_outside(parts, devices)
    return [put(x, device) for x, device in zip(sums, devices, strict=True)]


@wrong("02.2", "Nothing crossed, so")
def adds_on_the_host(parts, devices):
    sums = [tf.reduce_sum(part) for part in parts]
    return [put(x, device) for x, device in zip(sums, devices, strict=True)]


@wrong("02.2", "on GPU 1 and GPU 0, in this order")
def mixes_them_up(parts, devices):
    return copies_inside(parts, devices[::-1])


@wrong("02.2", "you return [1000.0, 4000.0]")
def accumulates(parts, devices):
    total, found = 0, []
    for part, device in zip(parts, devices, strict=True):
        with tf.device(device):
            total = total + tf.reduce_sum(part)
        found.append(total)
    return found


@wrong("02.2", "20,000 bytes crossed")
def sends_the_second_to_both(parts, devices):
    put(parts[0], devices[1])
    put(parts[1], devices[0])
    return copies_inside(parts, devices)


@right("02.5")
def adds_nothing(x, n):
    with tf.device(x.device):
        return x[:n] + 0


@right("02.5")
def gathers(x, n):
    with tf.device(x.device):
        return tf.gather(x, tf.range(n))


@wrong("02.5", "begins in the memory of `x`")
def slices(x, n):
    with tf.device(x.device):
        return x[:n]


@wrong("02.5", "In which scope is your function called?")
def copies_without_a_scope(x, n):
    return tf.raw_ops.DeepCopy(x=x[:n])


@wrong("02.5", "What did you copy first?")
def copies_everything(x, n):
    with tf.device(x.device):
        return tf.raw_ops.DeepCopy(x=x)[:n]


@wrong("02.5", "2,560 bytes crossed")
def goes_through_numpy(x, n):
    with tf.device(x.device):
        return tf.constant(x[:n].numpy())


@wrong("02.5", "For n = 10, the shape is")
def returns_one_more(x, n):
    with tf.device(x.device):
        return x[: n + 1] + 0


@wrong("02.5", "aren't those of `x`")
def takes_the_last(x, n):
    with tf.device(x.device):
        return x[-n:] + 0
