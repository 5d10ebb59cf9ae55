"""What this computer's memory can still give, also inside a container."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu.vgpu import host_memory
from tests.helpers.properties import sizes
from tests.helpers.recorded_machines import pretend


def test_the_host_says_what_it_has_left():
    left = host_memory.host_memory_left()
    assert left is None or 2**20 < left < 2**50


@given(
    total=sizes(1, 2**30),
    limit=st.none() | sizes(most=2**41),
    used=st.none() | sizes(most=2**41),
)
def test_a_container_has_left_what_is_not_used_of_its_limit(total, limit, used):
    files = {"/proc/meminfo": f"MemTotal: {2**31} kB\nMemAvailable: {total} kB\n"}
    if used is not None:
        files["/sys/fs/cgroup/memory.max"] = f"{'max' if limit is None else limit}\n"
        files["/sys/fs/cgroup/memory.current"] = f"{used}\n"
    left = total * 1024
    if limit is not None and used is not None:
        left = max(0, min(left, limit - used))
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as root:
        patch.setattr("sys.platform", "linux")
        pretend(patch, Path(root), files)
        assert host_memory.host_memory_left() == left
        # What is promised to the devices is there for all of them.
        for count in (1, 2, 5):
            promised = host_memory.default_capacity(count)
            assert promised == min(4 * 2**30, left // count)


def test_where_nothing_is_known_of_the_memory_devices_have_the_usual(
    monkeypatch, tmp_path
):
    monkeypatch.setattr("sys.platform", "linux")
    pretend(monkeypatch, tmp_path, {})
    assert host_memory.host_memory_left() is None
    assert host_memory.default_capacity(16) == 4 * 2**30
