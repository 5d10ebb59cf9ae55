"""The profiler, and what PyTorch says about memory."""

import json
import pickle

import torch
from torch.profiler import (
    ProfilerActivity,
    profile,
    record_function,
    schedule,
)

from tests.ecosystem.support import batch, folder, main, mlp, raises, train

NEEDS = ("torch",)


def check_the_profiler_shows_time_on_gpus():
    """The profiler's table says how long the GPU worked for each operator."""
    net, (X, Y) = mlp().to("cuda"), batch()
    x, y = X.cuda(), Y.cuda()
    train(net, x, y)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        record_shapes=True,
        profile_memory=True,
    ) as profiler:
        with record_function("one step"):
            train(net, x, y)
        torch.cuda.synchronize()
    averages = profiler.key_averages(group_by_input_shape=True)
    events = [event for event in averages if event.key == "aten::addmm"]
    assert events and all(event.count == 1 for event in events), events
    assert all(event.device_time_total > 0 for event in events)
    table = averages.table(sort_by="self_cuda_time_total", row_limit=10)
    assert "Self CUDA" in table and "CUDA total" in table
    assert "CUDA Mem" in table and "one step" in averages.table()


def check_the_profiler_traces_kernels():
    """With a schedule, the trace of the active steps has kernels with their device."""
    net, (X, Y) = mlp().to("cuda:1"), batch()
    x, y = X.to("cuda:1"), Y.to("cuda:1")
    traced = []
    with folder() as path:

        def ready(profiler):
            profiler.export_chrome_trace(str(path / "trace.json"))
            traced.append(profiler.step_num)

        with profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
            schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
            on_trace_ready=ready,
        ) as profiler:
            for _ in range(5):
                train(net, x, y)
                profiler.step()
        trace = json.loads((path / "trace.json").read_text())
    assert traced == [4], traced
    events = trace["traceEvents"]
    steps = {e["name"] for e in events if e.get("name", "").startswith("ProfilerStep")}
    assert steps == {"ProfilerStep#2", "ProfilerStep#3"}, steps
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert len(kernels) >= 4, len(kernels)
    assert {event["args"]["device"] for event in kernels} == {1}
    assert all(event["dur"] >= 0 for event in kernels)


def check_memory_is_counted():
    """Functions and statistics of memory count what tensors take, on each GPU."""
    torch.cuda.reset_peak_memory_stats(1)
    before = torch.cuda.memory_allocated(1)
    first = torch.cuda.memory_stats(1).get("allocation.all.allocated", 0)
    X = torch.empty(2**20, dtype=torch.uint8, device="cuda:1")
    Y = torch.empty(2**20, dtype=torch.uint8, device="cuda:1")
    del Y
    assert torch.cuda.memory_allocated(1) - before == 2**20
    assert torch.cuda.max_memory_allocated(1) - before == 2**21
    assert torch.cuda.memory_reserved(1) >= 2**20
    stats = torch.cuda.memory_stats(1)
    assert stats["allocated_bytes.all.current"] == torch.cuda.memory_allocated(1)
    assert stats["allocation.all.allocated"] - first == 2
    assert stats["active_bytes.all.current"] >= 2**20
    assert stats["num_ooms"] == 0 and stats["num_alloc_retries"] == 0
    summary = torch.cuda.memory_summary(1)
    assert "PyTorch CUDA memory summary, device ID 1" in summary
    assert "Allocated memory" in summary and "Peak" in summary
    assert torch.cuda.memory_allocated(0) == 0
    del X


def check_a_snapshot_of_memory():
    """memory_snapshot lists the blocks that tensors of each GPU occupy."""
    X = torch.empty(3 * 2**20, dtype=torch.uint8, device="cuda:1")
    snapshot = torch.cuda.memory_snapshot()
    segments = [segment for segment in snapshot if segment["device"] == 1]
    assert segments
    blocks = [
        block
        for segment in segments
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    ]
    assert any(block["size"] >= 3 * 2**20 for block in blocks), blocks
    for segment in segments:
        assert sum(b["size"] for b in segment["blocks"]) == segment["total_size"]
        end = segment["address"] + segment["total_size"]
        if segment["address"] <= X.data_ptr() < end:
            break
    else:
        raise AssertionError("The tensor is in no segment.")


def check_a_history_of_memory():
    """With a recorded history, a dump tells who allocated and freed, and where."""
    torch.cuda.memory._record_memory_history(max_entries=1000)
    X = torch.empty(2**20, dtype=torch.uint8, device="cuda")
    del X
    with folder() as path:
        torch.cuda.memory._dump_snapshot(str(path / "snapshot.pickle"))
        snapshot = pickle.loads((path / "snapshot.pickle").read_bytes())
    torch.cuda.memory._record_memory_history(enabled=None)
    assert {"segments", "device_traces"} <= set(snapshot)
    trace = snapshot["device_traces"][0]
    actions = [entry["action"] for entry in trace if entry["size"] == 2**20]
    assert "alloc" in actions and actions[-1].startswith("free"), actions
    made = next(e for e in trace if e["action"] == "alloc" and e["size"] == 2**20)
    names = {frame["name"] for frame in made["frames"]}
    assert "check_a_history_of_memory" in names, names


def check_a_fraction_of_memory():
    """A process that may use half of a GPU runs out of memory beyond that."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.5, 0)
    assert torch.cuda.get_per_process_memory_fraction(0) == 0.5
    X = torch.empty(total // 4, dtype=torch.uint8, device="cuda:0")
    raises(
        torch.OutOfMemoryError,
        lambda: torch.empty(total // 10 * 3, dtype=torch.uint8, device="cuda:0"),
        "out of memory",
    )
    del X
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    X = torch.empty(total // 10 * 6, dtype=torch.uint8, device="cuda:0")
    assert X.nbytes > total // 2


def check_what_running_out_of_memory_says():
    """The error says CUDA out of memory, how much was asked for, and on which GPU."""
    free, total = torch.cuda.mem_get_info(1)
    assert 0 < free <= total
    raises(
        torch.cuda.OutOfMemoryError,
        lambda: torch.empty(2 * total, dtype=torch.uint8, device="cuda:1"),
        "CUDA out of memory. Tried to allocate",
        "GPU 1 has a total capacity of",
        "GiB",
    )
    assert issubclass(torch.OutOfMemoryError, RuntimeError)
    assert torch.cuda.memory_stats(1)["num_ooms"] == 1
    torch.ones(3, device="cuda:1").sum().item()


def check_what_a_device_is():
    """A device says its name, memory, processors, capability and other properties."""
    for i in range(2):
        properties = torch.cuda.get_device_properties(i)
        assert properties.name == torch.cuda.get_device_name(i)
        assert properties.total_memory == torch.cuda.mem_get_info(i)[1]
        assert properties.multi_processor_count > 0
        capability = torch.cuda.get_device_capability(f"cuda:{i}")
        assert capability == (properties.major, properties.minor)
        assert properties.warp_size == 32 and len(str(properties.uuid)) >= 32
        assert properties.max_threads_per_multi_processor >= 1024
        assert properties.L2_cache_size > 0 and not properties.is_integrated


def check_what_the_build_has():
    """PyTorch says that it was built with CUDA and cuDNN, and which versions."""
    assert torch.backends.cuda.is_built() and torch.version.cuda is not None
    assert int(torch.version.cuda.partition(".")[0]) >= 11
    assert torch.cuda.get_arch_list() and torch.backends.cudnn.is_available()
    assert torch.backends.cudnn.version() > 8000


if __name__ == "__main__":
    main(globals())
