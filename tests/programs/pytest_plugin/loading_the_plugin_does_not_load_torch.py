import sys

import d2l_gpu.vgpu.pytest_plugin

print("torch" in sys.modules)
