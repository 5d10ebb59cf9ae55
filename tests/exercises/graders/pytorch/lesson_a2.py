import numpy as np
import torch

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_a2 import add_shared

ANSWERS = Answers()


def to(x, device):
    return torch.as_tensor(x).to(device)


add_shared(ANSWERS, to, lambda x: x.device, lambda x: x.cpu().numpy())


@ANSWERS.wrong("A2.1", "`x` had changed")
def subtracts_in_place(x, device):
    x = x.to(device)
    x -= x.mean()
    return x


@ANSWERS.wrong("A2.3", "`parts[0]` had changed")
def sums_in_place(parts):
    for part in parts[1:]:
        parts[0] += part.to(parts[0].device)
    return [parts[0].to(part.device) for part in parts]


@ANSWERS.wrong("A2.2", "For an `X` of float16, the shards contain float32")
def by_way_of_lists(X, devices):
    return [
        torch.tensor(part.tolist(), device=device)
        for part, device in zip(np.array_split(X, len(devices)), devices, strict=True)
    ]


@ANSWERS.wrong("A2.2", "For an `X` of int64, the shards contain float32")
def always_of_the_default_type(X, devices):
    found = []
    for part, device in zip(np.array_split(X, len(devices)), devices, strict=True):
        shard = torch.empty(part.shape, device=device)
        found.append(shard.copy_(torch.from_numpy(part)))
    return found
