import statistics

import numpy as np
import torch

from d2l_gpu import torch as d2l
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


@right("01.1")
def with_the_number(i):
    n = d2l.num_gpus()
    return d2l.gpu(i % n) if n else d2l.cpu()


@wrong("01.1", "Is their number written down")
def two_written_down(i):
    return d2l.try_gpu(i % 2)


@wrong("01.1", "yours is polite")
def asks_politely(i):
    return d2l.try_gpu(i)


@wrong("01.1", "it is always vgpu:2")
def stops_at_the_last(i):
    return d2l.try_all_gpus()[min(i, d2l.num_gpus() - 1)]


@wrong("01.1", "Indices count from 0")
def counts_from_one(i):
    devices = d2l.try_all_gpus()
    return devices[(i - 1) % len(devices)]


@wrong("01.1", "There it raises ZeroDivisionError")
def divides_by_none(i):
    return d2l.gpu(i % d2l.num_gpus())


@wrong("01.1", "There it is cuda:0")
def forgets_the_cpu(i):
    return d2l.gpu(i % max(d2l.num_gpus(), 1))


@wrong("01.1", "gives vgpu:1 there")
def asks_pytorch(i):
    return torch.device("vgpu", i % torch.accelerator.device_count())


@wrong("01.1", "gpu_around returned nothing")
def returns_nothing(i):
    d2l.try_gpu(i)


@wrong("01.1", "gpu(3) does not exist: 3 GPUs in use")
def does_not_go_around(i):
    return d2l.gpu(i)


@right("01.2")
def in_the_list(device):
    return device in (d2l.cpu(), *d2l.try_all_gpus())


@wrong("01.2", "It says True of any name")
def makes_a_name(device):
    try:
        torch.device(device)
        return True
    except RuntimeError:
        return False


@wrong("01.2", "is not among the GPUs")
def forgets_the_cpu_itself(device):
    return device in d2l.try_all_gpus()


@wrong("01.2", "the type is not enough")
def compares_types(device):
    return device.type in {d2l.cpu().type, d2l.gpu(0).type}


@wrong("01.2", "An index is there for one type")
def compares_indices(device):
    return device.type == "cpu" or device.index < d2l.num_gpus()


@wrong("01.2", "PyTorch has several ways")
def catches_one_error(device):
    try:
        torch.empty(0, device=device)
        return True
    except RuntimeError:
        return False


@wrong("01.2", "way to say no")
def catches_nothing(device):
    return torch.empty(0, device=device).device == device


@wrong("01.2", "whatever their type is")
def asks_for_cuda(device):
    return device.type == "cpu" or (device.type == "cuda" and torch.cuda.is_available())


@right("01.3")
def by_the_current_index(a, b):
    current = torch.accelerator.current_device_index()
    first, second = ((x.type, current if x.index is None else x.index) for x in (a, b))
    return first == second


@wrong("01.3", "Two names may differ")
def compares_names(a, b):
    return a == b


@wrong("01.3", "A missing index is not the index 0")
def takes_the_first(a, b):
    return (a.type, a.index or 0) == (b.type, b.index or 0)


@wrong("01.3", "the type is the same, and they are two")
def compares_types_only(a, b):
    return a.type == b.type


@wrong("01.3", "which is None")
def compares_indices_only(a, b):
    current = torch.accelerator.current_device_index()
    first, second = (current if x.index is None else x.index for x in (a, b))
    return first == second


@wrong("01.3", "which of the two comes first")
def completes_one_of_them(a, b):
    return torch.empty(0, device=a).device == b


@right("01.4")
def with_a_loop(setting, n):
    if setting is None:
        return list(range(n))
    numbers = [int(text) for text in setting.split(",") if text]
    while any(not 0 <= number < n for number in numbers):
        numbers.pop()
    return numbers


@wrong("01.4", "the program's first one is not")
def asks_each_gpu(setting, n):
    if setting is None:
        return list(range(n))
    return [i for i in range(n) if str(i) in setting.split(",")]


@wrong("01.4", "So the program numbers them")
def renumbers(setting, n):
    return list(range(n if setting is None else len(setting.split(","))))


@wrong("01.4", "Are they all there?")
def believes_everything(setting, n):
    if setting is None:
        return list(range(n))
    return [int(text) for text in setting.split(",") if text]


@wrong("01.4", "What becomes of those behind it?")
def leaves_out(setting, n):
    if setting is None:
        return list(range(n))
    numbers = [int(text) for text in setting.split(",") if text]
    return [number for number in numbers if 0 <= number < n]


@wrong("01.4", "set to nothing is set")
def takes_empty_for_unset(setting, n):
    return with_a_loop(setting or None, n)


@wrong("01.4", "These are texts")
def returns_texts(setting, n):
    return list(range(n)) if setting is None else setting.split(",")


@wrong("01.4", "What is not set hides nothing")
def takes_unset_for_empty(setting, n):
    return with_a_loop(setting or "", n)


@wrong("01.4", "has no attribute 'split'")
def forgets_unset(setting, n):
    return [int(text) for text in setting.split(",")]


@wrong("01.4", "invalid literal for int()")
def forgets_empty(setting, n):
    if setting is None:
        return list(range(n))
    return [int(text) for text in setting.split(",")]


@wrong("01.4", "With `0,2,-1,1` and 4 GPUs it is [0, 2, 3, 1]")
def counts_from_the_end(setting, n):
    if setting is None:
        return list(range(n))
    seen = []
    for text in filter(None, setting.split(",")):
        if int(text) >= n:
            break
        seen.append(range(n)[int(text)])
    return seen


@right("01.5")
def by_regression(years, values):
    slope, _ = statistics.linear_regression(years, np.log2(values))
    return 1 / slope


@wrong("01.5", "how often it doubles in a year")
def doublings_per_year(years, values):
    return np.polyfit(years, np.log2(values), 1)[0]


@wrong("01.5", "by the factor e")
def takes_natural_logarithms(years, values):
    return 1 / np.polyfit(years, np.log(values), 1)[0]


@wrong("01.5", "grows tenfold")
def takes_decimal_logarithms(years, values):
    return 1 / np.polyfit(years, np.log10(values), 1)[0]


@wrong("01.5", "the factor by which it grows in a year")
def factor_per_year(years, values):
    return 2 ** np.polyfit(years, np.log2(values), 1)[0]


@wrong("01.5", "straight line only in the logarithms")
def fits_the_values(years, values):
    return values.mean() / np.polyfit(years, values, 1)[0]


@wrong("01.5", "Only the first and the last")
def takes_the_ends(years, values):
    return (years[-1] - years[0]) / np.log2(values[-1] / values[0])


@wrong("01.5", "The line weighs all points")
def averages_the_steps(years, values):
    return 1 / np.mean(np.diff(np.log2(values)) / np.diff(years))


@wrong("01.5", "as if the years were what scatters")
def fits_the_years(years, values):
    return np.polyfit(np.log2(values), years, 1)[0]


@wrong("01.5", "years where the line gives")
def averages_the_doubling_times(years, values):
    times = np.diff(years) / np.diff(np.log2(values))
    return times.mean()
