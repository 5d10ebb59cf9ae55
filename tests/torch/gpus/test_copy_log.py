"""The tables: what a machine has, and what crossed between its memories."""

import itertools
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.torch.gpus.copy_log import (
    Transfer,
    Transfers,
    _CopiesOfOperators,
)
from d2l_gpu.vgpu import LINKS, Table
from d2l_gpu.vgpu.sim import catalogue
from tests.helpers.fresh_process import run_program
from tests.helpers.properties import DEVICES, sizes


def test_a_table_is_text_and_html():
    table = Table(["name", "bytes"], [["<a>", "1"], ["bb", "1,000"]], ["bytes"])
    assert repr(table) == "name  bytes\n<a>       1\nbb    1,000"
    markup = table._repr_html_()
    assert "&lt;a&gt;" in markup and "<a>" not in markup
    assert '<td style="text-align: right">1,000</td>' in markup


def test_copies_of_virtual_gpus_are_logged_from_all_threads():
    vgpu.enable(2)
    host, first, second = d2l.cpu(), *(torch.device("vgpu", i) for i in range(2))

    def work():
        torch.zeros(3, device=second).cpu()

    with d2l.transfers() as log:
        X = torch.ones(2, 3).to(first)
        X.to(second)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    X.cpu()
    assert log == [
        Transfer(24, host, first),
        Transfer(24, first, second),
        Transfer(12, second, host),
    ]
    assert (len(log), log.nbytes) == (3, 60)
    del X


@pytest.mark.parametrize(
    "program",
    [
        lambda X: X[torch.tensor([0, 2])],
        lambda X: X[torch.tensor([0, 2]), torch.tensor([1, 1])],
        lambda X: X[torch.tensor([True, False, True])],
        lambda X: X[torch.eye(3, dtype=torch.bool)],
        lambda X: X[torch.tensor(1)],
        lambda X: X[1, torch.tensor([0, 1, 1])],
        lambda X: X[X > 0],
        lambda X: X.__setitem__(torch.tensor([2]), X[:1] + 1),
        lambda X: X.to("cpu", torch.float16),
        lambda X: X[:, 1].copy_(torch.ones(3)),
        lambda X: X[1, 1].item(),
        lambda X: X.tolist(),
    ],
)
def test_watching_operators_sees_the_copies_that_a_machine_logs(program):
    vgpu.enable(1)
    X = torch.eye(3, device="vgpu:0")
    with d2l.transfers() as logged:
        program(X)
    with _CopiesOfOperators() as watch:
        program(X)
    assert watch.seen == logged


def number_of_bytes(tensor) -> int:
    return tensor.numel() * tensor.element_size()


@pytest.mark.virtual_gpus(DEVICES)
@settings(max_examples=120)
@given(
    shape=st.lists(sizes(most=9), max_size=3),
    dtype=st.sampled_from([torch.bool, torch.int16, torch.float32, torch.complex128]),
    path=st.lists(sizes(-1, DEVICES - 1), min_size=2, max_size=5),
    pinned=st.booleans(),
    later=st.booleans(),
    in_place=st.booleans(),
    parts=st.booleans(),
)
def test_bytes_in_the_log_are_those_that_moved_and_take_their_time(
    shape, dtype, path, pinned, later, in_place, parts
):
    where = [d2l.cpu() if i < 0 else torch.device("vgpu", i) for i in path]
    generator = torch.Generator().manual_seed(len(path))
    values = torch.randint(2, (2, *shape), generator=generator).to(dtype)
    values = values.transpose(0, -1)[::2] if parts else values
    here = values.pin_memory() if pinned else values.clone()
    here = here.to(where[0])
    sim = d2l.current_simulator()
    with d2l.transfers() as whole:
        for source, target in itertools.pairwise(where):
            # Into a part of what is there, or as something new.
            there = torch.empty(3, *here.shape, dtype=dtype, device=target)[1]
            sim.reset()
            with d2l.transfers() as log:
                if in_place:
                    there.copy_(here, non_blocking=later)
                else:
                    there = here.to(target, non_blocking=later)
            nbytes = number_of_bytes(here)
            moves = source != target and nbytes > 0
            assert log == [Transfer(nbytes, source, target)] * moves
            links = sim.report().links
            assert {link.nbytes for link in links} == ({nbytes} if moves else set())
            if moves:
                # Page-locked memory of the host crosses at once, other in two steps;
                # what stays among the devices never touches the host's.
                host = [x for x in (here, there) if x.device == d2l.cpu()]
                link = LINKS["PCIe3"] if host else sim.link
                seconds = link.step + nbytes / link.bandwidth / catalogue.LINK.value
                if host and not host[0].is_pinned():
                    seconds += nbytes / catalogue.STAGING.value
                taken = links[0].seconds
                assert taken == pytest.approx(seconds, abs=1e-12)
                assert nbytes / link.bandwidth <= taken <= sim.elapsed() < taken + 1e-4
            here = there
    assert whole.nbytes == sum(
        number_of_bytes(values) for a, b in itertools.pairwise(where) if a != b
    )
    assert torch.equal(here.cpu(), values)


