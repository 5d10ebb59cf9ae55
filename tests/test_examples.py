"""The example that explains virtual GPUs does what it prints and what it promises.

It registers a device type, of which a process can have one of this kind only, so it
runs in processes of its own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.fresh_process import NO_GPUS
from tests.helpers.paths import PROGRAMS, REPOSITORY
from tests.helpers.waiting import PATIENCE

EXAMPLE = REPOSITORY / "examples" / "tiny_device.py"
SCRIPT = PROGRAMS / "examples" / "tiny_device_promises.py"
PROMISES = (
    "it_needs_nothing_of_this_project",
    "mixing_devices_is_an_error",
    "cpu_scalars_and_copies_cross_devices",
    "factories_make_tensors_on_the_device",
    "values_are_those_of_the_cpu",
    "gradients_are_those_of_the_cpu",
    "an_operator_in_place_returns_the_same_object",
    "a_view_shares_memory",
    "modules_keep_their_parameters",
    "training_is_that_of_the_cpu",
    "memory_is_counted_and_freed",
    "what_it_cannot_do_is_an_error",
)


def run(path: Path) -> subprocess.CompletedProcess:
    """Run a file in a Python of its own, which finds the example as a module."""
    environment = os.environ | NO_GPUS | {"PYTHONPATH": str(EXAMPLE.parent)}
    return subprocess.run(
        [sys.executable, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_it_prints_what_happens():
    done = run(EXAMPLE)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "tensor([[1., 1., 1.],",
        "        [1., 1., 1.]], device='tiny:1')",
        "tensor(6., device='tiny:1')",
        "Expected all tensors to be on the same device, but found at least two "
        "devices, tiny:1 and tiny:0!",
    ]
    assert lines[-1] == "memory on tiny:1: 24 bytes"
    on_cpu, on_tiny = lines[4:7], lines[7:10]
    assert all(", gradient tensor([[" in line for line in on_cpu)
    assert on_tiny == [
        f"{line[:-1]}, device='tiny:0')".replace("cpu:", "tiny:0:") for line in on_cpu
    ]
    losses = [float(line.split()[2].rstrip(",")) for line in on_cpu]
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 3
    assert len(lines) == 11


@pytest.fixture(scope="module")
def promises() -> subprocess.CompletedProcess:
    return run(SCRIPT)


@pytest.mark.parametrize("promise", PROMISES)
def test_it_keeps_its_promise(promise, promises):
    assert promise in promises.stdout.splitlines(), promises.stderr


def test_all_promises_are_asked_for(promises):
    assert promises.stdout.splitlines() == list(PROMISES)
    assert (promises.returncode, promises.stderr) == (0, "")


def test_it_stays_a_page():
    assert len(EXAMPLE.read_text("utf-8").splitlines()) <= 120
