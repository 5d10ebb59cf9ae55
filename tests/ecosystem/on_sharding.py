"""Models that are split over ranks: FSDP, DTensor, tensor, context and pipeline."""

import copy
from functools import partial

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    SplitPoint,
    pipeline,
)
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    rand,
)
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, mse_loss

from tests.ecosystem.support import (
    batch,
    close,
    folder,
    main,
    mlp,
    same_gradients,
    same_parameters,
    start,
    torchrun,
    train,
)

NEEDS = ("torch",)
SHORT = ("fully_shard_takes_the_steps_of_one_process",)
BOTH = "cpu:gloo,cuda:nccl"  # backends; saving asynchronously needs the CPU's as well


def small() -> nn.Sequential:
    """Layers whose rows can be split between two ranks, some of them unevenly."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Sequential(nn.Linear(8, 15), nn.ReLU()),
        nn.Sequential(nn.Linear(15, 16), nn.ReLU()),
        nn.Linear(16, 4),
    )


def sharded(**options) -> nn.Module:
    """Apply fully_shard to each layer of `small`, then to the whole."""
    model = small().to("cuda")
    for layer in model:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def full(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole tensor of a DTensor, any other as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def same_full(actual: nn.Module, expected: nn.Module, **tolerances) -> None:
    """Assert that two modules have the same parameters, once gathered."""
    for a, b in zip(actual.parameters(), expected.parameters(), strict=True):
        close(full(a), b, **tolerances)


# ------------------------------------------------------------------ FSDP


def check_fsdp_takes_the_steps_of_one_process():
    """A model wrapped in FullyShardedDataParallel trains as it does on one process."""
    torchrun(rank_fsdp)


def rank_fsdp():
    rank, gpu = start()
    X, Y = batch()
    expected = small()
    train(expected, X, Y, steps=3)
    policy = partial(size_based_auto_wrap_policy, min_num_params=100)
    model = FullyShardedDataParallel(small(), auto_wrap_policy=policy, device_id=gpu)
    whole = sum(p.numel() for p in expected.parameters())
    mine = sum(p.numel() for p in model.parameters())
    assert mine < 0.6 * whole, (mine, whole)
    assert all(p.device == gpu for p in model.parameters())
    train(model, X[rank::2].to(gpu), Y[rank::2].to(gpu), steps=3)
    with FullyShardedDataParallel.summon_full_params(model):
        same_parameters(model.module, expected, gpu)


def check_fsdp_computes_in_mixed_precision():
    """With MixedPrecision, FSDP computes in bfloat16, and keeps float32 parameters."""
    torchrun(rank_fsdp_mixed)


def rank_fsdp_mixed():
    rank, gpu = start()
    X, Y = batch()
    expected = mlp()
    loss = train(expected, X, Y)
    precision = MixedPrecision(
        param_dtype=torch.bfloat16,
        reduce_dtype=torch.bfloat16,
        buffer_dtype=torch.bfloat16,
    )
    model = FullyShardedDataParallel(mlp(), mixed_precision=precision, device_id=gpu)
    x, y = X[rank::2].to(gpu), Y[rank::2].to(gpu)
    with torch.no_grad():
        assert model(x).dtype == torch.bfloat16
    mine = train(model, x, y.bfloat16())
    dist.all_reduce(mine, dist.ReduceOp.AVG)
    close(mine.float(), loss, gpu, rtol=3e-2, atol=1e-2)
    assert all(p.dtype == torch.float32 for p in model.parameters())
    with FullyShardedDataParallel.summon_full_params(model):
        same_parameters(model.module, expected, gpu, rtol=3e-2, atol=1e-2)


def check_fsdp_clips_the_norm_of_all_shards():
    """FSDP's clip_grad_norm_ returns the norm of the whole gradient, and clips it."""
    torchrun(rank_fsdp_clips)


def rank_fsdp_clips():
    rank, gpu = start()
    X, Y = batch()
    expected = mlp()
    mse_loss(expected(X), Y).backward()
    norm = nn.utils.clip_grad_norm_(expected.parameters(), 0.1)
    model = FullyShardedDataParallel(mlp(), device_id=gpu, use_orig_params=True)
    mse_loss(model(X[rank::2].to(gpu)), Y[rank::2].to(gpu)).backward()
    close(model.clip_grad_norm_(0.1), norm, gpu)
    with FullyShardedDataParallel.summon_full_params(model, with_grads=True):
        same_gradients(model.module, expected, gpu)


def check_fsdp_gathers_its_state():
    """The full state_dict of FSDP is the original model's, on the CPU of rank 0."""
    torchrun(rank_fsdp_state)


