"""The login of one connection on a SASL listener, before and between its requests.

    first request   ApiVersions, once  ──▶  SaslHandshake ──▶  SaslAuthenticate ...  ──▶  requests
                    or SaslHandshake ───────────────────────▶  (version 0: bare tokens)     │
                                               ▲                                            │
                                               └──── before the session expires (KIP-368) ──┘

Nothing else is read from a peer before it is logged in, and frames are small then.  A refused login
is answered after a delay, and then the connection is closed.  The order of requests and their
answers are those of Kafka's SaslServerAuthenticator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from functools import partial
from typing import Any, Protocol

from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.static.primitive import i64Timedelta

from sharegroup.broker.access.logins import NO_MECHANISM, AcceptedLogins
from sharegroup.broker.access.mechanisms import OAUTHBEARER, Exchange, Outcome
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.clock import TimerHandle
from sharegroup.broker.handler_contract import CloseConnection, HandlerOf, error_code
from sharegroup.broker.parts import Parts
from sharegroup.broker.server.dispatch import API_VERSIONS, Reply, dispatch
from sharegroup.core.security.login import LoginRefused
from sharegroup.core.security.principal import USER, Principal
from sharegroup.errors import KafkaError
from sharegroup.wire.codec.apis import APIS, request_class, response_class
from sharegroup.wire.codec.convert import downgrade
from sharegroup.wire.codec.decoder import DecodeError, decode
from sharegroup.wire.codec.encoder import encode_response_chunks
from sharegroup.wire.codec.framing import FRAME_BYTES_MIN
from sharegroup.wire.codec.headers import RequestHeader, decode_request_header
from sharegroup.wire.codec.schema import MILLISECOND

log = logging.getLogger(__name__)

SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36

LOGIN_FRAME_BYTES_MAX = 4 * 1024
"""Maximum size of a request before a login, and of a message of PLAIN or SCRAM."""

MESSAGES_MAX = 4
"""Number of messages of a mechanism in one login; those here need at most two."""

RENEWAL_PAUSE_MS = 1_000
"""Time between two logins of one connection; Kafka's own value."""

_TOKEN_BYTES_MIN = 1


class LoginEnded(CloseConnection):
    """The connection ends without being logged in; ``reply`` is sent before."""

    def __init__(self, reason: str, reply: Reply) -> None:
        super().__init__(reason)
        self.reply = reply


class Carrier(Protocol):
    """The connection that a login belongs to."""

    @property
    def connection_id(self) -> int: ...

    def limit_frames(self, bytes_max: int, bytes_min: int) -> None:
        """Change the limits on the sizes of the next frames."""
        ...

    def logged_in(self) -> None:
        """Count the connection for its user, whom the peer has now."""
        ...

    def drop(self) -> None:
        """Close the connection; unsent bytes are lost."""
        ...


class _LoginState(Enum):
    FIRST = auto()
    """ApiVersions or SaslHandshake."""
    HANDSHAKE = auto()
    """SaslHandshake, because ApiVersions was answered."""
    AUTHENTICATE = auto()
    """SaslAuthenticate."""
    TOKENS = auto()
    """Messages of the mechanism without a request around them."""
    READY = auto()
    """Requests."""
    WAITING = auto()
    """Nothing, because a message waits for the key set of tokens."""
    ENDED = auto()
    """Nothing, because the login has failed, or the connection is closed."""


