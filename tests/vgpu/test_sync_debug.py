"""Where the host waits for a device, as a program asks to be told."""

import warnings
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.virtual_gpus(2)

WAITING = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x[0]),
    "a condition": lambda x: bool(x[0] > 0),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "to the host": lambda x: x.to("cpu"),
    "from the host": lambda x: torch.ones(4).to("vgpu:1"),
    "copy_": lambda x: x.copy_(torch.ones(4)),
    "nonzero": lambda x: x.nonzero(),
    "a mask": lambda x: x[x > 1],
    "a mask that is written": lambda x: x.__setitem__(x > 1, torch.ones(2).to(x, True)),
    "printing": str,
}
NOT_WAITING = {
    "arithmetic": lambda x: x * 2 + x.sum(),
    "to another device": lambda x: x.to("vgpu:0"),
    "in the background": lambda x: x.to("cpu", non_blocking=True),
    "pinned": lambda x: torch.ones(4).pin_memory().to("vgpu:1", non_blocking=True),
    "synchronize": lambda x: torch.vgpu.synchronize(1),
    "where": lambda x: torch.where(x > 1, x, 0),
}


@pytest.fixture
def x():
    yield torch.arange(4.0, device="vgpu:1")
    torch.vgpu.set_sync_debug_mode("default")


@pytest.mark.parametrize("call", WAITING.values(), ids=WAITING)
def test_a_warning_names_the_line_where_the_host_waits(x, call):
    torch.vgpu.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(x)
    assert caught
    for warning in caught:
        assert "synchronizing operation: the host waits for vgpu:1" in str(warning)
        assert Path(warning.filename) == Path(__file__)


@pytest.mark.parametrize("call", WAITING.values(), ids=WAITING)
def test_an_error_comes_before_anything_is_done(x, call):
    torch.vgpu.set_sync_debug_mode(2)
    with pytest.raises(RuntimeError, match="the host waits for vgpu:1"):
        call(x)
    torch.vgpu.set_sync_debug_mode("default")
    assert x.tolist() == [0, 1, 2, 3]
    call(x)


@pytest.mark.parametrize("call", NOT_WAITING.values(), ids=NOT_WAITING)
def test_nothing_is_said_where_the_host_goes_on_or_was_asked_to_wait(x, call):
    torch.vgpu.set_sync_debug_mode("error")
    call(x)


@pytest.mark.parametrize(
    ("name", "number"), [("default", 0), ("warn", 1), ("error", 2)]
)
def test_modes_have_names_and_numbers(x, name, number):
    for mode in (name, number):
        torch.vgpu.set_sync_debug_mode(mode)
        assert torch.vgpu.get_sync_debug_mode() == number
    with pytest.raises(RuntimeError, match="expected one of"):
        torch.vgpu.set_sync_debug_mode("loud")
    assert torch.vgpu.get_sync_debug_mode() == number
