"""The playground's settings: what they give, and what's said of nonsense."""

import json

import pytest

from d2l_gpu.vgpu.sim import nccl, replicas
from d2l_gpu.vgpu.sim.catalogue import MODELS
from d2l_gpu.vgpu.sim.expected import RUNS
from d2l_gpu.vgpu.sim.plans import Machine, Plan, simulate
from d2l_gpu.vgpu.sim.play import choices, play, scaling
from d2l_gpu.vgpu.sim.units import size_text

NAMES = [about["name"] for about in choices()["models"]]
LLAMA = {"model": "Llama 3.1 8B"}
RESNET = {"model": "ResNet-18"}


def test_choices_can_be_written_as_json():
    assert json.loads(json.dumps(choices())) == choices()


@pytest.mark.parametrize("about", choices()["models"], ids=NAMES)
def test_a_default_fits_into_memory_and_is_what_an_empty_setting_gives(about):
    found = play({"model": about["name"]})
    assert json.loads(json.dumps(found)) == found
    assert found == play(about["default"]) == play(found["setting"])
    assert found["setting"] == about["default"]
    assert found["fits"] and found["reason"] == ""
    assert found["allocated"] == sum(each["bytes"] for each in found["memory"])
    assert sum(each["share"] for each in found["spent"]) == pytest.approx(1, abs=1e-3)
    assert found["unit"] == f"{about['unit']}/s"
    assert found["timeline"].startswith("<svg")
    assert found["limit"].endswith(".")


def test_a_language_model_is_simulated_as_its_plan():
    setting = {"pipeline": 2, "tensor": 2, "replicas": 2, "nodes": 2}
    found = play(LLAMA | setting | {"batch": 4, "microbatches": 2})
    plan = Plan(2, 2, 2, 2, microbatches=2, sequences=2, checkpoint="selective")
    outcome = simulate("Llama 3.1 8B", plan, Machine(2, 8))
    assert found["picoseconds"] == outcome.picoseconds
    assert found["rate"] == outcome.tokens_per_second
    assert found["allocated"] == outcome.allocated


def test_a_network_is_simulated_as_its_replicas():
    setting = {"nodes": 2, "gpus": 4, "gpu": "A100", "batch": 50, "precision": "bf16"}
    found = play(RESNET | setting | {"network": "RoCE 100", "link": "PCIe4"})
    machine = Machine(2, 4, "A100", network="RoCE 100", link="PCIe4")
    outcome = replicas.simulate("ResNet-18", machine, 50, "bf16")
    assert found["picoseconds"] == outcome.picoseconds
    assert found["rate"] == pytest.approx(8 * 50 / outcome.seconds)
    assert found["allocated"] == outcome.allocated
    memory = {each["category"]: each["bytes"] for each in found["memory"]}
    assert [memory] == outcome.memory
    assert found["memory_picture"].startswith("<svg")


@pytest.mark.parametrize(
    ("setting", "work"),
    [
        ({"model": "ResNet-50", "gpus": 8, "precision": "fp16"}, "ResNet-50 v1.5"),
        ({"model": "ResNet-18", "gpus": 2}, "ResNet-18 of the book"),
        (LLAMA | {"gpu": "H100 96GB", "gpus": 8}, "Llama 3.1 8B"),
    ],
)
def test_published_measurements_are_those_of_the_same_work(setting, work):
    found = play(setting)
    assert found["published"]
    for each in found["published"]:
        (run,) = [
            run
            for run in RUNS
            if (run.network, run.gpu, run.gpus, run.kind, run.seconds)
            == tuple(each[x] for x in ("work", "gpu", "gpus", "precision", "seconds"))
        ]
        assert run.network == work and run.gpus == setting["gpus"]
        assert each["error"] == run.error
        assert each["batch"] == run.batch and "https://" in each["source"]
    assert play(setting | {"gpus": 4})["published"] == []


def test_a_published_run_is_simulated_with_the_error_that_it_says():
    """DistributedDataParallel differs a little from the loop of benchmarks/."""
    setting = {"model": "ResNet-50", "gpu": "A100 80GB", "gpus": 8, "batch": 256}
    found = play(setting | {"precision": "tf32"})
    (run,) = found["published"]
    error = run["seconds"] / (found["picoseconds"] / 10**12) - 1
    assert error == pytest.approx(run["error"], abs=0.02)


def test_what_does_not_fit_says_how_much_is_missing():
    found = play(LLAMA | {"gpus": 1})
    assert not found["fits"] and found["picoseconds"] > 0
    assert "more than there is" in found["reason"]
    assert found["allocated"] > found["capacity"]


