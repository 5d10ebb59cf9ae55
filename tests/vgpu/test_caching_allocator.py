"""Virtual GPUs with PyTorch's caching allocator: what programs see of it."""

import re
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.cuda import _memory_viz

from d2l_gpu import vgpu
from d2l_gpu.vgpu import memory
from tests.helpers.properties import sizes

KIB, MIB = 2**10, 2**20
WORKSPACE = (2 * 4096 + 8 * 16) * KIB

pytestmark = pytest.mark.virtual_gpus(2)


@pytest.fixture
def enable(virtual_gpus):
    """Return a function that sets up two devices with a caching allocator."""

    def enable(settings: str = "cublas_workspace_kb:0", **options):
        options = {"memory": "256MiB", "backing": "meta"} | options
        vgpu.enable(2, allocator=f"caching,{settings}", **options)

    yield enable
    memory.record_history(None)
    vgpu.enable(2)


def take(nbytes: int, device: int = 0) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device=f"vgpu:{device}")


def agree(device: int) -> dict:
    """Assert that everything that tells of a device's memory says the same."""
    stats = torch.vgpu.memory_stats(device)
    free, total = torch.vgpu.mem_get_info(device)
    allocated = torch.vgpu.memory_allocated(device)
    reserved = torch.vgpu.memory_reserved(device)
    assert stats["allocated_bytes.all.current"] == allocated <= reserved
    assert stats["reserved_bytes.all.current"] == reserved <= total
    assert total - free == torch.vgpu.device_memory_used(device) >= reserved
    assert stats["allocated_bytes.all.peak"] == torch.vgpu.max_memory_allocated(device)
    assert stats["reserved_bytes.all.peak"] == torch.vgpu.max_memory_reserved(device)
    segments = [s for s in torch.vgpu.memory_snapshot() if s["device"] == device]
    assert sum(s["total_size"] for s in segments) == reserved
    assert sum(s["allocated_size"] for s in segments) == allocated
    for segment in segments:
        ends = [block["address"] + block["size"] for block in segment["blocks"]]
        begins = [block["address"] for block in segment["blocks"]]
        assert [segment["address"], *ends[:-1]] == begins
        assert ends[-1] == segment["address"] + segment["total_size"]
    drawn = vgpu.memory_map(device)
    assert len(drawn.segments) == len(segments)
    assert drawn.reserved == reserved
    assert drawn.allocated == stats["active_bytes.all.current"]
    return stats


SIZES = st.lists(st.tuples(sizes(most=1), sizes(most=30 * MIB)), max_size=8)


@settings(max_examples=30)
@given(
    taken=SIZES,
    kept=sizes(most=8),
    settings=st.sampled_from(
        ["", "expandable_segments:True", "max_split_size_mb:20,context_mb:10"]
    ),
    backing=st.sampled_from(["cpu", "meta"]),
)
def test_everything_that_tells_of_memory_agrees(enable, taken, kept, settings, backing):
    enable(settings, backing=backing)
    living = []
    for device, nbytes in taken:
        try:
            living.append((take(nbytes, device), device))
        except torch.OutOfMemoryError:
            assert nbytes + 40 * MIB > torch.vgpu.mem_get_info(device)[0]
    del living[:kept]
    places = {
        (s["device"], b["address"])
        for s in torch.vgpu.memory_snapshot()
        for b in s["blocks"]
        if b["state"] == "active_allocated"
    }
    assert places == {(i, X.data_ptr()) for X, i in living if X.numel()}
    for i in range(2):
        agree(i)
        torch.vgpu.reset_peak_memory_stats(i)
        torch.vgpu.reset_accumulated_memory_stats(i)
        stats = agree(i)
        assert stats["reserved_bytes.all.peak"] == torch.vgpu.memory_reserved(i)
        assert stats["allocated_bytes.all.allocated"] == stats["num_device_alloc"] == 0
    del living
    if "X" in locals():
        del X  # noqa: F821
    torch.vgpu.empty_cache()
    for i in range(2):
        agree(i)
        assert torch.vgpu.memory_reserved(i) == 0


def test_a_byte_more_than_a_mebibyte_reserves_twenty_and_is_kept(enable):
    enable()
    X = take(MIB + 1, 1)
    assert torch.vgpu.memory_allocated(1) == MIB + 512
    assert torch.vgpu.memory_reserved(1) == 20 * MIB
    assert torch.vgpu.mem_get_info(1) == (236 * MIB, 256 * MIB)
    del X
    assert torch.vgpu.memory_allocated(1) == 0
    assert torch.vgpu.memory_reserved(1) == 20 * MIB
    torch.vgpu.empty_cache()
    assert torch.vgpu.memory_reserved(1) == 0


