import time

import torch

from d2l_gpu import torch as d2l
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


# ------------------------------------------------------------------ 05.1


def first_size(cpu, gpu, sizes, on_cpu, on_gpu):
    """The first size at which a program on the GPU is faster than one on the CPU."""
    for n in sizes:
        here = d2l.bench(lambda device, n=n: on_cpu(n, device), cpu)
        there = d2l.bench(lambda device, n=n: on_gpu(n, device), gpu)
        if there[0].seconds < here[0].seconds:
            return n


def multiply(X, products):
    for _ in range(products):
        Y = X @ X
    return Y


@right("05.1")
def with_a_timer(cpu, gpu, sizes, products):
    def took(n, device, host):
        timer = d2l.Timer(device, simulated=True)
        multiply(torch.empty(n, n, device=host).to(device), products).to(host)
        return timer.stop()

    faster = [n for n in sizes if took(n, gpu, "meta") < took(n, cpu, cpu)]
    return min(faster)


@wrong("05.1", "Here both have to be copied")
def forgets_the_copies(cpu, gpu, sizes, products):
    def program(n, device):
        multiply(torch.empty(n, n, device=device), products)

    return first_size(cpu, gpu, sizes, program, program)


@wrong("05.1", "These sizes leave out the copy back")
def leaves_the_result(cpu, gpu, sizes, products):
    return first_size(
        *(cpu, gpu, sizes),
        lambda n, device: multiply(torch.empty(n, n, device=device), products),
        lambda n, device: multiply(
            torch.empty(n, n, device="meta").to(device), products
        ),
    )


@wrong("05.1", "the matrix starts in the host's memory")
def makes_it_there(cpu, gpu, sizes, products):
    return first_size(
        *(cpu, gpu, sizes),
        lambda n, device: multiply(torch.empty(n, n, device=device), products),
        lambda n, device: multiply(torch.empty(n, n, device=device), products).to(
            "meta"
        ),
    )


@wrong("05.1", "The GPU did no more work for them")
def forgets_the_number(cpu, gpu, sizes, products):
    return with_a_timer(cpu, gpu, sizes, 1)


@wrong("05.1", "How often do you copy the matrix there")
def copies_inside_the_loop(cpu, gpu, sizes, products):
    def on_gpu(n, device):
        X = torch.empty(n, n, device="meta")
        for _ in range(products):
            Y = X.to(device)
            Y = (Y @ Y).to("meta")

    return first_size(
        *(cpu, gpu, sizes),
        lambda n, device: multiply(torch.empty(n, n, device=device), products),
        on_gpu,
    )


@wrong("05.1", "already faster at a smaller n")
def takes_the_last_slower_one(cpu, gpu, sizes, products):
    return sizes[sizes.index(with_a_timer(cpu, gpu, sizes, products)) + 1]


@wrong("05.1", "the GPU isn't faster yet")
def takes_the_smallest(cpu, gpu, sizes, products):
    return sizes[0] if products == 1 else with_a_timer(cpu, gpu, sizes, products)


@wrong("05.1", "You return 959, which isn't in the list")
def searches_between_the_sizes(cpu, gpu, sizes, products):
    return with_a_timer(cpu, gpu, sizes, products) - 1


# ------------------------------------------------------------------ 05.2


@right("05.2")
def in_one_tensor(X, steps, every):
    log, Y = [], X
    recent = torch.empty(every, device=X.device)
    for step in range(steps):
        Y = Y @ X
        recent[step % every] = (Y * Y).sum().sqrt()
        if step % every == every - 1:
            log += recent.tolist()
    left = steps % every
    return log + recent[:left].tolist() if left else log


@wrong("05.2", "you fetched each norm separately")
def fetches_each_norm(X, steps, every):
    log, Y = [], X
    for _ in range(steps):
        Y = Y @ X
        log.append(Y.norm().item())
    return log


@wrong("05.2", "you fetched nothing before the end")
def fetches_at_the_end(X, steps, every):
    log, Y = [], X
    for _ in range(steps):
        Y = Y @ X
        log.append(Y.norm())
    return torch.stack(log).tolist()


@wrong("05.2", "because 95 isn't a multiple of 10")
def forgets_the_rest(X, steps, every):
    log, recent, Y = [], [], X
    for _ in range(steps):
        Y = Y @ X
        recent.append(Y.norm())
        if len(recent) == every:
            log += torch.stack(recent).tolist()
            recent = []
    return log


@wrong("05.2", "one for each fetch")
def logs_every_tenth(X, steps, every):
    log, Y = [], X
    for step in range(steps):
        Y = Y @ X
        if step % every == 0:
            log.append(Y.norm().item())
    return log


@wrong("05.2", "you never fetched its value")
def returns_tensors(X, steps, every):
    log, Y = [], X
    for _ in range(steps):
        Y = Y @ X
        log.append(Y.norm())
    return log