@pytest.mark.parametrize(
    ("setting", "change", "said"),
    [
        (
            LLAMA | {"gpus": 4, "batch": 1, "checkpoint": "none"},
            {"checkpoint": "full"},
            "full checkpointing",
        ),
        (LLAMA | {"batch": 32}, {"microbatches": 32}, "32 microbatches"),
        (
            LLAMA | {"batch": 32, "zero": 1, "microbatches": 4},
            {"zero": 3, "microbatches": 32, "checkpoint": "full"},
            "ZeRO stage 3, 1 sequence per microbatch (32 microbatches) and full",
        ),
        ({"model": "Llama 3.1 70B", "nodes": 1}, {"nodes": 4}, "On 32 GPUs it"),
        ({"model": "ResNet-50", "batch": 512}, {"batch": 192}, "A batch of 192"),
    ],
)
def test_what_does_not_fit_comes_with_a_change_that_does(setting, change, said):
    found, changed = play(setting), play(setting | change)
    assert not found["fits"] and changed["fits"] and changed["hint"] == ""
    assert said in found["hint"]
    assert size_text(changed["allocated"]) in found["hint"]


def test_what_is_hopeless_has_no_hint():
    tiny = {"model": "Llama 3.1 70B", "gpu": "RTX 4060 Laptop", "nodes": 1, "gpus": 1}
    assert play(tiny)["hint"] == ""


def test_nodes_can_share_a_network_card():
    setting = RESNET | {"nodes": 2, "gpus": 8, "network": "Ethernet 25"}
    one, own = play(setting | {"cards": 1}), play(setting)
    assert "1 × Ethernet 25" in one["machine"] and "8 × Ethernet 25" in own["machine"]
    assert one["picoseconds"] > own["picoseconds"]
    machine = Machine(2, 8, "V100", network="Ethernet 25", cards=1)
    outcome = replicas.simulate("ResNet-18", machine, 256)
    assert one["picoseconds"] == outcome.picoseconds


@pytest.mark.parametrize(
    ("network", "gpus", "cards"),
    [("EFA p5", 8, 32), ("EFA p5", 2, 8), ("EFA p4d", 8, 4), ("NDR", 4, 4)],
)
def test_a_node_has_the_cards_that_its_network_is_known_for(network, gpus, cards):
    setting = {"model": "LeNet", "gpu": "H100", "nodes": 2, "gpus": gpus}
    machine = play(setting | {"network": network})["machine"]
    assert f"{cards} × {network}" in machine


def test_what_is_usual_is_what_a_setting_takes_that_names_nothing():
    for gpu in choices()["gpus"]:
        setting = {"model": "LeNet", "gpu": gpu["name"], "nodes": 2}
        named = {"link": gpu["link"], "network": gpu["network"], "cards": 2}
        assert play(setting)["picoseconds"] == play(setting | named)["picoseconds"]


def test_efficiency_is_that_of_the_smallest_run_that_fits():
    found = scaling({"model": "Llama 3.1 70B"}, (8, 16, 32, 64))
    fitting = [each for each in found if each["fits"]]
    assert len(found) > len(fitting) > 1
    assert fitting[0]["efficiency"] == 1


