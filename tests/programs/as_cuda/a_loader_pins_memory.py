import torch

from tests.programs.as_cuda.start import start

start()

from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(8.0), torch.arange(8))
for X, y in DataLoader(data, batch_size=4, pin_memory=True):
    assert X.is_pinned() and y.is_pinned() and X.device.type == "cpu"
    assert X.to("cuda:1", non_blocking=True).tolist() == X.tolist()
