"""Photographs to decode: what a loader's workers get."""

import pytest
import torch
from torch.utils.data import DataLoader

from d2l_gpu import torch as d2l


def test_a_photograph_is_a_normalized_square_and_its_label():
    photographs = d2l.Photographs(5, size=100)
    assert len(photographs) == 5
    torch.manual_seed(0)  # a square of another place may be dark throughout
    X, y = photographs[3]
    assert (X.dtype, X.shape, y) == (torch.float32, (3, 100, 100), 1)
    assert X.min() < 0 < X.max() and X.abs().max() < 4


def test_the_two_photographs_take_turns():
    labels = [y for _, y in DataLoader(d2l.Photographs(5, size=8), batch_size=None)]
    assert labels == [0, 1, 0, 1, 0]


def test_squares_are_cut_out_and_flipped_at_random_but_as_seeded():
    photographs = d2l.Photographs(2, size=50)
    torch.manual_seed(0)
    first, second = photographs[0][0], photographs[0][0]
    torch.manual_seed(0)
    assert torch.equal(photographs[0][0], first)
    assert not torch.equal(first, second)


def test_half_of_the_squares_are_flipped():
    photographs = d2l.Photographs(1, size=427)  # as high as they are
    torch.manual_seed(0)
    squares = [photographs[0][0] for _ in range(40)]
    # In this photograph the right is brighter, wherever the square is cut out.
    flipped = sum(bool(X[:, :, :100].mean() > X[:, :, -100:].mean()) for X in squares)
    assert 10 < flipped < 30


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_makes_batches_of_them(workers):
    loader = DataLoader(d2l.Photographs(5, size=32), batch_size=2, num_workers=workers)
    sizes = [(tuple(X.shape), y.tolist()) for X, y in loader]
    assert sizes == [
        ((2, 3, 32, 32), [0, 1]),
        ((2, 3, 32, 32), [0, 1]),
        ((1, 3, 32, 32), [0]),
    ]


def test_workers_that_import_them_can_be_started():
    loader = DataLoader(
        d2l.Photographs(2, size=32),
        batch_size=2,
        num_workers=1,
        multiprocessing_context="spawn",
    )
    ((X, y),) = loader
    assert X.shape == (2, 3, 32, 32) and y.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [((0,), ValueError), ((2.0,), TypeError), ((2, 428), ValueError)],
)
def test_invalid_arguments_are_refused(arguments, error):
    with pytest.raises(error, match="must be"):
        d2l.Photographs(*arguments)


def test_there_is_no_photograph_beyond_the_last():
    photographs = d2l.Photographs(3, size=8)
    for i in (3, -1):
        with pytest.raises(IndexError, match="There are 3 photographs"):
            photographs[i]
