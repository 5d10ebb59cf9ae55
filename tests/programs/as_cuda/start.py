"""What the programs that say ``cuda`` begin with."""

from collections.abc import Callable

from d2l_gpu import vgpu


def start() -> None:
    """Let two virtual GPUs be those of this process, also by the name cuda."""
    vgpu.enable(2, memory="64MiB", as_cuda=True)


def raises(kind: type[Exception], text: str, call: Callable) -> None:
    """See that a call raises an error that says so."""
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}: {text}")
