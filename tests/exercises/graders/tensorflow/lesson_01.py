import tensorflow as tf

from d2l_gpu import tensorflow as d2l
from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_01 import add_gpu_in_turn, add_on_machine
from tests.exercises.graders.lesson_01_speed import add_share_of_peak

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

add_share_of_peak(ANSWERS)
add_gpu_in_turn(ANSWERS, d2l, "01.2")
add_on_machine(ANSWERS, "01.3")


@right("01.4")
def enters_by_hand(f, device):
    scope = tf.device(device)
    scope.__enter__()
    try:
        return f()
    finally:
        scope.__exit__(None, None, None)


@wrong("01.4", "and you copied it afterwards")
def copies_the_result(f, device):
    result = f()
    with tf.device(device):
        return tf.identity(result)


@wrong("01.4", "but `f` created its array on the host")
def forgets_the_device(f, device):
    return f()


@wrong("01.4", "whichever `device` you're given")
def names_one_gpu(f, device):
    with tf.device(d2l.gpu(0)):
        return f()


@wrong("01.4", "`f` is only the name of the function")
def does_not_call(f, device):
    with tf.device(device):
        return f


@wrong("01.4", "and each call might take hours")
def calls_twice(f, device):
    with tf.device(device):
        f()
        return f()


@wrong("01.4", "even if it's only a copy")
def copies_once_more(f, device):
    with tf.device(device):
        return tf.identity(f())


@wrong("01.4", "You swallow the error, so the caller")
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


@wrong("01.5", "you return a tensor on the host")
def wishes(shape, device):
    with tf.device(device):
        return tf.ones(shape)


@wrong("01.5", "off for everything that follows")
def leaves_it_off(shape, device):
    return strictly(shape, device)


@wrong("01.5", "after one that raises an error")
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


@wrong("01.5", "you raise no error and return None")
def hides_the_error(shape, device):
    before = tf.config.get_soft_device_placement()
    try:
        return strictly(shape, device)
    except tf.errors.InvalidArgumentError:
        return None
    finally:
        tf.config.set_soft_device_placement(before)


@wrong("01.5", "For GPU 0, the tensor is on the host")
def creates_it_outside(shape, device):
    x = tf.ones(shape)
    with tf.device(device):
        return tf.reshape(x, shape) if device.endswith("99") else x


@wrong("01.5", "For the shape (2, 3)")
def makes_zeros(shape, device):
    with tf.device(device):
        return tf.zeros(shape)


# Scopes that stay open come last: what follows in this process is in them as well.


@wrong("01.4", "a new array is created on GPU 1")
def leaves_it_open(f, device):
    tf.device(device).__enter__()
    return f()


@wrong("01.4", "new arrays were created on GPU 1")
def closes_only_without_an_error(f, device):
    scope = tf.device(device)
    scope.__enter__()
    result = f()
    scope.__exit__(None, None, None)
    return result
