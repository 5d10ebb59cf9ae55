"""Plans of training: their times, their memory, what doesn't fit, and a search."""

import json
from dataclasses import replace
from importlib.resources import files

import pytest

from d2l_gpu.vgpu.sim import nccl, recordings
from d2l_gpu.vgpu.sim.plan_commands import COMPUTING, PIPELINE, Stretch
from d2l_gpu.vgpu.sim.plan_schedules import (
    BACKWARD,
    FORWARD,
    RECEIVE_BACKWARD,
    RECEIVE_FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    Action,
    Wait,
    steps_of,
)
from d2l_gpu.vgpu.sim.plan_stages import BUFFERS, PARAMETERS, STATE, Setting
from d2l_gpu.vgpu.sim.plans import Machine, Plan, _composed, grid, search, simulate

LLAMA = recordings.model("Llama 3.1 8B")
SMALL = LLAMA.with_layers(8)
NODE, NODES = Machine(), Machine(8, 8)


# ------------------------------------------------------------------ recordings


def test_models_have_as_many_parameters_as_published():
    # A. Grattafiori and others, The Llama 3 herd of models (2024): 8B and 70B. GPT-2's
    # 124 million, and as many again for its output as for its embedding.
    assert LLAMA.parameters == 8_030_261_248
    assert recordings.model("Llama 3.1 70B").parameters == 70_553_706_496
    assert recordings.model("GPT-2 124M").parameters == 124_412_160 + 50_257 * 768


@pytest.mark.parametrize("name", recordings.FILES)
def test_recordings_are_small_and_complete(name):
    file = files(recordings).joinpath(f"{recordings.FILES[name]}.json")
    text = file.read_text(encoding="utf-8")
    assert len(text) < 200_000
    data, used = json.loads(text), set()
    network = recordings.model(name)
    for tensor in network.tensor:
        for sequences in (1, 2, 5):
            for checkpoint in network.checkpoints:
                for part in ("layer", *recordings.AROUND):
                    for way in ("forward", "backward"):
                        found = network.segment(
                            part, way, tensor, sequences, checkpoint
                        )
                        assert found.most >= found.kept + found.gradients
    for variants in data["tensor"].values():
        for variant in (v for k, v in variants.items() if k.isdigit()):
            for part in variant.values():
                for segment in part.values():
                    used |= {int(w) for w in segment["does"].split() if w.isdigit()}
    assert used == set(range(len(data["kernels"])))  # each is used
    assert len({json.dumps(line) for line in data["kernels"]}) == len(data["kernels"])


def test_more_sequences_are_more_work_and_more_memory():
    one, four = (LLAMA.segment("layer", "backward", 1, n) for n in (1, 4))
    operations = [
        sum(part.operations for step in segment.steps for part in step.parts)
        for segment in (one, four)
    ]
    assert operations[1] == pytest.approx(4 * operations[0], rel=1e-6)
    assert four.gradients == one.gradients  # of parameters
    assert four.kept == pytest.approx(4 * one.kept, rel=1e-3)


# ------------------------------------------------------------------ schedules


@pytest.mark.parametrize("ranks, stages", [(2, 1), (4, 1), (2, 2), (4, 3)])
@pytest.mark.parametrize("schedule", ["1F1B", "GPipe", "interleaved"])
def test_every_microbatch_goes_through_every_stage_and_what_is_sent_is_received(
    schedule, ranks, stages
):
    if (schedule == "interleaved") != (stages > 1):
        return
    batches, sent, received = 8, set(), set()
    for rank in range(ranks):
        steps = steps_of(schedule, rank, ranks, stages, batches)
        actions = [step for step in steps if isinstance(step, Action)]
        for kind in (FORWARD, BACKWARD):
            found = {(a.stage, a.batch) for a in actions if a.kind == kind}
            numbers = range(rank, ranks * stages, ranks)
            assert found == {(n, i) for n in numbers for i in range(batches)}
        for number in range(rank, ranks * stages, ranks):
            for batch in range(batches):
                order = [a.kind for a in actions if a[1:] == (number, batch)]
                assert order.index(FORWARD) < order.index(BACKWARD)
        sent |= {("F", a.stage + 1, a.batch) for a in actions if a.kind == SEND_FORWARD}
        sent |= {
            ("B", a.stage - 1, a.batch) for a in actions if a.kind == SEND_BACKWARD
        }
        received |= {
            ("F", a.stage, a.batch) for a in actions if a.kind == RECEIVE_FORWARD
        }
        received |= {
            ("B", a.stage, a.batch) for a in actions if a.kind == RECEIVE_BACKWARD
        }
        asked = [a for a in actions if "send" in a.kind or "receive" in a.kind]
        waited = [a for step in steps if isinstance(step, Wait) for a in step.actions]
        assert sorted(asked) == sorted(waited)
    assert sent == received
    assert len(sent) == 2 * (ranks * stages - 1) * batches


