from d2l_gpu import tensorflow as d2l
from d2l_gpu.tensorflow import tf
from tests.exercises.graders import memory
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

memory.answers(right, wrong)


@right("04.2")
def asks_all(model):
    places = [weight.value.device for weight in model.weights]
    for place in places:
        if place != places[0]:
            raise ValueError(f"{place} is not {places[0]}")
    return places[0]


@wrong("04.2", "Which parameters did it look at?")
def asks_the_first(model):
    return model.weights[0].value.device


@wrong("04.2", "It raised AssertionError")
def asserts(model):
    places = {weight.value.device for weight in model.weights}
    assert len(places) == 1, places
    return places.pop()


@wrong("04.2", "It returned {")
def returns_what_there_is(model):
    places = {d2l.name(weight.value.device) for weight in model.weights}
    return places if len(places) > 1 else places.pop()


@wrong("04.2", "Your message is 'too many'")
def names_no_devices(model):
    places = {weight.value.device for weight in model.weights}
    if len(places) > 1:
        raise ValueError("too many")
    return places.pop()


@wrong("04.2", "you return {'CPU:1'} and {'CPU:2'}")
def returns_a_set(model):
    return {d2l.name(weight.value.device) for weight in model.weights}


@right("04.3")
def gathers(weight, i, j, value):
    with tf.device(weight.device):
        old = tf.gather_nd(weight, [[i, j]])[0].numpy().item()
        weight.scatter_nd_update([[i, j]], [value])
    return old


@wrong("04.3", "select the number on the device of the parameters")
def fetches_all(weight, i, j, value):
    with tf.device(weight.device):
        old = weight.numpy()[i, j].item()
        weight[i, j].assign(value)
    return old


@wrong("04.3", "you wrote more than the one number")
def sends_all(weight, i, j, value):
    with tf.device(weight.device):
        old = float(weight[i, j])
    with tf.device(d2l.gpu(1)):
        there = tf.tensor_scatter_nd_update(tf.identity(weight), [[i, j]], [value])
        weight.assign(there)
    return old


@wrong("04.3", "Fetch the old one before you write")
def writes_first(weight, i, j, value):
    with tf.device(weight.device):
        weight[i, j].assign(value)
        return float(weight[i, j])


@wrong("04.3", "not a Python number")
def returns_a_tensor(weight, i, j, value):
    with tf.device(weight.device):
        old = weight[i, j]
        weight[i, j].assign(value)
    return old


@wrong("04.3", "Element (5, 7) is 167, not -1.5")
def writes_into_a_copy(weight, i, j, value):
    with tf.device(weight.device):
        old = float(weight[i, j])
        tf.tensor_scatter_nd_update(weight, [[i, j]], [value])
    return old


@wrong("04.3", "numbers differ")
def writes_a_row(weight, i, j, value):
    with tf.device(weight.device):
        old = float(weight[i, j])
        weight[i].assign(tf.fill([32], value))
    return old


@right("04.4")
def with_scopes(layers, devices, X):
    first, second = layers
    with tf.device(devices[0]):
        X = first(X)
    with tf.device(devices[1]):
        return second(X)


@wrong("04.4", "parameters of the last layer")
def computes_on_the_first(layers, devices, X):
    with tf.device(devices[0]):
        for layer in layers:
            X = layer(X)
    with tf.device(devices[1]):
        return tf.identity(X)


@wrong("04.4", "parameters of the first layer")
def computes_on_the_last(layers, devices, X):
    with tf.device(devices[1]):
        for layer in layers:
            X = layer(X)
    return X


@wrong("04.4", "by way of the host")
def forgets_the_scopes(layers, devices, X):
    for layer in layers:
        X = layer(X)
    with tf.device(devices[1]):
        return tf.identity(X)


@wrong("04.4", "but the last layer is on GPU 1")
def brings_it_back(layers, devices, X):
    X = with_scopes(layers, devices, X)
    with tf.device(devices[0]):
        return tf.identity(X)


@wrong("04.4", "The gradient doesn't reach the first layer")
def stops_the_gradient(layers, devices, X):
    first, second = layers
    with tf.device(devices[0]):
        X = tf.stop_gradient(first(X))
    with tf.device(devices[1]):
        return second(X)


@wrong("04.4", "Their shape is")
def forgets_the_last(layers, devices, X):
    with tf.device(devices[0]):
        X = layers[0](X)
    with tf.device(devices[1]):
        return tf.identity(X)


@wrong("04.2", "Which parameters did it look at?")
def asks_the_ends(model):
    places = {model.weights[i].value.device for i in (0, -1)}
    if len(places) > 1:
        raise ValueError(str(places))
    return places.pop()


@wrong("04.4", "/bias` had changed")
def adds_the_bias_itself(layers, devices, X):
    first, second = layers
    bias = tf.identity(second.bias)
    second.bias.assign(tf.zeros_like(bias))
    with tf.device(devices[1]):
        return with_scopes([first, second], devices, X) + bias


@right("04.5")
def uses_one_tensor(update, w, gradients, rates):
    for gradient, rate in zip(gradients, tf.constant(rates), strict=True):
        update(w, gradient, rate)


@wrong("04.5", "It was traced 4 times")
def passes_numbers(update, w, gradients, rates):
    for gradient, rate in zip(gradients, rates, strict=True):
        update(w, gradient, rate)


@wrong("04.5", "It was never traced")
def gives_up_the_graph(update, w, gradients, rates):
    for gradient, rate in zip(gradients, rates, strict=True):
        update.python_function(w, gradient, rate)


@wrong("04.5", "it ran 0 times")
def does_it_alone(update, w, gradients, rates):
    for gradient, rate in zip(gradients, rates, strict=True):
        w.assign_sub(rate * gradient)


@wrong("04.5", "Does every step use its own rate?")
def keeps_the_first_rate(update, w, gradients, rates):
    for gradient in gradients:
        update(w, gradient, rates[0])


@wrong("04.5", "it ran 1 time.")
def steps_once(update, w, gradients, rates):
    total = tf.add_n([r * g for g, r in zip(gradients, rates, strict=True)])
    update(w, total, tf.constant(1.0))
