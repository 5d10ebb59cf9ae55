"""Plans of training a large language model on a cluster, and how fast each would be.

    from d2l_gpu.vgpu.sim.plans import Machine, Plan, model, search, simulate

    llama, machine = model('Llama 3.1 70B'), Machine(nodes=32, gpus=8, model='H100')
    simulate(llama, Plan(pipeline=4, tensor=8, shards=8, microbatches=16), machine)
    search(llama, machine, batch=128)

``vgpu.cluster`` runs a program, which takes PyTorch and seconds to minutes. Here the
kernels of a model have been recorded (``recordings``), and what ``fully_shard``,
``parallelize_module`` and ``torch.distributed.pipelining`` do with them is composed
(``plan_stages.py``, ``plan_schedules.py``). Then the same clock works it off. So a plan
takes milliseconds, and needs nothing but Python.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import product

from .catalogue import LINKS, MODELS, Link, choose
from .catalogue import Model as Processor
from .fabric import Fabric, Network, fabric_of, link_of
from .plan_commands import Prices, StageClock
from .plan_results import Outcome, Results
from .plan_schedules import SCHEDULES, rounds_of, steps_of
from .plan_stages import Rank, Setting
from .recordings import Model, model
from .units import parse_size

__all__ = [
    *("Machine", "Model", "Outcome", "Plan", "Results", "grid", "model", "search"),
    "simulate",
]

LONGEST = 8  # ranks of a pipeline that a search tries, unless it's told

CHECKPOINTS = ("none", "selective", "full")
ZERO = (1, 2, 3)


@dataclass(frozen=True)
class Plan:
    """How the training of a model is divided over GPUs.

    Ranks are numbered as in a mesh of (pipeline, replicas, shards, tensor), so GPUs
    that share a layer are next to each other. Numbers are in bf16 going forward and
    backward; parameters, their gradients once they are reduced, and AdamW's moments are
    in fp32.

    Attributes:
        pipeline: the number of ranks of a pipeline, each with some of the layers.
        tensor: the number of GPUs that share each layer, with activations between the
            layers divided by places (sequence parallelism).
        shards: the number of GPUs over which ``fully_shard`` divides parameters,
            gradients and the optimizer's state.
        replicas: how many copies of all that there are (HSDP). Gradients are summed
            over them.
        microbatches: into how many each of ``shards × replicas`` divides its part of
            the batch. Without a pipeline, they add to the gradients one by one.
        sequences: the number of sequences in a microbatch.
        checkpoint: which activations are computed again in backward: ``"none"``,
            ``"selective"`` (all but those of attention and of every second product) or
            ``"full"`` (all inside a layer).
        schedule: ``"1F1B"``, ``"GPipe"`` or ``"interleaved"``.
        stages: how many each rank of an interleaved pipeline has.
        zero: 1, 2 or 3, like the stages of ZeRO (S. Rajbhandari and others, 2020), but
            parameters are always in shards between the steps. With 1, a rank keeps
            whole gradients and parameters until the last microbatch; with 2, whole
            parameters from a forward to its backward; with 3, only those of the layers
            in use. PyTorch's pipelines keep whole gradients in any case, so they know 1
            and 3.

    Raises:
        TypeError, ValueError: something doesn't fit.
    """

    pipeline: int = 1
    tensor: int = 1
    shards: int = 1
    replicas: int = 1
    microbatches: int = 1
    sequences: int = 1
    checkpoint: str = "none"
    schedule: str = "1F1B"
    stages: int = 1
    zero: int = 3

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type not in (int, "int"):
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{field.name} must be an integer, but got {value!r}.")
            if value < 1:
                raise ValueError(f"{field.name} must be at least 1, but got {value}.")
        choose("checkpoint", self.checkpoint, CHECKPOINTS)
        choose("schedule", self.schedule, SCHEDULES)
        if self.zero not in ZERO:
            raise ValueError(f"zero must be 1, 2 or 3, but got {self.zero}.")
        self._check_pipeline()

    def _check_pipeline(self) -> None:
        if self.pipeline > 1 and self.zero == 2:
            raise ValueError(
                "A pipeline keeps whole gradients until the last microbatch, so zero=2 "
                "would be the same as zero=1: choose 1 or 3."
            )
        if self.schedule != "interleaved":
            if self.stages > 1:
                raise ValueError(
                    f"Only an interleaved schedule gives a rank {self.stages} stages: "
                    "choose schedule='interleaved', or stages=1."
                )
        elif self.pipeline == 1 or self.stages == 1:
            raise ValueError(
                "An interleaved schedule needs a pipeline of at least 2 ranks with at "
                f"least 2 stages each, but got {self.pipeline} with {self.stages}."
            )
        elif self.microbatches % rounds_of(self.pipeline, self.microbatches):
            raise ValueError(
                f"An interleaved schedule takes {self.microbatches} microbatches in "
                f"{rounds_of(self.pipeline, self.microbatches)} rounds, which must be "
                "equal: choose a multiple."
            )
        if self.schedule == "1F1B" and self.microbatches < self.pipeline > 1:
            raise ValueError(
                f"1F1B needs at least as many microbatches as stages, but got "
                f"{self.microbatches} for {self.pipeline}."
            )

    @property
    def gpus(self) -> int:
        """How many GPUs it takes."""
        return self.pipeline * self.tensor * self.shards * self.replicas

    @property
    def batch(self) -> int:
        """The sequences of a step, all GPUs together."""
        return self.shards * self.replicas * self.microbatches * self.sequences

    def __str__(self) -> str:
        """Only what isn't the default."""
        said = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"Plan({', '.join(said)})"


