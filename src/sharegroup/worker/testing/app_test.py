"""`App.test`: runs an application in the process of a test, without a broker or waiting.

    async with app.test() as t:
        order = await t.send(bill, Order(7, total=-1))
        await t.settle()                       # until nothing can happen unless time passes
        assert order.outcome == "dead_lettered"

        flaky = await t.send("orders", b'{"id": 8, "total": 5}')
        await t.advance("1h")                  # runs everything that is due in that hour
        assert flaky.times == (0.0, 1.0, 4.0)

The worker is the real one: routing, decoding, middleware, retries, tiers, dead letters.  Its
surroundings are simulated: topics are lists, time moves when `advance` is called, and share groups
use the core of the broker (`transport.memory_group`).  So outcomes, orders and times are those of
production.  Network behaviour is not simulated; `sharegroup.testing` has a fixture with a real
broker for that.

With ``app.test(processes=True)``, handlers with ``processes=N`` run in processes, as in production.
Without it they run in this process, which differs in four ways.  They share its memory.  They are
opened once, not once in each process.  What they get and return is not copied.  A crash ends the
test, and is no `HandlerCrashed`.

A handler may await something other than the worker's clock, such as a socket or ``asyncio.sleep``.
It gets real time for that, up to ``patience_seconds`` without any progress.  After that it counts
as hanging, until time moves far enough to end it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sharegroup.core.delivery.delivery import SharePartitionLimits
from sharegroup.dead_letters.letter import Letter, letter_of
from sharegroup.dead_letters.story_headers import own_headers
from sharegroup.durations import Duration, seconds
from sharegroup.errors import KafkaError, NetworkException
from sharegroup.worker.consuming.consumed_partitions import ConsumedPartitions
from sharegroup.worker.dead_letters import letters_topic
from sharegroup.worker.declarations.replies import PARTITIONS, replies_topic
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.declarations.schedules import topic_of_schedules
from sharegroup.worker.ports import Header, WrittenRecord
from sharegroup.worker.retrying.postponer import retry_topics
from sharegroup.worker.routed import Routed
from sharegroup.worker.running.worker import Worker
from sharegroup.worker.sender import Headers, headers_of
from sharegroup.worker.stores.memory import MemoryStore
from sharegroup.worker.stores.store import Store
from sharegroup.worker.testing.history import GroupNames, History, Outcome, SentRecord, lineage_of
from sharegroup.worker.transport.memory import MemoryProcess, MemoryWorld
from sharegroup.worker.transport.memory_clock import START_SECONDS
from sharegroup.worker.transport.memory_log import MemoryRecord

if TYPE_CHECKING:
    from sharegroup.worker.application import Application

PATIENCE_SECONDS = 1.0
STOP_GRACE_SECONDS = 0.0
"""At the end of a test, running handlers are cancelled at once and their records released."""


class WorkerFailed(Exception):
    """The worker itself failed, not a handler; the cause is its error."""


class AppTest:
    """An application that runs in the process of a test, without a broker and in virtual time.

    `App.test` returns it.  Use it with ``async with``.

        async with app.test() as t:
            order = await t.send(bill, Order(7, total=-1))
            await t.settle()                       # until nothing can happen unless time passes
            assert order.outcome == "dead_lettered"

            flaky = await t.send("orders", b'{"id": 8, "total": 5}')
            await t.advance("1h")                  # runs everything that is due in that hour
            assert flaky.times == (0.0, 1.0, 4.0)

    The worker is the real one, but topics are lists and time moves when `advance` is called.  A
    handler that awaits something else than the worker's clock gets real time for that, up to
    ``patience_seconds`` without any progress.
    """

    def __init__(
        self,
        app: Application,
        *,
        lock: Duration = "30s",
        delivery_limit: int = 10,
        renewal: bool = True,
        processes: bool = False,
        patience_seconds: float = PATIENCE_SECONDS,
        store: Store | None = None,
    ) -> None:
        self._app = app
        self._has_processes = processes
        self._world = MemoryWorld(
            SharePartitionLimits(
                lock_ms=round(seconds(lock) * 1000),
                delivery_count_max=delivery_limit,
                renewal=renewal,
            )
        )
        # In place of the declared one, because a test leaves nothing behind and time is virtual.
        if store is None and app.store is not None:
            store = MemoryStore(now=self._world.clock.now)
        self._store = store
        self._history = History(
            app.events, self._world.log, self._world.standing, _names(app.route_list)
        )
        self._worker: Worker | None = None
        self._rest = Rest(self._busy, patience_seconds)
        self._process: MemoryProcess | None = None
        self._running = AsyncExitStack()
        self._failed: asyncio.Future[BaseException] | None = None
        self._routes: dict[Routed[Any, Any], Route] = {}
        self.records: list[SentRecord] = []
        """All records that were sent with `send`."""

    async def __aenter__(self) -> Self:
        self._routes = {routed: routed.route for routed in self._app.handlers}
        for routed, route in self._routes.items():
            if route.processes and not self._has_processes:
                # In this process, so that the test sees its side effects; as many at a time.
                routed.route = replace(route, processes=0, concurrency=route.processes)
        self._history.listen()
        for route in self._app.route_list:
            if route.is_share:
                self._world.group(route.group)
            else:
                self._world.consumer_group(route.group)
            for topic in retry_topics(route):
                self._world.log.create(topic.name, log_append_time=True)
        if any(route.replies for route in self._app.route_list):
            self._world.log.create(replies_topic(self._app.name), partitions=PARTITIONS)
        if self._app.schedule_list:
            topic = topic_of_schedules(self._app.name)
            assert topic.partitions is not None, "their number is a part of the format"
            self._world.log.create(topic.name, partitions=topic.partitions, log_append_time=True)
        try:
            await self._start()
        except BaseException:
            # `__aexit__` is not called then, and the application is used by other tests.
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        """Stop the worker if it runs, and leave the application as it was before."""
        try:
            await self._stop()
        finally:
            self._history.listen_no_more()
            for routed, route in self._routes.items():
                routed.route = route

    # What a test does.

    async def send(
        self,
        to: Routed[Any, Any] | str,
        payload: Any,
        *,
        key: str | bytes | None = None,
        headers: Headers = (),
        delay: Duration = 0,
        at: datetime | None = None,
    ) -> SentRecord:
        """Send a payload to a handler or to a topic.

        A handler's sender encodes the payload; for a topic, the codec of a handler that reads it
        does.  Bytes and None are sent unchanged, even if the handler cannot decode them.
        """
        if isinstance(to, str) or isinstance(payload, bytes) or payload is None:
            if delay or at is not None:
                raise ValueError(
                    "delay and at require a handler and a payload that it accepts, not bytes"
                )
            written: WrittenRecord = self._append(self._topic(to), payload, key, headers)
        else:
            written = await to.send(payload, key=key, headers=headers, delay=delay, at=at)
        record = self._world.log.partitions(written.topic)[written.partition][written.offset]
        sent = SentRecord(lineage_of(record), own_headers(record.headers), self._history)
        self.records.append(sent)
        return sent

    async def settle(self) -> None:
        """Run all tasks until each waits for virtual time, a record, or an event from outside.

        Raises WorkerFailed if the worker itself failed.
        """
        await self._rest.come()
        if self._failed is not None and self._failed.done():
            raise WorkerFailed("the worker itself failed, not a handler") from self._failed.result()

    async def advance(self, duration: Duration) -> None:
        """Move virtual time forward, and run the tasks that become due, each at its time."""
        clock = self._world.clock
        until = clock.now() + seconds(duration)
        await self.settle()
        while (due := clock.next_due()) is not None and due <= until:
            clock.move_to(due)
            await self.settle()
        clock.move_to(until)
        await self.settle()

    def fail_writes(self, topic: str, error: KafkaError | None = None) -> None:
        """Make all writes to this topic fail until `mend_writes`.

        The default error is NetworkException.
        """
        broken = NetworkException(f"topic {topic!r} cannot be written: the test called fail_writes")
        self._world.log.fail(topic, error or broken)

    def mend_writes(self, topic: str) -> None:
        """Make writes to this topic succeed again."""
        self._world.log.mend(topic)

    def lose_lock(self, record: SentRecord) -> None:
        """End the acquisition lock that the worker has on this record, so it is delivered again."""
        (group,) = self._history.groups_of(record.topic)
        assert self._process is not None, "the test has begun"
        self._process.lose(self._history.place(group, record.lineage))

    async def lose_partitions(self, group: str) -> None:
        """End the membership in a consumer group, as after a session timeout; it joins again."""
        assert self._process is not None, "the test has begun"
        await self._process.lose_partitions(group)

    def partitions(self, group: str) -> ConsumedPartitions:
        """The partitions of a consumer group, as `App.partitions` returns them."""
        assert self._worker is not None, "the test has begun"
        return self._worker.partitions(group)

    async def crash(self) -> None:
        """Kill the process as ``kill -9`` does, and start a new one.

        Running handlers never end.  Written records stay.
        """
        assert self._process is not None, "the test has begun"
        self._process.cut()
        self._history.crashed()
        await self._stop()
        await self._start()

    # What a test looks at.

    @property
    def now(self) -> float:
        """Seconds of virtual time since the test began."""
        return self._world.clock.now() - START_SECONDS

    @property
    def outcomes(self) -> Counter[Outcome]:
        """The number of records with each outcome, over all groups."""
        return Counter(outcome for sent in self.records for outcome in sent.outcomes.values())

    @property
    def accepted(self) -> list[SentRecord]:
        """The accepted records, in the order in which they were sent."""
        return self._standing(Outcome.ACCEPTED)

    @property
    def retries(self) -> list[SentRecord]:
        """The records that wait for a retry, in the order in which they were sent."""
        return self._standing(Outcome.RETRYING)

    @property
    def dead_letters(self) -> list[Letter]:
        """The dead letters that the worker wrote, the oldest first."""
        topics = {letters_topic(route) for route in self._app.route_list}
        return [_letter(record) for record in self._world.log.written if record.topic in topics]

    def in_topic(self, name: str) -> list[MemoryRecord]:
        """All records in a topic, also those that the worker wrote."""
        return list(self._world.log.records(name))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The offsets that a consumer group has committed, by partition."""
        offsets = self._world.log.committed
        return {
            number: committed.offset
            for (name, of_topic, number), committed in offsets.items()
            if (name, of_topic) == (group, topic)
        }

    # Its parts.

    def _standing(self, outcome: Outcome) -> list[SentRecord]:
        return [sent for sent in self.records if outcome in sent.outcomes.values()]

    def _topic(self, to: Routed[Any, Any] | str) -> str:
        if isinstance(to, str):
            return to
        topics = to.route.topics
        if len(topics) != 1:
            raise ValueError(f"{to!r} has {len(topics)} topics; send to one of them by its name")
        return topics[0]

    def _append(
        self, topic: str, payload: Any, key: str | bytes | None, headers: Headers
    ) -> MemoryRecord:
        value = payload
        if payload is not None and not isinstance(payload, bytes):
            routes = [entry for entry in self._app.route_list if topic in entry.topics]
            if not routes:
                topics = ", ".join(
                    sorted({entry for route in self._app.route_list for entry in route.topics})
                )
                raise ValueError(
                    f"no handler reads topic {topic!r}, so it has no codec for the payload; "
                    f"expected bytes, or one of the handlers' topics: {topics}"
                )
            value = routes[0].codec.encode(payload, topic)
        name = key.encode() if isinstance(key, str) else key
        return self._world.log.append(topic, value, key=name, headers=headers_of(headers))

    def _busy(self) -> frozenset[Hashable]:
        """Starts, runs and key lookups that may wait for something outside of this event loop."""
        worker = self._worker
        counts = (
            () if worker is None else (("reading", worker.reading), ("starting", worker.starting))
        )
        return self._history.running() | {entry for entry in counts if entry[1]}

    async def _start(self) -> None:
        async with AsyncExitStack() as stack:
            process = MemoryProcess(self._world, self._app.name)
            parts = process.parts()
            self._app.outlet.open_replies = parts.open_replies
            await stack.enter_async_context(
                self._app.opened(parts.outbox, parts.clock, self._store)
            )
            worker = Worker(self._app, parts)
            await worker.start()
            self._failed = asyncio.ensure_future(worker.wait_failed())
            stack.callback(self._failed.cancel)
            stack.push_async_callback(worker.stop, STOP_GRACE_SECONDS)
            self._process, self._worker = process, worker
            self._running = stack.pop_all()
        await self.settle()

    async def _stop(self) -> None:
        stopping = asyncio.ensure_future(self._running.aclose())
        await asyncio.sleep(0)
        while not stopping.done():
            await drained()
            due = self._world.clock.next_due()
            if due is not None and not stopping.done():
                self._world.clock.move_to(due)
        await stopping