def rank_fsdp_state():
    rank, gpu = start()
    model = FullyShardedDataParallel(mlp(), device_id=gpu)
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    kind = StateDictType.FULL_STATE_DICT
    with FullyShardedDataParallel.state_dict_type(model, kind, config):
        state = model.state_dict()
    if rank == 0:
        expected = mlp().state_dict()
        assert list(state) == list(expected)
        for name, value in expected.items():
            close(state[name], value, "cpu")
    else:
        assert not state


def check_fully_shard_takes_the_steps_of_one_process():
    """A model sharded layer by layer with fully_shard trains as on one process."""
    torchrun(rank_fully_shard)


def rank_fully_shard():
    rank, gpu = start()
    X, Y = batch()
    expected = small()
    train(expected, X, Y, steps=3)
    model = sharded()
    for parameter in model.parameters():
        assert isinstance(parameter, DTensor)
        assert parameter.placements == (Shard(0),)
        assert parameter.to_local().device == gpu
    assert model[0][0].weight.to_local().shape[0] == 8 - rank  # of 15 rows
    train(model, X[rank::2].to(gpu), Y[rank::2].to(gpu), steps=3)
    same_full(model, expected, on=gpu)


def check_fully_shard_computes_in_mixed_precision():
    """With its policy for it, fully_shard computes in bfloat16 and sums in float32."""
    torchrun(rank_fully_shard_mixed)


def rank_fully_shard_mixed():
    rank, gpu = start()
    X, Y = batch()
    expected = small()
    train(expected, X, Y)
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32
    )
    model = sharded(mp_policy=policy)
    x, y = X[rank::2].to(gpu), Y[rank::2].to(gpu)
    assert model(x).dtype == torch.bfloat16
    train(model, x, y.bfloat16())
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    same_full(model, expected, on=gpu, rtol=3e-2, atol=1e-2)


def check_the_norm_of_sharded_gradients_is_clipped():
    """nn.utils.clip_grad_norm_ clips a fully sharded model by its whole norm."""
    torchrun(rank_fully_shard_clips)


def rank_fully_shard_clips():
    rank, gpu = start()
    X, Y = batch()
    expected = small()
    mse_loss(expected(X), Y).backward()
    norm = nn.utils.clip_grad_norm_(expected.parameters(), 0.1)
    model = sharded()
    mse_loss(model(X[rank::2].to(gpu)), Y[rank::2].to(gpu)).backward()
    close(full(nn.utils.clip_grad_norm_(model.parameters(), 0.1)), norm, gpu)
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        close(full(a.grad), b.grad, gpu)


def check_fully_shard_offloads_to_the_cpu():
    """With CPUOffloadPolicy shards rest on the CPU, and layers compute on the GPU."""
    torchrun(rank_offloads)


def rank_offloads():
    rank, gpu = start(BOTH)
    X, Y = batch()
    expected = small()
    train(expected, X, Y)
    model = small()
    for layer in model:
        fully_shard(layer, offload_policy=CPUOffloadPolicy())
    fully_shard(model, offload_policy=CPUOffloadPolicy())
    places = []
    model[0][0].register_forward_hook(lambda *args: places.append(args[-1].device))
    train(model, X[rank::2].to(gpu), Y[rank::2].to(gpu))
    assert places == [gpu], places
    for parameter in model.parameters():
        assert parameter.to_local().device == torch.device("cpu")
    with torch.no_grad():
        for a, b in zip(model.parameters(), expected.parameters(), strict=True):
            close(a.to("cuda").full_tensor(), b, gpu)


def check_sharded_state_is_gathered_and_set():
    """The helpers for state_dicts gather a sharded model, and load a full state into
    another."""
    torchrun(rank_full_state)


def rank_full_state():
    rank, _ = start(BOTH)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(sharded(), options=options)
    expected = small()
    if rank == 0:
        for name, value in expected.state_dict().items():
            close(state[name], value, "cpu")
    else:
        assert not state
    model = sharded()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(
        model, expected.state_dict() if rank == 0 else {}, options=options
    )
    same_full(model, expected)


# ------------------------------------------------------------------ checkpoints


def check_a_distributed_checkpoint_continues_training():
    """Training goes on from a distributed checkpoint as if it hadn't stopped."""
    with folder() as path:
        torchrun(rank_checkpoint, str(path / "checkpoint"))


