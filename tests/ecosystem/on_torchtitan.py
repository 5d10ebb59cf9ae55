"""torchtitan's debug model, sharded over two GPUs."""

import json
import os
import runpy
import sys

import torch.distributed as dist

from tests.ecosystem.support import folder, main, source, torchrun

SOURCE = "torchtitan"
NEEDS = ("torch", "grain", "datasets", "spmd_types", "torch_checkpointing", "tyro")
LIMIT = 300
OPTIONS = (
    "--module=llama3",
    "--config=llama3_debugmodel",
    "--training.steps=3",
    "--training.disable_cuda_graphs",
    "--training.num_tokens_per_microbatch_per_dp_rank=512",
    "--training.max_context_length=256",
    "--parallelism.spmd_backend=partial_dtensor",
    "--checkpoint.enable",
    "--checkpoint.interval=3",
)


def check_its_debug_model_trains():
    """llama3_debugmodel trains three steps by FSDP, and is saved."""
    with folder() as out:
        assets = out / "tests" / "assets"
        (assets / "c4_test").mkdir(parents=True)
        (assets / "tokenizer").symlink_to(source(SOURCE) / "tests/assets/tokenizer")
        text = json.dumps({"text": "the quick brown fox " * 200})
        (assets / "c4_test" / "data.json").write_text(f"{text}\n" * 200)
        os.chdir(out)
        torchrun(rank_trains)
        assert any(out.rglob("step-3")), list(out.rglob("*"))


def rank_trains():
    # This commit was made for a later PyTorch, which has one more function.
    if not hasattr(dist, "set_timeout"):
        dist.set_timeout = lambda *args, **options: None
    sys.path.insert(0, str(source(SOURCE)))
    sys.argv[1:] = OPTIONS
    runpy.run_module("torchtitan.train", run_name="__main__")


if __name__ == "__main__":
    main(globals())
