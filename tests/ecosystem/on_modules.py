"""Modules and losses of torch.nn whose way depends on the device."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.ecosystem.support import close, main, raises, same_gradients

NEEDS = ("torch",)


def check_ctc_with_lengths_on_the_cpu():
    """CTC takes lengths as tensors on the CPU or the GPU, or as tuples."""
    torch.manual_seed(0)
    outputs = torch.randn(12, 2, 5)
    labels = torch.tensor([[1, 2, 2, 4], [3, 1, 0, 0]])
    lengths, sizes = torch.tensor([12, 9]), torch.tensor([4, 2])
    here = outputs.clone().requires_grad_()
    expected = F.ctc_loss(here.log_softmax(2), labels, lengths, sizes)
    expected.backward()
    for of_inputs, of_labels in (
        (lengths, sizes),
        (lengths.cuda(), sizes.cuda()),
        ((12, 9), (4, 2)),
    ):
        there = outputs.cuda().requires_grad_()
        loss = nn.CTCLoss()(there.log_softmax(2), labels.cuda(), of_inputs, of_labels)
        close(loss, expected, "cuda:0")
        loss.backward()
        close(there.grad, here.grad, "cuda:0")


def check_a_transformer_with_padding():
    """A TransformerEncoder in eval mode ignores padding on a GPU, as in training."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    net = nn.TransformerEncoder(layer, 2)
    there = copy.deepcopy(net).to("cuda:1")
    X = torch.randn(3, 6, 16)
    padding = torch.arange(6) >= torch.tensor([[6], [4], [2]])
    expected = net(X, src_key_padding_mask=padding)
    for model in there.train(), there.eval():
        for context in torch.enable_grad(), torch.no_grad(), torch.inference_mode():
            with context:
                output = model(
                    X.to("cuda:1"), src_key_padding_mask=padding.to("cuda:1")
                )
            close(output[~padding.to("cuda:1")], expected[~padding], "cuda:1")
    causal = nn.Transformer.generate_square_subsequent_mask(6)
    expected = net(X, mask=causal, is_causal=True)
    output = there.train()(X.to("cuda:1"), mask=causal.to("cuda:1"), is_causal=True)
    close(output, expected, "cuda:1")


def check_labels_that_are_out_of_range():
    """A class that doesn't exist is an error, at the latest when the GPU is done."""
    X, labels = torch.randn(3, 5, device="cuda"), torch.tensor([0, -100, 4]).cuda()
    loss = F.cross_entropy(X, labels)
    close(loss, F.cross_entropy(X.cpu()[[0, 2]], torch.tensor([0, 4])), "cuda:0")

    def wrong():
        F.cross_entropy(X, torch.tensor([0, 5, 1], device="cuda"))
        torch.cuda.synchronize()

    raises(RuntimeError, wrong, "device-side assert triggered")


def check_pooling_and_resizing():
    """Layers that pool, pad, unfold and resize have the CPU's values and gradients."""
    torch.manual_seed(0)
    X = torch.randn(2, 4, 9, 7)
    places = torch.randn(2, 5, 5, 2).clamp(-1, 1)
    for layer in (
        nn.AdaptiveAvgPool2d((3, 2)),
        nn.AdaptiveAvgPool2d(1),
        nn.AdaptiveMaxPool2d((2, 3)),
        nn.MaxPool2d(3, 2, 1),
        nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.LPPool2d(2, 3),
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        nn.Upsample(size=(5, 4), mode="nearest"),
        nn.Unfold(3, padding=1),
        nn.ReflectionPad2d(2),
        nn.GroupNorm(2, 4),
        nn.Conv2d(4, 6, 3, groups=2, dilation=2),
        nn.ConvTranspose2d(4, 3, 3, stride=2),
        lambda x: F.grid_sample(x, places.to(x.device), align_corners=False),
        lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic", antialias=True),
    ):
        here, there = X.clone().requires_grad_(), X.cuda().requires_grad_()
        moved = (
            copy.deepcopy(layer).to("cuda") if isinstance(layer, nn.Module) else layer
        )
        expected, output = layer(here), moved(there)
        close(output, expected, "cuda:0", rtol=1e-3, atol=1e-3)
        expected.square().sum().backward()
        output.square().sum().backward()
        close(there.grad, here.grad, "cuda:0", rtol=1e-2, atol=1e-2)


def check_recurrent_layers_with_packed_rows():
    """LSTM and GRU on a GPU read rows of different lengths, forward and backward."""
    torch.manual_seed(0)
    X, lengths = torch.randn(3, 5, 4), torch.tensor([5, 2, 3])
    for kind in nn.LSTM, nn.GRU:
        net = kind(4, 6, num_layers=2, bidirectional=True, batch_first=True)
        there = copy.deepcopy(net).to("cuda")
        there.flatten_parameters()
        results = []
        for model, x in (net, X), (there, X.cuda()):
            packed = pack_padded_sequence(
                x, lengths, batch_first=True, enforce_sorted=False
            )
            output, state = model(packed)
            padded, sizes = pad_packed_sequence(output, batch_first=True)
            assert sizes.device == torch.device("cpu") and sizes.equal(lengths)
            padded.square().sum().backward()
            results.append((padded, state[0]))
        for mine, expected in zip(results[1], results[0], strict=True):
            close(mine, expected, "cuda:0", rtol=1e-3)
        same_gradients(there, net, "cuda:0", rtol=1e-2, atol=1e-4)


if __name__ == "__main__":
    main(globals())
