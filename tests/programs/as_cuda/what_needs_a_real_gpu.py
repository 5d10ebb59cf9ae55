import warnings

import torch

from tests.programs.as_cuda.start import raises, start

start()

x = torch.ones(2, device="cuda")
warnings.simplefilter("ignore", UserWarning)  # PyTorch calls BSR tensors experimental
raises(
    NotImplementedError,
    "Virtual GPUs support strided tensors and sparse ones (COO, CSR and CSC), not",
    lambda: x.diag().to_sparse_bsr((1, 1)),
)
for name, call in {
    "CUDAGraph": torch.cuda.CUDAGraph,
    "graph": lambda: torch.cuda.graph(None),
    "make_graphed_callables": lambda: torch.cuda.make_graphed_callables(None, ()),
    "MemPool": torch.cuda.MemPool,
    "nccl.all_reduce": lambda: torch.cuda.nccl.all_reduce([x]),
    "jiterator._create_jit_fn": lambda: torch.cuda.jiterator._create_jit_fn("f"),
}.items():
    raises(NotImplementedError, f"Virtual GPUs have no torch.cuda.{name}: ", call)
