"""One record per operator: everything about it that its schema doesn't say.

To find out what is special about an operator, or to change it, look it up in
``RECORDS``. A name such as ``empty`` means all overloads of an operator, a name such as
``empty.out`` a single one. An operator without an entry may belong to one of the
``FAMILIES``, which share a prefix. Every other operator is ordinary: it has the
defaults of ``Record``.

The functions that records name are explained where they are defined: handlers in
``special.py`` and ``collectives.py``, formulas in ``work.py`` and ``convolutions.py``,
bounds in ``bounds.py``, composites in ``composites.py``, attention in ``attention.py``,
types in ``autocast.py``. All operators here exist in PyTorch 2.10 to 2.13. Those of
``c10d`` are missing where PyTorch was built without ``torch.distributed``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch._ops import OpOverload

from . import (
    attention,
    autocast,
    bounds,
    collectives,
    composites,
    convolutions,
    special,
    work,
)
from .operators import DETACH, always, name_of
from .work import Formula


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is special about an operator; the defaults describe an ordinary one.

    Attributes:
        handler: runs in its place; takes the facts about the operator, then the
            operator's own arguments.
        substitute: computes it from backing tensors, where the CPU has no kernel.
        composite: makes the kernel that runs an overload as a whole on backing
            tensors, above autograd. ``composites.py`` finds overloads with ``out=``.
        below_python: whether C++ also calls it with the Python dispatch switched off.
            Then it needs a kernel of its own.
        autocast: makes the kernel that casts its operands inside
            ``torch.autocast('vgpu')``: one of the lists in ``autocast.py``. It's that
            of a single overload, the default one unless another is named.
        kernel: whether a kernel runs. Views never run one, whatever this says.
        form: what its single result is (DETACH), where the schema says too little.
        bound: returns an upper bound of the bytes of its results, given the arguments
            of a call and the bytes of their tensors. Default: ``bounds.size_bound``.
        densified: returns the bytes of its dense result, given the arguments of a call
            with sparse operands; 0 if the result is sparse. Default: 0.
        formula: its kernels on the simulated clock. Default: a single kernel with one
            operation per element.
        traffic: the bytes that such a kernel moves, as a multiple of the bytes of its
            operands and results.
        layer: whether layers with parameters issue it going forward, in whose code
            the host spends time.
        collective: which collective the simulated clock treats it as, a key of
            ``nccl.SENT``.
        between_two: whether two ranks exchange a tensor, rather than all of a group.
        flat: whether it's a collective to which only the number of elements matters;
            to gloo the shapes matter too.
        waits: returns whether the host waits for the device, given the call's
            arguments before they are unwrapped: the shape of the result depends on
            values, or the result is a number on the host. Default: only an operator
            with the tag ``dynamic_output_shape`` waits (``nonzero``).
        alert: the name of CUDA's kernel, if that isn't deterministic. On request it
            raises, and its message has this name.
        pointwise: whether a CPU tensor without dimensions counts as a number, and
            errors are worded as TensorIterator words them. Default: those with the tag
            ``pointwise`` and their forms in place. (PyTorch marks them with
            ``device_check: NoCheck`` in ATen/native/native_functions.yaml.)
        indexes: whether its operands are indices. These may be on the CPU, from where
            they are copied; errors speak of indices.
        host_lengths: whether an operand holds lengths, which PyTorch keeps on the CPU.
        host_results: positions of the results that stay on the CPU.
        number: whether its result stands for a number of the program's, as in
            ``X[i] = 1.0``. For CUDA, PyTorch would leave it on the CPU.
    """

    # How it runs.
    handler: Callable | None = None
    substitute: Callable | None = None
    composite: Callable[[OpOverload], Callable] | None = None
    below_python: bool = False
    autocast: Callable[[OpOverload], Callable] | None = None
    # Its result, and its cost.
    kernel: bool = True
    form: int | None = None
    bound: Callable[[Sequence, int], int] | None = None
    densified: Callable[[Sequence], int] | None = None
    formula: Formula | None = None
    traffic: float = 1
    layer: bool = False
    collective: str | None = None
    between_two: bool = False
    flat: bool = False
    waits: Callable[[Sequence], bool] | None = None
    alert: str | None = None
    # Operands and results on the CPU.
    pointwise: bool | None = None
    indexes: bool = False
    host_lengths: bool = False
    host_results: tuple[int, ...] = ()
    number: bool = False


