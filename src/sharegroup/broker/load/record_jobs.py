"""Runs walks over records beside the requests: in slices, with one large batch at a time.

A walk (`wire.batches.record_walk`) pauses whenever it has worked for about a millisecond, and the
event loop serves other requests in between (`broker.load.slices`).  A thread decompresses its
batches, because compiled code works there without the interpreter lock.  The thread has a low
priority, so a client that sends decompression bombs takes no processor time from other programs on
the machine.  A walk waits for its turn before it reads a large batch.  So all walks together hold
at most ``sharegroup.decompressed.max.bytes`` of decompressed records.  Users take turns
(`UserTurns`): one with thousands of large batches delays those of another by one batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Hashable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from sharegroup.broker.load.slices import Slices
from sharegroup.core.security.principal import Principal
from sharegroup.errors import KafkaStorageError
from sharegroup.steps import ATTEMPT_STEPS
from sharegroup.wire.batches.batches import Buffer

if TYPE_CHECKING:
    from sharegroup.wire.batches.record_walk import Walk, WalkStep, Work


# A lock that the tasks of several users take in rotation, for example to decompress a batch.
#
#     tasks of alice, a1 a2 a3 a4, and of bob, b1, who asks after a2
#     have their turns in this order:  a1 b1 a2 a3 a4
#
# The tasks of one user have their turns in the order in which they asked.


class UserTurns:
    """A lock that the tasks of many users take in turn; the user None is one of them."""

    __slots__ = ("_is_taken", "_user", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._user: Principal | None = None
        """The user of the last turn."""
        self._waiting: dict[Principal | None, deque[asyncio.Future[None]]] = {}
        """The waiting tasks by user, in the order of the users' next turns."""

    def __len__(self) -> int:
        """Return the number of waiting tasks."""
        return sum(map(len, self._waiting.values()))

    async def acquire(self, user: Principal | None) -> None:
        """Return when it is the turn of this task, which ends with `release`."""
        if not self._is_taken:
            # Nobody waits then, because `release` passes the lock on to the first waiting task.
            self._is_taken, self._user = True, user
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(user, turn)
            else:
                self.release()  # The turn came together with the cancellation.
            raise

    def release(self) -> None:
        """End the turn; the first task of the next user has the next one."""
        assert self._is_taken, "only a task whose turn it is ends it"
        while self._waiting:
            if self._user in self._waiting:  # Others are first.
                self._waiting[self._user] = self._waiting.pop(self._user)
            self._user = next(iter(self._waiting))
            tasks = self._waiting[self._user]
            turn = tasks.popleft()
            if not tasks:
                del self._waiting[self._user]
            if not turn.done():  # Otherwise its task is being cancelled.
                turn.set_result(None)
                return
        self._is_taken = False

    def _forget(self, user: Principal | None, turn: asyncio.Future[None]) -> None:
        """Forget a task that was cancelled while it waited."""
        tasks = self._waiting.get(user)
        if tasks is not None and turn in tasks:
            tasks.remove(turn)
            if not tasks:
                del self._waiting[user]


T = TypeVar("T")

NICE = 10
"""The increase of the niceness of the decompressing thread."""


class RecordJobs:
    """The walks of one broker; ``bytes_max`` bounds the decompressed records of one batch."""

    __slots__ = (
        "_is_closed",
        "_slices",
        "_tasks",
        "_thread",
        "_turns",
        "bytes_max",
        "job_count",
    )

    def __init__(self, slices: Slices, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._slices = slices
        self._turns = UserTurns()
        self._is_closed = False
        # One thread is enough: only the walk whose turn it is decompresses.
        self._thread = ThreadPoolExecutor(1, "records", initializer=_give_way)
        self._tasks: defaultdict[Hashable, set[asyncio.Task[Any]]] = defaultdict(set)
        self.job_count = 0
        """Large batches that were begun since the broker started."""

    @property
    def waiting_count(self) -> int:
        """The number of walks that wait for their turn now."""
        return len(self._turns)

    def run(self, walk: Walk[T], owner: Hashable, user: Principal | None) -> asyncio.Task[T] | T:
        """Run a walk; return its answer if it is short, otherwise a task.

        `drop` cancels the walks of their ``owner``.  Users without limits, None here, have their
        turns together.
        """
        # Imported by the first walk, to keep the start of a broker short.
        from sharegroup.wire.batches.record_walk import WalkStep

        step: WalkStep | Work = WalkStep.PAUSE
        for _ in range(ATTEMPT_STEPS):
            try:
                step = next(walk)
            except StopIteration as end:
                answer: T = end.value
                return answer
            # Only a task can wait for its turn.
            if step is not WalkStep.PAUSE:
                break
        task = asyncio.get_running_loop().create_task(self._go_on(walk, step, user))
        self._tasks[owner].add(task)
        task.add_done_callback(lambda done: self._ended(owner, done))
        return task

    async def complete(self, walk: Walk[T], user: Principal | None) -> T:
        """Run a walk to its end, for tasks that are not dropped; return its answer."""
        # Imported by the first walk, like above.
        from sharegroup.wire.batches.record_walk import WalkStep

        return await self._go_on(walk, WalkStep.PAUSE, user)

    def drop(self, owner: Hashable) -> None:
        """Cancel the walks of ``owner``, because their answers are no longer needed."""
        for task in self._tasks.get(owner, ()):
            task.cancel()

    def close(self) -> None:
        """Let the thread end; walks that need it later fail."""
        self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _ended(self, owner: Hashable, task: asyncio.Task[Any]) -> None:
        tasks = self._tasks[owner]
        tasks.discard(task)
        if not tasks:
            del self._tasks[owner]

    async def _go_on(self, walk: Walk[T], step: WalkStep | Work, user: Principal | None) -> T:
        # Imported by the first walk, like above.
        from sharegroup.wire.batches.record_walk import WalkStep

        holds_turn = False
        try:
            while True:
                sent: Buffer | None = None
                match step:
                    case WalkStep.PAUSE:
                        await self._slices.turn()
                    case WalkStep.BEGIN:
                        assert not holds_turn, "a walk ends its large batch before the next"
                        await self._turns.acquire(user)
                        holds_turn = True
                        self.job_count += 1
                    case WalkStep.END:
                        holds_turn = False
                        self._turns.release()
                    case work:
                        assert holds_turn, "only a walk whose turn it is decompresses"
                        if self._is_closed:
                            raise KafkaStorageError("the broker has stopped")
                        try:
                            sent = await _in_thread(self._thread, work)
                        except Exception as error:  # noqa: BLE001  The walk handles it.
                            step = walk.throw(error)
                            continue
                step = walk.send(sent)
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            # Before the release: the decompressed records of this walk must be gone when the next
            # walk has its turn, because the limit is for all walks together.
            walk.close()
            if holds_turn:
                self._turns.release()


def _give_way() -> None:
    """Lower the priority of the current thread."""
    # Only Linux has priorities for single threads.
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            nice = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, nice + NICE)


async def _in_thread(thread: Executor, work: Work) -> Buffer:
    """Run ``work`` in the thread and return its result.

    A cancelled walk still waits for the end of the work, because the thread uses its memory.
    """
    task = asyncio.get_running_loop().run_in_executor(thread, work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # Not needed, but asyncio logs exceptions that were never retrieved.
        raise