def test_an_algorithm_of_the_all_reduce_can_be_chosen():
    setting = LLAMA | {"replicas": 8, "link": "NVLink3", "gpu": "A100 80GB"}
    times = {a: play(setting | {"algorithm": a}) for a in ("Ring", "Tree")}
    assert times["Ring"]["picoseconds"] != times["Tree"]["picoseconds"]
    machine = Machine(1, 8, "A100 80GB", algorithm="Tree")
    chosen = nccl.estimate(
        "all_reduce", 10**8, range(8), machine.fabric, machine.processor
    )
    assert chosen.algorithm == "Tree"
    gathered = nccl.estimate(
        "all_gather", 10**8, range(8), machine.fabric, machine.processor
    )
    assert gathered.algorithm == "Ring"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (3, "must be a dictionary"),
        ({"model": "LLama 8B"}, "did you mean 'Llama 3.1 8B'?"),
        ({"model": []}, "There is no model"),
        ({"model": None}, "There is no model"),
        (LLAMA | {"wheel": 1}, "has no setting 'wheel'"),
        (LLAMA | {1: 2}, "has no setting 1"),
        (LLAMA | {"gpu": "Xeon E5-2698 v4"}, "There is no GPU"),
        (LLAMA | {"gpu": "V100"}, "trains in fp32 or fp16, but not in bf16"),
        (
            LLAMA | {"precision": None},
            "Llama 3.1 8B was recorded in bf16, but not in None",
        ),
        (LLAMA | {"gpus": 0}, "gpus must be from 1 to 72, but got 0"),
        (LLAMA | {"gpus": True}, "gpus must be a whole number, but got True"),
        (LLAMA | {"nodes": "2"}, "nodes must be a whole number, but got '2'"),
        (LLAMA | {"nodes": 10**9}, "nodes must be from 1 to"),
        (LLAMA | {"batch": float("nan")}, "batch must be a whole number"),
        (LLAMA | {"cards": 0}, "cards must be from 1 to 72, but got 0"),
        (
            LLAMA | {"batch": 3, "microbatches": 2},
            "3 sequences per shard can't be divided into 2 microbatches",
        ),
        (LLAMA | {"shards": 3}, "= 3 GPUs"),
        (LLAMA | {"pipeline": 5}, "8 GPUs can't be divided into groups of 5"),
        (LLAMA | {"tensor": 4, "gpus": 6, "shards": 1}, "= 4 GPUs"),
        (LLAMA | {"link": "NVLInk4"}, "did you mean 'NVLink4'?"),
        (LLAMA | {"network": []}, "There is no network"),
        (LLAMA | {"algorithm": None}, "There is no algorithm None"),
        (LLAMA | {"algorithm": "NVLSTree", "replicas": 2}, "NCCL can't use 'NVLSTree'"),
        (LLAMA | {"zero": 4}, "zero must be 1, 2 or 3"),
        (LLAMA | {"stages": 2}, "Only an interleaved schedule"),
        (LLAMA | {"checkpoint": "some"}, "There is no checkpoint"),
        ({"model": "GPT-2 124M", "checkpoint": "selective"}, "of GPT-2 124M"),
        (RESNET | {"pipeline": 2}, "ResNet-18 has no setting 'pipeline'"),
        (RESNET | {"batch": 0}, "batch must be from 1 to"),
        (RESNET | {"batch": 10**7}, "batch must be from 1 to"),
        (RESNET | {"batch": 25.6}, "batch must be a whole number, but got 25.6"),
        (RESNET | {"precision": "tf32"}, "A V100 trains in fp32 or fp16"),
        (RESNET | {"precision": "fp8"}, "bf16, but not in 'fp8'"),
        (RESNET | {"algorithm": "NVLS"}, "NCCL can't use 'NVLS'"),
        (RESNET | {"network": "NVLink4"}, "There is no network"),
    ],
)
def test_nonsense_is_answered_in_one_sentence(setting, said):
    for function in (play, scaling):
        with pytest.raises(ValueError) as error:
            function(setting)
        text = str(error.value)
        assert said in text
        assert text.endswith(".") and "\n" not in text and ". " not in text


def test_scaling_is_what_play_says_of_each_number():
    setting = {"model": "GPT-2 124M", "gpu": "A100 80GB", "batch": 4}
    found = scaling(setting)
    assert [(each["gpus"], each["nodes"]) for each in found] == [
        *((1, 1), (2, 1), (4, 1), (8, 1)),
        (16, 2),
    ]
    for each in found:
        of_node = {"nodes": each["nodes"], "gpus": each["gpus"] // each["nodes"]}
        alone = play(setting | of_node)
        assert all(each[k] == alone[k] for k in ("picoseconds", "rate", "fits"))
        share = each["rate"] / each["gpus"] / found[0]["rate"]
        assert each["efficiency"] == pytest.approx(share)
    assert found[0]["efficiency"] == 1


def test_a_node_is_as_large_as_the_setting_says():
    setting = {"model": "GPT-2 124M", "nodes": 2, "gpus": 4}
    assert [each["nodes"] for each in scaling(setting)] == [1, 1, 1, 2, 4]
    dgx2 = {"model": "GPT-2 124M", "gpu": "A100", "gpus": 16}
    assert [each["nodes"] for each in scaling(dgx2, (16, 32, 24))] == [1, 2, 2]
    rack = {"model": "GPT-2 124M", "gpu": "GB200"}
    assert [each["nodes"] for each in scaling(rack, (16, 72, 144))] == [1, 1, 2]


def test_numbers_on_which_a_plan_cannot_run_are_left_out():
    found = scaling(LLAMA | {"tensor": 4})
    assert [each["gpus"] for each in found] == [4, 8, 16]
    with pytest.raises(ValueError, match="whole number"):
        scaling(LLAMA, (1.5,))


def test_every_gpu_can_be_chosen():
    for gpu in choices()["gpus"]:
        assert gpu["memory"] == MODELS[gpu["name"]].memory
        assert "fp32" in gpu["precisions"]
        if "bf16" in gpu["precisions"]:
            assert play(LLAMA | {"gpu": gpu["name"]})["picoseconds"] > 0
