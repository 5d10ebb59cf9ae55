from dataclasses import replace

from d2l_gpu.vgpu.sim.plans import Machine, Plan, simulate
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

DAY = 24 * 3600

# ------------------------------------------------------------------ 15.1


def operations(depth, width, parameters, length):
    return 6 * parameters + 12 * depth * width * length


@right("15.1")
def pass_by_pass(depth, width, parameters, tokens, length, gpus, peak, mfu):
    forward = 2 * parameters + 4 * length * width * depth
    speed = mfu * peak * gpus
    return 3 * forward * tokens / speed / DAY


@wrong("15.1", "You leave out attention")
def forgets_attention(depth, width, parameters, tokens, length, gpus, peak, mfu):
    return 6 * parameters * tokens / (gpus * peak * mfu) / DAY


@wrong("15.1", "only the forward pass")
def forgets_backward(*run):
    return pass_by_pass(*run) / 3


@wrong("15.1", "ran at their peak")
def forgets_the_mfu(*run):
    return pass_by_pass(*run[:-1], 1)


@wrong("15.1", "of a single GPU")
def forgets_the_gpus(depth, width, parameters, tokens, length, gpus, peak, mfu):
    return pass_by_pass(depth, width, parameters, tokens, length, 1, peak, mfu)


@wrong("15.1", "Those are seconds")
def in_seconds(*run):
    return pass_by_pass(*run) * DAY


@wrong("15.1", "Those are hours")
def in_hours(*run):
    return pass_by_pass(*run) * 24


@wrong("15.1", "half of attention's operations")
def halves_attention(depth, width, parameters, tokens, length, gpus, peak, mfu):
    work = operations(depth, width, parameters, length / 2)
    return work * tokens / (gpus * peak * mfu) / DAY


@wrong("15.1", "instead of")
def takes_all_blocks_for_one(depth, width, n, tokens, s, g, peak, mfu):
    work = operations(depth, depth * width, n, s)
    return work * tokens / (g * peak * mfu) / DAY


# ------------------------------------------------------------------ 15.2


def found(n, tokens, seconds, world_size, peak):
    return 6 * n * tokens / seconds / world_size / peak


@right("15.2")
def by_replica(n, sequences, length, accumulation, world, tensor, pipeline, s, peak):
    tokens = sequences * length * accumulation  # of a replica
    return 6 * n * tokens / (s * peak * tensor * pipeline)


@wrong("15.2", "once for each GPU")
def as_it_was(n, sequences, length, accumulation, world, tensor, pipeline, s, peak):
    return found(n, sequences * length * accumulation * world, s, world, peak)


