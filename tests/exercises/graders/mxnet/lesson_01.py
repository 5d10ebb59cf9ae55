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


@wrong("01.3", "and you copied it afterwards")
def copies_the_result(f, device):
    return f().as_in_ctx(device)


@wrong("01.3", "but `f` created its array on the host")
def forgets_the_device(f, device):
    return f()


@wrong("01.3", "whichever `device` you're given")
def names_one_gpu(f, device):
    with d2l.gpu(0):
        return f()


@wrong("01.3", "`f` is only the name of the function")
def does_not_call(f, device):
    with device:
        return f


@wrong("01.3", "and each call might take hours")
def calls_twice(f, device):
    with device:
        f()
        return f()


@wrong("01.3", "even if it's only a copy")
def copies_once_more(f, device):
    with device:
        return f().copy()


@wrong("01.3", "a new array is created on GPU 1")
def leaves_it_set(f, device):
    mx.Context._default_ctx.value = device
    return f()


@wrong("01.3", "new arrays were created on GPU 1")
def restores_only_without_an_error(f, device):
    device.__enter__()
    result = f()
    device.__exit__(None, None, None)
    return result


@wrong("01.3", "You swallow the error, so the caller")
def swallows(f, device):
    with device:
        try:
            return f()
        except Exception as error:
            print(error)
