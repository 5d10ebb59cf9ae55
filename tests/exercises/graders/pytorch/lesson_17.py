from dataclasses import replace

from d2l_gpu.vgpu.sim.plans import Plan
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

# ------------------------------------------------------------------ 17.1

PUBLISHED = Plan(tensor=8, shards=32, sequences=16, checkpoint="full")

right("17.1")(Plan(tensor=2, shards=128, microbatches=4, checkpoint="selective"))
wrong("17.1", "tensor parallelism inside a node")(PUBLISHED)
wrong("17.1", "= 128")(replace(PUBLISHED, tensor=4))
wrong("17.1", "must have 512 sequences")(replace(PUBLISHED, sequences=32))
wrong("17.1", "GiB more than there is")(replace(PUBLISHED, checkpoint="none"))
wrong("17.1", "Computing takes")(
    Plan(tensor=2, shards=128, sequences=4, checkpoint="full")
)

# ------------------------------------------------------------------ 17.2

HALF = Plan(tensor=2, shards=32, microbatches=2, checkpoint="full")

right("17.2")(HALF)
wrong("17.2", "The largest part is for activations")(Plan(shards=64, checkpoint="full"))
wrong("17.2", "Computing takes 83%")(
    Plan(tensor=4, shards=16, microbatches=4, checkpoint="full")
)
wrong("17.2", "tensor parallelism inside a node")(
    Plan(tensor=8, shards=8, microbatches=8, checkpoint="full")
)
wrong("17.2", "= 16")(Plan(tensor=2, shards=8, microbatches=8, checkpoint="full"))
wrong("17.2", "80 layers, which can't be divided evenly over 64")(
    Plan(pipeline=64, microbatches=64)
)

# ------------------------------------------------------------------ 17.3

STAGES = Plan(pipeline=4, tensor=4, shards=2, microbatches=32)

right("17.3")(STAGES)
wrong("17.3", "Gathering parameters takes longer")(
    Plan(shards=32, sequences=2, checkpoint="full")
)
wrong("17.3", "tensor parallelism inside a node")(
    Plan(pipeline=4, tensor=8, microbatches=64)
)
wrong("17.3", "Waiting for other stages")(
    Plan(pipeline=4, tensor=2, shards=4, microbatches=16, checkpoint="full", zero=1)
)
wrong("17.3", "must have 64 sequences")(replace(STAGES, microbatches=16))

# ------------------------------------------------------------------ 17.4

FOUR = Plan(
    pipeline=8,
    tensor=4,
    shards=32,
    microbatches=16,
    checkpoint="selective",
    schedule="interleaved",
    stages=2,
    zero=1,
)

right("17.4")(replace(FOUR, tensor=2, shards=64, microbatches=8))
wrong("17.4", "the pipeline's bubble, takes 40%")(
    replace(FOUR, schedule="1F1B", stages=1)
)
wrong("17.4", "Gathering parameters takes longer")(
    Plan(tensor=8, shards=128, sequences=4, checkpoint="full")
)
wrong("17.4", "= 512")(replace(FOUR, shards=16, microbatches=32))
wrong("17.4", "must have 512 sequences")(replace(FOUR, microbatches=8))
