import sys

import torch

before = set(sys.modules)
import d2l_gpu.torch

heavy = {"pooch", "requests", "tqdm", "sklearn", "urllib3"}
print(sorted(heavy & (set(sys.modules) - before)))
