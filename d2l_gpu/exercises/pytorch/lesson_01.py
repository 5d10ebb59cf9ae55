"""Devices: their names, which ones exist, and how quickly they have improved."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import torch

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.registry import Claim, Registry
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


@EXERCISES.add("01.1", "i", returns=torch.device, gpus=GPUS)
def gpu_around(answer):
    wanted = [d2l.gpu(i % GPUS) for i in range(2 * GPUS + 1)]
    got = [answer(i) for i in range(len(wanted))]
    yield Claim(
        "with three GPUs, indices 0 to 6 go around twice and begin again",
        got == wanted,
        _not_around(got, wanted),
    )
    with _only(1):
        got = [answer(i) for i in range(3)]
    yield Claim(
        "with one GPU, every index gives that GPU",
        got == [d2l.gpu(0)] * 3,
        f"With one GPU, index 1 gives {got[1]}, although `num_gpus()` is 1. Ask for "
        "the number of GPUs in each call.",
    )
    with _only(0):
        try:
            got = answer(1)
            what = f"gives {got}"
        except (ArithmeticError, IndexError, ValueError) as error:
            got, what = None, f"raises {type(error).__name__}: {error}"
    yield Claim(
        "without a GPU, it returns the CPU",
        got == d2l.cpu(),
        f"Without a GPU it {what}. `num_gpus()` is 0 then; what does `try_all_gpus()` "
        "return?",
    )


def _not_around(got: Sequence[torch.device], wanted: Sequence[torch.device]) -> str:
    if got == wanted:
        return ""
    beyond = set(got[GPUS:])
    if got[:GPUS] == wanted[:GPUS] and beyond == {d2l.cpu()}:
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


@EXERCISES.add("01.2", "device", returns=bool, gpus=GPUS)
def exists(answer):
    def say(device: torch.device) -> bool | str:
        try:
            return answer(device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            return type(error).__name__

    there = {gpu: say(gpu) for gpu in d2l.try_all_gpus()}
    cpu = say(d2l.cpu())
    beyond = say(torch.device(d2l.gpu(0).type, GPUS))
    # Every build of PyTorch lacks support for at least one of these.
    others = [torch.device(kind, 0) for kind in ("cuda", "xpu", "mps")]
    absent = {
        device: say(device)
        for device in others
        if not torch.get_device_module(device.type).is_available()
    }
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


@EXERCISES.add("01.3", "a, b", returns=bool, gpus=GPUS)
def same_device(answer):
    cpu, gpu = d2l.cpu(), d2l.gpu(0).type
    bare = torch.device(gpu)
    yield Claim(
        "different indices are different devices, and equal indices the same",
        answer(d2l.gpu(1), d2l.gpu(1)) and not answer(d2l.gpu(0), d2l.gpu(1)),
        f"{d2l.gpu(0)} and {d2l.gpu(1)} have the same type, but they're different "
        "devices.",
    )
    yield Claim(
        "the CPU equals itself and no GPU",
        answer(cpu, cpu) and not answer(cpu, bare) and not answer(bare, cpu),
        f"`{cpu}` and `{bare}` have the same index, None, but different types.",
    )
    right = {}
    for current in range(GPUS):
        with torch.accelerator.device_index(current):
            cases = [(bare, bare, True)]
            for i in range(GPUS):
                cases.append((bare, d2l.gpu(i), i == current))
                cases.append((d2l.gpu(i), bare, i == current))
            right[current] = [answer(a, b) == same for a, b, same in cases]
    first, others = right[0], [*right[1], *right[2]]
    if not all(first):
        both = all(first[1::2]) or all(first[2::2])
        hint = (
            "The result depends on which of the two comes first. Either may lack its "
            "index."
            if both
            else (
                f"While {d2l.gpu(0)} is the current device, a tensor sent to `{bare}` "
                "ends up there. Two different names can mean the same device."
            )
        )
    else:
        hint = (
            f"It's right while {d2l.gpu(0)} is the current device, but not while "
            "another one is. A missing index doesn't mean index 0."
        )
    yield Claim(
        f"`{bare}` means the current device, whichever that is",
        all(first) and all(others),
        hint,
    )


@EXERCISES.add("01.4", "setting, n", returns=list, gpus=GPUS)
def visible(answer):
    swapped = answer("3,1", 4)
    yield Claim(
        "with `3,1`, the program sees those two of four GPUs, in that order",
        swapped == _seen("3,1", 4),
        _wrongly_seen(swapped),
    )
    unset = answer(None, 4)
    yield Claim(
        "with no setting, it sees all of them",
        unset == _seen(None, 4),
        f"You return {unset} for four GPUs. A variable that isn't set hides nothing.",
    )
    none = answer("", 4)
    yield Claim(
        "with an empty setting, it sees none",
        none == _seen("", 4),
        f"You return {none} for four GPUs. An empty variable is still set.",
    )
    cases = [("2,7,1", 4), ("0,2,-1,1", 4), ("5", 4), ("4,0", 4)]
    got = {case: answer(*case) for case in cases}
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


@EXERCISES.add("01.5", "years, values", returns=(float, int), gpus=GPUS)
def doubling_time(answer):
    years = np.array([2001.0, 2002, 2005, 2009, 2010])
    exact = float(answer(years, 5 * 2 ** ((years - 2001) / 3)))
    yield Claim(
        "for values that double every 3 years, it returns 3",
        abs(exact - 3) < 1e-6,
        _wrong_doubling(exact),
    )
    values = np.array([1.0, 1.9, 2.2, 9.5, 8.0])
    wanted = 1 / np.polyfit(years, np.log2(values), 1)[0]
    value = float(answer(years, values))
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
    yield Claim(
        "for scattered points, it uses the least-squares line",
        abs(value - wanted) < 1e-6,
        hint,
    )


def _wrong_doubling(value: float) -> str:
    known = {
        1 / 3: "That's how often it doubles in a year.",
        3 / np.log(2): "In that time it grows by a factor of e, not 2.",
        3 / np.log10(2): "In that time it grows tenfold.",
        2 ** (1 / 3): "That's the factor by which it grows in a year.",
        2 ** (10 / 3): "That's the factor by which it grows in ten years.",
    }
    for wrong, text in known.items():
        if abs(value - wrong) < 1e-6:
            return f"You return {value:.4g}. {text}"
    return (
        f"You return {value:.4g}. Exponential growth is a straight line only if you "
        "plot the logarithms."
    )
