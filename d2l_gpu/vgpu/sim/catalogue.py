"""The catalogue: what the clock knows about processors and links, with its sources.

All of it is public. Data sheets give the peak of a device, and measurements that others
have published give the fraction of peak that programs reach. Nothing was fitted to the
runs that the clock is compared with. To add a processor or a link, add an entry.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median

GB, TERA = 10**9, 10**12  # data sheets count in powers of ten
MIB, GIB = 2**20, 2**30


def closest(name: str, names: Iterable[str]) -> str:
    """Return a question that asks whether one of the names was meant, if one is close.

    It goes into an error's sentence, as ``(did you mean 'A100'?)``, or is empty.
    """
    found = {each.lower(): each for each in names}
    for match in difflib.get_close_matches(name.lower(), found, 1):
        return f" (did you mean {found[match]!r}?)"
    return ""


def choose(what: str, name: str, known: Iterable[str]) -> None:
    """Raise ValueError, with a sentence, unless a name is a known one."""
    if name not in known:
        raise ValueError(
            f"There is no {what} {name!r}{closest(str(name), known)}: choose one of "
            f"{', '.join(known)}."
        )


# ------------------------------------------------------------------ processors


@dataclass(frozen=True)
class Model:
    """A processor of the catalogue: peak figures of its data sheet.

    Attributes:
        name: the name by which a program chooses it, and that tables show.
        rates: floating-point operations per second of the general arithmetic units, by
            type of number. A multiplication and an addition count as two operations.
        tensor_rates: the same for the units that do matrix products only (tensor
            cores), for dense matrices summed in fp32; fp32 may run as ``tf32``.
        bandwidth: of the device's memory, in bytes per second.
        memory: capacity in bytes.
        units: number of streaming multiprocessors, or of a CPU's cores.
        link: what connects it to the host, a name in ``LINKS``.
        asynchronous: whether the host goes on while it works. A CPU is the host itself.
        source: where the figures come from.
        threads: the most that a multiprocessor holds at a time (CUDA C++ Programming
            Guide, Compute Capabilities), 0 if unknown.
        cache: the bytes of the L2 cache (the makers' white papers and tuning guides on
            the architectures), 0 if unknown.
        warp: the number of threads that run in step: 32 on NVIDIA's GPUs.
        capability: NVIDIA's compute capability, by which PyTorch chooses kernels
            (https://developer.nvidia.com/cuda-gpus); (0, 0) if it has none.
    """

    name: str
    rates: Mapping[str, float]
    tensor_rates: Mapping[str, float]
    bandwidth: float
    memory: int
    units: int
    link: str
    source: str
    asynchronous: bool = True
    threads: int = 0
    cache: int = 0
    warp: int = 32
    capability: tuple[int, int] = (0, 0)

    def rate(self, kind: str, tensor: bool = False) -> float:
        """Return the peak operations per second for a type of number.

        Args:
            kind: ``fp64``, ``fp32``, ``tf32``, ``bf16`` or ``fp16``. If the device has
                no rate for it, this is the rate of fp32.
            tensor: whether the operations belong to a matrix product.
        """
        if tensor and kind in self.tensor_rates:
            return self.tensor_rates[kind]
        return self.rates.get(kind, self.rates["fp32"])


def _tera(**rates: float) -> dict[str, float]:
    return {kind: rate * TERA for kind, rate in rates.items()}


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="T4",
            rates=_tera(fp32=8.1, fp16=16.2, fp64=0.253),
            tensor_rates=_tera(fp16=65),
            bandwidth=320 * GB,
            memory=16 * GIB,
            units=40,
            link="PCIe3",
            threads=1024,
            cache=4 * MIB,
            capability=(7, 5),
            source="NVIDIA T4 data sheet (2019); fp16 without tensor cores and fp64, 2 "
            "and 1/32 of fp32: NVIDIA Turing GPU Architecture white paper (2018)",
        ),
        Model(
            name="V100",
            rates=_tera(fp32=15.7, fp16=31.4, fp64=7.8),
            tensor_rates=_tera(fp16=125),
            bandwidth=900 * GB,
            memory=16 * GIB,
            units=80,
            link="PCIe3",
            threads=2048,
            cache=6 * MIB,
            capability=(7, 0),
            source="NVIDIA V100 data sheet (2020), column SXM2; NVIDIA Tesla V100 GPU "
            "Architecture white paper (2017)",
        ),
        Model(
            name="A10G",
            rates=_tera(fp32=35, fp16=35, fp64=0.547),
            tensor_rates=_tera(fp16=70, bf16=70, tf32=35),
            bandwidth=600 * GB,
            memory=24 * GIB,
            units=80,
            link="PCIe4",
            threads=1536,
            cache=6 * MIB,
            capability=(8, 6),
            source="NVIDIA A10G data sheet for Amazon EC2 G5 (2021); 10,240 CUDA "
            "cores at 1.71 GHz, fp64 1/64 of fp32",
        ),
        Model(
            name="A100",
            rates=_tera(fp32=19.5, fp16=78, bf16=39, fp64=9.7),
            tensor_rates=_tera(fp16=312, bf16=312, tf32=156, fp64=19.5),
            bandwidth=1555 * GB,
            memory=40 * GIB,
            units=108,
            link="PCIe4",
            threads=2048,
            cache=40 * MIB,
            capability=(8, 0),
            source="NVIDIA A100 Tensor Core GPU Architecture white paper (2020), 40 GB",
        ),
        Model(
            name="A100 80GB",
            rates=_tera(fp32=19.5, fp16=78, bf16=39, fp64=9.7),
            tensor_rates=_tera(fp16=312, bf16=312, tf32=156, fp64=19.5),
            bandwidth=2039 * GB,
            memory=80 * GIB,
            units=108,
            link="PCIe4",
            threads=2048,
            cache=40 * MIB,
            capability=(8, 0),
            source="NVIDIA A100 data sheet (2021), column 80GB SXM: an A100 with more "
            "memory",
        ),
        Model(
            name="H100",
            rates=_tera(fp32=66.9, fp16=133.8, bf16=133.8, fp64=33.5),
            tensor_rates=_tera(fp16=989.4, bf16=989.4, tf32=494.7, fp64=66.9),
            bandwidth=3352 * GB,
            memory=80 * GIB,
            units=132,
            link="PCIe5",
            threads=2048,
            cache=50 * MIB,
            capability=(9, 0),
            source="NVIDIA H100 Tensor Core GPU Architecture white paper (2022), SXM5",
        ),
        Model(
            name="H100 96GB",
            rates=_tera(fp32=66.9, fp16=133.8, bf16=133.8, fp64=33.5),
            tensor_rates=_tera(fp16=989.4, bf16=989.4, tf32=494.7, fp64=66.9),
            bandwidth=2400 * GB,
            memory=96 * GB,
            units=132,
            link="PCIe5",
            threads=2048,
            cache=50 * MIB,
            capability=(9, 0),
            source="torchtitan, benchmarks/llama3_h100_202412_torchtitan.md (2024): an "
            "H100 SXM with 96 GB of HBM2e at 2.4 TB/s",
        ),
        Model(
            name="H100 PCIe",
            rates=_tera(fp32=51.2, fp16=102.4, bf16=102.4, fp64=25.6),
            tensor_rates=_tera(fp16=756.4, bf16=756.4, tf32=378.2, fp64=51.2),
            bandwidth=2039 * GB,
            memory=80 * GIB,
            units=114,
            link="PCIe5",
            threads=2048,
            cache=50 * MIB,
            capability=(9, 0),
            source="NVIDIA H100 Tensor Core GPU Architecture white paper (2022), PCIe; "
            "bandwidth: gpu-benches, as below",
        ),
        Model(
            name="H200",
            rates=_tera(fp32=66.9, fp16=133.8, bf16=133.8, fp64=33.5),
            tensor_rates=_tera(fp16=989.4, bf16=989.4, tf32=494.7, fp64=66.9),
            bandwidth=4800 * GB,
            memory=141 * GB,
            units=132,
            link="PCIe5",
            threads=2048,
            cache=50 * MIB,
            capability=(9, 0),
            source="NVIDIA H200 data sheet (2024), SXM: an H100 with more memory",
        ),
        Model(
            name="B200",
            rates=_tera(fp32=75, fp16=150, bf16=150, fp64=37),
            tensor_rates=_tera(fp16=2250, bf16=2250, tf32=1100, fp64=37),
            bandwidth=7700 * GB,
            memory=180 * GB,
            units=148,
            link="PCIe5",
            threads=2048,
            cache=126 * MIB,
            capability=(10, 0),
            source="NVIDIA Blackwell data sheet (2025), one GPU of HGX B200, half of "
            "what it gives for sparse matrices; fp16 and bf16 without tensor cores are "
            "2 of fp32",
        ),
        Model(
            name="GB200",
            rates=_tera(fp32=80, fp16=160, bf16=160, fp64=40),
            tensor_rates=_tera(fp16=2500, bf16=2500, tf32=1250, fp64=40),
            bandwidth=8000 * GB,
            memory=186 * GB,
            units=148,
            link="NVLink-C2C",
            threads=2048,
            cache=126 * MIB,
            capability=(10, 0),
            source="The same data sheet, one GPU of GB200 NVL72",
        ),
        Model(
            name="L4",
            rates=_tera(fp32=30.3, fp16=30.3, bf16=30.3, fp64=0.473),
            tensor_rates=_tera(fp16=121, bf16=121, tf32=60),
            bandwidth=300 * GB,
            memory=24 * GIB,
            units=58,
            link="PCIe4",
            threads=1536,
            cache=48 * MIB,
            capability=(8, 9),
            source="NVIDIA L4 data sheet (2023), half of what it gives for sparse "
            "matrices; fp64 as for the L40S",
        ),
        Model(
            name="L40S",
            rates=_tera(fp32=91.6, fp16=91.6, bf16=91.6, fp64=1.43),
            tensor_rates=_tera(fp16=362.05, bf16=362.05, tf32=183),
            bandwidth=864 * GB,
            memory=48 * GIB,
            units=142,
            link="PCIe4",
            threads=1536,
            cache=96 * MIB,
            capability=(8, 9),
            source="NVIDIA L40S data sheet (2023); fp64 1/64 of fp32: NVIDIA Ada GPU "
            "Architecture white paper (2022)",
        ),
        Model(
            name="RTX 4060 Laptop",
            rates=_tera(fp32=14.6, fp16=14.6, fp64=0.228),
            tensor_rates=_tera(fp16=29.1, bf16=29.1, tf32=14.6),
            bandwidth=256 * GB,
            memory=8 * GIB,
            units=24,
            link="PCIe4x8",
            threads=1536,
            cache=32 * MIB,
            capability=(8, 9),
            source="NVIDIA, GeForce RTX 40 series laptops, compare specs (2023): 3,072 "
            "CUDA cores at 2.37 GHz, 128-bit GDDR6 at 16 Gbit/s; rates per core of the "
            "NVIDIA Ada GPU Architecture white paper (2022)",
        ),
        Model(
            name="RTX 4090",
            rates=_tera(fp32=82.6, fp16=82.6, bf16=82.6, fp64=1.29),
            tensor_rates=_tera(fp16=165.2, bf16=165.2, tf32=82.6),
            bandwidth=1008 * GB,
            memory=24 * GIB,
            units=128,
            link="PCIe4",
            threads=1536,
            cache=72 * MIB,
            capability=(8, 9),
            source="NVIDIA Ada GPU Architecture white paper (2022), tensor cores that "
            "sum in fp32",
        ),
        Model(
            name="RTX 5090",
            rates=_tera(fp32=104.8, fp16=104.8, bf16=104.8, fp64=1.64),
            tensor_rates=_tera(fp16=209.5, bf16=209.5, tf32=104.8),
            bandwidth=1792 * GB,
            memory=32 * GIB,
            units=170,
            link="PCIe5",
            threads=1536,
            cache=96 * MIB,
            capability=(12, 0),
            source="NVIDIA RTX Blackwell GPU Architecture white paper (2025), tensor "
            "cores that sum in fp32",
        ),
        Model(
            name="MI300X",
            rates=_tera(fp32=163.4, fp16=163.4, bf16=163.4, fp64=81.7),
            tensor_rates=_tera(
                fp16=1307.4, bf16=1307.4, tf32=653.7, fp32=163.4, fp64=163.4
            ),
            bandwidth=5300 * GB,
            memory=192 * GIB,
            units=304,
            link="PCIe5",
            threads=2048,
            cache=32 * MIB,
            warp=64,
            source="AMD Instinct MI300X data sheet (2023), vector and matrix, dense",
        ),
        Model(
            name="Xeon E5-2698 v4",
            rates=_tera(fp32=1.41, fp16=1.41, fp64=0.70),
            tensor_rates={},
            bandwidth=76.8 * GB,
            memory=256 * GIB,
            units=20,
            link="PCIe3",
            source="The CPU of an NVIDIA DGX-1 with V100, one of its two; Intel's "
            "data: 20 cores at 2.2 GHz, four channels of DDR4-2400; two AVX2 "
            "multiply-adds of 8 fp32 numbers per core and cycle",
            asynchronous=False,
            warp=1,
        ),
    )
}

# ------------------------------------------------------------------ links


@dataclass(frozen=True)
class Link:
    """A connection between two memories.

    Attributes:
        name: the name by which a program chooses it.
        bandwidth: bytes per second in each direction.
        step: latency in seconds of one step of a collective; a copy is one step.
        source: where the figures come from.
        channels: how many channels NCCL makes on it. Each takes one multiprocessor of
            every device for as long as a collective lasts.
    """

    name: str
    bandwidth: float
    step: float
    source: str
    channels: int = 0


_PCIE = "PCI-SIG: {} GT/s × {} lanes, 128b/130b coding"
_NCCL = "step: NVIDIA NCCL, src/graph/tuning.cc (commit 5067397, 2026), ring, Simple"
_LOG = "; channels: NCCL's log in "
_SHARED = f"{_LOG}NVIDIA/nccl-tests issue 228 (2024), through the host's memory"
_DGX2 = f"{_LOG}aau-claaudia/aicloud-docs, multi_gpu_keras (2021), DGX-2"
_HGX = f"{_LOG}NVIDIA/nccl-tests issue 100 (2022), HGX A100"
_H100 = f"{_LOG}NVIDIA/nccl issue 1453 (2024), H100, three nodes"

LINKS: dict[str, Link] = {
    link.name: link
    for link in (
        Link(
            "PCIe3", 15.75 * GB, 5.7e-6, f"{_PCIE.format(8, 16)}; {_NCCL}{_SHARED}", 2
        ),
        Link(
            "PCIe4", 31.5 * GB, 5.7e-6, f"{_PCIE.format(16, 16)}; {_NCCL}{_SHARED}", 2
        ),
        Link(
            "PCIe4x8",
            15.75 * GB,
            5.7e-6,
            f"{_PCIE.format(16, 8)}; {_NCCL}{_SHARED}",
            2,
        ),
        Link(
            "PCIe5", 63.0 * GB, 5.7e-6, f"{_PCIE.format(32, 16)}; {_NCCL}{_SHARED}", 2
        ),
        Link(
            "NVLink-C2C",
            450 * GB,
            5.7e-6,
            "NVIDIA Grace Hopper Superchip white paper (2022), 900 GB/s in both "
            "directions; step: as for PCIe",
        ),
        Link(
            "NVLink2",
            150 * GB,
            3.4e-6,
            f"NVIDIA V100 white paper (2017), 6 links × 25 GB/s; {_NCCL}{_DGX2}",
            12,
        ),
        Link(
            "NVLink3",
            300 * GB,
            3.4e-6,
            f"NVIDIA A100 white paper (2020), 12 links × 25 GB/s; {_NCCL}{_HGX}",
            24,
        ),
        Link(
            "NVLink4",
            450 * GB,
            3.4e-6,
            f"NVIDIA H100 white paper (2022), 18 links × 25 GB/s; {_NCCL}{_H100}",
            16,
        ),
        Link(
            "NVLink5",
            900 * GB,
            3.4e-6,
            f"NVIDIA Blackwell data sheet (2025), 18 links × 50 GB/s; {_NCCL}{_H100}",
            16,
        ),
        Link(
            "InfiniBand HDR",
            25 * GB,
            14.0e-6,
            f"NVIDIA ConnectX-6 data sheet, 200 Gbit/s; {_NCCL}, network{_HGX}",
            24,
        ),
        Link(
            "InfiniBand NDR",
            50 * GB,
            14.0e-6,
            f"NVIDIA ConnectX-7 data sheet, 400 Gbit/s; {_NCCL}, network{_H100}",
            16,
        ),
    )
}

# ------------------------------------------------------------------ what is achieved


@dataclass(frozen=True)
class Measured:
    """A constant of the clock: the median of what others have measured.

    Attributes:
        figures: the measurements, by the device or setting.
        source: who measured them, and how.
    """

    figures: Mapping[str, float]
    source: str

    @cached_property
    def value(self) -> float:
        """The median of the measurements."""
        return median(self.figures.values())


MATRIX = Measured(
    {
        "A100 SXM, bf16": 271.2 / 312,
        "A100 PCIe, bf16": 252.9 / 312,
        "H100 SXM, bf16": 794.5 / 989,
        "GH200, bf16": 828.6 / 989,
        "V100 PCIe, fp64": 6.60 / 7.07,
    },
    "Share of peak operations that large, well-shaped products reach. Stas Bekman, "
    "Machine Learning Engineering Open Book, table Maximum Achievable Matmul FLOPS "
    "(https://github.com/stas00/ml-engineering, 2026); for the units that are no "
    "tensor cores Dominik Ernst, gpu-benches, gpu-roofline "
    "(https://github.com/te42kyfo/gpu-benches, 2024).",
)

# The same where a model has been measured itself.
MATRIX_ON = {
    "A100": Measured({"SXM, bf16": 271.2 / 312}, MATRIX.source),
    "A100 80GB": Measured({"SXM, bf16": 271.2 / 312}, MATRIX.source),
    "H100": Measured({"SXM, bf16": 794.5 / 989}, MATRIX.source),
    "H100 96GB": Measured(
        {"bf16, 2024": 0.60, "bf16, 2025": 0.69},
        "The same for this model, whose power is limited to 500 W instead of 700. "
        "pytorch/ao, torchao/testing/training/roofline_utils.py and its predecessors "
        "(float8_experimental, benchmarks/float8_roofline.py): the achievable share "
        "of peak that its authors measured, first and later.",
    ),
}


def matrix_share(model: Model) -> float:
    """Return the share of peak operations that large products reach on a model."""
    return MATRIX_ON.get(model.name, MATRIX).value


_DEEPBENCH = (
    "Baidu Research, DeepBench (2020), on an NVIDIA T4 with cuDNN 7.6, against its "
    "plain products on the same GPU: ``python benchmarks/kernels.py --derive``."
)

CONVOLUTION = Measured(
    {"forward": 0.94, "gradient of input": 0.84, "gradient of weight": 0.75},
    "Share of a plain product's rate that a convolution reaches which is computed as "
    f"one. {_DEEPBENCH}",
)

WINOGRAD = Measured(
    {"forward": 0.66, "gradient of input": 0.63, "gradient of weight": 1.1},
    f"The same for the products inside Winograd's algorithm. {_DEEPBENCH}",
)

BESIDE = Measured(
    {
        "forward": 9.7e-6,
        "gradient of input": 13.7e-6,
        "gradient of weight": 26.6e-6,
    },
    "Seconds that a convolution takes beside its product, mostly in small kernels "
    f"before and after it. {_DEEPBENCH}",
)

# By which the rate of a product is multiplied for those that are no plain ones, and the
# seconds that they take beside it.
SHARES = {
    f"{name}, {way}": share
    for name, measured in (("convolution", CONVOLUTION), ("Winograd", WINOGRAD))
    for way, share in measured.figures.items()
}
SECONDS_BESIDE = {name: BESIDE.figures[name.split(", ")[1]] for name in SHARES}

# The share that attention in one kernel reaches, by the first number of the compute
# capability. FlashAttention-2 is what PyTorch has.
ATTENTION = {
    8: Measured(
        {"A100, least": 0.50, "A100, most": 0.73},
        "Share of peak operations. T. Dao, FlashAttention-2 (2023), arXiv:2307.08691, "
        "abstract: 50 to 73 % on an A100.",
    ),
    9: Measured(
        {"H100": 0.35},
        "The same. J. Shah and others, FlashAttention-3 (2024), arXiv:2407.08608, "
        "abstract: 35 % for FlashAttention-2 on an H100.",
    ),
}


def attention_share(model: Model) -> float:
    """Return the share of peak operations that attention in one kernel reaches."""
    return ATTENTION.get(model.capability[0], ATTENTION[8]).value


MEMORY = Measured(
    {
        "V100": 814 / 900,
        "A100 40 GB": 1360 / 1555,
        "A40": 653 / 696,
        "L40": 768 / 864,
        "H100 PCIe": 1832 / 2039,
    },
    "Share of peak bandwidth that two streams in and one out reach (triad). Dominik "
    "Ernst, gpu-benches, gpu-stream (https://github.com/te42kyfo/gpu-benches, 2024).",
)

LINK = Measured(
    {
        "PCIe 3, V100": 12.35 / 15.75,
        "PCIe 5, H200, to the device": 55.43 / 63,
        "PCIe 5, H200, to the host": 55.06 / 63,
        "NVLink 2, V100": 143.71 / 150,
        "NVLink 4, H200": 396.4 / 450,
        "NVLink 3, A100, all-reduce": 235 / 300,
    },
    "Share of peak bandwidth that large copies from and to page-locked memory reach. "
    "gpu-benches, cuda-memcpy, and Machine Learning Engineering Open Book, network, as "
    "above; Dell EMC, C4130 with V100-SXM2 (2017), for NVLink 2.",
)

LAUNCH = Measured(
    {"A100": 1.34e-6, "A40": 1.09e-6, "L40": 0.94e-6, "H200": 1.26e-6},
    "Seconds on the device for a kernel that does next to nothing, when the next one "
    "is known already (CUDA graph). gpu-benches, gpu-small-kernels, as above.",
)

START = Measured(
    {"A100": 2.62e-6, "A40": 2.05e-6, "L40": 1.64e-6, "H200": 2.43e-6},
    "Seconds from a launch on the host to the start on an idle device: launches one by "
    "one from C++, the same source as for LAUNCH.",
)

WAIT = Measured(
    {"V100": (9.6 - 3.8) * 1e-6},
    "Seconds that it takes the host to hear that a device is done. Alan Gray, Getting "
    "Started with CUDA Graphs, NVIDIA technical blog (2019): 9.6 µs per kernel with "
    "waiting for each, 3.8 µs without.",
)

ISSUE = Measured(
    {"2 * x with gradient": 6.8e-6, "2 * x without": 5.0e-6},
    "Seconds of the host for one operator from Python. PyTorch issue 41383 (2020).",
)

LAYER = Measured(
    {
        "host of a V100": ((17.95 - 10.37) * 1e-3 - 68 * ISSUE.value) / 102,
        "host of a T4": ((18.18 - 10.70) * 1e-3 - 68 * ISSUE.value) / 102,
    },
    "Seconds of the host for a layer with parameters: a module checks its arguments "
    "and issues one operator. NVIDIA, DeepLearningExamples at 729963d, PyTorch 1.9, "
    "inference in fp32 with one picture, where both GPUs wait for the host. So much "
    "longer takes ResNeXt-101 than ResNet-50, which has 102 fewer of these layers and "
    "68 fewer operators without parameters.",
)

REPLICA = Measured(
    {"AMD EPYC": 4.4 * ISSUE.value},
    "Seconds of the host for one module that nn.DataParallel copies for one device: "
    "4.4 times an operator, both on the same host (benchmarks/host.py).",
)


@dataclass(frozen=True)
class Host:
    """What a program's own work takes the host, in seconds.

    The defaults are published measurements.

    Attributes:
        operator: an operator that Python issues.
        layer: an operator that a layer with parameters issues, going forward.
        replica: a module that ``nn.DataParallel`` copies for one device.
        source: where the figures come from.
    """

    operator: float = ISSUE.value
    layer: float = LAYER.value
    replica: float = REPLICA.value
    source: str = "Published measurements: ISSUE, LAYER and REPLICA in sim.catalogue."


COLLECTIVE = Measured(
    {"ring, Simple": 8.4e-6},
    "Seconds of a collective beside its steps and its bytes. NVIDIA NCCL, as in LINKS.",
)

STAGING = Measured(
    {"Xeon E5-2698 v4": 76.8 * GB / 4 / 2},
    "Bytes per second at which one core of the host copies pageable memory to a "
    "page-locked buffer, from which the device takes it (CUDA C++ Best Practices "
    "Guide, Pinned Memory): one of four channels of memory, which reads and writes.",
)

# The sizes of the tiles into which matrix-product kernels divide a result. One
# multiprocessor computes one tile at a time. NVIDIA, Matrix Multiplication Background
# User's Guide (2023), Typical Tile Dimensions in cuBLAS and Performance.
TILES = ((256, 128), (128, 256), (128, 128), (64, 128), (128, 64), (64, 64))

# Kernels may also divide the inner dimension to get more tiles (split-K), but into
# pieces no smaller than this.
LEAST_INNER = 128


def quantization(units: int, batch: int, m: int, n: int, k: int) -> float:
    """Return the fraction of a device's multiprocessors that a matrix product can use.

    A product of m × k by k × n is computed in tiles. A tile at the edge costs as much
    as a full one (tile quantization), and so does the last round of tiles (wave
    quantization). We try several ways to divide the product and take the best. See
    NVIDIA, Matrix Multiplication Background User's Guide (2023).

    Args:
        units: number of the device's multiprocessors.
        batch: number of such products.
        m: rows of the result.
        n: columns of the result.
        k: numbers that are multiplied and summed for each entry of the result.
    """
    best = 0.0
    useful = batch * m * n * k
    for rows, columns in TILES:
        tiles = batch * -(-m // rows) * -(-n // columns)
        split = 1
        while True:
            inner = -(-k // split)
            rounds = -(-tiles * split // units)
            share = useful / (rounds * units * rows * columns * inner)
            best = max(best, share)
            if tiles * split >= units or inner < 2 * LEAST_INNER:
                break
            split *= 2
    return best
