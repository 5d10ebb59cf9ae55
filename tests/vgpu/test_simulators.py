"""Simulators: devices of their own beside all others, and what they say."""

import gc
import os
import subprocess
import sys
import xml.dom.minidom

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.vgpu.devices import PLAIN, Devices
from tests.helpers.fresh_process import run_program
from tests.helpers.properties import sizes

pytestmark = pytest.mark.virtual_gpus(2)


def test_devices_of_a_simulator_are_not_those_in_use():
    sim = d2l.simulator(2)
    X = torch.ones(2, 3, device=sim.gpu(1))
    assert torch.vgpu.device_count() == 2
    assert sim.gpu(0) not in (torch.device("vgpu", 0), torch.device("vgpu", 1))
    assert X.device == sim.gpu(1)
    assert torch.equal((X + X).cpu(), torch.full((2, 3), 2.0))
    assert vgpu.machine_in_use().used == [0, 0]
    assert torch.vgpu.memory_allocated(sim.gpu(1)) == 512
    with pytest.raises(RuntimeError, match="at least two devices"):
        X + torch.ones(2, 3, device="vgpu:1")


@pytest.mark.virtual_gpus(3)
def test_a_simulator_needs_no_virtual_gpus_in_use():
    run_program("simulators/a_simulator_needs_no_virtual_gpus_in_use.py")


@pytest.mark.skipif(
    sys.platform == "win32" or not torch.distributed.is_available(),
    reason="needs torch.distributed with gloo",
)
def test_process_groups_need_no_virtual_gpus_in_use():
    run_program("simulators/process_groups_need_no_virtual_gpus_in_use.py")


def test_places_of_simulators_are_used_again_once_nothing_needs_them():
    kept = d2l.simulator(1)
    X = torch.ones(3, device=kept.gpu(0))
    for _ in range(200):
        sim = d2l.simulator(8)
        assert sim.gpu(0) != kept.gpu(0)
    device = kept.gpu(0)
    del sim, kept
    gc.collect()
    assert device not in d2l.simulator(32).gpus()  # X is still there
    assert float(X.sum()) == 3
    del X
    gc.collect()
    assert d2l.simulator(8).gpu(0) == torch.device("vgpu", PLAIN)


@settings(max_examples=25)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["make", "make", "close", "drop"]), sizes(1, 5)),
        max_size=20,
    )
)
def test_no_simulator_takes_the_devices_of_one_that_lives(steps):
    living, closed = [], []
    for what, n in steps:
        if what == "make" and len(living) < 8:
            sim = d2l.simulator(n)
            for other in living:
                assert set(sim.gpus()).isdisjoint(other.gpus())
            living.append(sim)
        elif what == "close":  # perhaps one that was closed before
            sims = living + closed
            if sims:
                sim = sims[n % len(sims)]
                sim.close()
                if sim in living:
                    living.remove(sim)
                    closed.append(sim)
        elif what == "drop" and living:
            del living[n % len(living)]
    for sim in living:
        for device in sim.gpus():
            assert torch.ones(1, device=device).device == device


def test_when_there_is_no_place_one_sentence_says_so():
    sims = [d2l.simulator(16) for _ in range(4)]
    with pytest.raises(RuntimeError, match="There is no room for 1 more"):
        d2l.simulator(1)
    del sims


def test_copies_between_simulations_go_by_way_of_the_host():
    sim = d2l.simulator(1)
    X = torch.ones(1000, device="vgpu:0")
    with d2l.transfers() as log:
        Y = X.to(sim.gpu(0))
    assert torch.equal(X.cpu(), Y.cpu())
    assert [(t.nbytes, str(t.target)) for t in log] == [(4000, "cpu")]
    (link,) = [x for x in sim.report().links if x.source == "host"]
    assert (link.target, link.copies, link.nbytes) == ("GPU 0", 1, 4000)


