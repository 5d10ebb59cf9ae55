import numpy
from mxnet import np

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_a2 import add_shared

ANSWERS = Answers()


def to(x, device):
    return x.as_in_ctx(device) if isinstance(x, np.ndarray) else np.array(x, ctx=device)


add_shared(ANSWERS, to, lambda x: x.ctx, lambda x: x.asnumpy())


@ANSWERS.wrong("A2.1", "`x` had changed")
def subtracts_in_place(x, device):
    x = x.as_in_ctx(device)
    x -= x.mean()
    return x


@ANSWERS.wrong("A2.3", "`parts[0]` had changed")
def sums_in_place(parts):
    total = parts[0]
    for part in parts[1:]:
        total += part.as_in_ctx(total.ctx)
    return [total.as_in_ctx(part.ctx) for part in parts]


@ANSWERS.wrong("A2.3", "You added an array on GPU 0 and an array on GPU 1")
def adds_apart(parts):
    total = parts[0] + parts[1] + parts[2]
    return [total.as_in_ctx(part.ctx) for part in parts]


@ANSWERS.wrong("A2.2", "For an `X` of int64, the shards contain float32")
def always_in_single_precision(X, devices):
    parts = numpy.array_split(X, len(devices))
    return [
        np.array(part, dtype="float32", ctx=device)
        for part, device in zip(parts, devices, strict=True)
    ]
