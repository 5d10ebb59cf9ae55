"""Models are trained on the device that was asked for, without waiting for it."""

import copy
import gc
import io
import pickle
import re
import weakref

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from d2l_gpu import torch as d2l
from tests.helpers.fresh_process import run_program
from tests.helpers.toy_training import Line, Regression, trained


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)


# ---------------------------------------------------------------- it learns


def test_training_on_the_cpu_finds_the_line():
    model, trainer = trained(lambda: nn.LazyLinear(1), max_epochs=10)
    assert torch.allclose(model.net.weight, torch.tensor([[2.0, -3.0]]), atol=1e-2)
    assert trainer.device == torch.device("cpu")
    assert trainer.gpus == []


def test_training_does_what_a_loop_by_hand_does():
    model, _ = trained(lambda: nn.Linear(2, 1))
    torch.manual_seed(0)
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        for X, y in Line().train_dataloader():
            optimizer.zero_grad()
            nn.functional.mse_loss(net(X), y).backward()
            optimizer.step()
        list(Line().val_dataloader())  # draws from the generator as well
    assert torch.equal(net.weight, model.net.weight)
    assert torch.equal(net.bias, model.net.bias)


def test_lazy_layers_get_the_shapes_and_the_weights_of_ready_ones():
    lazy, _ = trained(
        lambda: nn.Sequential(
            nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Dropout(), nn.LazyLinear(1)
        )
    )
    ready, _ = trained(
        lambda: nn.Sequential(
            nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1)
        )
    )
    for name, value in ready.state_dict().items():
        assert torch.equal(value, lazy.state_dict()[name]), name


def test_each_fit_sees_the_same_orders_of_batches():
    class Digits(d2l.DataModule):
        def __init__(self):
            super().__init__()
            self.loaders = d2l.load_data_digits(400, resize=8)

        def get_dataloader(self, train):
            return self.loaders[not train]

    class Classifier(d2l.Module):
        def __init__(self, layer):
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Sequential(nn.Flatten(), layer)
            self.lr = 0.1

        def loss(self, y_hat, y):
            seen[-1].append(y[:8].tolist())
            return nn.functional.cross_entropy(y_hat, y)

    data, seen = Digits(), []
    for layer in (nn.Linear(64, 10), nn.LazyLinear(10)):
        seen.append([])
        d2l.Trainer(max_epochs=2).fit(Classifier(layer), data)
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[0][len(seen[0]) // 2]  # the epochs differ


def test_gradients_are_clipped_to_a_norm():
    trainer = d2l.Trainer(1, gradient_clip_val=0.5)
    net = nn.Linear(3, 1)
    net.weight.grad = torch.tensor([[3.0, 0.0, 4.0]])  # the bias has none
    trainer.clip_gradients(0.5, net)
    assert torch.allclose(net.weight.grad, torch.tensor([[0.3, 0.0, 0.4]]))
    trainer.clip_gradients(10, net)
    assert torch.allclose(net.weight.grad, torch.tensor([[0.3, 0.0, 0.4]]))
    # With so small a norm almost nothing is learned: fit clips, too.
    held, _ = trained(lambda: nn.Linear(2, 1), gradient_clip_val=1e-4)
    torch.manual_seed(0)
    assert torch.allclose(held.net.weight, nn.Linear(2, 1).weight, atol=1e-2)


def test_sgd_steps_and_zeroes_and_skips_what_has_no_gradient():
    used = torch.tensor([1.0], requires_grad=True)
    unused = torch.tensor([1.0], requires_grad=True)
    (4 * used).sum().backward()
    d2l.sgd([used, unused], lr=0.1, batch_size=2)
    assert used.item() == pytest.approx(0.8)
    assert used.grad.item() == 0
    assert unused.item() == 1


@pytest.mark.parametrize("lr", [0, -1.0, float("nan"), float("inf")])
def test_learning_rates_that_cannot_train_are_refused_everywhere(lr):
    model = d2l.Module()
    model.net, model.lr = nn.Linear(2, 1), lr
    for call in (
        model.configure_optimizers,
        lambda: d2l.sgd(model.parameters(), lr, batch_size=2),
        lambda: d2l.train(model.net, 0, 64, lr, display=False),
    ):
        with pytest.raises(ValueError, match="A learning rate is a finite number"):
            call()


# ---------------------------------------------------------------- what is plotted


def test_curves_have_the_asked_for_points_and_are_means():
    model, _ = trained(lambda: nn.Linear(2, 1))
    curves = model.board.data
    assert list(curves) == ["train_loss", "val_loss"]
    assert [point.x for point in curves["val_loss"]] == [1, 2, 3]
    # 8 batches per epoch, 2 points per epoch: each the mean of 4 batches.
    assert len(curves["train_loss"]) == 6
    assert curves["train_loss"][0].x == (0 + 1 + 2 + 3) / 4 / 8
    last = curves["val_loss"][-1].y
    X, y = Line().X[80:], Line().y[80:]
    assert model.loss(model(X), y).item() == pytest.approx(last, rel=1e-5)


def test_training_again_starts_with_an_empty_board():
    model, trainer = trained(lambda: nn.Linear(2, 1))
    trainer.fit(model, Line())
    assert [point.x for point in model.board.data["val_loss"]] == [1, 2, 3]


def test_less_batches_than_points_are_plotted_all():
    torch.manual_seed(0)
    model = Regression(nn.Linear(2, 1))
    d2l.Trainer(2).fit(model, Line(batch_size=80))
    assert len(model.board.data["train_loss"]) == 2


def test_a_terminal_gets_one_line_per_epoch(capsys):
    model, _ = trained(lambda: nn.Linear(2, 1))
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) == 3
    assert re.fullmatch(r"epoch 3/3: train_loss [\d.e-]+, val_loss [\d.e-]+", lines[2])
    assert captured.err == ""
    model.board.display = False
    d2l.Trainer(1).fit(model, Line())
    assert capsys.readouterr().out == ""


