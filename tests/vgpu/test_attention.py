"""Attention: the CPU's to the bit, and the kernels that PyTorch has for GPUs only."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from d2l_gpu import vgpu

pytestmark = pytest.mark.virtual_gpus(2)

flash = torch.ops.aten._scaled_dot_product_flash_attention
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_backward
efficient = torch.ops.aten._scaled_dot_product_efficient_attention
# Batch, heads, queries, keys, features.
SIZES = [(1, 1, 1, 1, 8), (2, 3, 33, 33, 16), (1, 2, 5, 40, 8), (3, 1, 64, 7, 32)]
CASES = [
    (sizes, causal)
    for sizes in SIZES
    for causal in (False, True)
    if sizes[2] == sizes[3] or not causal
]


def operands(sizes, dtype=torch.float32):
    batch, heads, queries, keys, features = sizes
    torch.manual_seed(sum(sizes))
    lengths = queries, keys, keys
    return [torch.randn(batch, heads, n, features).to(dtype) for n in lengths]


def plain(query, key, value, causal, scale=None):
    """Return the output and the logarithms of sums of attention, step by step."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.mT * scale
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


@pytest.mark.parametrize(("sizes", "causal"), CASES)
@pytest.mark.parametrize("way", ["flash", "by a mask", "grouped", "by products"])
def test_outputs_and_gradients_are_the_cpus(sizes, causal, way):
    if way == "by a mask":
        options = {"attn_mask": torch.ones(sizes[2], sizes[3]).tril() > 0}
    else:
        options = {"is_causal": causal, "enable_gqa": way == "grouped", "scale": 0.3}
    backend = SDPBackend.MATH if way == "by products" else SDPBackend.FLASH_ATTENTION
    found = []
    for device in ("cpu", "vgpu:1"):
        there = {
            name: x.to(device) if isinstance(x, torch.Tensor) else x
            for name, x in options.items()
        }
        for _ in range(2):
            operands_ = [x.to(device).requires_grad_() for x in operands(sizes)]
            with sdpa_kernel(backend):
                output = F.scaled_dot_product_attention(*operands_, **there)
            output.square().sum().backward()
        found.append([x.cpu() for x in (output, *(x.grad for x in operands_))])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize(("sizes", "causal"), CASES)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_results_are_those_of_plain_attention(sizes, causal, scale):
    here = operands(sizes)
    there = [x.to("vgpu:1") for x in here]
    expected, logarithms = plain(*here, causal, scale)
    for _ in range(2):
        fast = flash(*there, is_causal=causal, scale=scale)
        frugal = efficient(*there, None, True, is_causal=causal, scale=scale)
    rows = sizes[2]
    assert frugal[1].shape[2] % 32 == 0 and frugal[1].shape[2] - rows < 32
    for output, found in (fast[:2], (frugal[0], frugal[1][:, :, :rows])):
        assert output.device == found.device == torch.device("vgpu:1")
        torch.testing.assert_close(output.cpu(), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.cpu(), logarithms, rtol=1e-4, atol=1e-5)
    assert fast[4:6] == (sizes[2], sizes[3])
    assert efficient(*there, None, False)[1].numel() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_shapes_and_types_are_those_that_pytorch_expects_of_a_gpu(dtype):
    there = [x.to("vgpu:1") for x in operands(SIZES[1], dtype)]
    meta = [x.to("meta") for x in there]
    for run in (
        lambda x: flash(*x, 0.0, True),
        lambda x: efficient(*x, None, True, 0.0, True),
    ):
        for mine, expected in zip(run(there), run(meta), strict=True):
            if isinstance(expected, torch.Tensor):
                assert (mine.shape, mine.dtype) == (expected.shape, expected.dtype)
            else:
                assert mine == expected