@pytest.mark.parametrize(
    "arguments, error, sentence",
    [
        ({"n": 0}, ValueError, "at least 1"),
        ({"n": 2.0}, TypeError, "integer"),
        ({"n": 33}, ValueError, "At most 32 devices can be simulated one by one"),
        ({"model": "V1000"}, ValueError, "choose one of T4, V100, "),
        ({"model": 7}, TypeError, "such as 'T4'"),
        ({"model": ["V100"]}, ValueError, "one model for each of the"),
        ({"link": "NVLink9"}, ValueError, "There is no link"),
        ({"memory": "0B"}, ValueError, "at least one byte"),
        ({"backing": "vgpu"}, ValueError, "real device"),
        ({"backing": "gpu"}, ValueError, "a GPU of this machine, .*, but got 'gpu'"),
        (
            {"backing": "xpu:99"},
            ValueError,
            "a GPU of this machine, .*, but got 'xpu:99'",
        ),
        ({"backing": []}, ValueError, "'cpu', 'meta', or a GPU"),
        ({"backing": None, "replicas": True}, ValueError, "backing='meta'"),
        ({"replicas": True}, ValueError, "backing='meta'"),
    ],
)
def test_bad_settings_get_one_sentence(arguments, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        d2l.simulator(**arguments)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "arguments, closest",
    [
        ({"model": "H1000"}, "H100"),
        ({"model": "a100"}, "A100"),
        ({"model": ["V10"]}, "V100"),
        ({"link": "NVLink"}, "NVLink"),
        ({"link": "infiniband hd"}, "InfiniBand HDR"),
        ({"link": "a rope"}, None),
    ],
)
def test_a_misspelt_name_gets_the_closest_one(arguments, closest):
    with pytest.raises(ValueError, match="in the catalogue") as caught:
        d2l.simulator(1, **arguments)
    asked = f"(did you mean '{closest}" if closest else "choose one of"
    assert asked in str(caught.value)
    assert ("did you mean" in str(caught.value)) == (closest is not None)


def test_a_model_of_ones_own():
    mine = vgpu.Model("Mine", {"fp32": 1e12}, {}, 1e11, 2**30, 10, "PCIe3", "me")
    sim = d2l.simulator(1, mine, vgpu.Link("wire", 1e9, 1e-6, "me"))
    X = torch.ones(500, 500, device=sim.gpu(0))
    _ = X @ X
    assert sim.label == "simulated (Mine)"
    assert sim.elapsed() > 2 * 500**3 / 1e12


def test_the_devices_in_use_have_a_clock_too():
    vgpu.enable(2, model=["V100", "T4"], link="PCIe3")
    sim = d2l.current_simulator()
    assert sim.label == "simulated (V100, T4)"
    assert repr(sim) == "2 × V100, T4, simulated, connected by PCIe3"
    for i in (0, 1):
        X = torch.ones(512, 512, device=sim.gpu(i))
        _ = X @ X
    v100, t4 = sim.report().devices
    assert t4.busy > v100.busy > 0
    assert sim.gpus() == [torch.device("vgpu", 0), torch.device("vgpu", 1)]
    for wrong in (2, -1):
        with pytest.raises(ValueError, match="in this simulation go from 0 to 1"):
            sim.gpu(wrong)
    with pytest.raises(TypeError, match="an integer"):
        sim.gpu("0")


# ------------------------------------------------------------------ without values


def test_without_values_shapes_are_right_and_memory_is_the_models():
    sim = d2l.simulator(1, backing="meta")
    X = torch.zeros(60_000, 60_000, device=sim.gpu(0))
    assert (X @ X[:, :5]).shape == (60_000, 5)
    assert torch.vgpu.memory_allocated(sim.gpu(0)) == X.nbytes
    with pytest.raises(torch.OutOfMemoryError, match=r"total capacity of 16\.00 GiB"):
        torch.zeros(30_000, 30_000, device=sim.gpu(0))
    assert "..." in repr(X)
    assert "values" not in repr(X)


