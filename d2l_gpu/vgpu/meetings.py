"""The process group of a small world: ranks in threads meet, and exchange values.

``torch.distributed`` asks a process group for every collective. This one is written in
Python, as a subclass of ``torch.distributed.ProcessGroup``. The n-th collective that a
rank calls in a group meets the n-th of all others there. The rank that comes last
computes everybody's results (``exchange.py``). The others wait for it, but only once
they ask for theirs, as with NCCL.

C++ calls these methods too: DDP's reducer does, with virtual tensors, and so do the
functional collectives, with backing tensors.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Backend

from .devices import Devices
from .exchange import COMPUTE, Call
from .sim.clock import HOST
from .special import home
from .tensor import is_virtual
from .turns import Turns

NAME = "vgpu_ranks"  # by which PyTorch knows this kind of group


class Meeting:
    """One collective: who has come, and with what.

    Args:
        kind: its name.
        members: the ranks that meet; of a send, the sender and the receiver.
        tag: of a send.
    Attributes:
        calls: what each rank has brought, by its place among the members. It's a list,
            because several collectives of a kind can be one.
        done: whether all have come and the results are there.
    """

    def __init__(self, kind: str, members: list[int | None], tag: int = 0):
        self.kind, self.members, self.tag = kind, members, tag
        self.calls: dict[int, Sequence[Call]] = {}
        self.done = False

    def compute(self) -> None:
        """Compute the results of all ranks, which have come."""
        ranks = [self.calls[place] for place in range(len(self.members))]
        with torch.no_grad():
            for calls in zip(*ranks, strict=True):
                COMPUTE[self.kind](calls)
        self.done = True

    def over(self) -> bool:
        return self.done

    def text(self) -> str:
        """Say who is missing; see ``turns.Reason``."""
        if self.kind == "send":
            source, target = self.members
            if 0 in self.calls:
                return f"waits for rank {target} to receive what it sends"
            sender = "any rank" if source is None else f"rank {source}"
            return f"waits for {sender} to send what it receives"
        missing = [r for i, r in enumerate(self.members) if i not in self.calls]
        ranks = " and ".join(f"rank {r}" for r in missing)
        call = next(iter(self.calls.values()))
        return f"waits for {ranks} in {call[0] if call else self.kind}"


class World:
    """What the process groups of all ranks share.

    Attributes:
        turns: decides which rank runs.
        meetings: those that not all ranks have come to, by group and number.
        sends: half a send or a receive each, by group.
        store: what ranks tell each other while they set up groups.
    """

    def __init__(self, turns: Turns):
        self.turns = turns
        self.meetings: dict[tuple, Meeting] = {}
        self.sends: dict[tuple, list[Meeting]] = {}
        self.store: dict[str, bytes] = {}


class Work(dist.Work):
    """A collective under way."""

    def __init__(self, world: World, meeting: Meeting, tensors: Sequence):
        super().__init__()
        self._world, self._meeting, self._tensors = world, meeting, list(tensors)

    def wait(self, timeout=None) -> bool:
        """Wait until all ranks have come."""
        self._world.turns.wait(self._meeting)
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        """Whether all have come; lets them come, so a loop that asks does end."""
        self._world.turns.others_first()
        return self._meeting.done

    is_success = is_completed

    def exception(self):
        return None

    def result(self) -> list:
        self.wait()
        return self._tensors

    def get_future(self) -> torch.futures.Future:
        """Return a future that has its value already.

        C++ waits for a future where no other rank could have its turn.
        """
        self.wait()
        future = torch.futures.Future()
        future.set_result(self._tensors)
        return future

    def source_rank(self) -> int:
        return self._meeting.members[0]

    _source_rank = source_rank


class Group(dist.ProcessGroup):
    """A rank's view of a process group.

    Args:
        world: what it shares with other ranks.
        members: the ranks in the group.
        rank: this rank's place among them.
        name: of the group, the same on all ranks.
    """

    supports_splitting = supports_coalescing = False

    def __init__(self, world: World, members: list[int], rank: int, name: str):
        super().__init__(rank, len(members))
        self._world, self._members, self._place = world, members, rank
        self._key = (name, *members)
        self._name, self._desc, self._kind = name, "", Backend.GLOO
        self._count = 0

    # -------------------------------------------------------------- meeting

    def _meet(self, calls: Sequence[Call], tensors: Sequence, kind: str = "") -> Work:
        """Bring calls of one kind to the next meeting of this group."""
        kind = kind or calls[0].kind
        key = (self._key, self._count)
        self._count += 1
        meeting = self._world.meetings.setdefault(key, Meeting(kind, self._members))
        for place, others in meeting.calls.items():
            if not _agree(kind, calls, meeting.kind, others):
                self._world.turns.fail(self._disagreement(kind, calls, meeting, place))
        meeting.calls[self._place] = calls
        if len(meeting.calls) == len(self._members):
            del self._world.meetings[key]
            meeting.compute()
        return Work(self._world, meeting, tensors)

    def _disagreement(self, kind, calls, meeting, place) -> RuntimeError:
        others = meeting.calls[place]
        mine, its = (
            " and ".join(map(str, x)) or y
            for x, y in ((calls, kind), (others, meeting.kind))
        )
        return RuntimeError(
            f"Rank {self._members[place]} calls {its} where rank "
            f"{self._members[self._place]} calls {mine}: all ranks of a group must "
            "call the same collectives in the same order, for tensors that fit."
        )

    def _send(self, call: Call, place: int, peer: int | None, tag: int) -> Work:
        """Bring one end of a send, as sender (place 0) or receiver (1)."""
        me = self._members[self._place]
        other = None if peer is None else self._members[peer]
        pending = self._world.sends.setdefault(self._key, [])
        for meeting in pending:
            source, target = meeting.members
            if place in meeting.calls or meeting.tag != tag:
                continue
            if place == 0 and target == other and source in (None, me):
                break
            if place == 1 and target == me and other in (None, source):
                break
        else:
            members = [me, other] if place == 0 else [other, me]
            meeting = Meeting("send", members, tag)
            pending.append(meeting)
        meeting.calls[place] = [call]
        if len(meeting.calls) == 2:
            pending.remove(meeting)
            if place == 0:
                meeting.members[0] = me
            meeting.compute()
        return Work(self._world, meeting, call.gives or call.takes)

    def _ordinary(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tensors with the values, having seen that they are this rank's."""
        return [self._backing(x) for x in tensors]

    def _backing(self, tensor: torch.Tensor) -> torch.Tensor:
        me = self._members[self._place]
        if is_virtual(tensor):
            index, backing = tensor._index, tensor._backing
        else:
            index, backing = home(tensor), tensor.data
        if backing.layout is not torch.strided:
            raise NotImplementedError(
                "Virtual GPUs have no collectives of sparse tensors: make this tensor "
                "dense first."
            )
        if index == HOST and self._kind == Backend.NCCL:
            raise RuntimeError("No backend type associated with device type cpu")
        if index not in (HOST, me):
            raise RuntimeError(
                f"Rank {me} has the device {Devices.names[me]}, but passes a tensor on "
                f"{Devices.names[index]} to a collective."
            )
        return backing

    def _pieces(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the equal pieces of a tensor, one for each rank."""
        (backing,) = self._ordinary([tensor])
        n = len(self._members)
        if not backing.is_contiguous():
            raise ValueError("Tensors must be contiguous")
        if backing.numel() % n:
            raise ValueError(
                f"A tensor of {backing.numel()} elements can't be divided among {n} "
                "ranks."
            )
        return list(backing.view(n, backing.numel() // n).unbind())

    # -------------------------------------------------------------- collectives

    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        calls = [
            Call("all_reduce", [x], [x], reduction=opts.reduceOp)
            for x in self._ordinary(tensors)
        ]
        return self._meet(calls, tensors, "all_reduce")

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts=None):
        opts = opts or dist.ReduceOptions()
        takes = self._place == opts.rootRank
        calls = [
            Call("reduce", [x], [x] * takes, opts.rootRank, opts.reduceOp)
            for x in self._ordinary(tensors)
        ]
        return self._meet(calls, tensors, "reduce")

    def broadcast(self, tensors, opts=None):
        opts = opts or dist.BroadcastOptions()
        backings = self._ordinary(tensors)
        return self._meet(
            [Call("broadcast", [x], [x], opts.rootRank) for x in backings],
            tensors,
            "broadcast",
        )

    def allgather(self, outputs, inputs, opts=None):
        calls = [
            Call("all_gather", self._ordinary([x]), self._ordinary(takes))
            for takes, x in zip(outputs, inputs, strict=True)
        ]
        return self._meet(calls, [x for takes in outputs for x in takes], "all_gather")

    def allgather_coalesced(self, outputs, inputs, opts=None):
        # Here the first list is by rank, and each rank's list by input.
        return self.allgather(list(zip(*outputs, strict=True)), inputs, opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        calls = [
            Call("all_gather", self._ordinary([x]), self._pieces(taking))
            for taking, x in zip(outputs, inputs, strict=True)
        ]
        return self._meet(calls, outputs, "all_gather")

    def all_gather_single(self, output, x, opts=None):
        return self.all_gather_single_coalesced([output], [x], opts)

    def gather(self, outputs, inputs, opts=None):
        takes = self._ordinary(outputs[0]) if outputs else []
        call = Call("gather", self._ordinary(inputs), takes, opts.rootRank)
        return self._meet([call], outputs[0] if outputs else [])

    def scatter(self, outputs, inputs, opts=None):
        gives = self._ordinary(inputs[0]) if inputs else []
        call = Call("scatter", gives, self._ordinary(outputs), opts.rootRank)
        return self._meet([call], outputs)

    def reduce_scatter(self, outputs, inputs, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        calls = [
            Call(
                "reduce_scatter",
                self._ordinary(gives),
                self._ordinary([taking]),
                reduction=opts.reduceOp,
            )
            for taking, gives in zip(outputs, inputs, strict=True)
        ]
        return self._meet(calls, outputs, "reduce_scatter")

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        calls = [
            Call(
                "reduce_scatter",
                self._pieces(x),
                self._ordinary([taking]),
                reduction=opts.reduceOp,
            )
            for taking, x in zip(outputs, inputs, strict=True)
        ]
        return self._meet(calls, outputs, "reduce_scatter")

    def reduce_scatter_single(self, output, x, opts=None):
        return self.reduce_scatter_single_coalesced([output], [x], opts)

    def alltoall(self, outputs, inputs, opts=None):
        call = Call("all_to_all", self._ordinary(inputs), self._ordinary(outputs))
        return self._meet([call], outputs)

    def all_to_all_single(self, output, x, output_sizes, input_sizes, opts=None):
        takes, gives = (
            list(self._ordinary([tensor])[0].split(list(sizes)))
            if sizes
            else self._pieces(tensor)
            for tensor, sizes in ((output, output_sizes), (x, input_sizes))
        )
        return self._meet([Call("all_to_all", gives, takes)], [output])

    def barrier(self, opts=None):
        return self._meet([Call("barrier", [], [])], [])

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        self.barrier().wait()

    def send(self, tensors, peer, tag=0):
        return self._send(Call("send", self._ordinary(tensors), []), 0, peer, tag)

    def recv(self, tensors, peer, tag=0):
        return self._send(Call("send", [], self._ordinary(tensors)), 1, peer, tag)

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, None, tag)

    # Names that PyTorch 2.10 to 2.12 use, and C++.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # -------------------------------------------------------------- what it says

    @property
    def group_name(self) -> str:
        return self._name

    def getGroupName(self) -> str:
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    setGroupName = _set_group_name

    @property
    def group_desc(self) -> str:
        return self._desc

    def getGroupDesc(self) -> str:
        return self._desc

    def _set_group_desc(self, text: str) -> None:
        self._desc = text

    setGroupDesc = _set_group_desc

    def stands_for(self, backend: str) -> None:
        """Let this group pass for one of a backend that a program has asked for."""
        self._kind = backend

    def getBackendName(self) -> str:
        return str(self._kind)

    name = _get_backend_name = getBackendName

    @property
    def _device_types(self) -> list[torch.device]:
        ours = torch.device(Devices.types[-1])
        return [ours] if self._kind == Backend.NCCL else [torch.device("cpu"), ours]

    def _get_backend(self, device) -> "Group":
        return self

    def set_timeout(self, timeout) -> None:
        """Do nothing: nobody waits for ever."""

    def shutdown(self) -> None:
        """Do nothing: there are no connections to close."""

    abort = shutdown


def _agree(kind, calls, other_kind, others) -> bool:
    return (
        kind == other_kind
        and len(calls) == len(others)
        and all(x.agrees_with(y) for x, y in zip(calls, others, strict=True))
    )
