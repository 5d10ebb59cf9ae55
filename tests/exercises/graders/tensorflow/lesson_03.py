import numpy as np

from d2l_gpu import tensorflow as d2l
from d2l_gpu.tensorflow import tf
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


@right("03.1")
def in_two_groups(a, b, c, device):
    name = d2l.name(device)
    near = [x for x in (a, b, c) if d2l.name(x.device) == name]
    far = [x for x in (a, b, c) if d2l.name(x.device) != name]
    if far:
        with tf.device(far[0].device):
            near.append(tf.add_n(far))
    with tf.device(device):
        return tf.reduce_sum(tf.stack(near), 0)


@wrong("03.1", "crossed to the same GPU")
def adds_all_there(a, b, c, device):
    with tf.device(device):
        return a + b + c


@wrong("03.1", "then the result to the other")
def adds_where_a_is(a, b, c, device):
    with tf.device(a.device):
        result = a + b + c
    with tf.device(device):
        return tf.identity(result)


@wrong("03.1", "by way of the CPU")
def adds_without_a_scope(a, b, c, device):
    result = a + b + c
    with tf.device(device):
        return tf.identity(result)


@wrong("03.1", "so the result has to be")
def forgets_one(a, b, c, device):
    with tf.device(device):
        return a + b


@wrong("03.1", "which isn't always the device you need")
def leaves_it_where_a_is(a, b, c, device):
    with tf.device(a.device):
        return a + b + c


@right("03.2")
def multiplies(images, device):
    with tf.device(device):
        return tf.cast(images, tf.float32) * (1 / 255)


@wrong("03.2", "Which operation made the images larger")
def converts_first(images, device):
    with tf.device(d2l.cpu()):
        images = tf.cast(images, tf.float32) / 255
    with tf.device(device):
        return tf.identity(images)


@wrong("03.2", "The values still go up to 255")
def forgets_to_scale(images, device):
    with tf.device(device):
        return tf.cast(images, tf.float32)


@wrong("03.2", "Its type is uint8")
def forgets_to_convert(images, device):
    with tf.device(device):
        return tf.identity(images)


