"""Records MXNet's copies for shared graders."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import mxnet as mx
import numpy as np
from mxnet.ndarray import register

from d2l_gpu.exercises.crossing import HOST, Crossing, Port
from d2l_gpu.exercises.mxnet.arrays import ARRAYS


class MxnetPort(Port):
    """See `Port`.

    Attributes:
        mixed: the number of operations seen with operands on different devices.
    """

    mixed = 0

    @contextmanager
    def watch(self) -> Iterator[list[Crossing]]:
        # One function runs all array operations, including copies between contexts.
        # Where MXNet accepts operands on different contexts without copying, record a
        # copy all the same: real GPUs would need one.
        copies: list[Crossing] = []

        def add(x: mx.nd.NDArray, source: str, target: str) -> None:
            if source != target:
                nbytes = x.size * np.dtype(x.dtype).itemsize
                copies.append(Crossing(nbytes, source, target))

        invoke, to_numpy = register._imperative_invoke, mx.nd.NDArray.asnumpy
        from_numpy = mx.nd.NDArray._sync_copyfrom

        def invoked(handle, inputs, *others):
            result = invoke(handle, inputs, *others)
            self.mixed += len({self.home(x) for x in inputs}) > 1
            for x in inputs:
                first = result[0] if isinstance(result, (list, tuple)) else result
                add(x, self.home(x), self.home(first))
            return result

        def fetched(x):
            add(x, self.home(x), HOST)
            return to_numpy(x)

        def sent(x, values):
            add(x, HOST, self.home(x))
            from_numpy(x, values)

        with (
            mock.patch.object(register, "_imperative_invoke", invoked),
            mock.patch.object(mx.nd.NDArray, "asnumpy", fetched),
            mock.patch.object(mx.nd.NDArray, "_sync_copyfrom", sent),
        ):
            yield copies


PORT = MxnetPort(ARRAYS)
