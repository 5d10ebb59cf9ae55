"""Sparse tensors, and embeddings with sparse gradients."""

import torch
from torch import nn

from tests.ecosystem.support import close, main

NEEDS = ("torch",)


def check_coordinates():
    """COO tensors on a GPU are made, coalesced, multiplied and differentiated."""
    places = torch.tensor([[0, 1, 1, 0], [2, 0, 2, 2]])
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])
    dense = torch.tensor([[0.0, 0.0, 5.0], [2.0, 0.0, 3.0]])
    S = torch.sparse_coo_tensor(places, values, (2, 3), device="cuda:1")
    assert S.device == torch.device("cuda:1") and S.is_sparse
    close(S.to_dense(), dense, "cuda:1")
    S = S.coalesce()
    assert S._nnz() == 3 and S.indices().device == torch.device("cuda:1")
    B = torch.arange(6.0).reshape(3, 2)
    there = B.to("cuda:1").requires_grad_()
    product = torch.sparse.mm(S, there)
    close(product, dense @ B, "cuda:1")
    product.sum().backward()
    close(there.grad, dense.t() @ torch.ones(2, 2), "cuda:1")
    close((S + S).to_dense(), 2 * dense, "cuda:1")
    close(dense.to("cuda:1").to_sparse().values(), torch.tensor([5.0, 2.0, 3.0]))
    close(S.cpu().to_dense(), dense, "cpu")
    close(S.t().to_dense(), dense.t(), "cuda:1")


def check_compressed_rows():
    """CSR tensors on a GPU multiply vectors and matrices."""
    torch.manual_seed(0)
    A = torch.randn(6, 5).relu()
    S = A.cuda().to_sparse_csr()
    assert S.layout == torch.sparse_csr and S.device == torch.device("cuda:0")
    assert S.crow_indices().shape == (7,)
    X = torch.randn(5, 3)
    close(S @ X.cuda(), A @ X, "cuda:0")
    close(S @ X[:, 0].cuda(), A @ X[:, 0], "cuda:0")
    close(S.to_dense(), A, "cuda:0")
    other = torch.sparse_csr_tensor(
        S.crow_indices(), S.col_indices(), S.values() * 2, (6, 5), device="cuda"
    )
    close(other.to_dense(), 2 * A, "cuda:0")


def check_sparse_gradients_of_an_embedding():
    """Embeddings with sparse gradients learn by SparseAdam and SGD, as on the CPU."""
    words = torch.tensor([[1, 4, 4], [7, 1, 0]])
    for kind in torch.optim.SparseAdam, torch.optim.SGD:
        nets = []
        for device in "cpu", "cuda:0":
            torch.manual_seed(0)
            net = nn.Embedding(10, 3, sparse=True).to(device)
            optimizer = kind(net.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                net(words.to(device)).square().sum().backward()
                assert net.weight.grad.is_sparse
                optimizer.step()
            nets.append(net)
        close(nets[1].weight, nets[0].weight, "cuda:0")
        close(nets[1].weight.grad.to_dense(), nets[0].weight.grad.to_dense(), "cuda:0")


if __name__ == "__main__":
    main(globals())