def fetched_together(X, steps, every, note, take):
    """Norms by `take` of many of what `note` keeps of each product."""
    log, recent, Y = [], [], X
    for step in range(steps):
        Y = Y @ X
        recent.append(note(Y))
        if len(recent) == every or step == steps - 1:
            log += take(torch.stack(recent))
            recent = []
    return log


@wrong("05.2", "more than one number for each step")
def fetches_the_products(X, steps, every):
    return fetched_together(
        X,
        steps,
        every,
        lambda Y: Y,
        lambda many: many.cpu().norm(dim=(1, 2)).tolist(),
    )


@wrong("05.2", "What keeps the products until the end")
def keeps_the_products(X, steps, every):
    return fetched_together(
        X, steps, every, lambda Y: Y, lambda many: many.norm(dim=(1, 2)).tolist()
    )


@wrong("05.2", "the square root is missing")
def forgets_the_root(X, steps, every):
    return fetched_together(
        X, steps, every, lambda Y: (Y * Y).sum(), lambda many: many.tolist()
    )


@wrong("05.2", "not of the first product")
def logs_before_the_product(X, steps, every):
    log, recent, Y = [], [], X
    for step in range(steps):
        recent.append(Y.norm())
        Y = Y @ X
        if len(recent) == every or step == steps - 1:
            log += torch.stack(recent).tolist()
            recent = []
    return log


@wrong("05.2", "the result of the previous step")
def multiplies_the_same(X, steps, every):
    return fetched_together(
        X, steps, every, lambda Y: (X @ X).norm(), lambda many: many.tolist()
    )


@wrong("05.2", "waits without fetching a value")
def synchronizes_in_each_step(X, steps, every):
    def note(Y):
        torch.get_device_module(Y.device).synchronize(Y.device)
        return Y.norm()

    return fetched_together(X, steps, every, note, lambda many: many.tolist())


# ------------------------------------------------------------------ 05.3


def wait_for(*devices):
    for device in devices:
        torch.get_device_module(device).synchronize(device)


@right("05.3")
def with_the_mean_of_several(program, devices, clock):
    program()
    wait_for(*devices)
    start = clock()
    for _ in range(5):
        program()
        wait_for(*devices)
    return (clock() - start) / 5


@wrong("05.3", "how long Python takes to")
def forgets_to_wait(program, devices, clock):
    program()
    wait_for(*devices)
    start = clock()
    program()
    return clock() - start


@wrong("05.3", "only one of the devices has finished")
def waits_for_the_first(program, devices, clock):
    program()
    wait_for(*devices)
    start = clock()
    program()
    wait_for(devices[0])
    return clock() - start


@wrong("05.3", "it includes the overhead of the first call")
def counts_the_first_call(program, devices, clock):
    wait_for(*devices)
    start = clock()
    program()
    wait_for(*devices)
    return clock() - start


@wrong("05.3", "The queues weren't empty when")
def starts_too_early(program, devices, clock):
    program()
    start = clock()
    program()
    wait_for(*devices)
    return clock() - start


@wrong("05.3", "the time of 5 runs, not one")
def forgets_to_divide(program, devices, clock):
    program()
    wait_for(*devices)
    start = clock()
    for _ in range(5):
        program()
    wait_for(*devices)
    return clock() - start


@wrong("05.3", "Any other clock")
def takes_another_clock(program, devices, clock):
    program()
    wait_for(*devices)
    start = time.perf_counter()
    program()
    wait_for(*devices)
    return time.perf_counter() - start


@wrong("05.3", "You never call it")
def forgets_to_run(program, devices, clock):
    start = clock()
    wait_for(*devices)
    return clock() - start


@wrong("05.3", "Did you measure exactly one run")
def divides_too_much(program, devices, clock):
    return with_the_mean_of_several(program, devices, clock) / 1.4


# ------------------------------------------------------------------ 05.4


def power_norm(X, products):
    Y = X
    for _ in range(products):
        Y = Y @ X
    return Y.norm()


@right("05.4")
def in_one_loop(Xs, products):
    Ys = list(Xs)
    for _ in range(products):
        Ys = [Y @ X for X, Y in zip(Xs, Ys, strict=True)]
    norms = [Y.norm() for Y in Ys]
    return [float(norm) for norm in norms]


@wrong("05.4", "idle until the first had finished")
def fetches_one_after_the_other(Xs, products):
    return [power_norm(X, products).item() for X in Xs]


@wrong("05.4", "and Python waits for each copy")
def looks_in_each_step(Xs, products):
    Ys = list(Xs)
    for _ in range(products):
        Ys = [Y @ X for X, Y in zip(Xs, Ys, strict=True)]
        norms = [Y.norm().item() for Y in Ys]
    return norms


