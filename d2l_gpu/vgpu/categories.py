"""What a program uses a device's memory for: parameters, gradients, activations …

``sim/memory_use.py`` records each account of memory. Here hooks of PyTorch find out
what the accounts are for:

* Parameters and buffers are those of modules: of ``net``, and of every module that goes
  forward meanwhile. So parameters that ``fully_shard`` gathers count as parameters.
* Gradients are what parameters have in ``.grad``. We look whenever autograd has
  accumulated one, and before and after each step of an optimizer.
* Optimizer state is what ``optimizer.state`` contains after a step.
* Activations were made going forward, and lived when the outermost module returned with
  gradients enabled, or when backward began. They include the copies of weights that
  autocast makes, and what ``torch.utils.checkpoint`` computes again.
* Temporary is anything else that ended in the phase in which it began. All the rest is
  other: batches, the buckets of ``DistributedDataParallel`` (if ``.grad`` aren't views
  of them), caches.

Limits: an account has one category all its life. A gradient that a hook of the program
frees before ours sees it is temporary. Without any module, a batch that's moved to the
device between two steps counts as activations.
"""

import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from .devices import PLAIN, Device, Devices, index_of
from .layouts import parts
from .sim.memory_use import (
    BACKWARD,
    BETWEEN,
    BUFFERS,
    FORWARD,
    GRADIENTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    RECOMPUTING,
    STEP,
    MemoryUse,
)
from .sim.words import shown
from .tensor import is_virtual


@contextmanager
def memory_use(
    net: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    device: Device = None,
) -> Iterator[MemoryUse]:
    """See ``d2l_gpu.vgpu.memory_use``."""
    if net is not None and not isinstance(net, nn.Module):
        raise TypeError(f"net must be a module, but got {type(net).__name__}.")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"optimizer must be a torch.optim.Optimizer, but got "
            f"{type(optimizer).__name__}."
        )
    index = _index(net, device)
    clock = Devices.machines[index].clock
    label = str(Devices.shown[index]) if index < PLAIN else clock.names[index]
    if net is not None:
        name = type(net).__name__
        if optimizer is None:
            label = shown("{net} on {device}", net=name, device=label)
        else:
            label = shown(
                "{net} with {optimizer} on {device}",
                net=name,
                optimizer=type(optimizer).__name__,
                device=label,
            )
    watch = _Watch(index, label, net, optimizer)
    with watch.hooks():
        watch.use.start()
        try:
            yield watch.use
        finally:
            watch.use.stop()


def _index(net: nn.Module | None, device: Device) -> int:
    """Return the device's index; by default that of the network, or the current one."""
    if device is None and net is not None:
        for tensor in (*net.parameters(), *net.buffers()):
            for part in _plain(tensor):
                return part._index
    return index_of(device)


def _plain(tensor) -> Iterator[torch.Tensor]:
    """Yield the virtual tensors that a tensor consists of, such as a DTensor's."""
    if is_virtual(tensor):
        yield tensor
    elif is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _plain(getattr(tensor, name))


class _Here(threading.local):
    """Where a thread is.

    Attributes:
        modules: those that it's in, with their names. An optimizer that takes a step is
            among them.
        forward: whether it's going forward, in a module or after it.
    """

    def __init__(self):
        self.modules: list[tuple[object, str]] = []
        self.forward = False


def _untraced(hook):
    """Return a hook of modules that Dynamo doesn't compile, nor what it calls."""
    disabled = []

    def called(*args):
        if torch.compiler.is_compiling():
            return None
        if "torch._dynamo" not in sys.modules:
            return hook(*args)
        if not disabled:
            disabled.append(torch.compiler.disable(hook))
        return disabled[0](*args)

    return called


