"""Devices: their names, which ones exist, and how quickly they have improved.

These exercises are about the names and numbers of devices, so records have them as they
are, and not as `Gpus` calls them.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import torch

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.torch.gpus.torch_gpus import _gpus

EXERCISES = Registry()
GPUS = 3  # one more than in the lesson, to catch answers with a hard-coded two


@contextlib.contextmanager
def _only(n: int) -> Iterator[None]:
    """Let the helper see only the first n GPUs."""
    decision = _gpus.decision
    fewer = replace(decision, devices=decision.devices[:n]) if n else None
    with patch.multiple(_gpus, decision=fewer, real=list):
        yield


def _around(
    answer: Callable, gpus: Gpus, seen: int, indices: Sequence[int]
) -> list[str]:
    """Return the names of the devices for some indices, if the helper sees so many
    GPUs; or the one error of the kind that a wrong index raises."""
    with _only(seen) if seen < GPUS else contextlib.nullcontext():
        try:
            return [str(answer(i)) for i in indices]
        except (ArithmeticError, IndexError, ValueError) as error:
            if seen:
                raise
            return [f"{type(error).__name__}: {error}"]


@EXERCISES.add("01.1", "i", returns=torch.device, gpus=GPUS)
def gpu_around(run: Run):
    wanted = [str(d2l.gpu(i % GPUS)) for i in range(2 * GPUS + 1)]
    got = run(_around, GPUS, list(range(len(wanted))))
    yield Claim(
        "with three GPUs, indices 0 to 6 go around twice and begin again",
        got == wanted,
        _not_around(got, wanted),
    )
    if got == wanted:
        mixed = [4, 4, 0, 2, 6, 1, 1]
        again = run(_around, GPUS, mixed)
        yield Claim(
            "the device depends on the index, not on earlier calls",
            again == [wanted[i] for i in mixed],
            f"Asked for indices {_row(mixed)} in this order, you return {_row(again)}. "
            "In order from 0, each index gave the right device.",
        )
    got = run(_around, 1, [0, 1, 2])
    yield Claim(
        "with one GPU, every index gives that GPU",
        got == [str(d2l.gpu(0))] * 3,
        f"With one GPU, index 1 gives {got[1]}, although `num_gpus()` is 1. Ask for "
        "the number of GPUs in each call.",
    )
    (got,) = run(_around, 0, [1])
    what = "raises" if ": " in got else "gives"
    yield Claim(
        "without a GPU, it returns the CPU",
        got == str(d2l.cpu()),
        f"Without a GPU it {what} {got}. `num_gpus()` is 0 then; what does "
        "`try_all_gpus()` return?",
    )


def _row(values: Sequence) -> str:
    return ", ".join(map(str, values))


def _not_around(got: Sequence[str], wanted: Sequence[str]) -> str:
    if got == wanted:
        return ""
    beyond = set(got[GPUS:])
    if got[:GPUS] == wanted[:GPUS] and beyond == {str(d2l.cpu())}:
        return (
            "Past the last GPU, your function falls back to the CPU instead of going "
            "around."
        )
    if got[:GPUS] == wanted[:GPUS] and len(beyond) == 1:
        return f"Past the last GPU, you always get {got[-1]}."
    if got[0] != wanted[0]:
        return f"Index 0 gives {got[0]}. Indices count from 0."
    i = next(i for i, device in enumerate(got) if device != wanted[i])
    return (
        f"Index {i} gives {got[i]}, although {GPUS} GPUs are in use. Did you hard-code "
        "their number?"
    )


def _existing(
    answer: Callable, gpus: Gpus, names: Sequence[str]
) -> dict[str, bool | str]:
    """Return what the answer says of each device, or the error that it raises."""
    found = {}
    for name in names:
        try:
            found[name] = answer(torch.device(name))
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            found[name] = type(error).__name__
    return found


@EXERCISES.add("01.2", "device", returns=bool, gpus=GPUS)
def exists(run: Run):
    in_use, cpu = list(map(str, d2l.try_all_gpus())), str(d2l.cpu())
    beyond = str(torch.device(d2l.gpu(0).type, GPUS))
    # Every build of PyTorch lacks support for at least one of these.
    others = [
        f"{kind}:0"
        for kind in ("cuda", "xpu", "mps")
        if not torch.get_device_module(kind).is_available()
    ]
    found = run(_existing, [*in_use, cpu, beyond, *others])
    there = {name: found[name] for name in in_use}
    absent = {name: found[name] for name in others}
    cpu, beyond = found[cpu], found[beyond]
    yield Claim(
        "each GPU in use exists",
        all(said is True for said in there.values()),
        f"It returned {_said(there)}. Those are the GPUs in use, whatever their type.",
    )
    yield Claim(
        "the CPU exists",
        cpu is True,
        f"It returned {cpu} for the CPU, which is a device too, but isn't in the list "
        "of GPUs.",
    )
    if beyond is True and all(said is True for said in absent.values()):
        hint = (
            "It returns True for any name. PyTorch creates a `torch.device` without "
            "checking that the device exists. When does it check?"
        )
    elif beyond is True:
        hint = (
            "It returns True for a GPU past the last one: checking the type isn't "
            "enough."
        )
    else:
        hint = (
            f"For a GPU past the last one it raises {beyond}, which is how PyTorch "
            "says no."
        )
    yield Claim("a GPU past the last one doesn't exist", beyond is False, hint)
    raised = [said for said in absent.values() if isinstance(said, str)]
    if raised:
        hint = (
            f"For one of them it raises {raised[0]}. PyTorch has several ways of "
            "saying that it can't use a device."
        )
    else:
        hint = (
            f"It returned {_said(absent)}. An index that exists for one type needn't "
            "exist for another."
        )
    yield Claim(
        "nor do GPUs of types that this machine doesn't have",
        all(said is False for said in absent.values()),
        hint,
    )


def _said(answers: dict) -> str:
    return ", ".join(f"{said} for {device}" for device, said in answers.items())


def _compared(
    answer: Callable, gpus: Gpus, current: int, pairs: Sequence[tuple[str, str]]
) -> list[bool]:
    """Return the results for pairs of names while one GPU is the current one."""
    with torch.accelerator.device_index(current):
        return [answer(torch.device(a), torch.device(b)) for a, b in pairs]


@EXERCISES.add("01.3", "a, b", returns=bool, gpus=GPUS)
def same_device(run: Run):
    cpu, bare = "cpu", d2l.gpu(0).type
    names = [str(d2l.gpu(i)) for i in range(GPUS)]
    zero, one, *_ = names
    # GPU 1 is the current device first, so that an answer that remembers this differs
    # from one that takes a missing index for 0.
    equal, different = run(_compared, 1, [(one, one), (zero, one)])
    yield Claim(
        "different indices are different devices, and equal indices the same",
        equal and not different,
        f"{zero} and {one} have the same type, but they're different devices.",
    )
    equal, *different = run(_compared, 1, [(cpu, cpu), (cpu, bare), (bare, cpu)])
    yield Claim(
        "the CPU equals itself and no GPU",
        equal and not any(different),
        f"`{cpu}` and `{bare}` have the same index, None, but different types.",
    )
    pairs = [(bare, bare)]
    for name in names:
        pairs += (bare, name), (name, bare)
    said, wanted = {}, {}
    for current in (1, 0, 2):
        said[current] = run(_compared, current, pairs)
        wanted[current] = [{a, b} <= {bare, names[current]} for a, b in pairs]
        if said[current] != wanted[current]:
            break
    yield Claim(
        f"`{bare}` means the current device, whichever that is",
        said == wanted,
        _not_current(dict(zip(pairs, said[1], strict=True)), bare, names)
        if said[1] != wanted[1]
        else f"It was right while {one} was the current device, but then "
        f"{names[current]} became the current one, and your answers were wrong. Which "
        "device is the current one can change from call to call.",
    )


def _not_current(said: dict, bare: str, names: Sequence[str]) -> str:
    """Return a hint for comparisons that are wrong while GPU 1 is the current one."""
    zero, one, *_ = names
    text = f"While {one} is the current device, "
    forth = [name for name in names if said[bare, name]]
    back = [name for name in names if said[name, bare]]
    if forth != back:
        return (
            "The result depends on which of the two comes first. Either may lack its "
            "index."
        )
    if not forth:
        return (
            f"{text}a tensor sent to `{bare}` ends up there. Two different names can "
            "mean the same device."
        )
    if forth == [zero]:
        return (
            f"{text}you take `{bare}` for {zero}. A missing index doesn't mean index 0."
        )
    if forth == [one]:
        return f"{text}you say that `{bare}` isn't the same device as `{bare}`."
    return (
        f"{text}you say that `{bare}` is the same device as {_row(forth)}. Where does "
        f"a tensor go that's sent to `{bare}`?"
    )


def _visible(
    answer: Callable, gpus: Gpus, cases: Sequence[tuple[str | None, int]]
) -> list[list]:
    return [answer(*case) for case in cases]


@EXERCISES.add("01.4", "setting, n", returns=list, gpus=GPUS)
def visible(run: Run):
    (swapped,) = run(_visible, [("3,1", 4)])
    yield Claim(
        "with `3,1`, the program sees those two of four GPUs, in that order",
        swapped == _seen("3,1", 4),
        _wrongly_seen(swapped),
    )
    (unset,) = run(_visible, [(None, 4)])
    yield Claim(
        "with no setting, it sees all of them",
        unset == _seen(None, 4),
        f"You return {unset} for four GPUs. A variable that isn't set hides nothing.",
    )
    (none,) = run(_visible, [("", 4)])
    yield Claim(
        "with an empty setting, it sees none",
        none == _seen("", 4),
        f"You return {none} for four GPUs. An empty variable is still set.",
    )
    (long,) = run(_visible, [("10,2,11", 12)])
    yield Claim(
        "with `10,2,11`, it sees those three of twelve GPUs",
        long == _seen("10,2,11", 12),
        f"You return {long}. An index may have more than one digit.",
    )
    cases = [("2,7,1", 4), ("0,2,-1,1", 4), ("5", 4), ("4,0", 4), ("9,12,3", 12)]
    got = dict(zip(cases, run(_visible, cases), strict=True))
    setting, n = next((case for case in cases if got[case] != _seen(*case)), cases[0])
    wrong = got[setting, n]
    numbers = [int(each) for each in setting.split(",")]
    if wrong == numbers:
        hint = (
            f"With `{setting}` and {n} GPUs you return {wrong}. Do all of those exist?"
        )
    elif wrong == [each for each in numbers if 0 <= each < n]:
        hint = (
            f"With `{setting}` and {n} GPUs you return {wrong}, which leaves out only "
            "the invalid index. What happens to the indices after it?"
        )
    else:
        hint = (
            f"With `{setting}` and {n} GPUs you return {wrong}. Which is the first "
            "index that doesn't exist on this machine?"
        )
    yield Claim(
        "an index that doesn't exist ends the list",
        all(got[case] == _seen(*case) for case in cases),
        hint,
    )


def _seen(setting: str | None, n: int) -> list[int]:
    if setting is None:
        return list(range(n))
    seen = []
    for text in filter(None, setting.split(",")):
        if not 0 <= int(text) < n:
            break
        seen.append(int(text))
    return seen


def _wrongly_seen(got: list) -> str:
    if got == [0, 1]:
        return (
            "You return [0, 1], the program's own numbers. Which GPUs of the machine "
            "are they?"
        )
    if got == [1, 3]:
        return (
            "You return the right two GPUs, but in the wrong order: the program's "
            "first GPU isn't the machine's GPU 1."
        )
    if got == ["3", "1"]:
        return "You return strings, not integers."
    return f"With `3,1` and four GPUs, you return {got}."


_YEARS = 2001.0, 2002.0, 2005.0, 2009.0, 2010.0


def _doubled(
    answer: Callable, gpus: Gpus, years: Sequence[float], values: Sequence[float]
) -> float:
    return float(answer(np.array(years), np.array(values)))


@EXERCISES.add("01.5", "years, values", returns=(float, int), gpus=GPUS)
def doubling_time(run: Run):
    years = np.array(_YEARS)
    exact = run(_doubled, _YEARS, (5 * 2 ** ((years - 2001) / 3)).tolist())
    yield Claim(
        "for values that double every 3 years, it returns 3",
        abs(exact - 3) < 1e-6,
        _wrong_doubling(exact, years),
    )
    values = np.array([1.0, 1.9, 2.2, 9.5, 8.0])
    wanted = 1 / np.polyfit(years, np.log2(values), 1)[0]
    value = run(_doubled, _YEARS, values.tolist())
    doublings = np.log2(values)
    ends = (years[-1] - years[0]) / (doublings[-1] - doublings[0])
    steps = 1 / np.mean(np.diff(doublings) / np.diff(years))
    turned = np.polyfit(doublings, years, 1)[0]
    hint = f"You return {value:.4g} years; the least-squares line gives {wanted:.4g}."
    if abs(value - ends) < 1e-6:
        hint = "You use only the first and the last value."
    elif abs(value - turned) < 1e-6:
        hint = (
            "You fitted the years to the values, as if the years were the noisy "
            "quantity. Which of the two belongs on the horizontal axis?"
        )
    elif abs(value - steps) < 1e-6:
        hint = (
            "You averaged the growth from each value to the next, so a step of one "
            "year counts as much as a step of four. A least-squares line weighs all "
            "points."
        )
    for k, name in (0, "first"), (-1, "last"):
        t, v = years - years[k], doublings - doublings[k]
        if abs(value - (t @ t) / (t @ v)) < 1e-6:
            hint = (
                f"You return {value:.4g} years, which is what the best line through "
                f"the {name} point gives. The least-squares line needn't go through "
                "any of the points."
            )
    yield Claim(
        "for scattered points, it uses the least-squares line",
        abs(value - wanted) < 1e-6,
        hint,
    )


def _wrong_doubling(value: float, years: np.ndarray) -> str:
    doublings = np.log2(5) + (years - years[0]) / 3
    known = {
        1 / 3: "That's how often it doubles in a year.",
        3 / np.log(2): "In that time it grows by a factor of e, not 2.",
        3 / np.log10(2): "In that time it grows tenfold.",
        2 ** (1 / 3): "That's the factor by which it grows in a year.",
        2 ** (10 / 3): "That's the factor by which it grows in ten years.",
    }
    for rise in doublings, doublings - doublings[0]:
        wrong = (years @ years) / (years @ rise)
        known[wrong] = (
            "That's what a line through the origin gives. Yours needs an intercept."
        )
    for wrong, text in known.items():
        if abs(value - wrong) < 1e-6 * max(1, wrong):
            return f"You return {value:.4g}. {text}"
    return (
        f"You return {value:.4g}. Exponential growth is a straight line only if you "
        "plot the logarithms."
    )
