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
        "with three GPUs, the indices from 0 to 6 go around them",
        got == wanted,
        _not_around(got, wanted),
    )
    with _only(1):
        got = [answer(i) for i in range(3)]
    yield Claim(
        "with one GPU, it is always that one",
        got == [d2l.gpu(0)] * 3,
        f"The index 1 gives {got[1]} there, and `num_gpus()` is 1. Ask for the number "
        "in each call.",
    )
    with _only(0):
        try:
            got = answer(1)
            what = f"is {got}"
        except (ArithmeticError, IndexError, ValueError) as error:
            got, what = None, f"raises {type(error).__name__}: {error}"
    yield Claim(
        "without any GPU, it is the CPU",
        got == d2l.cpu(),
        f"There it {what}. `num_gpus()` is 0 there, and what is `try_all_gpus()`?",
    )


def _not_around(got: Sequence[torch.device], wanted: Sequence[torch.device]) -> str:
    if got == wanted:
        return ""
    beyond = set(got[GPUS:])
    if got[:GPUS] == wanted[:GPUS] and beyond == {d2l.cpu()}:
        return "Beyond the last GPU yours is polite and takes the CPU."
    if got[:GPUS] == wanted[:GPUS] and len(beyond) == 1:
        return f"Beyond the last GPU it is always {got[-1]}."
    if got[0] != wanted[0]:
        return f"The index 0 gives {got[0]}. Indices count from 0."
    i = next(i for i, device in enumerate(got) if device != wanted[i])
    return (
        f"The index {i} gives {got[i]}, although {GPUS} are in use. Is their number "
        "written down somewhere?"
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
        "each GPU in use is there",
        all(said is True for said in there.values()),
        f"It says: {_said(there)}. They are the GPUs in use, whatever their type is.",
    )
    yield Claim(
        "the CPU is there",
        cpu is True,
        f"Of the CPU it says {cpu}. The CPU is a device as well, and is not among the "
        "GPUs.",
    )
    if beyond is True and all(said is True for said in absent.values()):
        hint = (
            "It says True of any name. That a `torch.device` can be made means "
            "nothing: when does PyTorch look whether the device is there?"
        )
    elif beyond is True:
        hint = "Of a GPU beyond the last one it says True: the type is not enough."
    else:
        hint = (
            f"For a GPU beyond the last one it ends in {beyond}, which is PyTorch's "
            "way to say no."
        )
    yield Claim("a GPU beyond the last one is not", beyond is False, hint)
    raised = [said for said in absent.values() if isinstance(said, str)]
    if raised:
        hint = (
            f"One of them ends in {raised[0]}. PyTorch has several ways to say that it "
            "cannot use a device."
        )
    else:
        hint = f"It says: {_said(absent)}. An index is there for one type, not for all."
    yield Claim(
        "nor are GPUs of types that this machine has not",
        all(said is False for said in absent.values()),
        hint,
    )


def _said(answers: dict) -> str:
    return ", ".join(f"{said} of {device}" for device, said in answers.items())


@EXERCISES.add("01.3", "a, b", returns=bool, gpus=GPUS)
def same_device(answer):
    cpu, gpu = d2l.cpu(), d2l.gpu(0).type
    bare = torch.device(gpu)
    yield Claim(
        "two indices are two devices, and one is one",
        answer(d2l.gpu(1), d2l.gpu(1)) and not answer(d2l.gpu(0), d2l.gpu(1)),
        f"Compare {d2l.gpu(0)} with {d2l.gpu(1)}: the type is the same, and they are "
        "two.",
    )
    yield Claim(
        "the CPU is the CPU, and no GPU",
        answer(cpu, cpu) and not answer(cpu, bare) and not answer(bare, cpu),
        f"`{cpu}` and `{bare}` have the same index, which is None.",
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
            "It depends on which of the two comes first. Either may lack its index."
            if both
            else f"While {d2l.gpu(0)} is the current device, a tensor put on `{bare}` "
            f"lands there. Two names may differ and mean the same device."
        )
    else:
        hint = (
            f"It holds while {d2l.gpu(0)} is the current device, and not while another "
            "one is. A missing index is not the index 0."
        )
    yield Claim(
        f"`{bare}` is the current device, whichever that is",
        all(first) and all(others),
        hint,
    )


