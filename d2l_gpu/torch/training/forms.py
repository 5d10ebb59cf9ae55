"""Forms in which to compute a training step, and which of them is fast here.

Channels last, and bfloat16 where it is accurate enough, change nothing but the
rounding. Whether they are faster depends on the processor: with AMX, bfloat16 is; with
AVX2 alone, it is many times slower. So each form is timed on the actual network and
batch.
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

ROUNDS = 3  # of a trial, after one to warm up
HOPELESS = 3.0  # a form this many times slower in the first round is dropped
SECONDS_OF_TRIAL = 20.0  # no other round begins after this
WORTH_IT = 1.05  # smallest speedup for which the plain form is replaced


@dataclass(frozen=True)
class Form:
    """How a training step is computed.

    Attributes:
        channels_last: whether images are stored pixel by pixel rather than channel by
            channel, which convolution kernels prefer.
        dtype: dtype of matrix products and convolutions; parameters stay float32, as in
            ``torch.autocast``.
    """

    channels_last: bool = False
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        order = "channels last" if self.channels_last else "channels first"
        return f"{str(self.dtype).removeprefix('torch.')}, {order}"

    def apply(self, net: nn.Module) -> nn.Module:
        """Return a network that computes in this form, with the same parameters.

        Args:
            net: maps inputs, of shape (n, c, h, w) or another, to scores. The memory
                format of its weights is changed in place.
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
    """A network in a form: it converts its inputs, and its outputs to float32."""

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
    """The result of timing several forms.

    Attributes:
        seconds: median time of a training step in each form.
        best: the fastest form; the plain one unless another is clearly faster.
    """

    seconds: dict[Form, float]

    @property
    def best(self) -> Form:
        fastest = min(self.seconds, key=self.seconds.__getitem__)
        return fastest if self.speedup(fastest) >= WORTH_IT else PLAIN

    def speedup(self, form: Form) -> float:
        """Return the speedup of a form over the plain one."""
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
    """Time training steps in several forms, in turn, on copies of a network.

    Args:
        net: on the device to try; neither it nor the random state is changed.
        X: inputs of one batch, shape (n, …), on the same device.
        y: their labels, shape (n, …).
        loss: function of outputs and labels.
        forms: the forms to try besides the plain one.
    Returns:
        The trial: seconds per step in each form, and the best form.
    """
    steps = {
        form: form.apply(copy.deepcopy(net).train())
        for form in dict.fromkeys([PLAIN, *forms])
    }
    on = {"devices": []}
    if X.device.type != "cpu":
        on = {"devices": [X.device.index], "device_type": X.device.type}
    with torch.random.fork_rng(**on):
        # In the first round, caches are cold and libraries search for kernels.
        cold = {form: _seconds(step, X, y, loss) for form, step in steps.items()}
        # Without matrix units, bfloat16 can take ten times as long: once is enough.
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
    """Return the seconds that a forward and a backward pass take."""
    synchronize([X.device])
    began = time.perf_counter()
    net.zero_grad()
    loss(net(X), y).backward()
    synchronize([X.device])
    return time.perf_counter() - began
