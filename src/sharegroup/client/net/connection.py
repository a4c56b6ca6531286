"""A connection to one broker, which sends requests and matches answers by correlation id.

Requests are pipelined: `send` writes at once, without awaiting, so the order of calls is the
order on the wire, and answers come in that order too.  A broker serves the requests of one
connection one after the other.  A parked fetch delays all requests sent after it, so `Cluster`
keeps separate connections for different purposes.

Callers use the newest version of each message.  Requests are downgraded to the version that the
broker serves (ApiVersions, sent when the connection opens), and responses are upgraded.

After any failure the connection is closed: an undecodable answer, an unknown correlation id, or a
timeout (a late answer could be taken for another's).  All pending requests then fail with
NetworkException, which means in doubt: sent without an answer.

A connection opens with TCP, TLS if configured, ApiVersions and, with SASL, the login.  A broker
may limit the lifetime of a login (KIP-368).  Then the client logs in again on the same connection
before that time is over.  A new connection is no alternative, because a share session ends with
its connection, and with it every acquisition lock.  During the second login other requests are
held back, because the broker accepts no other requests then.

If the broker answers with a throttle time, later requests wait until it is over (`throttle`).
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from kio.schema.api_versions.v3.request import ApiVersionsRequest

import sharegroup
from sharegroup.client.metrics.client_metrics import ConnectionMetrics, RequestMetrics
from sharegroup.client.net.sasl import log_in
from sharegroup.client.net.throttle import Throttle
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import (
    NONE,
    KafkaError,
    NetworkException,
    NoAnswer,
    RequestTimedOut,
    TlsHandshakeFailed,
    UnsupportedVersion,
    error_for,
)
from sharegroup.protocol_enums import DELAY_FEATURE
from sharegroup.wire.codec.apis import (
    API_VERSIONS,
    api_of,
    request_class,
    response_class,
    response_header_version as header_version_of,
    spoken_api,
)
from sharegroup.wire.codec.convert import downgrade, upgrade
from sharegroup.wire.codec.decoder import DecodeError, decode
from sharegroup.wire.codec.encoder import encode_request
from sharegroup.wire.codec.framing import FrameError, Frames
from sharegroup.wire.codec.headers import decode_response_header

IN_FLIGHT_MAX = 64
"""Maximum number of requests under way on one connection; further ones wait."""

# The correlation id alone.
RESPONSE_BYTES_MIN = 4
OPENING_BYTES_MAX = 512 * 1024
"""Maximum size of an answer while the connection opens, when the peer is not known yet."""
WRITE_BUFFER_BYTES = 1024 * 1024

CLOSED_HERE = "closed by this client"

LOGIN_LIFETIME_PART = (0.85, 0.95)
"""The part of a login's lifetime after which the next login begins, at random in this range.