@wrong("03.2", "you divided integers")
def divides_integers(images, device):
    with tf.device(device):
        return tf.cast(images // 255, tf.float32)


@wrong("03.2", "send the whole batch at once")
def sends_image_by_image(images, device):
    with tf.device(d2l.cpu()):
        parts = tf.unstack(images)
    with tf.device(device):
        parts = [tf.identity(part) for part in parts]
        return tf.cast(tf.stack(parts), tf.float32) / 255


@wrong("03.2", "The batch is still on the host")
def forgets_to_send(images, device):
    return tf.cast(images, tf.float32) / 255


@right("03.3")
def adds_on_the_gpu(losses):
    with tf.device(losses[0].device):
        return (tf.add_n(losses) / len(losses)).numpy().item()


@wrong("03.3", "each loss was fetched separately, by")
def fetches_each(losses):
    return sum(float(loss) for loss in losses) / len(losses)


@wrong("03.3", "you never fetched its value")
def returns_a_tensor(losses):
    return tf.reduce_mean(tf.stack(losses))


@wrong("03.3", "That's the sum of the losses")
def forgets_to_divide(losses):
    with tf.device(losses[0].device):
        return float(tf.reduce_sum(tf.stack(losses)))


@wrong("03.3", "let the GPU do the arithmetic")
def fetches_all_at_once(losses):
    with tf.device(losses[0].device):
        losses = tf.stack(losses)
    return float(losses.numpy().mean())


@wrong("03.3", "You copied something back to the GPU")
def makes_a_new_tensor(losses):
    with tf.device(losses[0].device):
        numbers = tf.constant([float(loss) for loss in losses])
    with tf.device(d2l.gpu(1)):
        return float(tf.reduce_mean(numbers))


@wrong("03.3", "NumPy read the values in a way that")
def leaves_it_to_numpy(losses):
    return float(np.stack(losses).mean())


@right("03.4")
def with_slices(tensors, device):
    with tf.device(tensors[0].device):
        bucket = tf.concat([tf.reshape(x, [-1]) for x in tensors], 0)
    parts, start = [], 0
    with tf.device(device):
        bucket = tf.identity(bucket)
        for x in tensors:
            n = x.shape.num_elements()
            parts.append(tf.reshape(bucket[start : start + n], x.shape))
            start += n
    return parts


@wrong("03.4", "copies were made")
def one_by_one(tensors, device):
    with tf.device(device):
        return [tf.identity(x) for x in tensors]


@wrong("03.4", "had the shape")
def forgets_the_shapes(tensors, device):
    with tf.device(tensors[0].device):
        bucket = tf.concat([tf.reshape(x, [-1]) for x in tensors], 0)
    with tf.device(device):
        return tf.split(tf.identity(bucket), [x.shape.num_elements() for x in tensors])


@wrong("03.4", "bytes crossed, but the tensors have")
def pads(tensors, device):
    sizes = [x.shape.num_elements() for x in tensors]
    with tf.device(tensors[0].device):
        rows = [
            tf.pad(tf.reshape(x, [-1]), [[0, max(sizes) - n]])
            for x, n in zip(tensors, sizes, strict=True)
        ]
        rows = tf.stack(rows)
    with tf.device(device):
        rows = tf.unstack(tf.identity(rows))
        return [
            tf.reshape(row[:n], x.shape)
            for row, n, x in zip(rows, sizes, tensors, strict=True)
        ]


@wrong("03.4", "The first one is on GPU 0")
def forgets_the_scope(tensors, device):
    with tf.device(tensors[0].device):
        bucket = tf.concat([tf.reshape(x, [-1]) for x in tensors], 0)
        parts = tf.split(bucket, [x.shape.num_elements() for x in tensors])
        return [
            tf.reshape(part, x.shape) for part, x in zip(parts, tensors, strict=True)
        ]


def policy(name):
    tf.config.experimental.set_device_policy(name)


@right("03.5")
def keeps_the_error(f):
    problem = None
    policy("explicit")
    try:
        f()
    except Exception as error:
        problem = error
    policy("silent")
    if problem is None:
        return False
    if "conflicting devices" in str(problem):
        return True
    raise problem


@wrong("03.5", "still 'explicit'.")
def forgets_to_restore(f):
    policy("explicit")
    try:
        f()
    except tf.errors.InvalidArgumentError as error:
        if "conflicting devices" in str(error):
            return True
        raise
    return False


@wrong("03.5", "still 'explicit' if an error")
def restores_on_two_of_three_ways(f):
    policy("explicit")
    try:
        f()
    except tf.errors.InvalidArgumentError as error:
        policy("silent")
        if "conflicting devices" in str(error):
            return True
        raise
    policy("silent")
    return False


@wrong("03.5", "You took a missing file for")
def catches_everything(f):
    policy("explicit")
    try:
        f()
    except Exception:
        return True
    finally:
        policy("silent")
    return False


@wrong("03.5", "an error of the same class")
def looks_at_the_class_only(f):
    policy("explicit")
    try:
        f()
    except tf.errors.InvalidArgumentError:
        return True
    finally:
        policy("silent")
    return False


@wrong("03.5", "`X + Y` copied `X` from the first one")
def forgets_the_policy(f):
    f()
    return False


@wrong("03.5", "You called it 2 times")
def tries_it_out_first(f):
    f()
    return keeps_the_error(f)


@wrong("03.4", "The tensors aren't in the order in")
def begins_in_the_middle(tensors, device):
    parts = with_slices(tensors, device)
    return parts[5:] + parts[:5]


@wrong("03.4", "40 went in, but 39 came out")
def loses_the_last(tensors, device):
    return with_slices(tensors[:-1], device)


@wrong("03.5", "`tf.identity(X) + Y` copies nothing silently")
def always(f):
    f()
    return True
