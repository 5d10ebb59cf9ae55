"""What a convolution costs on a simulated GPU, which takes its fastest algorithm."""

from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.vgpu.sim import catalogue
from d2l_gpu.vgpu.sim.catalogue import MODELS
from d2l_gpu.vgpu.sim.clock import Choice, Kernel, Part, Work
from d2l_gpu.vgpu.work import work_of
from tests.helpers.properties import sizes

pytestmark = pytest.mark.virtual_gpus(1)

GPUS = [name for name, model in MODELS.items() if model.asynchronous]


class Device:
    """A simulated GPU that has shapes only, and what convolutions cost on it."""

    def __init__(self, model: str = "V100"):
        self.sim = d2l.simulator(1, model, backing="meta")

    def kernels(
        self, x, weight, dtype=torch.float32, transposed=False, last=False, **options
    ) -> list[Kernel]:
        """Return a convolution's kernel, then that of its gradients."""
        x, weight = (
            torch.zeros(s, dtype=dtype, device=self.sim.gpu(0)) for s in (x, weight)
        )
        if last:
            x = x.contiguous(memory_format=torch.channels_last)
        name = f"conv{'_transpose' * transposed}{x.dim() - 2}d"
        self.sim.reset()
        result = getattr(F, name)(
            x.requires_grad_(), weight.requires_grad_(), **options
        )
        result.backward(torch.empty_like(result))
        self.sim.elapsed()
        return [
            kernel
            for kernels in self.sim.clock.kernels.values()
            for kernel in kernels.values()
            if kernel.count and "convolution" in kernel.name
        ]

    def seconds(self, *args, **options) -> tuple[int, ...]:
        """Return what the kernels take, in picoseconds."""
        return tuple(kernel.duration for kernel in self.kernels(*args, **options))

    def ways(self, *args, **options) -> list[list[tuple]]:
        """Return all ways for the result, for gradients of input and of weight."""
        self.kernels(*args, **options)
        (kernels,) = self.sim.clock.kernels.values()
        found = []
        for key, kernel in kernels.items():
            if kernel.count and "convolution" in kernel.name:
                choices = work_of(key).parts
                assert all(isinstance(choice, Choice) for choice in choices)
                found += [choice.ways for choice in choices]
        return found


@pytest.fixture(scope="module")
def device():
    """A V100, which all cases of a property share."""
    return Device()


@given(
    groups=sizes(1, 5),
    n=sizes(1, 3),
    channels=st.tuples(sizes(1, 3), sizes(1, 3)),
    space=st.lists(sizes(3, 7), min_size=1, max_size=3),
    window=sizes(1, 3),
    stride=sizes(1, 3),
    transposed=st.booleans(),
)
def test_a_convolution_in_groups_is_as_many_convolutions(
    device, groups, n, channels, space, window, stride, transposed
):
    inputs, outputs = channels
    first, second = (inputs, outputs) if transposed else (outputs, inputs)

    def products(groups):
        x = n, groups * inputs, *space
        weight = groups * first, second, *[window] * len(space)
        options = {"stride": stride, "transposed": transposed, "groups": groups}
        return [ways[0][0] for ways in device.ways(x, weight, **options)]

    one, all_of_them = products(1), products(groups)
    assert len(one) == len(all_of_them) == 3
    for single, grouped in zip(one, all_of_them, strict=True):
        assert grouped.operations == groups * single.operations
        assert grouped.product == (groups * single.product[0], *single.product[1:])


@given(
    n=sizes(0, 3),
    channels=st.tuples(sizes(1, 9), sizes(1, 9)),
    space=st.lists(sizes(3, 9), min_size=1, max_size=3),
    window=sizes(1, 3),
    stride=sizes(1, 3),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16]),
    tf32=st.booleans(),
    transposed=st.booleans(),
)
def test_every_way_counts_the_same_operations_and_does_them_all(
    device, n, channels, space, window, stride, dtype, tf32, transposed
):
    inputs, outputs = channels
    first, second = (inputs, outputs) if transposed else (outputs, inputs)
    weight = first, second, *[window] * len(space)
    with torch.backends.cudnn.flags(allow_tf32=tf32):
        options = {"stride": stride, "transposed": transposed}
        found = device.ways((n, inputs, *space), weight, dtype, **options)
    for ways in found:
        (counted,) = {sum(part.operations for part in way) for way in ways}
        for way in ways:
            (product,) = (part for part in way if part.product)
            done = counted * product.done
            if "Winograd" in product.algorithm:
                assert (window, stride, len(space)) == (3, 1, 2)
                # 16 multiplications for 4 results that need 36, 36 for 16 of 144. At
                # the edge there are fewer results, and a product has whole tiles.
                assert done >= counted / 4
                assert done == pytest.approx(2 * prod(product.product))
            else:
                assert counted <= done
                assert counted <= 2 * prod(product.product) or stride > 1


def test_the_fastest_way_is_taken(device):
    for x, weight, stride in [
        ((256, 64, 28, 28), (64, 64, 3, 3), 1),
        ((256, 64, 28, 28), (64, 64, 3, 3), 2),
        ((256, 512, 4, 4), (512, 512, 3, 3), 1),
        ((256, 64, 28, 28), (64, 64, 1, 1), 1),
        ((8, 3, 224, 224), (64, 3, 7, 7), 2),
    ]:
        for dtype in (torch.float32, torch.float16):
            ways = device.ways(x, weight, dtype, stride=stride)
            fastest = sum(
                min(Kernel(Work("", way), MODELS["V100"]).duration for way in each)
                for each in ways
            )
            assert sum(device.seconds(x, weight, dtype, stride=stride)) == fastest


