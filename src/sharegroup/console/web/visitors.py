"""Who a request comes from: a user with a token, a session, one of an application, or anybody.

the console has            a request with …              its visitor
tokens or cluster logins   Authorization: Bearer TOKEN   the token's user
                           the cookie of a session       the session's user
                           neither                       none: it has to log in
auth of an application     anything                      what `auth` returns
neither                    anything                      `local`, or a reader if mounted
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from starlette.requests import Request

from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.console.access.attempts import Attempts
from sharegroup.console.access.audit import log_login, quoted
from sharegroup.console.access.connection import Connection, UserConnection
from sharegroup.console.access.roles import Grant, Rights, Roles, User, Visible
from sharegroup.console.access.sessions import Session, Sessions, TooManySessions
from sharegroup.console.access.sight import Sight
from sharegroup.console.access.tokens import Tokens, digest_of
from sharegroup.console.settings import ConsoleSettings
from sharegroup.errors import (
    InvalidConfig,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)

log = logging.getLogger(__name__)

BEARER = "bearer "
COOKIE = "sharegroup-console"
LOGINS_MAX = 8
"""Logins at the cluster that are under way at once."""
LOGIN_SECONDS = 15.0
WRONG = 401
"""The status for credentials that are not accepted."""
CREDENTIAL_CHARACTERS_MAX = 1_000
SWEEP_SECONDS = 30.0
LOCAL = User("local")
CLUSTER_USER = "User:"
"""What begins the names of users of the cluster, as in ACLs, so none is the name of a token."""


class Refused(Exception):
    """A request without a user, or a login, is refused; the text is for the user."""

    def __init__(self, text: str, status: int, *, retry_s: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_s = retry_s


@dataclass(frozen=True, slots=True)
class Visitor:
    """The user of one request."""

    user: User
    rights: Rights
    sight: Sight
    form_token: str
    """What each form of this user has to have."""
    clients: Connection | None = None
    """The user's own clients; None: the console's."""
    session_id: str | None = None
    has_token: bool = False
    """Whether the request itself has a token, which no browser sends by itself."""

    @property
    def reader(self) -> Hashable:
        """What a page depends on besides its address: it may be shared by equal readers only."""
        return self.user.name, self.form_token, self.rights


class Seat:
    """What a session owns: rights, and for users of the cluster their clients."""

    __slots__ = ("connection", "rights", "sight", "token_digest")

    def __init__(
        self, rights: Rights, connection: UserConnection | None, token_digest: bytes | None
    ) -> None:
        self.connection = connection
        self.token_digest = token_digest
        """That of the token by which the session began; None: it began with a password."""
        self.use(rights)

    def use(self, rights: Rights) -> None:
        """Give the user other rights."""
        self.rights, self.sight = rights, Sight(rights)

    async def refresh(self, now: float) -> None:
        """Look up again what the user may list, if that is old."""
        if self.connection is None:
            return
        await self.connection.refresh(now)
        if self.connection.visible is not self.rights.visible:
            self.use(replace(self.rights, visible=self.connection.visible))


class Visitors:
    """Finds the visitor of a request, and lets users log in and out."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._tokens, self._roles = settings.tokens, settings.roles
        self._sessions: Sessions[Seat] = Sessions()
        self._attempts = Attempts()
        self._logins = 0
        own = settings.form_secret
        self._secret = secrets.token_bytes(32) if own is None else own.encode()

    # Requests.

    async def visitor(self, request: Request, *, is_use: bool = True) -> Visitor | None:
        """Return the visitor; None if somebody has to log in first.

        ``is_use`` is False for what a page asks for by itself, which keeps no session alive.
        Raises `Refused` for a token that is wrong.
        """
        has_token = request.headers.get("authorization", "").lower().startswith(BEARER)
        if self._settings.auth is not None:
            user = await self._settings.auth(request)
            return None if user is None else self._stranger(user, has_token=has_token)
        if not self._settings.has_login:
            return self._stranger(LOCAL, has_token=False)
        if has_token:
            return self._of_token(request)
        session_id = request.cookies.get(cookie_name(request), "")
        session = self._sessions.of(session_id, time.monotonic(), is_use=is_use)
        if session is None:
            return None
        seat = session.owned
        await seat.refresh(time.monotonic())
        return Visitor(
            session.user, seat.rights, seat.sight, session.form_token,
            clients=None if seat.connection is None else seat.connection.clients,
            session_id=session_id,
        )  # fmt: skip

    def _stranger(self, user: User, *, has_token: bool) -> Visitor:
        """Return the visitor for a user that somebody else vouches for."""
        rights = self._rights(user, None)
        digest = hmac.new(self._secret, user.name.encode("utf-8", "replace"), hashlib.sha256)
        return Visitor(user, rights, Sight(rights), digest.hexdigest(), has_token=has_token)

    def _of_token(self, request: Request) -> Visitor:
        token = request.headers["authorization"][len(BEARER) :].strip()
        user = self._user_of(token, address_of(request))
        return self._stranger(user, has_token=True)

    def _user_of(self, token: str, address: str) -> User:
        self._begin_attempt(address)
        user = None if self._tokens is None else self._tokens.user_of(token)
        if user is None:
            log_login("", address, "refused")
            raise Refused("this is no token of the console", WRONG)
        self._attempts.take_back(address)
        return user

    def _rights(self, user: User, visible: Visible | None) -> Rights:
        settings = self._settings
        grants: tuple[Grant, ...] = self._roles.of(user)
        return Rights(
            grants=grants,
            masks=self._roles.masks,
            visible=visible,
            allow_changes=settings.allow_changes,
            show_values=settings.show_values,
        )

    # Sessions.

    async def log_in(self, fields: Mapping[str, str], address: str) -> str:
        """Begin a session for a token, or a name and a password; return its id.

        Raises `Refused` if they are wrong, there were too many attempts, or the cluster is away.
        """
        token = fields.get("token", "")
        digest: bytes | None
        if token:
            user = self._user_of(token, address)
            connection, digest = None, digest_of(token)
        else:
            digest = None
            name, password = fields.get("name", ""), fields.get("password", "")
            user, connection = await self._log_in_at_cluster(name, password, address)
        rights = self._rights(user, None if connection is None else connection.visible)
        try:
            session_id, _, ended = self._sessions.begin(
                user, Seat(rights, connection, digest), time.monotonic()
            )
        except TooManySessions as error:
            if connection is not None:
                await connection.clients.close()
            raise Refused(str(error), 503) from error
        await _close(ended)
        log_login(user.name, address, "done")
        return session_id

    async def _log_in_at_cluster(
        self, name: str, password: str, address: str
    ) -> tuple[User, UserConnection]:
        mechanism = self._settings.login_mechanism
        if mechanism is None or not (name and password):
            raise Refused("give " + self.credentials, 400)
        if max(len(name), len(password)) > CREDENTIAL_CHARACTERS_MAX:
            raise Refused(f"expected at most {CREDENTIAL_CHARACTERS_MAX} characters", 400)
        if self._logins >= LOGINS_MAX:
            raise Refused("too many users log in right now; try again", 503, retry_s=1)
        self._begin_attempt(address)
        options: ClientOptions = {
            **self._settings.client_options,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": name,
            "sasl_plain_password": password,
        }
        options.pop("sasl_oauth_token_provider", None)
        self._logins += 1
        try:
            connection = await _opened(options)
        except Refused as error:
            is_wrong = error.status == WRONG
            log_login(CLUSTER_USER + name, address, "refused" if is_wrong else "failed")
            if not is_wrong:
                self._attempts.take_back(address)  # No password was tried.
            raise
        finally:
            self._logins -= 1
        self._attempts.take_back(address)
        return User(CLUSTER_USER + name), connection

    def _begin_attempt(self, address: str) -> None:
        wait_s = self._attempts.begin(address, time.monotonic())
        if wait_s:
            log_login("", address, "limited")
            raise Refused(f"too many attempts; try again in {wait_s:.0f} s", 429, retry_s=wait_s)

    @property
    def credentials(self) -> str:
        """What a user logs in with, for texts."""
        kinds = []
        if self._settings.tokens is not None:
            kinds.append("a token")
        if self._settings.login_mechanism is not None:
            kinds.append("a name and a password of the cluster")
        return ", or ".join(kinds)

    async def log_out(self, visitor: Visitor) -> None:
        """End the session of a visitor and close what it owns."""
        if visitor.session_id is not None:
            await _close(self._sessions.end(visitor.session_id))

    # Rules.

    async def use_tokens(self, tokens: Tokens) -> None:
        """Let these tokens in from now on; the sessions of others end."""
        self._tokens = tokens
        ended = self._sessions.end_where(
            lambda session: (
                session.owned.token_digest is not None
                and not tokens.knows(session.user.name, session.owned.token_digest)
            )
        )
        for session in ended:
            log.info("event=console.session_ended user=%s reason='its token was withdrawn'",
                     quoted(session.user.name))  # fmt: skip
        await _close(ended)

    async def use_roles(self, roles: Roles) -> None:
        """Give users the grants of these roles from now on, also in sessions that have begun."""
        self._roles = roles
        for session in self._sessions.all():
            connection = session.owned.connection
            visible = None if connection is None else connection.visible
            session.owned.use(self._rights(session.user, visible))

    async def run(self) -> None:
        """End sessions whose time is over, until this is cancelled; then end all."""
        try:
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                await _close(self._sessions.expired(time.monotonic()))
        finally:
            await asyncio.shield(_close(self._sessions.end_all()))


