"""The records of a route that were taken and whose handler has not begun.

add --> [key is determined in a thread] --> [behind its key] --> ready --> [rate limit] --> run
                                                 |                 ^
                                                 '-- key is free --'<-- add_due: a held retry
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from sharegroup.worker.declarations.route import Route
from sharegroup.worker.ports import WorkerClock
from sharegroup.worker.running.key_order import KeyOrder, find_key
from sharegroup.worker.running.rate_limiter import OwnTokens, RateLimiter
from sharegroup.worker.running.room_signal import RoomSignal
from sharegroup.worker.running.taken_record import NOT_DECODED, OrderByFailure, TakenRecord


class RecordQueue:
    """The waiting records of a route: ready, or behind their key or the rate limit."""

    __slots__ = (
        "_route", "_tasks", "add", "idle", "is_closed", "is_open", "keys", "limiter", "ready",
        "room", "unread",
    )  # fmt: skip

    def __init__(
        self, route: Route, clock: WorkerClock, room: RoomSignal, *, batch_size: int
    ) -> None:
        self._route = route
        self.room = room
        self._tasks: asyncio.TaskGroup | None = None
        self.ready: deque[TakenRecord] = deque()
        self.keys = KeyOrder() if route.order_by is not None else None
        # Without keys no Python call, because it runs for every record.
        self.add: Callable[[TakenRecord], None] = (
            self.ready.append if self.keys is None else self._add_by_key
        )
        """Adds a delivered record; the caller must wake a slot."""
        limit = route.rate_limit
        self.limiter = None if limit is None else RateLimiter(OwnTokens(limit, clock))
        """`Worker` replaces that of a limit that processes share."""
        self.unread: deque[TakenRecord] = deque()
        """Records whose key is being determined in a thread, one after the other."""
        self.idle = IdleSlots(batch_size)
        self.is_open = True
        """Whether handlers may begin."""
        self.is_closed = False
        """Whether the route has ended, so that no record is waited for any more."""

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Let the queue start its tasks in this group; called before the first record is added."""
        self._tasks = tasks

    # State.

    @property
    def before_rate(self) -> int:
        """The number of waiting records, without those behind their keys."""
        limited = 0 if self.limiter is None else len(self.limiter.waiting)
        return len(self.ready) + limited + len(self.unread)

    @property
    def behind_keys(self) -> int:
        """The number of records that wait behind another record of their key."""
        return self.keys.waiting if self.keys is not None else 0

    @property
    def waiting(self) -> int:
        """The number of all waiting records."""
        return self.before_rate + self.behind_keys

    def __iter__(self) -> Iterator[TakenRecord]:
        """All waiting records that are not settled."""
        limited = () if self.limiter is None else self.limiter.waiting
        taken = (*self.ready, *limited, *self.unread)
        yield from (record for record in taken if not record.is_done)
        if self.keys is not None:
            yield from self.keys

    # Records.

    def add_due(self, record: TakenRecord) -> None:
        """Add a held record that is due; it runs before new records, behind those due before."""
        if record.is_done:
            return  # Its lock was lost while it was held: nobody would give its key free again.
        if type(record.payload) is OrderByFailure:
            record.payload = NOT_DECODED
            self.add(record)  # Try again to determine its key.
        else:
            # Which has been in its handler is a held record; the newest one must not run first.
            # Found by halves, because ten thousand may be due at once.
            place = bisect_left(
                self.ready, True, key=lambda waiting: waiting.handler_record is None
            )
            self.ready.insert(place, record)
        self.wake_one()

    def settled(self, record: TakenRecord) -> None:
        """Mark a record as settled; the next record that waits behind its key is ready."""
        if record.is_done:
            return  # The lock was lost during the write.
        record.is_done = True
        if self.keys is not None and (following := self.keys.done(record)) is not None:
            self.ready.append(following)
            self.wake_one()

    def take_back(self, *, alone_from: int) -> list[TakenRecord]:
        """Return waiting records that need not run alone; the caller releases them."""
        taken: list[TakenRecord] = []
        if self.keys is not None:
            taken += self.keys.take(alone_from, alone=False)
        limited = () if self.limiter is None else self.limiter.waiting
        # Those of the rate limit and without a key stay there until they are found to be settled.
        for record in (*limited, *self.unread, *self.ready):
            if not record.runs_alone(alone_from) and not record.is_done:
                taken.append(record)
        remaining = [record for record in self.ready if record.runs_alone(alone_from)]
        self.ready.clear()
        self.ready.extend(remaining)
        return taken

    def take_ready(
        self, *, alone_from: int, but: Sequence[TakenRecord] = (), behind_keys: bool = True
    ) -> list[TakenRecord]:
        """Remove and return unsettled records that are ready, or behind their keys or the rate.

        Only those that must run alone, and none of ``but``.
        """
        taken = self._take_alone(self.ready, alone_from, but)
        if self.limiter is not None:
            taken += self._take_alone(self.limiter.waiting, alone_from, but)
        if self.keys is not None and behind_keys:
            taken += self.keys.take(alone_from, alone=True)
        return taken

    @staticmethod
    def _take_alone(
        waiting: deque[TakenRecord] | list[TakenRecord],
        alone_from: int,
        but: Sequence[TakenRecord],
    ) -> list[TakenRecord]:
        taken: list[TakenRecord] = []
        remaining: list[TakenRecord] = []
        for record in waiting:
            if not record.is_done:
                is_taken = record.runs_alone(alone_from) and record not in but
                (taken if is_taken else remaining).append(record)
        waiting.clear()
        waiting.extend(remaining)
        return taken

    async def wait_rate(
        self, records: Sequence[TakenRecord], may_begin: Callable[[], bool]
    ) -> list[TakenRecord]:
        """Wait until the rate limit lets all these records begin; returns those still to be run.

        If handlers may not begin any more, it returns none, and the records are ready again.
        """
        limiter = self.limiter
        assert limiter is not None, "only routes with a rate limit wait for it"
        waited = await limiter.wait(records)
        self.room.notify()
        unsettled = [record for record in waited if not record.is_done]
        granted = unsettled if may_begin() else []
        limiter.tokens.give_back(len(records) - len(granted))
        if not granted:
            self.ready.extendleft(reversed(unsettled))
        return granted

    def wake_one(self) -> None:
        """Wake an idle slot if records are ready."""
        self.idle.wake_one(len(self.ready))

    # Keys.

    def _add_by_key(self, record: TakenRecord) -> None:
        assert self.keys is not None, "otherwise `add` is another function"
        if self._route.codec.may_block and callable(self._route.order_by):
            self._read_later(record)
        else:
            find_key(record)
            self._admit(record, self.keys)

    def _admit(self, record: TakenRecord, keys: KeyOrder) -> None:
        try:
            may_run = keys.admit(record)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  A key of the application may compare as it likes.
            record.key, record.payload, may_run = None, OrderByFailure(error), True
        if may_run:
            self.ready.append(record)

    def _read_later(self, record: TakenRecord) -> None:
        """Queue a record whose key needs its payload, because decoding it may block."""
        self.unread.append(record)
        # One task for all of them, so records of a key are admitted in the order of their delivery.
        if len(self.unread) == 1:
            assert self._tasks is not None, "no record is added before the queue is started"
            self._tasks.create_task(self._find_keys(), name=f"keys-{self._route.shape.name}")

    async def _find_keys(self) -> None:
        keys = self.keys
        assert keys is not None, "keys are determined only for routes with order_by"
        while self.unread and not self.is_closed:
            record = self.unread[0]  # Stays in the queue, so that it counts as waiting.
            if not record.is_done:
                await asyncio.to_thread(find_key, record)
            self.unread.popleft()
            if not record.is_done:
                self._admit(record, keys)
                self.wake_one()


