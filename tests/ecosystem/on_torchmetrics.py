"""TorchMetrics: metrics that are updated on GPUs."""

import torch
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
)
from torchmetrics.regression import MeanSquaredError, PearsonCorrCoef, R2Score

from tests.ecosystem.support import close, main, start, torchrun

NEEDS = ("torchmetrics",)
SHORT = ("classification_on_a_gpu",)


def predictions() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(40, 3, generator=generator).softmax(1)
    return outputs, torch.randint(3, (40,), generator=generator)


def classification() -> MetricCollection:
    return MetricCollection(
        {
            "accuracy": MulticlassAccuracy(3),
            "f1": MulticlassF1Score(3, average="macro"),
            "auroc": MulticlassAUROC(3),
            "binned": MulticlassAUROC(3, thresholds=10),
            "confusion": MulticlassConfusionMatrix(3),
        }
    )


def check_classification_on_a_gpu():
    """A collection of metrics on a GPU gives the CPU's values, batch by batch."""
    expected, mine = classification(), classification().to("cuda:1")
    outputs, labels = predictions()
    for rows in torch.arange(40).split(16):
        expected.update(outputs[rows], labels[rows])
        mine.update(outputs[rows].to("cuda:1"), labels[rows].to("cuda:1"))
    values = mine.compute()
    for name, value in expected.compute().items():
        close(values[name], value, "cuda:1")
    mine.reset()
    assert not mine["confusion"].confmat.any()
    assert mine["confusion"].confmat.device == torch.device("cuda:1")


def check_regression_on_a_gpu():
    """Metrics of regression and weighted means on a GPU give the CPU's values."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 50, generator=generator)
    for kind in MeanSquaredError, PearsonCorrCoef, R2Score:
        expected, mine = kind(), kind().to("cuda")
        for a, b in zip(x.split(20), (x + y).split(20), strict=True):
            close(mine(a.cuda(), b.cuda()), expected(a, b), "cuda:0", rtol=1e-3)
        close(mine.compute(), expected.compute(), "cuda:0", rtol=1e-3)
    mean = MeanMetric().to("cuda")
    weight = torch.tensor([3.0, 1.0], device="cuda")
    mean.update(torch.tensor([1.0, 3.0], device="cuda"), weight=weight)
    close(mean.compute(), torch.tensor(1.5), "cuda:0")


def check_metrics_of_two_ranks():
    """Under torchrun a metric counts the predictions of both ranks."""
    torchrun(rank_counts)


def rank_counts():
    outputs, labels = predictions()
    expected = classification()
    expected.update(outputs, labels)
    whole = expected.compute()  # before there is a group, which it would ask
    rank, gpu = start()
    mine = classification().to(gpu)
    rows = slice(0, 25) if rank == 0 else slice(25, 40)
    mine.update(outputs[rows].to(gpu), labels[rows].to(gpu))
    values = mine.compute()
    for name, value in whole.items():
        close(values[name], value, gpu)


if __name__ == "__main__":
    main(globals())
