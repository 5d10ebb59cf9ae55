import functools
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


@wrong("01.1", "Did you hard-code their number")
def two_written_down(i):
    return d2l.try_gpu(i % 2)


@wrong("01.1", "to the CPU instead of going around")
def asks_politely(i):
    return d2l.try_gpu(i)


@wrong("01.1", "you always get vgpu:2")
def stops_at_the_last(i):
    return d2l.try_all_gpus()[min(i, d2l.num_gpus() - 1)]


@wrong("01.1", "Indices count from 0")
def counts_from_one(i):
    devices = d2l.try_all_gpus()
    return devices[(i - 1) % len(devices)]


@wrong("01.1", "it raises ZeroDivisionError")
def divides_by_none(i):
    return d2l.gpu(i % d2l.num_gpus())


@wrong("01.1", "it gives cuda:0. `num_gpus()` is 0 then")
def forgets_the_cpu(i):
    return d2l.gpu(i % max(d2l.num_gpus(), 1))


@wrong("01.1", "index 1 gives vgpu:1")
def asks_pytorch(i):
    return torch.device("vgpu", i % torch.accelerator.device_count())


class _Turn:
    """Gives the next device in each call, from that of the first index on."""

    def __init__(self):
        self.last = None

    def __call__(self, i):
        devices = d2l.try_all_gpus()
        self.last = i if self.last is None else self.last + 1
        return devices[self.last % len(devices)]


_turn = _Turn()


@wrong("01.1", "each index gave the right device")
def takes_turns(i):
    return _turn(i)


@wrong("01.1", "gpu_around returned nothing")
def returns_nothing(i):
    d2l.try_gpu(i)


@wrong("01.1", "gpu(3) does not exist: this process uses 3 GPUs")
def does_not_go_around(i):
    return d2l.gpu(i)


@right("01.2")
def in_the_list(device):
    return device in (d2l.cpu(), *d2l.try_all_gpus())


@wrong("01.2", "It returns True for any name")
def makes_a_name(device):
    try:
        torch.device(device)
        return True
    except RuntimeError:
        return False


@wrong("01.2", "but isn't in the list of GPUs")
def forgets_the_cpu_itself(device):
    return device in d2l.try_all_gpus()


@wrong("01.2", "checking the type isn't enough")
def compares_types(device):
    return device.type in {d2l.cpu().type, d2l.gpu(0).type}


@wrong("01.2", "An index that exists for one type")
def compares_indices(device):
    return device.type == "cpu" or device.index < d2l.num_gpus()


@wrong("01.2", "PyTorch has several ways")
def catches_one_error(device):
    try:
        torch.empty(0, device=device)
        return True
    except RuntimeError:
        return False


@wrong("01.2", "which is how PyTorch says no")
def catches_nothing(device):
    return torch.empty(0, device=device).device == device


@wrong("01.2", "whatever their type")
def asks_for_cuda(device):
    return device.type == "cpu" or (device.type == "cuda" and torch.cuda.is_available())


@right("01.3")
def by_the_current_index(a, b):
    current = torch.accelerator.current_device_index()
    first, second = ((x.type, current if x.index is None else x.index) for x in (a, b))
    return first == second


@wrong("01.3", "Two different names can mean the same device")
def compares_names(a, b):
    return a == b


@wrong("01.3", "A missing index doesn't mean index 0")
def takes_the_first(a, b):
    return (a.type, a.index or 0) == (b.type, b.index or 0)


@functools.cache
def _place(device):
    return torch.empty(0, device=device).device


@wrong("01.3", "and your answers were wrong. Which device is the current one")
def remembers_the_place(a, b):
    return _place(a) == _place(b)


@wrong("01.3", "the same device as vgpu:0, vgpu:1, vgpu:2")
def takes_none_for_any(a, b):
    return a.type == b.type and (None in (a.index, b.index) or a == b)


@wrong("01.3", "vgpu:0 and vgpu:1 have the same type")
def compares_types_only(a, b):
    return a.type == b.type


@wrong("01.3", "`cpu` and `vgpu` have the same index, None")
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


@wrong("01.4", "the program's first GPU isn't the")
def asks_each_gpu(setting, n):
    if setting is None:
        return list(range(n))
    return [i for i in range(n) if str(i) in setting.split(",")]


@wrong("01.4", "1], the program's own numbers")
def renumbers(setting, n):
    return list(range(n if setting is None else len(setting.split(","))))


@wrong("01.4", "7, 1]. Do all of those exist")
def believes_everything(setting, n):
    if setting is None:
        return list(range(n))
    return [int(text) for text in setting.split(",") if text]


@wrong("01.4", "may have more than one digit")
def reads_digit_by_digit(setting, n):
    if setting is None:
        return list(range(n))
    seen = []
    for digit in setting.replace("-1", "9").replace(",", ""):
        if int(digit) >= n:
            break
        seen.append(int(digit))
    return seen


@wrong("01.4", "What happens to the indices after it")
def leaves_out(setting, n):
    if setting is None:
        return list(range(n))
    numbers = [int(text) for text in setting.split(",") if text]
    return [number for number in numbers if 0 <= number < n]


@wrong("01.4", "An empty variable is still set")
def takes_empty_for_unset(setting, n):
    return with_a_loop(setting or None, n)


@wrong("01.4", "You return strings, not integers")
def returns_texts(setting, n):
    return list(range(n)) if setting is None else setting.split(",")


@wrong("01.4", "A variable that isn't set hides nothing")
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


@wrong("01.4", "With `0,2,-1,1` and 4 GPUs you return [0")
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


@wrong("01.5", "time it grows by a factor of e")
def takes_natural_logarithms(years, values):
    return 1 / np.polyfit(years, np.log(values), 1)[0]


@wrong("01.5", "grows tenfold")
def takes_decimal_logarithms(years, values):
    return 1 / np.polyfit(years, np.log10(values), 1)[0]


@wrong("01.5", "the factor by which it grows in a year")
def factor_per_year(years, values):
    return 2 ** np.polyfit(years, np.log2(values), 1)[0]


@wrong("01.5", "straight line only if you plot the logarithms")
def fits_the_values(years, values):
    return values.mean() / np.polyfit(years, values, 1)[0]


@wrong("01.5", "only the first and the last value")
def takes_the_ends(years, values):
    return (years[-1] - years[0]) / np.log2(values[-1] / values[0])


@wrong("01.5", "After the call, `values` had changed")
def takes_logarithms_in_place(years, values):
    np.log2(values, out=values)
    return 1 / np.polyfit(years, values, 1)[0]


@wrong("01.5", "line weighs all points")
def averages_the_steps(years, values):
    return 1 / np.mean(np.diff(np.log2(values)) / np.diff(years))


@wrong("01.5", "as if the years were the noisy quantity")
def fits_the_years(years, values):
    return np.polyfit(np.log2(values), years, 1)[0]


def through(k, years, values):
    slope = np.linalg.lstsq(
        (years - years[k])[:, None], np.log2(values) - np.log2(values[k]), rcond=None
    )[0]
    return 1 / slope[0]


@wrong("01.5", "the best line through the first point")
def starts_at_the_first(years, values):
    return through(0, years, values)


@wrong("01.5", "the best line through the last point")
def ends_at_the_last(years, values):
    return through(-1, years, values)


@wrong("01.5", "a line through the origin")
def forgets_the_intercept(years, values):
    return 1 / np.linalg.lstsq(years[:, None], np.log2(values), rcond=None)[0][0]


@wrong("01.5", "the least-squares line gives 2.979")
def averages_the_doubling_times(years, values):
    times = np.diff(years) / np.diff(np.log2(values))
    return times.mean()