def _names(routes: Iterable[Route]) -> dict[str, GroupNames]:
    names: dict[str, GroupNames] = {}
    for route in routes:
        before = names.get(route.group)
        letters = letters_topic(route)
        names[route.group] = GroupNames(
            route.group,
            frozenset(route.topics) | (before.topics if before else frozenset()),
            route.own_topic,
            frozenset([letters] if letters else []) | (before.letters if before else frozenset()),
        )
    return names


class _Read(NamedTuple):
    """A record of the memory log, in the form that `letter_of` accepts."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def _letter(record: MemoryRecord) -> Letter:
    topic, partition, offset, timestamp_ms, key, value, headers = record
    return letter_of(topic, partition, _Read(offset, timestamp_ms, key, value, list(headers)))


# Waits until the application under test is at rest, so the test may advance virtual time.
#
# Handlers and the worker's tasks run on the event loop of the test. They are at rest if no task is
# ready: each one waits for the clock, for a record, or for an event outside of the test. Such an
# event can come from a thread or a socket and cannot be detected. So running handlers get some real
# time (`patience_seconds`). A handler that makes no progress in that time is assumed to wait for
# the clock, and is not waited for again.


TURNS_MAX = 100_000
"""Turns of the event loop after which a program is assumed never to come to rest."""
QUIET_TURNS = 50
"""Idle turns to wait on a loop that does not show ready tasks, such as uvloop.

