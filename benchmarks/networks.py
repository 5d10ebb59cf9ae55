"""Networks whose training others have measured, written as their users write them."""

from functools import partial
from itertools import count

import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

# ------------------------------------------------------------------ ResNets


class Excitation(nn.Module):
    """Multiply each channel by a number that is computed from the means of all."""

    def __init__(self, channels: int):
        super().__init__()
        self.squeeze = nn.Linear(channels, channels // 16)
        self.expand = nn.Linear(channels // 16, channels)

    def forward(self, X):
        """Return an output of X's shape, (N, C, H, W)."""
        scale = self.expand(F.relu(self.squeeze(X.mean((2, 3)))))
        return X * scale.sigmoid()[:, :, None, None]


class Bottleneck(nn.Module):
    """Three convolutions and a path around them; version 1.5 strides in the second."""

    def __init__(
        self,
        inputs: int,
        width: int,
        outputs: int,
        stride: int,
        groups: int,
        excites: bool,
    ):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, padding=1, groups=groups, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        if excites:
            self.layers.append(Excitation(outputs))
        self.around = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.around = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs),
            )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, X):
        """Return an output with four times the width, for X of (N, C, H, W)."""
        return self.relu(self.layers(X) + self.around(X))


def _resnet(
    blocks: tuple[int, ...], width: int, groups: int = 1, excites: bool = False
) -> nn.Sequential:
    """Return a network for images of (N, 3, 224, 224) and 1,000 classes.

    Args:
        blocks: how many there are of each size.
        width: channels inside the first ones.
        groups: of the convolutions with a window.
        excites: whether blocks squeeze and excite.
    """
    net = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    )
    inputs = 64
    for i, number in enumerate(blocks):
        for j in range(number):
            outputs, stride = 256 * 2**i, 2 if i and not j else 1
            sizes = inputs, width * 2**i, outputs
            net.append(Bottleneck(*sizes, stride, groups, excites))
            inputs = outputs
    return net.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)])


def resnet50() -> nn.Sequential:
    """Return a ResNet-50 v1.5.

    K. He and others, Deep residual learning for image recognition (2015).
    """
    return _resnet((3, 4, 6, 3), 64)


def resnext101() -> nn.Sequential:
    """Return a ResNeXt-101 with 32 groups of 4 channels.

    S. Xie and others, Aggregated residual transformations for deep neural networks
    (2016).
    """
    return _resnet((3, 4, 23, 3), 128, 32)


def se_resnext101() -> nn.Sequential:
    """Return the same network with squeeze-and-excitation.

    J. Hu and others, Squeeze-and-excitation networks (2017).
    """
    return _resnet((3, 4, 23, 3), 128, 32, excites=True)


# ------------------------------------------------------------------ BERT-large

WIDTH, HEADS, WORDS = 1024, 16, 30_528


