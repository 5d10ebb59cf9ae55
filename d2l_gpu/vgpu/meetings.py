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
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Backend

from .collectives import asked
from .devices import Devices
from .exchange import COMPUTE, Call
from .patches.ranks import NAME
from .sim.clock import HOST, Moment, queues
from .sim.commands import HostWaits, StreamWaits
from .sim.worlds import Exchange, Reaches
from .special import home
from .tensor import engine, is_virtual
from .turns import Ended, Turns


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
        reached: when each rank came, on the simulated clock, by its device.
        ended: when the results are there, on that clock; None as long as it isn't
            known, and for tensors that aren't on devices.
    """

    def __init__(self, kind: str, members: list[int | None], tag: int = 0):
        self.kind, self.members, self.tag = kind, members, tag
        self.calls: dict[int, Sequence[Call]] = {}
        self.reached: dict[int, Moment] = {}
        self.ended: Moment | None = None
        self.done = False

    def compute(self) -> int:
        """Compute everybody's results, and return the bytes of a whole tensor."""
        ranks = [self.calls[place] for place in range(len(self.members))]
        nbytes = 0
        with torch.no_grad():
            for calls in zip(*ranks, strict=True):
                COMPUTE[self.kind](calls)
                nbytes += max(call.nbytes for call in calls)
        self.done, self.calls = True, {}  # which would keep the tensors
        return nbytes

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

    def __init__(self, group: "Group", meeting: Meeting, tensors: Sequence):
        super().__init__()
        self._group, self._turns = group, group.world.turns
        self._meeting, self._tensors = meeting, list(tensors)

    def wait(self, timeout=None) -> bool:
        """Wait until all ranks have come.

        On the simulated clock, the rank's current stream waits, but not its host.
        """
        self._until_all_have_come()
        self._group.hold_up(self._meeting)
        return True

    synchronize = wait

    def _until_all_have_come(self) -> None:
        try:
            self._turns.wait(self._meeting)
        except Ended:
            # DDP's C++ never lets go of a collective that raised an error.
            self._tensors.clear()
            self._meeting.calls.clear()
            raise

    def is_completed(self) -> bool:
        """Whether all have come; lets them come, so a loop that asks does end."""
        self._turns.others_first()
        return self._meeting.done

    is_success = is_completed

    def exception(self):
        return None

    def result(self) -> list:
        self.wait()
        return self._tensors

    def get_future(self) -> torch.futures.Future:
        """Return a future that has its value already.

        C++ waits for a future where no other rank could have its turn. DDP does so
        when backward ends, so that's when the stream waits on the simulated clock.
        """
        self._until_all_have_come()
        if engine.depth:
            torch.autograd.Variable._execution_engine.queue_callback(
                lambda: self._group.hold_up(self._meeting)
            )
        else:
            self._group.hold_up(self._meeting)
        future = torch.futures.Future()
        future.set_result(self._tensors)
        return future

    def source_rank(self) -> int:
        return self._meeting.members[0]

    _source_rank = source_rank