def has_mask(args: Sequence) -> bool:
    """Whether an index is a mask on the device, where its True values are counted."""
    given = [x for x in args[1] if x is not None]
    masks = [x for x in given if x.dtype in (torch.uint8, torch.bool)]
    return any(hasattr(x, "_backing") for x in masks)


def puts_at_mask(args: Sequence) -> bool:
    """Whether the True values are counted for writing there.

    They aren't for a number of the program's, ``X[mask] = 0``: CUDA fills where the
    mask says so (canDispatchToMaskedFill in ATen/native/TensorAdvancedIndexing.cpp).
    """
    alone = sum(x is not None for x in args[1]) == 1
    return has_mask(args) and not (alone and getattr(args[2], "_is_number", False))


def from_dense(args: Sequence) -> bool:
    """Whether the elements that aren't zero have to be counted first."""
    return args[0].layout is torch.strided


ORDINARY = Record()
NO_KERNEL = Record(kernel=False)
NO_LARGER = Record(bound=bounds.no_larger)
LOWER = Record(autocast=autocast.lower)
FLOAT32 = Record(autocast=autocast.float32)
INTO_FLOAT32 = Record(autocast=autocast.into_float32)
WIDEST_TYPE = Record(autocast=autocast.widest)
AS_A_WHOLE = replace(LOWER, composite=composites.on_backing)
RECURRENT = replace(AS_A_WHOLE, host_lengths=True)
FOREACH = Record(pointwise=True, bound=bounds.no_larger)
INDEXING = Record(indexes=True)
NUMBERS = Record(pointwise=True)
NO_NUMBERS = Record(pointwise=False)
COMPRESSING = Record(waits=from_dense)
DENSIFYING = Record(densified=bounds.dense)
COLLECTIVE = Record(handler=collectives.collective)
ALL_GATHER = replace(COLLECTIVE, collective="all_gather")
ALL_REDUCE = replace(COLLECTIVE, collective="all_reduce")
ALL_TO_ALL = replace(COLLECTIVE, collective="all_to_all")
BETWEEN_TWO = replace(COLLECTIVE, between_two=True)
REDUCE_SCATTER = replace(COLLECTIVE, collective="reduce_scatter")
FUNCTIONAL = Record(handler=collectives.functional, kernel=False)
EXCHANGED = replace(FUNCTIONAL, collective="all_to_all")
GATHERED = replace(FUNCTIONAL, collective="all_gather")
REDUCED = replace(FUNCTIONAL, collective="all_reduce")
SCATTERED = replace(FUNCTIONAL, collective="reduce_scatter")


def varying(kernel: str) -> Record:
    """Return the record of an operator whose kernel of CUDA isn't deterministic."""
    return Record(handler=special.alerting, alert=kernel)