No chain of tasks is longer than that."""
LOOK_SECONDS = 0.001


class NeverAtRest(Exception):
    """Tasks of the event loop wake each other forever."""


async def drained() -> None:
    """Wait until every task of this event loop waits for something."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    quiet = 0
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)
        quiet = 0 if ready else quiet + 1
        if quiet > (QUIET_TURNS if ready is None else 1):
            return
    raise NeverAtRest(f"after {TURNS_MAX} turns of the event loop some task is still ready")


class Rest:
    """Waits for rest, and remembers handlers that are not waited for again."""

    __slots__ = ("_given_up", "_patience_seconds", "_running")

    def __init__(self, running: Callable[[], frozenset[Hashable]], patience_seconds: float) -> None:
        self._running = running
        self._patience_seconds = patience_seconds
        self._given_up: frozenset[Hashable] = frozenset()

    async def come(self) -> None:
        """Wait until every task waits for the clock, a record, or an event outside of the test."""
        loop = asyncio.get_running_loop()
        await drained()
        running = self._running()
        until = loop.time() + self._patience_seconds
        while running - self._given_up:
            if loop.time() > until:
                self._given_up = running
                return
            await asyncio.sleep(LOOK_SECONDS)
            await drained()
            if (now := self._running()) != running:
                running, until = now, loop.time() + self._patience_seconds
