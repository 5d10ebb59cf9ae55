"""Attention, also by the kernels that PyTorch has for GPUs only.

Attention on virtual tensors runs on the backing tensors by the kernel that the CPU
chooses: flash attention, or the whole composite (``composites.py``). But
``context_parallel`` splits a sequence over ranks, and for that DTensor has to see one
of the GPU's kernels, flash attention or memory-efficient attention. Here they are
computed by the CPU's flash attention, with results in the shapes and types of the
GPU's. Where there are no values (``backing='meta'``), the GPU's kernels are always
taken, also with dropout, a mask or fewer keys than queries. There PyTorch itself knows
the shapes of their results and how these lie in memory (``_meta_registrations.py``).
"""

from collections.abc import Callable
from functools import wraps

import torch
from torch.nn.attention import SDPBackend

from .composites import is_foreign, on_backing
from .devices import Devices
from .operators import operator, overload
from .tensor import VirtualTensor, is_virtual
from .work import tf32_in_products

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
_FLASH = SDPBackend.FLASH_ATTENTION.value
_HALF = (torch.float16, torch.bfloat16)
_ROWS = 32  # efficient attention has a logarithm for each row of whole blocks of these


# ------------------------------------------------------------------ choosing one


def chosen(func):
    """Make the kernel of ``scaled_dot_product_attention``."""
    whole = on_backing(func, cost=_cost)

    def kernel(
        query,
        key,
        value,
        attn_mask=None,
        dropout_p=0.0,
        is_causal=False,
        *,
        scale=None,
        enable_gqa=False,
    ):
        plain = attn_mask is None and not (dropout_p or enable_gqa)
        if _has_no_values(query) or (plain and is_foreign(query)):
            fused = _on_gpu(query, key, value, attn_mask, is_causal, enable_gqa)
            if fused is not None:
                options = {"is_causal": is_causal, "scale": scale}
                operands = query, key, value, attn_mask
                return _FUSED[fused](*operands, dropout_p, **options)[0]
        if plain and _flash_on_the_cpu(query, key, value, is_causal, scale):
            return _forward(query, key, value, 0.0, is_causal, scale=scale)[0]
        options = {"scale": scale, "enable_gqa": enable_gqa}
        return whole(query, key, value, attn_mask, dropout_p, is_causal, **options)

    return kernel


def _has_no_values(query) -> bool:
    """Whether the kernel is chosen for its time and memory only."""
    return is_virtual(query) and query._backing.is_meta


def _on_gpu(
    query, key, value, attn_mask=None, is_causal=False, enable_gqa=False
) -> str | None:
    """Return which fused kernel PyTorch would choose on the GPU that is simulated.

    As in aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, without cuDNN's: None if
    it would compute attention by products, with a matrix of scores.
    """
    shapes = query.shape, key.shape, value.shape
    if any(len(shape) != 4 or 0 in shape for shape in shapes):
        return None
    if shapes[0][0] != shapes[1][0] or query.shape[3] != key.shape[3]:
        return None
    features = query.shape[3], value.shape[3]
    half, capability = query.dtype in _HALF, _capability(query)
    grouped, square = query.shape[1] != key.shape[1], query.shape[2] == key.shape[2]
    if (
        torch.backends.cuda.flash_sdp_enabled()
        and capability >= (8, 0)
        and half
        and attn_mask is None
        and features[0] == features[1] <= 256
        and (square or not is_causal)
        and (enable_gqa or not grouped)
    ):
        return "flash"
    known = half or query.dtype is torch.float32
    if query.dtype is torch.bfloat16:
        known = capability >= (8, 0)
    unit = _alignment(half, capability)
    if (
        torch.backends.cuda.mem_efficient_sdp_enabled()
        and known
        and not any(n % unit for n in features)
        and not grouped
    ):
        return "efficient"
    return None


def _capability(query) -> tuple[int, int]:
    """Return the compute capability of the GPU that is simulated.

    One that the catalogue doesn't know is taken for the newest; so is a DTensor's,
    which may be on any device of its mesh.
    """
    if not is_virtual(query):
        return 99, 0
    models = Devices.machines[query._index].clock.models
    found = models[query._index].capability
    return found if any(found) else (99, 0)


def _alignment(half: bool, capability: tuple[int, int]) -> int:
    """Return what the number of features has to be a multiple of."""
    if half and capability >= (7, 0):
        return 8
    return 4 if capability >= (8, 0) else 1


def _cost(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    *,
    scale=None,
    enable_gqa=False,
):
    """Return what tells the machine of the kernel that a GPU would run.

    None if a GPU would compute attention by products, too.
    """
    fused = _on_gpu(query, key, value, attn_mask, is_causal, enable_gqa)
    if fused is None or not is_virtual(query):
        return None
    heads, tf32 = query.shape[1], tf32_in_products()
    shapes = [(len(x), heads, *x.shape[2:]) for x in (query, key, value)]
    described = *shapes, is_causal, tf32
    out = query.nbytes // query.shape[3] * value.shape[3]
    read = sum(x.nbytes for x in (query, key, value, attn_mask) if x is not None)
    names = f"_scaled_dot_product_{fused}_attention", query._index, query.dtype

    def charge(backward: bool) -> None:
        name, index, dtype = names
        # Backward reads all of it again, and the gradient of the output; it writes
        # those of query, key and value.
        nbytes = 2 * (read + out) if backward else read + out
        op = operator(overload(f"{name}_backward" if backward else name))
        key = op, nbytes, out, dtype, described
        Devices.machines[index].kernel_issued(index, key)

    return charge


