"""An out-of-tree PyTorch device in about 100 lines: `tiny`, computed on the CPU.

PyTorch keeps one device type free for backends from outside, PrivateUse1. This file
names it `tiny`. Then `torch.ones(2, 3, device="tiny:1")` works, modules and gradients
work, and mixing devices is an error. It needs PyTorch 2.10 or newer.

The virtual GPUs in `d2l_gpu/vgpu` work the same way. They add memory that runs out
(sim/machine.py), streams (streams.py), a clock (sim/clock.py), errors inside backward,
which would end this process (patches/autograd.py), complex numbers (tensor.py), LSTMs
(composites.py), lazy modules (patches/modules.py), torch.save and torch.load
(methods.py, patches/loading.py), torch.distributed (collectives.py) and much more.
"""

import types
import weakref

import torch
from torch._C import _acc, _autograd
from torch.utils._pytree import tree_leaves, tree_map_only

COPY = torch.ops.aten.copy_.default  # y.copy_(x)
MIXED = "Expected all tensors to be on the same device, but found at least two devices"
# Which device owns which memory. The keys are weak, so an entry goes with its memory.
owners = weakref.WeakKeyDictionary()


class TinyTensor(torch.Tensor):
    """To C++ it's on `tiny:i`, without memory. Its values are in `backing` (CPU)."""

    data = property(torch.Tensor.data.__get__)  # read-only: C++ can't change backing

    @staticmethod
    def __new__(cls, backing: torch.Tensor, index: int):
        if backing.is_complex():  # conj() only sets a flag, and that gets lost here
            raise NotImplementedError("tiny has no complex numbers")
        geometry = backing.shape, backing.stride(), backing.storage_offset()
        options = {"dtype": backing.dtype, "device": torch.device("tiny", index)}
        self = torch.Tensor._make_wrapper_subclass(cls, *geometry, **options)
        self.backing = backing
        owners[backing.untyped_storage()] = str(self.device)
        return self

    def __repr__(self, **options):
        return f"{repr(self.backing)[:-1]}, device='{self.device}')"

    @staticmethod
    def __torch_dispatch__(func, types, args, kwargs):
        """Run an operator on the backing tensors. Autograd, above, has recorded it."""
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        here = next((x.device for x in given if isinstance(x, TinyTensor)), None)
        for x in given:  # copies cross devices, and CPU scalars fit anywhere
            if func != COPY and x.device != here and (x.dim() or not x.is_cpu):
                raise RuntimeError(f"{MIXED}, {here} and {x.device}!")
        to = kwargs.get("device") or here  # ones(device=…) and x.to(device) name one
        if to.type == "tiny" and "device" in kwargs:
            kwargs = kwargs | {"device": torch.device("cpu")}
        args, kwargs = tree_map_only(TinyTensor, lambda x: x.backing, (args, kwargs))
        results = func(*args, **kwargs)  # PyTorch's own kernel, on the CPU
        back = {id(getattr(x, "backing", x)): x for x in given}  # result to argument

        def wrap(result: torch.Tensor) -> torch.Tensor:
            if (x := back.get(id(result))) is not None:  # x.add_(1) returns x itself
                if (x.shape, x.stride()) != (result.shape, result.stride()):  # x.t_()
                    torch.Tensor.data.__set__(x, TinyTensor(result, x.device.index))
                return x
            return TinyTensor(result, to.index or 0) if to.type == "tiny" else result

        return tree_map_only(torch.Tensor, wrap, results)


class Guard(_acc.DeviceGuard):
    def type_(self):  # C++ enters a device through its guard
        return _autograd.DeviceType.PrivateUse1


class Hooks(_acc.PrivateUse1Hooks):
    def has_primary_context(self, index):  # backward asks which devices are in use
        return True


api = types.SimpleNamespace(  # torch.tiny, where PyTorch asks about the device
    is_available=lambda: True,  # Adam asks
    _is_in_bad_fork=lambda: False,  # torch.manual_seed asks, and seeds the devices:
    manual_seed_all=lambda seed: None,  # the CPU draws for all of them
    memory_allocated=lambda name: sum(s.nbytes() for s in owners if owners[s] == name),
)
torch.utils.rename_privateuse1_backend("tiny")
torch._register_device_module("tiny", api)
_acc.register_python_privateuseone_device_guard(Guard())
_acc.register_python_privateuseone_hook(Hooks())
# Operators on a TinyTensor reach __torch_dispatch__. Those that make one need a kernel:
# ones, randn and arange begin with an empty tensor, and torch.tensor ends in a copy.
dispatch = TinyTensor.__torch_dispatch__
library = torch.library.Library("aten", "IMPL", "PrivateUse1")
for func in (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default):
    library.impl(func, lambda *args, f=func, **kwargs: dispatch(f, (), args, kwargs))
library.impl("_copy_from", lambda x, y, *_: dispatch(COPY, (), (y, x), {}))
# Backward runs in this thread: the engine has only as many others as the guard knows
# devices, and a guard in Python knows one.
torch.autograd.set_multithreading_enabled(False)
torch.__future__.set_swap_module_params_on_conversion(True)  # net.to() keeps Parameters

if __name__ == "__main__":
    x = torch.ones(2, 3, device="tiny:1")
    print(x, x.sum(), sep="\n")
    try:
        x + x.to("tiny:0")
    except RuntimeError as error:
        print(error)
    for device in ("cpu", "tiny:0"):
        torch.manual_seed(0)
        net, X = torch.nn.Linear(3, 1).to(device), torch.randn(8, 3, device=device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            loss = net(X).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"{device}: loss {loss.item()}, gradient {net.weight.grad}")
    print(f"memory on tiny:1: {torch.tiny.memory_allocated('tiny:1')} bytes")