def test_the_first_device_of_a_simulator_is_gpu_0_in_its_error():
    for allocator in (None, "caching"):
        simulator = vgpu.simulator(
            2, memory="64MiB", backing="meta", allocator=allocator
        )
        for i, device in enumerate(simulator.gpus()):
            with pytest.raises(torch.OutOfMemoryError, match=f"GPU {i} has a total"):
                torch.empty(2**30, device=device)


def test_a_map_shows_why_a_request_fails_although_enough_is_free(enable):
    enable()
    kept = [take(60 * MIB) for _ in range(4)]
    assert vgpu.memory_map("vgpu:0").title() == "All 240.00 MiB are in use"
    del kept[1::2]
    parts = [take(40 * MIB) for _ in range(2)]  # one in each segment that's free
    with pytest.raises(torch.OutOfMemoryError):
        take(30 * MIB)
    shown = vgpu.memory_map("vgpu:0", wanted="30MiB")
    assert shown.title() == "40.00 MiB free, in 2 pieces of at most 20.00 MiB"
    assert "wanted in one piece: 30.00 MiB" in shown.svg()
    del kept, parts
    with pytest.raises(ValueError, match="Cannot parse the memory size 'much'"):
        vgpu.memory_map("vgpu:0", wanted="much")
    with pytest.raises(ValueError, match="Expected a virtual GPU"):
        vgpu.memory_map("cpu")


def test_without_a_caching_allocator_nothing_free_is_reserved(enable):
    vgpu.enable(2, memory="256MiB", backing="meta")
    X = take(3 * MIB + 1)
    shown = vgpu.memory_map(0)
    assert (shown.reserved, shown.unallocated) == (3 * MIB + 512, 0)
    assert vgpu.memory_map(1).title() == "No memory is reserved"
    del X


def test_a_map_of_a_real_gpu_is_made_from_pytorchs_snapshot(monkeypatch):
    blocks = [
        {"size": 3 * MIB, "state": "active_allocated"},
        {"size": MIB, "state": "active_pending_free"},
        {"size": 16 * MIB, "state": "inactive"},
    ]
    segments = [{"device": 1, "blocks": blocks}, {"device": 0, "blocks": blocks[:1]}]
    with pytest.raises(RuntimeError, match="no CUDA GPU"):
        vgpu.memory_map("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: f"GPU number {i}")
    shown = vgpu.memory_map(torch.device("cuda", 1))
    assert (shown.reserved, shown.allocated) == (20 * MIB, 4 * MIB)
    assert shown.title() == "16.00 MiB free, in one piece"
    assert "GPU number 1" in shown.svg()


def test_the_error_says_what_is_allocated_reserved_and_free(enable):
    enable("cublas_workspace_kb:0,context_mb:30")
    X, Y = take(60 * MIB), take(60 * MIB)
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError) as caught:
            take(140 * MIB)
    del Y
    kept = take(10 * MIB)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        take(7 * MIB + 120 * MIB)
    assert str(caught.value).startswith(
        "vgpu out of memory. Tried to allocate 128.00 MiB. GPU 0 has a total capacity "
        "of 256.00 MiB of which 106.00 MiB is free. Including non-PyTorch memory, this "
        "process has 150.00 MiB memory in use. Of the allocated memory 70.00 MiB is "
        "allocated by PyTorch, and 50.00 MiB is reserved by PyTorch but unallocated. "
        "If reserved but unallocated memory is large try setting "
        "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
    assert str(caught.value).endswith("(Simulated memory of a virtual GPU.)")
    stats = agree(0)
    assert (stats["num_ooms"], stats["num_alloc_retries"]) == (3, 3)
    del X, kept


def test_the_summary_has_the_pools(enable):
    enable()
    kept = take(3 * KIB), take(3 * MIB)
    summary = torch.vgpu.memory_summary(0)
    *table, label = summary.splitlines()
    assert label == "Simulated memory of vgpu:0, a virtual GPU."
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    i = next(i for i, row in enumerate(rows) if row[0] == "GPU reserved memory")
    found = [int(re.match(r"\d+", row[1])[0]) for row in rows[i : i + 3]]
    assert found == [22 * KIB, 20 * KIB, 2 * KIB]  # in KiB
    assert "from large pool" not in torch.vgpu.memory_summary(0, abbreviated=True)
    del kept


# ------------------------------------------------------------------ programs


def train(device: str = "vgpu:0") -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(512, 700), nn.ReLU(), nn.Linear(700, 10)).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        X = torch.ones(4096, 512, device=device)
        optimizer.zero_grad()
        net(X).sum().backward()
        optimizer.step()
    return net, optimizer


