"""A mixture of experts and its training: the code under test."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


class Mixture(nn.Module):
    """Experts whose outputs are weighted by a gate, with a bias for each position."""

    def __init__(self, width: int, num_experts: int):
        super().__init__()
        self.gate = nn.Linear(width, num_experts)
        self.experts = nn.ModuleList(
            nn.Linear(width, width) for _ in range(num_experts)
        )

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Return one row for each row of X, (rows, width)."""
        weights = self.gate(X).softmax(1)
        positions = torch.arange(len(X), device=X.device)[:, None]
        outputs = torch.stack([expert(X) for expert in self.experts], 2)
        return (outputs * weights[:, None, :]).sum(2) + positions / len(X)


def train(
    net: nn.Module, batches: Iterable[tuple[torch.Tensor, torch.Tensor]], lr: float
) -> float:
    """Train for one epoch, and return the mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr)
    total, count = 0.0, 0
    for X, Y in batches:
        loss = F.mse_loss(net(X), Y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, count = total + loss.detach(), count + 1
    return float(total) / count


def shard(X: torch.Tensor, rank: int, ranks: int, device: str) -> torch.Tensor:
    """Return the rows of one rank, on the device of that rank."""
    return X.chunk(ranks)[rank].to(torch.device(device, rank))


def statistics(path: Path, device: torch.device) -> torch.Tensor:
    """Return the mean of each parameter in a file, on a device."""
    state = torch.load(path, map_location=device, weights_only=True)
    return torch.stack([x.mean() for x in state.values()])
