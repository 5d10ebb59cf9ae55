"""Traces of simulated time, for viewers and from PyTorch's profiler."""

import errno
import gzip
import json
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from d2l_gpu import vgpu
from tests.helpers.properties import sizes
from tests.helpers.traces import Read, check

pytestmark = pytest.mark.virtual_gpus(2)

SIMULATED = {"kernel", "copy", "collective", "issue", "wait"}
HOST = "meta"  # where tensors without values are when they're on the host


@pytest.fixture(scope="module")
def sims() -> dict:
    """Simulators of one to three devices, all of which the examples use in turns."""
    models = {1: "V100", 2: ["H100", "T4"], 3: ["A100", "Xeon E5-2698 v4", "V100"]}
    return {n: vgpu.simulator(n, model, backing="meta") for n, model in models.items()}


def kernel(sim, tensors, i, j, stream, rows) -> None:
    with torch.vgpu.stream(torch.vgpu.Stream(sim.gpu(i), stream_id=stream)):
        x = torch.empty(rows, 64, device=sim.gpu(i))
        tensors[i] = (x @ x.T).relu() if stream else x + 1


def copy(sim, tensors, i, j, stream, rows) -> None:
    """Copy to the host, and from there or from the device to another."""
    with torch.vgpu.stream(torch.vgpu.Stream(sim.gpu(i), stream_id=stream)):
        tensors[i].to(HOST)
        tensors[i] = torch.empty(999, rows, device=HOST).to(sim.gpu(i))
        tensors[j] = tensors[i].to(sim.gpu(j), non_blocking=True)


def all_reduce(sim, tensors, i, j, stream, rows) -> None:
    given = [torch.empty(rows, 10**stream, device=device) for device in sim.gpus()]
    done = sim.all_reduce(given, beside=True)
    kernel(sim, tensors, i, j, 0, rows)
    done.wait()


def in_a_thread(sim, tensors, i, j, stream, rows) -> None:
    work = (kernel, copy, all_reduce)[rows % 3]
    threads = [
        threading.Thread(target=work, args=(sim, tensors, k, i, stream, rows))
        for k in (i, j)
    ]
    for thread in threads:
        thread.start()
        thread.join()


def wait(sim, tensors, i, j, stream, rows) -> None:
    torch.vgpu.synchronize(sim.gpu(i)) if stream else sim.synchronize()


def free(sim, tensors, i, j, stream, rows) -> None:
    tensors[i] = torch.empty(1, device=sim.gpu(i))


WORK = [kernel, kernel, copy, all_reduce, in_a_thread, wait, free]
STEP = st.tuples(
    st.sampled_from(WORK), sizes(most=2), sizes(most=2), sizes(most=2), sizes(1, 999)
)
PROGRAM = st.lists(STEP, max_size=12)


def run(sim, program, memory: bool = False) -> list[torch.Tensor]:
    """Restart the clock, run a program, and return the tensors that live."""
    tensors = [torch.empty(5, 5, device=device) for device in sim.gpus()]
    sim.reset(memory=memory)
    for work, i, j, stream, rows in program:
        work(sim, tensors, i % sim.n, j % sim.n, stream, rows)
    return tensors


def trace_of(sim, path) -> dict:
    sim.timeline().save(path)
    return json.loads(path.read_text("utf-8"))


# ------------------------------------------------------------------ what is in a trace


@settings(max_examples=100)
@given(n=sizes(1, 3), program=PROGRAM)
def test_a_trace_is_what_ran(sims, tmp_path, n, program):
    sim = sims[n]
    tensors = run(sim, program, memory=True)
    read = check(trace_of(sim, tmp_path / "trace.json"), SIMULATED)
    host, *devices = read.processes
    report = sim.report()
    assert [device.name for device in report.devices] == [
        read.processes[pid].partition(":")[0] for pid in devices
    ]
    for pid, use, tensor in zip(devices, report.devices, tensors, strict=True):
        assert use.model.name in read.processes[pid]
        kernels = [x.event["args"] for x in read.of("kernel") if x.track[0] == pid]
        busy = sum(about["picoseconds"] for about in kernels)
        assert busy == round(use.busy * vgpu.PICO)
        assert sum(about["bytes"] for about in kernels) == use.nbytes
        assert sum(about["operations"] for about in kernels) == use.operations
        assert sum(about["kernels"] for about in kernels) == use.kernels
        assert {about["model"] for about in kernels} <= {use.model.name}
        assert read.curves[pid][-1][1] == torch.vgpu.memory_allocated(tensor.device)
    work = [x for x in read.slices if x.kind in ("kernel", "copy", "collective")]
    for found in work:
        exact = found.event["args"]["picoseconds"]
        assert abs(1000 * (found.end - found.start) - exact) <= 1000
        assert found.track[0] != host
    # An arrow leads to each from where the host issued it, which was earlier.
    issued = [arrow for arrow in read.arrows if arrow[0].kind == "issue"]
    assert sorted(id(x) for _, x in issued) == sorted(map(id, work))
    for issue, found in issued:
        assert issue.event["name"] == found.event["name"]
        assert issue.track[0] == host and issue.end <= found.start
    assert {id(x) for x in read.of("issue")} == {id(arrow[0]) for arrow in issued}
    assert all(x.track[0] == host for x in read.of("wait"))
    end = max((x.end for x in read.slices), default=0)
    assert end <= 1e9 * sim.elapsed() + 1
    collectives(read, devices)


