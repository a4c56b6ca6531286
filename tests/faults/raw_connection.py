"""A bare socket to a broker: frames as a test makes them, and what comes back."""

from __future__ import annotations

import socket
import struct
import threading
import time
from types import TracebackType
from typing import Any, Self

from sharegroup.wire.codec.apis import response_class, response_header_version
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode_request
from sharegroup.wire.codec.headers import decode_response_header
from tests.faults.login import Login
from tests.support.limits import HANGING_SECONDS


class RawConnection:
    """A bare socket to a broker; every wait ends after ``seconds``."""

    def __init__(
        self, port: int, *, seconds: float = HANGING_SECONDS, login: Login | None = None
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        # As clients do: or the end of a large request waits for a delayed acknowledgement.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = self.socket.getsockname()
        if login is not None:
            self.socket = login.enter(self.socket)
        self.address = f"{host}:{port}"
        """As the broker's log names this peer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send, whatever the broker thinks of it: it may have closed in the middle."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def send_frame(self, frame: bytes) -> None:
        self.send(struct.pack(">i", len(frame)) + frame)

    def answer(self) -> bytes | None:
        """The next frame, or None when the broker closed the connection."""
        size = self._exactly(4)
        return None if size is None else self._exactly(struct.unpack(">i", size)[0])

    def ask(self, message: Any, correlation_id: int = 1) -> Any:
        """Send a well-formed request and decode its answer."""
        self.send(b"".join(encode_request(correlation_id, "raw", message)))
        frame = self.answer()
        if frame is None:
            raise ConnectionResetError(f"no answer to {type(message).__name__}: closed")
        key, version = message.__api_key__, message.__version__
        came, position = decode_response_header(frame, response_header_version(key, version))
        assert came == correlation_id
        return decode(response_class(key, version), frame, position)[0]

    def _exactly(self, count: int) -> bytes | None:
        parts: list[bytes] = []
        while count > 0:
            try:
                part = self.socket.recv(min(count, 1 << 20))
            except ConnectionResetError:
                return None
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class Bystander:
    """A well-behaved client that asks on a connection of its own, all the time, in a thread.

    ``slowest`` is the longest that one of its answers took, in seconds.
    """

    def __init__(self, port: int, message: Any) -> None:
        self.slowest = 0.0
        self.answers = 0
        self._message = message
        self._connection = RawConnection(port)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="bystander")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._connection.socket.close()
        if kind is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.02):
                began = time.monotonic()
                self._connection.ask(self._message)
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.answers += 1
        except BaseException as error:  # noqa: BLE001  Raised in the test's own thread.
            self._failure = error
