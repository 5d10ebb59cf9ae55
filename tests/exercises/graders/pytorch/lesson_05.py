import time

import torch
from torch.nn import functional as F

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


def update(net, shrink):
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * shrink(p.grad)


def shrunk(gradient):
    return gradient / gradient.norm().clamp(min=1)


def trained(net, X, y, steps, shrink=shrunk, total=F.cross_entropy, note=torch.clone):
    """Losses before each step, of the whole batch."""
    losses = []
    for _ in range(steps):
        net.zero_grad()
        loss = total(net(X), y)
        loss.backward()
        update(net, shrink)
        losses.append(note(loss.detach()))
    return losses


def fetched(losses):
    return torch.stack(losses).tolist()


@right("05.4")
def with_where(net, X, y, steps):
    def shrink(gradient):
        norm = (gradient * gradient).sum().sqrt()
        return torch.where(norm > 1, gradient / norm, gradient)

    return fetched(trained(net, X, y, steps, shrink))


@wrong("05.4", "What do you do 64 times")
def one_example_at_a_time(net, X, y, steps):
    losses = []
    for _ in range(steps):
        net.zero_grad()
        loss = 0
        for i in range(len(X)):
            loss = loss + F.cross_entropy(net(X[i : i + 1]), y[i : i + 1]) / len(X)
        loss.backward()
        update(net, shrunk)
        losses.append(loss.detach())
    return fetched(losses)


@wrong("05.4", "who needs it so soon")
def fetches_each_loss(net, X, y, steps):
    return trained(net, X, y, steps, note=float)


@wrong("05.4", "needn't be made in Python")
def decides_in_python(net, X, y, steps):
    def shrink(gradient):
        return gradient / max(gradient.norm().item(), 1)

    return fetched(trained(net, X, y, steps, shrink))


@wrong("05.4", "Fetch their values at the end")
def leaves_the_losses_there(net, X, y, steps):
    return trained(net, X, y, steps)


@wrong("05.4", "shrinks gradients whose norm is larger than 1")
def takes_the_full_gradient(net, X, y, steps):
    return fetched(trained(net, X, y, steps, shrink=lambda gradient: gradient))


@wrong("05.4", "They're sums over the batch")
def sums_the_losses(net, X, y, steps):
    def total(output, y):
        return F.cross_entropy(output, y, reduction="sum")

    return fetched(trained(net, X, y, steps, total=total))


@wrong("05.4", "after the first step, not before it")
def measures_after_the_step(net, X, y, steps):
    trained(net, X, y, 1)
    return fetched(trained(net, X, y, steps))


@wrong("05.4", "the parameters don't change")
def forgets_to_update(net, X, y, steps):
    return fetched(trained(net, X, y, steps, lambda gradient: 0 * gradient))


@wrong("05.4", "You return 1 for 8 steps")
def returns_the_last_loss(net, X, y, steps):
    return fetched(trained(net, X, y, steps))[-1:]


@wrong("05.4", "That of step 1 should be")
def averages_the_wrong_way(net, X, y, steps):
    def total(output, y):
        return F.cross_entropy(output, y) / 2

    return fetched(trained(net, X, y, steps, total=total))


@wrong("05.4", "the parameters aren't those after the last step")
def leaves_out_the_last_update(net, X, y, steps):
    losses = trained(net, X, y, steps - 1)
    return fetched([*losses, F.cross_entropy(net(X), y).detach()])


@wrong("05.4", "Which operations could be left out")
def goes_forward_too_often(net, X, y, steps):
    def total(output, y):
        for _ in range(4):
            net(X)
        return F.cross_entropy(output, y)

    return fetched(trained(net, X, y, steps, total=total))


# ------------------------------------------------------------------ 05.5


def three_times(operators, operations, nbytes, model):
    return {
        "Python": operators * 5.9e-6,
        "arithmetic": operations / model.rates["fp32"],
        "memory": nbytes / model.bandwidth,
    }


def longest(times):
    name = max(times, key=times.get)
    return times[name], name


@right("05.5")
def by_the_balance(operators, operations, nbytes, model):
    """Compare the arithmetic intensity first."""
    peak, bandwidth = model.rate("fp32"), model.bandwidth
    bound = "arithmetic" if operations / nbytes > peak / bandwidth else "memory"
    time = operations / peak if bound == "arithmetic" else nbytes / bandwidth
    queueing = 5.9 * operators / 10**6
    return (queueing, "Python") if queueing > time else (time, bound)


@wrong("05.5", "You add up what happens at the same time")
def adds_the_times(*program):
    times = three_times(*program)
    return sum(times.values()), longest(times)[1]


@wrong("05.5", "the smallest of the three times")
def takes_the_shortest(*program):
    times = three_times(*program)
    return min(times.values()), longest(times)[1]


@wrong("05.5", "You leave out Python")
def forgets_python(*program):
    times = three_times(*program)
    del times["Python"]
    return longest(times)


@wrong("05.5", "1,000 times too large")
def in_milliseconds(*program):
    seconds, name = longest(three_times(*program))
    return seconds * 1e3, name


@wrong("05.5", "the peak of the tensor cores")
def with_tensor_cores(operators, operations, nbytes, model):
    times = three_times(operators, operations, nbytes, model)
    return longest(times | {"arithmetic": operations / model.tensor_rates["fp16"]})


@wrong("05.5", "take a V100 at least 5.900 ms")
def with_another_overhead(operators, operations, nbytes, model):
    return longest(three_times(2 * operators, operations, nbytes, model))


@wrong("05.5", "Return a tuple of the seconds and the name")
def returns_all_three(*program):
    return tuple(three_times(*program).values())


@wrong("05.5", "You return 'compute'")
def names_it_otherwise(*program):
    seconds, name = longest(three_times(*program))
    return seconds, name.replace("arithmetic", "compute")


@wrong("05.5", "are limited by memory on a V100")
def compares_operations_with_bytes(operators, operations, nbytes, model):
    seconds, name = longest(three_times(operators, operations, nbytes, model))
    if name != "Python":
        name = "arithmetic" if operations > nbytes else "memory"
    return seconds, name
