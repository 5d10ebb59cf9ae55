import jax

from d2l_gpu import jax as d2l
from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_01_speed import add_answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

add_answers(ANSWERS)


@right("01.3")
def restores_by_hand(f, device):
    before = jax.config.jax_default_device
    jax.config.update("jax_default_device", device)
    try:
        return f()
    finally:
        jax.config.update("jax_default_device", before)


@wrong("01.3", "and you copied it afterwards")
def copies_the_result(f, device):
    return jax.device_put(f(), device)


@wrong("01.3", "but `f` created its array on the host")
def forgets_the_device(f, device):
    return f()


@wrong("01.3", "whichever `device` you're given")
def names_one_gpu(f, device):
    with jax.default_device(d2l.gpu(0)):
        return f()


@wrong("01.3", "`f` is only the name of the function")
def does_not_call(f, device):
    with jax.default_device(device):
        return f


@wrong("01.3", "and each call might take hours")
def calls_twice(f, device):
    with jax.default_device(device):
        f()
        return f()


@wrong("01.3", "even if it's only a copy")
def puts_once_more(f, device):
    with jax.default_device(device):
        return jax.device_put(f(), device)


@wrong("01.3", "a new array is created on GPU 1")
def leaves_it_set(f, device):
    jax.config.update("jax_default_device", device)
    return f()


@wrong("01.3", "new arrays were created on GPU 1")
def restores_only_without_an_error(f, device):
    before = jax.config.jax_default_device
    jax.config.update("jax_default_device", device)
    result = f()
    jax.config.update("jax_default_device", before)
    return result


@wrong("01.3", "You swallow the error, so the caller")
def swallows(f, device):
    with jax.default_device(device):
        try:
            return f()
        except Exception as error:
            print(error)


@right("01.4")
def with_a_recursion(platforms):
    if not platforms:
        raise RuntimeError("There's none of these: ")
    try:
        return jax.devices(platforms[0])
    except RuntimeError:
        try:
            return with_a_recursion(platforms[1:])
        except RuntimeError as error:
            raise RuntimeError(f"{error} {platforms[0]}") from None


@wrong("01.4", "You return one device")
def returns_one(platforms):
    for platform in platforms:
        try:
            return jax.devices(platform)[:1]
        except RuntimeError:
            pass
    raise RuntimeError(str(platforms))


@wrong("01.4", "doesn't get as far as")
def catches_nothing(platforms):
    for platform in platforms:
        if found := jax.devices(platform):
            return found
    raise RuntimeError(str(platforms))


@wrong("01.4", "falls back to the CPU")
def falls_back(platforms):
    for platform in platforms:
        try:
            return jax.devices(platform)
        except RuntimeError:
            pass
    return jax.devices("cpu")


@wrong("01.4", "it returns []")
def returns_an_empty_list(platforms):
    for platform in platforms:
        try:
            return jax.devices(platform)
        except RuntimeError:
            pass
    return []


@wrong("01.4", "It names only")
def names_the_last(platforms):
    for platform in platforms:
        try:
            return jax.devices(platform)
        except RuntimeError:
            last = platform
    raise RuntimeError(f"There is no {last}.")


@wrong("01.4", "It names none of them")
def names_none(platforms):
    for platform in platforms:
        try:
            return jax.devices(platform)
        except RuntimeError:
            pass
    raise RuntimeError("There's no such platform.")


@right("01.5")
def compiles_and_moves_both(f, W, batches):
    devices = d2l.try_all_gpus()
    return [
        jax.jit(f)(*jax.device_put((W, batch), devices[i % len(devices)]))
        for i, batch in enumerate(batches)
    ]


@wrong("01.5", "With a `W` that is committed to GPU 0, every result is on")
def leaves_committed_arrays(f, W, batches):
    devices = d2l.try_all_gpus()
    results = []
    for i, batch in enumerate(batches):
        with jax.default_device(devices[i % len(devices)]):
            results.append(f(W, batch))
    return results


@wrong("01.5", "With a `W` that is committed to GPU 0, JAX raises an error")
def moves_only_batches(f, W, batches):
    devices = d2l.try_all_gpus()
    return [
        f(W, jax.device_put(batch, devices[i % len(devices)]))
        for i, batch in enumerate(batches)
    ]


@wrong("01.5", "With batches that are committed to the host, JAX raises an error")
def moves_only_weights(f, W, batches):
    devices = d2l.try_all_gpus()
    return [
        f(jax.device_put(W, devices[i % len(devices)]), batch)
        for i, batch in enumerate(batches)
    ]


@wrong("01.5", "so no GPU took part")
def computes_on_the_host(f, W, batches):
    return [f(*jax.device_put((W, batch), d2l.cpu())) for batch in batches]


@wrong("01.5", "in this order")
def starts_with_the_second(f, W, batches):
    devices = d2l.try_all_gpus()
    return [
        f(*jax.device_put((W, batch), devices[(i + 1) % len(devices)]))
        for i, batch in enumerate(batches)
    ]


@wrong("01.5", "aren't in the order of the batches")
def goes_by_device(f, W, batches):
    devices = d2l.try_all_gpus()
    n = len(devices)
    return [
        f(*jax.device_put((W, batch), devices[i]))
        for i in range(n)
        for batch in batches[i::n]
    ]


@wrong("01.5", "you return 2 results")
def one_per_gpu(f, W, batches):
    return [
        f(*jax.device_put((W, batch), device))
        for batch, device in zip(batches, d2l.try_all_gpus(), strict=False)
    ]