Chance keeps the clients of a broker from logging in all at once.
"""
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
    has_slot: bool


class Connection(asyncio.Protocol):
    """A connection to one broker, made by `open_connection` and closed at the first failure."""

    def __init__(
        self,
        address: tuple[str, int],
        config: ClientConfig,
        metrics: ConnectionMetrics,
        *,
        node_metrics: RequestMetrics | None = None,
        login_seconds_min: float = LOGIN_SECONDS_MIN,
    ) -> None:
        self.address = address
        self._config = config
        self._login_seconds_min = login_seconds_min
        self._metrics = metrics
        self._meters = (
            (metrics.requests,) if node_metrics is None else (metrics.requests, node_metrics)
        )
        opening_bytes_max = min(OPENING_BYTES_MAX, config.response_bytes_max)
        self._frames = Frames(opening_bytes_max, RESPONSE_BYTES_MIN)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._throttle = Throttle(self.peer)
        self._correlation_id = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self._lost = asyncio.Event()
        self._is_finishing = False
        self._failure: Exception | None = None
        self._versions: Mapping[int, Versions] = {}
        self.finalized_features: Mapping[str, int] = {}
        """The feature levels in effect when the connection opened (KIP-584)."""
        self.reads_delays = False
        """Whether the broker reads the delay of a released record (ADR 0061)."""
        self._answers = 0
        self._held: list[Iterable[bytes | bytearray | memoryview]] | None = None
        """Requests held back during a login on this open connection; None if there is none."""
        self._used_at = time.monotonic()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._login_timer: asyncio.TimerHandle | None = None
        self._login: asyncio.Task[None] | None = None

    @property
    def peer(self) -> str:
        """Host and port for messages; unprintable host names are quoted."""
        host, port = self.address
        return f"{host if host.isprintable() else repr(host)}:{port}"

    @property
    def is_open(self) -> bool:
        """Whether a request may still be sent."""
        return self._failure is None

    def version_of(self, key: int) -> int:
        """Return the newest version of an API that both sides support.

        Raises UnsupportedVersion if there is none.
        """
        api = spoken_api(key)
        served = self._versions.get(key)
        if served is None:
            raise UnsupportedVersion(
                f"broker {self.peer} does not support {api.name} (api key {key}); version "
                f"{api.oldest} to {api.newest} is needed"
            )
        version = min(api.newest, served.newest)
        if version < max(api.oldest, served.oldest):
            raise UnsupportedVersion(
                f"broker {self.peer} supports {api.name} versions {served.oldest} to "
                f"{served.newest}; this client supports {api.oldest} to {api.newest}"
            )
        return version

    def check_version(self, key: int, version_min: int) -> None:
        """Raise UnsupportedVersion unless the broker serves this version of an API."""
        if (version := self.version_of(key)) < version_min:
            raise UnsupportedVersion(
                f"broker {self.peer} supports {spoken_api(key).name} only up to version {version}; "
                f"version {version_min} is needed"
            )

    async def request(
        self, message: Any, *, timeout_ms: int | None = None, version_max: int | None = None
    ) -> Any:
        """Send a message and return the answer, both in the newest version of their kind.

        With ``version_max`` no newer version is used on the wire.
        """
        lowered = self._lowered(message, version_max)
        return _as_newest(await self.request_as_is(lowered, timeout_ms=timeout_ms))

    async def request_as_is(self, message: Any, *, timeout_ms: int | None = None) -> Any:
        """Send a message in a version that the broker serves; the answer has the same version.

        While the broker throttles this client, the message is sent later.
        """
        limit_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        # Outside the timeout below: a broker that throttles reads nothing meanwhile (KIP-219), so
        # its silence must not close the connection.
        await self._throttle.over(limit_ms / 1000)
        answer: asyncio.Future[Any] | None = None
        try:
            async with asyncio.timeout(limit_ms / 1000) as limit:
                await self._slots.acquire()
                answer = self._sent_in_slot(message)
                return await answer
        except TimeoutError:
            error = self._no_answer(message, limit_ms)
            self.fail(error)
            raise error from None
        except asyncio.CancelledError:
            # The timeout ends with its caller, but the request is on the wire: without a limit, a
            # broker that never answers it would keep its slot.
            if answer is not None and (due := limit.when()) is not None:
                unanswered = self._no_answer(message, limit_ms)
                asyncio.get_running_loop().call_at(due, self._expect, answer, unanswered)
            raise

    def _no_answer(self, message: Any, limit_ms: int) -> NoAnswer:
        name = api_of(message.__api_key__).name
        return NoAnswer(f"broker {self.peer}: no response to {name} within {limit_ms} ms")

    def _sent_in_slot(self, message: Any) -> asyncio.Future[Any]:
        try:
            return self.send(message)
        except BaseException:
            self._slots.release()
            raise

    def _expect(self, answer: asyncio.Future[Any], unanswered: NoAnswer) -> None:
        """Close the connection if a request whose caller was cancelled still has no answer.

        Until then it keeps its slot, because the broker has it.
        """
        if any(waiting.future is answer for waiting in self._waiting.values()):
            self.fail(unanswered)

    def send(self, message: Any, *, during_login: bool = False) -> asyncio.Future[Any]:
        """Write a request now; the future gets the answer in the request's version."""
        # A login on an open connection takes no slot, because requests with slots may wait for
        # the login.
        assert len(self._waiting) <= IN_FLIGHT_MAX, f"{self.peer}: too many requests in flight"
        # `_answered` reads the id as a signed int32, so it starts again before it becomes negative.
        correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._write(correlation_id, message, during_login=during_login)
        self._correlation_id = correlation_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = _Waiting(
            future,
            message.__api_key__,
            message.__version__,
            time.monotonic(),
            has_slot=not during_login,
        )
        return future

    def send_only(self, message: Any) -> None:
        """Write a request that gets no answer (Produce with acks=0)."""
        # Nothing will look this id up, because no answer comes.
        self._write(0, message)

    def _write(self, correlation_id: int, message: Any, *, during_login: bool = False) -> None:
        if self._failure is not None or self._transport is None:
            raise self._refusal(self._failure or NetworkException("not connected"))
        if self._is_finishing:  # Written after the end, it would break the connection.
            raise self._refusal(NetworkException(CLOSED_HERE))
        self._used_at = time.monotonic()
        # Encoded now even if it is held until the login ends: what cannot be encoded fails in its
        # own sender.
        chunks = encode_request(correlation_id, self._config.client_id, message)
        size = sum(map(len, chunks))
        for meter in self._meters:
            meter.sent(size)
        if self._held is not None and not during_login:
            self._held.append(chunks)
            return
        try:
            self._transport.writelines(chunks)
        except RuntimeError as error:
            # uvloop raises it while a connection that the peer has closed is not reported lost yet.
            self.fail(error)
            raise self._refusal(error) from error

    def _lowered(self, message: Any, version_max: int | None = None) -> Any:
        version = self.version_of(message.__api_key__)
        if version_max is not None:
            version = min(version, version_max)
        if version == message.__version__:
            return message
        return downgrade(message, request_class(message.__api_key__, version))

    async def drained(self) -> None:
        """Wait while the buffer is full, a login is under way, or the broker throttles us.

        Closes the connection and raises NoAnswer if that takes longer than a request may take: a
        broker that reads nothing answers nothing, and nobody waits for answers with acks=0.
        """
        limit_ms = self._config.request_timeout_ms
        await self._throttle.over(limit_ms / 1000)
        if self._writable.is_set():
            return
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._writable.wait()
        except TimeoutError:
            error = NoAnswer(f"broker {self.peer}: it did not read the requests for {limit_ms} ms")
            self.fail(error)
            raise error from None

    def fail(self, error: Exception) -> None:
        """Close the connection; pending requests fail with the error that `_refusal` makes."""
        if self._failure is not None:
            return
        self._failure = error
        self._throttle.end()  # Requests that wait fail when they are sent.
        if self._transport is not None:
            # Not `close`, which would wait until a peer that reads nothing has taken the write
            # buffer.
            self._transport.abort()
            self._metrics.closed.add()
        for timer in (self._login_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        # A login that was refused calls this itself; its task ends by itself, and must not cancel
        # itself.
        if self._login is not None and self._login is not asyncio.current_task():
            self._login.cancel()
        pending, self._waiting = self._waiting, {}
        for request in pending.values():
            if request.has_slot:
                self._slots.release()
            if not request.future.done():
                request.future.set_exception(self._refusal(error))
                # Mark the exception as retrieved, because the sender may have been cancelled.
                request.future.exception()
        # A caller that waits until the buffer has room would wait for ever; its next write raises
        # the failure.
        self._writable.set()

    def _refusal(self, failure: Exception) -> KafkaError:
        """Return the error of requests that get no answer because of this failure.

        In TLS 1.3 a client finishes the handshake before the broker checks its certificate.  So
        a refused certificate shows in place of the first answer.
        """
        if not self._answers and _is_refused_handshake(failure):
            return TlsHandshakeFailed(f"broker {self.peer}: {failure}{_certificate_hint(failure)}")
        return NetworkException(f"broker {self.peer}: {failure}")

    async def finish(self) -> None:
        """Send what waits to be sent, and return when the broker has closed its side, too.

        The broker then has what it does not answer (Produce with acks=0).
        """
        await self._writable.wait()  # Behind a login, which holds requests back.
        if self._failure is not None or self._transport is None:
            return
        self._is_finishing = True
        try:
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._transport.close()  # TLS says by itself that nothing more comes.
        except RuntimeError as error:
            self.fail(error)  # As in `_write`: the peer has closed it, and uvloop knows it first.
            return
        await self._lost.wait()

    def close(self) -> None:
        """Close the connection from this side."""
        self.fail(NetworkException(CLOSED_HERE))

    async def negotiate(self) -> None:
        """Ask for the versions that the broker serves; the first request of every connection."""
        request = ApiVersionsRequest(
            client_software_name="sharegroup", client_software_version=sharegroup.__version__
        )
        answer = await self.request_as_is(request)
        # KIP-511: a broker that does not know this version of ApiVersions answers in version 0,
        # which every broker serves.
        if answer.error_code == UnsupportedVersion.code:
            answer = await self.request_as_is(request_class(API_VERSIONS, 0)())
        if answer.error_code != NONE:
            raise error_for(answer.error_code, f"broker {self.peer} refused ApiVersions")
        self._versions = {
            api.api_key: Versions(api.min_version, api.max_version) for api in answer.api_keys
        }
        # Versions before 3 have no features.
        self.reads_delays = any(
            feature.name == DELAY_FEATURE for feature in getattr(answer, "supported_features", ())
        )
        self.finalized_features = {
            feature.name: int(feature.max_version_level)
            for feature in getattr(answer, "finalized_features", ())
        }

    async def log_in(self) -> None:
        """Log in, and schedule further logins before the lifetime of each is over."""
        try:
            lifetime_ms = await log_in(self._ask_during_login, self._config)
        except KafkaError as error:
            self._metrics.authentication_failed.add()
            # The class stays, because callers decide by it whether another attempt can help.
            raise type(error)(f"broker {self.peer}: {error}") from error
        self._metrics.authentication.add()
        self._log_in_later(lifetime_ms)

    def opened(self) -> None:
        """Accept answers up to ``response_bytes_max``, because the peer is verified now."""
        # No request is under way, so nobody asked for these bytes.  The `Frames` made below would
        # lose them, and with them the boundaries of all frames that follow.
        if self._frames.buffered_bytes:
            count = self._frames.buffered_bytes
            raise NetworkException(f"broker {self.peer}: {count} unexpected bytes")
        self._frames = Frames(self._config.response_bytes_max, RESPONSE_BYTES_MIN)
        self._watch_idleness()

    def _watch_idleness(self) -> None:
        """Close the connection when it has had no request for too long; look again otherwise."""
        limit = self._config.connections_max_idle_ms / 1000
        # Negative for share consumers: a share session and its locks end with the connection.
        if limit < 0 or self._failure is not None:
            return
        # A parked fetch or JoinGroup is a use of the connection, however old it is.
        idle = 0.0 if self._waiting else time.monotonic() - self._used_at
        if idle >= limit:
            self.fail(NetworkException("closed by this client: it was idle"))
            return
        self._idle_timer = asyncio.get_running_loop().call_later(limit - idle, self._watch_idleness)

    def _log_in_later(self, lifetime_ms: int) -> None:
        if lifetime_ms <= 0 or self._failure is not None:
            return
        part = random.uniform(*LOGIN_LIFETIME_PART)  # noqa: S311  Spreads load, hides nothing.
        seconds = lifetime_ms / 1000 * part
        seconds = min(max(seconds, self._login_seconds_min), LOGIN_SECONDS_MAX)
        self._login_timer = asyncio.get_running_loop().call_later(seconds, self._start_login)

    def _start_login(self) -> None:
        # The task is not awaited: a failed login closes the connection.
        self._login = asyncio.create_task(self._log_in_again(), name=f"login {self.peer}")

    async def _log_in_again(self) -> None:
        self._held = []
        # `send_only` requests have no slots and would pile up in `_held` without a limit.
        self._writable.clear()
        started_at = time.monotonic()
        try:
            lifetime_ms = await log_in(self._ask_during_login, self._config)
        except KafkaError as error:
            self._metrics.authentication_failed.add()
            self.fail(error)
            return
        except BaseException as error:
            # Otherwise the requests that are held back would wait for ever.
            self.fail(NetworkException(f"to log in again failed: {error!r}"))
            raise
        self._metrics.reauthentication.add()
        self._metrics.reauthentication_ms.observe((time.monotonic() - started_at) * 1000)
        # The order of calls is the order on the wire, so held requests go before any later one:
        # there is no await between here and the last write.
        held_requests, self._held = self._held, None
        if self._failure is None and self._transport is not None:
            try:
                for chunks in held_requests or ():
                    self._transport.writelines(chunks)
            except RuntimeError as error:
                self.fail(error)  # As in `_write`.
        # `pause_writing` may have come during the login; then `resume_writing` sets the event.
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
                f"broker {self.peer}: {name}: no response within {limit_ms} ms"
            ) from None

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's class without deriving from it.
        transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._size_buffers(transport)
        self._transport = transport
        self._metrics.created.add()

    def _size_buffers(self, transport: asyncio.Transport) -> None:
        opened = transport.get_extra_info("socket")
        for option, size in (
            (socket.SO_SNDBUF, self._config.send_buffer_bytes),
            (socket.SO_RCVBUF, self._config.receive_buffer_bytes),
        ):
            # -1 leaves the size to the operating system, as Kafka's send.buffer.bytes does.
            if size > 0:
                opened.setsockopt(socket.SOL_SOCKET, option, size)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail all pending requests; the text has the probable cause, if one is known."""
        self._lost.set()
        self.fail(error or NetworkException("the broker closed the connection" + self.hint()))

    def hint(self) -> str:
        """Return the probable cause if the broker closes the connection while it opens, or ""."""
        protocol = self._config.security_protocol
        # One answer proves nothing: it is that of ApiVersions, which a listener with SASL gives to
        # a client without a login, too.
        if self._config.uses_sasl or self._answers > 1:
            return ""
        certificate = " and accepts the client certificate" * self._config.uses_tls
        return f"; check that the listener uses security_protocol={protocol}{certificate}"

    def pause_writing(self) -> None:
        self._paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        self._paused = False
        # During a login `_log_in_again` sets the event, when the held requests are written.
        if self._held is None:
            self._writable.set()

    def data_received(self, chunk: bytes) -> None:
        """Pass each complete frame to its request; close the connection if a frame is malformed."""
        for meter in self._meters:
            meter.received(len(chunk))
        self._frames.feed(chunk)
        try:
            while (frame := self._frames.next()) is not None:
                self._answered(frame)
        except FrameError as error:
            # A TLS listener answers plain bytes with an alert of TLS, whose first bytes make a
            # huge length.
            tls = not self._answers and chunk.startswith(_TLS_ALERT)
            hint = " (the listener uses TLS: try security_protocol=SSL)" if tls else ""
            self.fail(DecodeError(f"{error}{hint}"))
        except DecodeError as error:
            self.fail(error)

    def _answered(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise DecodeError(f"a response to request {correlation_id}, which was never sent")
        try:
            answer = self._decoded(frame, waiting)
        except DecodeError:
            self._waiting[correlation_id] = waiting  # It fails together with the others.
            raise
        self._answers += 1
        # Before the future is looked at: a cancelled caller has left its slot to this answer.
        if waiting.has_slot:
            self._slots.release()
        latency_ms = (time.monotonic() - waiting.sent_at) * 1000
        for meter in self._meters:
            meter.answered(latency_ms)
        # Some APIs, and old versions of others, have no throttle time.
        throttle_time = getattr(answer, "throttle_time", None)
        if throttle_time:
            self._throttle.begin(throttle_time.total_seconds())
        if not waiting.future.done():
            waiting.future.set_result(answer)

    def _decoded(self, frame: memoryview, waiting: _Waiting) -> Any:
        _, position = decode_response_header(frame, header_version_of(waiting.key, waiting.version))
        version = waiting.version
        if waiting.key == API_VERSIONS and frame[position : position + 2] == _VERSION_REFUSED:
            version = 0  # KIP-511: the refusal always has the oldest form.
        # Records are not copied: a memoryview keeps the received frame alive.
        message = response_class(waiting.key, version)
        answer, end = decode(message, frame, position, records=memoryview)
        if end != len(frame):
            name = api_of(waiting.key).name
            raise DecodeError(f"{name} response: {len(frame) - end} bytes follow its end")
        return answer


_VERSION_REFUSED = UnsupportedVersion.code.to_bytes(2, "big")
# RFC 8446, 5.1: content type 21 (alert) and the major version that all records of TLS carry.
_TLS_ALERT = b"\x15\x03"
CERTIFICATE_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
"""Parts of OpenSSL's names of alerts from a peer that wants a certificate, or another one.

