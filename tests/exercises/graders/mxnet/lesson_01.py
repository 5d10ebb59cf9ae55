import mxnet as mx

from d2l_gpu import mxnet as d2l
from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_01 import add_answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

add_answers(ANSWERS, d2l)


@right("01.3")
def enters_by_hand(f, device):
    device.__enter__()
    try:
        return f()
    finally:
        device.__exit__(None, None, None)


@wrong("01.3", "copied afterwards")
def copies_the_result(f, device):
    return f().as_in_ctx(device)


@wrong("01.3", "was asked for, and it was")
def forgets_the_device(f, device):
    return f()


@wrong("01.3", "whichever `device` is asked for")
def names_one_gpu(f, device):
    with d2l.gpu(0):
        return f()


@wrong("01.3", "`f` names the function")
def does_not_call(f, device):
    with device:
        return f


@wrong("01.3", "may have taken hours")
def calls_twice(f, device):
    with device:
        f()
        return f()


@wrong("01.3", "if only a copy")
def copies_once_more(f, device):
    with device:
        return f().copy()


@wrong("01.3", "an array without a device was created")
def leaves_it_set(f, device):
    mx.Context._default_ctx.value = device
    return f()


@wrong("01.3", "from then on arrays were created on")
def restores_only_without_an_error(f, device):
    device.__enter__()
    result = f()
    device.__exit__(None, None, None)
    return result


@wrong("01.3", "It was swallowed")
def swallows(f, device):
    with device:
        try:
            return f()
        except Exception as error:
            print(error)
