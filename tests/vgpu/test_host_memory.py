"""What this computer's memory can still give, also inside a container."""

import sys

import pytest

from d2l_gpu.vgpu import host_memory


def test_the_default_capacity_is_what_the_host_can_give(monkeypatch):
    monkeypatch.setattr(host_memory, "host_memory_left", lambda: 2**33)
    assert host_memory.default_capacity(2) == 4 * 2**30
    assert host_memory.default_capacity(16) == 2**29
    monkeypatch.setattr(host_memory, "host_memory_left", lambda: None)
    assert host_memory.default_capacity(16) == 4 * 2**30


def test_the_host_says_what_it_has_left():
    left = host_memory.host_memory_left()
    assert left is None or 2**20 < left < 2**50


@pytest.mark.skipif(sys.platform != "linux", reason="containers are Linux's")
@pytest.mark.parametrize(
    ("used", "left"),
    [(2**30, 2**30), (3 * 2**29, 2**29), (3 * 2**30, 0), (None, 2**40)],
)
def test_a_container_has_left_what_is_not_used_of_its_limit(used, left, monkeypatch):
    limit = 2**31
    files = {"memory.max": limit, "memory.current": used}
    monkeypatch.setattr(host_memory, "_meminfo", lambda field: 2**40)
    monkeypatch.setattr(
        host_memory, "_number", lambda path: files[path.rpartition("/")[2]]
    )
    assert host_memory.host_memory_left() == left
