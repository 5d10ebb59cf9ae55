import torch

from tests.programs.as_cuda.start import raises, start

start()

x, y = torch.ones(2, 2, device="cuda:0"), torch.ones(2, 2, device="cuda:1")
raises(RuntimeError, "at least two devices, vgpu:0 and vgpu:1!", lambda: x + y)
raises(
    RuntimeError,
    "is on vgpu:1, different from other tensors on vgpu:0 (when "
    "checking argument in method wrapper_VGPU_",
    lambda: x @ y,
)
raises(TypeError, "can't convert vgpu:1 device type tensor to numpy", y.numpy)
raises(RuntimeError, "there is no vgpu:2", lambda: torch.ones(1, device="cuda:2"))
raises(RuntimeError, "there is no vgpu:2", lambda: torch.ones(1).to("cuda:2"))
raises(RuntimeError, "there is no vgpu:2", lambda: torch.ones(1).cuda(2))
raises(
    torch.OutOfMemoryError,
    "CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of",
    lambda: torch.ones(2**26, device="cuda"),
)
raises(
    torch.OutOfMemoryError,
    "(Simulated memory of a virtual GPU.)",
    lambda: torch.ones(2**26, device="cuda"),
)
w = torch.ones(2, device="cuda:0", requires_grad=True)
raises(
    RuntimeError,
    "expected device vgpu:0 but got vgpu:1",
    lambda: (w * 2).backward(torch.ones(2, device="cuda:1")),
)