def bubble(microbatches: int, **options) -> float:
    """Return the bubble of a middle rank, which has only layers."""
    plan = Plan(pipeline=4, microbatches=microbatches, checkpoint="full", **options)
    outcome = simulate(LLAMA.with_layers(16), plan, Machine(1, 4))
    spent = outcome.spent[1]
    return 1 - sum(
        time for what, time in spent.items() if what not in (PIPELINE,)
    ) / sum(spent.values())


@pytest.mark.parametrize("schedule", ["1F1B", "GPipe"])
def test_more_microbatches_make_a_smaller_bubble(schedule):
    found = [bubble(n, schedule=schedule, zero=1) for n in (4, 8, 16, 32)]
    assert found == sorted(found, reverse=True)


def test_an_interleaved_schedule_has_a_smaller_bubble():
    plain = bubble(8, zero=1)
    assert bubble(8, schedule="interleaved", stages=4, zero=1) < plain


def test_the_bubble_is_as_large_as_the_stages_say():
    # All stages alike would wait for (p - 1) / (m + p - 1) of the step (Y. Huang and
    # others, GPipe, 2019). The last one also has the head, so compare what it waits.
    p, m = 4, 16
    plan = Plan(pipeline=p, microbatches=m, checkpoint="full", zero=1)
    network = recordings.model("Llama 3.1 70B")  # the head is small beside the layers
    machine = Machine(1, 4, memory="1000GiB")
    outcome = simulate(network, plan, machine)
    last = outcome.spent[-1]
    busy = sum(time for what, time in last.items() if what != PIPELINE)
    assert 1 - busy / outcome.seconds == pytest.approx((p - 1) / (m + p - 1), abs=0.03)


# ------------------------------------------------------------------ memory


