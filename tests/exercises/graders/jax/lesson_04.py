import jax
import jax.numpy as jnp
import numpy as np

from tests.exercises.graders import memory
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

memory.answers(right, wrong)


@right("04.2")
def asks_all(model):
    places = [x.devices() for x in jax.tree.leaves(model)]
    devices = set().union(*places)
    if len(devices) != 1:
        raise ValueError(f"on {devices}")
    (device,) = devices
    return device


@wrong("04.2", "Which parameters did it look at?")
def asks_the_first(model):
    return next(iter(jax.tree.leaves(model)[-1].devices()))


@wrong("04.2", "It raised AssertionError")
def asserts(model):
    places = {d for x in jax.tree.leaves(model) for d in x.devices()}
    assert len(places) == 1, places
    return places.pop()


@wrong("04.2", "It returned NamedSharding")
def asks_for_device(model):
    places = {x.device for x in jax.tree.leaves(model)}
    if len(places) > 1:
        raise ValueError(f"on {places}")
    return places.pop()


@wrong("04.2", "It raised KeyError")
def goes_one_level_deep(model):
    (place,) = model["first"]["W"].devices()
    if len({x.device for x in model["first"].values()}) > 1:
        raise ValueError("cpu:1 cpu:2")
    return place


@wrong("04.2", "Your message is 'too many'")
def names_no_devices(model):
    places = {d for x in jax.tree.leaves(model) for d in x.devices()}
    if len(places) > 1:
        raise ValueError("too many")
    return places.pop()


@right("04.3")
def with_dynamic_slices(weight, i, j, value):
    old = jax.lax.dynamic_slice(weight, (i, j), (1, 1)).item()
    new = jnp.full((1, 1), value, weight.dtype, device=weight.device)
    return old, jax.lax.dynamic_update_slice(weight, new, (i, j))


@wrong("04.3", "select the number on the device of the parameters")
def fetches_all(weight, i, j, value):
    return float(np.asarray(weight)[i, j]), weight.at[i, j].set(value)


@wrong("04.3", "you wrote more than the one number")
def sends_a_mask(weight, i, j, value):
    mask = np.zeros(weight.shape, bool)
    mask[i, j] = True
    return float(weight[i, j]), jnp.where(mask, value, weight)


@wrong("04.3", "Fetch the old one before you write")
def writes_first(weight, i, j, value):
    weight = weight.at[i, j].set(value)
    return float(weight[i, j]), weight


@wrong("04.3", "not a Python number")
def returns_an_array(weight, i, j, value):
    return weight[i, j], weight.at[i, j].set(value)


@wrong("04.3", "Element (5, 7) is 167, not -1.5")
def forgets_what_set_returns(weight, i, j, value):
    old = float(weight[i, j])
    weight.at[i, j].set(value)
    return old, weight


@wrong("04.3", "numbers differ")
def writes_a_row(weight, i, j, value):
    return float(weight[i, j]), weight.at[i].set(value)


@wrong("04.3", "is not subscriptable")
def takes_the_wrong_thing(weight, i, j, value):
    return weight.devices[i, j], weight


@right("04.4")
def one_after_the_other(layers, devices, X):
    first, second = layers
    H = jax.jit(lambda layer, X: X @ layer["W"] + layer["b"])(first, X)
    return jax.device_put(H, devices[1]) @ second["W"] + second["b"]


def linear(layer, X):
    return X @ layer["W"] + layer["b"]


@wrong("04.4", "parameters of the last layer")
def computes_on_the_first(layers, devices, X):
    for layer in layers:
        X = linear(jax.device_put(layer, devices[0]), X)
    return jax.device_put(X, devices[1])


@wrong("04.4", "parameters of the first layer")
def computes_on_the_last(layers, devices, X):
    X = jax.device_put(X, devices[1])
    for layer in layers:
        X = linear(jax.device_put(layer, devices[1]), X)
    return X


