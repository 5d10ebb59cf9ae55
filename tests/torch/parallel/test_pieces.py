"""The pieces of data parallelism: shards, sums, replicas; alone and put together."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.torch.parallel.pieces import average_buffers

pytestmark = pytest.mark.virtual_gpus(4, memory="256MiB")

CPU = torch.device("cpu")


def gpus(count):
    return [torch.device("vgpu", i) for i in range(count)]


def network(norm=lambda: nn.GroupNorm(2, 4)):
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3), norm(), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
    return nn.Sequential(*layers).double()


def batch(n, seed=1):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 1, 8, 8, generator=generator, dtype=torch.float64)
    return X, torch.randint(10, (n,), generator=generator)


# ---------------------------------------------------------------- split_batch


@pytest.mark.parametrize(
    ("n", "sizes"), [(8, [3, 3, 2]), (9, [3, 3, 3]), (3, [1, 1, 1]), (2, [1, 1])]
)
def test_shards_are_consecutive_nearly_equal_and_on_their_devices(n, sizes):
    devices = [*gpus(2), CPU]
    X, y = batch(n)
    X_shards, y_shards = d2l.split_batch(X, y, devices)
    assert [len(shard) for shard in X_shards] == sizes
    assert [len(shard) for shard in y_shards] == sizes
    assert [shard.device for shard in X_shards] == devices[: len(sizes)]
    assert [shard.device for shard in y_shards] == devices[: len(sizes)]
    assert torch.equal(torch.cat([shard.cpu() for shard in X_shards]), X)
    assert torch.equal(torch.cat([shard.cpu() for shard in y_shards]), y)


def test_a_batch_is_not_copied_to_where_it_is():
    X, y = batch(4)
    X, y = X.to("vgpu:1"), y.to("vgpu:1")
    with d2l.transfers() as log:
        d2l.split_batch(X, y, gpus(2))
    assert [(t.nbytes, str(t.target)) for t in log] == [
        (2 * 64 * 8, "vgpu:0"),
        (2 * 8, "vgpu:0"),
    ]


@pytest.mark.parametrize(
    ("X", "y", "devices", "sentence"),
    [
        (torch.ones(3, 2), torch.ones(2), [CPU], "3 inputs and 2 labels"),
        (torch.ones(0, 2), torch.ones(0), [CPU], "the batch is empty"),
        (torch.ones(3, 2), torch.ones(3), [], "at least one device"),
    ],
)
def test_what_cannot_be_split_is_refused(X, y, devices, sentence):
    with pytest.raises(ValueError, match=sentence):
        d2l.split_batch(X, y, devices)


# ---------------------------------------------------------------- allreduce


@pytest.mark.parametrize("k", [1, 2, 4])
def test_allreduce_gives_every_device_the_sum_in_place(k):
    data = [
        torch.full((3,), i + 1.0, device=device) for i, device in enumerate(gpus(k))
    ]
    same = list(data)
    with d2l.transfers() as log:
        d2l.allreduce(data)
    total = k * (k + 1) / 2
    for i, tensor in enumerate(data):
        assert tensor is same[i]
        assert tensor.tolist() == [total] * 3
    assert len(log) == 2 * (k - 1)
    assert log.nbytes == 2 * (k - 1) * 12


def test_allreduce_of_aliases_is_refused_and_changes_nothing():
    gradient = torch.ones(3, device="vgpu:0")
    for alias in (gradient.to("vgpu:0"), gradient[:], gradient.view(3)):
        with pytest.raises(ValueError, match="share their memory"):
            d2l.allreduce([gradient, alias])
    assert gradient.tolist() == [1, 1, 1]


def test_allreduce_of_nothing_is_nothing():
    data = [torch.ones(0), torch.ones(0)]
    d2l.allreduce(data)
    assert [len(x) for x in data] == [0, 0]


@pytest.mark.parametrize("other", [torch.ones(2), torch.ones(3).double()])
def test_allreduce_of_different_tensors_is_refused(other):
    with pytest.raises(ValueError, match="the same shape and dtype"):
        d2l.allreduce([torch.ones(3), other])


# ---------------------------------------------------------------- replicas


def test_replicas_are_equal_and_share_nothing():
    net = network()
    replicas = d2l.replicate(net, gpus(3))
    assert replicas[0] is net
    for replica, device in zip(replicas, gpus(3), strict=True):
        assert {p.device for p in replica.parameters()} == {device}
    with torch.no_grad():
        replicas[0][0].weight.zero_()
    assert replicas[1][0].weight.abs().sum() > 0


@pytest.mark.parametrize("devices", [[], ["vgpu:0", "vgpu:0"]])
def test_replicas_need_different_devices(devices):
    with pytest.raises(ValueError, match="Replicas need distinct devices"):
        d2l.replicate(network(), devices)


def test_replicas_need_to_know_whether_devices_differ():
    with pytest.raises(ValueError, match=r"with an index, such as vgpu:0"):
        d2l.replicate(network(), ["vgpu", "vgpu:0"])


def test_lazy_layers_cannot_be_replicated():
    with pytest.raises(ValueError, match="lazy layers"):
        d2l.replicate(nn.Sequential(nn.LazyLinear(2)), gpus(2))


# ---------------------------------------------------------------- testing on all


@pytest.mark.parametrize("batch_size", [2, 5, 50])
def test_accuracy_on_all_devices_is_that_on_one(batch_size):
    net = network(lambda: nn.BatchNorm2d(4))
    X, y = batch(50)
    data = list(zip(X.split(batch_size), y.split(batch_size), strict=True))
    alone = d2l.evaluate_accuracy_gpu(net, data)
    assert d2l.evaluate_accuracy_gpus(net, data, gpus(4)) == alone
    assert d2l.evaluate_accuracy_gpus(d2l.replicate(net, gpus(3)), data) == alone
    assert 0 < alone < 1


def test_a_network_that_is_tested_on_all_devices_stays_as_and_where_it_was():
    net = network(lambda: nn.BatchNorm2d(4))
    net[1].eval()
    before = copy.deepcopy(net.state_dict())
    d2l.evaluate_accuracy_gpus(net, [batch(8)], gpus(2))
    assert [module.training for module in net] == [True, False, True, True, True]
    for name, value in net.state_dict().items():
        assert value.device == CPU
        assert torch.equal(value, before[name])


def test_each_device_is_read_once():
    replicas = d2l.replicate(network(), gpus(2))
    with d2l.transfers() as log:
        d2l.evaluate_accuracy_gpus(replicas, [batch(6)] * 5)
    assert len([t for t in log if t.target == CPU]) == 2


def test_no_data_and_wrong_devices_are_refused():
    replicas = d2l.replicate(network(), gpus(2))
    with pytest.raises(ValueError, match="nothing to evaluate"):
        d2l.evaluate_accuracy_gpus(replicas, [])
    with pytest.raises(ValueError, match="The replicas are on"):
        d2l.evaluate_accuracy_gpus(replicas, [batch(4)], gpus(3))


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("n", [1, 3, 7, 8])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_gradients_of_shards_add_up_to_that_of_the_batch(k, n):
    X, y = batch(n)
    whole = network()
    loss = F.cross_entropy(whole(X), y)
    loss.backward()
    replicas = d2l.replicate(network(), gpus(k))
    for _ in range(2):  # gradients of the step before must not count
        assert abs(d2l.shard_gradients(replicas, X, y).item() - loss.item()) < 1e-12
    for replica in replicas:
        for ours, theirs in zip(replica.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(
                ours.grad.cpu(), theirs.grad, atol=1e-14, rtol=1e-12
            )


def test_parameters_that_no_replica_uses_have_no_gradient():
    net = network()
    net.unused = nn.Parameter(torch.ones(2))
    net.forward = lambda X: nn.Sequential(*list(net)[:5])(X)
    replicas = d2l.replicate(net, gpus(1))
    d2l.shard_gradients(replicas, *batch(4))
    assert net.unused.grad is None


def test_no_value_is_fetched_while_devices_compute():
    replicas = d2l.replicate(network(), gpus(2))
    with d2l.transfers() as log:
        d2l.shard_gradients(replicas, *batch(4))
    assert not [t for t in log if t.target == CPU]


def test_batch_normalisation_sees_shards():
    X, y = batch(8)
    whole = network(lambda: nn.BatchNorm2d(4))
    replicas = d2l.replicate(copy.deepcopy(whole), gpus(2))
    F.cross_entropy(whole(X), y).backward()
    d2l.shard_gradients(replicas, X, y)
    assert not torch.allclose(replicas[0][0].weight.grad.cpu(), whole[0].weight.grad)
    means = [replica[1].running_mean.cpu() for replica in replicas]
    assert not torch.allclose(*means)
    average_buffers(replicas)
    for replica in replicas:
        torch.testing.assert_close(replica[1].running_mean.cpu(), sum(means) / 2)
        assert replica[1].num_batches_tracked == 1


# ---------------------------------------------------------------- training, 1e-12


def ten_steps_on_the_whole_batch(momentum=0.9):
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum)
    for step in range(10):
        X, y = batch(7, seed=step)
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
    return net


def assert_equal_to_twelve_digits(net, other):
    for ours, theirs in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, atol=1e-12, rtol=1e-12)


def test_ten_steps_by_hand_equal_those_on_the_whole_batch():
    replicas = d2l.replicate(network(), gpus(2))
    parameters = [p for replica in replicas for p in replica.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for step in range(10):
        d2l.shard_gradients(replicas, *batch(7, seed=step))
        optimizer.step()
    whole = ten_steps_on_the_whole_batch()
    for replica in replicas:
        assert_equal_to_twelve_digits(replica, whole)
    for a, b in zip(*(replica.parameters() for replica in replicas), strict=True):
        assert torch.equal(a.cpu(), b.cpu())


def test_ten_steps_of_data_parallel_equal_those_on_the_whole_batch():
    net = network().to("vgpu:0")
    parallel = nn.DataParallel(net, device_ids=gpus(2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(10):
        X, y = batch(7, seed=step)
        optimizer.zero_grad()
        F.cross_entropy(parallel(X), y.to("vgpu:0")).backward()
        optimizer.step()
    assert_equal_to_twelve_digits(net, ten_steps_on_the_whole_batch())
