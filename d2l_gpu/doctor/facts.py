"""What several checks want to know, asked for once."""

from dataclasses import dataclass, field
from functools import cached_property

from . import kernels, nvidia, probes
from .probe_process import Answer, ask

SECONDS_FOR_A_TOOL = 20.0  # nvidia-smi takes some where the GPU has to be woken


@dataclass(frozen=True)
class TorchFacts:
    """What PyTorch says about itself, as far as it came.

    Attributes:
        installed: whether there is a module of this name.
        version: empty if it cannot be imported.
        cuda, hip, xpu: versions of what it was built for; None where it was not.
        mps: whether it was built for Apple's GPUs.
        array_trouble: why it cannot exchange arrays with NumPy, if so.
        kind, count: type and number of the GPUs that it sees.
        gpu_trouble: why it sees none, as far as it says.
        rows: device, kind, model and memory of each device.
        helper_trouble: why the course's helper cannot be used, if so.
        device_troubles: by device, why computing on it fails.
        free: by device, bytes of memory that other programs have left.
        doing: what it began last.
        trouble: why it did not come to its end: a crash, the time limit.
    """

    installed: bool = True
    version: str = ""
    cuda: str | None = None
    hip: str | None = None
    xpu: str | None = None
    mps: bool = False
    array_trouble: str = ""
    kind: str | None = None
    count: int = 0
    gpu_trouble: str = ""
    rows: list[list[str]] = field(default_factory=list)
    helper_trouble: str = ""
    device_troubles: dict[str, str] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    doing: str = "import"
    trouble: str = ""

    @property
    def build(self) -> str:
        """What PyTorch was built for, as ``CUDA 12.8``."""
        for name, version in (("ROCm", self.hip), ("CUDA", self.cuda)):
            if version:
                return f"{name} {version}"
        if self.xpu:
            return "XPU"
        return "MPS" if self.mps else "CPU"


class Facts:
    """What is known about this machine; each fact is found out when first wanted.

    Args:
        timeout: seconds that finding out one of them may take.
    """

    def __init__(self, timeout: float):
        self.timeout = timeout

    def ask(self, probe, *arguments: str | float, most: float | None = None) -> Answer:
        """Run a probe in a process of its own, for at most so many seconds."""
        timeout = self.timeout if most is None else min(self.timeout, most)
        return ask(probe, timeout, *arguments)

    @cached_property
    def torch(self) -> TorchFacts:
        answer = self.ask(probes.look_at_torch)
        return TorchFacts(**answer.said, trouble=answer.trouble)

    @cached_property
    def nvidia(self) -> nvidia.Driver:
        if not nvidia.path():
            return nvidia.Driver(found=False)
        answer = self.ask(nvidia.look_at_driver, most=SECONDS_FOR_A_TOOL)
        return nvidia.Driver(found=True, **answer.said, hung=answer.trouble)

    @cached_property
    def kernelspec(self) -> Answer:
        return self.ask(kernels.look_at_kernelspec, most=SECONDS_FOR_A_TOOL)
