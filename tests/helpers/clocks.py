"""Simulated clocks with times that can be worked out on paper, in a browser too."""

from d2l_gpu.vgpu.sim import catalogue
from d2l_gpu.vgpu.sim.catalogue import LINKS, MODELS
from d2l_gpu.vgpu.sim.clock import Clock, Part, Work, pico

V100, LINK = MODELS["V100"], LINKS["NVLink2"]
ISSUE, START, WAIT, LAUNCH = (
    pico(constant.value)
    for constant in (catalogue.ISSUE, catalogue.START, catalogue.WAIT, catalogue.LAUNCH)
)


def work_of(key):
    """Kernels of these tests: ("name", bytes); a name is all that they have."""
    return Work(key[0], [Part(0, "fp32", key[1])])


def a_clock(*indices, model=V100, stands_for=1) -> Clock:
    return Clock(dict.fromkeys(indices or (0,), model), LINK, work_of, stands_for)


def kernel(microseconds: float, name: str = "k") -> tuple:
    """The key of a kernel that takes so long on a V100, its launch included."""
    seconds = microseconds * 1e-6 - catalogue.LAUNCH.value
    return name, round(seconds * V100.bandwidth * catalogue.MEMORY.value)
