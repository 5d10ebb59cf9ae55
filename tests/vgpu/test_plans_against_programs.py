"""Simulated plans take the time and the memory of PyTorch's own code.

``vgpu.cluster`` runs the programs that the plans describe; what differs is the plans'
mistake. Times agree to 1 %, and memory to 2 %; those of interleaved pipelines to 7 and
9 %.
"""

import pytest

from d2l_gpu import vgpu
from d2l_gpu.vgpu.sim import recordings
from d2l_gpu.vgpu.sim.plans import Machine, Plan, simulate
from tools.plan_training import program
from tools.record import SUBJECTS, differences, recorded, text_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:In a simulated cluster"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
TIME, MEMORY = 0.01, 0.02
LLAMA, GPT = "Llama 3.1 8B", "GPT-2 124M"


def agree(
    name: str, layers: int, plan: Plan, time: float = TIME, memory: float = MEMORY
) -> None:
    network = recordings.model(name).with_layers(layers)
    nodes, gpus = max(1, plan.gpus // 8), min(plan.gpus, 8)
    ours = simulate(network, plan, Machine(nodes, gpus, memory="1000GiB"))
    cluster = vgpu.cluster(nodes, gpus, "H100", memory="1000GiB")
    run = cluster.run(program(network.shape, plan))
    assert list(run.ranks) == ours.ranks
    assert ours.seconds == pytest.approx(run.seconds, rel=time)
    assert [sum(found.values()) for found in ours.memory] == pytest.approx(
        [each.allocated for each in run.ranks.values()], rel=memory
    )


@pytest.mark.parametrize(
    "plan",
    [
        Plan(),
        Plan(shards=8),
        Plan(shards=8, microbatches=2),
        Plan(shards=8, microbatches=2, zero=2),
        Plan(shards=8, microbatches=2, zero=1),
        Plan(shards=8, replicas=2, sequences=2, checkpoint="full"),
        Plan(replicas=4, microbatches=2, checkpoint="selective", sequences=3),
    ],
    ids=str,
)
def test_shards_agree(plan):
    agree(LLAMA, 2, plan)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(tensor=8),
        Plan(tensor=2, shards=4, checkpoint="full", microbatches=2, zero=1),
        Plan(tensor=4, shards=4, checkpoint="selective", sequences=3),
    ],
    ids=str,
)
def test_tensor_parallelism_agrees(plan):
    agree(LLAMA, 2, plan)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(pipeline=2, shards=4, microbatches=4),
        Plan(pipeline=2, tensor=2, shards=2, microbatches=3, zero=1),
        Plan(pipeline=2, replicas=2, microbatches=3, schedule="GPipe", zero=1),
    ],
    ids=str,
)
def test_pipelines_agree(plan):
    agree(LLAMA, 4, plan)


def test_interleaved_pipelines_agree():
    plan = Plan(
        *(2, 2, 2), microbatches=4, schedule="interleaved", stages=2, checkpoint="full"
    )
    agree(LLAMA, 4, plan, time=0.07, memory=0.09)


def test_a_small_network_whose_host_is_slower_agrees():
    agree(GPT, 12, Plan(shards=8, sequences=4))


def test_a_recording_is_what_is_recorded_now():
    subject = next(each for each in SUBJECTS if each.name == GPT)
    (now,) = [text_of(recorded(subject))]
    file = recordings.files(recordings.__name__) / f"{recordings.FILES[GPT]}.json"
    old = file.read_text(encoding="utf-8")
    assert [x for x in differences(old, now) if not x.startswith("PyTorch was")] == []


def test_what_differs_from_a_recording_is_said():
    file = recordings.files(recordings.__name__) / f"{recordings.FILES[GPT]}.json"
    old = file.read_text(encoding="utf-8")
    assert differences(old, old) == []
    (found,) = differences(old, old.replace('"PyTorch": "', '"PyTorch": "1'))[:1]
    assert "PyTorch was" in found
    changed = old.replace('"native_layer_norm"', '"layer_norm"', 1)
    assert any(" step " in x and " was " in x for x in differences(old, changed))