@dataclass(frozen=True)
class Machine:
    """A cluster; the arguments are those of ``vgpu.cluster``.

    Attributes:
        nodes: the number of nodes.
        gpus: the number of GPUs in a node.
        model: the GPU that they all are: a name in ``catalogue.MODELS``, or an entry.
        network: what connects the nodes: a name in ``fabric.NETWORKS``, such as
            ``"NDR"``.
        link: what connects the GPUs of a node; default: what's usual for the model.
        cards: the number of network cards in a node; default: one for each GPU, or as
            many as the network's source says.
        wiring: how the GPUs of a node are connected, one of ``fabric.WIRINGS``.
        memory: the capacity of a GPU, as ``"80GiB"`` or bytes; default: what the model
            has.
        algorithm: the only one that NCCL may use for all-reduces; see ``Fabric``.
    """

    nodes: int = 1
    gpus: int = 8
    model: str | Processor = "H100"
    network: str | Network | None = None
    link: str | Link | None = None
    cards: int | None = None
    wiring: str | None = None
    memory: int | str | None = None
    algorithm: str | None = None

    def __post_init__(self):
        for what, n in (("nodes", self.nodes), ("GPUs in a node", self.gpus)):
            if isinstance(n, bool) or not isinstance(n, int):
                raise TypeError(f"The number of {what} must be an integer, not {n!r}.")
            if n < 1:
                raise ValueError(f"The number of {what} must be at least 1, not {n}.")
        self.processor, self.fabric, self.capacity  # noqa: B018 (they check)

    @cached_property
    def processor(self) -> Processor:
        """The entry of the GPUs in the catalogue."""
        if isinstance(self.model, Processor):
            return self.model
        choose("model of GPU", self.model, MODELS)
        return MODELS[self.model]

    @cached_property
    def fabric(self) -> Fabric:
        """What connects the GPUs."""
        link = self.link or link_of(self.processor)
        if not isinstance(link, Link):
            choose("link", link, LINKS)
            link = LINKS[link]
        return fabric_of(
            *(self.nodes, self.gpus, self.processor, link),
            *(self.network, self.cards, self.wiring, self.algorithm),
        )

    @cached_property
    def capacity(self) -> int:
        """The bytes of a GPU's memory."""
        if self.memory is None:
            return self.processor.memory
        return parse_size(self.memory)

    @cached_property
    def prices(self) -> Prices:
        """What kernels take on the GPUs."""
        return Prices(self.processor)

    @property
    def world_size(self) -> int:
        """The number of GPUs."""
        return self.nodes * self.gpus

    def __str__(self) -> str:
        text = f"{self.world_size:,} × {self.processor.name}"
        inside = self.fabric.link.name if self.gpus > 1 else ""
        outside = ""
        if self.nodes > 1:
            outside = f"{self.fabric.cards} × {self.fabric.network.name}"
        if inside and outside:
            return f"{text}, connected by {inside} and {outside}"
        join = inside or outside
        return f"{text}, connected by {join}" if join else text


def check(network: Model, plan: Plan, machine: Machine) -> None:
    """Raise ValueError, with a sentence, unless a plan fits model and machine."""
    shape = network.shape
    if plan.gpus != machine.world_size:
        raise ValueError(
            f"The plan takes {plan.pipeline} × {plan.tensor} × {plan.shards} × "
            f"{plan.replicas} = {plan.gpus:,} GPUs (pipeline × tensor × shards × "
            f"replicas), but the machine has {machine.world_size:,}."
        )
    stages = plan.pipeline * plan.stages
    if shape.layers % stages:
        raise ValueError(
            f"{network.name} has {shape.layers} layers, which can't be divided evenly "
            f"over {stages} stages."
        )
    if plan.tensor not in network.tensor:
        known = ", ".join(map(str, network.tensor))
        raise ValueError(
            f"The layers of {network.name} were recorded for tensor={known}, not "
            f"{plan.tensor}."
        )
    choose(f"checkpoint of {network.name}", plan.checkpoint, network.checkpoints)


