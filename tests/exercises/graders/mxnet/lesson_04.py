from mxnet import np

from d2l_gpu import mxnet as d2l
from tests.exercises.graders import memory
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

memory.answers(right, wrong)


def places_of(model):
    return {d for x in model.collect_params().values() for d in x.list_ctx()}


@right("04.2")
def asks_all(model):
    device, *others = sorted(places_of(model), key=str)
    if others:
        raise ValueError(f"{device}, but also {others[0]}")
    return device


@wrong("04.2", "Which parameters did it look at?")
def asks_the_first(model):
    return next(iter(model.collect_params().values())).list_ctx()[0]


@wrong("04.2", "It raised AssertionError")
def asserts(model):
    places = places_of(model)
    assert len(places) == 1, places
    return places.pop()


@wrong("04.2", "was not initialized on context")
def asks_for_data(model):
    places = {x.data(d2l.gpu(0)).ctx for x in model.collect_params().values()}
    return places.pop()


@wrong("04.2", "It returned [")
def returns_what_there_is(model):
    places = sorted(places_of(model), key=str)
    return places if len(places) > 1 else places[0]


@wrong("04.2", "Your message is 'too many'")
def names_no_devices(model):
    places = places_of(model)
    if len(places) > 1:
        raise ValueError("too many")
    return places.pop()


@right("04.3")
def with_a_slice(weight, i, j, value):
    old = float(weight[i : i + 1, j])
    weight[i : i + 1, j : j + 1] = value
    return old


@wrong("04.3", "select the number on the device of the parameters")
def fetches_all(weight, i, j, value):
    old = weight.asnumpy()[i, j].item()
    weight[i, j] = value
    return old


@wrong("04.3", "you wrote more than the one number")
def sends_all(weight, i, j, value):
    old = weight[i, j].item()
    changed = weight.as_in_ctx(d2l.gpu(1))
    changed[i, j] = value
    weight[:] = changed.as_in_ctx(weight.ctx)
    return old


@wrong("04.3", "Fetch the old one before you write")
def writes_first(weight, i, j, value):
    weight[i, j] = value
    return weight[i, j].item()


@wrong("04.3", "not a Python number")
def returns_an_array(weight, i, j, value):
    old = weight[i, j].copy()
    weight[i, j] = value
    return old


@wrong("04.3", "Element (5, 7) is 167, not -1.5")
def writes_into_a_copy(weight, i, j, value):
    old = weight[i, j].item()
    weight = weight.copy()
    weight[i, j] = value
    return old


@wrong("04.3", "numbers differ")
def writes_a_row(weight, i, j, value):
    old = weight[i, j].item()
    weight[i] = value
    return old


@right("04.4")
def one_after_the_other(layers, devices, X):
    first, second = layers
    H = first(X)
    return second(H.copyto(devices[1]))


@wrong("04.4", "by way of the host")
def by_way_of_the_cpu(layers, devices, X):
    H = layers[0](X).as_in_ctx(d2l.cpu())
    return layers[1](H.as_in_ctx(devices[1]))


@wrong("04.4", "parameters of the last layer")
def computes_on_the_first(layers, devices, X):
    H = layers[0](X)
    W = layers[1].weight.data().as_in_ctx(devices[0])
    b = layers[1].bias.data().as_in_ctx(devices[0])
    return (np.dot(H, W.T) + b).as_in_ctx(devices[1])


@wrong("04.4", "crossed 2 times")
def sends_twice(layers, devices, X):
    H = layers[0](X)
    return layers[1]((H.copyto(devices[1]) + H.copyto(devices[1])) / 2)


@wrong("04.4", "but the last layer is on GPU 1")
def brings_it_back(layers, devices, X):
    return one_after_the_other(layers, devices, X).as_in_ctx(devices[0])


@wrong("04.4", "was not initialized on context")
def sends_nothing(layers, devices, X):
    return layers[1](layers[0](X))


@wrong("04.4", "The gradient doesn't reach the first layer")
def detaches(layers, devices, X):
    return layers[1](layers[0](X).detach().as_in_ctx(devices[1]))


@wrong("04.2", "a layer inside a layer is on another device. Which")
def asks_the_ends(model):
    parameters = list(model.collect_params().values())
    places = {*parameters[0].list_ctx(), *parameters[-1].list_ctx()}
    if len(places) > 1:
        raise ValueError(str(places))
    return places.pop()


@wrong("04.2", "it was initialized on both. Which")
def asks_for_one_device_each(model):
    places = {x.list_ctx()[0] for x in model.collect_params().values()}
    if len(places) > 1:
        raise ValueError(str(places))
    return places.pop()


@wrong("04.4", "the values aren't those of both layers")
def adds_them_up(layers, devices, X):
    H = layers[0](X)
    return layers[1](np.zeros(H.shape, ctx=devices[1]) + H.as_in_ctx(devices[1]) * 2)


@wrong("04.4", "`layers[0].weight on cpu(1)`")
def moves_the_first_layer(layers, devices, X):
    layers[0].collect_params().reset_ctx(devices[1])
    return layers[1](layers[0](X.as_in_ctx(devices[1])))