@pytest.mark.parametrize(
    ("model", "workspace"), [("V100", WORKSPACE), ("H100", 32 * MIB)]
)
def test_training_ends_with_what_is_allocated_without_a_cache(model, workspace):
    def memory_after(allocator):
        sim = vgpu.simulator(1, model, backing="meta", allocator=allocator)
        i = sim.gpu().index
        trained = train(sim.gpu())
        found = torch.vgpu.memory_allocated(i), torch.vgpu.memory_reserved(i)
        assert torch.vgpu.memory_stats(i)["num_ooms"] == 0
        del trained
        return found

    exact, _ = memory_after(None)
    for text in ("backend:native", "expandable_segments:True"):
        allocated, reserved = memory_after(f"caching,cublas_workspace_kb:0,{text}")
        assert allocated == exact < reserved
        # One workspace for forward and one for backward, which has a thread of its own.
        allocated, _ = memory_after(f"caching,{text}")
        assert allocated == exact + 2 * workspace


def test_values_are_the_same_with_a_cache(enable):
    enable(backing="cpu")
    cached = [p.detach().cpu() for p in train()[0].parameters()]
    expected = [p.detach().cpu() for p in train("cpu")[0].parameters()]
    assert all(map(torch.equal, cached, expected))
    assert torch.vgpu.memory_allocated(0) == 0


def test_fragmented_memory_runs_out_although_enough_is_free(enable):
    def fragmented() -> list[torch.Tensor]:
        halves = [take(120 * MIB) for _ in range(2)]
        del halves
        kept = [take(2 * MIB)]
        between = take(118 * MIB)
        kept.append(take(2 * MIB))
        del between
        return kept

    enable()
    kept = fragmented()
    free = torch.vgpu.mem_get_info()[0] + torch.vgpu.memory_reserved()
    assert free - torch.vgpu.memory_allocated() == 252 * MIB
    with pytest.raises(torch.OutOfMemoryError):
        take(130 * MIB)
    del kept
    enable("expandable_segments:True")
    kept = fragmented()
    assert take(130 * MIB).numel() == 130 * MIB
    del kept


@pytest.mark.parametrize("backing", ["cpu", "meta"])
def test_what_does_not_fit_changes_nothing(enable, backing):
    enable(backing=backing)
    ballast = take(180 * MIB)
    small, X = take(7), take(40 * MIB)
    before = torch.vgpu.memory_allocated()
    with pytest.raises(torch.OutOfMemoryError):
        small.untyped_storage().resize_(40 * MIB)
    with pytest.raises(torch.OutOfMemoryError):
        X + 1
    assert small.untyped_storage().nbytes() == 7
    assert torch.vgpu.memory_allocated() == before
    agree(0)
    del ballast
    assert (X + 1).shape == X.shape
    del X, small


def test_a_storage_is_freed_and_comes_back_as_fsdp_does_it(enable):
    enable(backing="cpu")
    X = torch.ones(3 * MIB, device="vgpu:0")
    storage, view = X.untyped_storage(), X[MIB:]
    for _ in range(3):
        storage.resize_(0)
        assert torch.vgpu.memory_allocated() == storage.data_ptr() == 0
        assert torch.vgpu.memory_reserved() >= 12 * MIB
        storage.resize_(12 * MIB)
        X.fill_(2)
        assert torch.vgpu.memory_allocated() == 12 * MIB
        assert view.data_ptr() == X.data_ptr() + 4 * MIB
        assert view.sum().item() == 4 * MIB
    agree(0)


def test_a_fraction_limits_what_is_reserved(enable):
    enable()
    torch.vgpu.set_per_process_memory_fraction(0.25, 0)
    X = take(45 * MIB)
    with pytest.raises(torch.OutOfMemoryError, match=r"64\.00 MiB allowed; "):
        take(MIB + 1)  # would reserve 20 MiB
    Y = take(MIB)
    torch.vgpu.set_per_process_memory_fraction(1.0, 0)
    take(150 * MIB)
    del X, Y


def test_memory_that_another_stream_uses_is_kept_until_it_has_finished(enable):
    enable()
    side = torch.vgpu.Stream()
    X = torch.empty(5 * MIB, device="vgpu:0")
    address = X.data_ptr()
    with torch.vgpu.stream(side):
        for _ in range(100):
            X.sin()
    X.record_stream(side)
    del X
    assert torch.vgpu.memory_stats()["active_bytes.all.current"] >= 20 * MIB
    assert torch.empty(5 * MIB, device="vgpu:0").data_ptr() != address
    side.synchronize()
    assert torch.empty(5 * MIB, device="vgpu:0").data_ptr() == address
    agree(0)


