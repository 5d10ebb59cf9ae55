"""What tools that monitor GPUs are told about virtual ones, within the process."""

import ctypes
import os
import uuid
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2l_gpu import vgpu
from d2l_gpu.vgpu import nvml
from d2l_gpu.vgpu.nvml import Library
from tests.helpers.properties import sizes

pytestmark = pytest.mark.virtual_gpus(2, memory="8MiB")

NVML = Library()


class Memory(ctypes.Structure):  # nvmlMemory_t of nvml.h
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Utilization(ctypes.Structure):  # nvmlUtilization_t
    _fields_ = [(name, ctypes.c_uint) for name in ("gpu", "memory")]


class Process(ctypes.Structure):  # nvmlProcessInfo_t
    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]


def handle(index: int):
    """Return the handle of a device, an opaque pointer as in pynvml."""
    pointer = ctypes.POINTER(ctypes.c_char)()
    get = NVML.nvmlDeviceGetHandleByIndex_v2
    assert get(ctypes.c_uint(index), ctypes.byref(pointer)) == nvml.SUCCESS
    return pointer


def written(function, kind, *arguments):
    """Return what a function of the library writes through its last argument."""
    value = kind()
    assert function(*arguments, ctypes.byref(value)) == nvml.SUCCESS
    return value


def text(function, index: int, length: int = 96) -> str:
    buffer = ctypes.create_string_buffer(length)
    assert function(handle(index), buffer, ctypes.c_uint(length)) == nvml.SUCCESS
    return buffer.value.decode()


def work(device: int, rounds: int) -> torch.Tensor:
    x = torch.ones(16, 16, device=f"vgpu:{device}")
    for _ in range(rounds):
        x = x @ x
    return x


# ------------------------------------------------------------------ torch.vgpu


@settings(max_examples=25)
@given(rounds=st.tuples(sizes(most=9), sizes(most=9)))
def test_utilization_is_the_share_of_simulated_time(rounds):
    sim = vgpu.current_simulator()
    sim.reset()
    assert torch.vgpu.utilization(0) == 0
    for i in range(2):
        work(i, rounds[i])
    busy = {
        i: sum(
            span.end - span.start
            for span in sim.spans()
            if (span.index, span.lane) == (i, "compute")
        )
        for i in range(2)
        if sim.elapsed()
    }
    for i in busy:
        share = 100 * busy[i] / vgpu.PICO / sim.elapsed()
        assert torch.vgpu.utilization(i) == torch.vgpu.memory_usage(i) == round(share)
        assert 0 < torch.vgpu.utilization(i) <= 100


def test_properties_are_those_of_the_model_that_the_clock_assumes():
    found = [torch.vgpu.get_device_properties(i) for i in range(2)]
    model = vgpu.MODELS["V100"]
    for properties in found:
        assert properties.multi_processor_count == model.units == 80
        assert properties.max_threads_per_multi_processor == 2048
        assert (properties.L2_cache_size, properties.warp_size) == (6 * 2**20, 32)
        assert (properties.major, properties.minor) == (0, 0)
        assert isinstance(properties.uuid, uuid.UUID) and not properties.is_integrated
    assert found[0].uuid != found[1].uuid
    assert found[0] == torch.vgpu.get_device_properties("vgpu:0")


@pytest.mark.parametrize("name", vgpu.MODELS)
def test_every_model_has_properties(name):
    sim = vgpu.simulator(1, name, backing="meta")
    properties = torch.vgpu.get_device_properties(sim.gpu(0))
    assert "," not in properties.name and "virtual" in properties.name
    is_gpu = vgpu.MODELS[name].asynchronous
    assert properties.total_memory == vgpu.MODELS[name].memory
    assert (
        bool(properties.L2_cache_size) == is_gpu == (properties.warp_size in (32, 64))
    )


# ------------------------------------------------------------------ NVML