def bytes_of_converting_copies(first, second):
    """Of copies that change the type, to a GPU, to another one, and to the host."""
    small = torch.zeros(10, dtype=torch.uint8)
    for target in first, second:
        wide = torch.zeros(10, device=target)
        with d2l.transfers() as log:
            near = small.to(first)
            near.to(second, torch.float32)
            small.to(target, torch.float64)
            wide.copy_(small)
            wide.copy_(small[0])
            near.to("cpu", torch.float32)
            wide.to("cpu", torch.uint8)
        yield [copy.nbytes for copy in log]


def test_types_are_converted_on_the_side_where_pytorch_does_it():
    vgpu.enable(2)
    devices = torch.device("vgpu", 0), torch.device("vgpu", 1)
    for found in bytes_of_converting_copies(*devices):
        # On the CPU for a copy to a GPU or from it, on the first GPU between two.
        assert found == [10, 40, 80, 40, 40, 10, 40]


def test_equal_copies_in_a_row_are_one_row():
    vgpu.enable(1)
    X = torch.ones(1, device="vgpu:0")
    with d2l.transfers() as log:
        for _ in range(1000):
            X.item()
    del X
    assert repr(log) == (
        "copies  bytes each  from    to\n 1,000           4  vgpu:0  cpu"
    )
    with d2l.transfers() as log:
        pass
    assert repr(log) == log._repr_html_() == "no copies"


@given(
    st.lists(
        st.builds(
            Transfer,
            st.integers(1, 9999),
            *[st.sampled_from(["cpu", "vgpu:0", "vgpu:1"]).map(torch.device)] * 2,
        ),
        max_size=8,
    )
)
def test_a_summary_counts_the_copies_and_bytes_of_each_direction(copies):
    summary = Transfers(copies).summary()
    ways = list(dict.fromkeys((x.source, x.target) for x in copies))
    assert len(ways) == (0 if summary == "no copies" else summary.count(";") + 1)
    for way, part in zip(ways, summary.split("; "), strict=False):
        sizes = [x.nbytes for x in copies if (x.source, x.target) == way]
        number, total = len(sizes), sum(sizes)
        plural = "copy" if number == 1 else "copies", "byte" + "s" * (total != 1)
        assert part == (
            f"{number} {plural[0]} {way[0]} → {way[1]}, {total:,} {plural[1]}"
        )


def test_copies_of_real_devices_are_logged():
    # The meta device stands in for a GPU: PyTorch treats it as another device.
    out = run_program("copy_log/copies_of_real_devices_are_logged.py")
    ways = "device(type='cpu'), device(type='meta')"
    sizes = (24, 24, 48, 24)  # in the type that it has when it crosses
    assert out == f"[{', '.join(f'({size}, {ways})' for size in sizes)}]\n"


def test_the_inventory_lists_real_and_virtual_devices():
    out = run_program(
        "copy_log/the_inventory_lists_real_and_virtual_devices.py"
    ).splitlines()
    assert out == [
        "[['cpu', 'real']]",
        "Using 2 virtual GPUs, vgpu:0 and vgpu:1: computed on the CPU, memory simula"
        "ted.",
        "['vgpu:0', 'virtual', 'virtual GPU: computed on the CPU', '1.0 GiB, simula"
        "ted']",
        "['vgpu:1', 'virtual', 'virtual GPU: computed on the CPU', '1.0 GiB, simula"
        "ted']",
    ]