In TLS 1.2 a missing certificate is reported as a handshake failure only.
"""


def _as_newest(answer: Any) -> Any:
    """Upgrade an answer to the newest version of its kind."""
    key = answer.__api_key__
    newest = response_class(key, spoken_api(key).newest)
    return answer if type(answer) is newest else upgrade(answer, newest)


def _is_refused_handshake(error: Exception) -> bool:
    """Whether a TLS handshake failed for a reason that a retry cannot change.

    A connection that was cut in the middle of a handshake may work the next time.
    """
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)


def _certificate_hint(error: Exception) -> str:
    """Return a hint at the client certificate if the broker sent an alert about it, or ""."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if "ALERT" in reason and any(words in reason for words in CERTIFICATE_ALERTS):
        return (
            "; the broker may require a client certificate, or reject this one: check ssl_certfile"
        )
    return ""


async def open_connection(
    address: tuple[str, int],
    config: ClientConfig,
    *,
    metrics: ConnectionMetrics,
    node_metrics: RequestMetrics | None = None,
    tls: ssl.SSLContext | None = None,
    login_seconds_min: float = LOGIN_SECONDS_MIN,
) -> Connection:
    """Connect, negotiate and log in, within ``connect_timeout_ms``.

    Raises NetworkException or RequestTimedOut if the broker cannot be reached, and
    SaslAuthenticationFailed or TlsHandshakeFailed if a retry would not help.
    """
    loop = asyncio.get_running_loop()
    host, port = address
    connection = Connection(
        address, config, metrics, node_metrics=node_metrics, login_seconds_min=login_seconds_min
    )
    try:
        async with asyncio.timeout(config.connect_timeout_ms / 1000):
            # asyncio refuses a `server_hostname` without TLS.
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
            f"broker {connection.peer}: no connection within {config.connect_timeout_ms} ms"
        ) from None
    except (OSError, OverflowError, ValueError) as error:
        # Not only network errors: metadata may name impossible ports and hosts.
        connection.close()
        kind = TlsHandshakeFailed if _is_refused_handshake(error) else NetworkException
        # The error of a handshake that was cut in the middle has no text.
        if isinstance(error, ConnectionRefusedError):
            # The event loops have texts of their own, and asyncio's does not say "refused".
            why = "connection refused"
        else:
            why = str(error) or f"{type(error).__name__}{connection.hint()}"
        why += _certificate_hint(error)
        raise kind(f"broker {connection.peer}: {why}") from error
    # Also after a cancellation: nobody else can close the connection, because it is not returned.
    except BaseException:
        connection.close()
        raise
    return connection