@settings(max_examples=25)
@given(models=st.lists(st.sampled_from(sorted(vgpu.MODELS)), min_size=1, max_size=5))
def test_without_values_each_device_has_the_memory_of_its_model(models):
    sim = d2l.simulator(len(models), models, backing="meta")
    for name, device in zip(models, sim.gpus(), strict=True):
        memory = vgpu.MODELS[name].memory
        assert torch.vgpu.mem_get_info(device) == (memory, memory)
        X = torch.empty(memory // 512 * 512, dtype=torch.uint8, device=device)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(512, device=device)
        del X


@pytest.mark.parametrize(
    "asks",
    [
        lambda X: X.sum().item(),
        lambda X: float(X.mean()),
        lambda X: bool(X.any()),
        lambda X: X.cpu(),
        lambda X: X.tolist(),
        lambda X: X.cpu().numpy(),
        lambda X: torch.zeros(3).copy_(X),
        lambda X: X.nonzero(),
        lambda X: torch.equal(X, X),
        lambda X: X[X > 0],
        lambda X: X.unique(),
        lambda X: "yes" if X.max() > 0 else "no",
    ],
)
def test_what_needs_a_value_says_one_sentence(asks):
    X = torch.zeros(3, device=d2l.simulator(1, backing="meta").gpu(0))
    with pytest.raises(
        RuntimeError, match="backing='meta' simulates only shapes"
    ) as caught:
        asks(X)
    assert len(str(caught.value).splitlines()) == 1


def test_times_without_values_are_those_with():
    elapsed = []
    for backing in ("cpu", "meta"):
        sim = d2l.simulator(2, backing=backing)
        net = d2l.resnet18(10).to(sim.gpu(0))
        X, y = torch.zeros(2, 1, 28, 28), torch.zeros(2, dtype=torch.long)
        optimizer = torch.optim.Adam(net.parameters())
        loss = torch.nn.functional.cross_entropy(
            net(X.to(sim.gpu(0))), y.to(sim.gpu(0))
        )
        loss.backward()
        optimizer.step()
        loss.to(sim.gpu(1))
        elapsed.append((sim.elapsed(), repr(sim.report())))
    assert elapsed[0] == elapsed[1]


# ------------------------------------------------------------------ collectives


@pytest.mark.parametrize("algorithm", ["ring", "naive"])
@pytest.mark.parametrize("beside", [False, True])
def test_all_reduce_sums_and_takes_its_time(algorithm, beside):
    sim = d2l.simulator(3)
    tensors = [torch.full((1000,), i + 1.0, device=sim.gpu(i)) for i in range(3)]
    sim.reset()
    sim.all_reduce(tensors, algorithm, beside=beside).wait()
    for x in tensors:
        assert torch.equal(x.cpu(), torch.full((1000,), 6.0))
    links = sim.report().links
    sent = {link.nbytes for link in links if "other GPUs" in (link.source, link.target)}
    assert sent == {round(4000 * (4 / 3 if algorithm == "ring" else 4))}
    assert sim.elapsed() > 4 * sim.link.step


def test_all_reduce_refuses_what_does_not_fit():
    sim = d2l.simulator(2)
    X, Y = (torch.ones(3, device=device) for device in sim.gpus())
    for wrong in ([X], [Y, X], [X, X], [X, torch.ones(3)]):
        with pytest.raises(ValueError, match="one tensor on each of"):
            sim.all_reduce(wrong)
    with pytest.raises(ValueError, match="the same shape and dtype"):
        sim.all_reduce([X, Y.double()])
    with pytest.raises(ValueError, match="'ring' or 'naive', but got 'tree'"):
        sim.all_reduce([X, Y], "tree")


def test_one_stands_for_all():
    sim = d2l.simulator(1024, backing="meta", replicas=True)
    assert (sim.n, len(sim.gpus())) == (1024, 1)
    assert "one standing for all" in repr(sim)
    with pytest.raises(ValueError, match=r"gpu\(0\), which stands for all 1024"):
        sim.gpu(7)
    X = torch.zeros(1000, device=sim.gpu(0))
    sim.reset()
    sim.all_reduce([X])
    assert sim.elapsed() > 2046 * sim.link.step


# ------------------------------------------------------------------ report, timeline


def test_the_report_counts_what_was_done():
    sim = d2l.simulator(2)
    X = torch.ones(1000, 1000, device=sim.gpu(0))
    sim.reset()
    Y = (X @ X).to(sim.gpu(1))
    Y.cpu()
    found = sim.report()
    first, second = found.devices
    assert (first.kernels, first.operations, first.nbytes) == (1, 2 * 10**9, 12 * 10**6)
    assert second.kernels == 0
    assert first.share_of_peak == pytest.approx(2e9 / 15.7e12 / sim.elapsed())
    ways = {(x.source, x.target): (x.copies, x.nbytes) for x in found.links}
    assert ways == {
        ("GPU 0", "other GPUs"): (1, 4 * 10**6),
        ("other GPUs", "GPU 1"): (1, 4 * 10**6),
        ("GPU 1", "host"): (1, 4 * 10**6),
    }
    text = repr(found)
    assert "simulated (V100)" in text
    assert "2.00 G" in text
    assert "4.00 MB" in text
    assert found._repr_html_().count("<table>") == 2


def test_a_simulation_in_which_nothing_happened():
    sim = d2l.simulator(1)
    sim.reset()
    assert "0 s" in repr(sim.report())
    assert repr(sim.timeline()).startswith("0 s, simulated (V100)")
    xml.dom.minidom.parseString(sim.timeline().svg())


def test_the_timeline_draws_kernels_copies_and_waiting():
    sim = d2l.simulator(2)
    X = torch.ones(2000, 2000, device=sim.gpu(0))
    sim.reset()
    Y = X @ X
    Y.to(sim.gpu(1)).sum().item()
    timeline = sim.timeline()
    assert list(timeline.rows) == [
        *("host", "GPU 0 compute", "GPU 0 out"),
        *("GPU 1 compute", "GPU 1 in", "GPU 1 out"),
    ]
    svg = timeline.svg()
    assert timeline._repr_svg_()[0] == svg
    document = xml.dom.minidom.parseString(svg)
    texts = [node.firstChild.data for node in document.getElementsByTagName("text")]
    assert {"host", "GPU 0 compute", "mm", "waits for the copy"} <= set(texts)
    assert {"kernel", "copy to or from host", "between GPUs"} <= set(texts)
    assert "simulated (V100)" in texts[0]
    for bar in document.getElementsByTagName("rect"):
        if bar.hasAttribute("x"):
            x, width = float(bar.getAttribute("x")), float(bar.getAttribute("width"))
            assert x >= 0
            assert x + width <= 720
    text = repr(timeline)
    assert max(map(len, text.splitlines())) <= 79
    assert "#" in text
    assert "=" in text


def test_a_timeline_of_thousands_stays_small():
    sim = d2l.simulator(1)
    X = torch.ones(10, device=sim.gpu(0))
    sim.reset()
    for _ in range(3000):
        X.add_(1)
    assert len(sim.timeline().svg()) < 20_000
    assert sim.report().devices[0].kernels == 3000


@pytest.mark.parametrize(
    "look, waits",
    [
        (lambda X: X.shape, False),
        (lambda X: X[0, 0], False),
        (lambda X: X.sum(), False),
        (lambda X: X[torch.tensor([0, 1], device="cpu")], True),  # it's copied
        (lambda X: X[X[0, :2].long()], False),
        (lambda X: X[X > 0], True),
        (lambda X: X.nonzero(), True),
        (lambda X: X.masked_select(X > 0), True),
        (lambda X: X.unique(), True),
        (lambda X: X.sum().item(), True),
        (lambda X: X.cpu(), True),
        (lambda X: str(X), True),
    ],
)
def test_the_host_waits_where_it_needs_values(look, waits):
    sim = d2l.simulator(1)
    X = torch.eye(500, device=sim.gpu(0))
    sim.reset()
    for _ in range(20):
        Y = X @ X
    done = sim.elapsed()
    look(Y)
    assert (sim.now() >= done) is waits


# ------------------------------------------------------------------ streams and events


def test_events_measure_simulated_time():
    device = torch.device("vgpu:0")
    X = torch.ones(2000, 2000, device=device)
    start, end = (torch.vgpu.Event(enable_timing=True) for _ in range(2))
    start.record()
    _ = X @ X
    end.record()
    assert not end.query()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) == pytest.approx(1.3, rel=0.2)  # ms on a V100


