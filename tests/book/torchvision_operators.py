"""Lets torchvision be imported beside a PyTorch that it was not built for.

PyPI's torchvision for Linux is built for CUDA. Beside a CPU build of PyTorch its
compiled part cannot be loaded, which it takes without a word, but then it describes two
operators that only this part defines, and its import fails: "operator torchvision::nms
does not exist" (seen with 0.28). The book's package imports torchvision for its data
sets and pictures, not for these operators. So they are defined here without kernels:
who calls them is told that there are none.

Only for tests and for building: where torchvision works, this would define its
operators a second time.
"""

# The definitions end when their Python object dies.
_kept: list = []


def define() -> None:
    """Define the operators that torchvision describes; PyTorch calls this once."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(
            f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
    _kept.append(library)
