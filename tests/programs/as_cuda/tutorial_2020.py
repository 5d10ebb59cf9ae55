"""A multi-GPU tutorial as they were written around 2020: it needs two CUDA devices."""

import argparse
import tempfile

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class SplitNet(nn.Module):
    """Model parallel: the first half on one GPU, the second half on the other."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(20, 64), nn.ReLU()).to("cuda:0")
        self.second = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).to("cuda:1")
        self.last = nn.Linear(64, 2).cuda(1)

    def forward(self, x):
        x = self.first(x.to("cuda:0"))
        return self.last(self.second(x.to("cuda:1")))


class PlainNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2)
        )

    def forward(self, x):
        if not self.training:
            # One write: the replicas run in threads.
            print(f"  in forward: {tuple(x.shape)} {x.device}\n", end="")
        return self.body(x)


def make_loader(batch_size, workers):
    x = torch.randn(512, 20)
    y = (x[:, 0] * x[:, 1] > 0).long()
    return DataLoader(
        TensorDataset(x, y),
        batch_size=batch_size,
        shuffle=True,
        num_workers=workers,
        pin_memory=True,
    )


def train_split(loader, epochs):
    net = SplitNet()
    criterion = nn.CrossEntropyLoss().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            x = x.cuda(0, non_blocking=True)
            y = y.to("cuda:1", non_blocking=True)
            optimizer.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(loader))
    return losses


def train_parallel(loader, epochs, device, path):
    model = nn.DataParallel(PlainNet()).cuda()
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.cuda.amp.GradScaler()
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    losses = []
    start.record()
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            assert x.is_pinned()
            x = x.to(device, non_blocking=True)
            y = y.to(device, non_blocking=True)
            optimizer.zero_grad()
            with torch.cuda.amp.autocast():
                loss = criterion(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        losses.append(total / len(loader))
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    assert scaler.get_scale() > 0

    torch.save(
        {"net": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path
    )
    model.eval()
    with torch.no_grad():
        model(torch.randn(8, 20, device=device))
    return losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    if not torch.cuda.is_available():
        raise SystemExit("This tutorial needs CUDA.")
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    cudnn.benchmark = True
    cudnn.deterministic = False
    if device.type == "cuda":
        print("GPUs:", torch.cuda.device_count(), torch.cuda.get_device_name(0))

    loader = make_loader(args.batch_size, args.workers)

    print("model parallel")
    losses = train_split(loader, args.epochs)
    print("  loss fell:", losses[-1] < 0.8 * losses[0])

    print("data parallel")
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/checkpoint.pt"
        losses = train_parallel(loader, args.epochs, device, path)
        print("  loss fell:", losses[-1] < 0.8 * losses[0])
        checkpoint = torch.load(path, map_location="cuda:1")
    net = PlainNet().to("cuda:1")
    net.load_state_dict(checkpoint["net"])
    weight = checkpoint["net"]["body.0.weight"]
    print("loaded on:", weight.device, weight.is_cuda, weight.get_device())
    print("tensor:", weight.new_ones(1))
    print("memory in use:", torch.cuda.memory_allocated(1) > 0)
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
