import torch

from d2l_gpu import torch as d2l
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


@right("00.1")
def by_copying(devices):
    tensors = []
    for device in devices:
        tensors.append(torch.full((2, 3), 1.0).to(device))
    return tensors


@wrong("00.1", "on GPU 0, the first of the devices")
def all_on_the_first(devices):
    return [torch.ones(2, 3, device=devices[0]) for _ in devices]


@wrong("00.1", "Your tensors are on the CPU")
def without_a_device(devices):
    return [torch.ones(2, 3) for _ in devices]


@wrong("00.1", "For the devices GPU 2, in this order, your tensors are on GPU 0")
def by_their_own_count(devices):
    return [torch.ones(2, 3, device=d2l.gpu(i)) for i in range(len(devices))]


@wrong("00.1", "For a list of 1 device, you return a list of length 4")
def on_all_there_are(devices):
    return [torch.ones(2, 3, device=d2l.gpu(i)) for i in range(4)]


@wrong("00.1", "of shape (3, 2)")
def on_their_sides(devices):
    return [torch.ones(3, 2, device=device) for device in devices]


@wrong("00.1", "Not all numbers")
def with_other_numbers(devices):
    return [torch.zeros(2, 3, device=device) for device in devices]


@wrong("00.1", "a value of type device")
def returns_the_devices(devices):
    return [*devices]


@wrong("00.1", "returned a Tensor; it must be a list")
def one_for_all(devices):
    return torch.ones(2, 3, device=devices[0])