async def _opened(options: ClientOptions) -> UserConnection:
    """Log in at the cluster and list what the user may see."""
    try:
        connection = UserConnection(Connection(options))
    except InvalidConfig as error:
        raise Refused(f"the cluster does not accept this: {error}", 400) from error
    is_open = False
    try:
        async with asyncio.timeout(LOGIN_SECONDS):
            await connection.list_names(time.monotonic())
        is_open = True
    except (SaslAuthenticationFailed, UnsupportedSaslMechanism) as error:
        raise Refused("the cluster does not accept this name and password", WRONG) from error
    except (KafkaError, TimeoutError) as error:
        log.warning("event=console.login_failed error=%r action='look at the brokers'", error)
        raise Refused("the cluster does not answer; try again", 503) from error
    finally:
        if not is_open:
            await connection.clients.close()
    return connection


async def _close(ended: list[Session[Seat]]) -> None:
    for session in ended:
        if session.owned.connection is not None:
            await session.owned.connection.clients.close()


def address_of(request: Request) -> str:
    """Return the address that a request comes from; behind a proxy, the one that it names."""
    return "" if request.client is None else request.client.host


def cookie_name(request: Request) -> str:
    """Return the name of the cookie: browsers send those of all ports of a host to each port."""
    server = request.scope.get("server")
    port = server[1] if server is not None else 0
    prefix = "__Host-" if is_encrypted(request) else ""
    return f"{prefix}{COOKIE}-{port}"


def is_encrypted(request: Request) -> bool:
    """Whether the browser speaks TLS, to this port or to a proxy that says so."""
    return str(request.scope.get("scheme", "http")) == "https"
