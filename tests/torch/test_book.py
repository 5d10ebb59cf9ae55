"""The book's package d2l 1.0.3: its code on virtual GPUs, and what goes without it.

Each test of its code has a Python of its own, since the name cuda stays once given.
"""

import os
import subprocess
import sys
from importlib import metadata, util
from types import SimpleNamespace

import pytest
import torch

from d2l_gpu.torch import book
from tests.helpers.fresh_process import (
    PATH,
    run_program_without_torch,
    run_without_torch,
)
from tests.helpers.paths import REPOSITORY
from tests.helpers.toy_lessons import GOOD_LESSON, write_lesson
from tools import build, companion

needs_book = pytest.mark.skipif(
    util.find_spec("d2l") is None, reason=f"needs d2l: {companion.COMMAND}"
)

VIRTUAL = """
from d2l_gpu import vgpu
vgpu.enable(2, as_cuda=True)
"""
START = """
import warnings
import torch
from torch import nn
from d2l import torch as d2l

# Of the book's drawing: nothing is shown, and its warnings are not ours.
d2l.display.display = d2l.display.clear_output = lambda *args, **kwargs: None
d2l.use_svg_display = lambda: None
warnings.filterwarnings('ignore', 'Converting a tensor with requires_grad')

torch.manual_seed(0)
X, y = torch.rand(40, 1, 8, 8), torch.randint(10, (40,))
"""


def run_book(code: str, virtual: bool = True) -> str:
    """Run the book's code in a fresh process; return what it printed."""
    code = (VIRTUAL if virtual else "") + START + code
    return run_without_torch(code, MPLBACKEND="agg", OMP_NUM_THREADS="1")


def values(path) -> list[torch.Tensor]:
    return list(torch.load(path).values())


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Whether there are as many, and all are equal to the last bit."""
    return len(one) == len(other) > 0 and all(
        torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )


# ------------------------------------------------------------------ the book's code


@needs_book
def test_the_book_finds_virtual_gpus():
    run_book("""
first, second = torch.device('cuda:0'), torch.device('cuda:1')
assert d2l.try_all_gpus() == [first, second] and d2l.num_gpus() == 2
assert d2l.try_gpu() == first and d2l.try_gpu(2) == torch.device('cpu')
assert d2l.train_ch13.__defaults__ == ([first, second],)
parts, labels = d2l.split_batch(X, y, d2l.try_all_gpus())
assert [part.device for part in parts] == [first, second]
assert torch.equal(torch.cat([part.cpu() for part in labels]), y)
""")


FIT = """
class Data(d2l.DataModule):
    def __init__(self, batch_size=8):
        super().__init__()
        self.save_hyperparameters()

    def get_dataloader(self, train):
        return self.get_tensorloader((X, y), train)

model = d2l.Classifier()
model.lr = 0.1
model.net = nn.Sequential(
    d2l.Residual(4, use_1x1conv=True, strides=2), nn.Flatten(), nn.LazyLinear(10))
model.apply_init([X], d2l.init_cnn)
trainer = d2l.Trainer(max_epochs=2, num_gpus=NUM_GPUS, gradient_clip_val=1)
trainer.fit(model, Data())
assert {p.is_cuda for p in model.parameters()} == {NUM_GPUS > 0}
assert model.board.data['val_acc'][-1].x == 2
torch.save(model.cpu().state_dict(), PATH)
"""


@needs_book
def test_the_trainer_reaches_the_values_of_the_cpu(tmp_path):
    reached = []
    for num_gpus in (0, 1):
        path = tmp_path / f"{num_gpus}.pt"
        given = f"NUM_GPUS, PATH = {num_gpus}, {str(path)!r}\n"
        run_book(given + FIT, virtual=num_gpus > 0)
        reached.append(values(path))
    assert same(*reached)


# DataParallel on two devices does what the CPU does with the two halves of a batch.
TRAIN = """
class Halves(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, X):
        return torch.cat([self.net(half) for half in X.chunk(2)])

data = d2l.load_array((X, y), 8, is_train=False)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(),
                    nn.Linear(144, 10))
trainer = torch.optim.SGD(net.parameters(), lr=0.01)
devices = d2l.try_all_gpus() or [d2l.cpu()]
d2l.train_ch13(net if len(devices) == 2 else Halves(net), data, data,
               nn.CrossEntropyLoss(reduction='none'), trainer, 2, devices)
torch.save(net.cpu().state_dict(), PATH)
"""


@needs_book
def test_training_on_two_gpus_reaches_the_values_of_the_cpu(tmp_path):
    reached, printed = [], []
    for virtual in (False, True):
        path = tmp_path / f"{virtual}.pt"
        text = run_book(f"PATH = {str(path)!r}\n" + TRAIN, virtual)
        reached.append(values(path))
        printed.append(text.splitlines())
    assert same(*reached)
    assert printed[0][0] == printed[1][0]  # loss and accuracies
    assert "index=0" in printed[1][1] and "index=1" in printed[1][1]


@needs_book
def test_gpus_that_come_after_the_import_are_not_found_by_train_ch13():
    run_book(
        """
