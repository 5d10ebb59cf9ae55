"""What memory is used for: each byte has a category, and recording changes nothing."""

import contextlib
import gc
import itertools
import pickle
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.cuda import _memory_viz
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from d2l_gpu import vgpu
from d2l_gpu.vgpu import memory
from d2l_gpu.vgpu.sim.memory_use import CATEGORIES

pytestmark = pytest.mark.virtual_gpus(2, memory=2**26)

BLOCK = 512


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are tiny, and threads wait for each other
    yield
    torch.set_num_threads(threads)


class Part(nn.Module):
    """Layers with parameters and buffers; features is such that blocks are full."""

    def __init__(self, features: int):
        super().__init__()
        self.up = nn.Linear(features, 2 * features, bias=False)
        self.norm = nn.BatchNorm1d(2 * features, affine=False)
        self.down = nn.Linear(2 * features, features, bias=False)

    def forward(self, X):
        return X + self.down(F.gelu(self.norm(self.up(X))))


class Net(nn.Module):
    def __init__(self, parts: int, features: int, keep: str = "all"):
        super().__init__()
        self.parts = nn.ModuleList(Part(features) for _ in range(parts))
        self.keep = keep

    def forward(self, X):
        for part in self.parts:
            if self.keep == "all":
                X = part(X)
            else:
                X = checkpoint(part, X, use_reentrant=self.keep == "reentrant")
        return X


OPTIMIZERS = {
    "sgd": lambda found: torch.optim.SGD(found, lr=0.1),
    "momentum": lambda found: torch.optim.SGD(found, lr=0.1, momentum=0.9),
    "adamw": lambda found: torch.optim.AdamW(found),
    "adamw, one by one": lambda found: torch.optim.AdamW(found, foreach=False),
    "capturable": lambda found: torch.optim.Adam(found, capturable=True),
}


def made(parts=2, features=16, keep="all", device="vgpu:0", optimizer="adamw"):
    torch.manual_seed(0)
    net = Net(parts, features, keep).to(device)
    X = torch.ones(8, features, device=device, requires_grad=keep == "reentrant")
    return net, OPTIMIZERS[optimizer](net.parameters()), X


def step(net, optimizer, X, batches=1, clear=True, autocast=False):
    for _ in range(batches):
        with torch.autocast("vgpu", torch.bfloat16, enabled=autocast):
            loss = (net(X) - 1).square().mean()
        loss.backward()
    if optimizer is not None:
        optimizer.step()
        if clear:
            optimizer.zero_grad()


