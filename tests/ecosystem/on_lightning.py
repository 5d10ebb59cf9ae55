"""Lightning's Trainer and Fabric."""

import lightning as L
import torch
from lightning.fabric import Fabric
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.callbacks import (
    Callback,
    DeviceStatsMonitor,
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
)
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from tests.ecosystem.support import (
    batch,
    close,
    folder,
    main,
    mlp,
    same_parameters,
    torchrun,
    train,
)

NEEDS = ("lightning",)
SHORT = ("fit_on_a_gpu", "fabric_on_a_gpu")
STEPS = 3


class Regression(L.LightningModule):
    """`mlp`, trained as `support.train` does; it notes where and how it computes."""

    def __init__(self, lr: float = 0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = mlp()
        self.seen = []

    def training_step(self, rows, index):
        x, y = rows
        output = self.net(x)
        self.seen.append((x.device, output.dtype))
        loss = mse_loss(output.float(), y.float())
        self.log("loss", loss)
        return loss

    def validation_step(self, rows, index):
        x, y = rows
        self.log("val_loss", mse_loss(self.net(x).float(), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


def loader(rows: int = 16) -> DataLoader:
    return DataLoader(TensorDataset(*batch()), batch_size=rows)


def trainer(**options) -> L.Trainer:
    """A Trainer that shows and writes nothing, unless it's told to."""
    settings = {
        "max_epochs": STEPS,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
    }
    return L.Trainer(**(settings | options))


def expected() -> nn.Module:
    model = mlp()
    train(model, *batch(), steps=STEPS)
    return model


# ------------------------------------------------------------------ the Trainer


def check_fit_on_a_gpu():
    """Lightning finds the GPUs, and fits a model on the second as on the CPU."""
    assert CUDAAccelerator.is_available()
    assert CUDAAccelerator.auto_device_count() == 2
    model = Regression()
    fitting = trainer(accelerator="gpu", devices=[1])
    assert fitting.strategy.root_device == torch.device("cuda:1")
    fitting.fit(model, loader())
    assert {device for device, _ in model.seen} == {torch.device("cuda:1")}
    same_parameters(model.net, expected())
    automatic = trainer(accelerator="auto", devices=1)
    assert automatic.strategy.root_device == torch.device("cuda:0")
    results = automatic.validate(model, loader(), verbose=False)
    X, Y = batch()
    loss = mse_loss(expected()(X), Y)
    assert abs(results[0]["val_loss"] - loss.item()) < 1e-5


def check_ddp_starts_the_second_process():
    """With devices=2 and ddp, Lightning starts the second rank by running the program
    again."""
    fit_with("ddp")


def check_ddp_spawns_processes():
    """With ddp_spawn, Lightning starts two processes, and brings the weights back."""
    model = fit_with("ddp_spawn")
    same_parameters(model.net, expected())


def check_ddp_under_torchrun():
    """Under torchrun Lightning takes over the ranks that are there."""
    torchrun(fit_with, "ddp")


class OnBothRanks(Callback):
    """Checks on each rank what only processes of their own can see."""

    def on_train_end(self, trainer, pl_module):
        assert trainer.world_size == 2
        gpu = torch.device("cuda", trainer.local_rank)
        assert trainer.strategy.root_device == gpu
        assert {device for device, _ in pl_module.seen} == {gpu}
        same_parameters(pl_module.net, expected(), gpu)


def fit_with(strategy: str) -> Regression:
    model = Regression()
    fitting = trainer(
        accelerator="gpu", devices=2, strategy=strategy, callbacks=[OnBothRanks()]
    )
    fitting.fit(model, loader(8))
    assert fitting.callback_metrics["loss"] > 0
    return model


def check_fsdp_under_torchrun():
    """With the strategy fsdp, ranks keep parts of the weights, and fit as one would."""
    torchrun(rank_fsdp)


class GatherAtTheEnd(Callback):
    """Gathers the shards while they're still on the GPUs."""

    def on_train_end(self, trainer, pl_module):
        mine = sum(p.numel() for p in pl_module.parameters())
        assert mine < sum(p.numel() for p in mlp().parameters())
        self.state = trainer.strategy.lightning_module_state_dict()


def rank_fsdp():
    model, gather = Regression(), GatherAtTheEnd()
    strategy = FSDPStrategy(state_dict_type="full")
    fitting = trainer(
        accelerator="gpu", devices=2, strategy=strategy, callbacks=[gather]
    )
    fitting.fit(model, loader(8))
    assert {device.type for device, _ in model.seen} == {"cuda"}
    if fitting.global_rank == 0:
        for name, parameter in expected().named_parameters():
            close(gather.state[f"net.{name}"], parameter, "cpu")


def check_precisions():
    """In bf16-mixed, 16-mixed and bf16-true, layers compute in the type asked for."""
    for precision, dtype in (
        ("bf16-mixed", torch.bfloat16),
        ("16-mixed", torch.float16),
        ("bf16-true", torch.bfloat16),
    ):
        model = Regression()
        trainer(accelerator="gpu", devices=1, precision=precision).fit(model, loader())
        assert {d for _, d in model.seen} == {dtype}, (precision, model.seen)
        stored = dtype if precision == "bf16-true" else torch.float32
        assert model.net[0].weight.dtype == stored
        for a, b in zip(model.net.parameters(), expected().parameters(), strict=True):
            close(a.float(), b, rtol=3e-2, atol=1e-2)


def check_callbacks():
    """Callbacks keep the best checkpoint, watch the GPU, and stop early."""
    with folder() as path:
        best = ModelCheckpoint(path, monitor="val_loss", save_top_k=1)
        stop = EarlyStopping("val_loss", patience=1, min_delta=10.0)
        model = Regression()
        fitting = trainer(
            accelerator="gpu",
            devices=1,
            max_epochs=10,
            enable_checkpointing=True,
            callbacks=[best, stop, DeviceStatsMonitor(), LearningRateMonitor()],
            logger=CSVLogger(path),
        )
        fitting.fit(model, loader(), loader())
        assert fitting.current_epoch == 2, fitting.current_epoch
        fitting.logger.save()
        header = (path / "lightning_logs/version_0/metrics.csv").read_text()
        assert "allocated_bytes.all.peak" in header, header[:300]
        again = Regression.load_from_checkpoint(best.best_model_path)
        assert again.hparams.lr == 0.1
        same_parameters(again.net, model.net)


def check_fit_goes_on_from_a_checkpoint():
    """A checkpoint from one GPU resumes on the other, and loads on the CPU as well."""
    with folder() as path:
        keep = ModelCheckpoint(path, filename="first")
        fitting = trainer(
            accelerator="gpu",
            devices=[0],
            max_epochs=1,
            enable_checkpointing=True,
            callbacks=[keep],
        )
        fitting.fit(Regression(), loader())
        there = Regression.load_from_checkpoint(path / "first.ckpt")
        assert there.net[0].weight.device == torch.device("cuda:0")
        here = Regression.load_from_checkpoint(path / "first.ckpt", map_location="cpu")
        assert here.net[0].weight.device == torch.device("cpu")
        model = Regression()
        fitting = trainer(accelerator="gpu", devices=[1])
        fitting.fit(model, loader(), ckpt_path=path / "first.ckpt")
        assert len(model.seen) == STEPS - 1
    same_parameters(model.net, expected())


# ------------------------------------------------------------------ Fabric


def check_fabric_on_a_gpu():
    """Fabric puts model and data on a GPU, in mixed precision, and saves the model."""
    fabric = Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
    fabric.launch()
    assert fabric.device == torch.device("cuda:0")
    net = mlp()
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    rows = fabric.setup_dataloaders(loader())
    for _ in range(STEPS):
        for x, y in rows:
            assert x.device == fabric.device
            optimizer.zero_grad()
            loss = mse_loss(model(x), y)
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1e6)
            optimizer.step()
    same_parameters(net, expected(), "cuda:0", rtol=3e-2, atol=1e-2)
    with folder() as path:
        fabric.save(path / "state.ckpt", {"model": model, "step": STEPS})
        saved = [p.detach().clone() for p in net.parameters()]
        with torch.no_grad():
            for p in net.parameters():
                p.zero_()
        rest = fabric.load(path / "state.ckpt", {"model": model})
        assert rest == {"step": STEPS}
    for a, b in zip(net.parameters(), saved, strict=True):
        close(a, b, "cuda:0", rtol=0, atol=0)


def check_fabric_on_two_ranks():
    """Fabric on two ranks under torchrun averages gradients, and gathers results."""
    torchrun(rank_fabric)


def rank_fabric():
    fabric = Fabric(accelerator="cuda", devices=2, strategy="ddp")
    fabric.launch()
    assert fabric.world_size == 2
    assert fabric.device == torch.device("cuda", fabric.local_rank)
    net = mlp()
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    rows = fabric.setup_dataloaders(loader(8))
    for _ in range(STEPS):
        for x, y in rows:
            optimizer.zero_grad()
            fabric.backward(mse_loss(model(x), y))
            optimizer.step()
    same_parameters(net, expected(), fabric.device)
    mine = torch.tensor([float(fabric.global_rank)], device=fabric.device)
    summed = fabric.all_reduce(mine.clone(), reduce_op="sum")
    close(summed, torch.ones(1), fabric.device)
    close(fabric.all_gather(mine), torch.tensor([[0.0], [1.0]]), fabric.device)


if __name__ == "__main__":
    main(globals())
