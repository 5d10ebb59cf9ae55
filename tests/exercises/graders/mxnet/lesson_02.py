from mxnet import np, npx

from d2l_gpu import mxnet as d2l
from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_02 import (
    add_bytes_of,
    add_parameters,
    add_random_on,
)

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

add_bytes_of(
    ANSWERS, lambda shape, dtype: np.zeros(shape, dtype), {"float64": 8, "int64": 8}
)
add_parameters(ANSWERS)
add_random_on(ANSWERS, lambda values, device: np.array(values, ctx=device))


@wrong("02.3", "You draw from MXNet's generator")
def seeds_mxnet(shape, seed, device):
    npx.random.seed(seed)
    return np.random.uniform(size=shape).as_in_ctx(device)


@wrong("02.3", "is on the host, but you were given GPU 0")
def forgets_the_device(shape, seed, device):
    npx.random.seed(seed)
    return np.random.uniform(size=shape)


@right("02.4")
def writes_into_a_slice(W, gradient, lr):
    W[:] = W - lr * gradient


@wrong("02.4", "You wrote to a copy, or to a new array")
def gives_the_name_away(W, gradient, lr):
    W = W - lr * gradient


@wrong("02.4", "you return a new array")
def returns_a_new_array(W, gradient, lr):
    return W - lr * gradient


@wrong("02.4", "where the loss grows")
def goes_uphill(W, gradient, lr):
    W += lr * gradient


@wrong("02.4", "whatever the learning rate")
def forgets_the_rate(W, gradient, lr):
    W -= gradient


@wrong("02.4", "changed by more than others")
def changes_the_first_row(W, gradient, lr):
    W[0] -= lr * gradient[0]


@wrong("02.4", "`gradient` had changed")
def scales_the_gradient(W, gradient, lr):
    gradient *= lr
    W -= gradient


SHARING = {"A[1:]", "A[0][1:]", "A.as_in_ctx(A.ctx)"}

right("02.5")(sorted(SHARING))
wrong("02.5", "What's between them?")({*SHARING, "A[::2]"})
wrong("02.5", "the column in the lesson")({*SHARING, "A[:, 0]"})
wrong("02.5", "the number that is added")({*SHARING, "A + 0"})
wrong("02.5", "What does its name say")({*SHARING, "A.copy()"})
wrong("02.5", "What is a part of a row?")(SHARING - {"A[0][1:]"})
wrong("02.5", "if the array is already there")(SHARING - {"A.as_in_ctx(A.ctx)"})
wrong("02.5", "that follow each other in memory?")(set())
wrong("02.5", "isn't one of them")({str(d2l.cpu())})