# Idle slots: the slots of a route that wait for records.
#
# A slot that finds more ready records than it takes wakes idle slots, and these wake others. So as
# many slots run as there is work for, and one or two slots run a handler that never waits.


class IdleSlots:
    """Wakes the idle slots of a route, and the slot that gathers a batch."""

    __slots__ = ("_batch_size", "_is_full", "is_gathering", "waiters", "waking")

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._is_full: asyncio.Future[None] | None = None
        """Set when a whole batch is ready; None unless a slot waits for that."""
        self.is_gathering = False
        """Whether a slot gathers a batch."""
        self.waiters: list[asyncio.Future[None]] = []
        """The futures that the idle slots wait for."""
        self.waking = 0
        """The number of slots that were woken and have not run yet."""

    async def wait(self) -> None:
        """Wait until woken."""
        woken = asyncio.get_running_loop().create_future()
        self.waiters.append(woken)
        try:
            await woken
        finally:
            if woken in self.waiters:  # The slot was cancelled, not woken.
                self.waiters.remove(woken)
            else:
                self.waking -= 1

    async def wait_for_batch(self, clock: WorkerClock, deadline: float) -> None:
        """Wait until `wake_one` finds a whole batch ready, or until the deadline."""
        self._is_full = asyncio.get_running_loop().create_future()
        sleeping = asyncio.ensure_future(clock.sleep_until(deadline))
        try:
            await asyncio.wait({self._is_full, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_full = None
            sleeping.cancel()

    def wake_one(self, ready: int) -> None:
        """Wake an idle slot if records are ready, unless a slot was woken already.

        While a slot gathers a batch, only that slot is woken, when the batch is whole.
        """
        if self.is_gathering:
            if ready >= self._batch_size and self._is_full is not None:
                _wake(self._is_full)
        elif ready and self.waiters and not self.waking:
            self.wake(1, ready)

    def wake(self, slots: int, ready: int) -> None:
        """Wake up to ``slots`` idle slots, but not more than records are ready."""
        for _ in range(min(slots, len(self.waiters), ready)):
            self.waking += 1
            _wake(self.waiters.pop())


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
