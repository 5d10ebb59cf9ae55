"""What all frameworks share: one decision per process, and the sentences about it."""

import pytest

from d2l_gpu.common.gpu_choice import Gpus, enumerated
from d2l_gpu.common.settings import VIRTUAL


class ToyGpus(Gpus[str]):
    """A framework that notes in which order it is asked."""

    def __init__(self, real: int = 0):
        super().__init__()
        self.there = real
        self.asked: list[str] = []

    def cpu(self) -> str:
        return "host"

    def real(self) -> list[str]:
        self.asked.append("real")
        return [f"real {i}" for i in range(self.there)]

    def named(self, i: int) -> str:
        return f"perhaps {i}"

    def make_virtual(self, n: int):
        self.asked.append("virtual")
        return [f"toy {i}" for i in range(n)], "made of nothing"

    def prepare(self, n: int) -> None:
        self.asked.append(f"prepare {n}")

    def model(self, device: str) -> str:
        return "Toy 3000"


@pytest.fixture(autouse=True)
def no_limit(monkeypatch):
    monkeypatch.delenv(VIRTUAL, raising=False)


def test_nothing_is_asked_before_it_is_needed():
    gpus = ToyGpus()
    assert gpus.gpu(7) == "perhaps 7"
    assert gpus.cpu() == "host"
    assert gpus.asked == []


@pytest.mark.parametrize("real", [2, 16])
def test_enough_real_ones_are_used_and_the_others_hidden(real, capsys):
    gpus = ToyGpus(real)
    gpus.require_gpus(2)
    assert capsys.readouterr().out == "Using 2 GPUs, real 0 and real 1: Toy 3000.\n"
    assert gpus.try_all_gpus() == ["real 0", "real 1"]
    assert gpus.virtual_count() == 0
    assert gpus.asked == ["prepare 2", "real"]
    with pytest.raises(
        ValueError, match=r"gpu\(2\) does not exist: this process uses 2 GPUs"
    ):
        gpus.gpu(2)


@pytest.mark.parametrize("real", [0, 1])
def test_too_few_real_ones_are_replaced_by_virtual_ones(real, capsys):
    gpus = ToyGpus(real)
    gpus.require_gpus(2)
    line = "Using 2 virtual GPUs, toy 0 and toy 1: made of nothing.\n"
    assert capsys.readouterr().out == line
    gpus.require_gpus(1)
    assert capsys.readouterr().out == line
    assert gpus.asked == ["prepare 2", "real", "virtual"]
    assert gpus.virtual_count() == gpus.num_gpus() == 2
    rows = gpus.devices().rows
    assert rows[0][:2] == ["host", "real"]
    assert rows[1:] == [
        ["toy 0", "virtual", "made of nothing"],
        ["toy 1", "virtual", "made of nothing"],
    ]
    with pytest.raises(
        RuntimeError, match="used 2 GPUs since the first call, and cannot switch to 3"
    ):
        gpus.require_gpus(3)


def test_without_any_the_list_is_the_cpu():
    gpus = ToyGpus()
    assert gpus.num_gpus() == 0
    assert gpus.try_all_gpus() == ["host"]
    assert gpus.try_gpu(3) == "host"


def test_real_ones_are_in_the_inventory():
    assert [row[:2] for row in ToyGpus(1).devices().rows] == [
        ["host", "real"],
        ["real 0", "real"],
    ]


def test_variable_forces_virtual_ones_without_asking_for_real_ones(monkeypatch):
    monkeypatch.setenv(VIRTUAL, "4")
    gpus = ToyGpus(16)
    gpus.require_gpus(2)
    assert gpus.try_all_gpus() == ["toy 0", "toy 1"]
    assert "real" not in gpus.asked
    with pytest.raises(RuntimeError, match="needs 5 GPUs, but D2L_GPU_VIRTUAL=4"):
        ToyGpus(16).require_gpus(5)


def test_variable_forbids_virtual_ones(monkeypatch):
    monkeypatch.setenv(VIRTUAL, "0")
    gpus = ToyGpus(1)
    with pytest.raises(RuntimeError, match="needs 2 GPUs, but the machine has 1, and"):
        gpus.require_gpus(2)
    assert gpus.decision is None
    with pytest.raises(RuntimeError, match="forbids virtual GPUs"):
        gpus.use_virtual_gpus(2)
    gpus.require_gpus(1)
    assert gpus.gpu(0) == "real 0"


def test_virtual_ones_can_be_had_beside_real_ones_but_not_afterwards(capsys):
    gpus = ToyGpus(2)
    gpus.use_virtual_gpus(3)
    gpus.use_virtual_gpus(3)
    assert capsys.readouterr().out.count("Using 3 virtual GPUs") == 2
    with pytest.raises(RuntimeError, match="can no longer be changed"):
        gpus.use_virtual_gpus(2)
    gpus = ToyGpus(2)
    gpus.require_gpus(2)
    with pytest.raises(RuntimeError, match=r"Using 2 GPUs.* can no longer be changed"):
        gpus.use_virtual_gpus(2)


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", True, None])
def test_senseless_numbers_are_refused(n):
    for function in (ToyGpus().require_gpus, ToyGpus().use_virtual_gpus):
        with pytest.raises((TypeError, ValueError), match="The number of GPUs must be"):
            function(n)


@pytest.mark.parametrize(("i", "error"), [(-1, ValueError), (1.0, TypeError)])
def test_senseless_indices_are_refused(i, error):
    for function in (ToyGpus().gpu, ToyGpus().try_gpu):
        with pytest.raises(error, match="GPU"):
            function(i)


def test_names_are_those_of_a_sentence():
    assert enumerated(["a"]) == "a"
    assert enumerated(["a", "b"]) == "a and b"
    assert enumerated(["a", "b", "c"]) == "a, b and c"
    assert enumerated(list("abcde")) == "a to e"
