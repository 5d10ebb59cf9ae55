"""What the host takes on the clock: published figures, one's own, or a measurement."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from d2l_gpu import vgpu
from tests.helpers.properties import sizes

SECONDS = st.integers(1, 10**6).map(lambda microseconds: microseconds / 1e6)


@given(operator=SECONDS, layer=SECONDS, calls=sizes(1, 5))
def test_the_clock_takes_the_figures_of_its_host(operator, layer, calls):
    host = vgpu.Host(operator, operator + layer, 0.0, "these tests")
    sim = vgpu.simulator(1, host=host)
    X, net = torch.ones(2, 2, device=sim.gpu()), nn.Linear(2, 2).to(sim.gpu())
    for work, seconds in ((lambda: X + X, operator), (lambda: net(X), host.layer)):
        sim.reset()
        for _ in range(calls):
            work()
        assert sim.now() == pytest.approx(calls * seconds, rel=1e-9)
    sim.close()


@pytest.mark.virtual_gpus(3)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_devices_of_data_parallel_wait_for_their_replicas(n):
    def seconds(replica: float) -> float:
        vgpu.enable(3, host=vgpu.Host(replica=replica))
        sim = vgpu.current_simulator()
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to("vgpu:0")
        net, X = nn.DataParallel(net, list(range(n))), torch.ones(6, 4, device="vgpu:0")
        sim.reset()
        net(X)
        return sim.elapsed()

    copies = 4 * n if n > 1 else 0  # the layers and what holds them
    assert seconds(1.0) - seconds(0.0) == pytest.approx(copies, abs=1e-6)


def test_measuring_takes_a_real_device():
    host = vgpu.measure_host("cpu")
    assert 0 < host.operator < host.layer < 1
    assert 0 < host.replica < 1
    assert "measured on this machine" in host.source.lower()
    for device in ("meta", "vgpu:0", "no device", 3.5):
        with pytest.raises(ValueError, match="must be a real one of this machine"):
            vgpu.measure_host(device)


@pytest.mark.virtual_gpus(1)
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_measured_unasked():
    with pytest.raises(RuntimeError, match="no GPU to issue work to"):
        vgpu.measure_host()


@pytest.mark.parametrize("host", [5e-6, "fast", vgpu.Host])
def test_a_host_is_not_just_a_number(host):
    with pytest.raises(TypeError, match=r"must be a vgpu\.Host"):
        vgpu.simulator(1, host=host)
