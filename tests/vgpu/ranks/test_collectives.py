"""Collectives of a small world: what each rank gets, against plain formulas."""

import os
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import ReduceOp

from d2l_gpu import vgpu
from tests.helpers.properties import sizes

pytestmark = [
    pytest.mark.virtual_gpus(5, memory="64MiB"),
    # The names that PyTorch has had until 2.12.
    pytest.mark.filterwarnings("ignore:.* is deprecated:FutureWarning"),
]

WORLDS = st.integers(1, 5)
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64])
OPERATORS = {
    ReduceOp.SUM: lambda x: x.sum(0),
    ReduceOp.PRODUCT: lambda x: x.prod(0),
    ReduceOp.MIN: lambda x: x.amin(0),
    ReduceOp.MAX: lambda x: x.amax(0),
}


def values(world: int, *shape: int, dtype=torch.float32) -> torch.Tensor:
    """A tensor for each rank, of small whole numbers: their sums are exact."""
    count = torch.Size((world, *shape)).numel()
    return (torch.arange(count) * 7 % 5 - 2).view(world, *shape).to(dtype)


def gpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("vgpu")


def on_ranks(function, world: int) -> list:
    """Run a function of the rank, check that results are where they belong."""
    results = vgpu.run_ranks(lambda rank, world_size: function(rank), world)
    for rank, result in enumerate(results):
        for x in result if isinstance(result, list | tuple) else [result]:
            assert x.device == torch.device("vgpu", rank)
    return [torch.utils._pytree.tree_map(torch.Tensor.cpu, x) for x in results]


@given(WORLDS, sizes(), DTYPES, st.sampled_from(list(OPERATORS)))
def test_reductions_to_all_and_to_one(world, size, dtype, operator):
    given_ = values(world, size, dtype=dtype)
    expected = OPERATORS[operator](given_.double()).to(dtype)
    root = size % world

    def reduce(rank):
        X, Y = gpu(given_[rank]), gpu(given_[rank])
        dist.all_reduce(X, operator)
        dist.reduce(Y, root, operator)
        return X, Y

    for rank, (X, Y) in enumerate(on_ranks(reduce, world)):
        assert torch.equal(X, expected)
        assert torch.equal(Y, expected if rank == root else given_[rank])


@given(WORLDS, sizes())
def test_averages_and_sums_of_scaled_numbers(world, size):
    given_ = values(world, size, dtype=torch.float64)

    def reduce(rank):
        X, Y = gpu(given_[rank]), gpu(given_[rank])
        dist.all_reduce(X, ReduceOp.AVG)
        dist.all_reduce(Y, dist._make_nccl_premul_sum(rank + 1.0))
        return X, Y

    factors = torch.arange(1.0, world + 1, dtype=torch.float64)[:, None]
    for X, Y in on_ranks(reduce, world):
        torch.testing.assert_close(X, given_.mean(0))
        torch.testing.assert_close(Y, (factors * given_).sum(0))


@given(WORLDS, sizes(), DTYPES)
def test_gathering_spreading_and_scattering(world, size, dtype):
    given_, parts = values(world, size, dtype=dtype), values(world, world, size)
    root = size % world

    def spread(rank):
        X = gpu(given_[rank])
        listed = [torch.empty_like(X) for _ in range(world)]
        whole = torch.empty(world * size, dtype=dtype, device="vgpu")
        sent, one = gpu(given_[rank]), torch.empty(size, device="vgpu")
        gathered = [torch.empty_like(X) for _ in range(world)]
        dist.all_gather(listed, X)
        dist.all_gather_into_tensor(whole, X)
        dist.broadcast(sent, root)
        dist.scatter(one, list(gpu(parts[root])) if rank == root else None, root)
        dist.gather(X, gathered if rank == root else None, root)
        return torch.stack(listed), whole, sent, one, torch.stack(gathered)

    for rank, (listed, whole, sent, one, gathered) in enumerate(
        on_ranks(spread, world)
    ):
        assert torch.equal(listed, given_)
        assert torch.equal(whole, given_.reshape(-1))
        assert torch.equal(sent, given_[root])
        assert torch.equal(one, parts[root, rank])
        assert rank != root or torch.equal(gathered, given_)


@given(WORLDS, sizes())
def test_reducing_and_scattering(world, size):
    given_ = values(world, world, size)

    def reduce(rank):
        X, listed = gpu(given_[rank]), torch.empty(size, device="vgpu")
        whole, place = torch.empty(size, device="vgpu"), gpu(given_[rank])
        dist.reduce_scatter(listed, list(X))
        dist.reduce_scatter_tensor(whole, X.view(-1))
        dist.reduce_scatter_tensor(place[rank], place)  # in place
        return listed, whole, place[rank]

    for rank, results in enumerate(on_ranks(reduce, world)):
        assert all(torch.equal(x, given_.sum(0)[rank]) for x in results)


