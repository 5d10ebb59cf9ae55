"""What the checks share: comparing, starting ranks, and saying what went wrong."""

import contextlib
import faulthandler
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

# The folder where processes write what went wrong. tools/ecosystem.py sets it.
REPORTS = "ECOSYSTEM_REPORTS"
# The folder with checkouts of programs that aren't on PyPI, by ``--sources``.
SOURCES = "ECOSYSTEM_SOURCES"
# Seconds after which a process ends itself. By then the tool has given up the check.
PATIENCE = 320

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = str(ROOT / "d2l_gpu")


# ------------------------------------------------------------------ programs


def main(functions: dict[str, Callable]) -> None:
    """Call the function that the first argument names, with the other arguments.

    If it raises, write down what, because a launcher may not say it.
    """
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    # Values are compared in float32, which TF32 on a real GPU isn't.
    torch.backends.cudnn.allow_tf32 = False
    name, *arguments = sys.argv[1:]
    try:
        functions[name](*arguments)
    except BaseException as error:
        report(**described(error))
        raise
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


def report(result: str, error: str, where: str = "") -> None:
    """Write down that this process failed, for the tool to read."""
    folder = os.environ.get(REPORTS)
    if folder is None:
        return
    path = Path(folder, f"{time.time_ns()}-{os.getpid()}.json")
    text = json.dumps({"result": result, "error": error, "where": where})
    path.write_text(text, encoding="utf-8")


def described(error: BaseException) -> dict[str, str]:
    """Describe an error: what it is, whether we refused, and where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(PACKAGE)]
    where = ""
    if ours:
        where = f"{Path(ours[-1].filename).relative_to(ROOT)}:{ours[-1].lineno}"
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if type(error).__name__ == "ProcessRaisedException":
        text = str(error).strip().splitlines()[-1]
    by_us = bool(ours) and frames[-1] is ours[-1] and _raises(frames[-1])
    refused = by_us and (
        isinstance(error, NotImplementedError) or "virtual GPU" in text
    )
    refused = refused or "NotImplementedError: Virtual GPUs" in text
    return {"result": "refused" if refused else "fails", "error": text, "where": where}


def _raises(frame: traceback.FrameSummary) -> bool:
    """Whether a frame ends at a statement that raises, rather than in a call."""
    lines = range(frame.lineno, (frame.end_lineno or frame.lineno) + 1)
    text = "".join(linecache.getline(frame.filename, line) for line in lines)
    return text.lstrip().startswith("raise ")


def virtual() -> list[str]:
    """Return the arguments that make Python run a program on virtual GPUs.

    None, if this process doesn't use them itself.
    """
    return ["-m", "d2l_gpu.vgpu", "--gpus", "2"] * ("d2l_gpu.vgpu" in sys.modules)


def torchrun(function: Callable, *arguments: str) -> None:
    """Run a function of a module of checks on two ranks that torchrun starts.

    Raises:
        ChildProcessError: a rank has failed. It has written down how.
    """
    program = sys.modules[function.__module__].__file__
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node=2", *virtual(), program, function.__name__]
    _run([*command, *arguments])


def launch(module: str, options: Sequence[str], function: Callable) -> None:
    """Start a function of a module of checks as users do: by a library's launcher.

    Unlike `torchrun`, this leaves it to the launcher how processes come to have GPUs.

    Args:
        module: of the launcher, such as ``torch.distributed.run``.
        options: of the launcher.
    """
    program = sys.modules[function.__module__].__file__
    command = [sys.executable, *virtual(), "-m", module, *options]
    _run([*command, program, function.__name__])


def source(name: str) -> Path:
    """Return the folder of a program that was checked out, not installed."""
    return Path(os.environ[SOURCES], name)


def program(path: Path, *arguments: str, gpus: int = 2, ranks: int = 0) -> str:
    """Run a program that nobody here wrote, and return what it prints.

    Args:
        ranks: how many torchrun starts, 0 to run it without torchrun.

    Raises:
        ChildProcessError: it failed. The message is its own error.
    """
    place = str(path.parent)
    others = os.environ.get("PYTHONPATH", "")
    command = [sys.executable, "-m", "d2l_gpu.vgpu", "--gpus", str(gpus)]
    if not virtual():
        command = command[:1]
    if ranks:
        command += ["-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={ranks}"]
    return _run(
        [*command, str(path), *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([place, others])},
    )


def _run(command: list[str], **options) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", **options
    )
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    if done.returncode == 0:
        return done.stdout + done.stderr
    if signals := re.findall(r"\((SIG(?:ABRT|BUS|FPE|ILL|SEGV))\)", done.stderr):
        report("died", f"A rank was ended by {signals[0]}.")
    pattern = r"^(?:\[\w+\]: ?)?([\w.]+Error: .*)$"
    error = re.search(pattern, done.stderr, re.MULTILINE)
    ended = f"{command[2]} ended with status {done.returncode}."
    raise ChildProcessError(ended if error is None else f"{ended} {error[1]}")


def start(backend: str | None = "nccl", **options) -> tuple[int, torch.device]:
    """Join the process group, as every rank does first; return rank and device."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group(backend, **options)
    return dist.get_rank(), torch.device("cuda", rank)


@contextlib.contextmanager
def folder():
    """A temporary folder, as a path."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        yield Path(name)


# ------------------------------------------------------------------ comparing


def close(
    actual: torch.Tensor,
    expected: torch.Tensor,
    on: str | torch.device | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> None:
    """Assert that values and dtypes agree, and that ``actual`` is on a device.

    By default values agree as far as those of a CPU and a GPU do in float32.
    """
    if on is not None:
        assert actual.device == torch.device(on), f"on {actual.device}, not {on}"
    torch.testing.assert_close(
        actual.detach().cpu(), expected.detach().cpu(), rtol=rtol, atol=atol
    )


def same_parameters(
    actual: nn.Module,
    expected: nn.Module,
    on: str | torch.device | None = None,
    **tolerances,
) -> None:
    """Assert that two modules have the same parameters, and where the first's are."""
    pairs = zip(actual.named_parameters(), expected.named_parameters(), strict=True)
    for (_, a), (name, b) in pairs:
        try:
            close(a, b, on, **tolerances)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def same_gradients(
    actual: nn.Module,
    expected: nn.Module,
    on: str | torch.device | None = None,
    **tolerances,
) -> None:
    """Assert that the parameters of two modules have the same gradients."""
    for a, b in zip(actual.parameters(), expected.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), (a.grad, b.grad)
        if a.grad is not None:
            close(a.grad, b.grad, on, **tolerances)


def raises(kind: type | tuple[type, ...], call: Callable, *words: str) -> None:
    """Assert that a call raises an error whose message contains the words."""
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} isn't in: {error}"
    else:
        raise AssertionError("Nothing was raised.")


# ------------------------------------------------------------------ toys


def mlp() -> nn.Sequential:
    """A small network, always with the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def batch(rows: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets for `mlp`, always the same."""
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(rows, 8, generator=generator)
    return X, torch.randn(rows, 4, generator=generator)


def train(
    model: nn.Module, X: torch.Tensor, Y: torch.Tensor, steps: int = 1, lr: float = 0.1
) -> torch.Tensor:
    """Take steps of SGD on a whole batch; return the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(X), Y)
        loss.backward()
        optimizer.step()
    return loss.detach()
