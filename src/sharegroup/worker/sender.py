"""Senders of handlers: ``await bill.send(Order(...), key="customer-7", delay="10m")``.

A sender encodes the payload with the codec with which its handler decodes it.  It uses the producer
of the application that the handler belongs to.  The producer is available

    in a running app        in its handlers and hooks, and after `App.start`
    in ``app.client()``     for processes that only send, such as a web server
    in ``app.test()``       where nothing leaves the process

In a process of a handler (``processes=...``), senders use the producer of the worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

from sharegroup.dead_letters.story_headers import PREFIX
from sharegroup.durations import Duration, delay_seconds, due_ms_of
from sharegroup.errors import InvalidConfig
from sharegroup.worker.decisions.expiring import expires_header
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.declarations.replies import replies_topic
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.ports import Header, Outbox, WorkerClock, WrittenRecord
from sharegroup.worker.records.record import CURRENT_OUTBOX, WAY
from sharegroup.worker.results.asks import Asks, OpenReplyLog
from sharegroup.worker.results.result import ID_HEADER, checked_id
from sharegroup.worker.retrying.postponer import Postponer
from sharegroup.worker.stores.store import Store
from sharegroup.worker.stores.unique import unique_name, write_once

Sent = TypeVar("Sent", contravariant=True)

Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]
BeforeSend = Callable[[str, list[Header]], None]
"""Called with the topic and the headers of a record before it is sent; may add headers."""

BLOCKING_SECONDS = 60.0
OF_A_PROCESS = "let the handler return the payload, and send it in a middleware"


class NotConnected(RuntimeError):
    """A sender was used where its application has no producer."""


@dataclass(slots=True)
class Outlet:
    """The connection of an application's senders to its producer, as long as there is one."""

    app_name: str = ""
    """Empty if the handler does not belong to an application yet."""
    outbox: Outbox | None = None
    clock: WorkerClock | None = None
    store: Store | None = None
    """The store of the application; None if it has none."""
    loop: asyncio.AbstractEventLoop | None = None
    before_send: tuple[BeforeSend, ...] = ()
    prepare: Callable[[], Awaitable[object]] | None = None
    """Awaited by the first send; None if nothing has to be prepared or that is done."""
    preparing: asyncio.Lock = field(default_factory=asyncio.Lock)
    open_replies: OpenReplyLog | None = None
    """Opens a reader of replies; None before the application is connected."""
    asks: Asks | None = None
    """The asks that wait for replies; made by the first one."""

    def waiting_asks(self) -> Asks:
        """Return the asks of this process; the application is connected."""
        if self.asks is None:
            if self.open_replies is None:
                raise NotConnected(
                    "ask: a process of a handler (processes=...) gets no replies; ask in a handler "
                    "without processes"
                )
            self.asks = Asks(replies_topic(self.app_name), self.open_replies)
        return self.asks

    def disconnected_asks(self) -> Asks | None:
        """Give up the asks that wait, for the caller to close."""
        asks, self.asks = self.asks, None
        return asks

    async def prepared(self) -> None:
        """Call `prepare` once; if it fails, the next send calls it again."""
        async with self.preparing:
            # Looked at under the lock: another send may have prepared while this one waited.
            prepare = self.prepare
            if prepare is not None:
                await prepare()
                # Meanwhile the client may have ended and begun anew, with topics to prepare again.
                if self.prepare is prepare:
                    self.prepare = None