def collectives(read: Read, devices: list[int]) -> None:
    """Assert that an arrow joins what the devices do for one collective."""
    found = read.of("collective")
    joined = [arrow for arrow in read.arrows if arrow[0].kind == "collective"]
    if len(devices) > 1:
        assert len(found) == sum(map(len, joined)) == len(joined) * len(devices)
    for arrow in joined:
        assert [x.track[0] for x in arrow] == devices
        assert {x.event["name"] for x in arrow} == {"all-reduce, ring"}
        assert len({(x.start, x.end) for x in arrow}) == 1
        assert {read.tracks[x.track] for x in arrow} == {"collectives"}


@settings(max_examples=25)
@given(n=sizes(1, 3), program=PROGRAM)
def test_recording_memory_changes_no_time(sims, n, program):
    program = [step for step in program if step[0] is not in_a_thread]
    found = []
    for memory in (False, True, False):
        tensors = run(sims[n], program, memory=memory)
        spans = [span[4:5] + span[6:9] for span in sims[n].spans()]
        found.append((sims[n].elapsed(), sims[n].now(), spans))
        assert bool(sims[n].timeline().trace.memory) == memory
        del tensors
    assert found[0] == found[1] == found[2]


def test_memory_rises_when_the_host_allocates_and_falls_when_it_frees():
    sim = vgpu.simulator(1, backing="meta")
    x = torch.empty(2**20, device=sim.gpu())
    sim.reset(memory=True)
    y = x + 1
    issued = round(1e9 * sim.now())
    z = x + 1
    del y
    later = round(1e9 * sim.now())
    del x, z
    (curve,) = Read(json.loads(sim.timeline().trace.text())).curves.values()
    size = 2**22
    assert curve == [
        *[(0, size), (0, 2 * size), (issued, 3 * size)],
        *[(later, 2 * size), (later, size), (later, 0)],
    ]


def test_tracks_are_named_by_what_runs_on_them(sims):
    sim, tensors = sims[3], run(sims[3], [])
    for work in (kernel, copy, all_reduce, in_a_thread):
        work(sim, tensors, 0, 2, 1, 51)
    read = check(json.loads(sim.timeline().trace.text()), SIMULATED)
    tracks = Counter(
        (read.processes[pid].partition(",")[0], name)
        for (pid, _), name in read.tracks.items()
        if "thread " not in name
    )
    assert tracks == Counter(
        [
            ("host", "main thread"),
            ("GPU 0: A100", "kernels, default stream"),
            ("GPU 0: A100", "kernels, stream 1"),
            ("GPU 0: A100", "copies in from host"),
            ("GPU 0: A100", "copies out to GPUs"),
            ("GPU 0: A100", "copies out to host"),
            ("GPU 0: A100", "collectives"),
            ("CPU: Xeon E5-2698 v4", "collectives"),
            ("GPU 2: V100", "kernels, stream 1"),
            ("GPU 2: V100", "copies in from GPUs"),
            ("GPU 2: V100", "collectives"),
        ]
    )


def test_one_device_for_many_says_so():
    sim = vgpu.simulator(64, backing="meta", replicas=True)
    sim.all_reduce([torch.empty(99, device=sim.gpu(0))])
    read = check(json.loads(sim.timeline().trace.text()), SIMULATED)
    assert "one for all 64" in list(read.processes.values())[1]
    assert len(read.of("collective")) == 1


# ------------------------------------------------------------------ files