def _flash_on_the_cpu(query, key, value, is_causal: bool, scale) -> bool:
    """Whether the CPU would take one kernel that has a formula for its gradients.

    Then attention is an operator like any other, which is quicker than as a whole.
    """
    if any(type(x) is not VirtualTensor for x in (query, key, value)):
        return False
    backings = query._backing, key._backing, value._backing
    options = {"scale": scale, "enable_gqa": False}
    return torch._fused_sdp_choice(*backings, None, 0.0, is_causal, **options) == _FLASH


def _fast(query, key, value, mask, dropout_p, **options):
    return torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, dropout_p, **options
    )


def _efficiently(query, key, value, mask, dropout_p, **options):
    if mask is not None:
        # As in attention.cpp of ATen/native/transformers, a truth value becomes what is
        # added to a score.
        if mask.dtype is torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(
                ~mask, -torch.inf
            )
        mask = mask.expand(*query.shape[:3], key.shape[2])
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, True, dropout_p, **options
    )


_FUSED = {"flash": _fast, "efficient": _efficiently}


# ------------------------------------------------------------------ computing them


def _with_values(name: str) -> Callable:
    """Make a kernel compute values where there are any; PyTorch knows shapes itself."""

    def decorate(compute):
        shapes = overload(name)

        @wraps(compute)
        def kernel(first, *args, **kwargs):
            return (shapes if first.is_meta else compute)(first, *args, **kwargs)

        return kernel

    return decorate


@_with_values("_scaled_dot_product_flash_attention")
def flash(
    query,
    key,
    value,
    dropout_p=0.0,
    is_causal=False,
    return_debug_mask=False,
    *,
    scale=None,
):
    """Return the output (B, H, L, D), float32 logarithms of sums (B, H, L) and more."""
    _check(query, key, dropout_p, is_causal)
    out, logsumexp = _forward(query, key, value, 0.0, is_causal, scale=scale)
    seed = out.new_zeros(2, dtype=torch.uint64)
    offset = out.new_zeros((), dtype=torch.uint64)
    return (
        out,
        logsumexp.contiguous(),
        None,
        None,
        query.shape[2],
        key.shape[2],
        seed,
        offset,
        query.new_empty(0),
    )


@_with_values("_scaled_dot_product_flash_attention_backward")
def flash_backward(
    grad_out,
    query,
    key,
    value,
    out,
    logsumexp,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    philox_seed,
    philox_offset,
    *,
    scale=None,
):
    """Return the gradients of query, key and value."""
    _check(query, key, dropout_p, is_causal)
    operands = grad_out, query, key, value, out, logsumexp
    return _backward(*operands, 0.0, is_causal, scale=scale)


@_with_values("_scaled_dot_product_efficient_attention")
def efficient(
    query,
    key,
    value,
    attn_bias,
    compute_log_sumexp,
    dropout_p=0.0,
    is_causal=False,
    *,
    scale=None,
):
    """Return the output (B, H, L, D), float32 logarithms of sums and more.

    The logarithms are of shape (B, H, L rounded up to whole blocks), or empty.
    """
    _check(query, key, dropout_p, is_causal, attn_bias)
    out, found = _forward(query, key, value, 0.0, is_causal, scale=scale)
    rows = -(-query.shape[2] // _ROWS) * _ROWS if compute_log_sumexp else 0
    logsumexp = found.new_full((*found.shape[:2], rows), torch.inf, dtype=torch.float32)
    if rows:
        logsumexp[:, :, : found.shape[2]] = found
    seed, offset = (found.new_zeros((), dtype=torch.int64) for _ in range(2))
    return out, logsumexp, seed, offset


@_with_values("_scaled_dot_product_efficient_attention_backward")
def efficient_backward(
    grad_out,
    query,
    key,
    value,
    attn_bias,
    out,
    logsumexp,
    philox_seed,
    philox_offset,
    dropout_p,
    grad_input_mask,
    is_causal=False,
    *,
    scale=None,
):
    """Return the gradients of query, key and value, and None for that of the bias."""
    _check(query, key, dropout_p, is_causal, attn_bias)
    operands = grad_out, query, key, value, out, logsumexp[:, :, : query.shape[2]]
    found = _backward(*operands, 0.0, is_causal, scale=scale)
    wanted = zip(found, grad_input_mask, strict=False)
    return *(x if wants else None for x, wants in wanted), None


def _check(query, key, dropout_p, is_causal, attn_bias=None) -> None:
    """Raise NotImplementedError for what the CPU's kernel can't do as a GPU does."""
    if dropout_p or attn_bias is not None:
        raise NotImplementedError(
            "Virtual GPUs compute the fused kernels of attention without dropout and "
            "without a bias: use scaled_dot_product_attention, which has both."
        )
    if is_causal and query.shape[2] != key.shape[2]:
        raise NotImplementedError(
            "Virtual GPUs compute the fused kernels of causal attention only for as "
            "many queries as keys."
        )
