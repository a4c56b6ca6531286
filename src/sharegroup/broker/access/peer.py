"""What the broker knows of the peer of a connection."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.broker.access.rights import UNLIMITED, Rights
from sharegroup.core.security.principal import ANONYMOUS, Principal


@dataclass(slots=True, eq=False)
class Peer:
    """The peer of one connection; authentication changes its principal and its rights."""

    host: str
    """Its address, without the port."""
    port: int = 0
    listener: str = "PLAINTEXT"
    """The name of the listener that it is connected to."""
    principal: Principal = ANONYMOUS
    rights: Rights = UNLIMITED
    throttled_until_ms: int = 0
    """The time until which nothing is read from the connection, because of a quota; 0 if none."""

    def __str__(self) -> str:
        """Return address and port, for log lines; IPv6 addresses have colons themselves."""
        return f"{self.host}:{self.port}"
