"""JAX's arrays, for shared graders."""

import jax
import numpy as np

from d2l_gpu import jax as d2l
from d2l_gpu.exercises.arrays import Arrays

ARRAYS = Arrays(
    kind=jax.Array,
    put=jax.device_put,
    fetch=np.asarray,
    device=lambda x: x.device,
    cpu=d2l.cpu,
    gpus=d2l.try_all_gpus,
    labels="int32",
    kept=("float32", "int32", "float16"),
    # Arrays of JAX never change, but some arguments are NumPy's.
    peek=lambda x: {"": x.tobytes()} if isinstance(x, np.ndarray) else {},
)
