from d2l_gpu import tensorflow as d2l
from d2l_gpu.tensorflow import keras, tf
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
def with_tensorflows_own(grads, max_norm):
    with tf.device(grads[0].device):
        return tf.clip_by_global_norm(grads, max_norm)


@right("03.3")
def chooses_on_the_gpu(grads, max_norm):
    with tf.device(grads[0].device):
        norm = tf.linalg.global_norm(grads)
        scale = tf.where(norm > max_norm, max_norm / norm, 1.0)
        return tuple(grad * scale for grad in grads), norm


def global_norm(grads):
    return tf.norm(tf.stack([tf.norm(grad) for grad in grads]))


@wrong("03.3", "One byte was copied to the host: a truth value")
def asks(grads, max_norm):
    with tf.device(grads[0].device):
        norm = global_norm(grads)
        if norm > max_norm:
            grads = [grad * (max_norm / norm) for grad in grads]
        return grads, norm


@wrong("03.3", "One number was copied to the host")
def fetches_the_norm(grads, max_norm):
    with tf.device(grads[0].device):
        norm = global_norm(grads)
        scale = min(1.0, max_norm / max(float(norm), 1e-9))
        return [grad * scale for grad in grads], norm


@wrong("03.3", "In which scope was it?")
def without_a_scope(grads, max_norm):
    norm = global_norm(grads)
    scale = tf.minimum(max_norm / norm, 1.0)
    return [grad * scale for grad in grads], norm


@wrong("03.3", "bytes were copied from GPU 0 to GPU 1")
def takes_any_gpu(grads, max_norm):
    own = d2l.name(grads[0].device)
    other = next(each for each in d2l.try_all_gpus() if d2l.name(each) != own)
    with tf.device(other):
        return without_a_scope(grads, max_norm)


@wrong("03.3", "and a `max_norm` of 2.0, they have a norm of 2")
def always_scales(grads, max_norm):
    with tf.device(grads[0].device):
        norm = global_norm(grads)
        return [grad * (max_norm / (norm + 1e-9)) for grad in grads], norm


@wrong("03.3", "You clipped each gradient separately")
def clips_each(grads, max_norm):
    with tf.device(grads[0].device):
        return [tf.clip_by_norm(grad, max_norm) for grad in grads], global_norm(grads)


@wrong("03.3", "You return the gradients as they were")
def only_measures(grads, max_norm):
    with tf.device(grads[0].device):
        return grads, global_norm(grads)


@wrong("03.3", "What's 0 divided by 0?")
def divides_by_zero(grads, max_norm):
    with tf.device(grads[0].device):
        norm = global_norm(grads)
        scale = tf.minimum(norm, max_norm) / norm
        return [grad * scale for grad in grads], norm


@wrong("03.3", "you returned 2.")
def returns_the_norm_afterwards(grads, max_norm):
    with tf.device(grads[0].device):
        grads, _ = tf.clip_by_global_norm(grads, max_norm)
        return grads, global_norm(grads)


@wrong("03.3", "but you return [(3,), (2, 5)]")
def loses_one(grads, max_norm):
    with tf.device(grads[0].device):
        grads, norm = tf.clip_by_global_norm(grads, max_norm)
        return grads[:2], norm


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


WEIGHTS = [1.0] * 5 + [2.0] * 5


