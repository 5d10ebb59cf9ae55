"""``torch.autograd`` on virtual GPUs: the thread that runs backward, and its errors.

While a Python error is pending, C++ must not unwind through the device guard: that is
``noexcept`` and calls Python, so the process would end. ``tensor.contained`` keeps the
errors of operators. Here are those of a program's own hooks, and Ctrl-C.
"""

import functools
import signal
import threading

import torch

from ..errors import name_of
from ..tensor import engine, is_virtual


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    backward()
    hooks_of_tensors()
    hooks_of_modules()
    hooks_of_saved_tensors()
    linearize()


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
            if not isinstance(output, torch.Tensor):  # an edge of the graph
                continue
            virtual = is_virtual(output) or is_virtual(grad)
            # By C++'s names: a batch of gradients inside vmap knows no other.
            if virtual and grad is not None and name_of(grad) != name_of(output):
                raise RuntimeError(
                    f"invalid gradient at index {i} - expected device "
                    f"{name_of(output)} but got {name_of(grad)}"
                )
        outer, engine.error = engine.error, None
        engine.depth += 1
        try:
            with torch.autograd.set_multithreading_enabled(False), _Uninterrupted():
                return original(outputs, grads, *args, **kwargs)
        except Exception:
            if engine.error is not None:
                raise engine.error from None
            raise
        finally:
            engine.error = outer
            engine.depth -= 1

    graph._engine_run_backward = run_backward
    torch.autograd._engine_run_backward = run_backward


class _Uninterrupted:
    """A context at whose end Ctrl-C takes effect, as it does on other devices.

    There backward is a single call of C++, which Python doesn't interrupt.
    """

    def __enter__(self):
        self.interrupted = self.waits = False
        if threading.current_thread() is threading.main_thread():
            self.waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self.waits:
            signal.signal(signal.SIGINT, self.note)

    def note(self, number, frame):
        self.interrupted = True

    def __exit__(self, *exception):
        if self.waits:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.interrupted:
            raise KeyboardInterrupt


# ------------------------------------------------------------------ hooks


def _contained(hook, instead):
    """Make a hook whose errors end the backward pass without ending the process.

    Args:
        instead: is called with the hook's arguments. What it returns, C++ refuses with
            an error of its own, and ``run_backward`` raises the one that was kept.
    """

    @functools.wraps(hook)
    def called(*args):
        try:
            return hook(*args)
        except BaseException as error:
            if not engine.depth:
                raise
            if engine.error is None:
                engine.error = error
        return instead(*args)

    return called


def _another_type(grad):
    return torch.empty(0, dtype=torch.bool)


def _one_too_many(grads, *others):
    return (*grads, None)


def hooks_of_tensors() -> None:
    """Let hooks of virtual tensors raise errors.

    All: the process ends.
    """
    tensor = torch.Tensor
    before, after = tensor.register_hook, tensor.register_post_accumulate_grad_hook

    @functools.wraps(before)
    def register_hook(self, hook):
        ours = callable(hook) and name_of(self).type == "vgpu"
        return before(self, _contained(hook, _another_type) if ours else hook)

    @functools.wraps(after)
    def register_post_accumulate_grad_hook(self, hook):
        ours = callable(hook) and name_of(self).type == "vgpu"
        return after(self, _contained(hook, _another_type) if ours else hook)

    tensor.register_hook = register_hook
    tensor.register_post_accumulate_grad_hook = register_post_accumulate_grad_hook


class _Node:
    """A node of the graph to which hooks are added."""

    def __init__(self, node):
        self._node = node

    def register_hook(self, hook):
        return self._node.register_hook(_contained(hook, _one_too_many))

    def register_prehook(self, hook):
        return self._node.register_prehook(_contained(hook, _one_too_many))

    def __getattr__(self, name):
        return getattr(self._node, name)


def hooks_of_modules() -> None:
    """Let hooks of modules for the backward pass raise errors.

    All: the process ends. (It still does if a hook that a program adds to ``x.grad_fn``
    itself raises one: the types of nodes can't be changed.)
    """
    hook = torch.utils.hooks.BackwardHook
    original = hook._apply_on_tensors

    @functools.wraps(original)
    def _apply_on_tensors(self, fn, args):
        return original(self, lambda node: fn(_Node(node)), args)

    hook._apply_on_tensors = _apply_on_tensors


def hooks_of_saved_tensors() -> None:
    """Let hooks that unpack saved tensors raise errors; checkpoints compute in them.

    All: the process ends, for example where memory runs out in a checkpoint.
    """
    hooks = torch.autograd.graph.saved_tensors_hooks
    original = hooks.__init__

    @functools.wraps(original)
    def __init__(self, pack_hook, unpack_hook):
        original(self, pack_hook, _contained(unpack_hook, lambda packed: None))

    hooks.__init__ = __init__


# ------------------------------------------------------------------ transformations


def linearize() -> None:
    """Let ``torch.func.linearize`` evaluate a function's derivative at each call.

    All: it traces the derivative with tensors that have no values, and on virtual GPUs
    returns wrong numbers.
    """
    from torch._functorch import eager_transforms

    original = eager_transforms.linearize

    @functools.wraps(original)
    def linearize(func, *primals):
        if not any(is_virtual(x) for x in torch.utils._pytree.tree_leaves(primals)):
            return original(func, *primals)
        output = func(*primals)
        return output, lambda *tangents: torch.func.jvp(func, primals, tangents)[1]

    eager_transforms.linearize = torch.func.linearize = linearize