def bytes_of(tensors) -> int:
    """Bytes of whole blocks."""
    return sum(-(-x.nbytes // BLOCK) * BLOCK for x in tensors)


def most(use, name: str) -> int:
    return max(use.series()[1][name])


WAYS = {
    "parts": st.integers(1, 3),
    "features": st.sampled_from([16, 24, 32]),
    "keep": st.sampled_from(["all", "checkpoint", "reentrant"]),
    "optimizer": st.sampled_from(sorted(OPTIMIZERS)),
}
HOW = {
    "batches": st.integers(1, 2),
    "clear": st.booleans(),
    "autocast": st.booleans(),
}

# ------------------------------------------------------------------ conservation


def running_sum(events, start: int) -> list[int]:
    sums = [start]
    for event in events:
        if event["action"] == "alloc":
            sums.append(sums[-1] + event["size"])
        elif event["action"] == "free_completed":
            sums.append(sums[-1] - event["size"])
    return sums


@settings(max_examples=25)
@given(made_as=st.fixed_dictionaries(WAYS), how=st.fixed_dictionaries(HOW))
def test_categories_add_up_to_what_is_allocated_at_every_moment(made_as, how):
    net, optimizer, X = made(**made_as)
    for _ in range(2):  # the second time, state and perhaps gradients exist
        start = torch.vgpu.memory_allocated()
        memory.record_history(context=None, clear=True)
        torch.vgpu.reset_peak_memory_stats()
        with vgpu.memory_use(net, optimizer) as use:
            step(net, optimizer, X, **how)
            events = memory.snapshot()["device_traces"][0]
        memory.record_history(None)
        times, columns = use.series()
        sums = [sum(column) for column in zip(*columns.values(), strict=True)]
        changes = [b for a, b in itertools.pairwise(sums) if a != b]
        expected = running_sum(events, start)
        assert [sums[0], *changes] == expected
        assert sums[-1] == torch.vgpu.memory_allocated()
        assert sum(use.peak.values()) == torch.vgpu.max_memory_allocated()
        assert times == sorted(times) and times[-1] == use.seconds
        assert use.at(use.peak_seconds).keys() == set(CATEGORIES)
        for depth in (1, 2, None):
            modules = use.by_module(depth).values()
            assert use.peak == {x: sum(m[x] for m in modules) for x in CATEGORIES}


@settings(max_examples=25)
@given(made_as=st.fixed_dictionaries(WAYS), how=st.fixed_dictionaries(HOW))
def test_recording_changes_neither_results_nor_memory_nor_time(made_as, how):
    found = []
    for recorded in (False, True):
        net, optimizer, X = made(**made_as)
        torch.vgpu.reset_peak_memory_stats()
        sim = vgpu.current_simulator()
        sim.reset()
        times = []
        for _ in range(2):
            context = contextlib.nullcontext()
            if recorded:
                context = vgpu.memory_use(net, optimizer)
            with context:
                step(net, optimizer, X, **how)
            times += [sim.now(), sim.elapsed()]
        values = [x.detach().cpu().tolist() for x in net.parameters()]
        peak, now = torch.vgpu.max_memory_allocated(), torch.vgpu.memory_allocated()
        found.append((values, times, peak, now))
        del net, optimizer, X
    assert found[0] == found[1]


# ------------------------------------------------------------------ what is what


@settings(max_examples=25)
@given(made_as=st.fixed_dictionaries(WAYS), how=st.fixed_dictionaries(HOW))
def test_parameters_buffers_gradients_and_state_have_their_sizes(made_as, how):
    net, optimizer, X = made(**made_as)
    parameters = bytes_of(net.parameters())
    assert parameters == sum(4 * x.numel() for x in net.parameters())
    moments = {"sgd": 0, "momentum": 1}.get(made_as["optimizer"], 2)
    steps = BLOCK * len(list(net.parameters()))
    state = moments * parameters + steps * (made_as["optimizer"] == "capturable")
    for _ in range(2):
        with vgpu.memory_use(net, optimizer) as use:
            step(net, optimizer, X, **how)
        _, columns = use.series()
        assert set(columns["parameters"]) == {parameters}
        assert set(columns["buffers"]) == {bytes_of(net.buffers())}
        assert max(columns["gradients"]) == parameters
        assert columns["gradients"][-1] == (0 if how["clear"] else parameters)
        assert max(columns["optimizer state"]) == state
        assert columns["optimizer state"][-1] == state
        assert max(columns["activations"]) > 0
        assert columns["activations"][-1] == columns["temporary"][-1] == 0
        assert set(columns["other"]) <= {0, bytes_of([X]), 2 * bytes_of([X])}


@pytest.mark.parametrize("keep", ["checkpoint", "reentrant"])
def test_with_checkpoints_fewer_activations_give_the_same_gradients(keep):
    peaks, gradients = [], []
    for kept in ("all", keep):
        net, _, X = made(parts=6, features=32, keep=kept)
        with vgpu.memory_use(net) as use:
            step(net, None, X)
        gradients.append([x.grad.cpu().tolist() for x in net.parameters()])
        peaks.append(most(use, "activations"))
        # What a checkpoint computes again counts as activations, too.
        phases = [name for name, _, _ in use.phases() if name]
        assert phases == ["forward", "backward"]
        times, columns = use.series()
        backward = next(begin for name, begin, _ in use.phases() if name == "backward")
        grows = [
            b > a
            for time, a, b in zip(
                times[1:],
                columns["activations"],
                columns["activations"][1:],
                strict=False,
            )
            if time > backward
        ]
        assert any(grows) == (kept != "all")
    assert gradients[0] == gradients[1]
    assert peaks[1] < 0.5 * peaks[0]


def test_nothing_needs_to_be_named():
    net, optimizer, X = made()
    with vgpu.memory_use() as use:
        step(net, optimizer, X)
    parameters = bytes_of(net.parameters())
    assert most(use, "parameters") == most(use, "gradients") == parameters
    assert most(use, "optimizer state") == 2 * parameters
    assert {"Net.parts.0.up", "Net.parts.1.down"} <= set(use.by_module())


@pytest.mark.parametrize("inside", [True, False])
def test_gradients_need_no_optimizer(inside):
    net, _, X = made()
    parameters = bytes_of(net.parameters())
    if not inside:  # they exist already
        step(net, None, X)
    with vgpu.memory_use(net) as use:
        if inside:
            step(net, None, X)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    assert most(use, "gradients") == parameters
    assert most(use, "other") == bytes_of([X])


def test_a_program_without_modules_has_categories():
    W = torch.ones(64, 64, device="vgpu:0", requires_grad=True)
    optimizer = torch.optim.SGD([W], lr=0.1, momentum=0.9)
    with vgpu.memory_use(optimizer=optimizer) as use:
        (W @ W).relu().sum().backward()
        optimizer.step()
    for name in ("parameters", "gradients", "optimizer state"):
        assert use.series()[1][name][-1] == W.nbytes
    assert most(use, "activations") >= W.nbytes


def test_a_function_that_is_computed_again_makes_activations_again():
    W = torch.ones(64, 64, device="vgpu:0", requires_grad=True)

    def function(X):
        return (X @ W).relu() @ W

    again = []
    for use_again in (False, True):
        X = torch.ones(64, 64, device="vgpu:0", requires_grad=True)
        with vgpu.memory_use() as use:
            Y = checkpoint(function, X, use_reentrant=False) if use_again else None
            (function(X) if Y is None else Y).sum().backward()
            del Y
        times, columns = use.series()
        begin = next(begin for name, begin, _ in use.phases() if name == "backward")
        found = zip(times, columns["activations"], strict=True)
        later = [nbytes for time, nbytes in found if time >= begin]
        again.append(max(later) - later[0])
    assert again[0] == 0 < again[1]


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
def test_without_gradients_there_are_no_activations(grad):
    net, _, X = made()
    net.eval()
    with vgpu.memory_use(net) as use, grad():
        for _ in range(2):
            net(X)
    assert most(use, "activations") == most(use, "gradients") == 0
    assert most(use, "temporary") > 0
    # A batch, and a result after its forward pass.
    assert set(use.series()[1]["other"]) == {bytes_of([X]), 2 * bytes_of([X])}


def test_activations_belong_to_the_module_whose_forward_made_them():
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)).to("vgpu:0")
    X = torch.ones(8, 16, device="vgpu:0")
    with vgpu.memory_use(net) as use:
        Y = net(X)
    found = use.by_module()
    del Y
    # At the peak tanh has just made its result from that of the layer before it. The
    # layer's result isn't needed again.
    assert {name: x["activations"] for name, x in found.items()} == {
        **{"": 0, "0": 0, "2": 0},
        "1": 8 * 32 * 4,
    }
    assert found["0"]["temporary"] == 8 * 32 * 4
    assert found["0"]["parameters"] == 16 * 32 * 4 + BLOCK
    assert found[""]["other"] == X.nbytes