def simulate(network: Model | str, plan: Plan, machine: Machine) -> Outcome:
    """Simulate a step of training.

    Args:
        network: a model, or its name in ``recordings.FILES``.

    Raises:
        ValueError: the plan doesn't fit the model or the machine. If it only needs more
            memory than the GPUs have, the result says so.
    """
    if isinstance(network, str):
        network = model(network)
    check(network, plan, machine)
    setting = Setting(network, plan, machine.prices)
    return Outcome(network, plan, machine, partial(_composed, setting, machine))


def _composed(
    setting: Setting, machine: Machine, steps: int, draws: bool
) -> list[Rank]:
    """Return the ranks of a pipeline, which have issued some steps.

    Args:
        draws: whether their clocks keep what can be drawn.
    """
    plan, prices, ranks = setting.plan, machine.prices, []
    for place in range(plan.pipeline):
        clock = StageClock(prices.model, machine.fabric.link, prices.host, draws)
        clock.fabric = machine.fabric
        rank = Rank(setting, place, clock)
        clock.rank = rank.first
        does = steps_of(
            plan.schedule, place, plan.pipeline, plan.stages, plan.microbatches
        )
        for _ in range(steps):
            rank.run(does)
        clock.finish()
        ranks.append(rank)
    return ranks


# ------------------------------------------------------------------ search


def grid(
    network: Model | str,
    machine: Machine,
    batch: int,
    *,
    pipeline: Sequence[int] | None = None,
    tensor: Sequence[int] | None = None,
    shards: Sequence[int] | None = None,
    sequences: Sequence[int] = (1,),
    checkpoint: Sequence[str] | None = None,
    schedule: Sequence[tuple[str, int]] = (("1F1B", 1),),
    zero: Sequence[int] = (1, 2, 3),
) -> Iterator[Plan]:
    """Yield all plans of a grid that fit a model, a machine and a batch.

    What isn't given takes its usual values: ``pipeline`` up to 8, ``tensor`` inside a
    node, and ``shards`` over all GPUs that are left or over those of a node.
    ``replicas`` and ``microbatches`` follow from the others.

    Args:
        batch: the sequences of a step, all GPUs together.
        schedule: schedules with the number of stages of each rank. They matter only to
            pipelines.
    """
    if isinstance(network, str):
        network = model(network)
    size, layers = machine.world_size, network.shape.layers
    pipeline = pipeline or [n for n in range(1, LONGEST + 1) if layers % n == 0]
    tensor = tensor or [n for n in network.tensor if n <= machine.gpus]
    choices = (
        (ranks, width, parts, *others)
        for ranks, width in product(pipeline, tensor)
        for parts in shards or _usual_shards(machine, ranks, width)
        for others in product(
            sequences, checkpoint or network.checkpoints, schedule, zero
        )
    )
    for ranks, width, parts, each, kept, (order, stages), stage in choices:
        replicas, rest = divmod(size, ranks * width * parts)
        if rest or not replicas:
            continue
        microbatches, rest = divmod(batch, parts * replicas * each)
        if rest or not microbatches:
            continue
        # Without a pipeline all schedules are the same; with one microbatch, 1 and 2.
        if ranks == 1:
            if (order, stages) != tuple(schedule[0]):
                continue
            order, stages = "1F1B", 1
            if stage == 1 and microbatches == 1 and 2 in zero:
                continue
        try:
            plan = Plan(
                *(ranks, width, parts, replicas, microbatches, each, kept, order),
                *(stages, stage),
            )
            check(network, plan, machine)
        except ValueError:
            continue
        yield plan


def _usual_shards(machine: Machine, pipeline: int, tensor: int) -> list[int]:
    """Return over how many GPUs parameters are usually divided."""
    whole, near = machine.world_size // (pipeline * tensor), machine.gpus // tensor
    return sorted({max(1, whole), max(1, min(whole, near))})


def search(
    network: Model | str, machine: Machine, batch: int, **choices: Sequence
) -> Results:
    """Simulate all plans of a grid, and return them with the fastest first.

    Args:
        batch: the sequences of a step, all GPUs together.
        choices: other arguments of ``grid``.

    Raises:
        ValueError: no plan fits.
    """
    if isinstance(network, str):
        network = model(network)
    plans = list(grid(network, machine, batch, **choices))
    if not plans:
        raise ValueError(
            f"No plan of the grid fits {network.name}, {machine} and {batch:,} "
            "sequences in a step."
        )
    return Results([simulate(network, plan, machine) for plan in plans])
