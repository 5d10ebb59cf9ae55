"""Hugging Face Accelerate: training loops, launching, and models on several devices."""

import torch
from accelerate import (
    Accelerator,
    FullyShardedDataParallelPlugin,
    cpu_offload,
    dispatch_model,
    infer_auto_device_map,
    init_empty_weights,
    load_checkpoint_and_dispatch,
)
from accelerate.utils import (
    find_executable_batch_size,
    get_balanced_memory,
    get_max_memory,
    set_seed,
)
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from tests.ecosystem.support import (
    batch,
    close,
    folder,
    launch,
    main,
    mlp,
    same_parameters,
    torchrun,
    train,
)

NEEDS = ("accelerate", "safetensors")
SHORT = ("the_usual_loop", "a_model_is_spread_over_devices")


def check_the_usual_loop():
    """The loop of the documentation trains on the first GPU as it does on the CPU."""
    X, Y = batch()
    expected = mlp()
    train(expected, X, Y, steps=3)
    accelerator = Accelerator()
    assert accelerator.device.type == "cuda", accelerator.device
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=True)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    model, optimizer, loader, schedule = accelerator.prepare(
        model, optimizer, loader, schedule
    )
    for _ in range(3):
        for x, y in loader:
            assert x.device == torch.device("cuda:0"), x.device
            optimizer.zero_grad()
            accelerator.backward(mse_loss(model(x), y))
            accelerator.clip_grad_norm_(model.parameters(), 1e6)
            optimizer.step()
            schedule.step()
    same_parameters(accelerator.unwrap_model(model), expected, "cuda:0")


def check_two_ranks_that_accelerate_launches():
    """Two ranks started by accelerate launch train with DDP as one process does."""
    options = ["--multi_gpu", "--num_processes=2", "--num_machines=1"]
    options += ["--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"]
    launch("accelerate.commands.launch", options, rank_trains)


def check_two_ranks_under_torchrun():
    """An Accelerator under torchrun takes half of each batch, and NCCL for the sums."""
    torchrun(rank_trains)


def rank_trains():
    accelerator = Accelerator()
    assert accelerator.num_processes == 2
    assert accelerator.distributed_type == "MULTI_GPU", accelerator.distributed_type
    gpu = torch.device("cuda", accelerator.local_process_index)
    assert accelerator.device == gpu
    assert torch.distributed.get_backend() == "nccl"
    X, Y = batch(20)
    expected = mlp()
    train(expected, X, Y, steps=2)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(X, Y), batch_size=10)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    assert isinstance(model, nn.parallel.DistributedDataParallel)
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(mse_loss(model(x), y))
            optimizer.step()
    same_parameters(accelerator.unwrap_model(model), expected, gpu)
    # 20 rows in batches of 3 for each rank: the last batch is filled up, and trimmed.
    loader = accelerator.prepare(DataLoader(TensorDataset(X), batch_size=3))
    rows = [accelerator.gather_for_metrics(x) for (x,) in loader]
    close(torch.cat(rows), X, gpu)
    mine = torch.tensor(float(accelerator.process_index), device=gpu)
    close(accelerator.reduce(mine, "mean"), torch.tensor(0.5), gpu)
    with accelerator.main_process_first():
        accelerator.wait_for_everyone()


def check_fsdp_by_a_plugin():
    """With the plugin for FSDP 2, an Accelerator shards the model it prepares."""
    torchrun(rank_shards)


def rank_shards():
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="size_based_wrap", min_num_params=50
    )
    accelerator = Accelerator(fsdp_plugin=plugin)
    assert accelerator.distributed_type == "FSDP"
    X, Y = batch()
    expected = mlp()
    train(expected, X, Y, steps=2)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    rows = slice(accelerator.process_index, None, 2)
    x, y = X[rows].to(accelerator.device), Y[rows].to(accelerator.device)
    for _ in range(2):
        optimizer.zero_grad()
        accelerator.backward(mse_loss(model(x), y))
        optimizer.step()
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        close(a.full_tensor(), b, accelerator.device)


def check_gradients_are_accumulated():
    """Inside accumulate, every second batch takes a step with the gradients of both."""
    X, Y = batch()
    expected = mlp()
    train(expected, X, Y)
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(X, Y), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    stepped = []
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            stepped.append(accelerator.sync_gradients)
    assert stepped == [False, True], stepped
    same_parameters(accelerator.unwrap_model(model), expected, "cuda:0")


def check_mixed_precision():
    """With bf16, layers compute in bfloat16 on the GPU, and outputs are float32."""
    accelerator = Accelerator(mixed_precision="bf16")
    seen = []
    model = mlp()
    model[0].register_forward_hook(lambda *args: seen.append(args[-1].dtype))
    expected = mlp()
    X, Y = batch()
    loss = train(expected, X, Y)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    output = model(X.to(accelerator.device))
    assert seen == [torch.bfloat16], seen
    assert output.dtype == torch.float32
    with accelerator.autocast():
        mine = mse_loss(output, Y.to(accelerator.device))
    accelerator.backward(mine)
    optimizer.step()
    close(mine, loss, "cuda:0", rtol=2e-2)
    same_parameters(
        accelerator.unwrap_model(model), expected, "cuda:0", rtol=2e-2, atol=2e-3
    )


