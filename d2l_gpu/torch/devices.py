"""Which devices there are, and their names: real GPUs where the machine has enough,
virtual ones where it has not.

Nothing here looks for a device at import. ``require_gpus`` and ``use_virtual_gpus``
decide, once per process, what ``gpu(i)`` means from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from d2l_gpu.settings import VIRTUAL, virtual_limit

from .checks import check_integer

# What the simulated clock takes virtual GPUs, and what connects them, for.
DEFAULTS = ("V100", "NVLink2")


@dataclass(frozen=True)
class Decision:
    """What this process uses: ``count`` devices of one type, real or virtual."""

    type: str
    count: int
    line: str
    settings: tuple = ()


_decision: Decision | None = None


# ------------------------------------------------------------------ names of devices


def cpu() -> torch.device:
    """Return the CPU: all of its cores and all of the host's memory."""
    return torch.device("cpu")


def gpu(i: int = 0) -> torch.device:
    """Return the name of the i-th GPU, counted from 0.

    Before ``require_gpus`` this is a name only and promises nothing; afterwards it
    is one of the devices in use.

    Args:
        i: index of the GPU.
    Raises:
        TypeError: i is not an integer.
        ValueError: i is negative, or there is no such GPU among those in use.
    """
    _check_index(i)
    if _decision is None:
        return torch.device(_real()[0] or "cuda", i)
    if i >= _decision.count:
        raise ValueError(
            f"gpu({i}) does not exist: {_count(_decision.count)} in use, "
            f"{_names(_decision.type, _decision.count)}."
        )
    return torch.device(_decision.type, i)


def num_gpus() -> int:
    """Return the number of GPUs: those in use, else those that the machine has."""
    if _decision is not None:
        return _decision.count
    return _real()[1]


def try_gpu(i: int = 0) -> torch.device:
    """Return gpu(i) if it exists, otherwise the CPU (d2l section 6.7).

    Raises:
        TypeError: i is not an integer.
        ValueError: i is negative.
    """
    _check_index(i)
    return gpu(i) if i < num_gpus() else cpu()


def try_all_gpus() -> list[torch.device]:
    """Return all GPUs, or ``[cpu()]`` if there is none: the list is never empty."""
    return [gpu(i) for i in range(num_gpus())] or [cpu()]


def real_gpus(n: int = 1) -> list[torch.device]:
    """Return n real GPUs, or an empty list: for what is measured where it can be.

    The list is empty where the machine has fewer, where this process uses virtual GPUs,
    or where ``D2L_GPU_VIRTUAL`` forces them.

    Raises:
        TypeError, ValueError: n is not a positive integer.
    """
    _check_number(n)
    kind, count = _real()
    if virtual_count() or virtual_limit() or count < n:
        return []
    return [torch.device(kind, i) for i in range(n)]


def to(x, *args, **kwargs):
    """Return ``x.to(*args, **kwargs)``: the function form that d2l uses."""
    return x.to(*args, **kwargs)


# ------------------------------------------------------------------ the decision


def require_gpus(n: int) -> None:
    """Make sure of n GPUs: real ones if the machine has n, else n virtual ones.

    Decides once per process and prints one line that says what was decided. From
    then on exactly those devices are visible. Repeating the call, or asking for
    fewer, prints the same line again. The environment variable ``D2L_GPU_VIRTUAL``
    forces virtual GPUs (``=4``: at most four) or forbids them (``=0``).

    Args:
        n: number of GPUs, at least 1.
    Raises:
        TypeError, ValueError: n is not a positive integer, or the environment
            variable is not a number.
        RuntimeError: n GPUs cannot be had: virtual ones are forbidden, or fewer
            were decided on earlier in this process.
    """
    _check_number(n)
    if _decision is None:
        limit = virtual_limit()
        _, real = _real()
        if limit is None and real >= n:
            _decide_real(n)
        elif limit == 0:
            if real < n:
                raise RuntimeError(
                    f"This lesson needs {_count(n)}, the machine has {real}, and "
                    f"{VIRTUAL}=0 forbids virtual ones: unset it to use them."
                )
            _decide_real(n)
        elif limit is not None and limit < n:
            raise RuntimeError(
                f"This lesson needs {_count(n)}, but {VIRTUAL}={limit} allows "
                f"{limit}: set it to at least {n}, or unset it."
            )
        else:
            _decide_virtual(n)
    if _decision.count < n:
        raise RuntimeError(
            f"{_count(_decision.count)} in use since the first call, so {n} cannot be "
            f"had now: restart Python (the notebook's kernel) to ask for {n}."
        )
    print(_decision.line)