def test_training_reads_no_number_from_a_tensor():
    class Reads(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += func is torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    torch.manual_seed(0)
    model, data, trainer = Regression(nn.Linear(2, 1)), Line(), d2l.Trainer(1)
    trainer.gradient_clip_val = 1.0
    with Reads() as reads:
        trainer.fit(model, data)
        # The two points of the loss and one of the validation are copied in bulk;
        # what is read are seeds of the shuffling, which are made on the CPU.
        seeds = reads.count
        list(data.train_dataloader())
        list(data.val_dataloader())
    assert seeds == reads.count - seeds


# ---------------------------------------------------------------- devices


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_gpus": 1}, ValueError, "there is none"),
        ({"num_gpus": 2}, ValueError, r"more GPUs than there are \(0\)"),
        ({"num_gpus": -1}, ValueError, "num_gpus must be at least 0, but got -1"),
        ({"num_gpus": True}, TypeError, "num_gpus must be an integer"),
        ({"num_gpus": 1.0}, TypeError, "num_gpus must be an integer"),
        ({"num_gpus": "1"}, TypeError, "num_gpus must be an integer"),
        ({"max_epochs": 0}, ValueError, "max_epochs must be at least 1"),
        ({"max_epochs": 1.5}, TypeError, "max_epochs must be an integer"),
        ({"gradient_clip_val": -1}, ValueError, "largest norm"),
        ({"gradient_clip_val": float("nan")}, ValueError, "largest norm"),
        ({"gradient_clip_val": "1"}, TypeError, "must be a number"),
    ],
)
def test_a_trainer_that_cannot_be_is_refused_at_once(no_gpu, arguments, error, message):
    with pytest.raises(error, match=message):
        d2l.Trainer(**({"max_epochs": 1} | arguments))


def test_weights_trained_on_a_virtual_gpu_are_those_of_the_cpu_bit_by_bit():
    out = run_program("trainer/weights_of_both_devices.py")
    runs = [
        "{'cpu'} [] cpu",
        "{'vgpu:0'} [device(type='vgpu', index=0)] vgpu:0",
        "True",
    ]
    assert out.splitlines()[1:] == runs * 2


