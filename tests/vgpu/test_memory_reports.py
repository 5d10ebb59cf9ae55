"""What programs are told about memory: a table, blocks, a history, and limits."""

import inspect
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu import vgpu
from d2l_gpu.vgpu import memory
from tests.helpers.properties import sizes

BLOCK, CAPACITY = 512, 2**20

pytestmark = pytest.mark.virtual_gpus(2, memory=CAPACITY)


def take(nbytes: int, device: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device=f"vgpu:{device}")


def in_blocks(nbytes: int) -> int:
    return -(-nbytes // BLOCK) * BLOCK


SIZES = st.lists(st.tuples(sizes(most=1), sizes(most=5 * BLOCK)), max_size=8)

# ------------------------------------------------------------------ counts


@given(taken=SIZES, kept=sizes(most=8))
def test_statistics_add_up(taken, kept):
    before = [torch.vgpu.memory_stats(i) for i in range(2)]
    living = [(take(nbytes, i), i, nbytes) for i, nbytes in taken][:kept]
    for i in range(2):
        stats = torch.vgpu.memory_stats(i)
        here = [nbytes for device, nbytes in taken if device == i and nbytes]
        left = [nbytes for _, device, nbytes in living if device == i and nbytes]
        for name, count in {
            "allocation.all": len,
            "requested_bytes.all": sum,
            "allocated_bytes.all": lambda found: sum(map(in_blocks, found)),
        }.items():
            added = stats[f"{name}.allocated"] - before[i][f"{name}.allocated"]
            assert (added, stats[f"{name}.current"]) == (count(here), count(left))
            freed = stats[f"{name}.allocated"] - stats[f"{name}.freed"]
            assert freed == stats[f"{name}.current"] <= stats[f"{name}.peak"]


def test_accumulated_statistics_restart_at_what_is_in_use():
    kept = take(3 * BLOCK, 1)
    for _ in range(2):
        take(BLOCK, 1)
        with pytest.raises(torch.OutOfMemoryError):
            take(CAPACITY, 1)
        torch.vgpu.reset_accumulated_memory_stats(1)
        stats = torch.vgpu.memory_stats("vgpu:1")
        assert stats["allocated_bytes.all.allocated"] == kept.nbytes
        assert stats["allocation.all.allocated"] == 1
        assert stats["allocation.all.freed"] == stats["num_ooms"] == 0


@given(taken=SIZES)
def test_the_summary_is_a_table_of_the_statistics(taken):
    living = [take(nbytes, i) for i, nbytes in taken]
    for i in range(2):
        stats = torch.vgpu.memory_stats(i)
        for summary in (
            torch.vgpu.memory_summary(i),
            torch.vgpu.memory_summary(f"vgpu:{i}", abbreviated=True),
        ):
            assert f"memory summary, device ID {i} " in summary
            *table, label = summary.splitlines()
            assert label == f"Simulated memory of vgpu:{i}, a virtual GPU."
            assert len({len(line) for line in table}) == 1
            rows = [line.strip("|").split("|") for line in table]
            cells = {name.strip(): values for name, *values in rows if values}
            found = [int(text.split()[0]) for text in cells["Allocations"]]
            whens = ("current", "peak", "allocated", "freed")
            assert found == [stats[f"allocation.all.{when}"] for when in whens]
    del living


# ------------------------------------------------------------------ blocks


@given(taken=SIZES, grown=sizes(most=9 * BLOCK))
def test_a_snapshot_has_a_segment_for_each_allocation(taken, grown):
    living = [(take(nbytes, i), i) for i, nbytes in taken]
    if living:
        living[0][0].untyped_storage().resize_(grown)
    expected = sorted(
        (i, storage.data_ptr(), in_blocks(storage.nbytes()), storage.nbytes())
        for storage, i in ((x.untyped_storage(), i) for x, i in living)
        if storage.nbytes()
    )
    segments = torch.vgpu.memory_snapshot()
    assert expected == [
        (s["device"], s["address"], s["total_size"], s["requested_size"])
        for s in segments
    ]
    for segment in segments:
        (block,) = segment["blocks"]
        assert block["address"] == segment["address"]
        assert block["size"] == segment["active_size"] == segment["total_size"]
        assert block["state"] == "active_allocated"
    assert torch.vgpu.memory_snapshot((0, 1)) == []


# ------------------------------------------------------------------ history


@pytest.fixture
def history():
    yield memory.record_history
    memory.record_history(None)


def names(frames: list[dict]) -> set[str]:
    return {frame["name"] for frame in frames}


def test_a_history_tells_what_was_taken_and_freed_and_where(history):
    history()
    here = inspect.currentframe()
    for i, nbytes in ((1, BLOCK), (0, 3 * BLOCK), (1, 5 * BLOCK)):
        x = take(nbytes, i)
        line = here.f_lineno - 1
        address = x.data_ptr()
        del x
        *_, made, asked, done = memory.snapshot()["device_traces"][i]
        assert [made["action"], asked["action"], done["action"]] == [
            *("alloc", "free_requested", "free_completed"),
        ]
        for event in (made, asked, done):
            assert (event["addr"], event["size"]) == (address, nbytes)
            places = [(f["filename"], f["line"]) for f in event["frames"]]
            assert any(file == __file__ for file, _ in places)
        assert (__file__, line) in [(f["filename"], f["line"]) for f in made["frames"]]
        assert made["frames"][0]["name"] == "take"
    assert list(map(len, memory.snapshot()["device_traces"])) == [3, 6]


def test_what_does_not_fit_is_in_the_history(history):
    history()
    with pytest.raises(torch.OutOfMemoryError):
        take(2 * CAPACITY, 1)
    traces = memory.snapshot()["device_traces"]
    assert [e["action"] for e in traces[1]] == ["oom"] and not traces[0]
    assert traces[1][0]["size"] == 2 * CAPACITY


@pytest.mark.parametrize("most", [1, 2, 5])
def test_the_last_events_are_kept(history, most):
    history(most=most)
    for blocks in range(1, 5):
        take(blocks * BLOCK, 0)
    events = memory.snapshot()["device_traces"][0]
    assert len(events) == most and events[-1]["size"] == 4 * BLOCK


@pytest.mark.parametrize(
    ("context", "frames"),
    [(None, [0, 0]), ("state", [1, 0]), ("alloc", [1, 0]), ("all", [1, 1])],
)
def test_frames_are_kept_as_asked(history, context, frames):
    history(context=context, skipped=["free_requested"])
    take(BLOCK, 0)
    made, freed = memory.snapshot()["device_traces"][0]
    assert [bool(made["frames"]), bool(freed["frames"])] == list(map(bool, frames))


def test_the_state_alone_says_where_living_blocks_come_from(history):
    unknown = take(BLOCK, 0)
    history("state")
    x = take(BLOCK, 1)
    segments = memory.snapshot()["segments"]
    assert [bool(segment["frames"]) for segment in segments] == [False, True]
    assert names(segments[1]["blocks"][0]["frames"]) >= {"take"}
    assert memory.snapshot()["device_traces"] == [[], []]
    del unknown, x


def test_a_history_goes_on_unless_it_is_cleared_and_ends_when_it_is_stopped(history):
    def events() -> int:
        return sum(map(len, memory.snapshot()["device_traces"]))

    history()
    take(BLOCK, 0)
    history()
    assert events() == 3
    history(clear=True)
    assert events() == 0
    take(BLOCK, 1)
    history(None)
    take(BLOCK, 1)
    assert events() == 0 and vgpu.machine_in_use().history is None


@pytest.mark.parametrize("wrong", [{"enabled": "yes"}, {"context": "frames"}])
def test_what_a_history_cannot_be_is_a_sentence(history, wrong):
    with pytest.raises(RuntimeError, match=f"expected {next(iter(wrong))} to be"):
        history(**wrong)


# ------------------------------------------------------------------ limits


@pytest.fixture
def limited():
    yield torch.vgpu.set_per_process_memory_fraction
    for i in range(2):
        torch.vgpu.set_per_process_memory_fraction(1.0, i)


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 1.0])
def test_a_fraction_can_be_used_and_no_more(limited, fraction):
    limited(fraction, 1)
    assert torch.vgpu.get_per_process_memory_fraction("vgpu:1") == fraction
    assert torch.vgpu.get_per_process_memory_fraction(0) == 1.0
    room = int(fraction * CAPACITY)
    assert torch.vgpu.mem_get_info(1) == (CAPACITY, CAPACITY)
    for _ in range(2):
        x = take(room, 1)
        with pytest.raises(torch.OutOfMemoryError) as caught:
            take(1, 1)
        assert ("allowed; " in str(caught.value)) == (fraction < 1)
        del x
    take(CAPACITY, 0)


def test_less_than_is_in_use_may_be_allowed(limited):
    x = take(CAPACITY // 2, 0)
    limited(0.25, 0)
    x.untyped_storage().resize_(CAPACITY // 4)  # what is given back always fits
    assert torch.vgpu.memory_allocated(0) == CAPACITY // 4
    with pytest.raises(torch.OutOfMemoryError, match=r"256.00 KiB allowed"):
        take(1, 0)


def test_what_is_no_fraction_is_refused_as_by_pytorch(limited):
    with pytest.raises(TypeError, match="must be `float`"):
        limited(1, 0)
    for fraction in (-0.1, 1.1):
        with pytest.raises(ValueError, match=re.escape(str(fraction))):
            limited(fraction, 0)
    assert torch.vgpu.get_per_process_memory_fraction(0) == 1.0