def test_threads_share_an_allocator(enable):
    enable()

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        kept = []
        for nbytes in torch.randint(1, 4 * MIB, (60,), generator=generator).tolist():
            kept = [*kept[-3:], take(nbytes)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.vgpu.memory_allocated() == 0
    stats = agree(0)
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 240


# ------------------------------------------------------------------ snapshots


@pytest.mark.parametrize("backing", ["cpu", "meta"])
def test_a_snapshot_is_the_one_that_a_gpu_gave(enable, backing):
    """Run a program whose snapshot on a GPU was published.

    See https://discuss.pytorch.org/t/178671 (April 2023).
    """
    enable("backend:native", backing=backing)
    W = torch.rand(1000, 10).to("vgpu:0")
    b = torch.rand(10).to("vgpu:0")
    X = torch.rand(1000).to("vgpu:0")
    y = X @ W + b
    small, large = torch.vgpu.memory_snapshot()
    assert [(block["size"], block["state"]) for block in small["blocks"]] == [
        (40448, "active_allocated"),
        (512, "active_allocated"),
        (4096, "active_allocated"),
        (512, "inactive"),
        (512, "active_allocated"),
        (2051072, "inactive"),
    ]
    assert (small["total_size"], small["allocated_size"]) == (2 * MIB, 45568)
    assert [(block["size"], block["state"]) for block in large["blocks"]] == [
        (8519680, "active_allocated"),
        (12451840, "inactive"),
    ]
    assert (small["segment_type"], large["segment_type"]) == ("small", "large")
    del y


@pytest.mark.parametrize("settings", ["backend:native", "expandable_segments:True"])
def test_pytorchs_tools_read_a_snapshot(enable, settings):
    enable(settings)
    memory.record_history()
    trained = train()
    with pytest.raises(torch.OutOfMemoryError):
        take(2**30)
    torch.vgpu.empty_cache()
    snapshot = memory.snapshot()
    reserved = torch.vgpu.memory_reserved()
    text = _memory_viz.segsum(snapshot)
    assert f"total_reserved: {reserved / MIB:.1f}MiB" in text
    assert "raise OutOfMemoryError" in _memory_viz.trace(snapshot)
    assert "Active Memory Timeline" in _memory_viz.trace_plot(snapshot)
    assert "Allocator State History" in _memory_viz.segment_plot(snapshot)
    events = snapshot["device_traces"][0]
    kinds = {event["action"] for event in events}
    grown = {"segment_alloc", "segment_free"}
    if "expandable" in settings:
        grown = {"segment_map", "segment_unmap"}
    assert kinds == {"alloc", "free_requested", "free_completed", "oom"} | grown
    # Every event replayed gives what is reserved in the end.
    signs = {"segment_alloc": 1, "segment_map": 1}
    signs |= {"segment_free": -1, "segment_unmap": -1}
    total = sum(signs.get(event["action"], 0) * event["size"] for event in events)
    assert total == reserved
    assert snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] == settings
    frames = [f["name"] for s in snapshot["segments"] for f in s["frames"]]
    assert "train" in frames
    del trained


# ------------------------------------------------------------------ settings


def test_settings_come_from_pytorchs_variables_too(virtual_gpus, monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "large_segment_size_mb:30")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8")
    for allocator, reserved in [("caching", 30), ("caching,backend:native", 20)]:
        sim = vgpu.simulator(1, "H100", backing="meta", allocator=allocator)
        X = torch.empty(600, 600, device=sim.gpu())
        assert torch.vgpu.memory_reserved(sim.gpu()) == reserved * MIB
        del X
        Y = torch.ones(2, 2, device=sim.gpu())
        Y @ Y
        allocated = torch.vgpu.memory_allocated(sim.gpu())
        assert allocated == WORKSPACE + 512
        del Y
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:3")
    with pytest.raises(ValueError, match="max_split_size_mb must be a number of MiB"):
        vgpu.simulator(1, allocator="caching")


@pytest.mark.parametrize(
    ("allocator", "error", "problem"),
    [
        (True, TypeError, "must be None or a text such as 'caching'"),
        ("expandable_segments:True", ValueError, "must be None, 'caching', or"),
        ("caching,expandable_segments:yes", ValueError, "must be True or False"),
        ("caching,expandable:True", ValueError, "has no setting 'expandable'"),
    ],
)
def test_what_is_no_allocator_is_a_sentence(virtual_gpus, allocator, error, problem):
    for make in (vgpu.enable, vgpu.simulator):
        with pytest.raises(error, match=problem):
            make(2, allocator=allocator)