def test_winograd_is_for_three_by_three_in_single_precision_without_stride(device):
    def algorithms(x, weight, dtype=torch.float32, **options):
        kernels = device.kernels(x, weight, dtype, **options)
        return {part.algorithm.split(",")[0] for k in kernels for part in k.parts}

    x, weight = (256, 128, 28, 28), (128, 128, 3, 3)
    with torch.backends.cudnn.flags(allow_tf32=False):
        assert "Winograd" in algorithms(x, weight)
        assert "Winograd" not in algorithms(x, weight, stride=2)
        assert "Winograd" not in algorithms(x, weight, torch.float16)
        assert "Winograd" not in algorithms(x, (128, 128, 5, 5))
    # A V100 has no TF32, so allowing it changes nothing.
    assert "Winograd" in algorithms(x, weight)
    assert min(device.seconds(x, weight)) < min(device.seconds(x, weight, padding=1))


@pytest.mark.parametrize("model", GPUS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_channels_belong_last_where_there_are_tensor_cores(model, dtype):
    device, model = Device(model), MODELS[model]
    kind = {torch.float32: "tf32", torch.float16: "fp16", torch.bfloat16: "bf16"}
    x, weight = (64, 256, 28, 28), (256, 256, 3, 3)
    with torch.backends.cudnn.flags(allow_tf32=True):
        first = device.seconds(x, weight, dtype, padding=1)
        last = device.seconds(x, weight, dtype, padding=1, last=True)
    has_cores = model.tensor_rates.get(kind[dtype], 0) > 2 * model.rate(kind[dtype])
    for slow, fast in zip(first, last, strict=True):
        assert slow > fast if has_cores else slow >= fast


def test_tensor_cores_take_channels_by_sixteen_bytes(device):
    def seconds(inputs, outputs):
        x, weight = (64, inputs, 56, 56), (outputs, inputs, 3, 3)
        return device.seconds(x, weight, torch.float16, last=True)

    assert seconds(60, 61)[0] == pytest.approx(seconds(64, 64)[0], rel=0.06)
    assert seconds(72, 64)[0] > 1.05 * seconds(64, 64)[0]


def test_a_window_for_each_channel_needs_no_product(device):
    x = 64, 256, 56, 56
    alone = device.seconds(x, (256, 1, 3, 3), padding=1, groups=256)
    together = device.seconds(x, (256, 256, 3, 3), padding=1)
    nbytes = 4 * 2 * prod(x)
    least = nbytes / MODELS["V100"].bandwidth
    assert least < alone[0] / 1e12 < 2 * least
    assert all(10 * a < b for a, b in zip(alone, together, strict=True))


def test_the_two_gradients_of_a_convolution_are_a_kernel_each():
    sim = d2l.simulator(1)
    X = torch.zeros(2, 3, 8, 8, device=sim.gpu(0))
    conv = nn.Conv2d(3, 4, 5, bias=False).to(sim.gpu(0))
    loss = conv(X).sum()
    sim.reset()
    loss.backward()
    kernels = sim.report().devices[0].kernels
    conv.zero_grad()
    loss = conv(X.requires_grad_()).sum()
    sim.reset()
    loss.backward()
    assert sim.report().devices[0].kernels == kernels + 1


@given(
    dims=st.sampled_from([2, 3]),
    n=sizes(1, 3),
    channels=st.tuples(sizes(1, 3), sizes(1, 3)),
    groups=sizes(1, 3),
    transposed=st.booleans(),
    last=st.tuples(st.booleans(), st.booleans()),
)
def test_shapes_have_the_channels_where_values_have_them(
    device, dims, n, channels, groups, transposed, last
):
    """On tensors without values, results have the strides that they have with them."""
    form = torch.channels_last if dims == 2 else torch.channels_last_3d
    inputs, outputs = channels
    first, second = (inputs, outputs) if transposed else (outputs, inputs)
    shapes = (
        (n, groups * inputs, *[5] * dims),
        (groups * first, second, *[2] * dims),
    )
    results = []
    for where in ("vgpu", device.sim.gpu(0)):
        x, weight = (
            torch.zeros(shape, device=where).contiguous(
                memory_format=form if is_last else torch.contiguous_format
            )
            for shape, is_last in zip(shapes, last, strict=True)
        )
        name = f"conv{'_transpose' * transposed}{dims}d"
        results.append(getattr(F, name)(x, weight, groups=groups))
    if last[0] or not last[1]:  # with the weight's format alone, the CPU differs
        strides = (
            # A side of one element may have any stride.
            [step for step, side in zip(x.stride(), x.shape, strict=True) if side > 1]
            for x in results
        )
        assert next(strides) == next(strides)
    # A single channel is first and last.
    if (last[0] and groups * inputs > 1) or (last[1] and second > 1):
        assert results[1].is_contiguous(memory_format=form)


def test_a_cpu_takes_no_longer_for_a_convolution_than_for_its_product():
    x, weight = (8, 64, 32, 32), (64, 64, 1, 1)
    model = MODELS["Xeon E5-2698 v4"]
    product = Part(2 * 8 * 64 * 64 * 32**2, "fp32", 1, (1, 8 * 32**2, 64, 64))
    alone = Kernel(Work("", [product]), model).duration
    assert Device(model.name).seconds(x, weight)[0] == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("model", GPUS)
def test_a_network_of_convolutions_is_computed_on_every_model(model):
    seconds = sum(Device(model).seconds((8, 16, 32, 32), (32, 16, 3, 3))) / 1e12
    beside = sum(catalogue.BESIDE.figures.values())
    assert beside < seconds < 10 * beside