def test_an_optimizer_that_steps_during_backward_has_its_state():
    net, _, X = made(parts=3)
    optimizers = {x: torch.optim.AdamW([x]) for x in net.parameters()}
    parameters = bytes_of(net.parameters())

    def hook(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    with vgpu.memory_use(net) as use:
        handles = [x.register_post_accumulate_grad_hook(hook) for x in net.parameters()]
        step(net, None, X)
    for handle in handles:
        handle.remove()
    assert use.series()[1]["optimizer state"][-1] == 2 * parameters
    assert 0 < most(use, "gradients") < parameters
    assert most(use, "other") == bytes_of([X])


# ------------------------------------------------------------------ devices


def test_each_device_has_a_record_of_its_own():
    nets = [made(parts=1 + i, device=f"vgpu:{i}") for i in range(2)]
    uses = []
    with contextlib.ExitStack() as stack:
        for i in range(2):
            uses.append(stack.enter_context(vgpu.memory_use(device=f"vgpu:{i}")))
        for net, optimizer, X in nets:
            step(net, optimizer, X)
    for i, (use, (net, *_)) in enumerate(zip(uses, nets, strict=True)):
        assert use.series()[1]["parameters"][-1] == bytes_of(net.parameters())
        assert sum(use.at(use.seconds).values()) == torch.vgpu.memory_allocated(i)
        assert f"vgpu:{i}" in repr(use)


def test_the_device_is_that_of_the_network_or_the_current_one():
    net, _, X = made(device="vgpu:1")
    with vgpu.memory_use(net) as use:
        net(X)
    assert most(use, "parameters") == bytes_of(net.parameters())
    with torch.vgpu.device(1), vgpu.memory_use() as use:
        net(X)
    assert most(use, "parameters") == bytes_of(net.parameters())
    sim = vgpu.simulator(1, backing="meta")
    net = Net(1, 16).to(sim.gpu(0))
    with vgpu.memory_use(net) as use:
        step(net, None, torch.empty(8, 16, device=sim.gpu(0)))
    assert most(use, "gradients") == bytes_of(net.parameters())
    assert use.seconds > 0


def test_data_parallel_replicas_have_parameters():
    net, _, X = made(features=32)
    parallel = nn.DataParallel(net, device_ids=["vgpu:0", "vgpu:1"])
    with vgpu.memory_use(net, device="vgpu:1") as use:
        step(parallel, None, X)
    assert most(use, "parameters") == bytes_of(net.parameters())
    assert most(use, "activations") > 0
    assert torch.vgpu.memory_allocated(1) == 0


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"net": 3}, TypeError),
        ({"optimizer": "adam"}, TypeError),
        ({"device": "cpu"}, ValueError),
        ({"device": 2}, RuntimeError),
    ],
)
def test_what_cannot_be_recorded_is_refused(given, error):
    with pytest.raises(error), vgpu.memory_use(**given):
        pass