class Sender(Generic[Sent]):
    """Writes records for one handler: ``await handler.send(payload)``."""

    __slots__ = ("_route", "outlet")

    def __init__(self, route: Route) -> None:
        self._route = route
        self.outlet = Outlet()
        """The outlet of the application that the handler belongs to."""

    def belong(self, outlet: Outlet, route: Route) -> None:
        """Send through the outlet of this application, by the route that has its defaults."""
        self.outlet, self._route = outlet, route

    async def __call__(
        self,
        payload: Sent,
        *,
        key: str | bytes | None = None,
        headers: Headers = (),
        delay: Duration = 0,
        at: datetime | None = None,
        topic: str | None = None,
        unique: str | None = None,
        for_: Duration | None = None,
        id: str | None = None,  # noqa: A002  As `Result.id`.
        expires: Duration | datetime | None = None,
    ) -> WrittenRecord:
        """Write a record and return where it was written, once it is durable.

        With ``delay``, or with ``at`` a time with a zone, the record goes to a retry topic of the
        handler's group, so only this group gets it.  ``topic`` is required if the handler has
        several topics.

        With ``unique``, the record is written only if no other was sent by this name to the group's
        topic in the time ``for_``; otherwise the result is a `SentBefore` with the place of that
        one.  Requires a store: ``App(store=...)``.

        With ``id``, the result of the record is looked up by it (`Routed.result`).
        With ``expires`` the handler does not run after this time: a time with a zone, or a duration
        from now or from when the record is due.  Requires ``expires_after`` of the handler.
        """
        outbox, clock = self.connected()
        name_seconds = _name_seconds(unique, for_)
        # Before anything waits: what follows may take long, and the delay counts from the call.
        now_ms = clock.wall_ms()
        due_ms = _due_ms(now_ms, delay, at)
        expires_ms = self._expires_ms(now_ms if due_ms is None else due_ms, expires)
        if self.outlet.prepare is not None:
            await self.outlet.prepared()
        target = self._topic(topic)
        if unique is not None:
            store, name = self._store(), unique_name(self._route.group, target, unique)
        if self._route.codec.may_block:
            value = await asyncio.to_thread(self._route.codec.encode, payload, target)
        else:
            value = self._route.codec.encode(payload, target)
        key_bytes = key.encode() if isinstance(key, str) else key
        if key_bytes is not None and not isinstance(key_bytes, bytes):
            raise TypeError(
                f"{self._route.shape.name}.send: expected a key of text or bytes, got {key!r}"
            )
        pairs = headers_of(headers)
        if id is not None:
            pairs.append((ID_HEADER, checked_id(id).encode("ascii")))
        if expires_ms is not None:
            pairs.append(expires_header(expires_ms))
        for add in self.outlet.before_send:
            add(target, pairs)
        write: Callable[[], Awaitable[WrittenRecord]]
        if due_ms is None:
            write = partial(outbox.send, target, value, key=key_bytes, headers=pairs)
        else:
            later = self._postponer(outbox, clock).send_later
            write = partial(later, target, value, key=key_bytes, headers=pairs, due_ms=due_ms)
        if unique is None:
            return await write()
        return await write_once(store, clock, name, write, keep_seconds=name_seconds)

    def blocking(
        self,
        payload: Sent,
        *,
        key: str | bytes | None = None,
        headers: Headers = (),
        delay: Duration = 0,
        at: datetime | None = None,
        topic: str | None = None,
        unique: str | None = None,
        for_: Duration | None = None,
        id: str | None = None,  # noqa: A002  As `Result.id`.
        expires: Duration | datetime | None = None,
    ) -> WrittenRecord:
        """Send from a thread, such as that of a handler that is a plain function.

        Blocks for up to 60 seconds until the record is durable.
        """
        self.connected()
        way, loop = WAY.get(), self.outlet.loop
        assert loop is not None or way is not None, "a connected sender has a loop"
        running = asyncio._get_running_loop()
        if running is not None and (running is loop or way is not None):
            # The loop would wait for itself.
            name = self._route.shape.name
            raise RuntimeError(
                f"{name}.send.blocking: on the event loop, use `await {name}.send(...)`"
            )
        sending = self(
            payload,
            key=key,
            headers=headers,
            delay=delay,
            at=at,
            topic=topic,
            unique=unique,
            for_=for_,
            id=id,
            expires=expires,
        )
        if loop is None:
            assert way is not None, "as above"
            return way.run(sending, BLOCKING_SECONDS)
        return asyncio.run_coroutine_threadsafe(sending, loop).result(BLOCKING_SECONDS)

    def _postponer(self, outbox: Outbox, clock: WorkerClock) -> Postponer:
        route = self._route
        if route.retry is None:
            raise InvalidConfig(
                f"{route.shape.name}.send: a delayed record waits in a retry topic, and with "
                f"retry=None there are none; Retry(max_attempts=1) has retry topics without retries"
            )
        return Postponer(outbox, clock, route.group, Tiers.of(route.retry_tiers))

    def connected(self) -> tuple[Outbox, WorkerClock]:
        """Return the producer and the clock; raises NotConnected without them."""
        outlet = self.outlet
        if outlet.outbox is not None and outlet.clock is not None:
            return CURRENT_OUTBOX.get() or outlet.outbox, outlet.clock
        if (way := WAY.get()) is not None:
            return way.outbox, way.clock
        whose = f"{self._route.shape.name}.send"
        if not outlet.app_name:
            raise NotConnected(
                f"{whose}: the handler belongs to no App yet; declare it with @app.share_group, or "
                f"pass it to app.routes"
            )
        raise NotConnected(
            f"{whose}: App {outlet.app_name!r} has no producer here; send from a running app, "
            f"or inside `async with app.client():`, or in a test inside `async with app.test():` "
            f"(without asyncio, write to the handler's topic with "
            f"sharegroup.client.sync.Producer)"
        )

    def _store(self) -> Store:
        if WAY.get() is not None:
            raise InvalidConfig(
                f"{self._route.shape.name}.send: unique is not available in a process of a "
                f"handler (processes=...): {OF_A_PROCESS}"
            )
        if self.outlet.store is None:
            raise InvalidConfig(
                f"{self._route.shape.name}.send: unique requires a store, and App "
                f"{self.outlet.app_name!r} has none: App(..., store=SqliteStore('names.db')), or "
                f"PostgresStore or RedisStore"
            )
        return self.outlet.store

    def _expires_ms(self, from_ms: int, expires: Duration | datetime | None) -> int | None:
        if expires is None:
            return None
        if self._route.expiry is None:
            raise InvalidConfig(
                f"{self._route.shape.name}.send: expires={expires!r:.80}, and its handler does not "
                f"look at it; declare expires_after=Expiry(), or a time for all its records"
            )
        if isinstance(expires, datetime):
            return max(due_ms_of(expires, now_ms=from_ms), 0)
        return from_ms + round(delay_seconds(expires) * 1000)

    def _topic(self, topic: str | None) -> str:
        topics = self._route.topics
        if topic is None and len(topics) == 1:
            return topics[0]
        if topic in topics:
            return topic
        raise InvalidConfig(
            f"{self._route.shape.name}.send: topic={topic!r}; expected a topic of its handler: "
            f"{', '.join(topics)}"
        )


