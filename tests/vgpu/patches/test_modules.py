"""``torch.nn``: what parameters keep when their module moves."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

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