class BertLayer(nn.Module):
    """Attention written out, as in NVIDIA's code of the time, and two layers."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.project = (
            nn.Linear(WIDTH, WIDTH) for _ in range(4)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, X, mask):
        """Return an output of X's shape, (batch, length, width)."""
        query, key, value = (
            layer(X).view(*X.shape[:2], HEADS, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(2, 3) / (WIDTH // HEADS) ** 0.5 + mask
        found = self.dropout(scores.softmax(-1)) @ value
        found = self.project(found.transpose(1, 2).reshape(X.shape))
        X = self.norms[0](X + self.dropout(found))
        found = self.down(F.gelu(self.up(X)))
        return self.norms[1](X + self.dropout(found))


class Bert(nn.Module):
    """BERT-large with both tasks of its pre-training.

    J. Devlin and others, BERT: Pre-training of deep bidirectional transformers (2018).
    """

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places, self.parts = nn.Embedding(512, WIDTH), nn.Embedding(2, WIDTH)
        self.norm, self.dropout = nn.LayerNorm(WIDTH), nn.Dropout(0.1)
        self.layers = nn.ModuleList(BertLayer() for _ in range(24))
        self.pool, self.follows = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)
        self.transform, self.last = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.bias = nn.Parameter(torch.zeros(WORDS))

    def forward(self, X, parts, mask, masked):
        """Return scores for the masked words, and whether the second part follows.

        Args:
            X, parts: words and the part of each, (batch, length).
            mask: what is added to the scores of attention, (batch, 1, 1, length).
            masked: places of words to predict in the flattened batch.
        """
        places = torch.arange(X.shape[1], device=X.device)
        H = self.words(X) + self.places(places) + self.parts(parts)
        H = self.dropout(self.norm(H))
        for layer in self.layers:
            H = layer(H, mask)
        chosen = H.reshape(-1, WIDTH).index_select(0, masked)
        chosen = self.last(F.gelu(self.transform(chosen)))
        words = F.linear(chosen, self.words.weight, self.bias)
        return words, self.follows(torch.tanh(self.pool(H[:, 0])))


class Lamb(torch.optim.Optimizer):
    """LAMB on lists of tensors. Y. You and others, Large batch optimization (2019)."""

    def __init__(self, parameters, lr=6e-3, betas=(0.9, 0.999), eps=1e-6, decay=0.01):
        super().__init__(parameters, {"lr": lr, "betas": betas})
        self.eps, self.decay = eps, decay

    @torch.no_grad()
    def step(self):
        """Update the parameters from their gradients."""
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            gradients = [p.grad for p in parameters]
            for p in parameters:
                if p not in self.state:
                    self.state[p] = {
                        "first": torch.zeros_like(p),
                        "second": torch.zeros_like(p),
                    }
            first = [self.state[p]["first"] for p in parameters]
            second = [self.state[p]["second"] for p in parameters]
            one, two = group["betas"]
            torch._foreach_lerp_(first, gradients, 1 - one)
            torch._foreach_mul_(second, two)
            torch._foreach_addcmul_(second, gradients, gradients, 1 - two)
            updates = torch._foreach_sqrt(second)
            torch._foreach_add_(updates, self.eps)
            updates = torch._foreach_div(first, updates)
            torch._foreach_add_(updates, parameters, alpha=self.decay)
            ratios = torch._foreach_norm(parameters)
            torch._foreach_div_(ratios, torch._foreach_norm(updates))
            torch._foreach_mul_(updates, ratios)
            torch._foreach_add_(parameters, updates, alpha=-group["lr"])


# ------------------------------------------------------------------ Llama


class LlamaLayer(nn.Module):
    """Attention with fewer keys than queries, and a gated layer."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int, norm):
        super().__init__()
        size = width // heads
        self.size = size
        self.wq = nn.Linear(width, heads * size, bias=False)
        self.wk, self.wv = (nn.Linear(width, groups * size, bias=False) for _ in "kv")
        self.wo = nn.Linear(heads * size, width, bias=False)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in "gu")
        self.down = nn.Linear(hidden, width, bias=False)
        self.norms = nn.ModuleList(norm(width, eps=1e-5) for _ in range(2))

    def forward(self, X, turns):
        """Return an output of X's shape, (batch, length, width)."""
        H = self.norms[0](X)
        query, key, value = (
            layer(H).unflatten(-1, (-1, self.size))
            for layer in (self.wq, self.wk, self.wv)
        )
        query, key = turned(query, turns), turned(key, turns)
        copies = query.shape[2] // key.shape[2]
        key, value = (x.repeat_interleave(copies, dim=2) for x in (key, value))
        found = F.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (query, key, value)), is_causal=True
        )
        X = X + self.wo(found.transpose(1, 2).flatten(2))
        H = self.norms[1](X)
        return X + self.down(F.silu(self.gate(H)) * self.up(H))


def turned(X, turns):
    """Turn pairs of numbers by an angle that depends on the place (RoPE)."""
    pairs = torch.view_as_complex(X.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns[:, None]).flatten(3).type_as(X)


class FloatRMSNorm(nn.Module):
    """The same as ``nn.RMSNorm``, step by step in float32, as torchtitan had it."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(width))

    def forward(self, X):
        """Return an output of X's shape and type."""
        H = X.float()
        H = H * torch.rsqrt(H.pow(2).mean(-1, keepdim=True) + self.eps)
        return H.type_as(X) * self.weight


