import torch
from torch import nn
from torch.nn import functional as F

from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


def all_gpus():
    """As the book's ``try_all_gpus``."""
    return [torch.device("cuda", i) for i in range(torch.cuda.device_count())]


# ------------------------------------------------------------------ A1.1


@right("A1.1")
def row_by_row(X, devices=()):
    devices = list(devices) or all_gpus()
    sizes = [len(range(i, len(X), len(devices))) for i in range(len(devices))]
    return [part.to(d) for part, d in zip(X.split(sizes), devices, strict=True)]


def cut(X, devices):
    parts = X.tensor_split(len(devices))
    return [part.to(device) for part, device in zip(parts, devices, strict=True)]


AS_IN_THE_NOTEBOOK = [torch.device("cuda", i) for i in range(2)]


@wrong("A1.1", "Python evaluates a default argument once")
def with_a_default(X, devices=AS_IN_THE_NOTEBOOK):
    return cut(X, devices)


@wrong("A1.1", "it raises RuntimeError. A default is computed once")
def looked_before_there_were_any(X, devices=()):
    return cut(X, devices)


BEFORE_THERE_WERE_ANY = all_gpus() or [torch.device("cpu")]


@wrong("A1.1", "GPUs before there were any")
def looked_too_early(X, devices=BEFORE_THERE_WERE_ANY):
    return cut(X, devices)


@wrong("A1.1", "a list of tuple, tuple, tuple")
def with_their_devices(X, devices=None):
    devices = devices or all_gpus()
    return list(zip(cut(X, devices), devices, strict=True))


@wrong("A1.1", "only one shard")
def on_the_first(X, devices=None):
    return cut(X, devices or [torch.device("cuda:0")])


@wrong("A1.1", "You were given GPU 2 and GPU 0")
def ignores_devices(X, devices=None):
    return cut(X, all_gpus())