@wrong("15.2", "tensor-parallel GPUs")
def forgets_tensor(n, sequences, length, a, world, tensor, pipeline, s, peak):
    return found(n, sequences * length * a * (world // pipeline), s, world, peak)


@wrong("15.2", "stages of a pipeline")
def forgets_pipeline(n, sequences, length, a, world, tensor, pipeline, s, peak):
    return found(n, sequences * length * a * (world // tensor), s, world, peak)


@wrong("15.2", "of a single pipeline")
def one_replica(n, sequences, length, a, world, tensor, pipeline, s, peak):
    return found(n, sequences * length * a, s, world, peak)


@wrong("15.2", "all microbatches but one")
def one_microbatch(*step):
    return by_replica(*step[:3], 1, *step[4:])


@wrong("15.2", "Those are percent")
def in_percent(*step):
    return 100 * by_replica(*step)


@wrong("15.2", "instead of")
def forgets_backward_passes(*step):
    return by_replica(*step) / 3


# ------------------------------------------------------------------ 15.3


@right("15.3")
def less_tensor_parallelism(plan):
    return Plan(
        pipeline=8, tensor=2, shards=4, microbatches=32, checkpoint="full", zero=1
    )


@wrong("15.3", "times as fast. Gathering parameters")
def no_pipeline(plan):
    return Plan(tensor=8, shards=8, sequences=16, checkpoint="full")


@wrong("15.3", "times as fast. Waiting for other stages")
def as_planned(plan):
    return plan


@wrong("15.3", "times as fast. Gathering parameters")
def shards_over_the_network(plan):
    return Plan(shards=64, sequences=2, checkpoint="full")


@wrong("15.3", "it has 8")
def drops_sequences(plan):
    return replace(plan, sequences=1)


@wrong("15.3", "GPUs.")
def drops_gpus(plan):
    return replace(plan, tensor=4)


@wrong("15.3", "more than there is")
def keeps_activations(plan):
    return replace(plan, microbatches=32, sequences=4, checkpoint="none")


@wrong("15.3", "can't be divided evenly")
def seven_stages(plan):
    return Plan(pipeline=64, microbatches=128, checkpoint="full")


# ------------------------------------------------------------------ 15.4


def shard(nodes, checkpoint="selective", batch=256):
    gpus = 8 * nodes
    return Plan(shards=gpus, microbatches=batch // gpus, checkpoint=checkpoint)


def speed(nodes, plan):
    return simulate(
        "Llama 3.1 8B", plan, Machine(nodes, 8, "A100 80GB")
    ).tokens_per_second


def search_nodes(tokens, days, plan_for, numbers=(1, 2, 4, 8, 16)):
    for nodes in numbers:
        plan = plan_for(nodes)
        if tokens / speed(nodes, plan) <= days * DAY:
            return nodes, plan
    return None


@right("15.4")
def with_selective_checkpoints(tokens, days):
    return search_nodes(tokens, days, shard)


@wrong("15.4", "Fewer nodes than your 16")
def as_many_as_there_are(tokens, days):
    return 16, shard(16)


@wrong("15.4", "With 1 node(s) and your plan, it takes")
def a_single_node(tokens, days):
    return 1, shard(1)


@wrong("15.4", "more than there is")
def without_checkpoints_or_shards(tokens, days):
    return 4, Plan(replicas=32, microbatches=8)


@wrong("15.4", "It has 32.")
def another_batch(tokens, days):
    return 4, Plan(shards=32, checkpoint="selective")


@wrong("15.4", "What it returns is None")
def gives_up(tokens, days):
    return with_selective_checkpoints(tokens, days) if days > 2 else None


@wrong("15.4", "of type Plan")
def forgets_the_nodes(tokens, days):
    return shard(4)


@wrong("15.4", "It chooses 32.")
def more_than_there_are(tokens, days):
    return 32, shard(32)


@wrong("15.4", "GPUs (pipeline × tensor × shards × replicas)")
def for_another_machine(tokens, days):
    return 8, shard(4)


# ------------------------------------------------------------------ 15.5


@right("15.5")
def in_one_loop(seconds, critical, waste):
    best, shortest = None, float("inf")
    for batch, each in sorted(seconds.items()):
        time = each * (batch + critical) / batch
        if batch <= (waste - 1) * critical and time < shortest:
            best, shortest = batch, time
    return best


def choose(seconds, allowed, time):
    return min(filter(allowed, seconds), key=time, default=None)


@wrong("15.5", "the largest batch that's allowed")
def the_largest(seconds, critical, waste):
    return choose(seconds, lambda b: 1 + b / critical <= waste, lambda b: -b)


@wrong("15.5", "whose steps are shortest")
def the_shortest_step(seconds, critical, waste):
    return choose(seconds, lambda b: 1 + b / critical <= waste, seconds.get)


@wrong("15.5", "processes tokens fastest")
def the_most_tokens_per_second(seconds, critical, waste):
    return choose(
        seconds, lambda b: 1 + b / critical <= waste, lambda b: seconds[b] / b
    )


def time_of(seconds, critical):
    return lambda b: (1 + critical / b) * seconds[b]


@wrong("15.5", "how many tokens a batch wastes")
def at_any_price(seconds, critical, waste):
    return choose(seconds, lambda b: True, time_of(seconds, critical))


@wrong("15.5", "You allow too much")
def forgets_the_one(seconds, critical, waste):
    return choose(seconds, lambda b: b / critical <= waste, time_of(seconds, critical))


@wrong("15.5", "instead of")
def swaps_the_formulas(seconds, critical, waste):
    return choose(
        seconds,
        lambda b: 1 + critical / b <= waste,
        lambda b: (1 + b / critical) * seconds[b],
    )
