"""A product's time by itself is the one that a simulator says."""

import pytest
import torch

from d2l_gpu import vgpu


@pytest.mark.parametrize("model", vgpu.MODELS)
@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (32, 32, 32), (300, 5, 4001)])
def test_it_is_what_a_simulator_says(model, m, k, n):
    sim = vgpu.simulator(1, model, backing="meta")
    X = torch.empty(m, k, device=sim.gpu(0))
    Y = torch.empty(k, n, device=sim.gpu(0))
    sim.reset()
    _ = X @ Y
    sim.synchronize()
    assert vgpu.product_seconds(vgpu.MODELS[model], m, k, n) == sim.now()
    del X, Y, _
    sim.close()


def test_a_large_product_comes_close_to_the_peak():
    for model in vgpu.MODELS.values():
        rate = 2 * 8192**3 / vgpu.product_seconds(model, 8192, 8192, 8192)
        assert 0.6 < rate / model.rates["fp32"] < 1
