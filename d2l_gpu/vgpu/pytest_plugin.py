"""Virtual GPUs in pytest: test code for several GPUs on any machine.

    @pytest.mark.virtual_gpus(4, memory='1GiB')
    def test_every_device_adds_its_part(virtual_gpus):
        parts = [torch.ones(2, device=device) for device in virtual_gpus]
        total = sum(part.to(virtual_gpus[0]) for part in parts)
        assert total.tolist() == [4, 4]

You don't need to import or configure anything: pytest finds this plugin wherever
d2l-gpu is installed. Each test has the devices to itself, with no tensors on them and
all counts at zero. The fixture without the marker gives two devices. The marker without
the fixture is enough if a test doesn't need their names, and can also mark a class or a
module. With ``as_cuda=True`` the devices answer to ``cuda:0`` … as well. A fixture that
puts tensors on the devices must request ``virtual_gpus`` too, which makes it one for a
single test (scope ``function``).
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from d2l_gpu import vgpu

from .sim.machine import Machine

if TYPE_CHECKING:  # pytest always loads this file, so it must not import torch
    import torch

NAME = "virtual_gpus"
SIGNATURE = f"{NAME}(n=2, *, memory=None, as_cuda=False, allocator=None, model=None)"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{SIGNATURE}: run the test on n virtual GPUs, which vgpu.enable sets up with "
        "these arguments, such as memory='1GiB'.",
    )
    config.stash[_LAST] = _Last()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give tests with the marker the fixture, ahead of their other fixtures."""
    if item.get_closest_marker(NAME) and hasattr(item, "fixturenames"):
        others = [name for name in item.fixturenames if name != NAME]
        item.fixturenames = [NAME, *others]


@pytest.fixture
def virtual_gpus(request: pytest.FixtureRequest) -> "Iterator[list[torch.device]]":
    """This test's virtual GPUs, a list: two, or as ``@pytest.mark.virtual_gpus`` says.

    The test errors with one sentence if virtual GPUs can't be set up, or if tensors of
    an earlier test are still on devices that this test needs to be set up differently.
    """
    last = request.config.stash[_LAST]
    try:
        settings = _settings(request.node.get_closest_marker(NAME))
        left = _bytes_in_use()
        if left > last.left:
            last.left_since = last.test
        last.left = left
        if not left:
            vgpu.enable(**settings)
        elif vgpu.machine_in_use() is last.machine and settings == last.settings:
            problem = f"The virtual GPUs are not empty: {last.leftovers()}."
            request.node.warn(pytest.PytestWarning(problem))
            _reset_counts(last.machine)
        else:
            pytest.fail(
                "The virtual GPUs cannot be set up as this test needs them: "
                f"{last.leftovers()}.",
                pytrace=False,
            )
    except (ImportError, RuntimeError, TypeError, ValueError) as error:
        pytest.fail(str(error), pytrace=False)
    last.machine, last.settings = vgpu.machine_in_use(), settings
    last.test = request.node.nodeid
    with _same_sync_debug_mode_after():
        yield _current_devices(last.machine.count)


@dataclass
class _Last:
    """What we remember of earlier tests.

    Attributes:
        test: the last test with virtual GPUs; ``machine`` and ``settings`` were its.
        left: bytes still in use on the devices when the next test began.
        left_since: the test that last increased them.
    """

    test: str | None = None
    machine: Machine | None = None
    settings: dict | None = None
    left: int = 0
    left_since: str | None = None

    def leftovers(self) -> str:
        since = f", left by {self.left_since}" if self.left_since else ""
        return f"they still hold {self.left} bytes of tensors{since}"


_LAST = pytest.StashKey[_Last]()


def _settings(marker: pytest.Mark | None) -> dict:
    """Return the arguments of ``vgpu.enable`` that a marker asks for."""

    def settings(n=2, *, memory=None, as_cuda=False, allocator=None, model=None):
        others = {"as_cuda": as_cuda, "allocator": allocator, "model": model}
        given = {key: value for key, value in others.items() if value}
        return {"n": n, "memory": memory} | given

    if marker is None:
        return settings()
    try:
        return settings(*marker.args, **marker.kwargs)
    except TypeError as error:
        problem = str(error).partition("settings() ")[2]
        problem = problem.partition(".")[0]  # Python 3.13 adds a question
        raise TypeError(f"@pytest.mark.{SIGNATURE} {problem}.") from None


def _bytes_in_use() -> int:
    """Return the bytes that earlier tests left on the devices, garbage excluded."""
    from .devices import Devices

    if Devices.machine is None:
        return 0
    if any(Devices.machine.used):
        # Until the next test runs, pytest keeps the traceback of the last failure in
        # these, and with it the variables of the failed test.
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            sys.__dict__.pop(name, None)
        gc.collect()
    return sum(Devices.machine.used)


def _reset_counts(machine: Machine) -> None:
    for i in range(machine.count):
        machine.limit(i, 1.0)
        machine.reset_peak(i)
    machine.kernels[:] = [0] * machine.count


@contextmanager
def _same_sync_debug_mode_after() -> Iterator[None]:
    """Undo ``set_sync_debug_mode``, which is of the process and not of a machine."""
    from .sync_debug import get_sync_debug_mode, set_sync_debug_mode

    before = get_sync_debug_mode()
    yield
    set_sync_debug_mode(before)


def _current_devices(count: int) -> "list[torch.device]":
    """Return the devices, after making the first and its default stream current."""
    import torch

    for i in reversed(range(count)):
        torch.vgpu.set_stream(torch.vgpu.default_stream(i))
    # Ask a tensor what its device is called, since as_cuda changes that.
    return [torch.empty(0, device=f"vgpu:{i}").device for i in range(count)]