@dataclass
class Cut:
    """A tensor that stands for its pieces, one for each rank.

    Attributes:
        sizes: of the pieces along the first dimension; equal ones if there are none.
    """

    tensor: torch.Tensor
    sizes: Sequence[int] = ()

    def __iter__(self):
        return iter([self.tensor])

    def pieces(self, n: int) -> list[torch.Tensor]:
        """Return n ordinary tensors, views of the whole."""
        whole = _ordinary(self.tensor)
        if self.sizes:
            return list(whole.split(list(self.sizes)))
        if not whole.is_contiguous():
            raise ValueError("Tensors must be contiguous")
        if whole.numel() % n:
            raise ValueError(
                f"A tensor of shape {tuple(whole.shape)} can't be divided evenly among "
                f"{n} ranks."
            )
        return list(whole.view(n, whole.numel() // n).unbind())


def _ordinary(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with the values, without its history."""
    return tensor._backing if is_virtual(tensor) else tensor.data


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
        self.world, self._members, self._place = world, members, rank
        self._key = (name, *members)
        self._name, self._desc, self._kind = name, "", Backend.GLOO
        self._count = 0

    # -------------------------------------------------------------- meeting

    def _meet(self, kind: str, calls: Sequence[Call], tensors: Sequence) -> Work:
        """Bring calls of one kind to the next meeting of this group."""
        key = (self._key, self._count)
        self._count += 1
        meeting = self.world.meetings.setdefault(key, Meeting(kind, self._members))
        for place, others in meeting.calls.items():
            if not _agree(kind, calls, meeting.kind, others):
                self.world.turns.fail(self._disagreement(kind, calls, meeting, place))
        self._come(meeting, self._place, calls)
        if meeting.done:
            del self.world.meetings[key]
        return Work(self, meeting, tensors)

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
        pending = self.world.sends.setdefault(self._key, [])
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
        if place == 0:
            meeting.members[0] = me
        self._come(meeting, place, [call])
        if meeting.done:
            pending.remove(meeting)
        return Work(self, meeting, call.gives or call.takes)

    def _come(self, meeting: Meeting, place: int, calls: Sequence[Call]) -> None:
        """Bring calls to a meeting; the last to come computes the results."""
        meeting.calls[place] = calls
        moment = Moment()
        timed = all(call.on_device for call in calls) and len(meeting.members) > 1
        if timed:
            meeting.reached[self._members[self._place]] = moment
            self._note(Reaches(moment))
        if len(meeting.calls) < len(meeting.members):
            return
        nbytes = meeting.compute()
        if timed:
            exchange = Exchange(meeting.kind, meeting.members, nbytes, meeting.reached)
            self._note(exchange)
            meeting.ended = exchange.done

    def hold_up(self, meeting: Meeting) -> None:
        """Let the current stream wait, on the clock, for what a meeting results in."""
        if meeting.ended is None:
            return
        self._note(StreamWaits(meeting.ended))
        if meeting.kind == "barrier":  # for which NCCL's group makes the host wait
            self._note(HostWaits(moment=meeting.ended))

    def _note(self, command) -> None:
        me = self._members[self._place]
        Devices.machine.clock.note(command, me, queues.of.get(me, 0))

    def _call(
        self,
        kind: str,
        gives: "Sequence[torch.Tensor] | Cut",
        takes: "Sequence[torch.Tensor] | Cut",
        options=None,
    ) -> Call:
        """Return a call with ordinary tensors, having checked those that were given.

        Args:
            options: of the collective, with a root or a reduction.
        """
        on_device = self._check([*gives, *takes])
        n = len(self._members)
        gives, takes = (
            side.pieces(n) if isinstance(side, Cut) else [_ordinary(x) for x in side]
            for side in (gives, takes)
        )
        root = getattr(options, "rootRank", None)
        reduction = getattr(options, "reduceOp", None)
        return Call(kind, gives, takes, root, reduction, on_device)

    def _check(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether the tensors of a collective are on this rank's device.

        Raises:
            NotImplementedError: one is sparse.
            RuntimeError: one is on a device that isn't this rank's, or on the CPU
                while others aren't or where NCCL would be.
        """
        me = self._members[self._place]
        places = set()
        for x in tensors:
            place = x._index if is_virtual(x) else home(x)
            if place == HOST and asked.index is not None:
                place = asked.index  # made by C++, for a result
            if x.layout is not torch.strided:
                raise NotImplementedError(
                    "Virtual GPUs have no collectives of sparse tensors: make this "
                    "tensor dense first."
                )
            if place == HOST and self._kind == Backend.NCCL:
                raise RuntimeError("No backend type associated with device type cpu")
            if place not in (HOST, me):
                raise RuntimeError(
                    f"Rank {me} has the device {Devices.names[me]}, but it passes a "
                    f"tensor on {Devices.names[place]} to a collective."
                )
            places.add(place)
        if len(places) > 1:
            raise RuntimeError(
                "The tensors of a collective must be on one device, but found cpu and "
                f"{Devices.names[me]}."
            )
        return places == {me}

    # -------------------------------------------------------------- collectives

    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        calls = [self._call("all_reduce", [x], [x], opts) for x in tensors]
        return self._meet("all_reduce", calls, tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts=None):
        opts = opts or dist.ReduceOptions()
        mine = self._place == opts.rootRank
        calls = [self._call("reduce", [x], [x] * mine, opts) for x in tensors]
        return self._meet("reduce", calls, tensors)

    def broadcast(self, tensors, opts=None):
        opts = opts or dist.BroadcastOptions()
        calls = [self._call("broadcast", [x], [x], opts) for x in tensors]
        return self._meet("broadcast", calls, tensors)

    def allgather(self, outputs, inputs, opts=None):
        pairs = zip(outputs, inputs, strict=True)
        calls = [self._call("all_gather", [x], takes) for takes, x in pairs]
        return self._meet("all_gather", calls, [x for takes in outputs for x in takes])

    def allgather_coalesced(self, outputs, inputs, opts=None):
        # Here the first list is by rank, and each of them by input.
        return self.allgather(list(zip(*outputs, strict=True)), inputs, opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        pairs = zip(outputs, inputs, strict=True)
        calls = [self._call("all_gather", [x], Cut(whole)) for whole, x in pairs]
        return self._meet("all_gather", calls, outputs)

    def all_gather_single(self, output, x, opts=None):
        return self.all_gather_single_coalesced([output], [x], opts)

    def gather(self, outputs, inputs, opts=None):
        outputs = outputs[0] if outputs else []
        call = self._call("gather", inputs, outputs, opts or dist.GatherOptions())
        return self._meet("gather", [call], outputs)

    def scatter(self, outputs, inputs, opts=None):
        inputs = inputs[0] if inputs else []
        call = self._call("scatter", inputs, outputs, opts or dist.ScatterOptions())
        return self._meet("scatter", [call], outputs)

    def reduce_scatter(self, outputs, inputs, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        pairs = zip(outputs, inputs, strict=True)
        calls = [self._call("reduce_scatter", x, [out], opts) for out, x in pairs]
        return self._meet("reduce_scatter", calls, outputs)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        return self.reduce_scatter(outputs, [Cut(x) for x in inputs], opts)

    def reduce_scatter_single(self, output, x, opts=None):
        return self.reduce_scatter([output], [Cut(x)], opts)

    def alltoall(self, outputs, inputs, opts=None):
        call = self._call("all_to_all", inputs, outputs)
        return self._meet("all_to_all", [call], outputs)

    def all_to_all_single(self, output, x, output_sizes, input_sizes, opts=None):
        parts = Cut(x, input_sizes), Cut(output, output_sizes)
        return self._meet("all_to_all", [self._call("all_to_all", *parts)], [output])

    def barrier(self, opts=None):
        return self._meet("barrier", [Call("barrier", [], [])], [])

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        self.barrier().wait()

    def send(self, tensors, peer, tag=0):
        return self._send(self._call("send", tensors, []), 0, peer, tag)

    def recv(self, tensors, peer, tag=0):
        return self._send(self._call("send", [], tensors), 1, peer, tag)

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
        # Not the name that it passes for: by that, C++ would take it for its own class.
        return NAME

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
