import functools
import math

import torch

from d2l_gpu import torch as d2l
from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_01 import add_share_of_peak

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

add_share_of_peak(ANSWERS)


@right("01.2")
def with_a_loop(cpu, gpu):
    tasks = 1
    while math.ceil(tasks / cpu[0]) * cpu[1] <= math.ceil(tasks / gpu[0]) * gpu[1]:
        tasks += 1
    return tasks


@wrong("01.2", "and so does the GPU. That's a tie")
def takes_a_tie(cpu, gpu):
    tasks = 1
    while math.ceil(tasks / cpu[0]) * cpu[1] < math.ceil(tasks / gpu[0]) * gpu[1]:
        tasks += 1
    return tasks


@wrong("01.2", "With 21 tasks, the CPU finishes after 2 s")
def forgets_the_cores(cpu, gpu):
    return int(gpu[1] // cpu[1]) + 1


@wrong("01.2", "With 11 tasks, the CPU finishes after 3 s and the GPU after 2.5 s, but")
def divides_exactly(cpu, gpu):
    return int(gpu[1] / cpu[1] * cpu[0]) + 1


@wrong("01.2", "With 1 task, the CPU finishes after 1 s and the GPU after 4 s")
def takes_parts_of_a_round(cpu, gpu):
    tasks = 1
    while tasks / cpu[0] * cpu[1] <= tasks / gpu[0] * gpu[1]:
        tasks += 1
    return tasks


@wrong("01.2", "With 65 tasks")
def fills_the_gpu(cpu, gpu):
    return gpu[0] + 1


@wrong("01.2", "There has to be at least one task")
def starts_at_nothing(cpu, gpu):
    return 0


@wrong("01.2", "although it does all of them in its first round")
def depends_on_the_size_of_the_gpu(cpu, gpu):
    return with_a_loop(cpu, gpu) - gpu[0] // 10**6


@wrong("01.2", "With a GPU that takes 0.5 s, you return 5")
def waits_for_a_full_cpu(cpu, gpu):
    return max(1, int(gpu[1] // cpu[1])) * cpu[0] + 1


@right("01.3")
def in_the_list(device):
    return device in (d2l.cpu(), *d2l.try_all_gpus())


@wrong("01.3", "It returns True for any name")
def makes_a_name(device):
    try:
        torch.device(device)
        return True
    except RuntimeError:
        return False


@wrong("01.3", "but isn't in the list of GPUs")
def forgets_the_cpu_itself(device):
    return device in d2l.try_all_gpus()


@wrong("01.3", "checking the type isn't enough")
def compares_types(device):
    return device.type in {d2l.cpu().type, d2l.gpu(0).type}


@wrong("01.3", "An index that exists for one type")
def compares_indices(device):
    return device.type == "cpu" or device.index < d2l.num_gpus()


@wrong("01.3", "PyTorch has several ways")
def catches_one_error(device):
    try:
        torch.empty(0, device=device)
        return True
    except RuntimeError:
        return False


@wrong("01.3", "which is how PyTorch says no")
def catches_nothing(device):
    return torch.empty(0, device=device).device == device


@wrong("01.3", "whatever their type")
def asks_for_cuda(device):
    return device.type == "cpu" or (device.type == "cuda" and torch.cuda.is_available())


@right("01.4")
def by_the_current_index(a, b):
    current = torch.accelerator.current_device_index()
    first, second = ((x.type, current if x.index is None else x.index) for x in (a, b))
    return first == second


@wrong("01.4", "Two different names can mean the same device")
def compares_names(a, b):
    return a == b


@wrong("01.4", "A missing index doesn't mean index 0")
def takes_the_first(a, b):
    return (a.type, a.index or 0) == (b.type, b.index or 0)


@functools.cache
def _place(device):
    return torch.empty(0, device=device).device


@wrong("01.4", "and your answers were wrong. Which device is the current one")
def remembers_the_place(a, b):
    return _place(a) == _place(b)


@wrong("01.4", "the same device as vgpu:0, vgpu:1, vgpu:2")
def takes_none_for_any(a, b):
    return a.type == b.type and (None in (a.index, b.index) or a == b)


@wrong("01.4", "vgpu:0 and vgpu:1 have the same type")
def compares_types_only(a, b):
    return a.type == b.type


@wrong("01.4", "`cpu` and `vgpu` have the same index, None")
def compares_indices_only(a, b):
    current = torch.accelerator.current_device_index()
    first, second = (current if x.index is None else x.index for x in (a, b))
    return first == second


@wrong("01.4", "which of the two comes first")
def completes_one_of_them(a, b):
    return torch.empty(0, device=a).device == b


@right("01.5")
def asks_the_helper(rank):
    devices = d2l.try_all_gpus()
    return devices[rank % len(devices)]


@right("01.5")
def asks_whether_there_is_one(rank):
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    kind = torch.accelerator.current_accelerator().type
    count = torch.get_device_module(kind).device_count()
    return torch.device(f"{kind}:{rank % count}")


@wrong("01.5", "but every worker gets the CPU")
def only_knows_cuda(rank):
    if torch.cuda.is_available():
        return torch.device("cuda", rank % torch.cuda.device_count())
    return torch.device("cpu")


@wrong("01.5", "without an index")
def forgets_the_index(rank):
    return torch.accelerator.current_accelerator(True) or torch.device("cpu")


@wrong("01.5", "Every worker gets vgpu:0")
def gives_the_first(rank):
    return d2l.try_gpu(0)


@wrong("01.5", "Indices count from 0, as ranks do")
def counts_from_one(rank):
    devices = d2l.try_all_gpus()
    return devices[(rank + 1) % len(devices)]


@wrong("01.5", "Rank 3 gets the CPU")
def asks_politely(rank):
    return d2l.try_gpu(rank)


@wrong("01.5", "that GPU has four workers")
def stops_at_the_last(rank):
    return d2l.try_all_gpus()[min(rank, d2l.num_gpus() - 1)]


@wrong("01.5", "which doesn't exist")
def four_written_down(rank):
    kind = torch.accelerator.current_accelerator().type
    return torch.device(kind, rank % 4)


@wrong("01.5", "rank 1 gets vgpu:1. Ask for the number")
def three_written_down(rank):
    return torch.device(torch.accelerator.current_accelerator().type, rank % 3)


@wrong("01.5", "Without a GPU it raises ZeroDivisionError")
def divides_by_none(rank):
    return torch.device("vgpu", rank % torch.accelerator.device_count())


@wrong("01.5", "Without a GPU it raises AttributeError")
def forgets_the_cpu(rank):
    kind = torch.accelerator.current_accelerator().type
    return torch.device(kind, rank % max(1, torch.accelerator.device_count()))


@wrong("01.5", "pick_device returned nothing")
def returns_nothing(rank):
    d2l.try_gpu(rank)
