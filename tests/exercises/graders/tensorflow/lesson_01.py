import tensorflow as tf

from d2l_gpu import tensorflow as d2l
from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_01 import add_answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

add_answers(ANSWERS, d2l)


@right("01.3")
def enters_by_hand(f, device):
    scope = tf.device(device)
    scope.__enter__()
    try:
        return f()
    finally:
        scope.__exit__(None, None, None)


@wrong("01.3", "copied afterwards")
def copies_the_result(f, device):
    result = f()
    with tf.device(device):
        return tf.identity(result)


@wrong("01.3", "was asked for, and it was")
def forgets_the_device(f, device):
    return f()


@wrong("01.3", "whichever `device` is asked for")
def names_one_gpu(f, device):
    with tf.device(d2l.gpu(0)):
        return f()


@wrong("01.3", "`f` names the function")
def does_not_call(f, device):
    with tf.device(device):
        return f


@wrong("01.3", "may have taken hours")
def calls_twice(f, device):
    with tf.device(device):
        f()
        return f()


@wrong("01.3", "if only a copy")
def copies_once_more(f, device):
    with tf.device(device):
        return tf.identity(f())


@wrong("01.3", "It was swallowed")
def swallows(f, device):
    with tf.device(device):
        try:
            return f()
        except Exception as error:
            print(error)


@right("01.5")
def looks_where_it_went(shape, device):
    with tf.device(device):
        x = tf.ones(shape)
    if d2l.name(x.device) != d2l.name(device):
        raise ValueError(f"There is no {device}.")
    return x


def strictly(shape, device):
    tf.config.set_soft_device_placement(False)
    with tf.device(device):
        return tf.ones(shape)


@wrong("01.5", "came back without a word")
def wishes(shape, device):
    with tf.device(device):
        return tf.ones(shape)


@wrong("01.5", "is off for everything that comes after")
def leaves_it_off(shape, device):
    return strictly(shape, device)


@wrong("01.5", "comes after one that raises")
def restores_only_without_an_error(shape, device):
    before = tf.config.get_soft_device_placement()
    result = strictly(shape, device)
    tf.config.set_soft_device_placement(before)
    return result


@wrong("01.5", "which somebody had wanted")
def always_turns_it_on(shape, device):
    try:
        return strictly(shape, device)
    finally:
        tf.config.set_soft_device_placement(True)


@wrong("01.5", "and None came back")
def hides_the_error(shape, device):
    before = tf.config.get_soft_device_placement()
    try:
        return strictly(shape, device)
    except tf.errors.InvalidArgumentError:
        return None
    finally:
        tf.config.set_soft_device_placement(before)


@wrong("01.5", "it lives on")
def creates_it_outside(shape, device):
    x = tf.ones(shape)
    with tf.device(device):
        return tf.reshape(x, shape) if device.endswith("99") else x


@wrong("01.5", "For the shape (2, 3)")
def makes_zeros(shape, device):
    with tf.device(device):
        return tf.zeros(shape)


# Scopes that stay open come last: what follows in this process is in them as well.


@wrong("01.3", "an array without a device was created")
def leaves_it_open(f, device):
    tf.device(device).__enter__()
    return f()


@wrong("01.3", "from then on arrays were created on")
def closes_only_without_an_error(f, device):
    scope = tf.device(device)
    scope.__enter__()
    result = f()
    scope.__exit__(None, None, None)
    return result
