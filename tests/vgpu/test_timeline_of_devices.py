"""The drawing of simulated time."""

import re

import torch

from d2l_gpu import vgpu


def test_copies_name_the_devices_of_their_simulation_as_the_rows_do():
    before = vgpu.simulator(1, backing="meta")  # takes the first index
    sim = vgpu.simulator(2, backing="meta")
    assert sim.gpu(0) != before.gpu(0)
    torch.empty(2**24, device="meta").to(sim.gpu(0))
    first = sim.timeline()
    sim.reset()
    torch.empty(2**24, device=sim.gpu(0)).to(sim.gpu(1))
    second = sim.timeline()
    drawn = [
        set(re.findall(r"<text[^>]*>([^<]*→[^<]*)<", x.svg())) for x in (first, second)
    ]
    assert drawn == [{"host → GPU 0"}, {"GPU 0 → GPU 1"}]
    assert list(second.rows) == ["host", "GPU 0 out", "GPU 1 in"]