@wrong("04.4", "The gradient doesn't reach the first layer")
def by_way_of_numpy(layers, devices, X):
    H = np.asarray(linear(layers[0], X))
    return linear(layers[1], jax.device_put(H, devices[1]))


@wrong("04.4", "but the last layer is on GPU 1")
def brings_it_back(layers, devices, X):
    return jax.device_put(one_after_the_other(layers, devices, X), devices[0])


@wrong("04.4", "incompatible devices")
def sends_nothing(layers, devices, X):
    return linear(layers[1], linear(layers[0], X))


@wrong("04.4", "Their shape is")
def forgets_the_last(layers, devices, X):
    return jax.device_put(linear(layers[0], X), devices[1])


@wrong("04.2", "Which parameters did it look at?")
def asks_the_ends(model):
    leaves = jax.tree.leaves(model)
    places = leaves[0].devices() | leaves[-1].devices()
    if len(places) > 1:
        raise ValueError(str(places))
    return places.pop()


@wrong("04.2", "on GPU 0 and on GPU 1, you return {")
def returns_a_set(model):
    return set().union(*(x.devices() for x in jax.tree.leaves(model)))


@wrong("04.3", "It's on the host, but `weight` is on")
def makes_it_on_the_cpu(weight, i, j, value):
    new = jnp.zeros(weight.shape).at[i, j].set(value - weight[i, j].item())
    old = weight[i, j].item()
    here = jax.device_put(weight, new.device)
    return old, here + new


@right("04.5")
def copies_when_better(step, score, state, batches):
    best, scores = jax.tree.map(lambda x: x.copy(), state), [score(state)]
    for batch in batches:
        state = step(state, batch)
        scores.append(score(state))
        if scores[-1] > max(scores[:-1]):
            best = jax.tree.map(lambda x: x.copy(), state)
    return best


@right("04.5")
def puts_without_an_alias(step, score, state, batches):
    def kept(state):
        device = jax.tree.leaves(state)[0].sharding
        return jax.device_put(state, device, may_alias=False)

    best, best_score = kept(state), score(state)
    for batch in batches:
        state = step(state, batch)
        if score(state) > best_score:
            best, best_score = kept(state), score(state)
    return best


def search(step, score, state, batches, kept):
    best, best_score = kept(state), score(state)
    for batch in batches:
        state = step(state, batch)
        if (new_score := score(state)) > best_score:
            best, best_score = kept(state), new_score
    return best


@wrong("04.5", "If the state after step 2 of 6 is the best, the arrays")
def keeps_a_second_name(step, score, state, batches):
    return search(step, score, state, batches, lambda state: state)


@wrong("04.5", "If the state before the first step is the best, the arrays")
def forgets_the_first(step, score, state, batches):
    best, best_score = state, score(state)
    for batch in batches:
        state = step(state, batch)
        if (new_score := score(state)) > best_score:
            best, best_score = jax.tree.map(jnp.copy, state), new_score
    return best


@wrong("04.5", "fetched the state to the host and sent it back")
def by_way_of_the_host(step, score, state, batches):
    home = state["W"].sharding
    best = search(step, score, state, batches, jax.device_get)
    return jax.device_put(best, home)


@wrong("04.5", "isn't made of JAX's arrays")
def leaves_it_on_the_host(step, score, state, batches):
    return search(step, score, state, batches, jax.device_get)


@wrong("04.5", "is the best, you return the one after step 6")
def returns_the_last(step, score, state, batches):
    for batch in batches:
        state = step(state, batch)
    return state


@wrong("04.5", "you return the one after step 1")
def keeps_the_one_before(step, score, state, batches):
    best, best_score = jax.tree.map(jnp.copy, state), score(state)
    for batch in batches:
        before = jax.tree.map(jnp.copy, state)
        state = step(state, batch)
        if (new_score := score(state)) > best_score:
            best, best_score = before, new_score
    return best
