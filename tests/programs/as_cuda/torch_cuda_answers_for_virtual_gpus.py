import torch
from torch import nn

from tests.programs.as_cuda.start import start

start()

cuda = torch.cuda
assert cuda.is_available() and cuda.device_count() == 2 and not cuda.is_initialized()
assert "virtual" in cuda.get_device_name(0)
assert cuda.get_device_properties("cuda:1").total_memory == 64 * 2**20
assert cuda.get_device_capability() == (0, 0) and cuda.get_arch_list() == []
assert cuda.can_device_access_peer(0, 1) and cuda.is_bf16_supported()
assert cuda.mem_get_info(1) == (2**26, 2**26)
x = torch.ones(256, device="cuda:1")
assert cuda.is_initialized()
assert cuda.memory_allocated("cuda:1") == cuda.memory.memory_allocated(1) == 1024
assert cuda.memory_allocated() == 0 and cuda.memory_reserved(x.device) == 1024
del x
assert cuda.max_memory_allocated(1) == 1024
cuda.reset_peak_memory_stats(1)
assert cuda.max_memory_allocated(1) == 0 == cuda.memory_cached(1)
cuda.empty_cache(), cuda.ipc_collect(), cuda.init(), cuda.synchronize(0)
assert "Simulated memory of vgpu:1" in cuda.memory_summary(1)

cuda.manual_seed_all(3)
state = cuda.get_rng_state()
first = torch.rand(3, device="cuda")
cuda.random.set_rng_state(state)
assert torch.equal(first, torch.rand(3, device="cuda:0"))
with torch.random.fork_rng(devices=[0]):
    second = torch.rand(3, device="cuda")
assert torch.equal(second, torch.rand(3, device="cuda"))

stream = cuda.Stream(device="cuda:1")
with cuda.stream(stream):
    assert cuda.current_stream() == stream and cuda.current_device() == 1
    end = stream.record_event()
assert isinstance(stream, cuda.Stream) and isinstance(end, cuda.Event)
assert cuda.current_device() == 0 and stream.device == torch.device("cuda:1")
cuda.current_stream().wait_stream(stream)
start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
start.record(), end.record(), end.synchronize()
assert start.elapsed_time(end) >= 0 and end.query()
assert issubclass(cuda.Stream, torch.Stream) and issubclass(cuda.Event, torch.Event)
assert cuda.default_stream().cuda_stream == 0 != stream.cuda_stream
with torch.Stream(device="cuda:1") as other:
    event = torch.Event("cuda:1")
    event.record()
assert isinstance(other, cuda.Stream) and other.device == torch.device("cuda:1")
assert event.device == torch.device("cuda:1") and event.cuda_event != 0

generator = torch.Generator(device="cuda:1").manual_seed(3)
assert generator.device == torch.device("cuda:1")
assert torch.rand(2, device="cuda:1", generator=generator).get_device() == 1
assert torch.Generator("cuda").device == torch.device("cuda:0")
generator = cuda.default_generators[1].manual_seed(3)
assert len(cuda.default_generators) == 2 and generator.device == torch.device("cuda:1")
assert cuda.initial_seed() == 3

assert torch.accelerator.current_accelerator().type == "cuda"
torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = True
torch.backends.cuda.matmul.allow_tf32 = True
nn.LSTM(2, 2).cuda()  # asks for cuDNN