def use_virtual_gpus(
    n: int = 2,
    *,
    memory: int | str | None = None,
    host: str | torch.device = None,
    as_cuda: bool = False,
    model: str | Sequence[str] = DEFAULTS[0],
    link: str = DEFAULTS[1],
) -> None:
    """Use n virtual GPUs in this process, whatever the machine has.

    Args:
        n: number of virtual GPUs, at least 1.
        memory: capacity of each, in bytes or as ``'512MiB'``, ``'2GiB'``; default
            4 GiB, less where the host has less to give.
        host: the device that computes for them; default the CPU, or the machine's
            one CUDA GPU where it has exactly one; ``'meta'`` computes no values.
        as_cuda: let them answer to the names ``cuda:0``, ``cuda:1`` … too, so that
            programs written for CUDA run unmodified; not where CUDA is real.
        model: what GPU the simulated clock takes them for, by its name in the
            catalogue (``d2l_gpu.vgpu.MODELS``), or a list with one for each.
        link: what it takes to connect them, by its name (``d2l_gpu.vgpu.LINKS``).
    Raises:
        TypeError, ValueError: an argument makes no sense.
        RuntimeError: other devices are in use in this process already, or virtual
            GPUs are forbidden or cannot work here.
    """
    _check_number(n)
    if virtual_limit() == 0:
        raise RuntimeError(f"{VIRTUAL}=0 forbids virtual GPUs: unset it to use them.")
    model = model if isinstance(model, str) else tuple(model)
    settings = (n, memory, host, as_cuda, model, link)
    if _decision is None:
        _decide_virtual(*settings, settings=settings)
    elif _decision.settings != settings:
        raise RuntimeError(
            f"{_decision.line} This cannot be changed any more: restart Python (the "
            "notebook's kernel) first."
        )
    print(_decision.line)


def virtual_count() -> int:
    """Return how many virtual GPUs this process has decided on, 0 for none."""
    if _decision is None or not (_decision.type == "vgpu" or _decision.settings):
        return 0
    return _decision.count


def _decide_real(n: int) -> None:
    global _decision
    from .inventory import device_model

    kind, _ = _real()
    model = device_model(torch.device(kind, 0))
    _decision = Decision(kind, n, f"Using {_count(n)}, {_names(kind, n)}: {model}.")


def _decide_virtual(
    n: int,
    memory=None,
    host=None,
    as_cuda: bool = False,
    model=DEFAULTS[0],
    link=DEFAULTS[1],
    settings: tuple = (),
) -> None:
    global _decision
    if host is None:
        one_cuda = torch.cuda.is_available() and torch.cuda.device_count() == 1
        host = "cuda:0" if one_cuda else "cpu"
    from d2l_gpu import vgpu

    vgpu.enable(n, memory=memory, host=host, as_cuda=as_cuda, model=model, link=link)
    kind = torch.device(host).type
    where = {"cpu": "computed on the CPU", "meta": "shapes without values"}.get(
        kind, f"computed on {host}"
    )
    time = ""
    if (model, link) != DEFAULTS:
        models = model if isinstance(model, str) else ", ".join(model)
        time = f", time simulated ({models}, {link})"
    names = _names("vgpu", n)
    if as_cuda:
        names += f", which answer to the names {_names('cuda', n)}"
    _decision = Decision(
        "cuda" if as_cuda else "vgpu",
        n,
        f"Using {n} virtual GPU{'s' * (n > 1)}, {names}: {where}, memory simulated"
        f"{time}.",
        settings,
    )


# ------------------------------------------------------------------ checks


def _real() -> tuple[str | None, int]:
    """The type and the number of this machine's real accelerators.

    Once virtual GPUs are registered, if only for a simulator, ``torch.accelerator``
    answers for them.
    """
    if torch._C._get_privateuse1_backend_name() != "vgpu":
        if not torch.accelerator.is_available():
            return None, 0
        kind = torch.accelerator.current_accelerator().type
        return kind, torch.accelerator.device_count()
    for kind in ("cuda", "xpu", "mps"):
        module = torch.get_device_module(kind)
        if module.is_available():
            return kind, module.device_count()
    return None, 0


def _check_index(i: int) -> None:
    if isinstance(i, bool) or not isinstance(i, int):
        raise TypeError(
            f"A GPU is named by an integer such as 0, not {i!r} ({type(i).__name__})."
        )
    if i < 0:
        raise ValueError(f"GPUs are counted from 0, so there is no GPU {i}.")


def _check_number(n: int) -> None:
    check_integer("The number of GPUs", n, least=1, example=2)


def _count(n: int) -> str:
    return f"{n} GPU" if n == 1 else f"{n} GPUs"


def _names(kind: str, n: int) -> str:
    names = [f"{kind}:{i}" for i in range(n)]
    if n > 4:
        return f"{names[0]} to {names[-1]}"
    return " and ".join([", ".join(names[:-1])] * (n > 1) + names[-1:])
