import torch

from tests.programs.as_cuda.start import start

start()

library = torch.library.Library("kernels_of_ones_own", "DEF")
library.define("which(Tensor x) -> Tensor")
library.impl("which", lambda x: x + 1, "CPU")
which = torch.ops.kernels_of_ones_own.which
X = torch.zeros(2, device="cuda:1")
library.impl("which", lambda x: x + 2 * x.is_cuda, "CUDA")
assert which(X).tolist() == [2, 2] and which(X).device == X.device
assert which(torch.zeros(2)).tolist() == [1, 1]


@torch.library.custom_op(
    "kernels_of_ones_own::halved", mutates_args=(), device_types="cuda"
)
def halved(x: torch.Tensor) -> torch.Tensor:
    assert x.device == torch.device("cuda:1")
    return x / 2


assert halved(X + 1).tolist() == [0.5, 0.5]
