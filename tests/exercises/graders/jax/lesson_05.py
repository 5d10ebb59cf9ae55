import time
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


# ------------------------------------------------------------------ 05.1


def timed(program, clock, repeats, wait=jax.block_until_ready):
    """Seconds of each run, after a warm-up."""
    jax.block_until_ready(program())
    took = []
    for _ in range(repeats):
        start = clock()
        wait(program())
        took.append(clock() - start)
    return took


@right("05.1")
def leaf_by_leaf(program, clock, repeats):
    def wait(results):
        for leaf in jax.tree.leaves(results):
            leaf.block_until_ready()

    program()
    took = sorted(timed(program, clock, repeats, wait))
    return took[repeats // 2]


@wrong("05.1", "how long Python takes to queue")
def forgets_to_wait(program, clock, repeats):
    return median(timed(program, clock, repeats, lambda results: None))


@wrong("05.1", "the first of the results")
def waits_for_one(program, clock, repeats):
    def wait(results):
        jax.tree.leaves(results)[0].block_until_ready()

    return median(timed(program, clock, repeats, wait))


@wrong("05.1", "there was no call that you left out")
def counts_the_first_call(program, clock, repeats):
    took = []
    for _ in range(repeats):
        start = clock()
        jax.block_until_ready(program())
        took.append(clock() - start)
    return median(took)


@wrong("05.1", "That's the average of the runs")
def takes_the_average(program, clock, repeats):
    return sum(timed(program, clock, repeats)) / repeats


@wrong("05.1", "That's the fastest run")
def takes_the_fastest(program, clock, repeats):
    return min(timed(program, clock, repeats))


@wrong("05.1", "queued at once")
def waits_at_the_end(program, clock, repeats):
    jax.block_until_ready(program())
    start = clock()
    for _ in range(repeats):
        results = program()
    jax.block_until_ready(results)
    return (clock() - start) / repeats


@wrong("05.1", "all runs together")
def adds_them(program, clock, repeats):
    return sum(timed(program, clock, repeats))


@wrong("05.1", "Any other clock")
def takes_another_clock(program, clock, repeats):
    return median(timed(program, time.perf_counter, repeats))


@wrong("05.1", "You never call `program`")
def forgets_to_run(program, clock, repeats):
    start = clock()
    jax.block_until_ready(program)
    return clock() - start


@wrong("05.1", "The median run takes")
def halves_it(program, clock, repeats):
    return median(timed(program, clock, repeats)) / 2


# ------------------------------------------------------------------ 05.2


def power_of_two(n):
    return 1 << (n - 1).bit_length()


@right("05.2")
def with_zeros(model, X):
    padded = np.zeros((power_of_two(len(X)), X.shape[1]), X.dtype)
    padded[: len(X)] = X
    return np.asarray(model(padded))[: len(X)]


@wrong("05.2", "Which sizes could share a program")
def as_they_come(model, X):
    return np.asarray(model(X))


@wrong("05.2", "For 1 example you gave the model 256 rows")
def to_the_largest(model, X):
    return np.asarray(model(np.pad(X, ((0, 256 - len(X)), (0, 0)))))[: len(X)]


@wrong("05.2", "For 3 examples you return 4 rows")
def forgets_to_cut(model, X):
    return np.asarray(model(np.pad(X, ((0, power_of_two(len(X)) - len(X)), (0, 0)))))


@wrong("05.2", "Where in your padded batch")
def pads_in_front(model, X):
    padded = np.pad(X, ((power_of_two(len(X)) - len(X), 0), (0, 0)))
    return np.asarray(model(padded))[: len(X)]


@wrong("05.2", "An operation on a JAX array is a program, too")
def cuts_on_the_device(model, X):
    padded = np.pad(X, ((0, power_of_two(len(X)) - len(X)), (0, 0)))
    return np.asarray(model(padded)[: len(X)])


@wrong("05.2", "paid the dispatch overhead each time")
def one_by_one(model, X):
    return np.concatenate([np.asarray(model(X[i : i + 1])) for i in range(len(X))])


@wrong("05.2", "in_buckets returned an ArrayImpl")
def leaves_it_there(model, X):
    return model(X)


# ------------------------------------------------------------------ 05.3


def batched(loss, reduce=jnp.mean):
    """The loss of a whole batch, and its gradient."""

    def total(params, X, y):
        return reduce(jax.vmap(loss, (None, 0, 0))(params, X, y))

    return jax.value_and_grad(total)


def updated(params, gradient, rate):
    return jax.tree.map(lambda p, g: p - rate * g, params, gradient)


def trained(step, params, X, y, rates, note=lambda value: value):
    losses = []
    for rate in rates:
        value, params = step(params, X, y, rate)
        losses.append(note(value))
    return params, losses


def compiled(loss, reduce=jnp.mean):
    @jax.jit
    def step(params, X, y, rate):
        value, gradient = batched(loss, reduce)(params, X, y)
        return value, updated(params, gradient, rate)

    return step


def fetched(result):
    params, losses = result
    return params, jnp.stack(losses).tolist()


@right("05.3")
def with_scan(loss, params, X, y, rates):
    def step(params, rate):
        value, gradient = batched(loss)(params, X, y)
        return updated(params, gradient, rate), value

    params, losses = jax.jit(lambda *a: jax.lax.scan(step, *a))(
        params, jnp.asarray(list(rates))
    )
    return params, losses.tolist()


@right("05.3")
def fetched_by_device_get(loss, params, X, y, rates):
    params, losses = trained(compiled(loss), params, X, y, rates)
    return params, [float(value) for value in jax.device_get(losses)]


@wrong("05.3", "What's new in every step")
def with_a_static_rate(loss, params, X, y, rates):
    step = jax.jit(compiled(loss).__wrapped__, static_argnums=3)
    return fetched(trained(step, params, X, y, rates))


@wrong("05.3", "no step was compiled as a whole")
def compiles_nothing(loss, params, X, y, rates):
    return fetched(trained(compiled(loss).__wrapped__, params, X, y, rates))


@wrong("05.3", "which transformation makes a function for a batch")
def one_example_at_a_time(loss, params, X, y, rates):
    @jax.jit
    def step(params, X, y, rate):
        def total(params):
            return sum(map(lambda x, t: loss(params, x, t), X, y)) / len(X)

        value, gradient = jax.value_and_grad(total)(params)
        return value, updated(params, gradient, rate)

    return fetched(trained(step, params, X, y, rates))


@wrong("05.3", "A value was fetched between two steps")
def fetches_each_loss(loss, params, X, y, rates):
    return trained(compiled(loss), params, X, y, rates, float)


@wrong("05.3", "The type of the first one is ArrayImpl")
def leaves_the_losses_there(loss, params, X, y, rates):
    return trained(compiled(loss), params, X, y, rates)


@wrong("05.3", "They're sums over the batch")
def sums_the_losses(loss, params, X, y, rates):
    return fetched(trained(compiled(loss, jnp.sum), params, X, y, rates))


@wrong("05.3", "after each step, not before it")
def measures_after_the_step(loss, params, X, y, rates):
    step = compiled(loss)

    def late(params, X, y, rate):
        _, params = step(params, X, y, rate)
        return step(params, X, y, 0.0)[0], params

    return fetched(trained(late, params, X, y, rates))


@wrong("05.3", "the parameters don't change")
def forgets_to_update(loss, params, X, y, rates):
    step = compiled(loss)
    return params, [float(step(params, X, y, rate)[0]) for rate in rates]


@wrong("05.3", "the parameters aren't those after the last step")
def returns_the_first_parameters(loss, params, X, y, rates):
    return params, fetched(trained(compiled(loss), params, X, y, rates))[1]


@wrong("05.3", "For 11 steps you return 1")
def returns_the_last_loss(loss, params, X, y, rates):
    params, losses = fetched(trained(compiled(loss), params, X, y, rates))
    return params, losses[-1:]


@wrong("05.3", "That of step 2 should be")
def doubles_the_rates(loss, params, X, y, rates):
    rates = [2 * rate for rate in rates]
    return fetched(trained(compiled(loss), params, X, y, rates))


@wrong("05.3", "the dictionary of parameters, and a list")
def returns_an_array(loss, params, X, y, rates):
    params, losses = trained(compiled(loss), params, X, y, rates)
    return params, jnp.stack(losses)


# ------------------------------------------------------------------ 05.4


def two_times(program, shapes, model, kind="fp32", compiled=True):
    lowered = jax.jit(program).lower(*shapes)
    cost = (lowered.compile() if compiled else lowered).cost_analysis()
    peaks = model.rates if kind == "fp32" else {**model.rates, **model.tensor_rates}
    return {
        "arithmetic": cost["flops"] / peaks.get(kind, peaks["fp32"]),
        "memory": cost["bytes accessed"] / model.bandwidth,
    }


def longest(times):
    name = max(times, key=times.get)
    return times[name], name


@right("05.4")
def by_the_balance(program, shapes, model):
    """Compare the arithmetic intensity first."""
    cost = jax.jit(program).trace(*shapes).lower().compile().cost_analysis()
    intensity = cost["flops"] / cost["bytes accessed"]
    if intensity > model.rates["fp32"] / model.bandwidth:
        return cost["flops"] / model.rates["fp32"], "arithmetic"
    return cost["bytes accessed"] / model.bandwidth, "memory"


@wrong("05.4", "You add up what happens at the same time")
def adds_the_times(*program):
    times = two_times(*program)
    return sum(times.values()), longest(times)[1]


@wrong("05.4", "the shorter of the two times")
def takes_the_shorter(*program):
    times = two_times(*program)
    name = min(times, key=times.get)
    return times[name], name


@wrong("05.4", "before XLA has fused")
def without_compiling(*program):
    return longest(two_times(*program, compiled=False))


@wrong("05.4", "You use the peak of TF32")
def with_tensor_cores(*program):
    return longest(two_times(*program, kind="tf32"))


@wrong("05.4", "You leave out memory")
def forgets_memory(*program):
    return two_times(*program)["arithmetic"], "arithmetic"


@wrong("05.4", "You leave out arithmetic")
def forgets_arithmetic(*program):
    return two_times(*program)["memory"], "memory"


@wrong("05.4", "GELU of 10,000,000 numbers on a V100 takes at least 88.89 µs")
def in_milliseconds(*program):
    seconds, name = longest(two_times(*program))
    return seconds * 1e3, name


@wrong("05.4", "You return 'compute'")
def names_it_otherwise(*program):
    seconds, name = longest(two_times(*program))
    return seconds, name.replace("arithmetic", "compute")


@wrong("05.4", "is limited by memory")
def compares_operations_with_bytes(program, shapes, model):
    seconds, _ = longest(two_times(program, shapes, model))
    return seconds, "arithmetic"


@wrong("05.4", "Return a tuple of the seconds and the name")
def returns_both(*program):
    return (*two_times(*program).values(), "memory")


# ------------------------------------------------------------------ 05.5


@right("05.5")
def into_an_array(X, steps):
    def step(i, carry):
        Y, found = carry
        Y = Y @ X
        return Y, found.at[i].set(jnp.sqrt((Y * Y).sum()))

    return jax.lax.fori_loop(0, steps, step, (X, jnp.zeros(steps)))[1]


@wrong("05.5", "tracing follows loops in Python")
def in_python(X, steps):
    found, Y = [], X
    for _ in range(steps):
        Y = Y @ X
        found.append(jnp.linalg.norm(Y))
    return jnp.stack(found)


def scanned(step, X, steps):
    return jax.lax.scan(step, X, length=steps)[1]


@wrong("05.5", "What keeps all the products")
def keeps_the_products(X, steps):
    def step(Y, _):
        return Y @ X, Y @ X

    return jnp.linalg.norm(scanned(step, X, steps), axis=(1, 2))


@wrong("05.5", "is the norm of `X` itself")
def notes_before_the_product(X, steps):
    return scanned(lambda Y, _: (Y @ X, jnp.linalg.norm(Y)), X, steps)


@wrong("05.5", "the square root is missing")
def forgets_the_root(X, steps):
    def step(Y, _):
        Y = Y @ X
        return Y, (Y * Y).sum()

    return scanned(step, X, steps)


@wrong("05.5", "the result of the previous step")
def multiplies_the_same(X, steps):
    return scanned(lambda Y, _: (X, jnp.linalg.norm(X @ X)), X, steps)


@wrong("05.5", "you return an array of shape ()")
def returns_the_last(X, steps):
    return jnp.linalg.norm(jax.lax.fori_loop(0, steps, lambda i, Y: Y @ X, X))


@wrong("05.5", "The norm of step 1 should be")
def takes_another_norm(X, steps):
    def step(Y, _):
        Y = Y @ X
        return Y, abs(Y).max()

    return scanned(step, X, steps)


@wrong("05.5", "ConcretizationTypeError")
def fetches_each(X, steps):
    found, Y = [], X
    for _ in range(steps):
        Y = Y @ X
        found.append(float(jnp.linalg.norm(Y)))
    return jnp.array(found)
