import jax

from d2l_gpu import jax as d2l
from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_01 import add_answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

add_answers(ANSWERS, d2l)


@right("01.3")
def restores_by_hand(f, device):
    before = jax.config.jax_default_device
    jax.config.update("jax_default_device", device)
    try:
        return f()
    finally:
        jax.config.update("jax_default_device", before)


@wrong("01.3", "and you copied it afterwards")
def copies_the_result(f, device):
    return jax.device_put(f(), device)


@wrong("01.3", "but `f` created its array on the host")
def forgets_the_device(f, device):
    return f()


@wrong("01.3", "whichever `device` you're given")
def names_one_gpu(f, device):
    with jax.default_device(d2l.gpu(0)):
        return f()


@wrong("01.3", "`f` is only the name of the function")
def does_not_call(f, device):
    with jax.default_device(device):
        return f


@wrong("01.3", "and each call might take hours")
def calls_twice(f, device):
    with jax.default_device(device):
        f()
        return f()


@wrong("01.3", "even if it's only a copy")
def puts_once_more(f, device):
    with jax.default_device(device):
        return jax.device_put(f(), device)


@wrong("01.3", "a new array is created on GPU 1")
def leaves_it_set(f, device):
    jax.config.update("jax_default_device", device)
    return f()


@wrong("01.3", "new arrays were created on GPU 1")
def restores_only_without_an_error(f, device):
    before = jax.config.jax_default_device
    jax.config.update("jax_default_device", device)
    result = f()
    jax.config.update("jax_default_device", before)
    return result


@wrong("01.3", "You swallow the error, so the caller")
def swallows(f, device):
    with jax.default_device(device):
        try:
            return f()
        except Exception as error:
            print(error)
