"""What each rank of a pipeline does, in the order in which PyTorch's schedules do it.

That's the order of ``torch/distributed/pipelining/schedules.py`` in PyTorch 2.13. A
schedule is a list of actions. Sends and receives that PyTorch asks for together follow
each other, and a ``Wait`` says where they have to be over.
"""

from collections.abc import Callable
from typing import NamedTuple

FORWARD, BACKWARD, REDUCE = "forward", "backward", "reduce"
SEND_FORWARD, RECEIVE_FORWARD = "send forward", "receive forward"
SEND_BACKWARD, RECEIVE_BACKWARD = "send backward", "receive backward"
GATHER, FREE = "gather", "free"
MOST_GATHERED = 3  # stages whose parameters a rank gathers (_add_unshard_reshard)


class Action(NamedTuple):
    """Something that a rank does for a stage and a microbatch.

    ``REDUCE``, ``GATHER`` and ``FREE`` are of a whole stage: they reduce its gradients,
    gather its parameters and free them again.
    """

    kind: str
    stage: int
    batch: int = -1


class Wait(NamedTuple):
    """The rank continues once these sends and receives are over."""

    actions: tuple[Action, ...]


Steps = list[Action | Wait]


def steps_of(schedule: str, rank: int, ranks: int, stages: int, batches: int) -> Steps:
    """Return what a rank of a pipeline does.

    Args:
        schedule: a key of ``SCHEDULES``.
        stages: of each rank.
        batches: the number of microbatches.
    """
    return SCHEDULES[schedule](rank, ranks, stages, batches)


class _Single:
    """Actions of a rank with one stage; those that have no partner are left out."""

    def __init__(self, rank: int, ranks: int):
        self.rank, self.last, self.steps = rank, ranks - 1, []

    def ask(self, *actions: tuple[str, int]) -> tuple[Action, ...]:
        """Ask for sends and receives, and return those that there are."""
        none = {
            0: (RECEIVE_FORWARD, SEND_BACKWARD),
            self.last: (SEND_FORWARD, RECEIVE_BACKWARD),
        }
        if self.last == 0:
            return ()
        found = tuple(
            Action(kind, self.rank, batch)
            for kind, batch in actions
            if kind not in none.get(self.rank, ())
        )
        self.steps += found
        return found

    def wait(self, *actions: Action) -> None:
        if actions:
            self.steps.append(Wait(actions))

    def do(self, kind: str, batch: int = -1) -> None:
        self.steps.append(Action(kind, self.rank, batch))


def _gpipe(rank: int, ranks: int, stages: int, batches: int) -> Steps:
    """All forwards, then all backwards. Y. Huang and others, GPipe (2019)."""
    found = _Single(rank, ranks)
    for receive, way, send in (
        (RECEIVE_FORWARD, FORWARD, SEND_FORWARD),
        (RECEIVE_BACKWARD, BACKWARD, SEND_BACKWARD),
    ):
        sent: list[Action] = []
        for i in range(batches):
            found.wait(*found.ask((receive, i)))
            found.do(way, i)
            sent += found.ask((send, i))
        for action in sent:
            found.wait(action)
    found.do(REDUCE)
    return found.steps


def _one_forward_one_backward(
    rank: int, ranks: int, stages: int, batches: int
) -> Steps:
    """As soon as possible, one forward and one backward in turns.

    D. Narayanan and others, PipeDream: Generalized pipeline parallelism for DNN
    training (2019).
    """
    found, first = _Single(rank, ranks), min(batches, ranks - rank)
    sent: tuple[Action, ...] = ()
    for i in range(first):
        found.wait(*found.ask((RECEIVE_FORWARD, i)))
        found.do(FORWARD, i)
        found.wait(*sent)
        if i < first - 1:
            sent = found.ask((SEND_FORWARD, i))
    # A send and the receive after it go together.
    forward = first
    for i in range(batches):
        if forward > batches:
            break
        together = (SEND_FORWARD, forward - 1), (RECEIVE_BACKWARD, i)
        found.wait(*found.ask(*together))
        found.do(BACKWARD, i)
        if forward == batches:
            break
        together = (SEND_BACKWARD, i), (RECEIVE_FORWARD, forward)
        found.wait(*found.ask(*together))
        found.do(FORWARD, forward)
        forward += 1
    sent = found.ask((SEND_BACKWARD, i))
    for j in range(i + 1, batches):
        found.wait(*found.ask((RECEIVE_BACKWARD, j)))
        found.do(BACKWARD, j)
        found.wait(*sent)
        sent = found.ask((SEND_BACKWARD, j))
    found.wait(*sent)
    found.do(REDUCE)
    return found.steps


# ------------------------------------------------------------------ interleaved


