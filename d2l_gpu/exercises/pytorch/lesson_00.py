"""The first exercise, which shows how exercises check themselves."""

from collections.abc import Callable, Sequence

import torch

from d2l_gpu.exercises.crossing import HOST
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.variants.draw import one_of

EXERCISES = Registry()
GPUS = 4


def _placed(answer: Callable, gpus: Gpus, wanted: Sequence[int]) -> dict:
    """Return what the answer makes of a list of GPUs, given by their indices."""
    found = answer([gpus[i] for i in wanted])
    tensors = [x for x in found if isinstance(x, torch.Tensor)]
    return {
        "returned": len(found),
        "others": [type(x).__name__ for x in found if not isinstance(x, torch.Tensor)],
        "shapes": [tuple(x.shape) for x in tensors],
        "values": [x.detach().cpu().unique().tolist() for x in tensors],
        "where": [gpus.where(x) for x in tensors],
    }


@EXERCISES.add(
    "00.1",
    "devices",
    returns=list,
    gpus=GPUS,
    vary={"shape": one_of((2, 3), (3, 2), (2, 5), (4, 3), (3, 4), (5, 2))},
)
def ones_on(run: Run, shape: tuple[int, int]):
    lists = [[0, 1, 2, 3], [2], [3, 0, 1]]
    found = [run(_placed, indices) for indices in lists]
    lengths = [each["returned"] for each in found]
    wanted = list(map(len, lists))
    yield Claim(
        "there is one tensor for each device",
        lengths == wanted and not any(each["others"] for each in found),
        _not_one_each(lengths, wanted, [x for each in found for x in each["others"]]),
    )
    if lengths != wanted:
        return
    shapes = {shape for each in found for shape in each["shapes"]}
    yield Claim(
        f"each has shape {shape}",
        shapes == {shape},
        f"You return tensors of shape {_row(shapes)}.",
    )
    values = {tuple(its) for each in found for its in each["values"]}
    yield Claim(
        "each is filled with ones",
        values == {(1.0,)},
        "Not all numbers in your tensors are 1.",
    )
    where = [each["where"] for each in found]
    yield Claim(
        "each is on its device, in the order of the list",
        where == [[f"GPU {i}" for i in indices] for indices in lists],
        _elsewhere(lists, where),
    )


def _not_one_each(
    lengths: Sequence[int], wanted: Sequence[int], others: Sequence[str]
) -> str:
    if others:
        return f"Your list holds a value of type {others[0]}, which isn't a tensor."
    for got, devices in zip(lengths, wanted, strict=True):
        if got != devices:
            noun = "device" if devices == 1 else "devices"
            return f"For a list of {devices} {noun}, you return a list of length {got}."
    return ""


def _elsewhere(lists: Sequence[Sequence[int]], where: Sequence[Sequence[str]]) -> str:
    """Return a hint about the first list with tensors that aren't on their devices."""
    for indices, places in zip(lists, where, strict=True):
        wanted = [f"GPU {i}" for i in indices]
        if places == wanted:
            continue
        if set(places) == {HOST}:
            return "Your tensors are on the CPU. Say on which device to create them."
        if len(places) > 1 and set(places) == {wanted[0]}:
            return f"All your tensors are on {places[0]}, the first of the devices."
        return (
            f"For the devices {_row(wanted)}, in this order, your tensors are on "
            f"{_row(places)}."
        )
    return ""


def _row(values) -> str:
    return ", ".join(map(str, sorted(values) if isinstance(values, set) else values))