RECORDS: dict[str, Record] = {
    # -------------------------------------------------------------- memory and views
    # Zeros of forward-mode differentiation, without memory: kernels that run below the
    # keys that know them would read from nowhere.
    "_efficientzerotensor": Record(substitute=special.zeros),
    "_reshape_alias": NO_KERNEL,
    "_unsafe_view": NO_KERNEL,
    "alias": NO_KERNEL,
    "detach": Record(kernel=False, form=DETACH),
    "detach_": NO_KERNEL,
    "empty": NO_KERNEL,
    "empty.out": ORDINARY,  # nothing runs, but the clock counts a kernel
    "empty_like": NO_KERNEL,
    "empty_permuted": NO_KERNEL,
    "empty_strided": NO_KERNEL,
    "lift_fresh": NO_KERNEL,
    "new_empty": NO_KERNEL,
    "new_empty_strided": NO_KERNEL,
    "resize_": NO_KERNEL,
    "set_": NO_KERNEL,
    "tensor_split.tensor_indices_or_sections": Record(
        composite=composites.split_at_values
    ),
    # -------------------------------------------------------------- copies and values
    # Below Python, torch.tensor(..., device='vgpu') copies, and reads any tensors in
    # the list that it gets.
    "_copy_from": Record(handler=special.copy_from, below_python=True),
    "_local_scalar_dense": Record(handler=special.item, below_python=True),
    "_to_copy": Record(handler=special.to_copy),
    "copy_": Record(handler=special.copy_),
    **dict.fromkeys(
        ("_has_same_storage_numel", "is_same_size"), Record(handler=special.across)
    ),
    "to": Record(handler=special.in_parts),
    "type_as": Record(handler=special.in_parts),
    # These write their targets without reading them.
    "_foreach_copy_": replace(FOREACH, traffic=2 / 3),
    "_foreach_zero_": replace(FOREACH, traffic=1 / 2),
    "fill_": Record(traffic=1 / 2),
    "fill_.Tensor": Record(traffic=1 / 2, pointwise=True),
    "masked_fill.Tensor": NUMBERS,
    "masked_fill_.Tensor": NUMBERS,
    "zero_": Record(traffic=1 / 2),
    # -------------------------------------------------------------- looking up
    "embedding": Record(formula=work.LOOKUP, layer=True),
    "gather": Record(formula=work.LOOKUP),
    "index": replace(INDEXING, formula=work.LOOKUP, waits=has_mask),
    "index_fill": NUMBERS,
    "one_hot": Record(composite=composites.ones_in_zeros),
    "index_fill_": NUMBERS,
    "index_put": replace(INDEXING, waits=puts_at_mask, autocast=autocast.widest),
    "index_put_": replace(INDEXING, waits=puts_at_mask),
    "grid_sampler": WIDEST_TYPE,
    "scalar_tensor": Record(number=True),
    "index_select": Record(formula=work.LOOKUP),
    "scatter_add": WIDEST_TYPE,
    "take": Record(formula=work.LOOKUP),
    # -------------------------------------------------------------- sparse tensors
    "_coalesce": Record(waits=always),
    "_coalesced_": NO_KERNEL,
    "_dimI": NO_KERNEL,
    "_dimV": NO_KERNEL,
    "_nnz": NO_KERNEL,
    "_sparse_compressed_tensor_unsafe": NO_KERNEL,
    "_sparse_coo_tensor_unsafe": NO_KERNEL,
    "_sparse_coo_tensor_with_dims": NO_KERNEL,
    "_sparse_coo_tensor_with_dims_and_tensors": NO_KERNEL,
    "_sparse_csc_tensor_unsafe": NO_KERNEL,
    "_sparse_csr_tensor_unsafe": NO_KERNEL,
    # The CPU's kernel notes the places of maxima only for operands that need gradients.
    "_sparse_mm.reduce": Record(composite=composites.on_backing),
    "_sparse_sparse_matmul": Record(waits=always),
    "_to_dense": DENSIFYING,
    "_to_sparse": COMPRESSING,
    "_to_sparse_csc": COMPRESSING,
    "_to_sparse_csr": COMPRESSING,
    "dense_dim": NO_KERNEL,
    "is_coalesced": NO_KERNEL,
    "sparse_dim": NO_KERNEL,
    "sparse_resize_": NO_KERNEL,
    "sparse_resize_and_clear_": NO_KERNEL,
    "to_dense": DENSIFYING,
    "to_sparse": COMPRESSING,
    "to_sparse_csc": COMPRESSING,
    "to_sparse_csr": COMPRESSING,
    # -------------------------------------------------------------- products
    "addbmm": LOWER,
    "addmm": replace(
        LOWER,
        bound=bounds.added_product,
        densified=bounds.dense_added_product,
        formula=work.ADDED_PRODUCT,
        layer=True,
    ),
    "addmv": LOWER,
    "addr": LOWER,
    "baddbmm": replace(LOWER, formula=work.ADDED_PRODUCT),
    "bilinear": WIDEST_TYPE,
    "bmm": replace(LOWER, bound=bounds.batched_product, formula=work.PRODUCT),
    "chain_matmul": LOWER,
    "cross": WIDEST_TYPE,
    "dot": WIDEST_TYPE,
    "einsum": LOWER,
    "linalg_multi_dot": LOWER,
    "linalg_vecdot": LOWER,
    "linear": LOWER,
    "matmul": LOWER,
    "mm": replace(
        LOWER,
        bound=bounds.product,
        densified=bounds.dense_product,
        formula=work.PRODUCT,
    ),
    "mv": LOWER,
    "tensordot": WIDEST_TYPE,
    "vdot": WIDEST_TYPE,
    # -------------------------------------------------------------- convolutions
    "_convolution": LOWER,
    "_convolution.deprecated": LOWER,
    "conv1d": LOWER,
    "conv2d": LOWER,
    "conv3d": LOWER,
    "conv_tbc": LOWER,
    "conv_transpose1d": LOWER,
    "conv_transpose2d.input": LOWER,
    "conv_transpose3d.input": LOWER,
    "convolution": replace(
        LOWER,
        substitute=convolutions.convolved,
        bound=bounds.convolution,
        formula=work.CONVOLUTION,
        layer=True,
    ),
    "convolution_backward": Record(
        bound=bounds.no_larger, formula=work.CONVOLUTION_BACKWARD
    ),
    # -------------------------------------------------------------- pooling, dropout
    "max_pool2d_with_indices": NO_LARGER,
    "max_pool2d_with_indices_backward": NO_LARGER,
    "native_dropout": NO_LARGER,
    "native_dropout_backward": replace(NO_LARGER, pointwise=False),
    "threshold_backward": replace(NO_LARGER, pointwise=False),  # of ReLU
    # -------------------------------------------------------------- not deterministic
    # On CUDA, by PyTorch's documentation of use_deterministic_algorithms.
    "_adaptive_avg_pool2d_backward": varying("adaptive_avg_pool2d_backward_cuda"),
    "_adaptive_avg_pool3d_backward": varying("adaptive_avg_pool3d_backward_cuda"),
    "adaptive_max_pool2d_backward": varying("adaptive_max_pool2d_backward_cuda"),
    "avg_pool3d_backward": varying("avg_pool3d_backward_cuda"),
    "fractional_max_pool2d_backward": varying("fractional_max_pool2d_backward_cuda"),
    "fractional_max_pool3d_backward": varying("fractional_max_pool3d_backward_cuda"),
    "grid_sampler_2d_backward": varying("grid_sampler_2d_backward_cuda"),
    "grid_sampler_3d_backward": varying("grid_sampler_3d_backward_cuda"),
    "histc": varying("_histc_cuda"),
    "nll_loss2d_forward": varying("nll_loss2d_forward_out_cuda_template"),
    "reflection_pad1d_backward": varying("reflection_pad1d_backward_out_cuda"),
    "reflection_pad2d_backward": varying("reflection_pad2d_backward_cuda"),
    "reflection_pad3d_backward": varying("reflection_pad3d_backward_out_cuda"),
    "upsample_bicubic2d_backward": varying("upsample_bicubic2d_backward_out_cuda"),
    "upsample_bilinear2d_backward": varying("upsample_bilinear2d_backward_out_cuda"),
    "upsample_linear1d_backward": varying("upsample_linear1d_backward_out_cuda"),
    "upsample_trilinear3d_backward": varying("upsample_trilinear3d_backward_out_cuda"),
    # -------------------------------------------------------------- norms and softmax
    # Those of SyncBatchNorm exist for GPUs only.
    "batch_norm_backward_elemt": Record(substitute=special.batch_norm_backward_elemt),
    "batch_norm_backward_reduce": Record(substitute=special.batch_norm_backward_reduce),
    "batch_norm_elemt": Record(substitute=special.batch_norm_elemt),
    "batch_norm_gather_stats_with_counts": Record(
        substitute=special.batch_norm_gather_stats
    ),
    "batch_norm_stats": Record(substitute=special.batch_norm_stats),
    # Norms read the tensor twice: for the statistics and for the result.
    "native_batch_norm": replace(NO_LARGER, traffic=3 / 2, layer=True),
    "native_batch_norm_backward": replace(NO_LARGER, traffic=5 / 3),
    "native_group_norm": replace(NO_LARGER, traffic=3 / 2, layer=True),
    "native_group_norm_backward": replace(NO_LARGER, traffic=5 / 3),
    "native_layer_norm": replace(NO_LARGER, autocast=autocast.float32, layer=True),
    "native_layer_norm_backward": NO_LARGER,
    "group_norm": FLOAT32,
    "layer_norm": FLOAT32,
    "log_softmax.int": INTO_FLOAT32,
    "renorm": FLOAT32,
    "rms_norm": FLOAT32,
    "softmax.int": INTO_FLOAT32,
    "_log_softmax": replace(NO_LARGER, handler=special.softmax),
    "_log_softmax_backward_data": replace(NO_LARGER, handler=special.softmax_backward),
    "_softmax": replace(NO_LARGER, handler=special.softmax),
    "_softmax_backward_data": replace(NO_LARGER, handler=special.softmax_backward),
    # -------------------------------------------------------------- losses
    "binary_cross_entropy": replace(NUMBERS, autocast=autocast.refused),
    "binary_cross_entropy_with_logits": FLOAT32,
    "cosine_embedding_loss": FLOAT32,
    "cosine_similarity": FLOAT32,
    "ctc_loss.Tensor": Record(composite=composites.with_lengths),
    "hinge_embedding_loss": FLOAT32,
    "huber_loss": replace(FLOAT32, pointwise=False),
    "kl_div": FLOAT32,
    "l1_loss": FLOAT32,
    "margin_ranking_loss": FLOAT32,
    "mse_loss": replace(FLOAT32, pointwise=True),
    "multi_margin_loss": FLOAT32,
    "multilabel_margin_loss": FLOAT32,
    "nll_loss": FLOAT32,
    "nll_loss2d": FLOAT32,
    "nll_loss_backward": NO_LARGER,
    "nll_loss_forward": NO_LARGER,
    "poisson_nll_loss": FLOAT32,
    "smooth_l1_loss": replace(FLOAT32, pointwise=True),
    "soft_margin_loss": FLOAT32,
    "triplet_margin_loss": FLOAT32,
    # -------------------------------------------------------------- element by element
    "__irshift__.Tensor": NUMBERS,
    "acos": FLOAT32,
    "addcdiv": WIDEST_TYPE,
    "addcmul": WIDEST_TYPE,
    "asin": FLOAT32,
    "atan2": WIDEST_TYPE,
    "clamp.Tensor": NO_NUMBERS,
    "clamp_.Tensor": NO_NUMBERS,
    "clamp_max.Tensor": NO_NUMBERS,
    "clamp_max_.Tensor": NO_NUMBERS,
    "clamp_min.Tensor": NO_NUMBERS,
    "clamp_min_.Tensor": NO_NUMBERS,
    "cosh": FLOAT32,
    "erfinv": FLOAT32,
    "exp": FLOAT32,
    "expm1": FLOAT32,
    "floor_divide": NUMBERS,
    "floor_divide_.Tensor": NUMBERS,
    "gcd": NO_NUMBERS,
    "gcd_": NO_NUMBERS,
    "gelu_backward": NO_NUMBERS,
    "igamma": NO_NUMBERS,
    "igamma_": NO_NUMBERS,
    "igammac": NO_NUMBERS,
    "igammac_": NO_NUMBERS,
    "lcm": NO_NUMBERS,
    "lcm_": NO_NUMBERS,
    "log": FLOAT32,
    "log10": FLOAT32,
    "log1p": FLOAT32,
    "log2": FLOAT32,
    "logaddexp": NO_NUMBERS,
    "logaddexp2": NO_NUMBERS,
    "logit_backward": NO_NUMBERS,
    "nextafter": NO_NUMBERS,
    "nextafter_": NO_NUMBERS,
    "pow.Scalar": FLOAT32,
    "pow.Tensor_Scalar": FLOAT32,
    "pow.Tensor_Tensor": FLOAT32,
    "prelu": LOWER,
    "reciprocal": FLOAT32,
    "rsqrt": FLOAT32,
    "rsub.Tensor": NUMBERS,
    "sigmoid_backward": NO_NUMBERS,
    "sinh": FLOAT32,
    "softplus": FLOAT32,
    "special_xlogy": NUMBERS,
    "tan": FLOAT32,
    "tanh_backward": NO_NUMBERS,
    # -------------------------------------------------------------- sums and distances
    "allclose": Record(waits=always),
    "cdist": FLOAT32,
    "cumprod": INTO_FLOAT32,
    "cumsum": INTO_FLOAT32,
    "dist": FLOAT32,
    "equal": Record(waits=always, pointwise=False),
    "frobenius_norm.dim": FLOAT32,
    "linalg_matrix_norm": INTO_FLOAT32,
    "linalg_matrix_norm.str_ord": INTO_FLOAT32,
    "linalg_vector_norm": INTO_FLOAT32,
    "logsumexp": FLOAT32,
    "norm.Scalar": Record(autocast=autocast.norm),
    "norm.ScalarOpt_dim": Record(autocast=autocast.norm),
    "nuclear_norm": FLOAT32,
    "nuclear_norm.dim": FLOAT32,
    "pdist": FLOAT32,
    "prod": INTO_FLOAT32,
    "prod.dim_int": INTO_FLOAT32,
    "sum": INTO_FLOAT32,
    "sum.dim_IntList": INTO_FLOAT32,
    # -------------------------------------------------------------- resizing images
    "_upsample_bicubic2d_aa": FLOAT32,
    "_upsample_bilinear2d_aa": FLOAT32,
    "_upsample_nearest_exact1d": FLOAT32,
    "_upsample_nearest_exact2d": FLOAT32,
    "_upsample_nearest_exact3d": FLOAT32,
    "upsample_bicubic2d": FLOAT32,
    "upsample_bilinear2d": FLOAT32,
    "upsample_linear1d": FLOAT32,
    "upsample_nearest1d": FLOAT32,
    "upsample_nearest2d": FLOAT32,
    "upsample_nearest3d": FLOAT32,
    "upsample_trilinear3d": FLOAT32,
    # -------------------------------------------------------------- recurrent layers
    # Except on the CPU, PyTorch would run each cell as one fused kernel.
    "gru.data": RECURRENT,
    "gru.input": RECURRENT,
    "gru_cell": AS_A_WHOLE,
    "lstm.data": RECURRENT,
    "lstm.input": RECURRENT,
    "lstm_cell": AS_A_WHOLE,
    "rnn_relu.data": RECURRENT,
    "rnn_relu.input": RECURRENT,
    "rnn_relu_cell": AS_A_WHOLE,
    "rnn_tanh.data": RECURRENT,
    "rnn_tanh.input": RECURRENT,
    "rnn_tanh_cell": AS_A_WHOLE,
    # The CPU's kernel for one direction of an LSTM's layer.
    "mkldnn_rnn_layer": Record(formula=work.RECURRENT),
    "mkldnn_rnn_layer_backward": Record(formula=work.RECURRENT_BACKWARD),
    # The second result is the number of sequences at each step.
    "_thnn_fused_gru_cell": LOWER,
    "_thnn_fused_lstm_cell": LOWER,
    "_pack_padded_sequence": Record(host_lengths=True, host_results=(1,)),
    "_pack_padded_sequence_backward": Record(host_lengths=True),
    # -------------------------------------------------------------- attention
    # PyTorch chooses its kernel by the type of the device.
    "scaled_dot_product_attention": replace(AS_A_WHOLE, composite=attention.chosen),
    "_scaled_dot_product_flash_attention_for_cpu": Record(formula=work.FLASH),
    "_scaled_dot_product_flash_attention_for_cpu_backward": Record(
        formula=work.FLASH_BACKWARD_ON_CPU
    ),
    # The CPU lacks those that PyTorch would choose on a GPU.
    "_scaled_dot_product_efficient_attention": Record(
        substitute=attention.efficient, formula=work.EFFICIENT
    ),
    "_scaled_dot_product_efficient_attention_backward": Record(
        substitute=attention.efficient_backward, formula=work.FUSED_BACKWARD
    ),
    "_scaled_dot_product_flash_attention": replace(
        LOWER, substitute=attention.flash, formula=work.FLASH
    ),
    "_scaled_dot_product_flash_attention_backward": Record(
        substitute=attention.flash_backward, formula=work.FUSED_BACKWARD
    ),
    # -------------------------------------------------------------- optimizers
    # A learning rate that is a tensor stays on the CPU.
    "_fused_adagrad_.tensor_lr": NUMBERS,
    "_fused_adam_.tensor_lr": NUMBERS,
    "_fused_adamw_.tensor_lr": NUMBERS,
    "_fused_sgd_.tensor_lr": NUMBERS,
    # -------------------------------------------------------------- linear algebra
    "_linalg_check_errors": Record(waits=always),  # it reads whether one failed
    "linalg_eigvalsh": Record(composite=composites.on_backing_unwatched),
    "linalg_svdvals": Record(composite=composites.on_backing_unwatched),
    "is_nonzero": Record(handler=special.item),
    # -------------------------------------------------------------- collectives
    "c10d::_allgather_base_": replace(ALL_GATHER, flat=True),
    "c10d::_reduce_scatter_base_": replace(REDUCE_SCATTER, flat=True),
    "c10d::allgather_": ALL_GATHER,
    "c10d::allgather_coalesced_": ALL_GATHER,
    "c10d::allgather_into_tensor_coalesced_": ALL_GATHER,
    "c10d::allreduce_": ALL_REDUCE,
    "c10d::allreduce_coalesced_": ALL_REDUCE,
    "c10d::alltoall_": replace(ALL_TO_ALL, substitute=collectives.all_to_all),
    "c10d::alltoall_base_": ALL_TO_ALL,
    "c10d::broadcast_": replace(COLLECTIVE, collective="broadcast"),
    "c10d::recv_": replace(BETWEEN_TWO, collective="send"),
    "c10d::recv_any_source_": BETWEEN_TWO,
    "c10d::reduce_": replace(COLLECTIVE, collective="reduce"),
    "c10d::reduce_scatter_": REDUCE_SCATTER,
    "c10d::reduce_scatter_tensor_coalesced_": REDUCE_SCATTER,
    "c10d::send": replace(BETWEEN_TWO, collective="send"),
    "_c10d_functional::all_gather_into_tensor": GATHERED,
    "_c10d_functional::all_gather_into_tensor_coalesced": GATHERED,
    "_c10d_functional::all_gather_into_tensor_out": GATHERED,
    "_c10d_functional::all_reduce": REDUCED,
    "_c10d_functional::all_reduce_": REDUCED,
    "_c10d_functional::all_reduce_coalesced": REDUCED,
    "_c10d_functional::all_reduce_coalesced_": REDUCED,
    "_c10d_functional::broadcast": replace(FUNCTIONAL, collective="broadcast"),
    "_c10d_functional::broadcast_": replace(FUNCTIONAL, collective="broadcast"),
    "_c10d_functional::all_to_all_single": EXCHANGED,
    "_dtensor::shard_dim_alltoall": EXCHANGED,
    "_c10d_functional::reduce_scatter_tensor": SCATTERED,
    "_c10d_functional::reduce_scatter_tensor_coalesced": SCATTERED,
    "_c10d_functional::reduce_scatter_tensor_out": SCATTERED,
}

# Records by the prefix of an operator's name. An entry in RECORDS takes precedence.
FAMILIES: dict[str, Record] = {
    "_c10d_functional::": FUNCTIONAL,
    "_foreach": FOREACH,
    "_index_put": INDEXING,
    "_unsafe_index": INDEXING,
    "c10d::": COLLECTIVE,
}


def record_of(func: OpOverload) -> Record:
    """Return the record of an overload: its own, its operator's, or its family's."""
    name = name_of(func)
    for key in (f"{name}.{func._schema.overload_name}", name):
        if key in RECORDS:
            return RECORDS[key]
    families = (x for prefix, x in FAMILIES.items() if name.startswith(prefix))
    return next(families, ORDINARY)
