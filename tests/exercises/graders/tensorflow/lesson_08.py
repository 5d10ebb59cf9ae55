import numpy as np
import tensorflow as tf

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_08 import add_accuracies

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


def to(x, device):
    with tf.device(device):
        return tf.identity(x)


# ------------------------------------------------------------------ 08.1

right("08.1")((12, 1.2))
wrong("08.1", "too short")((16, 0.1))
wrong("08.1", "steps are too long")((16, 3.2))
wrong("08.1", "Batches of 32 make how many steps")((4, 1.6))
wrong("08.1", "would take longer")((64, 0.8))
wrong("08.1", "the first epoch is the warm-up")((1, 1.6))
wrong("08.1", "-0.5 isn't a learning rate above zero")((16, -0.5))
wrong("08.1", "Your answer has length 3")((512, 16, 1.6))

# ------------------------------------------------------------------ 08.2

add_accuracies(ANSWERS, to, lambda x: x.numpy())

# ------------------------------------------------------------------ 08.3


def stepped(
    strategy,
    net,
    optimizer,
    batch,
    losses_of,
    *,
    average=None,
    training=True,
    twice=False,
):
    """Take a step; return the loss of each example."""

    def on_replica(X, y):
        with tf.GradientTape() as tape:
            losses = losses_of(y, net(X, training=training))
            loss = (average or whole)(losses)
        grads = tape.gradient(loss, net.trainable_variables)
        if twice:
            replica = tf.distribute.get_replica_context()
            grads = replica.all_reduce("SUM", grads)
        optimizer.apply(grads, net.trainable_variables)
        return losses

    return strategy.run(tf.function(on_replica), batch)


def whole(losses):
    return tf.nn.compute_average_loss(losses, global_batch_size=8)


def mean_of(strategy, losses):
    return float(strategy.reduce("MEAN", losses, axis=0))


@right("08.3")
def with_average_loss(strategy, net, optimizer, batch, losses_of):
    losses = stepped(strategy, net, optimizer, batch, losses_of)
    return mean_of(strategy, losses)


@right("08.3")
def asks_for_the_replicas(strategy, net, optimizer, batch, losses_of):
    losses = stepped(
        strategy, net, optimizer, batch, losses_of, average=tf.nn.compute_average_loss
    )
    parts = strategy.experimental_local_results(losses)
    return float(np.mean([part.numpy() for part in parts]))


@wrong("08.3", "4 times too long")
def means_and_sums(strategy, net, optimizer, batch, losses_of):
    losses = stepped(
        *(strategy, net, optimizer, batch, losses_of),
        average=tf.reduce_mean,
        twice=True,
    )
    return mean_of(strategy, losses)


@wrong("08.3", "2 times too long")
def means_of_shards(strategy, net, optimizer, batch, losses_of):
    losses = stepped(strategy, net, optimizer, batch, losses_of, average=tf.reduce_mean)
    return mean_of(strategy, losses)


@wrong("08.3", "only 0.5 of what it should be")
def divides_twice(strategy, net, optimizer, batch, losses_of):
    losses = stepped(
        *(strategy, net, optimizer, batch, losses_of),
        average=lambda losses: whole(losses) / 2,
    )
    return mean_of(strategy, losses)


@wrong("08.3", "8 times too long")
def adds_the_losses(strategy, net, optimizer, batch, losses_of):
    losses = stepped(strategy, net, optimizer, batch, losses_of, average=tf.reduce_sum)
    return mean_of(strategy, losses)


@wrong("08.3", "How does a layer know")
def forgets_the_mode(strategy, net, optimizer, batch, losses_of):
    losses = stepped(strategy, net, optimizer, batch, losses_of, training=False)
    return mean_of(strategy, losses)


@wrong("08.3", "which is the mean loss of one shard")
def returns_the_first_loss(strategy, net, optimizer, batch, losses_of):
    losses = stepped(strategy, net, optimizer, batch, losses_of)
    return float(tf.reduce_mean(strategy.experimental_local_results(losses)[0]))


