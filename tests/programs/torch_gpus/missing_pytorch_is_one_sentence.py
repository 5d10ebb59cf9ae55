import sys

sys.modules["torch"] = None
try:
    from d2l_gpu import torch
except ImportError as error:
    print(error)
