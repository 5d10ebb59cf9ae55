"""Replayed training: what changes with the setting, and what's said of nonsense.

``tests/vgpu/test_replicas_against_programs.py`` compares with PyTorch's own code.
"""

from importlib.resources import files

import pytest

from d2l_gpu.vgpu.sim import recordings
from d2l_gpu.vgpu.sim.critical_path import COMPUTING, HOSTED
from d2l_gpu.vgpu.sim.plans import Machine
from d2l_gpu.vgpu.sim.recordings.networks import memory, programs_of, words
from d2l_gpu.vgpu.sim.replicas import (
    FILES,
    PRECISIONS,
    SENDING,
    SUMMING,
    network,
    simulate,
)

V100 = Machine(1, 2, "V100")


# ------------------------------------------------------------------ recordings


def test_networks_have_as_many_parameters_as_published():
    assert network("LeNet").parameters == 61_706
    assert network("ResNet-50").parameters == 25_557_032  # torchvision's resnet50
    # d2l 1.0.3, section 13.6, with biases: the first convolution has one channel.
    assert network("ResNet-18").parameters == 11_175_818


@pytest.mark.parametrize("name", FILES)
def test_a_recording_is_small_and_has_four_steps(name):
    text = files(recordings).joinpath(f"{FILES[name]}.json").read_text("utf-8")
    assert len(text) < 150_000
    for precision in PRECISIONS:
        for gpus in (1, 2, 64):
            found = [what for what, _ in words(name, precision, gpus)]
            assert found.count("step") == 4 and found[-1] == "step"
            assert ("meet" in found) == (gpus > 1)


def all_reduces(name: str) -> list[list[int]]:
    """The bytes of the all-reduces in each step."""
    steps = [[]]
    for what, value in words(name, "fp32", 2):
        if what == "step":
            steps.append([])
        elif what == "meet" and value[0] == "all_reduce":
            steps[-1].append(value[1])
    return steps[:-1]


@pytest.mark.parametrize("name", FILES)
def test_gradients_are_summed_once_a_step_in_buckets_of_25_mb(name):
    steps = all_reduces(name)
    assert list(map(sum, steps)) == [4 * network(name).parameters] * 4
    # All but the last bucket are full: the first one of 1 MiB, others of 25 MiB.
    full = steps[-1][:-1]
    assert full[:1] >= [2**20] * len(full[:1])
    assert all(size >= 25 * 2**20 for size in full[1:])


def test_repeated_words_are_those_before():
    data = {"programs": {"fp32": {"alone": ["1 2 3", "~1:2 4"], "replicas": ["~0:6"]}}}
    assert programs_of(data) == {
        ("fp32", "alone"): ["1", "2", "3", "2", "3", "4"],
        ("fp32", "replicas"): ["1", "2", "3", "2", "3", "4"],
    }


def test_memory_of_images_grows_with_the_batch():
    assert (256 * 28 * 28 * 4, "images and labels") in memory("LeNet", 256)
    assert (8 * 28 * 28 * 4, "images and labels") in memory("LeNet", 8)


# ------------------------------------------------------------------ times


@pytest.mark.parametrize("name", FILES)
def test_a_second_gpu_makes_a_step_longer_and_the_rate_higher(name):
    one, two = (simulate(name, Machine(1, n, "V100"), 64) for n in (1, 2))
    assert one.picoseconds < two.picoseconds < 2 * one.picoseconds
    assert one.rate < two.rate < 2 * one.rate
    assert two.rate == pytest.approx(2 * 64 / two.seconds)


def test_better_hardware_is_faster():
    def seconds(precision="fp32", **machine):
        of = {"nodes": 2, "gpus": 8, "model": "A100 80GB"} | machine
        return simulate("ResNet-50", Machine(**of), 64, precision).seconds

    assert seconds() > seconds("tf32") > seconds("bf16")
    assert seconds(model="V100") > seconds() > seconds(model="H100")
    assert seconds(link="PCIe3", network="Ethernet 25") > seconds()


def test_another_algorithm_of_the_all_reduce_takes_another_time():
    ring, tree, automatic = (
        simulate("ResNet-18", Machine(16, 8, "V100", algorithm=algorithm), 16)
        for algorithm in ("Ring", "Tree", None)
    )
    assert ring.picoseconds != tree.picoseconds
    assert automatic.picoseconds <= max(ring.picoseconds, tree.picoseconds)
    with pytest.raises(ValueError, match="choose one of Ring, Tree"):
        repr(simulate("ResNet-18", Machine(1, 8, "V100", algorithm="NVLS"), 16))