@given(WORLDS, st.data())
def test_everybody_sends_to_everybody_uneven_pieces_too(world, data):
    counts = st.lists(sizes(0, 4), min_size=world, max_size=world)
    counts = data.draw(st.lists(counts, min_size=world, max_size=world))
    pieces = [
        [torch.full((n, 2), 10.0 * i + j) for j, n in enumerate(row)]
        for i, row in enumerate(counts)
    ]
    expected = [torch.cat([row[i] for row in pieces]) for i in range(world)]

    def exchange(rank):
        received = [row[rank] for row in counts]
        whole = torch.empty(sum(received), 2, device="vgpu")
        listed = [torch.empty(n, 2, device="vgpu") for n in received]
        gives = torch.cat(pieces[rank])
        dist.all_to_all_single(whole, gpu(gives), received, counts[rank])
        dist.all_to_all(listed, [gpu(x) for x in pieces[rank]])
        return whole, torch.cat(listed)

    for results, right in zip(on_ranks(exchange, world), expected, strict=True):
        assert all(torch.equal(x, right) for x in results)


@given(st.sampled_from([2, 4]), sizes(1))
def test_a_ring_of_sends(world, size):
    given_ = values(world, size)

    def ring(rank):
        X, after, before = gpu(given_[rank]), (rank + 1) % world, (rank - 1) % world
        taken = [torch.empty(size, device="vgpu") for _ in range(3)]
        if rank % 2:
            dist.send(X, after)
            dist.recv(taken[0], before)
        else:
            dist.recv(taken[0], before)
            dist.send(X, after)
        works = [dist.isend(X, after, tag=5), dist.irecv(taken[1], before, tag=5)]
        sends = dist.P2POp(dist.isend, X, after), dist.P2POp(dist.isend, X * 2, after)
        takes = [dist.P2POp(dist.irecv, x, before) for x in (X.clone(), taken[2])]
        for work in works + dist.batch_isend_irecv([*takes, *sends]):
            work.wait()
        return taken

    for rank, (first, second, third) in enumerate(on_ranks(ring, world)):
        before = given_[(rank - 1) % world]
        assert torch.equal(first, before)
        assert torch.equal(second, before)
        assert torch.equal(third, 2 * before)


def test_sends_meet_the_receive_with_their_tag():
    def exchange(rank):
        X = [torch.full((1,), 10.0 + tag, device="vgpu") for tag in range(3)]
        if rank == 0:
            works = [dist.isend(X[tag], 1, tag=tag) for tag in range(3)]
        else:
            works = [dist.irecv(X[tag].zero_(), 0, tag=tag) for tag in (2, 0, 1)]
        for work in works:
            work.wait()
        return X

    for X in on_ranks(exchange, 2):
        assert torch.cat(X).tolist() == [10, 11, 12]


def test_one_rank_receives_from_any_other():
    def collect(rank, world_size):
        X = torch.full((1,), float(rank), device="vgpu")
        if rank:
            return dist.send(X, 0)
        return sorted((dist.recv(X), X.item()) for _ in range(world_size - 1))

    assert vgpu.run_ranks(collect, 4)[0] == [(1, 1.0), (2, 2.0), (3, 3.0)]


@given(WORLDS, sizes())
def test_functional_collectives(world, size):
    given_ = values(world, world, size)

    def compute(rank):
        X, group = gpu(given_[rank]), dist.group.WORLD
        return (
            functional.all_reduce(X, "sum", group) + 0,
            functional.all_gather_tensor(X, 0, group) + 0,
            functional.reduce_scatter_tensor(X, "sum", 0, group) + 0,
            functional.all_to_all_single(X, None, None, group) + 0,
            functional.broadcast(X, world - 1, group) + 0,
        )

    for rank, results in enumerate(on_ranks(compute, world)):
        total, gathered, scattered, exchanged, sent = results
        assert torch.equal(total, given_.sum(0))
        assert torch.equal(gathered, given_.flatten(0, 1))
        assert torch.equal(scattered, given_.sum(0)[rank : rank + 1])
        assert torch.equal(exchanged, given_[:, rank])
        assert torch.equal(sent, given_[-1])


def test_truth_values_are_combined_too():
    def combine(rank):
        X = torch.tensor([True, rank == 1, False], device="vgpu")
        every, some = X.clone(), X.clone()
        dist.all_reduce(every, ReduceOp.MIN)
        dist.all_reduce(some, ReduceOp.MAX)
        return every, some

    for every, some in on_ranks(combine, 3):
        assert every.tolist() == [True, False, False]
        assert some.tolist() == [True, True, False]


def test_bits_are_combined():
    def combine(rank):
        X = [torch.tensor(5 + rank, device="vgpu") for _ in range(3)]
        for x, op in zip(X, (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR), strict=True):
            dist.all_reduce(x, op)
        return torch.stack(X)

    for X in on_ranks(combine, 3):
        assert X.tolist() == [5 & 6 & 7, 5 | 6 | 7, 5 ^ 6 ^ 7]