def rank_checkpoint(path: str):
    rank, gpu = start(BOTH)
    X, Y = batch()
    x, y = X[rank::2].to(gpu), Y[rank::2].to(gpu)

    def step(model, optimizer):
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()

    model = sharded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step(model, optimizer)
    states = get_state_dict(model, optimizer)
    dcp.save({"model": states[0], "optimizer": states[1]}, checkpoint_id=path)
    step(model, optimizer)

    again = sharded()
    with torch.no_grad():
        for parameter in again.parameters():
            parameter.zero_()
    other = torch.optim.AdamW(again.parameters(), lr=0.01)
    states = get_state_dict(again, other)
    state = {"model": states[0], "optimizer": states[1]}
    dcp.load(state, checkpoint_id=path)
    set_state_dict(
        again,
        other,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    step(again, other)
    for a, b in zip(again.parameters(), model.parameters(), strict=True):
        close(a.to_local(), b.to_local(), gpu)


def check_a_checkpoint_is_saved_while_training_goes_on():
    """dcp.async_save writes the values of when it was called, not later ones."""
    with folder() as path:
        torchrun(rank_saves_later, str(path / "checkpoint"))


def rank_saves_later(path: str):
    start(BOTH)
    model = sharded()
    saving = dcp.async_save({"model": get_model_state_dict(model)}, checkpoint_id=path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    saving.result()
    dist.barrier()
    state = {"model": get_model_state_dict(model)}
    dcp.load(state, checkpoint_id=path)
    set_model_state_dict(model, state["model"])
    same_full(model, small())


# ------------------------------------------------------------------ DTensor


def check_dtensors_compute_like_tensors():
    """Sharded tensors are redistributed and multiplied, and give the whole result."""
    torchrun(rank_dtensor)


def rank_dtensor():
    rank, gpu = start()
    mesh = init_device_mesh("cuda", (2,), mesh_dim_names=("x",))
    assert mesh.device_type == "cuda"
    torch.manual_seed(0)
    A, B = torch.randn(6, 4), torch.randn(4, 6)
    rows = distribute_tensor(A.to(gpu), mesh, [Shard(0)])
    columns = distribute_tensor(B.to(gpu), mesh, [Shard(1)])
    assert rows.device == gpu and rows.to_local().shape == (3, 4)
    close(rows.full_tensor(), A, gpu)
    everywhere = rows.redistribute(mesh, [Replicate()])
    close(everywhere.to_local(), A, gpu)
    close((rows @ columns).full_tensor(), A @ B, gpu)
    inner = rows.redistribute(mesh, [Shard(1)]) @ columns.redistribute(mesh, [Shard(0)])
    assert inner.placements == (Partial(),)
    close(inner.full_tensor(), A @ B, gpu)
    close(rows.softmax(0).sum(1).full_tensor(), A.softmax(0).sum(1), gpu)
    leaf = rows.detach().requires_grad_()
    leaf.square().sum().backward()
    close(leaf.grad.full_tensor(), 2 * A, gpu)
    local = torch.full((2,), float(rank), device=gpu)
    whole = DTensor.from_local(local, mesh, [Shard(0)])
    close(whole.full_tensor(), torch.tensor([0.0, 0.0, 1.0, 1.0]), gpu)


def check_random_dtensors_are_one_tensor():
    """Shards of a random DTensor differ, replicas agree, and seeds repeat both."""
    torchrun(rank_random)


def rank_random():
    _, gpu = start()
    mesh = init_device_mesh("cuda", (2,))
    torch.manual_seed(5)
    first = rand((4, 4), device_mesh=mesh, placements=[Shard(0)])
    replica = rand((4, 4), device_mesh=mesh, placements=[Replicate()])
    torch.manual_seed(5)
    again = rand((4, 4), device_mesh=mesh, placements=[Shard(0)])
    close(again.to_local(), first.to_local(), gpu)
    whole = first.full_tensor()
    assert not torch.equal(whole[:2], whole[2:])
    for tensor in whole, replica.to_local():
        others = [torch.empty_like(tensor) for _ in range(2)]
        dist.all_gather(others, tensor)
        assert torch.equal(others[0], others[1])
    ones = distribute_tensor(torch.ones(64, 64), mesh, [Shard(0)])
    kept = nn.functional.dropout(ones, 0.5).full_tensor()
    assert 0.4 < (kept > 0).float().mean().item() < 0.6
    assert not torch.equal(kept[:32], kept[32:])
    assert set(kept.unique().tolist()) == {0.0, 2.0}


# ------------------------------------------------------------------ tensor parallelism


def check_layers_are_split_by_columns_and_rows():
    """A network of tensor-parallel layers has the outputs and gradients of a whole."""
    torchrun(rank_tensor_parallel)


class Block(nn.Module):
    """A part of a transformer: normalize, widen, narrow, add."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, X):
        return self.down(nn.functional.gelu(self.up(self.norm(X))))


def rank_tensor_parallel():
    _, gpu = start()
    mesh = init_device_mesh("cuda", (2,), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    X = torch.randn(2, 6, 8)
    expected = Block()
    Y = expected(X)
    Y.square().sum().backward()
    for plan in (
        {"up": ColwiseParallel(), "down": RowwiseParallel()},
        {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(),
        },
    ):
        block = copy.deepcopy(expected).to(gpu)
        block.zero_grad()
        block = parallelize_module(block, mesh["tp"], plan)
        # SequenceParallel gets a part of the sequence on each rank.
        x = X.chunk(2, 1)[mesh.get_local_rank()] if "norm" in plan else X
        assert block.up.weight.to_local().shape == (16, 8)
        assert block.down.weight.to_local().shape == (8, 16)
        output = block(x.to(gpu))
        close(output, Y, gpu)
        output.square().sum().backward()
        for a, b in zip(block.parameters(), expected.parameters(), strict=True):
            close(full(a.grad), b.grad, gpu, rtol=1e-3, atol=1e-4)


def check_the_loss_of_split_outputs():
    """Inside loss_parallel, cross-entropy of outputs split by class needs no gather."""
    torchrun(rank_loss_parallel)


def rank_loss_parallel():
    _, gpu = start()
    mesh = init_device_mesh("cuda", (2,))
    torch.manual_seed(0)
    net = nn.Linear(8, 10)
    X, y = torch.randn(6, 8), torch.tensor([0, 9, 3, 5, 4, 1])
    split = copy.deepcopy(net).to(gpu)
    loss = cross_entropy(net(X), y)
    loss.backward()
    plan = ColwiseParallel(use_local_output=False)
    split = parallelize_module(split, mesh, plan)
    outputs = split(X.to(gpu))
    assert outputs.placements == (Shard(1),)
    with loss_parallel():
        mine = cross_entropy(outputs, y.to(gpu))
        close(full(mine), loss, gpu)
        mine.backward()
    close(full(split.weight.grad), net.weight.grad, gpu)


def check_attention_over_a_split_sequence():
    """Inside context_parallel, ranks with half a sequence each attend to all of it."""
    torchrun(rank_context_parallel)


def rank_context_parallel():
    _, gpu = start()
    mesh = init_device_mesh("cuda", (2,))
    torch.manual_seed(0)
    whole = [torch.randn(2, 4, 32, 16).bfloat16() for _ in range(3)]
    expected = nn.functional.scaled_dot_product_attention(
        *(x.float() for x in whole), is_causal=True
    )
    mine = [x.to(gpu) for x in whole]
    with (
        sdpa_kernel(SDPBackend.FLASH_ATTENTION),
        context_parallel(mesh, buffers=mine, buffer_seq_dims=[2, 2, 2]),
    ):
        assert mine[0].shape == (2, 4, 16, 16)
        output = nn.functional.scaled_dot_product_attention(*mine, is_causal=True)
        (output,) = context_parallel_unshard(mesh, [output], [2])
    close(output.float(), expected, gpu, rtol=2e-2, atol=2e-2)


# ------------------------------------------------------------------ pipelines


def check_a_pipeline_of_stages_by_hand():
    """Two stages under GPipe give the outputs, losses and gradients of the whole."""
    torchrun(rank_stages)


def rank_stages():
    rank, gpu = start()
    X, Y = batch()
    expected = small()
    output = expected(X)
    loss = mse_loss(output, Y)
    loss.backward()
    model = small()
    part, same = [(model[:1], expected[:1]), (model[1:], expected[1:])][rank]
    part = part.to(gpu)
    stage = PipelineStage(part, rank, 2, gpu)
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=mse_loss)
    if rank == 0:
        schedule.step(X.to(gpu))
    else:
        losses = []
        result = schedule.step(target=Y.to(gpu), losses=losses)
        close(result, output, gpu)
        close(torch.stack(losses).mean(), loss, gpu)
    same_gradients(part, same, gpu)


def check_a_model_is_split_into_a_pipeline():
    """The pipeline that torch.export splits from a model trains under 1F1B."""
    torchrun(rank_split)


def rank_split():
    rank, gpu = start()
    X, Y = batch()
    expected = mlp()
    output = expected(X)
    mse_loss(output, Y).backward()
    pipe = pipeline(mlp(), mb_args=(X[:4],), split_spec={"2": SplitPoint.BEGINNING})
    assert pipe.num_stages == 2
    stage = pipe.build_stage(rank, device=gpu)
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=mse_loss)
    if rank == 0:
        schedule.step(X.to(gpu))
    else:
        close(schedule.step(target=Y.to(gpu)), output, gpu)
    gradients = {name: p.grad for name, p in stage.submod.named_parameters()}
    names = [["0.weight", "0.bias"], ["2.weight", "2.bias"]][rank]
    for name in names:
        close(gradients[name], expected.get_parameter(name).grad, gpu)


if __name__ == "__main__":
    main(globals())
