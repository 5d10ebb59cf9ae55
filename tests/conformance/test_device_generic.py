"""Tests of tools.device_generic: PyTorch's own tests, and what is made of them."""

import json

import pytest

from tools import device_generic

# What a file of PyTorch's looks like, in small.
TESTS = """
import os
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase

class TestSmall(TestCase):
    def test_sum(self, device):
        self.assertEqual(torch.ones(3, device=device).sum().item(), 3)

    def test_on_the_cpu_only(self, device):
        self.assertEqual(torch.device(device).type, "cpu")

    def test_never(self, device):
        self.assertEqual(1, 2)

    def test_lazy_clone(self, device):
        self.assertTrue(device == "cpu")

    def test_death(self, device):
        if device != "cpu":
            os._exit(1)

    def test_left_out(self, device):
        if device != "cpu":
            self.skipTest("for the CPU only")

instantiate_device_type_tests(TestSmall, globals())
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_small.py").write_text(TESTS)
    (tmp_path / "version.txt").write_text("2.13.0a0\n")
    return tmp_path


@pytest.mark.all
def test_what_fails_here_and_not_on_the_cpu_is_counted(checkout, capsys, monkeypatch):
    written = checkout / "record.json"
    monkeypatch.setattr(device_generic, "RECORD", written)
    status = device_generic.main([str(checkout), "test_small", "--record", "--check"])
    assert status == 1
    stored = json.loads(written.read_text())
    one = stored["files"]["test_small"]
    assert one["counts"] == {
        "passes": 1,
        "fails": 3,
        "fails on CPU too": 1,
        "left out": 1,
    }
    reasons = dict(one["reasons"])
    assert reasons.pop(device_generic.UNKNOWN) == 2
    assert list(reasons.values()) == [1]
    assert "copy-on-write" in next(iter(reasons))
    assert one["died"] == ["test_death_vgpu"]
    said = capsys.readouterr().out
    assert "test_on_the_cpu_only_vgpu fails, and no reason is known." in said
    assert "test_death_vgpu ended its process." in said
    table = "\n".join(device_generic.table(stored))
    assert "| `test_small` | 1 | 3 | 1 | 1 |" in table
    assert "`test_death_vgpu` ended the process." in table


@pytest.mark.all
def test_a_file_that_cannot_be_imported_is_an_error(checkout):
    (checkout / "test" / "test_small.py").write_text("import nothing_of_this_name")
    with pytest.raises(RuntimeError, match="nothing_of_this_name"):
        device_generic.main([str(checkout), "test_small"])


def test_a_folder_without_tests_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        device_generic.main([str(tmp_path)])
    assert "has no folder test" in capsys.readouterr().err


def test_nothing_unexplained_is_recorded():
    stored = device_generic.recorded()
    assert set(stored["files"]) == set(device_generic.FILES)
    for one in stored["files"].values():
        assert one["died"] == []
        assert device_generic.UNKNOWN not in one["reasons"]
        assert one["counts"].get("fails", 0) == sum(one["reasons"].values())