def test_nvml_counts_names_and_finds_the_devices():
    assert NVML.nvmlInitWithFlags(0) == nvml.SUCCESS
    assert written(NVML.nvmlDeviceGetCount_v2, ctypes.c_uint).value == 2
    for i in range(2):
        properties = torch.vgpu.get_device_properties(i)
        assert text(NVML.nvmlDeviceGetName, i) == properties.name
        identifier = text(NVML.nvmlDeviceGetUUID, i)
        assert identifier == f"GPU-{properties.uuid}"
        found = ctypes.POINTER(ctypes.c_char)()
        by_uuid = NVML.nvmlDeviceGetHandleByUUID
        name = ctypes.c_char_p(identifier.encode())
        assert by_uuid(name, ctypes.byref(found)) == nvml.SUCCESS
        for each in (found, handle(i)):
            index = written(NVML.nvmlDeviceGetIndex, ctypes.c_uint, each)
            assert index.value == i


def test_nvml_refuses_what_is_not_there_as_the_library_does():
    pointer = ctypes.POINTER(ctypes.c_char)()
    get = NVML.nvmlDeviceGetHandleByIndex_v2
    for index in (2, 100):
        found = get(ctypes.c_uint(index), ctypes.byref(pointer))
        assert found == nvml.INVALID_ARGUMENT
    by_uuid = NVML.nvmlDeviceGetHandleByUUID
    assert by_uuid(ctypes.c_char_p(b"?"), ctypes.byref(pointer)) == nvml.NOT_FOUND
    nothing = ctypes.byref(Memory())
    assert NVML.nvmlDeviceGetMemoryInfo(pointer, nothing) == nvml.INVALID_ARGUMENT
    short = ctypes.create_string_buffer(4)
    code = NVML.nvmlDeviceGetName(handle(0), short, ctypes.c_uint(4))
    assert code == nvml.INSUFFICIENT_SIZE
    number = ctypes.byref(ctypes.c_uint())
    for sensor in ("Temperature", "PowerUsage", "ClockInfo", "FanSpeed"):
        function = getattr(NVML, f"nvmlDeviceGet{sensor}")
        assert function(handle(0), number) == nvml.NOT_SUPPORTED
    assert not hasattr(NVML, "cudaMalloc")


@given(taken=st.lists(st.tuples(sizes(most=1), sizes(most=5000)), max_size=5))
def test_nvml_knows_the_memory_in_use(taken):
    living = [
        torch.empty(nbytes, dtype=torch.uint8, device=f"vgpu:{i}")
        for i, nbytes in taken
    ]
    for i in range(2):
        memory = written(NVML.nvmlDeviceGetMemoryInfo, Memory, handle(i))
        used = torch.vgpu.memory_allocated(i)
        assert used == torch.vgpu.device_memory_used(i)
        assert (memory.total, memory.used, memory.free) == (2**23, used, 2**23 - used)
    del living


def test_nvml_knows_how_busy_the_devices_are_and_who_uses_them():
    vgpu.current_simulator().reset()
    kept = work(1, 30)
    for i in range(2):
        busy = written(NVML.nvmlDeviceGetUtilizationRates, Utilization, handle(i))
        assert busy.gpu == busy.memory == torch.vgpu.utilization(i)
    assert busy.gpu > 0
    ask = NVML.nvmlDeviceGetComputeRunningProcesses_v3
    count, found = ctypes.c_uint(0), (Process * 3)()
    assert ask(handle(1), ctypes.byref(count), None) == nvml.INSUFFICIENT_SIZE
    assert count.value == 1
    assert ask(handle(1), ctypes.byref(count), found) == nvml.SUCCESS
    assert (found[0].pid, found[0].usedGpuMemory) == (os.getpid(), kept.nbytes)
    del kept  # the process still uses the device, only without tensors
    count = ctypes.c_uint(3)
    assert ask(handle(1), ctypes.byref(count), found) == nvml.SUCCESS
    assert (count.value, found[0].usedGpuMemory) == (1, 0)


def test_pynvml_asks_this_library_and_forgets_what_it_found_before():
    pynvml = SimpleNamespace(
        nvmlLib=None, _nvmlGetFunctionPointer_cache={"nvmlInit": 0}
    )
    for _ in range(2):
        nvml.install(pynvml)
        assert isinstance(pynvml.nvmlLib, Library)
        assert not pynvml._nvmlGetFunctionPointer_cache
    another = SimpleNamespace()
    nvml.install(another)  # a module of that name which isn't NVIDIA's
    assert not vars(another)