def test_objects_and_barriers():
    def exchange(rank, world_size):
        every, gathered = [None] * world_size, [None] * world_size
        sent, one, pair = [rank, {"from": rank}], [None], [None, None]
        dist.barrier()
        dist.all_gather_object(every, {"rank": rank})
        dist.broadcast_object_list(sent, src=1)
        dist.scatter_object_list(one, ["a", "b", "c"] if rank == 0 else None)
        dist.gather_object(rank * 10, gathered if rank == 2 else None, dst=2)
        if rank == 0:
            dist.send_object_list([5, "x"], dst=1)
        elif rank == 1:
            dist.recv_object_list(pair, src=0)
        return every, sent, one, gathered, pair

    results = vgpu.run_ranks(exchange, 3)
    for rank, (every, sent, one, gathered, pair) in enumerate(results):
        assert every == [{"rank": i} for i in range(3)]
        assert sent == [1, {"from": 1}]
        assert one == ["abc"[rank]]
        assert gathered == ([0, 10, 20] if rank == 2 else [None] * 3)
        assert pair == ([5, "x"] if rank == 1 else [None] * 2)


def test_subgroups_and_meshes_sum_over_their_own_ranks():
    def sums(rank):
        X = torch.full((5,), 10.0**rank, device="vgpu")
        group = dist.new_group([0, 2, 3])
        if rank != 1:
            dist.all_reduce(X[0], group=group)
        mesh = dist.init_device_mesh("vgpu", (2, 2), mesh_dim_names=("rows", "columns"))
        dist.all_reduce(X[1], group=mesh.get_group("rows"))
        dist.all_reduce(X[2], group=mesh["columns"].get_group())
        mine, _ = dist.new_subgroups(2)
        dist.broadcast(X[3], dist.get_global_rank(mine, 0), group=mine)
        return X

    for rank, X in enumerate(on_ranks(sums, 4)):
        assert X[0] == (1101 if rank != 1 else 10)
        assert X[1] == (101 if rank % 2 == 0 else 1010)
        assert X[2] == (11 if rank < 2 else 1100)
        assert X[3] == (1 if rank < 2 else 100)
        assert X[4] == 10**rank


def test_a_collective_under_way_is_waited_for():
    def sums(rank):
        X = [torch.full((2,), rank + i, device="vgpu") for i in range(3)]
        works = [dist.all_reduce(x, async_op=True) for x in X]
        while not works[0].is_completed():
            pass
        (future,) = works[1].get_future().value()
        works[2].wait()
        assert works[2].is_completed()
        assert torch.equal(future, X[1])
        return torch.stack(X)

    for X in on_ranks(sums, 4):
        assert X.tolist() == [[6, 6], [10, 10], [14, 14]]


def test_a_rank_knows_who_it_is():
    def who(rank, world_size):
        assert dist.is_initialized()
        assert torch.vgpu.current_device() == rank
        names = "RANK", "LOCAL_RANK", "WORLD_SIZE"
        dist.barrier()
        return (
            dist.get_rank(),
            dist.get_node_local_rank(),
            dist.get_world_size(),
            [int(os.environ[name]) for name in names],
        )

    expected = [(rank, rank, 3, [rank, rank, 3]) for rank in range(3)]
    assert vgpu.run_ranks(who, 3) == expected
    assert "RANK" not in os.environ
    assert not dist.is_initialized()


def test_each_rank_has_filters_of_warnings_of_its_own():
    def run(rank, n):
        with warnings.catch_warnings():
            warnings.simplefilter("error" if rank else "ignore")
            dist.barrier()  # now the other rank is in its block, too
            try:
                warnings.warn("to be ignored, or an error", stacklevel=1)
            except UserWarning:
                found = "error"
            else:
                found = "ignored"
            if rank:
                dist.barrier()
        if not rank:
            dist.barrier()
        warnings.simplefilter("once")  # as DDP's join does
        return found

    before = list(warnings.filters)
    assert vgpu.run_ranks(run, 2) == ["ignored", "error"]
    assert warnings.filters == before


def test_each_rank_draws_from_generators_of_its_own():
    def draw(rank, world_size):
        first = torch.rand(3, device="vgpu").tolist(), torch.rand(3).tolist()
        torch.manual_seed(rank)
        dist.barrier()  # the others seed theirs
        return first, torch.rand(3, device="vgpu").tolist(), torch.rand(3).tolist()

    torch.manual_seed(7)
    before = torch.rand(1, device="vgpu:1").item()
    state, expected = torch.get_rng_state(), torch.rand(3).tolist()
    torch.set_rng_state(state)
    results = vgpu.run_ranks(draw, 3)
    assert vgpu.run_ranks(draw, 3) == results
    assert torch.equal(torch.get_rng_state(), state)
    assert [first[1] for first, _, _ in results] == [expected] * 3
    for rank, (_, device, cpu) in enumerate(results):
        torch.manual_seed(rank)
        assert device == cpu == torch.rand(3).tolist()
    torch.manual_seed(7)
    assert torch.rand(1, device="vgpu:1").item() == before


def test_ordinary_use_goes_on_before_between_and_after():
    X = torch.ones(2, device="vgpu:3")
    used = vgpu.machine_in_use().used[:]
    for _ in range(50):
        results = vgpu.run_ranks(lambda rank, n: dist.barrier() or rank, 4)
        assert results == [0, 1, 2, 3]
        assert (X + X).tolist() == [2, 2]
        assert not dist.is_initialized()
    assert vgpu.machine_in_use().used == used
