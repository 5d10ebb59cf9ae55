"""What a report says about the error to expect."""

import pytest

from d2l_gpu.vgpu.sim import expected
from d2l_gpu.vgpu.sim.catalogue import LINKS, MODELS
from d2l_gpu.vgpu.sim.clock import Clock, Part, Work
from d2l_gpu.vgpu.sim.report import Report

CONVOLUTION = "convolution, forward"
SIZES = 1, 4096, 4096, 4096


def report(*parts: Part, model: str = "A100") -> Report:
    """The report of a device that ran kernels of this work."""
    clock = Clock({0: MODELS[model]}, LINKS["NVLink3"], lambda _: Work("k", parts))
    clock.note(("k",), 0, 0)
    return Report(clock, "simulated")


@pytest.mark.parametrize(("work", "kind"), expected.RECORDED)
def test_it_is_that_of_the_runs_with_the_same_work(work, kind):
    algorithm = CONVOLUTION if work == "convolutions" else ""
    found = report(Part(2 * 4096**3, kind, 1, SIZES, algorithm))
    errors = expected.RECORDED[work, kind]
    for text in (work, kind, f"{errors.median:.0%}", f"{errors.largest:.0%}"):
        assert text in found.expected
    assert found.expected in repr(found)
    assert found.expected in found._repr_html_()


@pytest.mark.parametrize("model", ["V100", "A100 80GB", "L4", "RTX 4090"])
def test_it_says_on_which_gpus_the_runs_were_and_whether_on_this_one(model):
    found = report(Part(2 * 4096**3, "fp16", 1, SIZES), model=model).expected
    gpus = expected.RECORDED["products", "fp16"].gpus
    assert all(gpu in found for gpu in gpus)
    is_one_of_them = model.partition(" ")[0] in gpus
    assert (f"none on {model}" in found) != is_one_of_them


def test_it_is_that_of_the_work_that_takes_longest():
    long = Part(2 * 4096**3, "fp16", 1, SIZES)
    short = Part(2 * 4096**2 * 64, "fp16", 1, (1, 4096, 4096, 64), CONVOLUTION)
    assert "products" in report(long, short).expected
    assert "convolutions" in report(*[short] * 100, long).expected


def test_tf32_is_fp32_where_there_is_none():
    part = Part(2 * 4096**3, "tf32", 1, SIZES)
    assert "in tf32" in report(part).expected
    assert "in fp32" in report(part, model="V100").expected
    assert "in fp32" in report(part._replace(general=True)).expected


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [Part(10**6, "fp32", 10**9)],
        [Part(10**6, "fp32", 10**10), Part(2 * 10**6, "fp32", 1, (1, 100, 100, 100))],
        [Part(2 * 4096**3, "fp64", 1, SIZES)],
    ],
)
def test_no_error_is_claimed_for_work_that_nobody_published(parts):
    assert "isn't known" in report(*parts).expected
