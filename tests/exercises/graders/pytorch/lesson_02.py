import math

import numpy as np
import torch

from d2l_gpu import torch as d2l
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


@right("02.1")
def on_no_device(shape, dtype):
    return math.ceil(torch.empty(shape, dtype=dtype, device="meta").nbytes / 512) * 512


@right("02.1")
def with_numpy(shape, dtype):
    return np.ceil(np.prod(shape, dtype=int) * dtype.itemsize / 512).astype(int) * 512


@wrong("02.1", "8,192 bytes are taken. How large is one element")
def takes_four_bytes(shape, dtype):
    return math.ceil(math.prod(shape) * 4 / 512) * 512


@wrong("02.1", "For (64, 64) and bool you return 512")
def counts_bits(shape, dtype):
    bits = 1 if dtype == torch.bool else dtype.itemsize * 8
    return math.ceil(math.prod(shape) * bits / 8 / 512) * 512


@wrong("02.1", "but 40,448 bytes are taken")
def forgets_blocks(shape, dtype):
    return math.prod(shape) * dtype.itemsize


@wrong("02.1", "but 4,194,304 bytes are taken. That's one block")
def always_one_more(shape, dtype):
    return (math.prod(shape) * dtype.itemsize // 512 + 1) * 512


@wrong("02.1", "512 bytes are taken. That's one block too many")
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


@wrong("02.1", "it measures instead of predicting")
def measures_on_the_last_gpu(shape, dtype):
    device = d2l.try_all_gpus()[-1]
    before = torch.accelerator.memory_allocated(device)
    kept = torch.empty(shape, dtype=dtype, device=device)
    return torch.accelerator.memory_allocated(kept.device) - before


@wrong("02.1", "it measures instead of predicting")
def measures(shape, dtype):
    before = torch.accelerator.memory_allocated(d2l.gpu(0))
    kept = torch.empty(shape, dtype=dtype, device=d2l.gpu(0))
    return torch.accelerator.memory_allocated(kept.device) - before


right("02.2")(1.0737e9)
wrong("02.2", "A GiB is")(10**9)
wrong("02.2", "That many numbers fit")(2**32)
wrong("02.2", "for two numbers per parameter")(2**31)
wrong("02.2", "three numbers per parameter")(16 * 2**30 // 12)
wrong("02.2", "five numbers per parameter")(16 * 2**30 / 20)
wrong("02.2", "the number of bytes")(2**34)
wrong("02.2", "Divide the bytes by the bytes per parameter")(256)
wrong("02.2", "and how many does one parameter need in total")(123)


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
            total += (storage.nbytes() + 511) // 512 * 512
    return total


@wrong("02.5", "some of them are the same")
def adds_all(tensors):
    return sum(math.ceil(x.nbytes / 512) * 512 for x in tensors)


@wrong("02.5", "the same memory once for each tensor")
def adds_storages(tensors):
    return sum(math.ceil(x.untyped_storage().nbytes() / 512) * 512 for x in tensors)


@wrong("02.5", "A view may begin elsewhere")
def by_the_first_element(tensors):
    sizes = {x.data_ptr(): x.nbytes for x in tensors}
    return sum(math.ceil(nbytes / 512) * 512 for nbytes in sizes.values())


@wrong("02.5", "The row has 1,024 bytes")
def counts_the_numbers(tensors):
    sizes = {}
    for x in tensors:
        where = x.untyped_storage().data_ptr()
        sizes[where] = max(sizes.get(where, 0), x.nbytes)
    return sum(math.ceil(nbytes / 512) * 512 for nbytes in sizes.values())


@wrong("02.5", "used again and again")
def trusts_the_shape(tensors):
    sizes = {}
    for x in tensors:
        storage = x.untyped_storage()
        sizes[storage.data_ptr()] = max(x.nbytes, storage.nbytes())
    return sum(math.ceil(nbytes / 512) * 512 for nbytes in sizes.values())


@wrong("02.5", "Each tensor gets whole blocks of")
def rounds_the_sum(tensors):
    storages = [x.untyped_storage() for x in tensors]
    total = sum({s.data_ptr(): s.nbytes() for s in storages}.values())
    return math.ceil(total / 512) * 512


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