def test_memory_falls_with_shards():
    found = [
        simulate(SMALL, Plan(shards=n, replicas=8 // n), NODE).memory[0]
        for n in (1, 2, 4, 8)
    ]
    totals = [sum(memory.values()) for memory in found]
    assert totals == sorted(totals, reverse=True)
    for n, memory in zip((1, 2, 4, 8), found, strict=True):
        numbers = SMALL.parameters / n
        assert memory[PARAMETERS] == pytest.approx(4 * numbers, rel=1e-3)
        assert memory[STATE] == pytest.approx(8 * numbers, rel=1e-3)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_each_stage_of_zero_keeps_less(zero):
    if zero == 1:
        return
    before, after = (
        simulate(SMALL, Plan(shards=8, microbatches=4, zero=z), NODE).allocated
        for z in (zero - 1, zero)
    )
    assert after < before


def test_checkpoints_save_memory_and_cost_time():
    none, selective, full = (
        simulate(SMALL, Plan(shards=8, checkpoint=kind), NODE)
        for kind in ("none", "selective", "full")
    )
    assert none.allocated > selective.allocated > full.allocated
    assert none.seconds < selective.seconds < full.seconds
    assert none.twice == 0 < selective.twice < full.twice


@pytest.mark.parametrize(
    "plan",
    [
        Plan(shards=8, microbatches=3),
        Plan(shards=8, microbatches=3, zero=1),
        Plan(shards=2, tensor=2, replicas=2, microbatches=2, zero=2),
        Plan(pipeline=2, tensor=2, shards=2, microbatches=4),
        Plan(pipeline=4, shards=2, microbatches=4, schedule="GPipe", zero=1),
        Plan(
            *(2, 2, 2, 1, 4, 1, "full", "interleaved", 2, 3),
        ),
    ],
    ids=str,
)
def test_after_a_step_memory_is_as_before(plan):
    setting = Setting(SMALL, plan, NODE.prices)
    for rank in _composed(setting, NODE, 2, False):
        left = {what: n for what, n in rank.memory.now.items() if n}
        assert left.keys() == {PARAMETERS, STATE, BUFFERS}


def test_what_does_not_fit_says_which_rank_and_by_how_much():
    plan = Plan(pipeline=2, shards=4, microbatches=4, zero=1)
    fits = simulate(SMALL, plan, NODE)
    assert fits.fits and not fits.reason
    place = max((0, 1), key=lambda i: sum(fits.memory[i].values()))
    small = simulate(SMALL, plan, replace(NODE, memory=fits.allocated - 2**30))
    assert not small.fits
    assert f"Rank {place} of the pipeline needs" in small.reason
    assert "1.00 GiB more than there is" in small.reason or "1024" in small.reason
    assert small.seconds == fits.seconds  # it can still be asked for


# ------------------------------------------------------------------ communication


def sent(plan: Plan, purpose: str, machine: Machine = NODE) -> int:
    """Return the bytes that a rank sends over links for a purpose in a step."""
    setting, total = Setting(SMALL, plan, machine.prices), 0
    for meeting in _composed(setting, machine, 1, False)[0].clock.meetings():
        if f"for {purpose}" in meeting.name:
            found = nccl.estimate(
                *(meeting.kind, meeting.size, meeting.ranks, machine.fabric),
                machine.processor,
            )
            total += found.sent
    return total


def test_gathering_again_sends_half_as_much_again():
    # S. Rajbhandari and others, ZeRO (2020), section 7.2: parameters are gathered twice
    # and gradients reduced once. Here gradients have twice the bytes of parameters.
    once, again = (sent(Plan(shards=8, zero=z), "parameters") for z in (2, 3))
    layers = SMALL.shape.layers * sum(x.numbers for x in SMALL.sizes("layer", 1))
    assert again - once == pytest.approx(2 * layers * 7 / 8, rel=1e-3)
    gradients = sent(Plan(shards=8), "gradients")
    assert gradients == pytest.approx(4 * SMALL.parameters * 7 / 8, rel=1e-3)


def test_gradients_are_reduced_once_or_after_each_microbatch():
    once, each = (
        sent(Plan(shards=8, microbatches=4, zero=z), "gradients") for z in (1, 2)
    )
    assert each == 4 * once


def test_tensor_parallelism_over_the_network_is_slower_and_says_so():
    plan = Plan(tensor=8, shards=8, checkpoint="full")
    inside = simulate(SMALL, plan, Machine(8, 8, network="NDR"))
    across = simulate(SMALL, plan, Machine(32, 2, network="NDR"))
    assert across.seconds > 1.2 * inside.seconds
    assert "over the network" in across.limits


# ------------------------------------------------------------------ results


@pytest.mark.parametrize(
    "plan",
    [
        Plan(shards=8),
        Plan(shards=4, tensor=2, checkpoint="full", microbatches=2),
        Plan(pipeline=2, shards=2, tensor=2, microbatches=4),
    ],
    ids=str,
)
def test_second_calls_are_equal_and_times_add_up(plan):
    one, two = simulate(SMALL, plan, NODE), simulate(SMALL, plan, Machine())
    assert one.seconds == two.seconds
    assert one.memory == two.memory
    assert one.spent == two.spent
    for found in one.spent:
        assert sum(found.values()) == pytest.approx(one.seconds, rel=0.01)
    assert repr(one) == repr(two)
    path = str(one.critical_path())
    assert path == str(one.critical_path())
    assert "computing" in path
    assert one.timeline().seconds == pytest.approx(one.seconds, rel=0.01)
    assert f"rank {one.ranks[-1]}" in repr(one.timeline())


def test_rates_follow_from_the_step():
    plan = Plan(shards=8, microbatches=2, sequences=3)
    outcome = simulate(SMALL, plan, NODE)
    assert plan.batch == 48
    assert outcome.tokens == 48 * 8192
    assert outcome.tokens_per_second == outcome.tokens / outcome.seconds
    assert 0 < outcome.mfu < outcome.spent[0][COMPUTING] / outcome.seconds < 1


def test_a_slow_network_limits_sharding_and_the_sentence_says_it():
    slow = Machine(8, 1, network="Ethernet 25")
    outcome = simulate(SMALL, Plan(shards=8), slow)
    assert outcome.seconds > 3 * simulate(SMALL, Plan(shards=8), NODE).seconds
    assert outcome.limits.startswith(("Gathering", "Reducing"))
    fast = simulate(LLAMA, Plan(shards=8, sequences=2, checkpoint="full"), NODE)
    assert fast.limits.startswith("Computing takes")
    assert "second time" in fast.limits


def test_a_search_sorts_and_explains_what_does_not_fit():
    machine = replace(NODE, memory="30GiB")
    found = search(SMALL, machine, 16, zero=(2, 3), checkpoint=("none", "full"))
    fitting = [each for each in found if each.fits]
    others = list(found)[len(fitting) :]
    assert fitting and others
    assert [x.seconds for x in fitting] == sorted(x.seconds for x in fitting)
    assert found.best is fitting[0]
    assert all(not each.fits and each.reason for each in others)
    assert all(each.plan.batch == 16 for each in found)
    assert len({each.plan for each in found}) == len(found)
    table = repr(found)
    assert f"{len(fitting)} of {len(found)} plans fit" in table
    assert str(found[0].plan) in table and found[0].limits in table


def test_a_grid_has_only_plans_that_fit_together():
    plans = list(grid(LLAMA, NODES, 128))
    assert plans
    for plan in plans:
        assert (plan.gpus, plan.batch) == (64, 128)
        assert LLAMA.shape.layers % (plan.pipeline * plan.stages) == 0
    with pytest.raises(ValueError, match="No plan of the grid fits"):
        search(LLAMA, NODE, 7, shards=(8,))


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: Plan(pipeline=0), "pipeline must be at least 1"),
        (lambda: Plan(tensor=2.0), "tensor must be an integer"),
        (lambda: Plan(checkpoint="ful"), "checkpoint 'ful' .did you mean 'full'"),
        (lambda: Plan(schedule="2F2B"), "There is no schedule '2F2B'"),
        (lambda: Plan(zero=4), "zero must be 1, 2 or 3"),
        (lambda: Plan(pipeline=2, microbatches=4, zero=2), "zero=2 would be the same"),
        (lambda: Plan(pipeline=4, microbatches=2), "at least as many microbatches"),
        (lambda: Plan(stages=2), "Only an interleaved schedule"),
        (lambda: Plan(schedule="interleaved"), "needs a pipeline of at least 2 ranks"),
        (lambda: Machine(0), "at least 1"),
        (lambda: Machine(model="H1000"), "did you mean 'H100'"),
        (lambda: Machine(2, network="NDX"), "did you mean 'NDR'"),
        (lambda: recordings.model("Llama 3.1 7B"), "did you mean 'Llama 3.1 70B'"),
        (lambda: simulate(LLAMA, Plan(shards=4), NODE), "= 4 GPUs .*machine has 8"),
        (
            lambda: simulate(LLAMA, Plan(pipeline=3, microbatches=3), Machine(1, 3)),
            "32 layers, which can't be divided evenly over 3 stages",
        ),
        (
            lambda: simulate("GPT-2 124M", Plan(tensor=8), NODE),
            "recorded for tensor=1, not 8",
        ),
    ],
)
def test_what_does_not_fit_together_raises_with_a_sentence(make, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        make()


@pytest.mark.parametrize(
    "plan",
    [
        Plan(tensor=4, shards=2, microbatches=2, checkpoint="full"),
        Plan(pipeline=2, tensor=2, shards=2, microbatches=3, zero=1),
    ],
    ids=str,
)
def test_a_segment_at_once_takes_as_long_as_step_by_step(plan, monkeypatch):
    at_once = simulate(SMALL, plan, Machine())
    drawn = str(at_once.critical_path())
    monkeypatch.setattr(Stretch, "known", lambda self, *_: self)
    step_by_step = simulate(SMALL, plan, Machine())
    assert step_by_step.seconds == at_once.seconds  # to the picosecond
    assert step_by_step.spent == at_once.spent
    assert str(step_by_step.critical_path()) == drawn
