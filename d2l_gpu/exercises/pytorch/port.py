"""How graders that all frameworks share work with PyTorch."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.crossing import HOST, Copy, Port


class TorchPort(Port):
    tensor = torch.Tensor

    def gpu(self, i: int) -> torch.device:
        return d2l.gpu(i)

    def name(self, device: torch.device) -> str:
        return HOST if device.type == "cpu" else str(device)

    def home(self, x: torch.Tensor) -> str:
        return self.name(x.device)

    def array(
        self, values: np.ndarray, device: torch.device | None = None
    ) -> torch.Tensor:
        return torch.tensor(values).to(device or d2l.cpu())

    def values(self, x: torch.Tensor) -> np.ndarray:
        return x.detach().cpu().numpy()

    @contextmanager
    def watch(self) -> Iterator[list[Copy]]:
        copies: list[Copy] = []
        with d2l.transfers() as log:
            yield copies
        copies += [
            Copy(each.nbytes, self.name(each.source), self.name(each.target))
            for each in log
        ]


PORT = TorchPort()
