"""What is compared: PyTorch's own databases of operators, modules and optimizers.

A case is run twice, on the CPU and on a virtual GPU, from the same seed; ``compare``
says how far the results agree. Run it in a process of its own (see ``runner``): a
mistake in the mechanism can abort the interpreter.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from compare import Comparison

DEVICE = "vgpu:1"
SEED = 0

# Beside float32: one integer, the short and the long floating type, one complex type.
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.int64,
    torch.bool,
    torch.complex64,
)

# Memory that nobody has written: compared by shape.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}


@dataclass(frozen=True, order=True)
class Case:
    """One entry of a database with one dtype: ``op forward add float32``."""

    database: str  # op, module, optim
    mode: str  # what is compared
    name: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.database}-{self.mode}-{self.name}-{self.dtype}"


# What follows is named by regular expressions, each with its reason.
# Cases that cannot be compared:
SKIPPED = {
    r"op-forward-nn.functional.linear_cross_entropy.chunked(_none)?-bfloat16": (
        "PyTorch chooses the dtype of the sum by the type of the device"
    ),
    r"op-forward-jiterator_.*": "it compiles code for CUDA",
    r"op-forward-torch._scaled_mm_v2-.*": "its test cases ask for a CUDA device",
}
# Cases that agree to rounding only:
CLOSE_ONLY = {
    r"op-.*linalg.lstsq.*": "LAPACK's last digits differ from run to run",
    # cumprod, and what is made of it, in 2.10 to 2.12 only.
    r"op-backward-(masked_fill|(masked.)?(cum)?prod|linalg.vander)-.*": (
        "autograd has another formula for tensor subclasses"
    ),
    # In float32 and float64 on some processors: seen on a Xeon, not on an EPYC.
    r"op-forward-(__rmatmul__|matmul)-(float32|float64|complex64)": (
        "matmul folds batches otherwise for tensor subclasses"
    ),
    r"optim-default-(ASGD|NAdam|RAdam)-.*": (
        "a device's default is foreach, which rounds otherwise than the CPU's default"
    ),
    r"module-.*-LinearCrossEntropyLoss-.*": (
        "PyTorch chooses the dtype of the sum by the type of the device"
    ),
}
# Cases that virtual GPUs refuse with a NotImplementedError:
REFUSED_BY_DESIGN: dict[str, str] = {}


def reason(case: "Case", reasons: dict[str, str]) -> str | None:
    """Return the reason that a table has for a case, None if it has none."""
    return next((r for p, r in reasons.items() if re.fullmatch(p, str(case))), None)


@cache
def operators() -> dict:
    from torch.testing._internal.common_methods_invocations import op_db

    return {_operator_name(op): op for op in op_db}


@cache
def modules() -> dict:
    from torch.testing._internal.common_modules import module_db

    return {m.name.removeprefix("nn."): m for m in module_db}


@cache
def optimizers() -> dict:
    from torch.testing._internal.common_optimizers import optim_db

    return {o.optim_cls.__name__: o for o in optim_db}


def all_cases() -> list[Case]:
    """Return every case there is, in a stable order."""
    cases = []
    for name, op in operators().items():
        for dtype in _dtypes(op.supported_dtypes("cpu")):
            cases.append(Case("op", "forward", name, _dtype_name(dtype)))
        if op.supports_autograd:
            for dtype in _dtypes(op.supported_backward_dtypes("cpu"), 2):
                cases.append(Case("op", "backward", name, _dtype_name(dtype)))
        if op.error_inputs_func and any(True for _ in op.error_inputs("cpu")):
            cases.append(Case("op", "errors", name, "float32"))
    for name, module in modules().items():
        for mode in ("train", "eval"):
            cases.append(Case("module", mode, name, _dtype_name(module.dtypes[0])))
    for name, optimizer in optimizers().items():
        cases.append(Case("optim", "default", name, "float32"))
        if "foreach" in optimizer.supported_impls:
            cases.append(Case("optim", "forms", name, "float32"))
    return sorted(cases)


def _dtypes(supported, most: int = len(DTYPES)) -> list[torch.dtype]:
    """Return the dtypes to test of those supported, at least one."""
    chosen = [d for d in DTYPES if d in supported]
    return (chosen or sorted(supported, key=str))[:most]


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _operator_name(op) -> str:
    variant = op.variant_test_name
    return f"{op.name}.{variant}" if variant else op.name


# ------------------------------------------------------------------ running a case


def run(case: Case) -> Comparison:
    """Run a case on both devices and compare; raises what the virtual GPU raises."""
    comparison = Comparison(
        values=case.name not in UNINITIALISED, strides=case.mode == "forward"
    )
    dtype = getattr(torch, case.dtype)
    match case.database, case.mode:
        case "op", "forward":
            _run_forward(operators()[case.name], dtype, comparison)
        case "op", "backward":
            _run_backward(operators()[case.name], dtype, comparison)
        case "op", "errors":
            _run_errors(operators()[case.name], comparison)
        case "module", mode:
            _run_module(modules()[case.name], dtype, mode == "train", comparison)
        case "optim", mode:
            _run_optimizer(optimizers()[case.name], dtype, mode, comparison)
    return comparison


def _both(
    function: Callable[[str], object],
    comparison: Comparison,
    what: str,
    place: str = DEVICE,
) -> bool:
    """Compare what a function returns for the CPU and for the virtual GPU.

    Args:
        function: takes the device to run on, as text.
        place: the device of the virtual GPU's results.

    Where the CPU raises, the virtual GPU has to raise an error of the same type.
    Where the CPU gives something else at a second run, closeness is enough.
    """

    def seeded(device):
        torch.manual_seed(SEED)
        return function(device)

    try:
        expected = seeded("cpu")
    except Exception as error:
        try:
            seeded(DEVICE)
        except type(error):
            return False
        comparison.different(f"{what}: no {type(error).__name__} as on the CPU")
        return False
    comparison.add(expected, seeded(DEVICE), place, what, again=lambda: seeded("cpu"))
    return True


def _run_forward(op, dtype, comparison: Comparison) -> None:
    """The function, its in-place form, and ``out=`` that fits and that has to grow."""
    torch.manual_seed(SEED)
    for number, sample in enumerate(op.sample_inputs("cpu", dtype)):
        call = _Call(op, sample)
        what = f"sample {number}"
        if not _both(call.function, comparison, what, call.place):
            continue
        if op.inplace_variant is not None and not sample.broadcasts_input:
            _both(call.in_place, comparison, f"{what} in place", call.place)
        if op.supports_out:
            _both(call.out, comparison, f"{what} out=", call.place)
            _both(call.growing_out, comparison, f"{what} growing out=", call.place)


def _run_errors(op, comparison: Comparison) -> None:
    """Wrong arguments raise the same error as on the CPU, in the same words.

    For a wrong value it's an assertion of a GPU's kernel, which quotes the CPU's.
    """
    torch.manual_seed(SEED)
    for number, wrong in enumerate(op.error_inputs("cpu")):
        call = _Call(op, wrong.sample_input)
        raised = {"cpu": None, DEVICE: None}
        for device in raised:
            try:
                call.function(device)
            except Exception as error:
                raised[device] = error
        here, there = raised.values()
        said = [str(error).replace(DEVICE, "cpu") for error in (here, there)]
        if isinstance(there, torch.AcceleratorError) and here is not None:
            same = f"device-side assert triggered: {said[0].rstrip('.')}. A" in said[1]
        else:
            same = type(here) is type(there) and said[0] == said[1]
        comparison.count += 1
        if not same:
            comparison.different(f"error {number}: {raised}")


class _Call:
    """One sample of an operator, to be called on any device."""

    def __init__(self, op, sample):
        self.op = op
        self.sample = sample.input, list(sample.args), dict(sample.kwargs)
        # torch.arange(3) without a device stays on the CPU.
        named = [x for x in _flatten(self.sample) if _names_cpu(x)]
        self.place = DEVICE if named else "cpu"

    def function(self, device, op=None, **extra):
        x, args, kwargs = placed(self.sample, device)
        return (op or self.op)(x, *args, **kwargs, **extra)

    def in_place(self, device):
        return self.function(device, op=self.op.inplace_variant)

    def out(self, device, like=torch.zeros_like):
        result = self.function(device)
        if not isinstance(result, torch.Tensor | list | tuple):
            return result
        tensors = [result] if isinstance(result, torch.Tensor) else list(result)
        outs = [like(x) for x in tensors]
        torch.manual_seed(SEED)
        self.function(device, out=outs[0] if len(outs) == 1 else tuple(outs))
        return outs

    def growing_out(self, device):
        return self.out(device, like=lambda x: x.new_empty(0))


def _run_backward(op, dtype, comparison: Comparison) -> None:
    torch.manual_seed(SEED)
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=True)):
        everything = sample.input, list(sample.args), dict(sample.kwargs)

        def gradients(device, everything=everything, sample=sample):
            leaves: list[torch.Tensor] = []
            x, args, kwargs = placed(everything, device, leaves)
            result = sample.output_process_fn_grad(op(x, *args, **kwargs))
            return _gradients(result, leaves)

        _both(gradients, comparison, f"sample {number}")


def _gradients(result, leaves: list[torch.Tensor]) -> list:
    """Back-propagate random numbers from every result; return results and gradients."""
    flat = [x for x in _flatten(result) if isinstance(x, torch.Tensor)]
    roots = [x for x in flat if x.requires_grad]
    leaves = [x for x in leaves if x.requires_grad]
    if not roots or not leaves:
        return flat
    # Made on the CPU, where results of both devices get the same ones.
    torch.manual_seed(SEED)
    weights = [torch.randn(x.shape, dtype=x.dtype) for x in roots]
    weights = [w.to(x.device) for w, x in zip(weights, roots, strict=True)]
    return flat + list(torch.autograd.grad(roots, leaves, weights, allow_unused=True))


def _run_module(info, dtype, training: bool, comparison: Comparison) -> None:
    torch.manual_seed(SEED)
    samples = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=training
    )
    for number, sample in enumerate(samples):
        if sample.forward_input is None:
            continue
        made, given = sample.constructor_input, sample.forward_input

        def outputs(device, made=made, given=given):
            module = info.module_cls(*made.args, **made.kwargs)
            module = module.to(device=device, dtype=dtype).train(training)
            leaves: list[torch.Tensor] = []
            everything = list(given.args), dict(given.kwargs)
            args, kwargs = placed(everything, device, leaves)
            torch.manual_seed(SEED)  # each device has its own generator
            result = module(*args, **kwargs)
            leaves += module.parameters()
            return [*_gradients(result, leaves), *module.buffers()]

        _both(outputs, comparison, f"sample {number}")


def _run_optimizer(info, dtype, mode: str, comparison: Comparison) -> None:
    """An optimizer as it comes, or in each of its forms, asked for by name."""
    forms = [{"foreach": False}, {"foreach": True}, {"fused": True}]
    if "fused" not in info.supported_impls:
        forms.pop()
    torch.manual_seed(SEED)
    for number, sample in enumerate(info.optim_inputs_func(device="cpu")):
        for form in forms if mode == "forms" else [{}]:

            def steps(device, settings=sample.kwargs | form):
                return _train(info, dtype, device, settings)

            _both(steps, comparison, f"{sample.desc or number} {form}")


def _train(info, dtype, device, settings) -> list:
    """Take five steps of a small regression; return weights and optimizer's state."""
    settings = {k: placed(v, device) for k, v in settings.items()}
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
    )
    net.to(device=device, dtype=dtype)
    x, y = (torch.randn(16, n, dtype=dtype).to(device) for n in (4, 2))
    parameters = list(net.parameters())
    if info.optim_cls is torch.optim.Muon:  # takes matrices only
        parameters = [p for p in parameters if p.dim() == 2]
    optimizer = info.optim_cls(parameters, **settings)

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        if info.only_supports_sparse_grads:
            for p in parameters:
                p.grad = p.grad.to_sparse()
        return loss

    for _ in range(5):
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    state = [s for p in parameters for s in optimizer.state[p].values()]
    return [*parameters, *state]


