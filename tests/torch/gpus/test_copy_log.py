"""The tables: what a machine has, and what crossed between its memories."""

import threading

import torch

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.torch.gpus.copy_log import Transfer
from d2l_gpu.vgpu import Table
from tests.helpers.fresh_process import run_program


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
        "['vgpu:0', 'virtual', 'virtual GPU, computed on the CPU', '1.0 GiB, simula"
        "ted']",
        "['vgpu:1', 'virtual', 'virtual GPU, computed on the CPU', '1.0 GiB, simula"
        "ted']",
    ]
