"""Replayed training takes the time and the memory of PyTorch's own code, exactly.

``vgpu.cluster`` runs the programs that were recorded. Its step and the replayed one are
equally long, to the picosecond, and take the same memory, to the byte.
"""

import pytest
import torch

from d2l_gpu import vgpu
from d2l_gpu.vgpu.sim.plans import Machine
from d2l_gpu.vgpu.sim.recordings import networks
from d2l_gpu.vgpu.sim.replicas import KINDS, Outcome, simulate
from tools.network_training import STEPS, program
from tools.record_networks import (
    BATCHES,
    SUBJECTS,
    differences,
    grown,
    recorded,
    text_of,
)

pytestmark = pytest.mark.filterwarnings("ignore:In a simulated cluster")
ROOMY = {"memory": "1000GiB"}


def both(name: str, batch: int, precision: str, steps: int = STEPS, **machine):
    """The same training as a program on a cluster, and replayed."""
    run = vgpu.cluster(**machine).run(program(name, batch, precision, steps))
    return run, simulate(name, Machine(**machine), batch, precision)


def picoseconds(run) -> int:
    begin, end = (moment.time for _, moment in run.ranks[0].clock.steps[-2:])
    return end - begin


def assert_equal(run, outcome: Outcome) -> None:
    (rank,) = run.ranks.values()
    assert outcome.picoseconds == picoseconds(run)
    assert outcome.allocated == rank.allocated
    assert outcome.usage.reserved == rank.reserved
    ours, theirs = outcome.memory_use(), rank.memory
    # Workspaces of cuBLAS aren't part of theirs. Buckets are: as activations, since
    # they are there when backward begins.
    peak = outcome.usage.peak
    assert set(peak) <= set(KINDS)
    for name in ("parameters", "buffers", "optimizer state", "gradients"):
        assert ours.peak[name] == theirs.peak[name]
    workspaces = peak.get("workspaces", 0)
    assert sum(ours.peak.values()) - workspaces == sum(theirs.peak.values())


@pytest.mark.parametrize(
    ("name", "gpu", "nodes", "gpus", "batch", "precision"),
    [
        ("LeNet", "V100", 1, 1, 256, "fp32"),
        ("LeNet", "A100", 1, 1, 1, "bf16"),
        ("LeNet", "GB200", 1, 72, 32, "fp16"),
        ("ResNet-18", "V100", 1, 1, 7, "fp16"),
        ("ResNet-18", "V100", 1, 2, 100, "fp32"),
        ("ResNet-18", "A100 80GB", 1, 8, 64, "tf32"),
        ("ResNet-18", "H100", 2, 8, 128, "bf16"),
        ("ResNet-18", "RTX 4090", 1, 2, 2, "fp32"),
        ("ResNet-50", "A100", 1, 1, 1, "tf32"),
        ("ResNet-50", "T4", 1, 4, 31, "fp16"),
        ("ResNet-50", "V100", 1, 8, 112, "fp32"),
        ("ResNet-50", "H100", 2, 8, 33, "bf16"),
    ],
)
def test_a_step_takes_as_long_and_as_much_memory(
    name, gpu, nodes, gpus, batch, precision
):
    machine = {"nodes": nodes, "gpus": gpus, "model": gpu}
    assert_equal(*both(name, batch, precision, **machine, **ROOMY))


@pytest.mark.parametrize("algorithm", ["Ring", "Tree"])
def test_links_networks_and_algorithms_make_the_same_difference(algorithm):
    machine = {"nodes": 4, "gpus": 4, "model": "V100", "network": "Ethernet 100"}
    of = machine | {"link": "PCIe3", "cards": 1, "algorithm": algorithm}
    assert_equal(*both("ResNet-18", 32, "fp32", **of))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("gpus", [1, 2])
def test_later_steps_are_like_the_last(gpus, precision):
    run, outcome = both("LeNet", 64, precision, 6, gpus=gpus, model="V100")
    assert picoseconds(run) == outcome.picoseconds


def test_what_does_not_fit_is_what_runs_out_of_memory():
    machine = {"nodes": 1, "gpus": 1, "model": "V100"}
    roomy = simulate("ResNet-18", Machine(**machine), 64)
    for memory in (roomy.usage.reserved, roomy.allocated):
        limited = machine | {"memory": memory}
        outcome = simulate("ResNet-18", Machine(**limited), 64)
        if outcome.fits:
            assert_equal(*both("ResNet-18", 64, "fp32", **limited))
        else:
            with pytest.raises(torch.OutOfMemoryError):
                both("ResNet-18", 64, "fp32", **limited)
        assert outcome.fits == (memory == roomy.usage.reserved)


# ------------------------------------------------------------------ recordings


def text_in_file(name: str) -> str:
    file = networks.files(networks.__package__) / f"{networks.FILES[name]}.json"
    return file.read_text(encoding="utf-8")


def test_a_recording_is_what_is_recorded_now():
    subject = next(each for each in SUBJECTS if each.name == "LeNet")
    found = differences(text_in_file("LeNet"), text_of(recorded(subject)))
    assert [each for each in found if not each.startswith("PyTorch was")] == []


def test_what_differs_from_a_recording_is_said():
    old = text_in_file("LeNet")
    assert differences(old, old) == []
    (found,) = differences(old, old.replace('"PyTorch": "', '"PyTorch": "1'))
    assert found.startswith("PyTorch was")
    changed = old.replace('"avg_pool2d"', '"max_pool2d"', 1)
    assert any(
        ": word " in each and " was " in each for each in differences(old, changed)
    )


def test_numbers_must_grow_evenly():
    assert grown([3, 3, 3]) == 3
    assert grown([2 + 5 * n for n in BATCHES]) == "2+5*n"
    assert grown([[n, "fp32"] for n in BATCHES]) == ["0+1*n", "fp32"]
    with pytest.raises(RuntimeError, match="one number is"):
        grown([n * n for n in BATCHES])
    with pytest.raises(RuntimeError, match="has become"):
        grown([[1], [1], [1, 2]])
