import tensorflow as tf

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_08 import add_shared

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


def to(x, device):
    with tf.device(device):
        return tf.identity(x)


def add_up(parts, device):
    with tf.device(device):
        return tf.add_n(parts)


add_shared(ANSWERS, to, add_up, lambda x: x.numpy())


def of_shards(strategy, w, batch, losses, reduction=tf.reduce_sum):
    """The gradient of each shard, and how many images it has."""

    @tf.function
    def of_shard(X, y):
        with tf.GradientTape() as tape:
            loss = reduction(losses(w, X, y))
        return tape.gradient(loss, w), tf.cast(tf.size(y), tf.float32)

    return strategy.run(of_shard, batch)


@right("08.5")
def inside_the_replicas(strategy, w, batch, losses):
    def of_shard(X, y):
        replica = tf.distribute.get_replica_context()
        n = replica.all_reduce("SUM", tf.cast(tf.shape(X)[0], tf.float32))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(losses(w, X, y)) / n
        return replica.all_reduce("SUM", tape.gradient(loss, w))

    [first, _] = strategy.experimental_local_results(strategy.run(of_shard, batch))
    return first


@wrong("08.5", "counts for more")
def as_fit_does(strategy, w, batch, losses):
    gradients, _ = of_shards(strategy, w, batch, losses, tf.reduce_mean)
    return strategy.reduce("MEAN", gradients, axis=None)


@wrong("08.5", "the sum of the shards' means")
def adds_means(strategy, w, batch, losses):
    gradients, _ = of_shards(strategy, w, batch, losses, tf.reduce_mean)
    return strategy.reduce("SUM", gradients, axis=None)


@wrong("08.5", "you summed over the images and didn't divide")
def forgets_to_divide(strategy, w, batch, losses):
    gradients, _ = of_shards(strategy, w, batch, losses)
    return strategy.reduce("SUM", gradients, axis=None)


@wrong("08.5", "and then averaged over the replicas")
def averages_twice(strategy, w, batch, losses):
    gradients, counts = of_shards(strategy, w, batch, losses)
    n = strategy.reduce("SUM", counts, axis=None)
    return strategy.reduce("MEAN", gradients, axis=None) / n


@wrong("08.5", "you left out the other replica's")
def takes_the_first(strategy, w, batch, losses):
    gradients, _ = of_shards(strategy, w, batch, losses, tf.reduce_mean)
    return strategy.experimental_local_results(gradients)[0]


@wrong("08.5", "but this one has 7")
def knows_the_size(strategy, w, batch, losses):
    gradients, _ = of_shards(strategy, w, batch, losses)
    return strategy.reduce("SUM", gradients, axis=None) / 8


@wrong("08.5", "0 of 2 replicas computed losses")
def on_one_device(strategy, w, batch, losses):
    X, y = (tf.concat(strategy.experimental_local_results(part), 0) for part in batch)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(losses(w, X, y))
    return tape.gradient(loss, w)


@wrong("08.5", "It has the shape (2, 3)")
def does_not_add(strategy, w, batch, losses):
    gradients, _ = of_shards(strategy, w, batch, losses)
    return tf.stack(strategy.experimental_local_results(gradients))
