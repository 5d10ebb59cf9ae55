"""Threads that take turns: one rank of a small world runs at a time.

Ranks are processes in reality, and share nothing. Here they are threads of one process.
If they ran side by side, they would disturb each other wherever PyTorch or a program
keeps something for the whole process, and two runs would differ. So a rank runs until
it has to wait for another one, and then passes the turn on, always in the same order.
Whoever waits sleeps on a lock. If nobody can go on, everybody would wait for ever, and
we know what for.
"""

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from .operators import operator
from .tensor import VirtualTensor, contained, engine

# An interrupted rank may stay for PATIENCE seconds in code that isn't Python's. We look
# every STEP seconds, and wait GRACE steps for an operator.
PATIENCE, STEP, GRACE = 5.0, 0.02, 15


class Ended(BaseException):
    """Ends the thread of a rank after another one has failed.

    It isn't an ``Exception``, so a program that handles its errors doesn't catch it.
    """


class Reason(Protocol):
    """Why a rank waits."""

    def over(self) -> bool:
        """Whether the rank can go on."""

    def text(self) -> str:
        """Say what it waits for, after "rank 0 "."""


class Turns:
    """The turns of some threads, one for each rank.

    Args:
        n: number of ranks.
        enter, leave: are called with a rank in its thread, before it gets its turn and
            after it has given it up.
    Attributes:
        current: the rank whose turn it is.
        error: what has ended the world, None as long as nothing has.
    """

    def __init__(
        self, n: int, enter: Callable[[int], None], leave: Callable[[int], None]
    ):
        self.n, self.enter, self.leave = n, enter, leave
        self.current, self.error = 0, None
        self.finished = [False] * n
        self._reasons: list[Reason | None] = [None] * n
        self._wake = [_closed() for _ in range(n)]
        self._done = _closed()
        self._engines: list[dict] = [{} for _ in range(n)]
        self._interruptible = False

    # -------------------------------------------------------------- in the caller

    def run(self, function: Callable[[int], None]) -> None:
        """Call the function with each rank, in threads, and wait for all of them.

        Raises:
            BaseException: what has ended the world: ``error``.
        """
        threads = [
            threading.Thread(target=self._thread, args=(function, i), daemon=True)
            for i in range(self.n)
        ]
        for thread in threads:
            thread.start()
        try:
            self._wake[0].release()
            # With a limit, because Windows can't interrupt a wait without one.
            while not self._done.acquire(timeout=1.0):
                pass
        except BaseException as error:  # Ctrl-C
            self.error = self.error or error
            self._interrupt(threads)
        for thread, finished in zip(threads, self.finished, strict=True):
            if finished:
                thread.join()
        # A thread that is left ends when it wakes. A traceback would keep this object.
        error, self.error = self.error, Ended()
        if error is not None:
            try:
                raise error
            finally:
                del error

    def _interrupt(self, threads: list[threading.Thread]) -> None:
        """End the rank whose turn it is, and so all others one after the other.

        Its next operator on a virtual GPU raises an error. Only if none comes, Python
        raises one wherever the thread is: below an operator, that could end the
        process.
        """
        with _operators_end({thread.ident for thread in threads}):
            for step in range(round(PATIENCE / STEP)):
                if self._done.acquire(timeout=STEP):
                    return
                rank = self.current
                in_backward = self._engines[rank].get("depth")
                if step >= GRACE and self._interruptible and not in_backward:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(threads[rank].ident), ctypes.py_object(Ended)
                    )

    # -------------------------------------------------------------- in a rank

    def wait(self, reason: Reason) -> None:
        """Let others run until a reason to wait is over.

        Raises:
            Ended: the world has come to an end.
        """
        # Python delivers an interrupt where a function begins, so none is under way.
        self._interruptible = False
        rank = self.current
        self._reasons[rank] = reason
        while self.error is None and not reason.over():
            self._pass_on(rank)
        self._reasons[rank] = None
        if self.error is not None:
            raise Ended
        self._interruptible = True

    def others_first(self) -> None:
        """Let every other rank that can go on have a turn."""
        self.wait(_Once())

    def fail(self, error: BaseException):
        """End the world with an error that isn't one rank's alone."""
        self.error = self.error or error
        raise Ended

    def _thread(self, function: Callable[[int], None], rank: int) -> None:
        self._wake[rank].acquire()
        try:
            if self.error is None:
                self.enter(rank)
                self._engines[rank] = engine.__dict__
                self._interruptible = True
                function(rank)
        except Ended:
            pass
        except BaseException as error:
            if self.error is None:
                self.error = _named(error, rank, self.n)
        try:
            self._interruptible = False
            pending()
        except Ended:  # it came too late
            pass
        self._finish(rank)

    def _pass_on(self, rank: int) -> None:
        """Give the turn to the next rank that can use it, and wait for it to return."""
        following = self._following(rank)
        if following is None:
            self.error = self._deadlock()
            return
        if following == rank:
            return
        self.leave(rank)
        self.current = following
        self._wake[following].release()
        self._wake[rank].acquire()
        self.enter(rank)

    def _finish(self, rank: int) -> None:
        self.finished[rank] = True
        if all(self.finished):
            self._done.release()
            return
        following = self._following(rank)
        if following is None:
            self.error = self._deadlock()
            following = self._following(rank)
        self.leave(rank)
        self.current = following
        self._wake[following].release()

    def _following(self, rank: int) -> int | None:
        """Return the next rank that can go on, which may be the same one."""
        for step in range(1, self.n + 1):
            other = (rank + step) % self.n
            reason = self._reasons[other]
            if not self.finished[other] and (
                self.error is not None or reason is None or reason.over()
            ):
                return other
        return None

    def _deadlock(self) -> RuntimeError:
        parts = [
            f"rank {i} has returned"
            if self.finished[i]
            else f"rank {i} {self._reasons[i].text()}"
            for i in range(self.n)
        ]
        return RuntimeError(f"The ranks would wait for ever: {', '.join(parts)}.")


@contextmanager
def _operators_end(idents: set[int | None]) -> Iterator[None]:
    """Let every operator on virtual tensors end its thread, if it's one of these."""
    original = VirtualTensor.__torch_dispatch__

    def end(func, types, args=(), kwargs=None):
        if threading.get_ident() in idents:
            return contained(Ended(), sys._getframe(1), operator(func))
        return original(func, types, args, kwargs)

    VirtualTensor.__torch_dispatch__ = staticmethod(end)
    try:
        yield
    finally:
        VirtualTensor.__torch_dispatch__ = staticmethod(original)


class _Once:
    """A reason to wait that is over as soon as the others have had their turn."""

    def __init__(self):
        self._asked = 0

    def over(self) -> bool:
        self._asked += 1
        return self._asked > 1

    def text(self) -> str:
        return "lets others run"


def pending() -> None:
    """Let Python deliver an interrupt, which it does where a function begins."""


def _closed() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def _named(error: BaseException, rank: int, n: int) -> RuntimeError:
    """Return an error that says which rank raised another one."""
    words = str(error)
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    named = RuntimeError(f"Rank {rank} of {n} raised {text}")
    named.__cause__ = error
    return named
