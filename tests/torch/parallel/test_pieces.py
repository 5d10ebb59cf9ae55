"""The pieces of data parallelism: shards, sums, replicas; alone and put together."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.torch.parallel.pieces import average_buffers
from tests.helpers.properties import DEVICES, orders, sizes

pytestmark = pytest.mark.virtual_gpus(DEVICES, memory="256MiB")

CPU = torch.device("cpu")


def gpus(count):
    return [torch.device("vgpu", i) for i in range(count)]


def on(*indices):
    """The devices of these indices; -1 is the CPU."""
    return [CPU if i < 0 else torch.device("vgpu", i) for i in indices]


def network(norm=lambda: nn.GroupNorm(2, 4)):
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3), norm(), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
    return nn.Sequential(*layers).double()


def small_network():
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(64, 3), nn.Tanh(), nn.Linear(3, 10)
    return nn.Sequential(*layers).double()


def batch(n, seed=1):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 1, 8, 8, generator=generator, dtype=torch.float64)
    return X, torch.randint(10, (n,), generator=generator)


# ---------------------------------------------------------------- split_batch


@given(
    n=sizes(1),
    order=orders(),
    home=st.integers(-1, DEVICES - 1),
    shapes=st.tuples(*[st.sampled_from([(), (3,), (2, 0)])] * 2),
)
def test_shards_make_up_the_batch_and_are_nearly_equal(n, order, home, shapes):
    devices = on(*order)
    batch = [
        torch.arange(n).reshape(n, *[1] * len(shape)).expand(n, *shape).to(on(home)[0])
        for shape in shapes
    ]
    before = [x.clone() for x in batch]
    for _ in range(2):
        for whole, shards in zip(before, d2l.split_batch(*batch, devices), strict=True):
            lengths = [len(shard) for shard in shards]
            assert len(lengths) == min(n, len(devices))
            assert max(lengths) - min(lengths) <= 1 <= min(lengths)
            assert [shard.device for shard in shards] == devices[: len(lengths)]
            assert torch.equal(torch.cat([x.cpu() for x in shards]), whole.cpu())
    assert devices == on(*order)
    assert all(map(torch.equal, batch, before))


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


@pytest.mark.parametrize(
    ("X", "y", "devices", "sentence"),
    [
        ([1.0, 2.0], torch.ones(2), [CPU], r"X is a list: pass torch.as_tensor\(X\)"),
        (torch.ones(2), [1, 2], [CPU], "y is a list"),
        (torch.ones(2).numpy(), torch.ones(2), [CPU], "X is a ndarray"),
        (torch.ones(2), torch.ones(2), "cpu", r"a list of devices: pass \['cpu'\]"),
        (torch.ones(2), torch.ones(2), CPU, r"a list of devices: pass \['cpu'\]"),
    ],
)
def test_what_is_no_tensor_or_no_list_of_devices_is_said(X, y, devices, sentence):
    with pytest.raises(TypeError, match=sentence):
        d2l.split_batch(X, y, devices)


# ---------------------------------------------------------------- allreduce


@given(order=orders(), shape=st.lists(sizes(most=5), max_size=2), seed=sizes())
def test_allreduce_gives_every_device_the_sum_and_touches_nothing_else(
    order, shape, seed
):
    devices = on(*order)
    generator = torch.Generator().manual_seed(seed)
    # Each is the middle of a larger tensor, with others beside it on its device.
    wholes = [
        torch.randint(-99, 99, (3, *shape), generator=generator).to(device)
        for device in devices
    ]
    others = [torch.full((7,), i, device=gpu) for i, gpu in enumerate(gpus(DEVICES))]
    data = [whole[1] for whole in wholes]
    same, expected = list(data), [whole.cpu() for whole in wholes]
    for _ in range(2):
        total = sum(whole[1] for whole in expected)
        with d2l.transfers() as log:
            assert d2l.allreduce(data) is None
        for whole in expected:
            whole[1] = total
        for whole, values in zip(wholes, expected, strict=True):
            assert torch.equal(whole.cpu(), values)
        assert log.nbytes == 2 * (len(data) - 1) * data[0].nbytes
    assert all(map(lambda x, y: x is y, data, same))
    assert [x.device for x in data] == devices
    assert [set(x.tolist()) for x in others] == [{i} for i in range(DEVICES)]


def test_allreduce_of_aliases_is_refused_and_changes_nothing():
    gradient = torch.ones(3, device="vgpu:0")
    for alias in (gradient.to("vgpu:0"), gradient[:], gradient.view(3)):
        with pytest.raises(ValueError, match="share their memory"):
            d2l.allreduce([gradient, alias])
    assert gradient.tolist() == [1, 1, 1]


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


@given(
    lengths=st.lists(sizes(most=11), min_size=1, max_size=4).filter(any),
    order=orders(),
    seed=sizes(),
)
def test_accuracy_is_that_of_all_examples_whatever_the_batches_and_devices(
    lengths, order, seed
):
    # The scores are the inputs, so what is right can be counted without a network.
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(sum(lengths), 3, generator=generator)
    y = torch.randint(3, (len(X),), generator=generator)
    expected = (X.argmax(1) == y).sum().item() / len(y)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3, 3, bias=False))
    with torch.no_grad():
        net[1].weight.copy_(torch.eye(3))
    data = list(zip(X.split(lengths), y.split(lengths), strict=True))
    assert d2l.evaluate_accuracy_gpu(net, data) == expected
    replicas = d2l.replicate(copy.deepcopy(net), on(*order))
    for _ in range(2):
        assert d2l.evaluate_accuracy_gpus(net, data, on(*order)) == expected
        assert d2l.evaluate_accuracy_gpus(replicas, data) == expected


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


@given(n=sizes(1, 11), order=orders())
def test_the_gradients_of_shards_add_up_to_that_of_the_batch(n, order):
    X, y = batch(n)
    before = X.clone(), y.clone()
    whole = small_network()
    loss = F.cross_entropy(whole(X), y)
    loss.backward()
    replicas = d2l.replicate(small_network(), on(*order))
    for _ in range(2):  # gradients of the step before must not count
        assert abs(d2l.shard_gradients(replicas, X, y).item() - loss.item()) < 1e-12
    for replica in replicas:
        for ours, theirs, first in zip(
            *(net.parameters() for net in (replica, whole, replicas[0])), strict=True
        ):
            torch.testing.assert_close(
                ours.grad.cpu(), theirs.grad, atol=1e-14, rtol=1e-12
            )
            assert torch.equal(ours.grad.cpu(), first.grad.cpu())
            assert torch.equal(ours.cpu(), theirs)
    assert torch.equal(X, before[0]) and torch.equal(y, before[1])


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
