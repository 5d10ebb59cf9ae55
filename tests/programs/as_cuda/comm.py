import torch

from d2l_gpu import vgpu
from tests.programs.as_cuda.start import raises, start

start()

from torch.cuda import comm

x, y = torch.arange(6.0).view(3, 2), torch.ones(3, 2, device="cuda:1")
assert [t.get_device() for t in comm.broadcast(x, [0, 1])] == [0, 1]
assert [t.shape[1] for t in comm.scatter(x, ["cuda:0", "cuda:1"], [1, 1], 1)] == [1, 1]
raises(
    RuntimeError,
    "one chunk size for each of 2 devices, but got 1",
    lambda: comm.scatter(x, [0, 1], [3]),
)
assert comm.gather([x.cuda(0), y], destination=1).get_device() == 1
assert comm.gather([x.cuda(0), y], destination="cpu").tolist()[3:] == [[1, 1]] * 3
total = comm.reduce_add([x.cuda(0), y], 1)
assert total.get_device() == 1 and torch.equal(total.cpu(), x + 1)
out = [torch.empty(1, 2, device="cuda:0"), torch.empty(2, 2, device="cuda:1")]
comm.scatter(x, out=out)
assert torch.equal(comm.gather(out, out=torch.empty(3, 2, device="cuda:1")).cpu(), x)
comm.broadcast(x[:1], out=out[:1])
assert out[0].tolist() == [[0, 1]]
[[a], [b]] = comm.broadcast_coalesced([y], [1, 0])
assert a.data_ptr() == y.data_ptr() and b.get_device() == 0
with vgpu.record_copies() as copies:
    comm.broadcast(y, [0, 1])
assert [(c.nbytes, c.source, c.target) for c in copies] == [(24, 1, 0)]
