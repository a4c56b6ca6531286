"""One connection to one broker: requests out, answers in, matched by correlation id.

Requests are pipelined: `send` writes at once, in plain code, so the order of calls is the
order on the wire, and the answers come in that order too.  A broker serves the requests of
one connection one after the other; a fetch that is parked there holds up whatever is sent
behind it, which is why the owner keeps connections of their own for different purposes.

Every message is the newest version of its kind; what goes out is brought down to what the
broker serves (ApiVersions, asked on opening) and what comes in is brought up again.

A connection that failed in any way is over: an answer that can't be read, an unknown
correlation id, a timeout (its answer might still come and be taken for another's).  Everything
that waits then gets NetworkException, which means in doubt: sent, and nobody knows.

Opening one is: TCP, TLS where the config says so, ApiVersions, and with SASL the login.  A
broker may limit how long a login lasts (KIP-368); then the client logs in again, on the same
connection, before that time is over.  A new connection would do for most things, but a share
session ends with its connection, and with it every lock.  During the second login other
requests are held back, because the broker takes nothing else then.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from kio.schema.api_versions.v3.request import ApiVersionsRequest

import sharegroup
from sharegroup.client.client_metrics import ConnectionMetrics
from sharegroup.client.config import ClientConfig
from sharegroup.client.sasl import log_in
from sharegroup.errors import (
    NONE,
    KafkaError,
    NetworkException,
    RequestTimedOut,
    TlsHandshakeFailed,
    UnsupportedVersion,
    error_for,
)
from sharegroup.wire.apis import API_VERSIONS, api_of, request_class, response_class, spoken_api
from sharegroup.wire.apis import response_header_version as header_version_of
from sharegroup.wire.convert import downgrade, upgrade
from sharegroup.wire.decoder import DecodeError, decode
from sharegroup.wire.encoder import encode_request
from sharegroup.wire.framing import FrameError, Frames
from sharegroup.wire.headers import decode_response_header

IN_FLIGHT_MAX = 64
"""Requests under way on one connection; further ones wait their turn."""

RESPONSE_BYTES_MIN = 4
OPENING_BYTES_MAX = 512 * 1024
"""Until it is open, a peer may be anybody: its answers must be short."""
WRITE_BUFFER_BYTES = 1024 * 1024

LOGIN_LIFETIME_PART = (0.85, 0.95)
"""When, within a login's lifetime, the next login begins; at random, so that not all clients of
a broker come at once."""
LOGIN_SECONDS_MIN = 1.0
LOGIN_SECONDS_MAX = 86_400.0


class Versions(NamedTuple):
    """The range of versions of one API that a broker serves, both inclusive."""

    oldest: int
    newest: int


class _Waiting(NamedTuple):
    future: asyncio.Future[Any]
    key: int
    version: int
    sent_at: float


class Connection(asyncio.Protocol):
    """See the module's text.  Made by `open_connection`, over at the first failure."""

    def __init__(
        self, address: tuple[str, int], config: ClientConfig, metrics: ConnectionMetrics
    ) -> None:
        self.address = address
        self._config = config
        self._metrics = metrics
        opening_bytes_max = min(OPENING_BYTES_MAX, config.response_bytes_max)
        self._frames = Frames(opening_bytes_max, RESPONSE_BYTES_MIN)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._correlation_id = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self._failure: Exception | None = None
        self._versions: Mapping[int, Versions] = {}
        self._answers = 0
        self._held: list[Iterable[bytes | bytearray | memoryview]] | None = None
        """What waits for a login on this open connection to end; None: there is none."""
        self._login_timer: asyncio.TimerHandle | None = None
        self._login: asyncio.Task[None] | None = None

    @property
    def peer(self) -> str:
        """Host and port, for messages; a broker may name hosts that cannot be."""
        host, port = self.address
        return f"{host if host.isprintable() else repr(host)}:{port}"

    @property
    def is_open(self) -> bool:
        """Whether a request may still be sent."""
        return self._failure is None

    def version_of(self, key: int) -> int:
        """The newest version that both sides speak; UnsupportedVersion when there is none."""
        api = spoken_api(key)
        served = self._versions.get(key)
        if served is None:
            raise UnsupportedVersion(
                f"broker {self.peer} does not serve {api.name} (api key {key}); "
                f"needed is version {api.oldest} to {api.newest}"
            )
        version = min(api.newest, served.newest)
        if version < max(api.oldest, served.oldest):
            raise UnsupportedVersion(
                f"broker {self.peer} serves {api.name} versions {served.oldest} to "
                f"{served.newest}; this client speaks {api.oldest} to {api.newest}"
            )
        return version

    async def request(self, message: Any, *, timeout_ms: int | None = None) -> Any:
        """Send a message (of its newest version) and return the answer (of its newest)."""
        answer = await self.request_as_is(self._lowered(message), timeout_ms=timeout_ms)
        return _as_newest(answer)

    async def request_as_is(self, message: Any, *, timeout_ms: int | None = None) -> Any:
        """Send a message of the version the broker serves; the answer has that version too."""
        limit_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000), self._slots:
                return await self.send(message)
        except TimeoutError:
            name = api_of(message.__api_key__).name
            error = NetworkException(f"broker {self.peer}: no answer to {name} in {limit_ms} ms")
            self.fail(error)
            raise error from None

    def send(self, message: Any, *, during_login: bool = False) -> asyncio.Future[Any]:
        """Write a request now; the future gets the answer, in the request's version."""
        # A login on an open connection takes no slot: those that hold them may wait for it.
        assert len(self._waiting) <= IN_FLIGHT_MAX, f"{self.peer}: too many requests under way"
        correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._write(correlation_id, message, during_login=during_login)
        self._correlation_id = correlation_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = _Waiting(
            future, message.__api_key__, message.__version__, time.monotonic()
        )
        return future

    def send_only(self, message: Any) -> None:
        """Write a request that gets no answer (Produce with acks=0)."""
        self._write(0, message)

    def _write(self, correlation_id: int, message: Any, *, during_login: bool = False) -> None:
        if self._failure is not None or self._transport is None:
            raise NetworkException(f"broker {self.peer}: {self._failure or 'not connected'}")
        chunks = encode_request(correlation_id, self._config.client_id, message)
        size = sum(map(len, chunks))
        self._metrics.request.add()
        self._metrics.request_bytes.observe(size)
        self._metrics.outgoing_bytes.add(size)
        if self._held is not None and not during_login:
            self._held.append(chunks)
        else:
            self._transport.writelines(chunks)

    def _lowered(self, message: Any) -> Any:
        version = self.version_of(message.__api_key__)
        if version == message.__version__:
            return message
        return downgrade(message, request_class(message.__api_key__, version))

    async def drained(self) -> None:
        """Wait while the transport's buffer is full, or a login is going on."""
        await self._writable.wait()

    def fail(self, error: Exception) -> None:
        """End the connection; everything that waits gets NetworkException."""
        if self._failure is not None:
            return
        self._failure = error
        if self._transport is not None:
            self._transport.abort()
            self._metrics.closed.add()
        if self._login_timer is not None:
            self._login_timer.cancel()
        if self._login is not None and self._login is not asyncio.current_task():
            self._login.cancel()
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.future.done():
                one.future.set_exception(NetworkException(f"broker {self.peer}: {error}"))
                # Whoever sent it may have been cancelled; then nobody will ask.
                one.future.exception()
        self._writable.set()

    def close(self) -> None:
        """End it from this side."""
        self.fail(NetworkException("closed by this client"))

    async def negotiate(self) -> None:
        """Ask what the broker serves; the first request of every connection."""
        request = ApiVersionsRequest(
            client_software_name="sharegroup", client_software_version=sharegroup.__version__
        )
        answer = await self.request_as_is(request)
        if answer.error_code == UnsupportedVersion.code:
            answer = await self.request_as_is(request_class(API_VERSIONS, 0)())
        if answer.error_code != NONE:
            raise error_for(answer.error_code, f"broker {self.peer} refused ApiVersions")
        self._versions = {
            one.api_key: Versions(one.min_version, one.max_version) for one in answer.api_keys
        }

    async def log_in(self) -> None:
        """Log in for the first time, and from now on whenever the login's time is nearly over."""
        try:
            lifetime_ms = await log_in(self._ask_during_login, self._config)
        except KafkaError as error:
            self._metrics.authentication_failed.add()
            raise type(error)(f"broker {self.peer}: {error}") from error
        self._metrics.authentication.add()
        self._log_in_later(lifetime_ms)

    def opened(self) -> None:
        """The peer is who it should be: take answers of any length from now on."""
        if self._frames.buffered_bytes:
            count = self._frames.buffered_bytes
            raise NetworkException(f"broker {self.peer}: {count} bytes that nobody asked for")
        self._frames = Frames(self._config.response_bytes_max, RESPONSE_BYTES_MIN)

    def _log_in_later(self, lifetime_ms: int) -> None:
        if lifetime_ms <= 0 or self._failure is not None:
            return
        part = random.uniform(*LOGIN_LIFETIME_PART)  # noqa: S311  Spreads load, hides nothing.
        seconds = lifetime_ms / 1000 * part
        seconds = min(max(seconds, LOGIN_SECONDS_MIN), LOGIN_SECONDS_MAX)
        self._login_timer = asyncio.get_running_loop().call_later(seconds, self._start_login)

    def _start_login(self) -> None:
        # Nobody awaits it: what comes of it is the connection's going on or its end.
        self._login = asyncio.create_task(self._log_in_again(), name=f"login {self.peer}")

    async def _log_in_again(self) -> None:
        self._held = []
        self._writable.clear()  # What needs no answer could otherwise pile up without a limit.
        started_at = time.monotonic()
        try:
            lifetime_ms = await log_in(self._ask_during_login, self._config)
        except KafkaError as error:
            self._metrics.authentication_failed.add()
            self.fail(error)
            return
        self._metrics.reauthentication.add()
        self._metrics.reauthentication_ms.observe((time.monotonic() - started_at) * 1000)
        held, self._held = self._held, None
        if self._failure is None and self._transport is not None:
            for chunks in held or ():
                self._transport.writelines(chunks)
        if not self._paused:
            self._writable.set()
        self._log_in_later(lifetime_ms)

    async def _ask_during_login(self, message: Any) -> Any:
        limit_ms = self._config.request_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return _as_newest(await self.send(self._lowered(message), during_login=True))
        except TimeoutError:
            name = api_of(message.__api_key__).name
            raise NetworkException(
                f"broker {self.peer}: {name}: no answer in {limit_ms} ms"
            ) from None

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's, not the class.
        transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._transport = transport
        self._metrics.created.add()

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(error or NetworkException("the broker closed the connection" + self.hint()))

    def hint(self) -> str:
        """What may be wrong when a broker hangs up before it has answered anything of use."""
        protocol = self._config.security_protocol
        if self._config.uses_sasl or self._answers > 1:
            return ""
        return f"; with security_protocol={protocol} is that what this listener speaks?"

    def pause_writing(self) -> None:
        self._paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        self._paused = False
        if self._held is None:
            self._writable.set()

    def data_received(self, chunk: bytes) -> None:
        self._metrics.incoming_bytes.add(len(chunk))
        self._frames.feed(chunk)
        try:
            while (frame := self._frames.next()) is not None:
                self._answered(frame)
        except FrameError as error:
            tls = not self._answers and chunk.startswith(_TLS_ALERT)
            hint = " (this is TLS: try security_protocol=SSL)" if tls else ""
            self.fail(DecodeError(f"{error}{hint}"))
        except DecodeError as error:
            self.fail(error)

    def _answered(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise DecodeError(f"an answer to request {correlation_id}, which was never sent")
        try:
            answer = self._decoded(frame, waiting)
        except DecodeError:
            self._waiting[correlation_id] = waiting  # It gets its error with the others.
            raise
        self._answers += 1
        self._metrics.response.add()
        self._metrics.request_latency_ms.observe((time.monotonic() - waiting.sent_at) * 1000)
        if not waiting.future.done():
            waiting.future.set_result(answer)

    def _decoded(self, frame: memoryview, waiting: _Waiting) -> Any:
        _, position = decode_response_header(frame, header_version_of(waiting.key, waiting.version))
        version = waiting.version
        if waiting.key == API_VERSIONS and frame[position : position + 2] == _VERSION_REFUSED:
            version = 0  # KIP-511: the refusal always has the oldest form.
        # Records stay where they were received: the view of them keeps their frame.
        message = response_class(waiting.key, version)
        answer, end = decode(message, frame, position, records=memoryview)
        if end != len(frame):
            name = api_of(waiting.key).name
            raise DecodeError(f"{name} response: {len(frame) - end} bytes follow its end")
        return answer


_VERSION_REFUSED = UnsupportedVersion.code.to_bytes(2, "big")
_TLS_ALERT = b"\x15\x03"


def _as_newest(answer: Any) -> Any:
    """The same answer as the newest version of its kind."""
    key = answer.__api_key__
    newest = response_class(key, spoken_api(key).newest)
    return answer if type(answer) is newest else upgrade(answer, newest)


async def open_connection(
    address: tuple[str, int],
    config: ClientConfig,
    *,
    metrics: ConnectionMetrics,
    tls: ssl.SSLContext | None = None,
) -> Connection:
    """Connect, negotiate and log in, within ``connect_timeout_ms``.

    NetworkException when the broker can't be reached; SaslAuthenticationFailed or
    TlsHandshakeFailed when it can and trying again would change nothing.
    """
    loop = asyncio.get_running_loop()
    host, port = address
    connection = Connection(address, config, metrics)
    try:
        async with asyncio.timeout(config.connect_timeout_ms / 1000):
            await loop.create_connection(
                lambda: connection, host, port, ssl=tls, server_hostname=host if tls else None
            )
            await connection.negotiate()
            if config.uses_sasl:
                await connection.log_in()
            connection.opened()
    except TimeoutError:
        connection.close()
        raise RequestTimedOut(
            f"broker {connection.peer}: no connection in {config.connect_timeout_ms} ms"
        ) from None
    except (OSError, OverflowError, ValueError) as error:
        # Beside what networks do: metadata may name ports and hosts that cannot be.
        connection.close()
        # A connection that ends in the middle of a handshake may well work the next time.
        fatal = isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)
        kind = TlsHandshakeFailed if fatal else NetworkException
        # A handshake that ends in the middle has no text of its own.
        why = str(error) or f"{type(error).__name__}{connection.hint()}"
        raise kind(f"broker {connection.peer}: {why}") from error
    except BaseException:
        connection.close()
        raise
    return connection
