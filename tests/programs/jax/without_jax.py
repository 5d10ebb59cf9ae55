import sys

sys.modules["jax"] = None
try:
    from d2l_gpu import jax
except ImportError as error:
    print(error)