class SaslLogin:
    """The login of one connection; the connection asks `admits`, and passes frames to `take`."""

    __slots__ = (
        "_accepted", "_carrier", "_deadline_ms", "_delayed", "_exchange", "_expires_ms",
        "_handler_of", "_mechanism", "_messages", "_parts", "_peer", "_renewed_ms", "_state",
        "_wanted", "is_pending",
    )  # fmt: skip

    def __init__(
        self,
        parts: Parts,
        handler_of: HandlerOf,
        accepted: AcceptedLogins,
        peer: Peer,
        carrier: Carrier,
    ) -> None:
        self._parts = parts
        self._handler_of = handler_of
        self._accepted = accepted
        self._peer = peer
        self._carrier = carrier
        self._state = _LoginState.FIRST
        self._mechanism = NO_MECHANISM
        """The mechanism of the first login, which later ones have to use."""
        self._wanted = NO_MECHANISM
        """The mechanism of the login that goes on."""
        self._exchange: Exchange | None = None
        self._messages = 0
        self._expires_ms: int | None = None
        """The end of the session; None if it has no end."""
        self._renewed_ms: int | None = None
        """The begin of the last further login."""
        self._deadline_ms: int | None = parts.clock.now_ms() + accepted.login_ms
        """The time until which the login must be complete; None while there is none."""
        self._delayed: tuple[TimerHandle, Callable[[], None]] | None = None
        """The delayed end of a failed login, and the function that ends it."""
        self.is_pending = True
        """Whether the connection has never been logged in."""
        carrier.limit_frames(LOGIN_FRAME_BYTES_MAX, FRAME_BYTES_MIN)
        parts.logins.pending.begin(self)

    @property
    def connection_id(self) -> int:
        """The id of the connection."""
        return self._carrier.connection_id

    @property
    def host(self) -> str:
        """The address of the peer."""
        return self._peer.host

    @property
    def is_deaf(self) -> bool:
        """Whether everything else that the peer sends is dropped."""
        return self._state is _LoginState.ENDED

    @property
    def is_busy(self) -> bool:
        """Whether no frame may be taken now."""
        return self._state in (_LoginState.WAITING, _LoginState.ENDED)

    def admits(self, frame: memoryview) -> bool:
        """Return whether the frame is a request to be dispatched, and not a part of a login.

        Raises LoginEnded if the session has expired.
        """
        if self._state is not _LoginState.READY:
            return False
        if self._expires_ms is None:
            return True
        now_ms = self._parts.clock.now_ms()
        # The key is in the first two bytes.  An expired session may still begin a login, as in
        # Kafka.
        if frame[1] == SASL_HANDSHAKE and frame[0] == 0:
            # Otherwise the handler of SaslHandshake answers ILLEGAL_SASL_STATE.
            return self._renewed_ms is not None and now_ms - self._renewed_ms < RENEWAL_PAUSE_MS
        if now_ms > self._expires_ms:
            self._parts.logins.expired_count += 1
            log.info(
                "event=session_expired peer=%s principal=%r mechanism=%s",
                self._peer,
                str(self._peer.principal),
                self._mechanism,
            )
            raise LoginEnded("the session has expired", [])
        return True

    def take(self, frame: memoryview, **context: Any) -> Reply | asyncio.Future[Reply]:
        """Take a frame of a login; return the reply, or a future of it.

        ``context`` are the arguments of `dispatch`.  Raises CloseConnection if the frame has no
        answer.
        """
        if self._state is _LoginState.TOKENS:
            return self._take_message(bytes(frame), None)
        try:
            header = decode_request_header(frame)
        except DecodeError as error:
            raise CloseConnection(f"request header: {error}") from error
        if header.api_key == API_VERSIONS and self._state is _LoginState.FIRST:
            return self._take_api_versions(frame, context)
        if header.api_key == SASL_HANDSHAKE and self._state is not _LoginState.AUTHENTICATE:
            return self._take_handshake(header, _decoded(header, frame))
        if header.api_key == SASL_AUTHENTICATE and self._state is _LoginState.AUTHENTICATE:
            return self._take_message(bytes(_decoded(header, frame).auth_bytes), header)
        api = APIS.get(header.api_key)
        name = f"api key {header.api_key}" if api is None else api.name
        raise CloseConnection(f"{name} before the login is complete")

    def overdue(self, now_ms: int) -> bool:
        """Return whether a login goes on and had to be complete before."""
        return self._deadline_ms is not None and now_ms > self._deadline_ms

    def failed(self, reason: str) -> None:
        """Count and log that the connection ends because its login has failed."""
        if self._state is not _LoginState.ENDED:
            self._state = _LoginState.ENDED
            self._parts.logins.failed_login(
                self._peer, self._wanted, reason, now_ms=self._parts.clock.now_ms()
            )

    def close(self, reason: str) -> None:
        """Close the connection because its login has taken too long or another needs its place."""
        self.failed(reason)
        self._carrier.drop()

    def closed(self) -> None:
        """Forget the login, because the connection is closed."""
        self._state = _LoginState.ENDED
        self._parts.logins.pending.end(self)
        if self._delayed is not None:
            timer, end_now = self._delayed
            timer.cancel()  # It would keep the connection in memory for the whole delay.
            end_now()

    def _take_api_versions(
        self, frame: memoryview, context: dict[str, Any]
    ) -> Reply | asyncio.Future[Reply]:
        reply = dispatch(self._parts, self._handler_of, frame, **context)
        if isinstance(reply, list):
            self._note_versions(reply)
            return reply
        self._state = _LoginState.WAITING
        return asyncio.get_running_loop().create_task(self._note_versions_later(reply))

    async def _note_versions_later(self, reply: asyncio.Future[Reply]) -> Reply:
        chunks = await reply
        if self._state is _LoginState.WAITING:  # The connection is still open.
            self._note_versions(chunks)
        return chunks

    def _note_versions(self, reply: Reply) -> None:
        # The response begins with length, correlation id and error code.  After an error the client
        # may ask again, with another version.
        is_answered = b"".join(reply)[8:10] == b"\0\0"
        self._state = _LoginState.HANDSHAKE if is_answered else _LoginState.FIRST

    def _take_handshake(self, header: RequestHeader, request: Any) -> Reply | asyncio.Future[Reply]:
        """Begin a login, or another one of a connection that is logged in."""
        if self._state is _LoginState.READY:
            now_ms = self._parts.clock.now_ms()
            # From the beginning of a login, as in `KafkaChannel` (lastReauthenticationStartNanos).
            self._renewed_ms, self._deadline_ms = now_ms, now_ms + self._accepted.login_ms
        mechanism, exchanges = str(request.mechanism), self._accepted.exchanges
        code = ErrorCode.none if mechanism in exchanges else ErrorCode.unsupported_sasl_mechanism
        response = SaslHandshakeResponse(error_code=code, mechanisms=tuple(exchanges))
        reply = _encoded(header, response)
        if code is not ErrorCode.none:
            return self._end(f"the mechanism {mechanism[:80]!r} is not enabled", reply)
        self._wanted, self._exchange, self._messages = mechanism, exchanges[mechanism](), 0
        with_requests = header.api_version > 0
        self._state = _LoginState.AUTHENTICATE if with_requests else _LoginState.TOKENS
        bytes_max = self._accepted.frame_bytes_max
        # Only tokens are longer: strangers must not take memory from users (docs/limits.md).
        if mechanism != OAUTHBEARER:
            bytes_max = min(bytes_max, LOGIN_FRAME_BYTES_MAX)
        self._carrier.limit_frames(
            max(bytes_max, FRAME_BYTES_MIN), FRAME_BYTES_MIN if with_requests else _TOKEN_BYTES_MIN
        )
        return reply

    def _take_message(
        self, message: bytes, header: RequestHeader | None
    ) -> Reply | asyncio.Future[Reply]:
        """Pass a message to the mechanism; ``header`` is None without a request around it."""
        assert self._exchange is not None, "a login begins with a handshake"
        self._messages += 1
        try:
            # Here and not at the handshake, as in Kafka (`SaslServerAuthenticator`,
            # REAUTH_BAD_MECHANISM): only this response has a field for the reason.
            self._check_message()
            outcome = self._exchange.take(message)
            if isinstance(outcome, Outcome):
                return self._answered(outcome, header)
        except LoginRefused as error:
            return self._refused(error, header)
        state, self._state = self._state, _LoginState.WAITING
        return asyncio.get_running_loop().create_task(self._answer_later(outcome, header, state))

    def _check_message(self) -> None:
        if self._mechanism not in (NO_MECHANISM, self._wanted):
            text = (
                f"SASL mechanism '{self._wanted}' requested by client is not supported for "
                f"re-authentication of mechanism '{self._mechanism}'"
            )
            raise LoginRefused(text, answer=text)
        if self._messages > MESSAGES_MAX:
            raise LoginRefused(f"more than {MESSAGES_MAX} messages")

    async def _answer_later(
        self, awaited: Awaitable[Outcome], header: RequestHeader | None, state: _LoginState
    ) -> Reply:
        try:
            outcome = await awaited
            if self._state is _LoginState.ENDED:  # The connection was closed meanwhile.
                return []
            self._state = state
            return self._answered(outcome, header)
        except LoginRefused as error:
            return await self._refused(error, header)

    def _answered(self, outcome: Outcome, header: RequestHeader | None) -> Reply:
        """Return the reply of a message; the login may be complete with it."""
        lifetime_ms = 0 if outcome.user is None else self._complete(outcome.user, outcome)
        if header is None:
            return [len(outcome.message).to_bytes(4, "big") + outcome.message]
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.none,
            error_message=None,
            auth_bytes=outcome.message,
            session_lifetime=i64Timedelta.parse(lifetime_ms * MILLISECOND),
        )
        return _encoded(header, response)

    def _complete(self, user: str, outcome: Outcome) -> int:
        """Make the user the peer's principal; return the lifetime of the session in ms."""
        peer, parts = self._peer, self._parts
        principal, before = Principal(USER, user), peer.principal
        # What the connection holds counts for its user, who stays the same (KIP-368; Kafka's text).
        if not self.is_pending and principal != before:
            text = (
                "Cannot change principals during re-authentication from "
                f"{before.kind}.{before.name}: {principal.kind}.{principal.name}"
            )
            raise LoginRefused(text, answer=text)
        # It may refuse the login, so it comes before the first change.
        lifetime_ms = self._session(outcome.expires_wall_ms)
        self._state, self._exchange, self._deadline_ms = _LoginState.READY, None, None
        counts = parts.logins.succeeded if self.is_pending else parts.logins.renewed
        counts[peer.listener, self._wanted] += 1
        if self.is_pending:
            self.is_pending, self._mechanism = False, self._wanted
            peer.principal = principal
            peer.rights = parts.rights_of(peer)
            parts.logins.pending.end(self)
            self._carrier.logged_in()
        self._carrier.limit_frames(parts.config.server.request_bytes_max, FRAME_BYTES_MIN)
        log.debug("event=authenticated peer=%s principal=%r", peer, str(principal))
        return lifetime_ms

    def _session(self, expires_wall_ms: int | None) -> int:
        """Begin the session; return its lifetime in ms, 0 if it has no end.

        It ends with the credential, or when the listener wants another login.
        """
        session_ms = self._accepted.session_ms.get(self._wanted, 0)
        limits = [session_ms] if session_ms > 0 else []
        if expires_wall_ms is not None:
            credential_ms = expires_wall_ms - self._parts.clock.wall_ms()
            if credential_ms <= 0:
                raise LoginRefused("the credential has expired during the login")
            limits.append(credential_ms)
        if not limits:
            self._expires_ms = None
            return 0
        # From now on by the monotonic clock: a jump of the wall clock does not extend a login (ADR
        # 0040).
        self._expires_ms = self._parts.clock.now_ms() + min(limits)
        return min(limits)

    def _refused(self, error: LoginRefused, header: RequestHeader | None) -> asyncio.Future[Reply]:
        """End the login with the text that the client may know."""
        reply: Reply = []
        if header is not None:
            again = not self.is_pending
            reply = _encoded(header, _refusal(error.for_client(self._wanted, again=again)))
        return self._end(error.reason, reply)

    def _end(self, reason: str, reply: Reply) -> asyncio.Future[Reply]:
        """Return a future that ends the connection with this reply after the delay."""
        self.failed(reason)
        ended: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        # The delay keeps a client with a wrong password from connecting again in a hot loop
        # (KIP-306).
        due_ms = self._parts.clock.now_ms() + self._accepted.failure_delay_ms
        end_now = partial(_end_now, ended, LoginEnded(reason, reply))
        self._delayed = self._parts.clock.call_at_ms(due_ms, end_now), end_now
        return ended


def _end_now(ended: asyncio.Future[Reply], error: LoginEnded) -> None:
    if not ended.done():
        ended.set_exception(error)


def _decoded(header: RequestHeader, frame: memoryview) -> Any:
    """Return the request; raise CloseConnection if it cannot be decoded."""
    api, version = APIS[header.api_key], header.api_version
    if not api.oldest <= version <= api.newest:
        raise CloseConnection(
            f"{api.name} version {version} is not served, only {api.oldest} to {api.newest}"
        )
    try:
        request, _ = decode(request_class(api.key, version), frame, header.body_position)
    except DecodeError as error:
        raise CloseConnection(f"{api.name} version {version}: {error}") from error
    return request


def _encoded(header: RequestHeader, response: Any) -> Reply:
    cls = response_class(header.api_key, header.api_version)
    if type(response) is not cls:
        response = downgrade(response, cls)
    return encode_response_chunks(header.correlation_id, response)


def _refusal(error: KafkaError) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=error_code(error), error_message=str(error), auth_bytes=b""
    )