from d2l_gpu import vgpu
vgpu.enable(2, as_cuda=True)
assert len(d2l.try_all_gpus()) == 2 and d2l.train_ch13.__defaults__ == ([],)
net, data = nn.Linear(2, 2), d2l.load_array((X, y), 8)
try:
    d2l.train_ch13(net, data, data, None, None, 2)
except IndexError:
    pass
else:
    raise AssertionError
""",
        virtual=False,
    )


@needs_book
def test_networks_of_the_book_compute_as_on_the_cpu():
    run_book("""
def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value if isinstance(value, (list, tuple)) else []
    return [x for part in parts for x in tensors(part)]

def compared(make, *inputs):
    results = []
    for device in (d2l.cpu(), d2l.gpu(1)):
        torch.manual_seed(0)
        net = make()
        net.eval()
        net(*inputs)  # lazy layers
        net.to(device)
        found = tensors(net(*[x.to(device) for x in inputs]))
        sum(x.sum() for x in found if x.requires_grad).backward()
        found += [p.grad for p in net.parameters() if p.grad is not None]
        assert {x.device for x in found} == {device}
        results.append([x.detach().cpu() for x in found])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)

words, lengths = torch.randint(50, (2, 8)), torch.tensor([5, 8])
steps = torch.randn(5, 2, 4)
compared(lambda: d2l.resnet18(10), X[:2])
compared(lambda: d2l.ResNeXtBlock(8, 2, 1), torch.randn(2, 8, 8, 8))
compared(lambda: d2l.LeNet().net, torch.randn(2, 1, 28, 28))
compared(lambda: d2l.RNNScratch(4, 8), steps)
compared(lambda: d2l.GRU(4, 8, 2), steps)
compared(lambda: d2l.Seq2SeqEncoder(50, 8, 8, 2), words)
compared(lambda: d2l.TransformerEncoder(50, 8, 16, 2, 2, 0.1), words, lengths)
compared(lambda: d2l.BERTModel(50, 8, 16, 2, 2, 0.1),
         words, words // 25, lengths, torch.tensor([[1, 5], [6, 1]]))
""")


@needs_book
def test_boxes_of_the_book_are_found_as_on_the_cpu():
    run_book("""
def boxes(device):
    anchors = d2l.multibox_prior(torch.ones(1, 3, 8, 8, device=device), [0.75], [1, 2])
    truth = torch.tensor([[[0, 0.1, 0.08, 0.52, 0.92], [1, 0.55, 0.2, 0.9, 0.88]]])
    n = anchors.shape[1]
    torch.manual_seed(0)
    found = d2l.multibox_detection(
        torch.rand(1, 3, n).softmax(1).to(device),
        torch.zeros(1, 4 * n, device=device), anchors)
    return [anchors, *d2l.multibox_target(anchors, truth.to(device)), found]

for here, there in zip(boxes(d2l.cpu()), boxes(d2l.gpu(1)), strict=True):
    assert there.device == d2l.gpu(1) and torch.equal(here, there.cpu())
""")


# ------------------------------------------------------------------ require_book


def versions(monkeypatch, **there: str) -> None:
    """Let these packages be what is installed."""

    def version(name):
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(book.metadata, "version", version)


def importable(monkeypatch, **errors: Exception) -> None:
    """Let imports succeed, but for those of these names."""

    def import_module(name):
        if name in errors:
            raise errors[name]

    fake = SimpleNamespace(import_module=import_module)
    monkeypatch.setattr(book, "importlib", fake)


def test_a_missing_package_is_said_with_the_commands_that_get_it(monkeypatch):
    versions(monkeypatch)
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    with pytest.raises(ImportError) as caught:
        book.require_book()
    assert str(caught.value) == (
        "The book's package d2l 1.0.3 is not installed: install what it needs with "
        "`pip install pandas torchvision torch==2.13.0`, then the package itself with "
        "`pip install --no-deps d2l==1.0.3`."
    )


@pytest.mark.parametrize(
    ("version", "errors", "sentence"),
    [
        ("0.17.0", {}, "d2l 1.0.3 is needed, but version 0.17.0 is installed"),
        (
            "1.0.3",
            {"pandas": ModuleNotFoundError("No module named 'pandas'")},
            r"d2l 1\.0\.3 needs pandas, which cannot be imported \(No module",
        ),
        (
            "1.0.3",
            {"torchvision": ModuleNotFoundError("No module named 'torchvision'")},
            r"d2l 1\.0\.3 needs torchvision, which is not installed: install .* `pip",
        ),
        (
            "1.0.3",
            {"torchvision": RuntimeError("operator torchvision::nms …\nmore")},
            r"torchvision 0\.28\.0 does not match PyTorch .* \(operator "
            r"torchvision::nms …\): install both from the same source",
        ),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(
    version, errors, sentence, monkeypatch
):
    versions(monkeypatch, d2l=version, torchvision="0.28.0")
    importable(monkeypatch, **errors)
    with pytest.raises(ImportError, match=sentence):
        book.require_book()


def test_what_fits_is_accepted_without_a_word(monkeypatch, capsys):
    versions(monkeypatch, d2l="1.0.3", torchvision="0.28.0")
    importable(monkeypatch)
    book.require_book()
    assert capsys.readouterr() == ("", "")


@needs_book
def test_asking_for_the_book_does_not_import_it():
    # It looks for GPUs when it is imported.
    run_program_without_torch("book/asking_for_the_book_does_not_import_it.py")


# ------------------------------------------------------------------ tools.companion


@pytest.fixture
def commands(monkeypatch) -> list[str]:
    """What would be run, in place of running it; torchvision cannot be imported."""
    commands = []

    def python(*arguments):
        commands.append(" ".join(arguments))

    monkeypatch.setattr(companion, "_python", python)
    monkeypatch.setattr(companion, "_fails", lambda code: True)
    return commands


def test_installing_names_the_versions_that_are_to_stay(commands, monkeypatch):
    there = {"torch": "2.13.0+cpu", "numpy": "2.4.6"}
    monkeypatch.setattr(companion, "_versions", lambda: there)
    assert companion.main() == 0
    needs, operators, itself, check = commands
    assert needs.endswith("--quiet pandas torchvision torch==2.13.0 numpy==2.4.6")
    assert operators.endswith(str(REPOSITORY / "tests" / "book"))
    assert itself.endswith("--no-deps d2l==1.0.3")
    assert "require_book" in check


def test_another_pytorch_is_not_accepted(commands, monkeypatch, capsys):
    found = iter([{"torch": "2.13.0"}, {"torch": "2.15.0"}])
    monkeypatch.setattr(companion, "_versions", lambda: next(found))
    assert companion.main() == 1
    assert "'2.13.0'} to {'torch': '2.15.0'}" in capsys.readouterr().err


def test_a_command_that_fails_is_said(monkeypatch, capsys):
    def fail(*arguments):
        raise subprocess.CalledProcessError(1, arguments)

    monkeypatch.setattr(companion, "_python", fail)
    assert companion.main() == 1
    assert capsys.readouterr().err.startswith("failed: -m pip install --quiet pandas")


def test_asking_what_is_missing_does_not_load_pytorch():
    # pytest asks before it says how many threads PyTorch is to have.
    run_program_without_torch("book/asking_what_is_missing_does_not_load_pytorch.py")


# ------------------------------------------------------------------ without the book


@pytest.fixture
def without_book(monkeypatch):
    monkeypatch.setattr(companion.util, "find_spec", lambda name: None)


def test_what_needs_the_book_is_a_lesson():
    for name in companion.LESSONS:
        assert (REPOSITORY / "lessons" / "pytorch" / f"{name}.md").is_file()


def test_the_build_leaves_out_what_it_cannot_execute(project, without_book, capsys):
    (name,) = companion.LESSONS
    write_lesson(project, GOOD_LESSON, name)
    assert build.main(["--root", str(project)]) == 0
    captured = capsys.readouterr()
    assert captured.out == "notebooks/en/pytorch/01_toy.ipynb: written\n"
    assert captured.err == (
        f"left out: {name} needs the book's package d2l; install it with: "
        "python -m tools.companion\n"
    )


def test_the_build_refuses_it_when_it_is_named(project, without_book, capsys):
    (name,) = companion.LESSONS
    write_lesson(project, GOOD_LESSON, name)
    assert build.main(["--root", str(project), "A1"]) == 1
    assert capsys.readouterr().err.startswith(f"{name} needs the book's package d2l;")
    assert not (project / "notebooks").exists()


def test_checking_needs_no_book(project, without_book, capsys):
    (name,) = companion.LESSONS
    write_lesson(project, GOOD_LESSON, name)
    assert build.main(["--root", str(project), "--check", "A1"]) == 1
    assert "the notebook has not been built" in capsys.readouterr().out


@pytest.mark.all
@pytest.mark.parametrize("forbidden", [False, True])
def test_its_notebook_is_skipped_unless_that_is_forbidden(
    forbidden, write_notebook, tmp_path
):
    (name,) = companion.LESSONS
    notebook = write_notebook(f"{name}.ipynb", "1")
    # Comes first on the path, and hides whatever is installed.
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib import util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name: None if name == 'd2l' else find(name)\n"
    )
    path = os.pathsep.join([str(tmp_path), PATH["PYTHONPATH"]])
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider"]
    options = ["-p", "tools.pytest_setup", "--nbval", "--nbval-current-env"]
    done = subprocess.run(
        [*command, *options, *["--forbid-skips"] * forbidden, str(notebook)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert f"{name} needs the book's package d2l" in done.stdout
    assert ("2 errors" if forbidden else "2 skipped") in done.stdout
    assert done.returncode == forbidden