def test_a_stream_overlaps_a_copy_with_work():
    sim = d2l.simulator(1)
    device = sim.gpu(0)
    X = torch.ones(2000, 2000, device=device)
    batch = torch.ones(5_000_000).pin_memory()

    def step(stream):
        sim.reset()
        with torch.vgpu.stream(stream):
            copied = batch.to(device, non_blocking=True)
        _ = X @ X
        torch.vgpu.current_stream(device).wait_stream(stream)
        copied.add_(1)
        sim.synchronize()
        return sim.now()

    beside = step(torch.vgpu.Stream(device))
    after = step(torch.vgpu.default_stream(device))
    assert after / beside > 1.5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_refuses_simulated_devices():
    run_program("simulators/a_forked_process_refuses_simulated_devices.py")


def test_most_devices_of_all_kinds():
    with pytest.raises(ValueError, match="at most 64 virtual GPUs, but got 65"):
        vgpu.enable(65)
    assert Devices.machine.count == 2


def test_data_parallel_says_that_it_would_leave_out_devices_of_a_simulator():
    run_program("simulators/data_parallel_with_a_simulator.py")


# ------------------------------------------------------------------ the same everywhere

PROGRAM = """
import sys, torch
torch.set_num_threads(int(sys.argv[1]))
from torch import nn
from d2l_gpu import torch as d2l
torch.manual_seed(0)
sim = d2l.simulator(2)
nets = [d2l.resnet18(10).to(device) for device in sim.gpus()]
for net, device in zip(nets, sim.gpus()):
    X = torch.randn(4, 1, 28, 28).to(device)
    nn.functional.cross_entropy(net(X), X.new_zeros(4, dtype=torch.long)).backward()
sim.all_reduce([next(net.parameters()).grad for net in nets])
torch.optim.SGD(nets[0].parameters(), lr=0.1).step()
print(repr(sim.elapsed()), repr(sim.now()), sim.report())
print(d2l.simulate_step(d2l.resnet18(10), torch.zeros(8, 1, 28, 28),
                        torch.zeros(8, dtype=torch.long), 16))
"""


@pytest.mark.all
def test_two_processes_with_one_thread_and_two_simulate_the_same_times():
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, threads],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert "simulated (V100)" in outputs[0]
