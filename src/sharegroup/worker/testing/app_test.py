"""`App.test`: an application's handlers in the test's own process, without a broker or waiting.

    async with app.test() as t:
        order = await t.send(bill, Order(7, total=-1))
        await t.settle()                       # until nothing can happen unless time passes
        assert order.outcome == "dead_lettered"

        flaky = await t.send("orders", b'{"id": 8, "total": 5}')
        await t.advance("1h")                  # let everything happen that is due in that hour
        assert flaky.times == (0.0, 1.0, 4.0)

The worker is the real one: routing, decoding, middleware, retries, tiers, dead letters.  What
is not real is the world around it: topics are lists, time moves when `advance` is called, and the
share groups are run by the broker's own core (`transport.memory_group`).  So what a test shows of
outcomes, orders and times holds in production; what it can't show is how a network behaves.
For that there is a real broker in a fixture: `sharegroup.testing`.

A handler that awaits something other than the worker's clock, a socket or ``asyncio.sleep``, is
given real time for it, up to ``patience_seconds`` without any progress; then it counts as one
that hangs, until time is moved far enough to end it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sharegroup.core.delivery import Limits
from sharegroup.errors import KafkaError, NetworkException
from sharegroup.worker.dead_letters.letter import Letter, letter_of
from sharegroup.worker.dead_letters.topics import letters_topic
from sharegroup.worker.declared.route import Route
from sharegroup.worker.durations import Duration, seconds
from sharegroup.worker.ports import Header, Written
from sharegroup.worker.records.story_headers import own_headers
from sharegroup.worker.retrying.topics import topics_of
from sharegroup.worker.routed import Routed
from sharegroup.worker.sender import Headers, headers_of
from sharegroup.worker.testing.history import GroupNames, History, Outcome, lineage_of
from sharegroup.worker.testing.rest import Rest, drained
from sharegroup.worker.testing.sent_record import SentRecord
from sharegroup.worker.transport.memory import MemoryProcess, MemoryWorld
from sharegroup.worker.transport.memory_clock import START_SECONDS
from sharegroup.worker.transport.memory_log import MemoryRecord

if TYPE_CHECKING:
    from sharegroup.worker.application import Application
    from sharegroup.worker.running.worker import Worker

PATIENCE_SECONDS = 1.0
STOP_GRACE_SECONDS = 0.0
"""A test is over when its last line is: what runs then is cut off and given back."""


class WorkerFailed(Exception):
    """A part of the worker ended that must never end; its cause says why."""


class AppTest:
    """See the module's text."""

    def __init__(
        self,
        app: Application,
        *,
        lock: Duration = "30s",
        delivery_limit: int = 10,
        renewal: bool = True,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._app = app
        self._world = MemoryWorld(
            Limits(
                lock_ms=round(seconds(lock) * 1000),
                delivery_count_max=delivery_limit,
                renewal=renewal,
            )
        )
        self._history = History(
            app.events, self._world.log, self._world.groups, _names(app.route_list)
        )
        self._worker: Worker | None = None
        self._rest = Rest(self._busy, patience_seconds)
        self._process: MemoryProcess | None = None
        self._running = AsyncExitStack()
        self._failed: asyncio.Future[BaseException] | None = None
        self._routes: dict[Routed[Any, Any], Route] = {}
        self.records: list[SentRecord] = []
        """Everything that was sent with `send`."""

    async def __aenter__(self) -> Self:
        self._routes = {one: one.route for one in self._app.handlers}
        for one, route in self._routes.items():
            if route.processes:
                # Its handler runs in a thread of this process: a test looks at what it did.
                one.route = replace(route, processes=0)
        self._history.listen()
        for route in self._app.route_list:
            self._world.group(route.group)
            for topic in topics_of(route):
                self._world.log.create(topic.name, log_append_time=True)
        await self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._stop()
        finally:
            self._history.listen_no_more()
            for one, route in self._routes.items():
                one.route = route

    # What a test does.

    async def send(
        self,
        to: Routed[Any, Any] | str,
        payload: Any,
        *,
        key: str | bytes | None = None,
        headers: Headers = (),
        delay: Duration = 0,
    ) -> SentRecord:
        """Send to a handler, through its sender, or to a topic, by whose handler it is encoded.

        Bytes are sent as they are, whatever the handler takes: also such as it can't read.
        """
        if isinstance(to, str) or isinstance(payload, bytes) or payload is None:
            if delay:
                raise ValueError("delay needs a handler and a payload that it takes, not bytes")
            written: Written = self._append(self._topic(to), payload, key, headers)
        else:
            written = await to.send(payload, key=key, headers=headers, delay=delay)
        lying = self._world.log.partitions(written.topic)[written.partition][written.offset]
        sent = SentRecord(lineage_of(lying), own_headers(lying.headers), self._history)
        self.records.append(sent)
        return sent

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        await self._rest.come()
        if self._failed is not None and self._failed.done():
            raise WorkerFailed("the worker itself failed, not a handler") from self._failed.result()

    async def advance(self, duration: Duration) -> None:
        """Let so much time pass, and everything happen that is due in it, each at its moment."""
        clock = self._world.clock
        until = clock.now() + seconds(duration)
        await self.settle()
        while (due := clock.next_due()) is not None and due <= until:
            clock.move_to(due)
            await self.settle()
        clock.move_to(until)
        await self.settle()

    def fail_writes(self, topic: str, error: KafkaError | None = None) -> None:
        """Let each write to this topic fail, until `mend_writes`."""
        broken = NetworkException(f"topic {topic!r} can't be written: the test says so")
        self._world.log.fail(topic, error or broken)

    def mend_writes(self, topic: str) -> None:
        """Let writes to this topic succeed again."""
        self._world.log.mend(topic)

    def lose_lock(self, record: SentRecord) -> None:
        """Let the lock of this record, which the worker holds, be lost: others get it."""
        (group,) = self._history.groups_of(record.topic)
        assert self._process is not None, "the test has begun"
        self._process.lose(self._history.place(group, record.lineage))

    async def crash(self) -> None:
        """``kill -9``, and a new process: what ran never ended, what was written stays."""
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
        """How many records stand how, over all groups."""
        return Counter(one for sent in self.records for one in sent.outcomes.values())

    @property
    def accepted(self) -> list[SentRecord]:
        """The records whose handler returned, in the order in which they were sent."""
        return self._standing("accepted")

    @property
    def retries(self) -> list[SentRecord]:
        """The records that wait for another run."""
        return self._standing("retrying")

    @property
    def dead_letters(self) -> list[Letter]:
        """What was written to the dead letters, the oldest first."""
        topics = {letters_topic(route) for route in self._app.route_list}
        return [_letter(one) for one in self._world.log.written if one.topic in topics]

    def in_topic(self, name: str) -> list[MemoryRecord]:
        """The records that lie in a topic, whoever wrote them."""
        return list(self._world.log.records(name))

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
            routes = [one for one in self._app.route_list if topic in one.topics]
            if not routes:
                topics = ", ".join(sorted({one for r in self._app.route_list for one in r.topics}))
                raise ValueError(
                    f"no handler reads topic {topic!r}, so nothing says how to write the payload; "
                    f"expected bytes, or one of the handlers' topics: {topics}"
                )
            value = routes[0].codec.encode(payload, topic)
        name = key.encode() if isinstance(key, str) else key
        return self._world.log.append(topic, value, key=name, headers=headers_of(headers))

    def _busy(self) -> frozenset[Hashable]:
        """What may be at something outside of this loop."""
        reading = 0 if self._worker is None else self._worker.reading
        return self._history.running() | ({reading} if reading else frozenset())

    async def _start(self) -> None:
        from sharegroup.worker.running.worker import Worker  # What tests only look at needs none.

        async with AsyncExitStack() as stack:
            process = MemoryProcess(self._world)
            parts = process.parts()
            await stack.enter_async_context(self._app.opened(parts.outbox, parts.clock))
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
    found: dict[str, GroupNames] = {}
    for route in routes:
        before = found.get(route.group)
        letters = letters_topic(route)
        found[route.group] = GroupNames(
            route.group,
            frozenset(route.topics) | (before.topics if before else frozenset()),
            route.own_topic,
            frozenset([letters] if letters else []) | (before.letters if before else frozenset()),
        )
    return found


class _Read(NamedTuple):
    """A record as `letter_of` takes it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def _letter(record: MemoryRecord) -> Letter:
    topic, partition, offset, timestamp_ms, key, value, headers = record
    return letter_of(topic, partition, _Read(offset, timestamp_ms, key, value, list(headers)))