class Llama(nn.Module):
    """Llama 3.1 8B, unless other sizes are given.

    A. Grattafiori and others, The Llama 3 herd of models (2024), table 3.

    Args:
        norm: makes the layers that normalize, given the width and ``eps``.
    """

    def __init__(
        self,
        layers: int = 32,
        width: int = 4096,
        heads: int = 32,
        groups: int = 8,
        hidden: int = 14_336,
        words: int = 128_256,
        length: int = 8192,
        norm=nn.RMSNorm,
    ):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(
            LlamaLayer(width, heads, groups, hidden, norm) for _ in range(layers)
        )
        self.norm = norm(width, eps=1e-5)
        self.output = nn.Linear(width, words, bias=False)
        size = width // heads
        turns = torch.ones(length, size // 2, dtype=torch.complex64)
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, X):
        """Return scores of all words for each place, (batch, length, words)."""
        H = self.words(X)
        for layer in self.layers:
            H = layer(H, self.turns[: X.shape[1]])
        return self.output(self.norm(H))


def parallelize_llama(net: nn.Module, mesh) -> None:
    """Divide each layer over the GPUs of a mesh, and what is between them by places.

    Args:
        net: a ``Llama``, or a stage of one with the same attributes.

    The plan is that of torchtitan (torchtitan/models/llama3/infra/parallelize.py).
    """
    by_place = Shard(1)
    gathered = PrepareModuleOutput(
        output_layouts=by_place, desired_output_layouts=Replicate()
    )
    columns, rows = ColwiseParallel(), RowwiseParallel(output_layouts=by_place)
    for layer in net.layers:
        for norm in layer.norms:
            parallelize_module(norm, mesh, SequenceParallel())
            parallelize_module(norm, mesh, gathered)
        plan = dict.fromkeys(("wq", "wk", "wv", "gate", "up"), columns)
        parallelize_module(layer, mesh, plan | {"wo": rows, "down": rows})
    around = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=by_place),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(
            input_layouts=by_place, output_layouts=Shard(-1), use_local_output=False
        ),
    }
    # A stage of a pipeline may lack some of these.
    plan = {name: each for name, each in around.items() if getattr(net, name)}
    parallelize_module(net, mesh, plan)


def checkpointed(forward):
    """Return a layer's forward that keeps attention and every second product.

    That is torchtitan's selective activation checkpointing, per operator.
    """
    aten = torch.ops.aten
    kept = {
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        torch.ops._c10d_functional.reduce_scatter_tensor.default,
    }

    def contexts():
        products = {False: count(), True: count()}  # the second time, from the start

        def policy(context, op, *args, **options):
            if op in kept or (
                op is aten.mm.default and next(products[context.is_recompute]) % 2 == 0
            ):
                return CheckpointPolicy.MUST_SAVE
            return CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    return partial(checkpoint, forward, use_reentrant=False, context_fn=contexts)


# ------------------------------------------------------------------ GPT-2


class OwnLayerNorm(nn.Module):
    """Layer normalization from scratch, as a course writes it."""

    def __init__(self, width: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, X):
        """Return an output of X's shape, (batch, length, width)."""
        mean = X.mean(-1, keepdim=True)
        var = X.var(-1, keepdim=True, unbiased=False)
        return self.scale * ((X - mean) / torch.sqrt(var + 1e-5)) + self.shift


class OwnGELU(nn.Module):
    """The GELU from scratch."""

    def forward(self, X):
        """Return an output of X's shape."""
        inner = torch.sqrt(torch.tensor(2 / torch.pi)) * (X + 0.044715 * X.pow(3))
        return 0.5 * X * (1 + torch.tanh(inner))


class OwnAttention(nn.Module):
    """Causal attention from scratch, with a matrix of scores.

    Args:
        length: of the mask that it keeps; None if it makes one each time.
    """

    def __init__(self, width: int, heads: int, length: int | None):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (
            nn.Linear(width, width, bias=False) for _ in range(3)
        )
        self.project, self.dropout = nn.Linear(width, width), nn.Dropout(0.1)
        mask = None if length is None else torch.ones(length, length).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, X):
        """Return an output of X's shape, (batch, length, width)."""
        key, query, value = (
            layer(X).view(*X.shape[:2], self.heads, -1).transpose(1, 2)
            for layer in (self.key, self.query, self.value)
        )
        scores, n = query @ key.transpose(2, 3), X.shape[1]
        mask = self.mask
        if mask is None:
            mask = torch.ones(n, n, device=X.device).triu(1)
        scores.masked_fill_(mask.bool()[:n, :n], -torch.inf)
        weights = torch.softmax(scores / key.shape[-1] ** 0.5, -1)
        found = self.dropout(weights) @ value
        return self.project(found.transpose(1, 2).reshape(X.shape))


