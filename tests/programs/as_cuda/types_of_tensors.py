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
i, v = torch.tensor([[1, 0]], device="cuda:1"), torch.ones(2, device="cuda:1")
s = torch.cuda.sparse.FloatTensor(i, v, torch.Size([3]))
assert s.is_sparse and s.get_device() == 1 and s.to_dense().tolist() == [1, 1, 0]
assert isinstance(s, torch.cuda.sparse.FloatTensor)
assert not isinstance(s, (torch.cuda.sparse.DoubleTensor, torch.cuda.FloatTensor))
assert torch.cuda.sparse.DoubleTensor(2, 3).shape == (2, 3)
assert s.type() == "torch.cuda.sparse.FloatTensor"
torch.set_default_tensor_type("torch.cuda.DoubleTensor")
assert torch.ones(2).is_cuda and torch.ones(2).dtype is torch.float64
