"""Devices: how fast they are, when a GPU pays, their names, and which ones exist.

Exercises about names look at the names that devices really have, and not at those that
`Gpus` gives them in records.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from unittest.mock import patch

import torch

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.shared import lesson_01 as common
from d2l_gpu.torch.gpus.torch_gpus import _gpus

EXERCISES = Registry()
EXERCISES.add("01.1", "m, k, n, seconds, peak", returns=(float, int))(
    common.share_of_peak
)

GPUS = 3  # one more than in the lesson, to catch answers with a hard-coded two

# ------------------------------------------------------------------ 01.2


def _crossings(
    answer: Callable, gpus: Gpus, cases: Sequence[Sequence[tuple[int, float]]]
) -> list[int]:
    return [answer(*map(tuple, case)) for case in cases]


@EXERCISES.add("01.2", "cpu, gpu", returns=int)
def overtakes(run: Run):
    one_core = (1, 1.0), (64, 4.0)
    many_cores = (16, 1.0), (2048, 20.0)
    between = (4, 1.0), (64, 2.5)
    found = run(_crossings, [one_core, many_cores, between])
    yield Claim(
        "a CPU that does one task a second loses to a GPU that takes 4 s from 5 tasks "
        "on",
        found[0] == 5,
        _not_overtaken(found[0], *one_core),
    )
    yield Claim(
        "a CPU with 16 cores holds out 16 times as long",
        found[1] == 321,
        _not_overtaken(found[1], *many_cores),
    )
    yield Claim(
        "the last round takes its full time, even if it's not full",
        found[2] == 9,
        _not_overtaken(found[2], *between),
    )
    bigger = run(_crossings, [((4, 1.0), (10**6, 2.5))])
    yield Claim(
        "a GPU that does more at once, but isn't quicker, doesn't overtake sooner",
        bigger == [9],
        "It depends on how many tasks the GPU can do at once, although it does all of "
        "them in its first round.",
    )
    faster = run(_crossings, [((4, 1.0), (64, 0.5))])
    yield Claim(
        "a GPU that's quicker at a single task wins from the first one on",
        faster == [1],
        f"With a GPU that takes 0.5 s, you return {faster[0]}.",
    )


def _finished(tasks: int, device: tuple[int, float]) -> float:
    at_once, seconds = device
    return -(-tasks // at_once) * seconds


def _not_overtaken(got: int, cpu: tuple[int, float], gpu: tuple[int, float]) -> str:
    if got < 1:
        return f"You return {got}. There has to be at least one task."
    mine, theirs = _finished(got, cpu), _finished(got, gpu)
    what = f"With {got} task{'s' * (got != 1)}, the CPU finishes after {mine:g} s"
    if mine == theirs:
        return f"{what}, and so does the GPU. That's a tie."
    if mine < theirs:
        return f"{what} and the GPU after {theirs:g} s, so the CPU is still faster."
    return f"{what} and the GPU after {theirs:g} s, but the GPU has won before that."


# ------------------------------------------------------------------ 01.3 and 01.4


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


@EXERCISES.add("01.3", "device", returns=bool, gpus=GPUS)
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


@EXERCISES.add("01.4", "a, b", returns=bool, gpus=GPUS)
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
    same = ", ".join(forth)
    return (
        f"{text}you say that `{bare}` is the same device as {same}. Where does a "
        f"tensor go that's sent to `{bare}`?"
    )


# ------------------------------------------------------------------ 01.5


@contextlib.contextmanager
def _only(n: int) -> Iterator[None]:
    """Let PyTorch and the helper see only the first n GPUs."""
    decision = _gpus.decision
    fewer = replace(decision, devices=decision.devices[:n]) if n else None
    here, kind = torch.accelerator, torch.accelerator.current_accelerator()
    names = {
        "is_available": lambda: n > 0,
        "device_count": lambda: n,
        "current_accelerator": lambda check_available=False: kind if n else None,
    }
    with (
        patch.multiple(_gpus, decision=fewer, real=list),
        patch.multiple(here, **names),
        patch.object(torch.get_device_module(kind), "device_count", lambda: n),
        patch.object(torch.get_device_module(kind), "is_available", lambda: n > 0),
    ):
        yield


# What an answer may raise that didn't reckon with a machine without GPUs.
_RAISED = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(RuntimeError, TypeError, ValueError),
)


def _picked(answer: Callable, gpus: Gpus, seen: int, ranks: Sequence[int]) -> list[str]:
    """Return the names of the devices for some ranks, if PyTorch sees so many GPUs; or
    the error that is raised if it sees none."""
    with _only(seen) if seen < GPUS else contextlib.nullcontext():
        try:
            return [str(answer(rank)) for rank in ranks]
        except _RAISED as error:
            if seen:
                raise
            return [f"{type(error).__name__}: {error}"]


@EXERCISES.add("01.5", "rank", returns=torch.device, gpus=GPUS)
def pick_device(run: Run):
    wanted = [str(d2l.gpu(i % GPUS)) for i in range(2 * GPUS)]
    first = run(_picked, GPUS, list(range(GPUS)))
    yield Claim(
        "with three GPUs, ranks 0, 1 and 2 get one each",
        first == wanted[:GPUS],
        _not_one_each(first),
    )
    more = run(_picked, GPUS, list(range(GPUS, 2 * GPUS)))
    yield Claim(
        "more workers than GPUs go around",
        more == wanted[GPUS:],
        _not_around(more),
    )
    one = run(_picked, 1, [0, 1, 2])
    yield Claim(
        "with one GPU, all workers share it",
        one == wanted[:1] * 3,
        f"When PyTorch sees a single GPU, rank 1 gets {one[1]}. Ask for the number of "
        "GPUs in each call.",
    )
    (none,) = run(_picked, 0, [1])
    what = "raises" if ": " in none else "returns"
    yield Claim(
        "without a GPU, it returns the CPU",
        none == str(d2l.cpu()),
        f"Without a GPU it {what} {none}.",
    )


def _not_one_each(got: Sequence[str]) -> str:
    bare = d2l.gpu(0).type
    if set(got) == {str(d2l.cpu())}:
        return (
            "There are three GPUs, but every worker gets the CPU. The GPUs aren't "
            f"CUDA's: PyTorch calls them `{bare}`."
        )
    if set(got) == {bare}:
        return (
            f"Every worker gets `{bare}`, without an index. Which device does that "
            "mean in a process that has just started?"
        )
    if len(set(got)) == 1:
        return f"Every worker gets {got[0]}, and the other GPUs stay idle."
    return f"They get {', '.join(got)}. Indices count from 0, as ranks do."


def _not_around(got: Sequence[str]) -> str:
    if set(got) == {str(d2l.cpu())}:
        return "Rank 3 gets the CPU, although each of the GPUs could take two workers."
    if len(set(got)) == 1:
        return f"Ranks 3, 4 and 5 all get {got[0]}, so that GPU has four workers."
    if got[0] == f"{d2l.gpu(0).type}:{GPUS}":
        return f"Rank 3 gets {got[0]}, which doesn't exist."
    return f"Ranks 3, 4 and 5 get {', '.join(got)}."
