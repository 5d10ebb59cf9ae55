import collections

import torch

from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


def wait_for(*devices):
    for device in devices:
        torch.get_device_module(device).synchronize(device)


# ------------------------------------------------------------------ 06.1


def power_norm(X, products):
    Y = X
    for _ in range(products):
        Y = Y @ X
    return Y.norm()


@right("06.1")
def in_one_loop(Xs, products):
    Ys = list(Xs)
    for _ in range(products):
        Ys = [Y @ X for X, Y in zip(Xs, Ys, strict=True)]
    norms = [Y.norm() for Y in Ys]
    return [float(norm) for norm in norms]


@wrong("06.1", "idle until the first had finished")
def fetches_one_after_the_other(Xs, products):
    return [power_norm(X, products).item() for X in Xs]


@wrong("06.1", "and Python waits for each copy")
def looks_in_each_step(Xs, products):
    Ys = list(Xs)
    for _ in range(products):
        Ys = [Y @ X for X, Y in zip(Xs, Ys, strict=True)]
        norms = [Y.norm().item() for Y in Ys]
    return norms


@wrong("06.1", "Only the norm has to leave each device")
def brings_them_together(Xs, products):
    norms = [power_norm(X.to(Xs[0].device), products) for X in Xs]
    return torch.stack(norms).tolist()


@wrong("06.1", "['Tensor', 'Tensor']")
def leaves_them_there(Xs, products):
    return [power_norm(X, products) for X in Xs]


@wrong("06.1", "one product too few")
def multiplies_too_seldom(Xs, products):
    norms = [power_norm(X, products - 1) for X in Xs]
    return [norm.item() for norm in norms]


@wrong("06.1", "They're in reverse order")
def turns_them_round(Xs, products):
    norms = [power_norm(X, products) for X in Xs[::-1]]
    return [norm.item() for norm in norms]


# ------------------------------------------------------------------ 06.2


def record(device):
    backend = torch.get_device_module(device)
    event = backend.Event()
    event.record(backend.current_stream(device))
    return event


@right("06.2")
def with_a_list(step, batches, device):
    events = []
    for k, batch in enumerate(batches):
        if k >= 2:
            events[k - 2].synchronize()
        step(batch)
        events.append(record(device))


@wrong("06.2", "nothing made Python wait")
def never_waits(step, batches, device):
    for batch in batches:
        step(batch)


@wrong("06.2", "That happened at every step")
def waits_for_each(step, batches, device):
    for batch in batches:
        step(batch)
        wait_for(device)


@wrong("06.2", "Which step must have finished")
def counts_wrong(step, batches, device):
    events = []
    for k, batch in enumerate(batches):
        if k >= 3:
            events[k - 3].synchronize()
        step(batch)
        events.append(record(device))


@wrong("06.2", "it waited for too much")
def waits_for_all_in_each_second_step(step, batches, device):
    for k, batch in enumerate(batches):
        step(batch)
        if k % 2:
            wait_for(device)


@wrong("06.2", "ran ahead in between")
def waits_seldom(step, batches, device):
    for k, batch in enumerate(batches):
        step(batch)
        if k % 4 == 3:
            wait_for(device)


@wrong("06.2", "but you called it 6 times")
def leaves_steps_out(step, batches, device):
    for batch in batches[::2]:
        step(batch)


@wrong("06.2", "You called it in a different order")
def in_another_order(step, batches, device):
    for batch in batches[::2] + batches[1::2]:
        step(batch)


# ------------------------------------------------------------------ 06.3


@right("06.3")
def with_events(tensors):
    copies, last = [], {}
    for x in tensors:
        copies.append(torch.empty(x.shape, pin_memory=True))
        copies[-1].copy_(x, non_blocking=True)
        last[x.device] = record(x.device)
    for event in last.values():
        event.synchronize()
    return copies


@wrong("06.3", "Python didn't wait for anything")
def does_not_wait(tensors):
    return [x.to("cpu", non_blocking=True) for x in tensors]


@wrong("06.3", "2 of the copies were still on their way, from the second GPU")
def waits_for_one_device(tensors):
    copies = [x.to("cpu", non_blocking=True) for x in tensors]
    wait_for(tensors[0].device)
    return copies


@wrong("06.3", "5 of the copies were still on their way, from the first GPU and")
def waits_too_early(tensors):
    wait_for(*{x.device for x in tensors})
    return [x.to("cpu", non_blocking=True) for x in tensors]


@wrong("06.3", "You wait for each copy before the next one is queued")
def blocks(tensors):
    return [x.cpu() for x in tensors]


@wrong("06.3", "something remained to be queued")
def device_by_device(tensors):
    copies = {}
    for device in dict.fromkeys(x.device for x in tensors):
        for k, x in enumerate(tensors):
            if x.device == device:
                copies[k] = x.to("cpu", non_blocking=True)
        wait_for(device)
    return [copies[k] for k in range(len(tensors))]


@wrong("06.3", "have other values")
def sorts_by_device(tensors):
    return with_events(sorted(tensors, key=lambda x: x.device.index))


@wrong("06.3", "are still on a GPU")
def returns_the_tensors(tensors):
    wait_for(*{x.device for x in tensors})
    return list(tensors)


