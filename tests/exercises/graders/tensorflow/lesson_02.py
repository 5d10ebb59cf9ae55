import tensorflow as tf

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_02 import (
    add_bytes_of,
    add_parameters,
    add_random_on,
)

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


def put(values, device):
    with tf.device(device):
        return tf.identity(values)


add_bytes_of(ANSWERS, tf.zeros, {"float64": 8, "int64": 8})
add_parameters(ANSWERS)
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
def goes_through_numpy(W, gradient, lr):
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


SHARING = {"A[1:]", "tf.reshape(A, -1)", "tf.identity(A)"}

right("02.5")(sorted(SHARING))
wrong("02.5", "from one to the next")({*SHARING, "A[:, 0]"})
wrong("02.5", "Which is the second one")({*SHARING, "tf.transpose(A)"})
wrong("02.5", "the number it multiplies by")({*SHARING, "A * 1"})
wrong("02.5", "what would a copy be for")(SHARING - {"tf.identity(A)"})
wrong("02.5", "Do they change places")(SHARING - {"tf.reshape(A, -1)"})
wrong("02.5", "Do its numbers follow each other in")(set())
wrong("02.5", "isn't one of them")({"A[0]"})
