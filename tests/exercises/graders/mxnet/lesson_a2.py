from mxnet import np

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_a2 import add_shared

ANSWERS = Answers()


def to(x, device):
    return x.as_in_ctx(device) if isinstance(x, np.ndarray) else np.array(x, ctx=device)


add_shared(ANSWERS, to, lambda x: x.ctx, lambda x: x.asnumpy())


@ANSWERS.wrong("A2.1", "so an in-place operation changes `x`")
def subtracts_in_place(x, device):
    x = x.as_in_ctx(device)
    x -= x.mean()
    return x


@ANSWERS.wrong("A2.3", "you added up the sum in it")
def sums_in_place(parts):
    total = parts[0]
    for part in parts[1:]:
        total += part.as_in_ctx(total.ctx)
    return [total.as_in_ctx(part.ctx) for part in parts]


@ANSWERS.wrong("A2.3", "You added an array on cpu(1)")
def adds_apart(parts):
    total = parts[0] + parts[1] + parts[2]
    return [total.as_in_ctx(part.ctx) for part in parts]
