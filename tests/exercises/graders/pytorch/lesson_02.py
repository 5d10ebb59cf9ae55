import math

import numpy as np
import torch

from d2l_gpu import torch as d2l
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


MIB = 2**20


def in_blocks(nbytes):
    return math.ceil(nbytes / 512) * 512


def of_a_segment(block):
    segment = math.ceil(block / (2 * MIB)) * 2 * MIB
    if block < 10 * MIB or segment - block > MIB:
        return block
    return segment


@right("02.1")
def on_no_device(shape, dtype):
    return of_a_segment(
        in_blocks(torch.empty(shape, dtype=dtype, device="meta").nbytes)
    )


@right("02.1")
def with_numpy(shape, dtype):
    nbytes = np.prod(shape, dtype=int) * dtype.itemsize
    blocks = np.ceil(nbytes / 512).astype(int)
    if blocks >= 20480:
        rest = -blocks % 4096
        blocks += rest if rest <= 2048 else 0
    return blocks * 512


@right("02.1")
def on_a_simulator(shape, dtype):
    sim = d2l.simulator(1, backing="meta", allocator="caching")
    kept = torch.empty(shape, dtype=dtype, device=sim.gpu())
    return torch.vgpu.memory_allocated(kept.device)


@wrong("02.1", "it takes 8,192 bytes. How large is one element")
def takes_four_bytes(shape, dtype):
    return of_a_segment(in_blocks(math.prod(shape) * 4))


@wrong("02.1", "For (64, 64) and bool you return 512")
def counts_bits(shape, dtype):
    bits = 1 if dtype == torch.bool else dtype.itemsize * 8
    return of_a_segment(in_blocks(math.prod(shape) * bits / 8))


@wrong("02.1", "it takes 40,448 bytes. What's the smallest amount")
def forgets_blocks(shape, dtype):
    return of_a_segment(math.prod(shape) * dtype.itemsize)