# ------------------------------------------------------------------ the end


def hooks() -> list:
    modules, optimizers = nn.modules.module, sys.modules["torch.optim.optimizer"]
    return [
        *modules._global_forward_pre_hooks,
        *modules._global_forward_hooks,
        *modules._global_forward_hooks_always_called,
        *optimizers._global_optimizer_pre_hooks,
        *optimizers._global_optimizer_post_hooks,
    ]


@pytest.mark.parametrize("fails", ["", "forward", "backward", "step", "memory"])
def test_nothing_is_left_after_the_block(fails):
    before = hooks()
    net, optimizer, X = made()

    def fail(*args):
        raise ValueError("it fails")

    where = {
        "forward": lambda: net.parts[1].down.register_forward_hook(fail),
        "backward": lambda: net.parts[0].up.weight.register_hook(fail),
        "step": lambda: optimizer.register_step_post_hook(fail),
        "memory": lambda: net.parts[1].register_forward_pre_hook(
            lambda *args: torch.empty(2**27, device="vgpu:0")
        ),
    }
    if fails:
        where[fails]()
    errors = (ValueError, torch.OutOfMemoryError)
    try:
        with (
            pytest.raises(errors) if fails else contextlib.nullcontext(),
            vgpu.memory_use(net, optimizer) as use,
        ):
            step(net, optimizer, X)
    finally:
        machine = vgpu.machine_in_use()
        assert hooks() == before and machine.observers == ()
    assert all(not x._post_accumulate_grad_hooks for x in net.parameters())
    length, text = len(use.series()[0]), repr(use)
    assert sum(use.at(use.seconds).values()) == sum(use.at(9e9).values())
    torch.ones(2**20, device="vgpu:0") + 1
    assert (len(use.series()[0]), repr(use)) == (length, text)


def test_recording_keeps_nothing_alive():
    with vgpu.memory_use() as use:
        net, optimizer, X = made()
        step(net, optimizer, X)
        del net, optimizer, X
        gc.collect()
        assert torch.vgpu.memory_allocated() == 0
    assert sum(use.at(use.seconds).values()) == 0 < sum(use.peak.values())


