"""Forms in which a training step can be computed, and which of them is fast here.

Memory in the order of channels last, and bfloat16 where it is as good, change nothing
of what a training computes but its rounding. Whether they are faster depends on the
processor: with AMX, bfloat16 is; with AVX2 alone, it is many times slower. So what a
form is worth is measured, on the network and the batch in question.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn
from torch.nn import functional as F

from ..timing.timer import synchronize

ROUNDS = 3  # of a trial, after one that is thrown away
HOPELESS = 3.0  # times as slow in the first round as the plain form
SECONDS_OF_TRIAL = 20.0  # after which no other round begins
WORTH_IT = 1.05  # times as fast as the plain form, at least


@dataclass(frozen=True)
class Form:
    """How the arithmetic of a training step is carried out.

    Attributes:
        channels_last: whether images lie in memory pixel by pixel, not channel by
            channel: what the kernels of convolutions like best.
        dtype: of matrix products and convolutions; parameters stay float32, as
            ``torch.autocast`` has it.
    """

    channels_last: bool = False
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        order = "channels last" if self.channels_last else "channels first"
        return f"{str(self.dtype).removeprefix('torch.')}, {order}"

    def apply(self, net: nn.Module) -> nn.Module:
        """Return a network that computes the same in this form, on the same parameters.

        Args:
            net: maps inputs, shape (n, c, h, w) or another, to scores. Its weights are
                laid out anew in place.
        """
        if self == PLAIN:
            return net
        if self.channels_last:
            net.to(memory_format=torch.channels_last)
        return _InForm(net, self)


PLAIN = Form()
FORMS = (
    PLAIN,
    Form(channels_last=True),
    Form(channels_last=True, dtype=torch.bfloat16),
)


class _InForm(nn.Module):
    """A network in a form: its inputs are laid out, its outputs are float32 again."""

    def __init__(self, net: nn.Module, form: Form):
        super().__init__()
        self.net, self.form = net, form

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        if self.form.channels_last and X.dim() == 4:
            X = X.contiguous(memory_format=torch.channels_last)
        low = self.form.dtype != torch.float32
        with torch.autocast(X.device.type, dtype=self.form.dtype, enabled=low):
            scores = self.net(X)
        return scores.float()


@dataclass(frozen=True)
class Trial:
    """What a trial of forms has found.

    Attributes:
        seconds: of one training step in each form, medians.
        best: the fastest form; the plain one unless another is clearly faster.
    """

    seconds: dict[Form, float]

    @property
    def best(self) -> Form:
        fastest = min(self.seconds, key=self.seconds.__getitem__)
        return fastest if self.speedup(fastest) >= WORTH_IT else PLAIN

    def speedup(self, form: Form) -> float:
        """Return how many times as fast as the plain form this one is."""
        return self.seconds[PLAIN] / self.seconds[form]

    def __str__(self) -> str:
        found = ", ".join(
            f"{form}: {self.speedup(form):.2f}"
            for form in self.seconds
            if form != PLAIN
        )
        return f"times as fast as {PLAIN}: {found}; chosen: {self.best}"


def try_forms(
    net: nn.Module,
    X: torch.Tensor,
    y: torch.Tensor,
    loss: Callable = F.cross_entropy,
    forms: Sequence[Form] = FORMS,
) -> Trial:
    """Measure training steps in several forms, by turns, on copies of a network.

    Args:
        net: on the device to try; neither it nor random numbers are changed.
        X: inputs of one batch, shape (n, …), on the same device.
        y: their labels, shape (n, …).
        loss: a function of outputs and labels.
        forms: to try beside the plain one.
    Returns:
        The trial: seconds of a step in each form, and the best of them.
    """
    steps = {
        form: form.apply(copy.deepcopy(net).train())
        for form in dict.fromkeys([PLAIN, *forms])
    }
    on = {"devices": []}
    if X.device.type != "cpu":
        on = {"devices": [X.device.index], "device_type": X.device.type}
    with torch.random.fork_rng(**on):
        # The first turn finds caches cold, and libraries looking for kernels.
        cold = {form: _seconds(step, X, y, loss) for form, step in steps.items()}
        # Without matrix units bfloat16 can take ten times as long: once is enough.
        warm: dict[Form, list[float]] = {
            form: [] for form in steps if cold[form] <= HOPELESS * cold[PLAIN]
        }
        spent = 0.0
        for _ in range(ROUNDS):
            for form, taken in warm.items():
                taken.append(_seconds(steps[form], X, y, loss))
                spent += taken[-1]
            if spent > SECONDS_OF_TRIAL:
                break
    return Trial(cold | {form: median(taken) for form, taken in warm.items()})


def _seconds(net: nn.Module, X: torch.Tensor, y: torch.Tensor, loss: Callable) -> float:
    """Return how long a forward and a backward pass take."""
    synchronize([X.device])
    began = time.perf_counter()
    net.zero_grad()
    loss(net(X), y).backward()
    synchronize([X.device])
    return time.perf_counter() - began