@wrong("05.4", "Only the norm has to leave each device")
def brings_them_together(Xs, products):
    norms = [power_norm(X.to(Xs[0].device), products) for X in Xs]
    return torch.stack(norms).tolist()


@wrong("05.4", "['Tensor', 'Tensor']")
def leaves_them_there(Xs, products):
    return [power_norm(X, products) for X in Xs]


@wrong("05.4", "one product too few")
def multiplies_too_seldom(Xs, products):
    norms = [power_norm(X, products - 1) for X in Xs]
    return [norm.item() for norm in norms]


@wrong("05.4", "They're in reverse order")
def turns_them_round(Xs, products):
    norms = [power_norm(X, products) for X in Xs[::-1]]
    return [norm.item() for norm in norms]


# ------------------------------------------------------------------ 05.5


def record(device):
    backend = torch.get_device_module(device)
    event = backend.Event()
    event.record(backend.current_stream(device))
    return event


@right("05.5")
def with_a_list(step, batches, device):
    events = []
    for k, batch in enumerate(batches):
        if k >= 2:
            events[k - 2].synchronize()
        step(batch)
        events.append(record(device))


@wrong("05.5", "nothing made Python wait")
def never_waits(step, batches, device):
    for batch in batches:
        step(batch)


@wrong("05.5", "That happened at every step")
def waits_for_each(step, batches, device):
    for batch in batches:
        step(batch)
        wait_for(device)


@wrong("05.5", "Which step must have finished")
def counts_wrong(step, batches, device):
    events = []
    for k, batch in enumerate(batches):
        if k >= 3:
            events[k - 3].synchronize()
        step(batch)
        events.append(record(device))


@wrong("05.5", "it waited for too much")
def waits_for_all_in_each_second_step(step, batches, device):
    for k, batch in enumerate(batches):
        step(batch)
        if k % 2:
            wait_for(device)


@wrong("05.5", "ran ahead in between")
def waits_seldom(step, batches, device):
    for k, batch in enumerate(batches):
        step(batch)
        if k % 4 == 3:
            wait_for(device)


@wrong("05.5", "but you called it 6 times")
def leaves_steps_out(step, batches, device):
    for batch in batches[::2]:
        step(batch)


@wrong("05.5", "You called it in a different order")
def in_another_order(step, batches, device):
    for batch in batches[::2] + batches[1::2]:
        step(batch)


# ------------------------------------------------------------------ 05.6


@right("05.6")
def by_diagonals(batches, Ws):
    """In each round every device takes what the one before it had in the last."""
    b, n = len(batches), len(Ws)
    Xs = list(batches)
    for round in range(b + n - 1):
        for i in reversed(range(n)):
            if 0 <= round - i < b:
                X = Xs[round - i]
                Xs[round - i] = X.to(Ws[i].device) @ Ws[i]
    return Xs


@wrong("05.6", "Python spent most of that time waiting")
def with_a_barrier(batches, Ws):
    results = []
    for X in batches:
        for W in Ws:
            X = X.to(W.device) @ W
        wait_for(*[W.device for W in Ws])
        results.append(X)
    return results


@wrong("05.6", "all the work of one device")
def device_by_device(batches, Ws):
    Xs = batches
    for W in Ws:
        Xs = [X.to(W.device) for X in Xs]
        Xs = [X @ W for X in Xs]
    return Xs


@wrong("05.6", "You made 20 copies to the host")
def by_way_of_the_host(batches, Ws):
    results = []
    for X in batches:
        for W in Ws:
            X = X.cpu().to(W.device) @ W
        results.append(X)
    return results


@wrong("05.6", "you moved matrices instead of batches")
def moves_the_matrices(batches, Ws):
    here, last = Ws[0].device, Ws[-1].device
    results = []
    for X in batches:
        for W in Ws:
            X = X @ W.to(here)
        results.append(X.to(last))
    return results


@wrong("05.6", "One of them is on the device of `Ws[0]`")
def brings_them_back(batches, Ws):
    return [X.to(Ws[0].device) for X in by_diagonals(batches, Ws)]


@wrong("05.6", "There are 5 batches, but you return 1 result.")
def returns_the_last(batches, Ws):
    return by_diagonals(batches, Ws)[-1:]


@wrong("05.6", "The results are in the wrong order")
def in_the_opposite_order(batches, Ws):
    return by_diagonals(batches[::-1], Ws)


@wrong("05.6", "The values aren't those of")
def skips_a_device(batches, Ws):
    return [X.to(Ws[-1].device) for X in by_diagonals(batches, Ws[:2])]


@wrong("05.6", "each batch once from each device to the next")
def sends_in_a_star(batches, Ws):
    results = []
    for X in batches:
        for W in Ws:
            X = (X.to(W.device) @ W).to(Ws[0].device)
        results.append(X.to(Ws[-1].device))
    return results
