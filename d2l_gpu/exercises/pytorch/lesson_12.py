"""Where the memory goes: predicting it, and programs that need too much of it."""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.pytorch.arrays import as_number
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.variants.draw import Draw, Vary, seeds

EXERCISES = Registry()

# ------------------------------------------------------------------ a prediction

WORDS = 50_257

# Width, depth, batch and length. The update decides in the second and in the last one,
# and the loss takes more than the blocks keep in the third.
_GPTS = (
    (768, 12, 8, 1024),
    (1024, 48, 1, 64),
    (256, 4, 16, 512),
    (1024, 48, 2, 1024),
    (1536, 32, 1, 128),
)


def _other_gpts(draw: Draw) -> tuple[tuple[int, int, int, int], ...]:
    """Return models like the usual ones: the same parts of a step decide."""
    return (
        (64 * draw.integer(10, 14), draw.integer(10, 16), 8, 1024),
        (1024, draw.integer(40, 56), 1, 64),
        (256, draw.integer(3, 5), 16, 64 * draw.integer(7, 9)),
        (1024, draw.integer(40, 56), 2, 1024),
        (64 * draw.integer(22, 26), draw.integer(28, 36), 1, 128),
    )


class _Block(nn.Module):
    """The lesson's block of a transformer."""

    def __init__(self, width: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, X):
        qkv = self.qkv(self.norm1(X)).unflatten(-1, (3, X.shape[-1] // 64, -1))
        H = F.scaled_dot_product_attention(
            *qkv.transpose(1, 3).unbind(2), is_causal=True
        )
        X = X + self.out(H.transpose(1, 2).flatten(2))
        return X + self.down(F.gelu(self.up(self.norm2(X))))


class _GPT(nn.Module):
    """The lesson's model."""

    def __init__(self, width: int, depth: int, length: int):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, X):
        H = self.words(X) + self.places.weight
        for block in self.blocks:
            H = block(H)
        return self.norm(H) @ self.words.weight.T


@functools.cache
def _peak(width: int, depth: int, batch: int, length: int) -> int:
    """Return the simulated peak of a step, in bytes."""
    sim = d2l.simulator(1, "A100", memory="800GiB", backing="meta")
    with torch.device("meta"):
        net = _GPT(width, depth, length).to(torch.bfloat16)
    net.to_empty(device=sim.gpu())
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    X = torch.zeros(batch, length, dtype=torch.long, device=sim.gpu())
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(net(X).flatten(0, 1), X.flatten()).backward()
        optimizer.step()
    return torch.vgpu.max_memory_allocated(sim.gpu())


def _parts(width: int, depth: int, batch: int, length: int) -> tuple[int, int, int]:
    """Return the parameters, the bytes that blocks keep, and those of the logits."""
    parameters = 12 * depth * width**2 + (WORDS + length) * width
    tokens = batch * length
    return parameters, 32 * tokens * width * depth, 2 * tokens * WORDS


# What readers forget, each with what they would predict.
_FORGOTTEN = {
    "You leave out the update. When the backward pass is done, all gradients are there "
    "beside the parameters and Adam's averages.": lambda p, kept, logits: (
        6 * p + kept + 3 * logits
    ),
    "You add up what's never there at the same time. The backward pass frees "
    "activations while gradients appear, so take the larger of two moments.": (
        lambda p, kept, logits: 8 * p + kept + 3 * logits
    ),
    "You leave out the loss. With 50,257 logits for every token, its three tensors "
    "can take more than all blocks keep.": lambda p, kept, logits: max(
        8 * p, 6 * p + kept
    ),
    "You count the model states as if they were fp32. Here everything has 16 bits, "
    "Adam's averages too.": lambda p, kept, logits: max(
        16 * p, 12 * p + kept + 3 * logits
    ),
    "You leave out Adam's two averages.": lambda p, kept, logits: max(
        4 * p, 2 * p + kept + 3 * logits
    ),
    "You count the activations of a single block.": None,
}


def _predicted(answer: Callable, gpus: Gpus, gpts: Sequence[tuple]) -> list[float]:
    return [float(answer(*plan)) for plan in gpts]


@EXERCISES.add(
    "12.1",
    "width, depth, batch, length",
    returns=(int, float),
    vary={"gpts": Vary(_GPTS, _other_gpts)},
)
def peak_bytes(run: Run, gpts: Sequence[tuple]):
    found = run(_predicted, gpts)
    right = [_peak(*plan) for plan in gpts]
    yield Claim(
        "the peak is right within 10%, with small batches and large ones",
        all(
            0.9 * true <= mine <= 1.1 * true
            for mine, true in zip(found, right, strict=True)
        ),
        _wrong_peak(found, right, gpts),
    )


def _wrong_peak(
    found: Sequence[float], right: Sequence[int], gpts: Sequence[tuple]
) -> str:
    for hint, formula in _FORGOTTEN.items():
        wrong = []
        for plan in gpts:
            p, kept, logits = _parts(*plan)
            if formula is None:
                wrong.append(max(8 * p, 6 * p + kept / plan[1] + 3 * logits))
            else:
                wrong.append(formula(p, kept, logits))
        if np.allclose(found, wrong, rtol=0.02):
            return hint
    for plan, mine, true in zip(gpts, found, right, strict=True):
        if not 0.9 * true <= mine <= 1.1 * true:
            if abs(mine * 2**30 / true - 1) < 0.1:
                return "Those are GiB. Return bytes."
            width, depth, batch, length = plan
            return (
                f"With a width of {width:,}, a depth of {depth}, a batch of {batch} "
                f"and a length of {length:,}, the peak is {true / 2**30:.2f} GiB. You "
                f"predict {mine / 2**30:.2f} GiB."
            )
    return ""


# ------------------------------------------------------------------ the loss in pieces

_TOKENS, _WIDTH, _VOCABULARY = 400, 8, 2000


def _hidden(data: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(data)
    H, W = torch.randn(_TOKENS, _WIDTH), torch.randn(_VOCABULARY, _WIDTH)
    return H, W, torch.randint(_VOCABULARY, (_TOKENS,))


def _loss_of(answer: Callable, gpus: Gpus, pieces: int, data: int) -> dict:
    """Return the loss and its gradients, and the most memory of either pass."""
    H, W, y = (each.to(gpus[0]) for each in _hidden(data))
    H.requires_grad_(), W.requires_grad_()
    device = torch.get_device_module(gpus[0])
    before = device.memory_allocated(gpus[0])
    device.reset_peak_memory_stats(gpus[0])
    loss = answer(H, W, y, pieces)
    forward = device.max_memory_allocated(gpus[0]) - before
    device.reset_peak_memory_stats(gpus[0])
    if loss.requires_grad and loss.dim() == 0:
        loss.backward()
    backward = device.max_memory_allocated(gpus[0]) - before
    return {
        "shape": list(loss.shape),
        "loss": float(loss.detach().mean()),
        "gradients": [None if x.grad is None else x.grad.cpu().numpy() for x in (H, W)],
        "forward": forward,
        "backward": backward,
    }


@EXERCISES.add("12.2", "H, W, y, pieces", returns=torch.Tensor, vary={"data": seeds()})
def loss_in_pieces(run: Run, data: int):
    runs = {pieces: run(_loss_of, pieces, data) for pieces in (1, 5, 7)}
    H, W, y = _hidden(data)
    H.requires_grad_(), W.requires_grad_()
    wanted = F.cross_entropy(H @ W.T, y)
    wanted.backward()
    scalar = all(found["shape"] == [] for found in runs.values())
    yield Claim(
        "it returns a tensor with a single number",
        scalar,
        f"Yours has the shape {tuple(runs[5]['shape'])}.",
    )
    losses = {pieces: found["loss"] for pieces, found in runs.items()}
    same = [math.isclose(x, float(wanted), rel_tol=1e-4) for x in losses.values()]
    yield Claim(
        "it's the mean loss of all tokens",
        all(same),
        _wrong_loss(losses, float(wanted)),
    )
    if not all(same):
        return
    close = [
        found is not None and np.allclose(found, x.grad.numpy(), atol=1e-5)
        for each in runs.values()
        for found, x in zip(each["gradients"], (H, W), strict=True)
    ]
    missing = any(g is None for each in runs.values() for g in each["gradients"])
    yield Claim(
        "`backward` gives `H` and `W` the gradients of the whole",
        all(close),
        "One of them has no gradient. What cuts it off from the loss?"
        if missing
        else "They're others, although the loss is right.",
    )
    if not all(close):
        return
    logits = 4 * _TOKENS * _VOCABULARY
    most = {name: runs[5][name] / logits for name in ("forward", "backward")}
    yield Claim(
        "the forward pass leaves no logits behind",
        most["forward"] < 0.65,
        f"In five pieces, the forward pass needs {most['forward']:.1f} times the "
        "memory of all logits. "
        + (
            "Are they computed in pieces at all?"
            if most["forward"] > 1.5
            else "Something of each piece is kept until the backward pass."
        ),
    )
    yield Claim(
        "the backward pass needs the logits of one piece at a time, too",
        most["backward"] < 1.1,
        f"In five pieces, the backward pass needs {most['backward']:.1f} times the "
        "memory of all logits: it computes all of them again at once.",
    )


def _wrong_loss(losses: dict[int, float], wanted: float) -> str:
    if math.isclose(losses[5], wanted * _TOKENS, rel_tol=1e-3):
        return "It's the sum over the tokens, not their mean."
    if math.isclose(losses[5], wanted * 5, rel_tol=1e-3):
        return "With five pieces, it's five times too large: you add up means."
    if math.isclose(losses[5], wanted, rel_tol=1e-4):
        return (
            f"It's right with five pieces, but not with seven: {_TOKENS} tokens can't "
            "be cut into seven equal pieces, so the means of the pieces don't weigh "
            "the same."
        )
    return f"With five pieces, it should be {wanted:.4f}, but yours is {losses[5]:.4f}."


# ------------------------------------------------------------------ a wrong gradient

_LAYERS, _UNITS, _ROWS = 6, 16, 256


def _blocks(data: int) -> list[nn.Module]:
    torch.manual_seed(data)
    return [
        nn.Sequential(
            nn.Linear(_UNITS, 4 * _UNITS),
            nn.GELU(),
            nn.Dropout(0.2),
            nn.Linear(4 * _UNITS, _UNITS),
        )
        for _ in range(_LAYERS)
    ]


def _plain(blocks: Sequence[nn.Module], X: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        X = block(X)
    return X


def _passed(answer: Callable, gpus: Gpus, drops: bool, data: int) -> dict:
    """Return whether outputs and gradients are those without checkpointing."""
    device = torch.get_device_module(gpus[0])
    found = []
    for way in (_plain, answer):
        blocks = [block.to(gpus[0]) for block in _blocks(data)]
        for block in blocks:
            block.train(drops)
        torch.manual_seed(data + 1)
        X = torch.randn(_ROWS, _UNITS).to(gpus[0]).requires_grad_()
        before = device.memory_allocated(gpus[0])
        Y = way(blocks, X)
        kept = device.memory_allocated(gpus[0]) - before
        device.reset_peak_memory_stats(gpus[0])
        Y.square().mean().backward()
        most = device.max_memory_allocated(gpus[0]) - before
        gradients = [p.grad for block in blocks for p in block.parameters()]
        found.append(
            {
                "output": Y.detach().cpu().numpy(),
                "gradients": [
                    None if g is None else g.cpu().numpy() for g in gradients
                ],
                "kept": kept,
                "most": most,
            }
        )
        del Y, X, blocks, gradients
    plain, mine = found
    return {
        "output": np.allclose(plain["output"], mine["output"], atol=1e-5),
        "missing": any(g is None for g in mine["gradients"]),
        "gradients": all(
            g is not None and np.allclose(g, x, rtol=1e-4, atol=1e-7)
            for g, x in zip(mine["gradients"], plain["gradients"], strict=True)
        ),
        "kept": mine["kept"] / plain["kept"],
        "most": mine["most"] / plain["most"],
    }


@EXERCISES.add(
    "12.3",
    "blocks, X",
    returns=torch.Tensor,
    changes="blocks",
    vary={"data": seeds()},
)
def forward(run: Run, data: int):
    steady, dropping = run(_passed, False, data), run(_passed, True, data)
    yield Claim(
        "the output is that of the blocks, one after the other",
        steady["output"] and dropping["output"],
        "It's another one.",
    )
    if not (steady["output"] and dropping["output"]):
        return
    yield Claim(
        "without dropout, the gradients are those without checkpointing",
        steady["gradients"],
        "Some parameters have none."
        if steady["missing"]
        else "They aren't. Which block is run when the backward pass calls your "
        "function again?",
    )
    if not steady["gradients"]:
        return
    yield Claim(
        "with dropout, they are, too",
        dropping["gradients"],
        "They aren't. When a block runs again, it has to drop the same elements as the "
        "first time.",
    )
    yield Claim(
        "activations inside the blocks aren't kept",
        steady["kept"] < 0.4,
        f"After the forward pass, {steady['kept']:.0%} of what's kept without "
        "checkpointing is there.",
    )
    yield Claim(
        "the backward pass brings back one block at a time",
        steady["most"] < 0.6,
        f"The backward pass needs {steady['most']:.0%} of the memory that it needs "
        "without checkpointing: it runs many blocks again before it uses any.",
    )


# ------------------------------------------------------------------ a leak


def _network(data: int) -> nn.Sequential:
    torch.manual_seed(data)
    return nn.Sequential(
        nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10)
    )


def _batches(steps: int, data: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(data + 1)
    return [(torch.randn(128, 32), torch.randint(10, (128,))) for _ in range(steps)]


def _watched(net, optimizer, batches) -> tuple[list[float], list[float]]:
    norms, losses = [], []
    for X, y in batches:
        optimizer.zero_grad()
        for layer in net:
            X = layer(X)
            norms.append(float(X.detach().norm()))
        loss = F.cross_entropy(X, y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, norms


def _trained(answer: Callable, gpus: Gpus, steps: int, data: int) -> dict:
    """Return what an answer returns, how much memory it takes, and its waits."""
    sim = d2l.simulator(1)
    net = _network(data).to(sim.gpu())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    batches = [(X.to(sim.gpu()), y.to(sim.gpu())) for X, y in _batches(steps, data)]
    before = torch.vgpu.memory_allocated(sim.gpu())
    torch.vgpu.reset_peak_memory_stats(sim.gpu())
    sim.reset()
    losses, norms = answer(net, optimizer, batches)
    waits = sum(span.lane == "wait" for span in sim.spans())
    return {
        "losses": [as_number(x) for x in losses],
        "norms": [as_number(x) for x in norms],
        "numbers": all(isinstance(x, float) for x in [*losses, *norms]),
        "most": torch.vgpu.max_memory_allocated(sim.gpu()) - before,
        "waits": waits,
        "hooks": sum(len(layer._forward_hooks) for layer in net),
    }


@EXERCISES.add(
    "12.4",
    "net, optimizer, batches",
    returns=tuple,
    changes="net, optimizer",
    vary={"data": seeds()},
)
def train(run: Run, data: int):
    few, many = run(_trained, 4, data), run(_trained, 24, data)
    net = _network(data)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    wanted = _watched(net, optimizer, _batches(24, data))
    counts = [len(many[name]) for name in ("losses", "norms")]
    yield Claim(
        "it returns a loss for each step, and a norm for each layer and step",
        counts == [24, 120],
        f"For 24 steps and five layers, you return {counts[0]} losses and {counts[1]} "
        "norms.",
    )
    if counts != [24, 120]:
        return
    yield Claim(
        "they're Python numbers",
        few["numbers"] and many["numbers"],
        "Some of them are still tensors. Fetch the values at the end.",
    )
    for name, values in zip(("losses", "norms"), wanted, strict=True):
        yield Claim(
            f"the {name} are those of `train_leaking`",
            np.allclose(many[name], values, rtol=1e-3),
            f"The first of your {name} is {many[name][0]:.4f} and the last "
            f"{many[name][-1]:.4f}; it should be {values[0]:.4f} and "
            f"{values[-1]:.4f}.",
        )
    grown = (many["most"] - few["most"]) / 20
    # A loss and five norms take a block of 512 bytes each.
    yield Claim(
        "the activations of a step don't outlive it",
        grown < 8 * 512,
        f"With every step, {grown / 1024:,.0f} KiB more are in use. What has been "
        "recorded for a backward pass that never comes?",
    )
    yield Claim(
        "Python doesn't wait for the GPU in every step",
        many["waits"] <= 4,
        f"In 24 steps, Python waited {many['waits']} times.",
    )
    yield Claim(
        "no hooks are left behind",
        few["hooks"] == many["hooks"] == 0,
        f"The network still has {many['hooks']}, which would go on recording.",
    )


# ------------------------------------------------------------------ the largest batch

# Bytes of the model states, of the update, and of one example; the memory.
_MODELS = (
    (10, 16, 3.0, 80),
    (10, 16, 3.0, 16),
    (10, 64, 1.0, 64),
    (10, 64, 0.5, 80),
    (10, 16, 0.01, 80),
    (10, 10, 7.0, 16),
    (10, 10, 7.0, 17),
    (12, 16, 5.0, 27),
)


def _other_models(draw: Draw) -> tuple[tuple[int, int, float, int], ...]:
    """Return models like the usual ones: some fit, some don't, some fit exactly."""
    memory = draw.integer(60, 120)
    example = draw.choice((2.0, 3.0, 4.0))
    return (
        (10, 16, example, memory),
        (10, 16, example, 16),
        (10, memory - 3, 1.0, memory - 3),
        (10, memory - 9, 0.5, memory),
        (10, 16, draw.choice((0.01, 0.02)), memory),
        (10, 10, 7.0, 16),
        (10, 10, 7.0, 17),
        (12, 16, 5.0, 12 + 5 * draw.integer(3, 9)),
    )


def _rule(model: tuple) -> Callable[[int], float]:
    states, update, example, _ = model
    return lambda batch: max(update, states + example * batch)


def _largest(model: tuple) -> int:
    batch, rule = 0, _rule(model)
    while rule(batch + 1) <= model[-1]:
        batch += 1
    return batch


def _searched(
    answer: Callable, gpus: Gpus, models: Sequence[tuple]
) -> list[tuple[int, int, bool]]:
    """Return the batch, the number of calls, and whether all asked for a batch."""
    found = []
    for model in models:
        asked, rule = [], _rule(model)

        def peak(batch, asked=asked, rule=rule):
            asked.append(batch)
            if len(asked) > 20_000:
                raise RuntimeError("You asked for more than 20,000 peaks.")
            return rule(batch)

        batch = answer(peak, model[-1])
        found.append((batch, len(asked), all(x == int(x) and x > 0 for x in asked)))
    return found


@EXERCISES.add(
    "12.5",
    "peak, memory",
    returns=int,
    vary={"models": Vary(_MODELS, _other_models)},
)
def largest_batch(run: Run, models: Sequence[tuple]):
    found = run(_searched, models)
    right = [_largest(model) for model in models]
    batches = [batch for batch, _, _ in found]
    yield Claim(
        "`peak` is asked for whole batches of at least one example",
        all(fine for _, _, fine in found),
        "A batch of 0 examples, or of a part of one, can't be run.",
    )
    none = [mine for mine, true in zip(batches, right, strict=True) if not true]
    yield Claim(
        "it returns 0 if not even one example fits",
        not any(none),
        f"You return {max(none)}.",
    )
    wrong = [
        (model, mine, true)
        for model, mine, true in zip(models, batches, right, strict=True)
        if true and mine != true
    ]
    yield Claim(
        "otherwise it returns the largest batch that fits",
        not wrong,
        _wrong_batch(*wrong[0]) if wrong else "",
    )
    if wrong:
        return
    calls = [number for _, number, _ in found]
    allowed = [2 * max(batch, 1).bit_length() + 3 for batch in right]
    slow = [
        (number, most, batch)
        for number, most, batch in zip(calls, allowed, right, strict=True)
        if number > most
    ]
    yield Claim(
        "it asks for few peaks",
        not slow,
        f"To find that {slow[0][2]:,} examples fit, you ask {slow[0][0]:,} times, and "
        f"{slow[0][1]} times are enough."
        if slow
        else "",
    )


def _wrong_batch(model: tuple, mine: int, true: int) -> str:
    if mine == true + 1:
        return f"You return {mine}, the first batch that doesn't fit."
    if mine < true and mine & (mine - 1) == 0:
        return (
            f"{mine} examples fit, but so do {true}. Batches between two powers of two "
            "count as well."
        )
    if mine > true + 1 and model[1] >= model[0] + 2 * model[2]:
        return (
            f"You return {mine} where {true} fit. With small batches, the update "
            "decides, and the peak doesn't grow at first."
        )
    return f"You return {mine} where {true} fit."