@wrong("A1.1", "Your shards have 6 rows in total")
def drops_the_rest(X, devices=None):
    devices = devices or all_gpus()
    return cut(X[: len(X) // len(devices) * len(devices)], devices)


@wrong("A1.1", "They have 4, 2, 2 rows")
def gives_the_rest_to_the_last(X, devices=None):
    devices = devices or all_gpus()
    size, last = len(X) // len(devices), len(devices) - 1
    parts = X.split([size] * last + [len(X) - size * last])
    return [part.to(device) for part, device in zip(parts, devices, strict=True)]


@wrong("A1.1", "Your shards have 5 rows in total")
def thirds(X, devices=None):
    devices = devices or all_gpus()
    parts = X.tensor_split(3)
    return [part.to(device) for part, device in zip(parts, devices, strict=False)]


@wrong("A1.1", "They have 3, 3, 1 rows")
def in_chunks(X, devices=None):
    devices = devices or all_gpus()
    parts = X.chunk(len(devices))
    return [part.to(device) for part, device in zip(parts, devices, strict=True)]


@wrong("A1.1", "but their order or values aren't")
def deals_out(X, devices=None):
    devices = devices or all_gpus()
    return [X[i :: len(devices)].to(device) for i, device in enumerate(devices)]


# ------------------------------------------------------------------ A1.2


@right("A1.2")
def one_by_one(n):
    there = torch.cuda.device_count()
    if n not in range(there + 1):
        raise ValueError(f"{n} GPUs are wanted, of {there}.")
    return [torch.device(f"cuda:{i}") for i in range(n)]


@wrong("A1.2", "For 7, you return a list of length")
def as_the_book(n):
    return [torch.device("cuda", i) for i in range(min(n, torch.cuda.device_count()))]


@wrong("A1.2", "all but the last")
def slices(n):
    if n > len(all_gpus()):
        raise ValueError(f"There are {len(all_gpus())} GPUs, and not {n}.")
    return all_gpus()[:n]


@wrong("A1.2", "There's a different exception")
def raises_another(n):
    assert 0 <= n <= len(all_gpus()), f"{n} of {len(all_gpus())}"
    return all_gpus()[:n]


@wrong("A1.2", "Which of the two numbers")
def says_little(n):
    if not 0 <= n <= len(all_gpus()):
        raise ValueError("not so many GPUs")
    return all_gpus()[:n]


@wrong("A1.2", "For 2, you return 'cuda:0'")
def names_them(n):
    return [f"cuda:{i}" for i in range(n)]


@wrong("A1.2", "with the numbers 1, 2")
def counts_from_one(n):
    return [torch.device("cuda", i) for i in range(1, n + 1)]


@wrong("A1.2", "For 0 you return 3, and for 3 you")
def takes_none_for_all(n):
    return all_gpus()[: n or None]


# ------------------------------------------------------------------ A1.3


def gradients(net, X, y, reduction="sum"):
    loss = F.cross_entropy(net(X), y, reduction=reduction)
    return torch.autograd.grad(loss, list(net.parameters()))


def judged(whole, halves):
    pairs = list(zip(whole, halves, strict=True))
    if all(torch.equal(a, b) for a, b in pairs):
        return "bits"
    near = all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs)
    return "rounding" if near else "different"


def of_halves(net, X, y, **options):
    return [
        a + b
        for a, b in zip(
            gradients(net, X[:32], y[:32], **options),
            gradients(net, X[32:], y[32:], **options),
            strict=True,
        )
    ]


@right("A1.3")
def without_backward(net, X, y):
    return judged(gradients(net, X, y), of_halves(net, X, y))


@wrong("A1.3", "as small as if you had divided")
def of_means(net, X, y):
    options = {"reduction": "mean"}
    return judged(gradients(net, X, y, **options), of_halves(net, X, y, **options))


def backward(net, X, y):
    nn.CrossEntropyLoss(reduction="sum")(net(X), y).backward()


@wrong("A1.3", "You return 'bits' for every network")
def keeps_no_copy(net, X, y):
    net.zero_grad()
    backward(net, X, y)
    whole = [p.grad for p in net.parameters()]
    for part, labels in zip(X.chunk(2), y.chunk(2), strict=True):
        backward(net, part, labels)
    return judged(whole, [p.grad for p in net.parameters()])


@wrong("A1.3", "`backward` adds to what is already in `p.grad`")
def forgets_to_begin_anew(net, X, y):
    backward(net, X, y)
    whole = [p.grad.clone() for p in net.parameters()]
    for part, labels in zip(X.chunk(2), y.chunk(2), strict=True):
        backward(net, part, labels)
    return judged(whole, [p.grad for p in net.parameters()])


@wrong("A1.3", "by how much")
def knows_no_rounding(net, X, y):
    said = without_backward(net, X, y)
    return "different" if said == "rounding" else said


@wrong("A1.3", "gradients whose bits are all the same")
def knows_no_bits(net, X, y):
    said = without_backward(net, X, y)
    return "rounding" if said == "bits" else said


@wrong("A1.3", "the batch statistics differ")
def without_training(net, X, y):
    net.eval()
    return without_backward(net, X, y)


@wrong("A1.3", "You return 'different', 'equal'")
def in_words_of_its_own(net, X, y):
    return "equal" if without_backward(net, X, y) == "bits" else "different"


@wrong("A1.3", "2 × 32")
def halves_only(net, X, y):
    return judged(gradients(net, X[:32], y[:32]), gradients(net, X[32:], y[32:]))


# ------------------------------------------------------------------ A1.4

right("A1.4")((1024, 32_768))
wrong("A1.4", "waits for the host")((16, 32))
wrong("A1.4", "the parameters cross")((8192, 32))
wrong("A1.4", "has 16 GB")((8192, 10**6))
wrong("A1.4", "be divided between two GPUs")((1024, 1))
wrong("A1.4", "The first number is the width")((1024, 0))