@pytest.mark.parametrize(("sizes", "causal"), CASES)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_gradients_are_those_of_plain_attention(sizes, causal, scale):
    here = [x.requires_grad_() for x in operands(sizes)]
    weights = torch.randn_like(here[0])
    (plain(*here, causal, scale)[0] * weights).sum().backward()
    options = {"is_causal": causal, "scale": scale}
    for attend in (
        lambda *x: flash(*x, **options)[0],
        lambda *x: efficient(*x, None, True, **options)[0],
    ):
        there = [x.detach().to("vgpu:1").requires_grad_() for x in here]
        (attend(*there) * weights.to("vgpu:1")).sum().backward()
        for mine, expected in zip(there, here, strict=True):
            assert mine.grad.device == mine.device
            torch.testing.assert_close(
                mine.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-5
            )


def test_backward_takes_logarithms_of_a_longer_sequence():
    """Ring attention passes those of the whole sequence with a part of the keys."""
    query, key, value = operands(SIZES[1])
    leaf = key.clone().requires_grad_()
    output, logarithms = plain(query, leaf, value, False)
    output.sum().backward()
    there = (query, key, value, output.detach(), logarithms.detach())
    there = [x.to("vgpu:0") for x in there]
    found = []
    for part in slice(0, 20), slice(20, 33):
        q, k, v, out, logs = there
        gradients = flash_backward(
            torch.ones_like(q),
            *(q, k[:, :, part], v[:, :, part], out, logs, None, None, 33, 33),
            *(0.0, False, q.new_zeros(2), q.new_zeros(())),
        )
        found.append(gradients[1].cpu())
    torch.testing.assert_close(torch.cat(found, 2), leaf.grad, rtol=1e-4, atol=1e-5)


def test_what_the_cpu_computes_otherwise_is_refused():
    there = [x.to("vgpu:0") for x in operands((1, 1, 4, 8, 8))]
    for call in (
        lambda: flash(*there, dropout_p=0.5),
        lambda: efficient(*there, torch.zeros(4, 8, device="vgpu:0"), True),
    ):
        with pytest.raises(NotImplementedError, match="without dropout and without"):
            call()
    with pytest.raises(NotImplementedError, match="as many queries as keys"):
        flash(*there, is_causal=True)


# ------------------------------------------------------------------ a simulated GPU


def simulated(model, sizes, dtype, gradient=False, backing="meta", **options):
    """What attention runs on a model of the catalogue, and the peak of its memory."""
    sim = vgpu.simulator(1, model, backing=backing, memory="64GiB")
    device = sim.gpu(0)
    query, key, value = (
        x.to(device).requires_grad_(gradient) for x in operands(sizes, dtype)
    )
    options = {
        name: x.to(device) if isinstance(x, torch.Tensor) else x
        for name, x in options.items()
    }
    sim.reset()
    before = torch.vgpu.memory_allocated(device)
    torch.vgpu.reset_peak_memory_stats(device)
    output = F.scaled_dot_product_attention(query, key, value, **options)
    if gradient:
        output.sum().backward()
    peak = torch.vgpu.max_memory_allocated(device) - before
    return {use.name: use for use in sim.report().devices[0].operators}, peak


LONG = (1, 2, 512, 512, 64)
MASK = {"attn_mask": torch.ones(512, 512, dtype=torch.bool)}


@pytest.mark.parametrize("backing", ["meta", "cpu"])
@pytest.mark.parametrize(
    ("model", "dtype", "options", "kernel"),
    [
        ("A100", torch.float16, {"dropout_p": 0.1}, "flash"),
        ("H100", torch.bfloat16, {"dropout_p": 0.1}, "flash"),
        ("V100", torch.float16, {"dropout_p": 0.1}, "efficient"),
        ("A100", torch.float32, {"dropout_p": 0.1}, "efficient"),
        ("A100", torch.float16, MASK, "efficient"),
        ("T4", torch.float16, MASK, "efficient"),
    ],
)
def test_the_simulated_gpu_runs_the_kernel_that_pytorch_chooses_there(
    backing, model, dtype, options, kernel
):
    for gradient in (False, True):
        found, peak = simulated(model, LONG, dtype, gradient, backing, **options)
        name = f"_scaled_dot_product_{kernel}_attention"
        expected = {name, f"{name}_backward"} if gradient else {name}
        assert {x for x in found if "scaled" in x} == expected
        assert "bmm" not in found
        # No matrix of scores: some tensors of the operands' sizes, and the mask as
        # truth values and as numbers.
        one = 2 * 512 * 64 * dtype.itemsize
        mask = 512 * 512 * (1 + dtype.itemsize) if "attn_mask" in options else 0
        assert peak <= (8 if gradient else 2) * one + mask


