"""Training that keeps checkpoints and can be killed: every part that has a state.

    recovering.py FOLDER DEVICE SECONDS [RANK:STEP:PHASE ...]

DEVICE is cpu or vgpu, SECONDS are slept in each step. The first kill happens in the
first attempt, the second after the first restart, and so on. Reported are the losses
and, in the end, a digest of all weights, of the optimizer and of the random numbers.
Beside the checkpoints lie files that tell when a rank was killed, and when training was
back.
"""

import hashlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.common.files import PART

EPOCHS, SAVE_EVERY = 3, 3

folder, kind, pause, *kills = sys.argv[1:]
rank, k = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def is_time(phase: str) -> bool:
    """Whether this rank is to be killed here."""
    return kills[attempt : attempt + 1] == [f"{rank}:{step}:{phase}"]


def die() -> None:
    Path(folder, f"killed-{attempt}").write_text(str(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)


def write_half(path, content):
    half = content.getbuffer()[: len(content.getbuffer()) // 2]
    path.with_name(f"{path.name}.{os.getpid()}{PART}").write_bytes(half)
    die()


if kind == "cpu":
    device = d2l.cpu()
else:
    d2l.use_virtual_gpus(k)
    device = d2l.gpu(rank)
if k > 1:
    dist.init_process_group("gloo")
random.seed(rank)
np.random.seed(rank)
generator = torch.Generator().manual_seed(0)
images = torch.randint(256, (90, 1, 8, 8), dtype=torch.uint8, generator=generator)
labels = torch.randint(10, (90,), generator=generator)
batches = d2l.Batches(images, labels, 20, shuffle=True, device=device).shard(rank, k)
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 4, 3),
    nn.BatchNorm2d(4),
    nn.Flatten(),
    nn.Dropout(0.5),
    nn.Linear(144, 10),
).to(device)
torch.manual_seed(rank)
if k > 1:
    net = nn.parallel.DistributedDataParallel(net, find_unused_parameters=k > 2)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
schedule = d2l.linear_schedule_with_warmup(optimizer, 3, EPOCHS * len(batches))
checkpoints = d2l.Checkpoints(folder, net, optimizer, schedule)

d2l.report(ranks=k)
step = checkpoints.resume()
print("step", step)
batches.set_epoch(*divmod(step, len(batches)))
while batches.epoch < EPOCHS:
    for (X, y), n in zip(batches, batches.batch_sizes, strict=True):
        time.sleep(float(pause))
        if is_time("start"):
            die()
        X = X + 0.1 * random.random() + 0.1 * np.random.rand()
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), y, reduction="sum") * k / n
        loss.backward()
        if attempt and rank == 0 and not Path(folder, f"back-{attempt}").exists():
            Path(folder, f"back-{attempt}").write_text(str(time.time()))
        if is_time("backward"):
            die()
        optimizer.step()
        schedule.step()
        step += 1
        d2l.report(step=step, loss=loss)
        if step % SAVE_EVERY == 0:
            if is_time("write"):
                sys.modules[
                    "d2l_gpu.torch.training.checkpoints"
                ].write_durably = write_half
            checkpoints.save(step)
            if is_time("saved"):
                die()

digest = hashlib.sha256()
# Dropout draws from the generator of the device that it runs on.
random_state = torch.get_rng_state()
if kind != "cpu":
    random_state = torch.get_device_module(device).get_rng_state(device)
state = [*net.state_dict().values(), random_state]
for values in optimizer.state_dict()["state"].values():
    state += values.values()
for tensor in state:
    digest.update(tensor.detach().cpu().numpy().tobytes())
digest.update(repr((random.random(), np.random.rand())).encode())
digests = [digest.hexdigest()]
if k > 1:
    digests *= k
    dist.all_gather_object(digests, digest.hexdigest())
    dist.destroy_process_group()
d2l.report(digests=digests)
