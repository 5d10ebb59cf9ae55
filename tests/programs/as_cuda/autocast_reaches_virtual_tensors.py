import torch

from tests.programs.as_cuda.start import start

start()

w, x = torch.rand(4, 4, device="cuda"), torch.rand(4, 4, device="cuda")
for context, dtype in (
    (torch.autocast("cuda"), torch.float16),
    (torch.autocast("cuda", dtype=torch.bfloat16), torch.bfloat16),
    (torch.amp.autocast("cuda", torch.bfloat16), torch.bfloat16),
    (torch.autocast(x.device.type), torch.float16),
):
    with context:
        assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") is dtype
        assert not torch.is_autocast_enabled("cpu")
        assert (w @ x).dtype is dtype
        with torch.autocast("cuda", enabled=False):
            assert (w @ x).dtype is torch.float32
    assert not torch.is_autocast_enabled() and (w @ x).dtype is torch.float32
with torch.autocast("cpu"):
    assert (w @ x).dtype is torch.float32
    assert torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda")