def trained(net, images, labels, steps, scope=None, weigh=True, rows=None, log=None):
    """Return the losses of all steps, tensors on the GPU unless logged otherwise."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    history, device = [], images.device
    with tf.device(device if scope != "optimizer" else d2l.cpu()):
        optimizer = keras.optimizers.SGD(0.5)
    with tf.device(device if scope != "weights" else d2l.cpu()):
        weights = tf.constant(WEIGHTS)
    for i in range(steps):
        part = (rows or (lambda i: slice(64 * i, 64 * (i + 1))))(i)
        with tf.device(device if scope != "slices" else d2l.cpu()):
            X, y = images[part], labels[part]
        with tf.device(device if scope != "step" else d2l.cpu()):
            with tf.GradientTape() as tape:
                weight = tf.gather(weights, y) if weigh else None
                mean = loss(y, net(X, training=True), sample_weight=weight)
            grads = tape.gradient(mean, net.trainable_variables)
            optimizer.apply(grads, net.trainable_variables)
        history.append(log(mean) if log else mean)
    return history


def fetched(losses):
    with tf.device(losses[0].device):
        losses = tf.stack(losses)
    history = losses.numpy().tolist()
    return history, min(history)


@right("03.5")
def everything_in_the_scope(net, images, labels, steps):
    return fetched(trained(net, images, labels, steps))


@right("03.5")
def keeps_the_best_there(net, images, labels, steps):
    losses = trained(net, images, labels, steps)
    with tf.device(images.device):
        losses = tf.stack(losses)
        return losses.numpy().tolist(), float(tf.reduce_min(losses))


@wrong("03.5", "a batch. In which scope was it cut out?")
def slices_on_the_host(net, images, labels, steps):
    return fetched(trained(net, images, labels, steps, scope="slices"))


@right("03.5")
def weights_on_the_host(net, images, labels, steps):
    return fetched(trained(net, images, labels, steps, scope="weights"))


@wrong("03.5", "the learning rate")
def optimizer_on_the_host(net, images, labels, steps):
    return fetched(trained(net, images, labels, steps, scope="optimizer"))


@wrong("03.5", "4 bytes come to the host: a loss")
def fetches_each_loss(net, images, labels, steps):
    history = trained(net, images, labels, steps, log=float)
    return history, min(history)


@wrong("03.5", "one byte comes to the host: a truth value")
def asks_for_the_best(net, images, labels, steps):
    losses = trained(net, images, labels, steps)
    best = losses[0]
    with tf.device(images.device):
        for each in losses[1:]:
            if each < best:
                best = each
        return fetched(losses)[0], float(best)


@wrong("03.5", "their values never reached the host")
def returns_tensors(net, images, labels, steps):
    losses = trained(net, images, labels, steps)
    return losses, fetched(losses)[1]


@wrong("03.5", "`best` is a tensor")
def returns_the_best_as_a_tensor(net, images, labels, steps):
    losses = trained(net, images, labels, steps)
    with tf.device(images.device):
        return fetched(losses)[0], tf.reduce_min(tf.stack(losses))


@wrong("03.5", "The smallest loss is")
def returns_the_largest(net, images, labels, steps):
    history, _ = fetched(trained(net, images, labels, steps))
    return history, max(history)


@wrong("03.5", "the losses without the weights of the classes")
def forgets_the_weights(net, images, labels, steps):
    return fetched(trained(net, images, labels, steps, weigh=False))


@wrong("03.5", "In step 2, the loss should be")
def trains_on_the_first_batch_only(net, images, labels, steps):
    rows = lambda i: slice(0, 64)  # noqa: E731
    return fetched(trained(net, images, labels, steps, rows=rows))


@wrong("03.5", "It has 8 elements after 9 steps")
def forgets_the_last_step(net, images, labels, steps):
    return fetched(trained(net, images, labels, steps - 1))


@wrong("03.5", "Afterwards its parameters aren't those")
def trains_a_copy(net, images, labels, steps):
    with tf.device(images.device):
        other = keras.models.clone_model(net)
        other.set_weights(net.get_weights())
    history = trained(other, images, labels, steps)
    return fetched(history)


def policy(name):
    tf.config.experimental.set_device_policy(name)


@right("03.6")
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


@wrong("03.6", "still 'explicit'.")
def forgets_to_restore(f):
    policy("explicit")
    try:
        f()
    except tf.errors.InvalidArgumentError as error:
        if "conflicting devices" in str(error):
            return True
        raise
    return False


@wrong("03.6", "still 'explicit' if an error")
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


@wrong("03.6", "You took a missing file for")
def catches_everything(f):
    policy("explicit")
    try:
        f()
    except Exception:
        return True
    finally:
        policy("silent")
    return False


@wrong("03.6", "an error of the same class")
def looks_at_the_class_only(f):
    policy("explicit")
    try:
        f()
    except tf.errors.InvalidArgumentError:
        return True
    finally:
        policy("silent")
    return False


@wrong("03.6", "`X + Y` copied `X` from the first one")
def forgets_the_policy(f):
    f()
    return False


@wrong("03.6", "You called it 2 times")
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


@wrong("03.6", "`tf.identity(X) + Y` copies nothing silently")
def always(f):
    f()
    return True
