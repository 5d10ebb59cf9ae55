"""How graders that several frameworks share work with MXNet."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import mxnet as mx
import numpy as np
from mxnet import npx
from mxnet.ndarray import register

from d2l_gpu import mxnet as d2l
from d2l_gpu.exercises.crossing import HOST, Copy, Port

npx.set_np()


class MxnetPort(Port):
    """See `Port`.

    Attributes:
        mixed: how many operations were seen whose operands lived on several devices.
    """

    tensor = mx.np.ndarray
    mixed = 0

    def gpu(self, i: int) -> mx.Context:
        return d2l.gpu(i)

    def name(self, device: mx.Context) -> str:
        return HOST if device == d2l.cpu() else str(device)

    def home(self, x: mx.np.ndarray) -> str:
        return self.name(x.ctx)

    def array(
        self, values: np.ndarray, device: mx.Context | None = None
    ) -> mx.np.ndarray:
        return mx.np.array(values, dtype=values.dtype, ctx=device or d2l.cpu())

    def values(self, x: mx.np.ndarray) -> np.ndarray:
        return x.asnumpy()

    @contextmanager
    def watch(self) -> Iterator[list[Copy]]:
        # Every operation of arrays comes through one function, and so do all copies
        # between contexts. Where MXNet takes operands of several without a copy, one
        # is noted all the same: on real GPUs there would have to be one.
        copies: list[Copy] = []

        def add(x: mx.nd.NDArray, source: str, target: str) -> None:
            if source != target:
                nbytes = x.size * np.dtype(x.dtype).itemsize
                copies.append(Copy(nbytes, source, target))

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


PORT = MxnetPort()