# ------------------------------------------------------------------ 06.4


def streams(device):
    backend = torch.get_device_module(device)
    computing = backend.current_stream(device)
    return backend, computing, backend.Stream(device), backend.Stream(device)


@right("06.4")
def with_events_in_a_ring(batches, W):
    backend, computing, sending, fetching = streams(W.device)
    results, fetched, kept = [], [], collections.deque()
    for k, batch in enumerate(batches):
        if k >= 3:  # the memory of that batch and its product may be used again
            sending.wait_event(fetched[k - 3])
            kept.popleft()
        with backend.stream(sending):
            X = batch.to(W.device, non_blocking=True)
        computing.wait_event(sending.record_event())
        Y = X @ W
        kept.append((X, Y))
        fetching.wait_event(computing.record_event())
        with backend.stream(fetching):
            results.append(torch.empty(Y.shape, pin_memory=True))
            results[-1].copy_(Y, non_blocking=True)
        fetched.append(fetching.record_event())
    fetching.synchronize()
    return results


@wrong("06.4", "Nothing overlaps.")
def leaves_it_as_it_is(batches, W):
    backend, computing, sending, fetching = streams(W.device)
    results = []
    for batch in batches:
        with backend.stream(sending):
            X = batch.to(W.device, non_blocking=True)
        computing.wait_stream(sending)
        Y = X @ W
        fetching.wait_stream(computing)
        results.append(Y.to("cpu", non_blocking=True))
        sending.wait_stream(computing)
    backend.synchronize(W.device)
    return results


@wrong("06.4", "The GPU never computes while it fetches.")
def removes_the_last_line_only(batches, W):
    backend, computing, sending, fetching = streams(W.device)
    results = []
    for batch in batches:
        with backend.stream(sending):
            X = batch.to(W.device, non_blocking=True)
        computing.wait_stream(sending)
        Y = X @ W
        fetching.wait_stream(computing)
        results.append(Y.to("cpu", non_blocking=True))
    backend.synchronize(W.device)
    return results


@wrong("06.4", "Nothing overlaps. Python waited 8 times.")
def waits_in_every_step(batches, W):
    backend, computing, sending, fetching = streams(W.device)
    results = []
    for batch in batches:
        with backend.stream(sending):
            X = batch.to(W.device, non_blocking=True)
        computing.wait_stream(sending)
        Y = X @ W
        fetching.wait_stream(computing)
        with backend.stream(fetching):
            results.append(Y.to("cpu", non_blocking=True))
        backend.synchronize(W.device)
    return results


def pipelined(batches, W, waits=True, fetches_late=True, keeps=()):
    """Use three streams, which wait for each other as far as they're told to.

    Args:
        keeps: which of X and Y are kept until another stream has used them.
    """
    backend, computing, sending, fetching = streams(W.device)
    results = []
    for batch in batches:
        with backend.stream(sending):
            X = batch.to(W.device, non_blocking=True)
        if "X" in keeps:
            X.record_stream(computing)
        if waits:
            computing.wait_stream(sending)
        Y = X @ W
        if "Y" in keeps:
            Y.record_stream(fetching)
        if fetches_late:
            fetching.wait_stream(computing)
        with backend.stream(fetching):
            results.append(Y.to("cpu", non_blocking=True))
    return results


@wrong("06.4", "products began before their batch had arrived")
def computes_too_early(batches, W):
    results = pipelined(batches, W, waits=False)
    wait_for(W.device)
    return results


@wrong("06.4", "were fetched before they had been computed")
def fetches_too_early(batches, W):
    results = pipelined(batches, W, fetches_late=False)
    wait_for(W.device)
    return results


@wrong("06.4", "were still on their way")
def returns_too_early(batches, W):
    return pipelined(batches, W)


@right("06.4")
def keeps_everything_until_the_end(batches, W):
    backend, computing, sending, fetching = streams(W.device)
    Xs, Ys, results = [], [], []
    for batch in batches:
        with backend.stream(sending):
            Xs.append(batch.to(W.device, non_blocking=True))
        computing.wait_stream(sending)
        Ys.append(Xs[-1] @ W)
        fetching.wait_stream(computing)
        with backend.stream(fetching):
            results.append(Ys[-1].to("cpu", non_blocking=True))
    wait_for(W.device)
    return results


@wrong("06.4", "batches were sent to memory from which a product was still reading")
def lets_batches_be_overwritten(batches, W):
    results = pipelined(batches, W, keeps="Y")
    wait_for(W.device)
    return results


@wrong("06.4", "products were written to memory from which an earlier result was")
def lets_results_be_overwritten(batches, W):
    results = pipelined(batches, W, keeps="X")
    wait_for(W.device)
    return results


@wrong("06.4", "1 copies to the GPU, 1 operators on it and 1 copies back")
def sends_everything_in_one_piece(batches, W):
    Y = torch.cat(batches).pin_memory().to(W.device, non_blocking=True) @ W
    return list(Y.cpu().split(batches[0].shape[0]))


@wrong("06.4", "are still on the GPU")
def leaves_the_results(batches, W):
    return [batch.to(W.device, non_blocking=True) @ W for batch in batches]
