"""Every request and answer, in the order in which the broker received and wrote them.

The tap sits at the broker's end of each connection, so it knows what clients do not: that a
request whose answer was lost did arrive, and what its answer was.  What the broker has written
it has promised, whether anybody received it or not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from sharegroup.wire.codec.apis import APIS, request_class, response_class, response_header_version
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.framing import Frames
from sharegroup.wire.codec.headers import decode_request_header, decode_response_header
from tests.sim.network import Connection

FRAME_BYTES_MAX = 100_000_000
PRODUCE = 0


@dataclass(slots=True, eq=False)
class Exchange:
    """A request as it arrived, and its answer as it was written."""

    connection: Connection
    life: int
    """Which start of the broker had it."""
    api_key: int
    version: int
    correlation_id: int
    request: Any
    arrived_us: int
    order: int
    """Of arrival, among all requests."""
    answer: Any = None
    answered_us: int | None = None

    @property
    def name(self) -> str:
        return APIS[self.api_key].name


Saw = Callable[[int, str, memoryview, object], None]
"""Told of every frame: connection, direction, bytes, and what they mean."""


class Listener(Protocol):
    """Who is told (the checker)."""

    def asked(self, exchange: Exchange) -> None: ...

    def answered(self, exchange: Exchange) -> None: ...

    def disconnected(self, connection: Connection, unanswered: list[Exchange]) -> None: ...


@dataclass(slots=True)
class _Line:
    """One connection: bytes of both directions, and the requests that wait for answers."""

    requests: Frames = field(default_factory=lambda: Frames(FRAME_BYTES_MAX))
    answers: Frames = field(default_factory=lambda: Frames(FRAME_BYTES_MAX))
    waiting: deque[Exchange] = field(default_factory=deque)


class Wiretap:
    """See the module's text.  Implements `tests.sim.network.Tap`."""

    def __init__(self, now_us: Callable[[], int], saw: Saw) -> None:
        self.listener: Listener
        self.life = 0
        self.requests = 0
        self._now_us = now_us
        self._saw = saw
        self._lines: dict[Connection, _Line] = {}

    def opened(self, connection: Connection) -> None:
        self._lines[connection] = _Line()

    def arrived(self, connection: Connection, data: bytes) -> None:
        line = self._lines[connection]
        line.requests.feed(data)
        while (frame := line.requests.next()) is not None:
            exchange = self._request(connection, frame)
            if not (exchange.api_key == PRODUCE and exchange.request.acks == 0):
                line.waiting.append(exchange)
            self._saw(connection.number, ">", frame, exchange.request)
            self.listener.asked(exchange)

    def written(self, connection: Connection, data: bytes) -> None:
        line = self._lines[connection]
        line.answers.feed(data)
        while (frame := line.answers.next()) is not None:
            exchange = line.waiting.popleft()
            self._answer(exchange, frame)
            self._saw(connection.number, "<", frame, exchange.answer)
            self.listener.answered(exchange)

    def closed(self, connection: Connection) -> None:
        line = self._lines.pop(connection)
        self._saw(connection.number, "closed", memoryview(b""), len(line.waiting))
        self.listener.disconnected(connection, list(line.waiting))

    def _request(self, connection: Connection, frame: memoryview) -> Exchange:
        header = decode_request_header(frame)
        message = request_class(header.api_key, header.api_version)
        request, _ = decode(message, frame, header.body_position)
        self.requests += 1
        return Exchange(
            connection,
            self.life,
            header.api_key,
            header.api_version,
            header.correlation_id,
            request,
            arrived_us=self._now_us(),
            order=self.requests,
        )

    def _answer(self, exchange: Exchange, frame: memoryview) -> None:
        key, version = exchange.api_key, exchange.version
        came, position = decode_response_header(frame, response_header_version(key, version))
        assert came == exchange.correlation_id, f"answer {came} to request {exchange}"
        exchange.answer, _ = decode(response_class(key, version), frame, position)
        exchange.answered_us = self._now_us()