def _interleaved(rank: int, ranks: int, stages: int, batches: int) -> Steps:
    """Each rank has several stages, and takes them in turns.

    D. Narayanan and others, Efficient large-scale language model training on GPU
    clusters using Megatron-LM (2021).
    """
    total = ranks * stages
    orders = [_with_shards(_order(r, ranks, stages, batches)) for r in range(ranks)]
    reduced = [_with_reducing(order, batches) for order in orders]
    steps: Steps = []
    sent: list[Action] = []
    for action in _with_sending(reduced, ranks, total)[rank]:
        number, batch = action.stage, action.batch
        if action.kind == FORWARD and number > 0:
            steps.append(Wait((Action(RECEIVE_FORWARD, number, batch),)))
        elif action.kind == BACKWARD and number < total - 1:
            steps.append(Wait((Action(RECEIVE_BACKWARD, number, batch),)))
        elif action.kind in (SEND_FORWARD, SEND_BACKWARD):
            sent.append(action)
        steps.append(action)
    # PyTorch waits for the latest send first. Reducing comes before that.
    steps += [Wait((action,)) for action in reversed(sent)]
    return steps


def rounds_of(ranks: int, batches: int) -> int:
    """Return in how many rounds an interleaved schedule takes its microbatches."""
    return max(1, batches // ranks)


def _order(rank: int, ranks: int, stages: int, batches: int) -> list[Action]:
    """Return the forwards and backwards of a rank (_get_1f1b_rank_ops)."""
    each = batches // rounds_of(ranks, batches)
    total = stages * batches
    first = min((stages - 1) * each + 2 * (ranks - 1 - rank), total)
    found: list[Action] = []
    counts: dict[tuple[str, int], int] = {}

    def add(kind: str, local: int) -> None:
        number = local * ranks + rank
        batch = counts.get((kind, number), 0)
        counts[kind, number] = batch + 1
        found.append(Action(kind, number, batch))

    for i in range(total + first):
        if i < total:
            add(FORWARD, i // each % stages)
        if i >= first:
            add(BACKWARD, stages - 1 - (i - first) // each % stages)
    return found


def _with_shards(actions: list[Action]) -> list[Action]:
    """Add where parameters are gathered and freed (_add_unshard_reshard)."""
    found: list[Action] = []
    active: list[int] = []
    for i, action in enumerate(actions):
        following = list(dict.fromkeys(a.stage for a in actions[i:]))[:MOST_GATHERED]
        fetch = [number for number in following if number not in active]
        for number in sorted(active):
            if number not in following:
                active.remove(number)
                found.append(Action(FREE, number))
        active += fetch
        found += [Action(GATHER, number) for number in fetch]
        found.append(action)
    return found + [Action(FREE, number) for number in sorted(active)]


def _with_reducing(actions: list[Action], batches: int) -> list[Action]:
    """Add where gradients are reduced: after a stage's last backward."""
    found: list[Action] = []
    done: dict[int, int] = {}
    for action in actions:
        found.append(action)
        if action.kind == BACKWARD:
            done[action.stage] = done.get(action.stage, 0) + 1
            if done[action.stage] == batches:
                found.append(Action(REDUCE, action.stage))
    return found


def _with_sending(
    orders: list[list[Action]], ranks: int, total: int
) -> list[list[Action]]:
    """Add sends after what makes their data, and receives when others send.

    That's ``_add_send_recv``: ranks take turns, and one whose data hasn't been sent yet
    lets the others go first.
    """
    found: list[list[Action]] = [[] for _ in range(ranks)]
    there: list[set[Action]] = [set() for _ in range(ranks)]
    places = [0] * ranks

    def ready(action: Action, rank: int) -> bool:
        kind, number, batch = action
        if kind == FORWARD and number > 0:
            return Action(RECEIVE_FORWARD, number, batch) in there[rank]
        if kind == BACKWARD and number < total - 1:
            return Action(RECEIVE_BACKWARD, number, batch) in there[rank]
        return True

    def put(action: Action, rank: int) -> None:
        found[rank].append(action)
        there[rank].add(action)

    while any(place < len(o) for place, o in zip(places, orders, strict=True)):
        for rank, order in enumerate(orders):
            if places[rank] == len(order) or not ready(order[places[rank]], rank):
                continue
            action = order[places[rank]]
            places[rank] += 1
            put(action, rank)
            kind, number, batch = action
            if kind == FORWARD and number < total - 1:
                put(Action(SEND_FORWARD, number, batch), rank)
                put(Action(RECEIVE_FORWARD, number + 1, batch), (number + 1) % ranks)
            elif kind == BACKWARD and number > 0:
                put(Action(SEND_BACKWARD, number, batch), rank)
                put(Action(RECEIVE_BACKWARD, number - 1, batch), (number - 1) % ranks)
    return found


SCHEDULES: dict[str, Callable[[int, int, int, int], Steps]] = {
    "1F1B": _one_forward_one_backward,
    "GPipe": _gpipe,
    "interleaved": _interleaved,
}
