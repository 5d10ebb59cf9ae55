"""nanoGPT, as its author wrote it: on one GPU, on two, compiled, and resumed."""

import os
import re
from pathlib import Path

import numpy as np

from tests.ecosystem.support import folder, main, program, source

SOURCE = "nanoGPT"
NEEDS = ("torch",)
SMALL = {
    "eval_interval": 10,
    "eval_iters": 2,
    "log_interval": 1,
    "block_size": 16,
    "batch_size": 8,
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 32,
    "lr_decay_iters": 20,
    "warmup_iters": 2,
    "learning_rate": 1e-2,
    "dropout": 0.0,
    "gradient_accumulation_steps": 2,
    "always_save_checkpoint": True,
}


def trained(out: Path, steps: int, ranks: int = 0, **options) -> list[float]:
    """Train on numbers that count to 60, and return the loss of each step."""
    data = out / "data"
    data.mkdir(exist_ok=True)
    for name in ("train", "val"):
        np.tile(np.arange(60), 100).astype(np.uint16).tofile(data / f"{name}.bin")
    # The program joins the data set with "data", but an absolute path stays as it is.
    options |= SMALL | {"dataset": data, "out_dir": out, "max_iters": steps}
    os.chdir(source(SOURCE))  # it reads a file of its own from there
    arguments = [f"--{name}={value}" for name, value in options.items()]
    text = program(source(SOURCE) / "train.py", *arguments, ranks=ranks)
    return [float(loss) for loss in re.findall(r"iter \d+: loss ([\d.]+)", text)]


def check_it_trains_on_one_gpu_and_goes_on_from_its_checkpoint():
    """It trains on a GPU, and a second run goes on where the first one ended."""
    with folder() as out:
        losses = trained(out, 20, compile=False)
        assert losses[-1] < losses[0] - 2, losses
        more = trained(out, 24, compile=False, init_from="resume")
        assert len(more) == 5, more
        assert more[0] < losses[0] - 2, more


def check_two_ranks_train():
    """Two ranks that torchrun starts train it by DDP with NCCL, its default."""
    with folder() as out:
        losses = trained(out, 20, compile=False, ranks=2)
        assert losses[-1] < losses[0] - 2, losses


def check_it_trains_compiled():
    """With torch.compile, which is its default, it learns as well."""
    with folder() as out:
        losses = trained(out, 6)
        assert losses[-1] < losses[0], losses


if __name__ == "__main__":
    main(globals())
