"""``torch.autograd`` on virtual GPUs: the thread that runs backward, and its errors."""

import functools

import torch

from ..errors import name_of
from ..tensor import engine, is_virtual


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    backward()


def backward() -> None:
    """Run backward in the calling thread, and raise the errors of its operators.

    All: the engine has one queue per device that the guard knows, and a guard written
    in Python knows one. So in a thread of its own, the engine aborts for index 1 and
    beyond. An error below a C++ node would end the process, so ``tensor.contained``
    keeps it. And for tensor subclasses, C++ doesn't compare the devices of outputs and
    gradients.
    """
    import torch.autograd.graph as graph

    original = graph._engine_run_backward
    type(engine).code = original.__code__

    @functools.wraps(original)
    def run_backward(outputs, grads=(), *args, **kwargs):
        for i, (output, grad) in enumerate(zip(outputs, grads, strict=False)):
            virtual = is_virtual(output) or is_virtual(grad)
            # By C++'s names: a batch of gradients inside vmap knows no other.
            if virtual and grad is not None and name_of(grad) != name_of(output):
                raise RuntimeError(
                    f"invalid gradient at index {i} - expected device "
                    f"{name_of(output)} but got {name_of(grad)}"
                )
        outer, engine.error = engine.error, None
        try:
            with torch.autograd.set_multithreading_enabled(False):
                return original(outputs, grads, *args, **kwargs)
        except Exception:
            if engine.error is not None:
                raise engine.error from None
            raise
        finally:
            engine.error = outer

    graph._engine_run_backward = run_backward
    torch.autograd._engine_run_backward = run_backward