# ------------------------------------------------------------------ errors


def test_an_error_for_lack_of_memory_names_the_largest_categories():
    net, optimizer, X = made(parts=2, features=32)
    state = 2 * bytes_of(net.parameters())
    step(net, optimizer, X)

    def message() -> str:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.empty(2**27, device="vgpu:0")
        return str(caught.value)

    plain = message()
    assert "Largest" not in plain
    with vgpu.memory_use(net, optimizer) as use:
        Y = net(X)
        during = message()
        now = use.at(use.seconds)
        del Y
    largest = sorted((x for x in now if now[x]), key=lambda x: -now[x])[:3]
    (sentence,) = [x for x in during.split(". ") if x.startswith("Largest: ")]
    named = [
        x.rsplit(" ", 2)[0] for x in sentence.removeprefix("Largest: ").split(", ")
    ]
    assert named == largest and "optimizer state" in named
    assert f"optimizer state {state / 2**10:.2f} KiB" in sentence
    assert during.endswith("(Simulated memory of a virtual GPU.)")
    assert message() == plain


# ------------------------------------------------------------------ snapshots


@pytest.fixture
def recorded():
    torch.vgpu.memory._record_memory_history()
    yield
    torch.vgpu.memory._record_memory_history(None)


@pytest.mark.parametrize("allocator", [None, "caching"])
def test_a_simulators_memory_has_snapshots_too(allocator):
    gpu = vgpu.simulator(1, backing="meta", allocator=allocator).gpu()
    torch.vgpu.memory._record_memory_history(device=gpu)
    X = torch.empty(2**20, device=gpu)
    Y = torch.empty(2**20, device="vgpu:0")
    snapshot = torch.vgpu.memory._snapshot(gpu)
    torch.vgpu.memory._record_memory_history(None, device=gpu)
    assert {segment["device"] for segment in snapshot["segments"]} == {gpu.index}
    (event,) = (
        event
        for event in snapshot["device_traces"][gpu.index]
        if event["action"] == "alloc"
    )
    assert event["size"] == X.nbytes
    assert event["frames"][0]["filename"] == __file__
    others = torch.vgpu.memory._snapshot()
    assert not any(others["device_traces"])
    assert Y.nbytes in {segment["total_size"] for segment in others["segments"]}
    assert f"total_reserved: {_memory_viz.Bytes(torch.vgpu.memory_reserved(gpu))}" in (
        _memory_viz.segsum(snapshot)
    )


def test_pytorch_reads_snapshots(recorded, tmp_path):
    net, optimizer, X = made(device="vgpu:1")
    step(net, optimizer, X)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**27, device="vgpu:1")
    free, _ = torch.vgpu.mem_get_info(1)
    torch.vgpu.memory._dump_snapshot(tmp_path / "snapshot.pickle")
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    assert snapshot["segments"] == torch.vgpu.memory._snapshot()["segments"]
    stats = torch.vgpu.memory_stats(1)
    lines = dict(
        x.split(": ", 1) for x in _memory_viz.segsum(snapshot).splitlines()[1:4]
    )
    requested = stats["requested_bytes.all.current"]
    assert lines["total_allocated"] == f"{_memory_viz.Bytes(requested)}"
    reserved = stats["reserved_bytes.all.current"]
    assert lines["total_reserved"] == f"{_memory_viz.Bytes(reserved)}"
    trace = _memory_viz.trace(snapshot)
    assert "Device 1 ---" in trace and "Device 0 ---" not in trace
    assert (
        f"raise OutOfMemoryError # 512.0MiB requested, {_memory_viz.Bytes(free)}"
        in trace
    )
    for draw in (_memory_viz.memory, _memory_viz.segments):
        flames = draw(snapshot, format_flamegraph=str)
        assert "test_categories.py" in flames
        sizes = [int(line.rsplit(" ", 1)[1]) for line in flames.splitlines()]
        assert sum(sizes) == reserved
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        assert "snapshot.pickle" in plot(snapshot)