# ------------------------------------------------------------------ moving samples


def placed(value, device, leaves: list[torch.Tensor] | None = None):
    """Return a copy of a sample on a device, with the same strides and lazy bits.

    Args:
        value: anything; in lists, tuples and dictionaries tensors are copied, and
            names of the CPU become the device.
        leaves: tensors that take part in autograd are appended here.
    """
    if isinstance(value, torch.Tensor):
        copy = _placed_tensor(value.detach(), torch.device(device))
        if value.requires_grad and leaves is not None:
            leaves.append(copy.requires_grad_())
        return copy
    if isinstance(value, dict):
        return {k: placed(v, device, leaves) for k, v in value.items()}
    if isinstance(value, list | tuple):
        items = [placed(v, device, leaves) for v in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return type(value)(items)
    return device if _names_cpu(value) else value


def _names_cpu(value) -> bool:
    """Whether a value has to change for a call to run on another device."""
    return isinstance(value, torch.Tensor | torch.device) or (
        isinstance(value, str) and value == "cpu"
    )


def _placed_tensor(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    if x.layout is not torch.strided:
        return x.clone().to(device)
    if x.is_conj():
        return _placed_tensor(x.conj(), device).conj()
    if x.is_neg():
        return _placed_tensor(x._neg_view(), device)._neg_view()
    storage = x.untyped_storage()
    memory = torch.empty(0, dtype=x.dtype).set_(storage)
    copy = memory.clone().to(device)
    return copy.as_strided(x.shape, x.stride(), x.storage_offset())


def _flatten(value) -> Iterator:
    if isinstance(value, list | tuple):
        for x in value:
            yield from _flatten(x)
    elif isinstance(value, dict):
        yield from _flatten(list(value.values()))
    else:
        yield value
