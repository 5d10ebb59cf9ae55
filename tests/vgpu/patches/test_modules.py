"""``torch.nn``: what parameters keep when their module moves."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from d2l_gpu import vgpu
from tests.helpers.properties import sizes

DEVICES = 3

pytestmark = pytest.mark.virtual_gpus(DEVICES)


@settings(max_examples=20)
@given(
    trained=st.lists(st.booleans(), min_size=4, max_size=4),
    way=st.lists(sizes(-1, DEVICES - 1), min_size=1, max_size=5),
)
def test_what_is_frozen_stays_frozen_wherever_a_module_goes(trained, way):
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    parameters = list(net.parameters())
    for parameter, is_trained in zip(parameters, trained, strict=True):
        parameter.requires_grad_(is_trained)
    for place in way:
        device = torch.device("cpu" if place < 0 else f"vgpu:{place}")
        net.to(device)
        assert {parameter.device for parameter in parameters} == {device}
        assert [parameter.requires_grad for parameter in parameters] == trained


def clipped(gradients, device, norm):
    """Return the norm of gradients that were clipped on a device, and these."""
    weights = [nn.Parameter(x.to(device)) for x in gradients]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient.to(device)
    total = nn.utils.clip_grad_norm_(weights, 0.1, norm)
    return [total.cpu(), *(weight.grad.cpu() for weight in weights)]


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_gradients_are_clipped_by_as_many_kernels_however_many_there_are(norm):
    issued, counts = vgpu.machine_in_use().kernels, set()
    for many in (2, 7, 30):
        gradients = [torch.randn(3, 2 + i) for i in range(many)]
        before = issued[0]
        found = clipped(gradients, "vgpu:0", norm)
        counts.add(issued[0] - before)
        torch.testing.assert_close(found, clipped(gradients, "cpu", norm))
    assert len(counts) == 1