@EXERCISES.add("01.4", "setting, n", returns=list, gpus=GPUS)
def visible(answer):
    swapped = answer("3,1", 4)
    yield Claim(
        "with `3,1`, two of four are seen, in their order",
        swapped == _seen("3,1", 4),
        _wrongly_seen(swapped),
    )
    unset = answer(None, 4)
    yield Claim(
        "with no setting, all are seen",
        unset == _seen(None, 4),
        f"Of four GPUs, yours sees {unset}. What is not set hides nothing.",
    )
    none = answer("", 4)
    yield Claim(
        "with the empty setting, none is seen",
        none == _seen("", 4),
        f"Of four GPUs, yours sees {none}. A variable that is set to nothing is set.",
    )
    cases = [("2,7,1", 4), ("0,2,-1,1", 4), ("5", 4), ("4,0", 4)]
    got = {case: answer(*case) for case in cases}
    setting, n = next((case for case in cases if got[case] != _seen(*case)), cases[0])
    wrong = got[setting, n]
    numbers = [int(each) for each in setting.split(",")]
    if wrong == numbers:
        hint = f"With `{setting}` and {n} GPUs it is {wrong}. Are they all there?"
    elif wrong == [each for each in numbers if 0 <= each < n]:
        hint = (
            f"With `{setting}` and {n} GPUs it is {wrong}: the wrong index is left "
            "out. What becomes of those behind it?"
        )
    else:
        hint = (
            f"With `{setting}` and {n} GPUs it is {wrong}. Which is the first index "
            "that this machine does not have?"
        )
    yield Claim(
        "an index that is not there ends the list",
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
        return "So the program numbers them. Which GPUs of the machine are these?"
    if got == [1, 3]:
        return "These are the two, but the program's first one is not the machine's 1."
    if got == ["3", "1"]:
        return "These are texts, and numbers are asked for."
    return f"With `3,1` and four GPUs, yours sees {got}."


@EXERCISES.add("01.5", "years, values", returns=(float, int), gpus=GPUS)
def doubling_time(answer):
    years = np.array([2001.0, 2002, 2005, 2009, 2010])
    exact = float(answer(years, 5 * 2 ** ((years - 2001) / 3)))
    yield Claim(
        "what doubles every 3 years, doubles every 3 years",
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
    hint = f"It gives {value:.4g} years where the line gives {wanted:.4g}."
    if abs(value - ends) < 1e-6:
        hint = "Only the first and the last value count in yours."
    elif abs(value - turned) < 1e-6:
        hint = (
            "The years were fitted to the values, as if the years were what scatters. "
            "Which of the two is on the axis from left to right?"
        )
    elif abs(value - steps) < 1e-6:
        hint = (
            "It is the mean of the growth from each value to the next, in which a step "
            "of one year counts as much as one of four. The line weighs all points."
        )
    yield Claim(
        "through points off the line goes the straight line of least squares",
        abs(value - wanted) < 1e-6,
        hint,
    )


def _wrong_doubling(value: float) -> str:
    known = {
        1 / 3: "That is how often it doubles in a year.",
        3 / np.log(2): "In that time it grows by the factor e, not by 2.",
        3 / np.log10(2): "In that time it grows tenfold.",
        2 ** (1 / 3): "That is the factor by which it grows in a year.",
        2 ** (10 / 3): "That is the factor by which it grows in ten years.",
    }
    for wrong, text in known.items():
        if abs(value - wrong) < 1e-6:
            return f"It gives {value:.4g}. {text}"
    return (
        f"It gives {value:.4g}. Growth by a factor is a curve, and a straight line "
        "only in the logarithms."
    )