@pytest.mark.parametrize(
    ("model", "dtype", "sizes", "options"),
    [
        ("V100", torch.bfloat16, LONG, {}),  # bfloat16 came with Ampere
        ("A100", torch.float64, LONG, {}),
        ("A100", torch.float16, (1, 2, 512, 512, 12), MASK),  # not a multiple of 8
    ],
)
def test_what_no_fused_kernel_takes_is_computed_by_products(
    model, dtype, sizes, options
):
    found, peak = simulated(model, sizes, dtype, **options)
    assert "bmm" in found
    assert peak >= 2 * 512 * 512 * dtype.itemsize


def test_a_choice_of_the_program_is_kept():
    with sdpa_kernel(SDPBackend.MATH):
        found, _ = simulated("A100", LONG, torch.float16)
    assert "bmm" in found
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        found, _ = simulated("A100", LONG, torch.float16)
    assert "_scaled_dot_product_efficient_attention" in found


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("gradient", [False, True])
def test_a_causal_mask_halves_the_work_and_not_the_memory(dtype, gradient):
    (whole, peak), (half, same) = (
        simulated("A100", LONG, dtype, gradient, is_causal=causal)
        for causal in (False, True)
    )
    assert whole.keys() == half.keys()
    for name in whole:
        if "scaled" in name:
            assert half[name].operations == whole[name].operations // 2
    assert peak == same


@pytest.mark.parametrize("gradient", [False, True])
def test_attention_costs_the_same_with_and_without_values(gradient):
    found = [
        simulated("A100", LONG, torch.float32, gradient, backing, dropout_p=0.1)[0]
        for backing in ("meta", "cpu")
    ]
    # Copies aside: how results lie in memory is the GPU's only without values.
    one, other = (
        {
            name: (use.calls, use.operations)
            for name, use in uses.items()
            if name != "copy_"
        }
        for uses in found
    )
    assert one == other


@given(
    sizes=st.tuples(*(st.integers(1, 4) for _ in range(3)), st.sampled_from([8, 64])),
    order=st.permutations(range(3)),
    groups=st.sampled_from([1, 2]),
    dropout=st.sampled_from([0.0, 0.1]),
    kernel=st.sampled_from(["flash", "efficient"]),
)
def test_without_values_results_lie_in_memory_as_on_a_gpu(
    sizes, order, groups, dropout, kernel
):
    """PyTorch's shape functions are the reference; the order of strides counts."""
    batch, heads, rows, features = sizes
    sim = vgpu.simulator(1, "A100", backing="meta")
    dtype = torch.bfloat16 if kernel == "flash" else torch.float32
    groups = groups if kernel == "flash" else 1  # the other takes no groups

    def operand(heads, device):
        shape = batch, heads, rows
        places = [shape[i] for i in order]
        x = torch.empty(*places, features, dtype=dtype, device=device)
        return x.permute(*(order.index(i) for i in range(3)), 3).requires_grad_()

    found = []
    for device in (sim.gpu(0), "meta"):
        operands_ = [operand(n, device) for n in (groups * heads, heads, heads)]
        if device == "meta" and kernel == "flash":
            output = flash(*operands_, dropout, True)[0]
        elif device == "meta":
            output = efficient(*operands_, None, True, dropout, True)[0]
        else:
            output = F.scaled_dot_product_attention(
                *operands_, dropout_p=dropout, is_causal=True, enable_gqa=groups > 1
            )
        gradients = torch.autograd.grad(output, operands_, torch.ones_like(output))
        found.append([(x.shape, x.stride(), x.dtype) for x in (output, *gradients)])
    assert found[0] == found[1]