@wrong("08.3", "which is the sum of the shards' mean losses")
def adds_the_means(strategy, net, optimizer, batch, losses_of):
    losses = stepped(strategy, net, optimizer, batch, losses_of)
    return 2 * mean_of(strategy, losses)


@wrong("08.3", "only half of the mean loss")
def averages_twice_the_loss(strategy, net, optimizer, batch, losses_of):
    losses = stepped(strategy, net, optimizer, batch, losses_of)
    return mean_of(strategy, losses) / 2


@wrong("08.3", "The parameters haven't changed")
def forgets_the_update(strategy, net, optimizer, batch, losses_of):
    def on_replica(X, y):
        return losses_of(y, net(X, training=True))

    return mean_of(strategy, strategy.run(tf.function(on_replica), batch))


@wrong("08.3", "`losses_of` was never called")
def does_nothing(strategy, net, optimizer, batch, losses_of):
    return 0.0


# ------------------------------------------------------------------ 08.4


def of_shards(strategy, w, batch, losses, reduction=tf.reduce_sum):
    """The gradient of each shard, and how many images it has."""

    @tf.function
    def of_shard(X, y):
        with tf.GradientTape() as tape:
            loss = reduction(losses(w, X, y))
        return tape.gradient(loss, w), tf.cast(tf.size(y), tf.float32)

    return strategy.run(of_shard, batch)


@right("08.4")
def inside_the_replicas(strategy, w, batch, losses):
    def of_shard(X, y):
        replica = tf.distribute.get_replica_context()
        n = replica.all_reduce("SUM", tf.cast(tf.shape(X)[0], tf.float32))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(losses(w, X, y)) / n
        return replica.all_reduce("SUM", tape.gradient(loss, w))

    [first, _] = strategy.experimental_local_results(strategy.run(of_shard, batch))
    return first


@wrong("08.4", "counts for more")
def as_fit_does(strategy, w, batch, losses):
    gradients, _ = of_shards(strategy, w, batch, losses, tf.reduce_mean)
    return strategy.reduce("MEAN", gradients, axis=None)


@wrong("08.4", "the sum of the shards' means")
def adds_means(strategy, w, batch, losses):
    gradients, _ = of_shards(strategy, w, batch, losses, tf.reduce_mean)
    return strategy.reduce("SUM", gradients, axis=None)


@wrong("08.4", "you summed over the images and didn't divide")
def forgets_to_divide(strategy, w, batch, losses):
    gradients, _ = of_shards(strategy, w, batch, losses)
    return strategy.reduce("SUM", gradients, axis=None)


@wrong("08.4", "and then averaged over the replicas")
def averages_twice(strategy, w, batch, losses):
    gradients, counts = of_shards(strategy, w, batch, losses)
    n = strategy.reduce("SUM", counts, axis=None)
    return strategy.reduce("MEAN", gradients, axis=None) / n


@wrong("08.4", "you left out the other replica's")
def takes_the_first(strategy, w, batch, losses):
    gradients, _ = of_shards(strategy, w, batch, losses, tf.reduce_mean)
    return strategy.experimental_local_results(gradients)[0]


@wrong("08.4", "but this one has 7")
def knows_the_size(strategy, w, batch, losses):
    gradients, _ = of_shards(strategy, w, batch, losses)
    return strategy.reduce("SUM", gradients, axis=None) / 8


@wrong("08.4", "0 of 2 replicas computed losses")
def on_one_device(strategy, w, batch, losses):
    X, y = (tf.concat(strategy.experimental_local_results(part), 0) for part in batch)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(losses(w, X, y))
    return tape.gradient(loss, w)


@wrong("08.4", "It has the shape (2, 3)")
def does_not_add(strategy, w, batch, losses):
    gradients, _ = of_shards(strategy, w, batch, losses)
    return tf.stack(strategy.experimental_local_results(gradients))
