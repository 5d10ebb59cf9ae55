"""Operators that the host computes whole: recurrent layers, attention, ``out=``.

That their values and gradients are the CPU's is tested in ``conformance``.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.virtual_gpus(2, memory="256MiB")


def gpu(i):
    return torch.device("vgpu", i)


def results(layer, X):
    """Outputs, gradients, and gradients of gradients of a recurrent layer."""
    X = X.detach().requires_grad_()
    Y, _ = layer(X)
    (grad,) = torch.autograd.grad(Y.sin().sum(), X, create_graph=True)
    weights = list(layer.parameters())
    return [Y, grad, *torch.autograd.grad(grad.square().sum(), [X, *weights])]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_have_gradients_of_gradients(kind):
    torch.manual_seed(0)
    layer, X = kind(3, 4, 2).double(), torch.randn(5, 2, 3).double()
    expected = results(layer, X)
    actual = results(layer.to(gpu(1)), X.to(gpu(1)))
    assert {x.device for x in actual} == {gpu(1)}
    torch.testing.assert_close([x.cpu() for x in actual], expected)


@pytest.mark.parametrize("kind", ["lstm", "attention"])
def test_a_graph_lasts_as_long_as_the_program_asks(kind):
    X = torch.randn(3, 2, 4, device=gpu(1), requires_grad=True)
    layer = nn.LSTM(4, 4).to(gpu(1))
    Y = layer(X)[0] if kind == "lstm" else F.scaled_dot_product_attention(X, X, X)
    gradients = [
        torch.autograd.grad(Y.sum(), X, retain_graph=True)[0] for _ in range(3)
    ]
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)
    Y.sum().backward()
    assert torch.equal(X.grad, gradients[0])


@pytest.mark.parametrize("kind", ["lstm", "attention"])
def test_backward_lets_go_of_what_was_kept_for_it(kind):
    """Also while the program holds on to the loss, as most training loops do."""
    X = torch.randn(3, 64, 256, device=gpu(1), requires_grad=True)
    layer = nn.LSTM(256, 256).to(gpu(1)).requires_grad_(False)
    memory = []
    for _ in range(2):
        before = torch.vgpu.memory_allocated(gpu(1))
        Y = (
            layer(X)[0]
            if kind == "lstm"
            else F.scaled_dot_product_attention(X, X, X, dropout_p=0.5)
        )
        loss = Y.sum()
        del Y
        kept = torch.vgpu.memory_allocated(gpu(1)) - before
        torch.autograd.grad(loss, X)
        memory.append((kept, torch.vgpu.memory_allocated(gpu(1)) - before))
        with pytest.raises(RuntimeError, match="backward through the graph a second"):
            torch.autograd.grad(loss, X)
        del loss
    for kept, left in memory:
        assert kept > X.nbytes
        assert left <= 512  # the loss


def test_recurrent_layers_take_packed_sequences():
    sequences = [torch.ones(3, 2), torch.ones(1, 2)]
    torch.manual_seed(0)
    layer = nn.LSTM(2, 4)
    packed = nn.utils.rnn.pack_sequence(sequences)
    expected, _ = nn.utils.rnn.pad_packed_sequence(layer(packed)[0])
    on_device = layer.to(gpu(1))(packed.to(gpu(1)))[0]
    assert on_device.data.device == gpu(1)
    assert on_device.batch_sizes.device.type == "cpu"
    actual, lengths = nn.utils.rnn.pad_packed_sequence(on_device)
    assert torch.equal(actual.cpu(), expected)
    assert lengths.tolist() == [3, 1]


def test_memory_and_kernels_inside_are_the_devices():
    from d2l_gpu import vgpu

    machine = vgpu.machine_in_use()
    layer = nn.LSTM(8, 16).to(gpu(1))
    X = torch.ones(32, 4, 8, device=gpu(1))
    before, kernels = torch.vgpu.memory_allocated(1), machine.kernels[1]
    Y, _ = layer(X)
    held = torch.vgpu.memory_allocated(1) - before
    assert held > 4 * Y.nbytes  # four gates are kept for the backward pass
    assert machine.kernels[1] > kernels
    del Y, _
    assert torch.vgpu.memory_allocated(1) == before
    assert torch.vgpu.memory_allocated(0) == 0


def test_running_out_of_memory_inside_leaves_nothing_behind():
    layer = nn.LSTM(64, 1024).to(gpu(0))
    before = torch.vgpu.memory_allocated(0)
    with pytest.raises(torch.OutOfMemoryError, match="GPU 0 has a total capacity"):
        layer(torch.ones(512, 64, 64, device=gpu(0)))
    assert torch.vgpu.memory_allocated(0) == before


def test_running_out_of_memory_in_the_backward_pass():
    layer = nn.LSTM(64, 256).to(gpu(0))
    Y, _ = layer(torch.ones(100, 16, 64, device=gpu(0)))
    free, _ = torch.vgpu.mem_get_info(0)
    filler = torch.empty(free - 2**20, dtype=torch.uint8, device=gpu(0))
    with pytest.raises(torch.OutOfMemoryError, match="GPU 0 has a total capacity"):
        Y.sum().backward()
    del filler
    Y, _ = layer(torch.ones(100, 16, 64, device=gpu(0)))
    Y.sum().backward()
    assert layer.weight_ih_l0.grad.device == gpu(0)


def test_attention_takes_the_path_of_the_host():
    torch.manual_seed(0)
    Q, K, V = torch.randn(3, 2, 4, 16, 8).unbind()
    expected = nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=True)
    on_device = [x.to(gpu(0)) for x in (Q, K, V)]
    actual = nn.functional.scaled_dot_product_attention(*on_device, is_causal=True)
    assert torch.equal(actual.cpu(), expected)


def test_out_is_written_where_pytorch_forgets_subclasses():
    X = torch.eye(3, device=gpu(1))
    rank = torch.zeros((), dtype=torch.int64, device=gpu(1))
    assert torch.linalg.matrix_rank(X, out=rank) is rank
    assert rank.item() == 3
    Y = torch.empty(0, device=gpu(1))
    torch.matmul(X.expand(2, 3, 3), X[0], out=Y)
    assert Y.tolist() == [[1, 0, 0], [1, 0, 0]]


def test_out_has_no_gradient():
    X = torch.eye(3, device=gpu(1), requires_grad=True)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        torch.matmul(X, X, out=torch.empty(3, 3, device=gpu(1)))


def test_conjugates_inside_an_operator():
    torch.manual_seed(0)
    X = torch.randn(4, 3, dtype=torch.complex64)
    assert torch.equal(torch.linalg.pinv(X.to(gpu(1))).cpu(), torch.linalg.pinv(X))


@pytest.mark.virtual_gpus(2)
@pytest.mark.parametrize("place", ["cpu", "vgpu:1", None])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_lengths_of_ctc_loss_may_be_anywhere(place, reduction):
    outputs, labels = torch.randn(12, 3, 5), torch.randint(1, 5, (3, 4))
    inputs, targets = [12, 9, 12], [4, 2, 1]
    here = outputs.clone().requires_grad_()
    loss = F.ctc_loss(here, labels, inputs, targets, reduction=reduction)
    there = outputs.to("vgpu:1").requires_grad_()
    lengths = inputs, targets
    if place is not None:
        lengths = [torch.tensor(x, device=place) for x in lengths]
    ours = F.ctc_loss(there, labels.to("vgpu:1"), *lengths, reduction=reduction)
    assert torch.equal(ours.cpu(), loss)
    loss.sum().backward()
    ours.sum().backward()
    assert torch.equal(there.grad.cpu(), here.grad)


@pytest.mark.virtual_gpus(1)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_an_encoder_in_evaluation_leaves_padding_out(mode):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 1).eval()
    X = torch.randn(3, 5, 8)
    padding = torch.arange(5) >= torch.tensor([[5], [3], [1]])
    with torch.enable_grad():  # PyTorch's own fast path leaves zeros in the padding
        expected = net(X, src_key_padding_mask=padding)[~padding]
    net.to("vgpu")
    with mode():
        ours = net(X.to("vgpu"), src_key_padding_mask=padding.to("vgpu")).cpu()
    torch.testing.assert_close(ours[~padding], expected)


@given(
    labels=st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=2), min_size=1),
    extra=st.integers(-1, 3),
)
def test_one_hot_is_as_on_the_cpu(labels, extra):
    labels = torch.tensor(labels)
    classes = -1 if extra == -1 else int(labels.max()) + 1 + extra
    expected = F.one_hot(labels, classes)
    actual = F.one_hot(labels.to(gpu(1)), classes)
    assert (actual.device, actual.dtype) == (gpu(1), torch.int64)
    assert torch.equal(actual.cpu(), expected)


def test_ctc_loss_takes_a_length_for_one_sequence():
    scores = torch.randn(7, 4).log_softmax(1)
    targets, lengths = torch.tensor([1, 2, 2]), (torch.tensor(7), torch.tensor(3))
    expected = F.ctc_loss(scores, targets, *lengths)
    actual = F.ctc_loss(*(x.to(gpu(1)) for x in (scores, targets, *lengths)))
    torch.testing.assert_close(actual.cpu(), expected)


COMPOSITES = {
    "lstm": lambda layer, X: layer(X)[0],
    "attention": lambda layer, X: F.scaled_dot_product_attention(
        X, X, X, torch.zeros(3, 3, device=X.device)
    ),
}


@pytest.mark.parametrize("kind", COMPOSITES)
@pytest.mark.parametrize("place", ["cpu", "vgpu:1"])
def test_a_checkpoint_computes_a_composite_twice_and_no_more(kind, place):
    torch.manual_seed(0)
    layer, X = nn.LSTM(4, 4).to(place), torch.randn(2, 3, 4).to(place)
    calls = 0

    def block(X):
        nonlocal calls
        calls += 1
        return COMPOSITES[kind](layer, X.sin()).cos()

    X.requires_grad_()
    (expected,) = torch.autograd.grad(block(X).sum(), X)
    calls = 0
    Y = checkpoint(block, X, use_reentrant=False)
    (actual,) = torch.autograd.grad(Y.sum(), X)
    assert calls == 2
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("kind", COMPOSITES)
def test_a_composite_keeps_what_hooks_let_it_keep(kind):
    layer = nn.LSTM(4, 4).to(gpu(1))
    X = torch.randn(2, 3, 4).to(gpu(1)).requires_grad_()
    (expected,) = torch.autograd.grad(COMPOSITES[kind](layer, X).sum(), X)
    packed = []

    def pack(x):
        packed.append(x.device)
        return x.cpu()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x.to(gpu(1))):
        Y = COMPOSITES[kind](layer, X).sum()
    (actual,) = torch.autograd.grad(Y, X)
    assert set(packed) == {gpu(1)}
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("kind", COMPOSITES)
def test_a_checkpoint_frees_what_a_composite_would_keep(kind):
    layer = nn.LSTM(4, 4).to(gpu(1))
    X = torch.randn(256, 256, 4, device=gpu(1), requires_grad=True)

    def block(X):
        Y = X.sin()
        if kind == "lstm":
            return layer(Y)[0]
        return F.scaled_dot_product_attention(Y, Y, Y, torch.zeros_like(Y @ Y.mT))

    before = torch.vgpu.memory_allocated(1)
    Y = checkpoint(block, X, use_reentrant=False)
    assert torch.vgpu.memory_allocated(1) - before <= Y.nbytes + 2**16
    Y.sum().backward()
    assert X.grad.shape == X.shape