class FusedAttention(nn.Module):
    """Causal attention by PyTorch's own function."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width)

    def forward(self, X):
        """Return an output of X's shape, (batch, length, width)."""
        each = self.inputs(X).view(*X.shape[:2], 3, self.heads, -1)
        found = F.scaled_dot_product_attention(
            *each.permute(2, 0, 3, 1, 4),
            dropout_p=0.1 if self.training else 0.0,
            is_causal=True,
        )
        return self.project(found.transpose(1, 2).contiguous().view(X.shape))


class GPTBlock(nn.Module):
    """Attention and two layers, each with a path around it."""

    def __init__(self, width: int, attention: nn.Module, norm, gelu: nn.Module):
        super().__init__()
        self.attention, self.dropout = attention, nn.Dropout(0.1)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), gelu, nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList(norm(width) for _ in range(2))

    def forward(self, X):
        """Return an output of X's shape, (batch, length, width)."""
        for norm, layer in zip(self.norms, (self.attention, self.layers), strict=True):
            around = X
            X = norm(X)
            X = layer(X)
            X = self.dropout(X)
            X = X + around
        return X


class GPT(nn.Module):
    """GPT-2 with 124 million parameters, and as many again for the output.

    S. Raschka, Build a large language model (from scratch) (2024), chapter 4.

    Args:
        keeps_mask: whether attention keeps its mask.
        classes: whether layers are PyTorch's own, rather than from scratch.
        fused: whether attention is, too.
    """

    def __init__(
        self, keeps_mask: bool = False, classes: bool = False, fused: bool = False
    ):
        super().__init__()
        words, width, heads, length = 50_257, 768, 12, 1024
        self.words, self.places = (
            nn.Embedding(words, width),
            nn.Embedding(length, width),
        )
        self.dropout = nn.Dropout(0.1)
        norm = nn.LayerNorm if classes else OwnLayerNorm
        self.blocks = nn.Sequential()
        for _ in range(12):
            attention = OwnAttention(width, heads, length if keeps_mask else None)
            if fused:
                attention = FusedAttention(width, heads)
            gelu = nn.GELU(approximate="tanh") if classes else OwnGELU()
            self.blocks.append(GPTBlock(width, attention, norm, gelu))
        self.norm, self.output = norm(width), nn.Linear(width, words, bias=False)

    def forward(self, X):
        """Return scores of all words for each place, (batch, length, words)."""
        words = self.words(X)
        places = self.places(torch.arange(X.shape[1], device=X.device))
        H = words + places
        H = self.dropout(H)
        H = self.blocks(H)
        H = self.norm(H)
        return self.output(H)


# ------------------------------------------------------------------ ViT


class ViTBlock(nn.Module):
    """Attention and two layers, each with a path around it."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-6) for _ in range(2))

    def forward(self, X):
        """Return an output of X's shape, (batch, places, width)."""
        H = self.norms[0](X)
        H, _ = self.attention(H, H, H, need_weights=False)
        X = H + X
        H = self.norms[1](X)
        H = self.layers(H)
        return X + H


class ViT(nn.Module):
    """ViT-L/16 for images of (N, 3, 224, 224), in the order of torchvision's steps.

    A. Dosovitskiy and others, An image is worth 16×16 words (2020).
    """

    def __init__(self, classes: int = 1000):
        super().__init__()
        width = 1024
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.Sequential(*(ViTBlock(width, 16) for _ in range(24)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.output = nn.Linear(width, classes)

    def forward(self, X):
        """Return scores of the classes."""
        H = self.patches(X).flatten(2).permute(0, 2, 1)
        H = torch.cat([self.token.expand(len(X), -1, -1), H], dim=1)
        H = H + self.places
        H = self.norm(self.blocks(H))
        return self.output(H[:, 0])