@wrong("02.1", "it takes 1,048,576 bytes. That's one block")
def always_one_more(shape, dtype):
    return (math.prod(shape) * dtype.itemsize // 512 + 1) * 512


@wrong("02.1", "it takes 512 bytes. That's one block too many")
def one_more_if_small(shape, dtype):
    nbytes = math.prod(shape) * dtype.itemsize
    return nbytes if nbytes % 4096 == 0 else (nbytes // 512 + 1) * 512


@wrong("02.1", "That's the number of elements")
def counts_elements(shape, dtype):
    return math.prod(shape)


@wrong("02.1", "bytes_on_gpu returned a float; it must be an int")
def divides(shape, dtype):
    return math.prod(shape) * dtype.itemsize / 512 * 512


@wrong("02.1", "There's nothing to store")
def at_least_one_block(shape, dtype):
    return max(on_no_device(shape, dtype), 512)


@wrong("02.1", "you return 4,400,000, but it takes 4,400,128 bytes")
def no_blocks_above_a_mebibyte(shape, dtype):
    nbytes = math.prod(shape) * dtype.itemsize
    return nbytes if nbytes > MIB else in_blocks(nbytes)


@wrong("02.1", "It shares a segment of 20 MiB")
def whole_segments_above_a_mebibyte(shape, dtype):
    block = in_blocks(math.prod(shape) * dtype.itemsize)
    return block if block <= MIB else math.ceil(block / (2 * MIB)) * 2 * MIB


@wrong("02.1", "Its segment has 12,582,912 bytes. How much of that is left")
def only_blocks(shape, dtype):
    return in_blocks(math.prod(shape) * dtype.itemsize)


@wrong("02.1", "of which 2,096,640 can be cut off")
def never_cuts_off(shape, dtype):
    block = in_blocks(math.prod(shape) * dtype.itemsize)
    return block if block < 10 * MIB else math.ceil(block / (2 * MIB)) * 2 * MIB


@wrong("02.1", "of which 1,049,088 can be cut off")
def cuts_off_from_more(shape, dtype):
    block = in_blocks(math.prod(shape) * dtype.itemsize)
    segment = math.ceil(block / (2 * MIB)) * 2 * MIB
    return block if block < 10 * MIB or segment - block > 1_050_000 else segment


@wrong("02.1", "For (11534336,) and uint8 you return 11,534,336")
def cuts_off_a_mebibyte(shape, dtype):
    block = in_blocks(math.prod(shape) * dtype.itemsize)
    segment = math.ceil(block / (2 * MIB)) * 2 * MIB
    return block if block < 10 * MIB or segment - block >= MIB else segment


@wrong("02.1", "it measures instead of predicting")
def measures_on_the_last_gpu(shape, dtype):
    device = d2l.try_all_gpus()[-1]
    kept = torch.empty(shape, dtype=dtype, device=device)
    return on_no_device(kept.shape, dtype)


@right("02.2")
def with_a_flag(step, batch):
    too_large = False
    try:
        result = step(batch)
    except torch.OutOfMemoryError:
        too_large = True
    if not too_large:
        return result
    if len(batch) < 2:
        raise torch.OutOfMemoryError("Not even one example fits.")
    middle = len(batch) // 2
    return torch.cat([with_a_flag(step, x) for x in (batch[:middle], batch[middle:])])


@right("02.2")
def with_a_stack(step, batch):
    done, to_do = [], [batch]
    while to_do:
        part = to_do.pop()
        try:
            done.append(step(part))
            continue
        except torch.OutOfMemoryError:
            if len(part) == 1:
                raise
        to_do += reversed(part.chunk(2))
    return torch.cat(done)


@wrong("02.2", "Who refers to the variables of a function that has failed")
def retries_inside(step, batch):
    try:
        return step(batch)
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            raise
        first, second = batch.chunk(2)
        return torch.cat([retries_inside(step, first), retries_inside(step, second)])


@wrong("02.2", "MiB of failed ones were still in use")
def keeps_the_error(step, batch):
    try:
        return step(batch)
    except torch.OutOfMemoryError as error:
        if len(batch) == 1:
            raise
        kept = error
    parts = batch.chunk(2)
    results = [keeps_the_error(step, part) for part in parts]
    return torch.cat(results) if kept else kept


@wrong("02.2", "The error reached the caller: Tried a batch of 48")
def does_not_retry(step, batch):
    return step(batch)


@wrong("02.2", "The error reached the caller: Tried a batch of 24")
def retries_once(step, batch):
    try:
        return step(batch)
    except torch.OutOfMemoryError:
        pass
    return torch.cat([step(part) for part in batch.chunk(2)])


@wrong("02.2", "The result has the shape")
def forgets_the_second_half(step, batch):
    try:
        return step(batch)
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            raise
    return forgets_the_second_half(step, batch[: len(batch) // 2])


@wrong("02.2", "The result isn't what one large step")
def in_another_order(step, batch):
    try:
        return step(batch)
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            raise
    parts = reversed(batch.chunk(2))
    return torch.cat([in_another_order(step, part) for part in parts])


@wrong("02.2", "A batch of 48 fits, but you tried 1, 1, 1, 1 …")
def one_by_one_at_once(step, batch):
    return torch.cat([step(example) for example in batch.split(1)])


@wrong("02.2", "Batches of 24 fit, but you tried 48, 1, 1, 1 …")
def one_by_one_after_an_error(step, batch):
    try:
        return step(batch)
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            raise
    return torch.cat([step(example) for example in batch.split(1)])


@wrong("02.2", "no `OutOfMemoryError` comes out")
def gives_up_silently(step, batch):
    try:
        return step(batch)
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            return batch
    return torch.cat([gives_up_silently(step, part) for part in batch.chunk(2)])


@wrong("02.2", "A step failed with a `ValueError`")
def catches_everything(step, batch):
    try:
        return step(batch)
    except Exception as error:
        if len(batch) == 1:
            raise torch.OutOfMemoryError(str(error)) from None
    return torch.cat([catches_everything(step, part) for part in batch.chunk(2)])


@right("02.3")
def adds_nothing(x, n):
    return x[:n] + 0


@wrong("02.3", "still shares the memory")
def takes_a_view(x, n):
    return x[:n]


@wrong("02.3", "but of how much of `x`?")
def clones_first(x, n):
    return x.clone()[:n]


@wrong("02.3", "Which part of that copy isn't needed")
def clones_twice(x, n):
    return x.clone()[:n].clone()


@wrong("02.3", "What else was on the GPU for a moment")
def asks_for_indices(x, n):
    return x.take(torch.tensor(range(n)).to(x.device))


@wrong("02.3", "What else was on the GPU for a moment")
def with_a_mask(x, n):
    return x[torch.arange(len(x), device=x.device) < n]


@wrong("02.3", "although the numbers were on the")
def by_way_of_python(x, n):
    return torch.tensor(x[:n].tolist(), device=x.device)


@wrong("02.3", "It's on the host, but `x` is on GPU 1")
def leaves_it_on_the_host(x, n):
    return x[:n].cpu()


@wrong("02.3", "the result has the shape (9,)")
def one_too_few(x, n):
    return x[: n - 1].clone()


@right("02.4")
def by_multiplying_and_adding(B):
    C = torch.add(B, 2)
    torch.mul(C, B, out=C)
    torch.add(C, 3, out=C)
    torch.mul(C, B, out=C)
    return torch.add(C, 4, out=C)


@wrong("02.4", "Every power and every partial sum")
def as_it_is_written(B):
    return B**3 + 2 * B**2 + 3 * B + 4


@wrong("02.4", "the one it was computed from")
def in_brackets(B):
    return ((B + 2) * B + 3) * B + 4


@wrong("02.4", "After the call, `B` had changed")
def in_the_wrong_place(B):
    A = B.clone()
    return B.add_(2).mul_(A).add_(3).mul_(A).add_(4)


@wrong("02.4", "The host has more memory")
def on_the_host(B):
    C = B.cpu()
    return (((C + 2) * C + 3) * C + 4).to(B.device)


@wrong("02.4", "The 4 is missing")
def forgets_the_last(B):
    return B.add(2).mul_(B).add_(3).mul_(B)


@wrong("02.4", "the result should be 10, but yours is 19")
def writes_into_what_it_reads(B):
    C = B.clone()
    return C.add_(2).mul_(B).add_(3).mul_(2).add_(7)


@wrong("02.4", "The result has the shape (262144,)")
def flattens(B):
    return B.flatten()


@right("02.5")
def with_a_set(tensors):
    seen, total = set(), 0
    for x in tensors:
        storage = x.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total += storage.nbytes()
    return total


@wrong("02.5", "some of them are the same")
def adds_all(tensors):
    return sum(x.nbytes for x in tensors)


@wrong("02.5", "the same memory once for each tensor")
def adds_storages(tensors):
    return sum(x.untyped_storage().nbytes() for x in tensors)


@wrong("02.5", "A view may begin elsewhere")
def by_the_first_element(tensors):
    return sum({x.data_ptr(): x.nbytes for x in tensors}.values())


@wrong("02.5", "The row has 1,024 bytes")
def counts_the_numbers(tensors):
    sizes = {}
    for x in tensors:
        where = x.untyped_storage().data_ptr()
        sizes[where] = max(sizes.get(where, 0), x.nbytes)
    return sum(sizes.values())


@wrong("02.5", "used again and again")
def trusts_the_shape(tensors):
    sizes = {}
    for x in tensors:
        storage = x.untyped_storage()
        sizes[storage.data_ptr()] = max(x.nbytes, storage.nbytes())
    return sum(sizes.values())


@wrong("02.5", "What the allocator adds isn't asked for here")
def rounds_up(tensors):
    storages = [x.untyped_storage() for x in tensors]
    sizes = {each.data_ptr(): each.nbytes() for each in storages}
    return sum(in_blocks(nbytes) for nbytes in sizes.values())


@wrong("02.5", "There are other tensors on this GPU")
def asks_the_gpu(tensors):
    return torch.accelerator.memory_allocated(tensors[0].device)


@right("02.6")
def doubles_then_halves(make, most):
    def fits(n):
        try:
            make(n)
        except torch.OutOfMemoryError:
            return False
        return True

    low, step = 0, 1
    while low + step <= most and fits(low + step):
        low, step = low + step, 2 * step
    while step := step // 2:
        if low + step <= most and fits(low + step):
            low += step
    return low


@wrong("02.6", "such as a copy. Which variable")
def holds_a_copy_of_the_last(make, most):
    batches = [None]

    def try_to(n):
        batches[0] = make(n).clone()
        return batches[0]

    return halving(try_to, most)


def halving(make, most, errors=torch.OutOfMemoryError, first=1):
    low, high = 0, most + first
    while high - low > 1:
        middle = (low + high) // 2
        try:
            make(middle)
            low = middle
        except errors:
            high = middle
    return low


@wrong("02.6", "You return 62. That fits")
def only_halves(make, most):
    while most:
        try:
            make(most)
            return most
        except torch.OutOfMemoryError:
            most //= 2
    return 0


@wrong("02.6", "Each attempt, whether it fits or not")
def one_by_one(make, most):
    for n in range(most, 0, -1):
        try:
            make(n)
            return n
        except torch.OutOfMemoryError:
            pass
    return 0


@wrong("02.6", "Which variable keeps it alive")
def holds_the_last(make, most):
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            batch = make(middle)
            low = len(batch)
        except torch.OutOfMemoryError:
            high = middle
    return low


@wrong("02.6", "Running out of memory has its own error")
def catches_all(make, most):
    return halving(make, most, errors=RuntimeError)


@wrong("02.6", "Did you ever try `most` itself")
def never_tries_most(make, most):
    return halving(make, most, first=0)


@wrong("02.6", "You return 78, but only 77 fit")
def says_what_does_not_fit(make, most):
    return min(halving(make, most) + 1, most)


@wrong("02.6", "although `make(1)` raises an error")
def never_says_none(make, most):
    return max(halving(make, most), 1)
