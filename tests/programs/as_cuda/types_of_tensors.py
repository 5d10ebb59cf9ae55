import torch

from tests.programs.as_cuda.start import start

start()

x = torch.ones(2, device="cuda:1")
assert x.type() == "torch.cuda.FloatTensor" and torch.ones(2).type().count(".") == 1
assert isinstance(x, torch.cuda.FloatTensor)
assert not isinstance(torch.ones(2), torch.cuda.FloatTensor)
assert not isinstance(x, torch.cuda.LongTensor)
y = x.type("torch.cuda.LongTensor")
assert y.dtype is torch.int64 and y.get_device() == 1
assert torch.ones(2).type(torch.cuda.HalfTensor).is_cuda
assert x.type(torch.float64).dtype is torch.float64
assert torch.cuda.FloatTensor([1, 2]).tolist() == [1, 2]
torch.set_default_tensor_type("torch.cuda.DoubleTensor")
assert torch.ones(2).is_cuda and torch.ones(2).dtype is torch.float64
