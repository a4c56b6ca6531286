"""How a bare socket comes in at a secured listener: TLS, then SASL PLAIN.

Only the standard library is used, and frames are made by hand, so that the probe of the attacks,
which starts without anything else, can come in the same way.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Sequence
from typing import NamedTuple

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


class Login(NamedTuple):
    """The authority whose certificates a client trusts, and a user."""

    authority: str
    """The path of a PEM file; empty for a listener without TLS."""
    user: str
    """Empty for a listener without SASL."""
    password: str = ""

    def enter(self, connected: socket.socket) -> socket.socket:
        """Return the socket to go on with, or raise OSError if the broker lets nobody in."""
        if self.authority:
            context = ssl.create_default_context(cafile=self.authority)
            connected = context.wrap_socket(connected, server_hostname="127.0.0.1")
        try:
            if self.user:
                self._log_in(connected)
        except OSError:
            connected.close()
            raise
        return connected

    def _log_in(self, connected: socket.socket) -> None:
        mechanism = b"PLAIN"
        answer = call(connected, SASL_HANDSHAKE, struct.pack(">h", len(mechanism)) + mechanism)
        refuse_unless(answer[:2] == b"\0\0", "the mechanism is refused")
        token = b"\0".join([b"", self.user.encode(), self.password.encode()])
        answer = call(connected, SASL_AUTHENTICATE, struct.pack(">i", len(token)) + token)
        refuse_unless(answer[:2] == b"\0\0", f"user {self.user} is refused")


def login_of(arguments: Sequence[str]) -> Login | None:
    """Return the login of a command line: the three fields of `Login`, or None without any."""
    return Login(*arguments) if arguments else None


def refuse_unless(condition: bool, text: str) -> None:
    if not condition:
        raise PermissionError(text)


def frame(api_key: int, body: bytes, version: int = 1) -> bytes:
    """A whole request with a header of version 1, without a client id."""
    request = struct.pack(">hhih", api_key, version, 1, -1) + body
    return struct.pack(">i", len(request)) + request


def call(connected: socket.socket, api_key: int, body: bytes, version: int = 1) -> bytes:
    """Send a request; return the body of its answer."""
    connected.sendall(frame(api_key, body, version))
    (size,) = struct.unpack(">i", exactly(connected, 4))
    return exactly(connected, size)[4:]


def exactly(connected: socket.socket, count: int) -> bytes:
    """Receive so many bytes; raise ConnectionResetError if the broker closes before."""
    received = bytearray()
    while len(received) < count:
        part = connected.recv(count - len(received))
        if not part:
            raise ConnectionResetError("the broker closed the connection")
        received += part
    return bytes(received)
