"""Asks a handler: sends it a payload, and waits for what it returns.

    total = await bill.ask(order, timeout="10s")

The request is a record like every other: it waits for a worker, is retried, and may become a dead
letter.  The reply comes when its outcome is final.  See docs/worker-results.md.
"""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from sharegroup.durations import Duration, seconds
from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.replies import replies_topic
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.ports import WrittenRecord
from sharegroup.worker.records.record import CURRENT_OUTBOX
from sharegroup.worker.results.asks import AskFailed, AskTimeout
from sharegroup.worker.results.reply import ReplyAddress
from sharegroup.worker.results.result import Result, ResultState, id_from, parsed, result_name
from sharegroup.worker.results.time_limit import TimeIsOver, within
from sharegroup.worker.sender import Headers, Sender, headers_of


class AskParts(TypedDict, total=False):
    """The parts of a request besides its payload; as for `Sender`."""

    key: str | bytes | None
    headers: Headers
    topic: str | None


async def ask(
    route: Route,
    sender: Sender[Any],
    payload: Any,
    *,
    timeout: Duration,  # noqa: ASYNC109  By the clock of the application, which a test moves.
    **parts: Unpack[AskParts],
) -> Any:
    """Send a request and return what the handler returned."""
    whose = f"{route.shape.name}.ask"
    if not route.replies:
        raise InvalidConfig(
            f"{whose}: the handler does not reply; declare it with replies=True, on all workers"
        )
    timeout_seconds = seconds(timeout)
    if timeout_seconds <= 0:
        raise ValueError(f"{whose}: timeout={timeout!r}; expected more than 0")
    _, clock = sender.connected()
    if CURRENT_OUTBOX.get() is not None:
        raise InvalidConfig(
            f"{whose}: a handler with exactly_once sends when it has returned, so it would wait "
            f"for a reply to a request that is not sent; let another handler ask"
        )
    asking = _Ask(route, sender, payload, parts)
    try:
        return await within(timeout_seconds, clock, asking.answered())
    except TimeIsOver:
        text = f"{whose}: no reply within {timeout_seconds:g} s; {asking.to_look_at()}"
        raise AskTimeout(text) from None


class _Ask:
    """One request and its reply."""

    __slots__ = ("_parts", "_payload", "_route", "_sender", "_written")

    def __init__(self, route: Route, sender: Sender[Any], payload: Any, parts: AskParts) -> None:
        self._route = route
        self._sender = sender
        self._payload = payload
        self._parts = parts
        self._written: WrittenRecord | None = None
        """The request; None before it is durable."""

    async def answered(self) -> Any:
        """Send the request, wait for the reply, and return its value or raise its error."""
        outlet = self._sender.outlet
        if outlet.prepare is not None:
            await outlet.prepared()  # Before the topic for replies is read.
            self._sender.connected()  # The application may have stopped meanwhile.
        asks = outlet.waiting_asks()
        address, waiting = await asks.begin()
        try:
            await self._send(address)
            reply = await waiting
        finally:
            asks.end(address)
        if reply.state is ResultState.FAILED:
            raise AskFailed(self._route.shape.name, reply)
        codec = self._route.return_codec
        assert codec is not None, "a handler that replies has one"
        return None if reply.value is None else codec.decode(reply.value)

    async def _send(self, address: ReplyAddress) -> None:
        parts = self._parts
        headers = (*headers_of(parts.get("headers", ())), address.header(self._route.group))
        key, topic = parts.get("key"), parts.get("topic")
        self._written = await self._sender(self._payload, key=key, headers=headers, topic=topic)

    def to_look_at(self) -> str:
        """Return what to look at after a time-out."""
        group, request = self._route.group, self._written
        replies = replies_topic(self._sender.outlet.app_name)
        if request is None:
            return (
                "the request was not written in this time: look whether the broker can be reached, "
                "and whether this user may read the topic for replies"
            )
        return (
            f"the request is the record at offset {request.offset} of {request.topic}-"
            f"{request.partition}: look whether workers of group {group!r} run and keep up "
            f"(sharegroup groups describe {group}), whether it waits for a retry (sharegroup "
            f"retries list {group}), whether it is a dead letter, and whether topic "
            f"{replies!r} is as it should be (sharegroup worker plan)"
        )


async def result_of(
    route: Route, sender: Sender[Any], given: str | WrittenRecord
) -> Result[Any] | None:
    """Return the result of a record; None if there is none, or no longer."""
    whose = f"{route.shape.name}.result"
    if not route.result_seconds:
        raise InvalidConfig(
            f"{whose}: its results are not kept; declare the handler with result_for='1h'"
        )
    sender.connected()  # Its error says where an application has a store.
    store, codec = sender.outlet.store, route.return_codec
    assert store is not None, "checked when the handler was declared"
    assert codec is not None, "the route has it for the option"
    data = await store.get(result_name(route.group, id_from(given, route.topics)))
    return None if data is None else parsed(data, codec.decode)