def test_what_limits_a_step_is_said():
    def outcome(*args, **machine):
        return simulate(*args[:1], Machine(**machine), *args[1:])

    large = outcome("ResNet-50", 64, gpus=1, model="V100")
    assert large.limit == COMPUTING and large.limits.startswith("Computing takes")
    small = outcome("LeNet", 1, gpus=1, model="H100")
    assert small.limit == HOSTED and "host" in small.limits
    slow = {"nodes": 2, "gpus": 1, "model": "V100", "network": "Ethernet 25"}
    summing = outcome("ResNet-18", 16, **slow)
    assert summing.limit == SUMMING and "gradients" in summing.limits
    many = {"nodes": 64, "gpus": 8, "model": "H100"}
    assert outcome("ResNet-18", 64, **many).shares[SENDING] > 0.01
    for each in (large, small, summing):
        assert sum(each.shares.values()) == pytest.approx(1)
        assert f"{each.shares[each.limit]:.0%}" in each.limits


# ------------------------------------------------------------------ memory


@pytest.mark.parametrize("name", FILES)
def test_memory_is_what_the_network_needs(name):
    one, two = (simulate(name, Machine(1, n, "V100"), 32).usage for n in (1, 2))
    parameters = 4 * network(name).parameters
    for usage in (one, two):
        assert parameters <= usage.peak["parameters"] < 1.1 * parameters
        assert usage.allocated <= usage.reserved
    assert "buckets" not in one.peak
    assert parameters <= two.peak["buckets"] < 1.1 * parameters
    larger = simulate(name, V100, 64).usage
    assert larger.peak["activations"] > 1.5 * two.peak["activations"]


def test_what_does_not_fit_says_so_and_still_has_a_time():
    fits, missing = (simulate("ResNet-50", V100, batch) for batch in (112, 512))
    assert fits.fits and fits.reason == ""
    assert not missing.fits and missing.seconds > fits.seconds
    assert "more than there is. The largest part is for activations." in missing.reason


def test_memory_in_pieces_does_not_fit_either():
    """The allocator reserves more than is allocated, and can't always give it back."""
    roomy = simulate("ResNet-18", V100, 256)
    exact = Machine(1, 2, "V100", memory=roomy.allocated)
    found = simulate("ResNet-18", exact, 256)
    assert not found.fits
    assert "in one piece" in found.reason
    enough = Machine(1, 2, "V100", memory=roomy.usage.reserved)
    assert simulate("ResNet-18", enough, 256).fits


def test_the_picture_of_memory_reaches_the_peak_of_the_step():
    outcome = simulate("ResNet-18", V100, 256)
    use = outcome.memory_use()
    assert use.seconds == outcome.seconds
    assert sum(use.peak.values()) <= outcome.allocated
    assert sum(use.peak.values()) > 0.95 * outcome.allocated
    assert [name for name, _, _ in use.phases()][:2] == ["", "forward"]
    assert {"forward", "backward", "optimizer"} <= {n for n, _, _ in use.phases()}
    assert outcome.memory_picture().startswith("<svg")


# ------------------------------------------------------------------ text, nonsense


def test_an_outcome_is_readable():
    text = repr(simulate("ResNet-18", V100, 256))
    assert "ResNet-18" in text and "256 images per GPU in fp32" in text
    assert "2 × V100" in text and "images/s" in text and "Computing takes" in text
    assert "rank 0 compute" in repr(simulate("LeNet", V100, 256).timeline())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("LeNed", V100, 1), "did you mean 'LeNet'?"),
        (("LeNet", V100, 0), "at least 1 image, but got 0"),
        (("LeNet", V100, True), "at least 1 image, but got True"),
        (("LeNet", V100, 1, "fp8"), "There is no precision 'fp8'"),
    ],
)
def test_nonsense_is_answered_in_one_sentence(arguments, said):
    with pytest.raises(ValueError) as error:
        simulate(*arguments)
    assert said in str(error.value) and str(error.value).endswith(".")


@pytest.mark.parametrize("model", ["V100", "H100", "B200"])
def test_more_gpus_never_make_a_step_shorter(model):
    # Also where the host is the limit: no step uses up what was issued before it.
    times = [
        simulate("LeNet", Machine(nodes, 8, model), 128).picoseconds
        for nodes in (1, 4, 32, 128, 512)
    ]
    assert times == sorted(times)
