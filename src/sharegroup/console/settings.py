"""What a console is started with."""

from __future__ import annotations

from dataclasses import dataclass, field

from sharegroup.client.settings.client_config import ClientOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The settings of one console."""

    client_options: ClientOptions = field(default_factory=ClientOptions)
    """The console's own connection: addresses, credentials, TLS."""
    allow_changes: bool = False
    """Whether anybody may change anything; without it the console only reads."""
    show_values: bool = True
    """Whether keys, values and headers of records are shown."""
    metrics_url: str | None = None
    """The metrics port of a `sharegroup serve`, for live runs with members and locks."""
    names: tuple[str, ...] = ()
    """Further names of the port, for the Host header."""
