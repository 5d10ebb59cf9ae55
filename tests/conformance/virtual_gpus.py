"""A plugin of pytest: two virtual GPUs, on which PyTorch's device-generic tests run.

``tools/device_generic.py`` names it. PyTorch makes a class of tests for every device
that there is, so for ``vgpu`` too, as soon as it is enabled.
"""

from d2l_gpu import vgpu

# Some tests need more than the 4 GiB of a device by default.
vgpu.enable(2, memory="64GiB")