def _due_ms(now_ms: int, delay: Duration, at: datetime | None) -> int | None:
    """Return when the record is due; None if it is to be sent to the handler's topic now."""
    wait = delay_seconds(delay)
    if at is None:
        return now_ms + round(wait * 1000) if wait else None
    if wait:
        raise ValueError(
            f"send: delay={delay!r} and at={at.isoformat()}; expected one of them, because both "
            "say when the record is due"
        )
    # A time that has passed, too: who gets the record must not depend on the time of the call.
    return max(due_ms_of(at, now_ms=now_ms), 0)


def _name_seconds(unique: str | None, for_: Duration | None) -> float:
    """Return how long a unique name stays taken; 0 if the record has none."""
    if (unique is None) != (for_ is None):
        raise ValueError(
            f"send: unique={unique!r:.80} and for_={for_!r}; expected both, because a name stays "
            f"taken for a time: unique='invoice-42', for_='1h'"
        )
    if for_ is None:
        return 0.0
    name_seconds = delay_seconds(for_)
    if not name_seconds:
        raise ValueError(f"send: for_={for_!r}; expected more than 0")
    return name_seconds


def headers_of(given: Headers) -> list[Header]:
    """Convert headers, given as a mapping or as pairs, to pairs of a name and bytes.

    Raises ValueError for names with the worker's prefix, and TypeError for other contents.
    """
    pairs = given.items() if isinstance(given, Mapping) else given
    headers: list[Header] = []
    for name, content in pairs:
        if name.startswith(PREFIX):
            raise ValueError(
                f"header {name!r}: names that start with {PREFIX} are reserved for the worker"
            )
        data = content.encode() if isinstance(content, str) else content
        if data is not None and not isinstance(data, bytes):
            raise TypeError(f"header {name!r}: expected text or bytes, got {content!r}")
        headers.append((name, data))
    return headers