@pytest.mark.all
def test_what_leaves_a_gpu_in_training_is_the_points_of_the_curves():
    out = run_program("trainer/copies_from_a_gpu_in_training.py")
    assert out.splitlines()[1:] == ["9", "9"]


def test_a_trainer_refuses_several_gpus_and_more_than_there_are():
    out = run_program("trainer/refused_numbers_of_gpus.py")
    _, two, three = out.splitlines()
    assert two.startswith("NotImplementedError This trainer uses one device, not 2")
    assert three.startswith("ValueError num_gpus=3 asks for more GPUs than there are")


def test_every_tensor_of_a_batch_is_moved():
    out = run_program("trainer/every_tensor_of_a_batch_is_moved.py")
    assert out.splitlines()[1:] == ["vgpu:0 vgpu:0 vgpu:0 text"]


# ---------------------------------------------------------------- models and data


def test_letting_go_of_model_and_trainer_frees_the_weights_at_once():
    gc.collect()
    gc.disable()
    try:
        model, trainer = trained(lambda: nn.Linear(2, 1))
        weight = weakref.ref(model.net.weight)
        assert model.trainer is trainer
        del model, trainer
        assert weight() is None
    finally:
        gc.enable()


def test_a_trained_model_can_be_copied_pickled_and_saved():
    model, _ = trained(lambda: nn.Linear(2, 1))
    assert model.board.fig is not None
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
    ):
        assert other.trainer is None
        assert torch.equal(other.net.weight, model.net.weight)
        assert other.board.data == model.board.data


def test_shuffled_batches_hold_every_example_once():
    torch.manual_seed(0)
    data = Line(batch_size=32)
    loader = data.train_dataloader()
    assert len(loader) == 3
    X, y = (torch.cat(parts) for parts in zip(*loader, strict=True))
    assert [len(part) for part, _ in loader] == [32, 32, 16]
    assert not torch.equal(X, data.X[:80])
    assert torch.equal(X.sort(0).values, data.X[:80].sort(0).values)
    assert torch.allclose(X @ torch.tensor([[2.0], [-3.0]]) + 1, y)
    (X, _), *rest = data.val_dataloader()
    assert rest == []
    assert torch.equal(X, data.X[80:])


def test_apply_init_initialises_lazy_layers():
    model = Regression(nn.Sequential(nn.LazyLinear(1)))

    def ones(module):
        if isinstance(module, nn.Linear):
            nn.init.ones_(module.weight)

    model.apply_init([torch.zeros(1, 5)], ones)
    assert torch.equal(model.net[0].weight, torch.ones(1, 5))


def test_what_a_subclass_left_out_is_named():
    bare = d2l.Module()
    for call, missing in [
        (lambda: bare(torch.zeros(1)), "set self.net"),
        (lambda: bare.loss(0, 0), "define loss"),
        (bare.configure_optimizers, "set self.lr"),
        (d2l.DataModule().train_dataloader, "define get_dataloader"),
    ]:
        with pytest.raises(NotImplementedError, match=missing):
            call()


def test_plotting_without_a_trainer_is_an_error():
    with pytest.raises(RuntimeError, match="needs a trainer"):
        d2l.Module().plot("loss", 1.0, train=True)


def test_what_is_no_model_or_no_data_is_refused():
    with pytest.raises(TypeError, match=r"trains a d2l\.Module"):
        d2l.Trainer(1).fit(nn.Linear(2, 1), Line())

    class Nothing(d2l.DataModule):
        def get_dataloader(self, train):
            return []

    with pytest.raises(ValueError, match="nothing to train on"):
        d2l.Trainer(1).fit(Regression(nn.Linear(2, 1)), Nothing())


def test_validation_data_may_be_missing():
    class Unvalidated(Line):
        def val_dataloader(self):
            return None

    model = Regression(nn.Linear(2, 1))
    d2l.Trainer(1).fit(model, Unvalidated())
    assert list(model.board.data) == ["train_loss"]