def check_training_goes_on_from_a_saved_state():
    """After load_state, weights, momentum and random numbers are as they were saved."""
    set_seed(3)
    accelerator = Accelerator()
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    x, y = (t.to(accelerator.device) for t in batch())

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        return loss.item(), [p.detach().cpu().clone() for p in model.parameters()]

    step()
    with folder() as path:
        accelerator.save_state(str(path / "state"))
        loss, parameters = step()
        step()
        accelerator.load_state(str(path / "state"))
    again, others = step()
    assert again == loss, (again, loss)
    for a, b in zip(others, parameters, strict=True):
        close(a, b, rtol=0, atol=0)


class Blocks(nn.Module):
    """Four equal layers, for spreading over devices."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(4)])
        self.head = nn.Linear(32, 2)

    def forward(self, X):
        for layer in self.layers:
            X = torch.tanh(layer(X))
        return self.head(X)


def check_a_model_is_spread_over_devices():
    """dispatch_model puts layers where the map says, and moves what passes between."""
    expected, X = Blocks(), torch.randn(3, 32)
    devices = {"layers.0": 0, "layers.1": 0, "layers.2": 1, "layers.3": 1, "head": 1}
    model = dispatch_model(Blocks(), device_map=devices)
    assert model.layers[1].weight.device == torch.device("cuda:0")
    assert model.layers[2].weight.device == torch.device("cuda:1")
    with torch.no_grad():
        output = model(X.to("cuda:0"))
        close(output, expected(X), "cuda:0")  # back where the input was
        close(model(X), expected(X))


def check_a_map_of_devices_is_inferred():
    """Accelerate sees the memory of both GPUs, and balances a model between them."""
    memory = get_max_memory()
    assert set(memory) == {0, 1, "cpu"}, memory
    for i in range(2):
        free, total = torch.cuda.mem_get_info(i)
        assert 0.5 * total < memory[i] <= total, (memory, free)
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(12)])
    balanced = get_balanced_memory(model)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    assert balanced[0] < size, (balanced, size)
    devices = infer_auto_device_map(model, max_memory=balanced)
    assert set(devices.values()) == {0, 1}, devices
    torch.manual_seed(0)
    X = torch.randn(2, 64)
    expected = model(X)
    model = dispatch_model(model, device_map=devices)
    close(model(X.to("cuda:0")), expected, "cuda:0")


def check_a_checkpoint_is_loaded_onto_devices():
    """A checkpoint is loaded into an empty model, over GPUs, the CPU and the disk."""
    expected, X = Blocks(), torch.randn(3, 32)
    with folder() as path:
        save_file(expected.state_dict(), path / "model.safetensors")
        with init_empty_weights():
            model = Blocks()
        assert model.head.weight.is_meta
        devices = {"layers.0": 0, "layers.1": 1, "layers.2": "cpu"}
        devices |= {"layers.3": "disk", "head": 1}
        model = load_checkpoint_and_dispatch(
            model,
            checkpoint=str(path / "model.safetensors"),
            device_map=devices,
            offload_folder=str(path / "offload"),
        )
        assert model.layers[0].weight.device == torch.device("cuda:0")
        assert model.layers[1].weight.device == torch.device("cuda:1")
        assert model.layers[2].weight.is_meta and model.layers[3].weight.is_meta
        with torch.no_grad():
            close(model(X.to("cuda:0")), expected(X), "cuda:0")


def check_weights_wait_on_the_cpu():
    """With cpu_offload each layer's weights are on the GPU only while it computes."""
    expected, X = Blocks(), torch.randn(3, 32)
    model = cpu_offload(Blocks(), execution_device=torch.device("cuda:1"))
    assert all(p.is_meta for p in model.parameters())
    seen = []
    for layer in model.layers:
        layer.register_forward_hook(lambda *args: seen.append(args[-1].device))
    with torch.no_grad():
        close(model(X), expected(X))
    assert seen == [torch.device("cuda:1")] * 4, seen
    assert all(p.is_meta for p in model.parameters())
    assert torch.cuda.memory_allocated(1) == 0


def check_a_batch_that_fits_is_found():
    """find_executable_batch_size makes the batch smaller until it fits in memory."""
    row = torch.cuda.mem_get_info(0)[1] // 100
    tried = []

    @find_executable_batch_size(starting_batch_size=256)
    def training(batch_size):
        tried.append(batch_size)
        torch.empty(batch_size, row, dtype=torch.uint8, device="cuda")
        return batch_size

    found = training()
    assert tried[0] == 256 and found == tried[-1] and 50 < found < 100, tried


if __name__ == "__main__":
    main(globals())
