import itertools
import json
import tempfile
from collections import Counter
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from d2l_gpu import vgpu
from tests.programs.as_cuda.start import start

start()
sim, machine = vgpu.current_simulator(), vgpu.machine_in_use()
both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def work(sizes: dict[int, int]) -> None:
    """Multiply and add on devices, as many times as their numbers say."""
    for index, rounds in sizes.items():
        x = torch.ones(64, 8 + index, device=f"cuda:{index}", requires_grad=True)
        for _ in range(rounds):
            y = x.t() @ x + 1
        y.sum().backward()


def spans() -> Counter:
    """Return the simulated microseconds of kernels, by device."""
    found = Counter()
    for span in sim.spans():
        if span.lane == "compute":
            found[span.index] += (span.end - span.start) / 1e6
    return found


def close(a: float, b: float) -> bool:
    return abs(a - b) < 1e-6 * max(a, b, 1)


for sizes in ({0: 1, 1: 3}, {1: 2}, {0: 5, 1: 1}):
    sim.reset()
    work(sizes)
    elapsed, plain = sim.elapsed(), spans()
    for activities in (both, [ProfilerActivity.CUDA]):
        sim.reset()
        with profile(activities=activities, record_shapes=True) as profiler:
            work(sizes)
            took = sim.elapsed()
        assert took == elapsed  # it costs no simulated time
        assert "kernel_issued" not in vars(machine)
        events = profiler.events()
        kernels = [e for e in events if e.device_type.name == "CUDA"]
        on_cpu = [e for e in events if e.device_type.name == "CPU"]
        assert all(kernel.name.endswith(" (simulated)") for kernel in kernels)
        for index, time in plain.items():
            here = [e for e in kernels if e.device_index == index]
            assert close(sum(e.device_time_total for e in here), time)
            for a, b in itertools.pairwise(here):  # a device runs one kernel at a time
                assert a.time_range.end <= b.time_range.start + 1e-6
        assert bool(on_cpu) == (ProfilerActivity.CPU in activities)
        assert "Self CUDA" in profiler.key_averages().table()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            profiler.export_chrome_trace(str(path))
            trace = json.loads(path.read_text())["traceEvents"]
        traced = Counter()
        for event in trace:
            assert not event.get("name", "").startswith("vgpu: ")
            if event.get("cat") == "kernel":
                assert event["args"]["simulated"] and event["dur"] > 0
                traced[event["args"]["device"]] += event["args"]["picoseconds"] / 1e6
        assert traced.keys() == plain.keys() == sizes.keys()
        assert all(close(traced[i], plain[i]) for i in plain)
        if on_cpu:
            counts = Counter(e.name for e in on_cpu)
            rounds = sum(sizes.values())
            assert counts["aten::mm"] == rounds + 2 * len(sizes)
            total = sum(e.self_device_time_total for e in on_cpu)
            assert close(total, sum(plain.values()))

# A profile begins at its own beginning, however long the devices have worked before.
begins = []
for rounds in (1, 300, 1):
    work({0: rounds})
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work({0: 2})
    kernels = [e for e in profiler.events() if e.device_type.name == "CUDA"]
    begins.append([round(e.time_range.start, 3) for e in kernels])
assert begins[0] == begins[1] == begins[2], begins

# An error ends the recording, and a history of memory goes on.
torch.cuda.memory._record_memory_history()
try:
    with profile(activities=both, profile_memory=True) as profiler:
        x = torch.ones(3 * 128, device="cuda:1")
        y = x + x
        raise KeyError
except KeyError:
    pass
assert "kernel_issued" not in vars(machine)
(event,) = [e for e in profiler.events() if e.name == "aten::add"]
assert event.device_memory_usage == 3 * 512
assert "CUDA Mem" in profiler.key_averages().table()
x = y = None
trace = torch.cuda.memory._snapshot()["device_traces"][1]
assert [e["action"] for e in trace if e["size"] == 3 * 512].count("alloc") == 2
assert [e["action"] for e in trace].count("free_completed") == 2
torch.cuda.memory._record_memory_history(None)

# Unless a program says otherwise, all is recorded.
with profile() as profiler:
    torch.ones(2, device="cuda") + 1
assert {e.device_type.name for e in profiler.events()} == {"CPU", "CUDA"}

# What the CPU alone is asked for stays as it is.
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    torch.ones(2, device="cuda") + 1
assert {e.device_type.name for e in profiler.events()} == {"CPU"}