def test_the_name_decides_what_is_saved(sims, tmp_path):
    tensors = run(sims[2], [(kernel, 0, 0, 1, 9), (all_reduce, 1, 0, 1, 9)])
    timeline = sims[2].timeline()
    for _ in range(2):  # the second time, over the first
        for name in ("a.json", "a.json.gz", "a.svg", "a.TXT"):
            timeline.save(tmp_path / name)
    timeline.save(str(tmp_path / "b.json"))
    trace = (tmp_path / "a.json").read_bytes()
    zipped = (tmp_path / "a.json.gz").read_bytes()
    assert gzip.decompress(zipped) == trace
    assert not any(zipped[4:8])  # it doesn't say when it was made
    assert (tmp_path / "b.json").read_bytes() == trace
    assert (tmp_path / "a.svg").read_text("utf-8") == timeline.svg()
    assert (tmp_path / "a.TXT").read_text("utf-8") == f"{timeline!r}\n"
    assert len(list(tmp_path.iterdir())) == 5
    about = json.loads(trace)["otherData"]
    assert (about["simulated"], about["complete"]) == (True, True)
    assert about["seconds"] == sims[2].elapsed()
    del tensors


@pytest.mark.parametrize("name", ["trace.png", "trace", "json", "trace.json.zip"])
def test_another_ending_is_refused(sims, tmp_path, name):
    with pytest.raises(ValueError, match=r"\(\.json or \.json\.gz\).*" + name):
        sims[1].timeline().save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_leaves_nothing(sims, tmp_path):
    timeline = sims[1].timeline()
    (tmp_path / "folder.json").mkdir()
    for path in (tmp_path / "folder.json", tmp_path / "nowhere" / "trace.json"):
        with pytest.raises(OSError):
            timeline.save(path)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.json"]


def test_a_full_disk_leaves_what_was_there(sims, tmp_path, monkeypatch):
    def half(path, content):
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "trace.json"
    sims[1].timeline().save(path)
    before = path.read_bytes()
    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space left"):
        sims[1].timeline().save(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_an_incomplete_trace_says_so(tmp_path):
    sim = vgpu.simulator(1, backing="meta")
    x = torch.empty(5, device=sim.gpu())
    sim.reset()
    for _ in range(2**15):
        x.relu_()
    with pytest.warns(UserWarning, match="trace.json is incomplete.*reset"):
        trace = trace_of(sim, tmp_path / "trace.json")
    assert trace["otherData"]["complete"] is False
    assert "first 32,768 spans" in trace["otherData"]["note"]
    assert len(check(trace, SIMULATED).of("kernel")) == 2**15


# ------------------------------------------------------------------ PyTorch's profiler


def spans_of(*simulations) -> Counter:
    """Return the simulated microseconds of each kernel, by its name."""
    return sum(
        (
            Counter({span.name: (span.end - span.start) / 1e6})
            for sim in simulations
            for span in sim.spans()
            if span.lane == "compute"
        ),
        Counter(),
    )


@settings(max_examples=8)
@given(n=sizes(1, 3), program=PROGRAM, on_cpu=st.booleans(), default=st.booleans())
def test_the_profiler_lists_the_kernels_of_all_simulations(
    sims, tmp_path, n, program, on_cpu, default
):
    activities = [ProfilerActivity.PrivateUse1] + [ProfilerActivity.CPU] * on_cpu
    enabled = vgpu.current_simulator()
    enabled.reset()
    with profile(activities=None if default else activities) as profiler:
        tensors = run(sims[n], program)
        x = torch.ones(9, 9, device="vgpu:1")
        x = x @ x
    expected = spans_of(sims[n], enabled)
    calls = Counter(
        span.name
        for sim in (sims[n], enabled)
        for span in sim.spans()
        if span.lane == "compute"
    )
    listed = {
        row.key.removesuffix(" (simulated)"): row
        for row in profiler.key_averages()
        if row.device_type.name != "CPU"
    }
    assert {key: row.count for key, row in listed.items()} == calls
    for key, row in listed.items():
        assert row.self_device_time_total == pytest.approx(expected[key])
    assert "Self VGPU" in profiler.key_averages().table(sort_by="device_time_total")
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text("utf-8"))
    read = check(trace, {"kernel"})
    traced = Counter()
    for found in read.of("kernel"):
        name = found.event["name"].removesuffix(" (simulated)")
        traced[name] += found.event["args"]["picoseconds"] / 1e6
    assert traced == pytest.approx(expected)
    del tensors


def test_a_device_of_nobodys_is_profiled_as_before():
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.ones(2) + 1
    assert {row.key for row in profiler.key_averages()} >= {"aten::ones", "aten::add"}
    assert {e.device_type.name for e in profiler.events()} == {"CPU"}