class _Watch:
    """The hooks that tell a record where the program is and what it keeps.

    ``torch.utils.module_tracker.ModuleTracker`` would know the modules, too. But its
    hooks hold gradients until all inputs of a module have theirs, which takes memory,
    and a checkpoint that stops recomputing early confuses it.
    """

    def __init__(self, index: int, label: str, net, optimizer):
        self.index, self.here = index, _Here()
        # Weak, so that recording keeps nothing alive.
        self.names: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self.optimizers: weakref.WeakSet = weakref.WeakSet()
        self.handles: dict[int, torch.utils.hooks.RemovableHandle] = {}
        self.use = MemoryUse(
            Devices.machines[index], index, label, self.place, self.learn
        )
        if net is not None:
            for name, module in net.named_modules():
                self.names.setdefault(module, name or type(net).__name__)
        if optimizer is not None:
            self.optimizers.add(optimizer)

    @contextmanager
    def hooks(self) -> Iterator[None]:
        with ExitStack() as stack:
            for handle in (
                register_module_forward_pre_hook(_untraced(self.enters)),
                register_module_forward_hook(_untraced(self.leaves), always_call=True),
                register_optimizer_step_pre_hook(self.step_begins),
                register_optimizer_step_post_hook(self.step_ends),
            ):
                stack.callback(handle.remove)
            stack.callback(self.leave_parameters)
            yield

    def leave_parameters(self) -> None:
        for handle in self.handles.values():
            handle.remove()

    # -------------------------------------------------------------- where we are

    def place(self) -> tuple[str, str]:
        here, backward = self.here, torch._C._current_graph_task_id()
        inside, name = here.modules[-1] if here.modules else (None, "")
        if isinstance(inside, nn.Module):
            return (FORWARD if backward == -1 else RECOMPUTING), name
        if inside is not None and backward == -1:
            here.forward = False
            return STEP, ""
        if backward != -1:  # even if a hook takes a step of an optimizer
            here.forward = False
            # A checkpoint of a function computes it again with gradients enabled.
            return (RECOMPUTING if torch.is_grad_enabled() else BACKWARD), ""
        return (FORWARD if here.forward else BETWEEN), ""

    def in_module(self) -> bool:
        return any(isinstance(inside, nn.Module) for inside, _ in self.here.modules)

    def enters(self, module: nn.Module, args) -> None:
        if module not in self.names:
            root = type(module).__name__
            for name, part in module.named_modules():
                self.names.setdefault(part, f"{root}.{name}" if name else root)
        if not self.in_module():
            self.here.forward = True
        self.here.modules.append((module, self.names[module]))
        self.use.moved()
        self.learn_module(module, self.names[module])

    def leaves(self, module: nn.Module, args, output) -> None:
        modules = self.here.modules
        while modules and modules.pop()[0] is not module:
            pass
        self.learn_module(module, self.names.get(module, ""))
        if self.in_module() or torch._C._current_graph_task_id() != -1:
            return
        if not torch.is_grad_enabled():
            self.here.forward = False
        elif threading.current_thread() is threading.main_thread():
            self.use.keep()  # other threads may still be going forward elsewhere

    def step_begins(self, optimizer, args, options) -> None:
        self.optimizers.add(optimizer)
        self.learn()
        # One that an error ended is still there.
        modules = [x for x in self.here.modules if x[0] is not optimizer]
        modules.append((optimizer, ""))
        self.here.modules = modules
        self.use.moved()

    def step_ends(self, optimizer, args, options) -> None:
        self.learn()
        modules = self.here.modules
        while modules and modules.pop()[0] is not optimizer:
            pass
        self.use.moved()

    # -------------------------------------------------------------- what is kept

    def learn(self) -> None:
        for module, name in list(self.names.items()):
            self.learn_module(module, name)
        for optimizer in list(self.optimizers):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self.learn_parameter(parameter, None)
            for parameter, state in optimizer.state.items():
                owner = self.owner_of(parameter)
                for value in tree_leaves(state):
                    self.tag(value, OPTIMIZER_STATE, owner)

    def learn_module(self, module: nn.Module, name: str) -> None:
        # Copies of a module, as DataParallel makes them, keep their parameters apart.
        copies = getattr(module, "_former_parameters", {})
        for parameter in (*module._parameters.values(), *copies.values()):
            self.learn_parameter(parameter, name)
        for buffer in module._buffers.values():
            self.tag(buffer, BUFFERS, name)

    def learn_parameter(self, parameter, name: str | None) -> None:
        if not self.tag(parameter, PARAMETERS, name) or not parameter.is_leaf:
            return
        if parameter.grad is not None:
            self.tag(parameter.grad, GRADIENTS, self.owner_of(parameter))
        known = self.handles.get(id(parameter))
        if parameter.requires_grad and (known is None or not known.hooks_dict_ref()):
            hook = parameter.register_post_accumulate_grad_hook(self.accumulated)
            self.handles[id(parameter)] = hook

    def accumulated(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self.tag(parameter.grad, GRADIENTS, self.owner_of(parameter))

    def tag(self, tensor, category: str, owner: str | None) -> bool:
        """Say what a tensor is for, and return whether it's on the device."""
        accounts = self.accounts(tensor)
        for account in accounts:
            self.use.tag(account, category, owner)
        return bool(accounts)

    def owner_of(self, tensor) -> str | None:
        owners = map(self.use.owner_of, self.accounts(tensor))
        return next((owner for owner in owners if owner), None)

    def accounts(self, tensor) -> list[int]:
        """Return the identities of a tensor's accounts on the device."""
        found = []
        for part in _plain(tensor):
            if part._index != self.index:
                continue
            for dense in parts(part._backing):
                account = getattr(dense.untyped_storage(), "_vgpu_charge", None)
                if account is not None:
                    found.append(id(account))
        return found
