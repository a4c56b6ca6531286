"""What a console is started with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from starlette.requests import Request

from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.client.settings.option_values import SaslMechanism
from sharegroup.console.access.roles import ALL_RIGHTS, Roles, User
from sharegroup.console.access.tokens import Tokens
from sharegroup.errors import InvalidConfig

Auth: TypeAlias = Callable[[Request], Awaitable[User | None]]
"""A function of an application that returns the user of a request; None: nobody."""

PASSWORD_MECHANISMS = (
    SaslMechanism.PLAIN, SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512,
)  # fmt: skip
LOGIN_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


PathOf: TypeAlias = Callable[[str], Path]
"""A function from the id of a cluster to its file; it may raise RuntimeError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The settings of one console."""

    client_options: ClientOptions = field(default_factory=ClientOptions)
    """The console's own connection: addresses, credentials, TLS."""
    allow_changes: bool = False
    """Whether anybody may change anything; without it the console only reads."""
    show_values: bool = True
    """Whether keys, values and headers of records are shown to those with the right."""
    metrics_url: str | None = None
    """The metrics port of a `sharegroup serve`, for live runs with members and locks."""
    schema_registry: str | None = None
    """The address of the schema registry by which values are decoded; None: they are not."""
    roles: Roles = field(default_factory=lambda: Roles.of_everybody(ALL_RIGHTS))
    """Who may do what."""
    tokens: Tokens | None = None
    """The tokens by which users log in; None: no login by token."""
    token_file: Path | None = None
    """The file of ``tokens``, which is read again when it changes."""
    roles_file: Path | None = None
    """The file of ``roles``, which is read again when it changes."""
    login_mechanism: SaslMechanism | None = None
    """The mechanism by which users of the cluster log in; None: they do not."""
    auth: Auth | None = None
    """How an application that mounts the console knows its users."""
    form_secret: str | None = None
    """A secret of the application, the same in each of its processes; None: one of this process.

    A form that one process has made is accepted by another one only if it is the same.
    """
    remember: bool = False
    """Whether the history is kept in topics of the cluster, which all consoles share."""
    history_file: PathOf | None = None
    """Where else it is kept; None: only in memory."""
    is_behind_proxy: bool = False
    """Whether a proxy ends TLS, so that every request has to come through it."""

    def __post_init__(self) -> None:
        mechanism = self.login_mechanism
        if mechanism is not None and mechanism not in PASSWORD_MECHANISMS:
            expected = ", ".join(PASSWORD_MECHANISMS)
            raise InvalidConfig(f"login by {mechanism}: expected one of {expected}")
        protocol = self.client_options.get("security_protocol", "PLAINTEXT")
        if mechanism is not None and protocol not in LOGIN_PROTOCOLS:
            raise InvalidConfig(
                f"a login with credentials of the cluster needs a connection with "
                f"security.protocol=SASL_SSL in --command-config, because users log in where the "
                f"console does; it is {protocol}"
            )

    @property
    def has_login(self) -> bool:
        """Whether users have to log in to the console itself."""
        return self.tokens is not None or self.login_mechanism is not None
