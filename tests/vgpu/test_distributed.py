"""Training on virtual GPUs of several processes, started as users start them."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from tests.helpers.ranks import run

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or not torch.distributed.is_available(),
    reason="needs torch.distributed with gloo",
)

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def check(*command: str) -> subprocess.CompletedProcess:
    done = run(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    # PyTorch 2.10 lets gloo say on stdout that it is connected.
    lines = [line for line in done.stdout.splitlines() if "[Gloo]" not in line]
    # The line of use_virtual_gpus comes from each rank.
    assert [line for line in lines if not line.startswith("Using ")] == ["done"]
    return done


@pytest.mark.all
@pytest.mark.parametrize("backend", ["gloo", "default", "device_id"])
def test_collectives(backend):
    check(*TORCHRUN, "collectives.py", backend)


@pytest.mark.all
def test_nccl_computes_what_it_is_to_compute_in_ranks_that_torchrun_starts():
    check("-m", "d2l_gpu.vgpu", *TORCHRUN, "nccl.py")


@pytest.mark.all
def test_random_dtensors_differ_by_shard_and_are_repeated_by_seeds():
    check(*TORCHRUN, "random_dtensors.py")
    check(*TORCHRUN[:-1], "4", "random_dtensors_in_a_square.py")


@pytest.mark.all
def test_attention_over_a_split_sequence_is_that_over_the_whole():
    check(*TORCHRUN, "context_parallel.py")


def test_training_on_two_ranks_is_training_on_the_whole_batch():
    check(*TORCHRUN, "data_parallel.py")


@pytest.mark.all
def test_ten_steps_on_two_ranks_are_those_on_the_whole_batch_to_twelve_digits():
    done = check(*TORCHRUN, "ten_steps.py")
    assert "Warning" not in done.stderr  # DDP keeps statistics from the tenth step on


@pytest.mark.all
def test_processes_started_by_torch_multiprocessing():
    check("spawned.py")


@pytest.mark.all
def test_a_rank_that_fails_ends_the_others_and_says_why():
    done = run(*TORCHRUN, "failing.py")
    assert done.returncode != 0
    assert "vgpu out of memory. Tried to allocate 2.00 MiB." in done.stderr
    assert "the other rank" not in done.stdout


@pytest.mark.virtual_gpus(2)
@pytest.mark.parametrize("shared", [False, True])
def test_a_checkpoint_is_staged_with_what_shares_memory(shared):
    from torch.distributed.checkpoint._state_dict_stager import StateDictStager

    stager = StateDictStager(pin_memory=False, share_memory=shared)
    X = torch.arange(12.0, device="vgpu:1")
    state = {
        "whole": X,
        "parts": [X[3:5], X.view(3, 4).t(), nn.Parameter(X[6:])],
        "others": [torch.full((i,), float(i), device="vgpu:0") for i in range(9)],
        "here": torch.ones(2),
    }
    for sign in 1, -1:  # the second time too
        staged = stager.stage(state)
        expected = [x.tolist() for x in tree_leaves(state)]
        X.neg_()
        copies = tree_leaves(staged)
        assert {x.device.type for x in copies} == {"cpu"}
        assert [x.tolist() for x in copies] == expected
        staged["whole"].zero_()
        assert all(not x.any() for x in staged["parts"])
        assert X[1] == -sign
    stager.close()
