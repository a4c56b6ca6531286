"""TLS between an accepted connection and its protocol: the handshake, then an encrypted transport.

`TlsLayer` is the protocol of the raw transport.  It decrypts received bytes with an ``SSLObject``
and encrypts written ones.  When the handshake is complete, it makes the protocol of the connection
and gives it a `TlsTransport`.

Why not the event loop's own TLS (``create_server(ssl=...)``, ADR 0031): its ``connection_made`` is
called after the handshake, so nobody could count and limit pending handshakes.  It sends no alert
when a handshake fails, so Java clients try again for ever instead of reporting the certificate.
It keeps a buffer of 256 KiB for each connection, and its ``get_write_buffer_size`` omits bytes that
are encrypted but not sent.

    raw transport ──▶ buffer_updated ──▶ incoming ──▶ SSLObject.read ──▶ protocol.data_received
    raw transport ◀── write ◀── outgoing ◀── SSLObject.write ◀── backlog ◀── TlsTransport.writelines

While the peer does not read, written chunks stay in the backlog as they are, and at most
`PIECE_BYTES` are encrypted ahead.  TLS gets received bytes in pieces of few records (`records`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, Protocol, cast

from sharegroup.broker.tls.records import OTHER_RECORDS_MAX, ReceivedRecords
from sharegroup.core.security.principal import Principal

BUFFER_BYTES = 256 * 1024
PIECE_BYTES = 256 * 1024
"""The most bytes that are encrypted in one step."""

RECORD_BYTES = 16 * 1024
"""The content of the largest TLS record; smaller chunks are joined up to this size."""

RAW_BUFFER_BYTES_MAX = 64 * 1024
"""Encrypted bytes that may wait for a slow reader before no more are encrypted."""

HANDSHAKE_BYTES_MAX = 256 * 1024
"""Bytes that a peer may send before the handshake is complete."""

HANDSHAKE_RECORDS_MAX = 128
"""TLS records that a peer may send before the handshake is complete; clients need about six."""

_HANDSHAKE_RECORD = 22
"""The first byte of a TLS handshake."""

_NO_RECORD = b"\xff" * (5 + RECORD_BYTES + 2_048)
"""No record of TLS, wherever it begins: it is longer than the rest of the longest one."""

_CLOSED_BY_PEER = "the peer closed the connection during the TLS handshake"

Chunk = bytes | bytearray | memoryview


class Buffers:
    """Memory for the bytes that one connection receives at a time, shared by all connections.

    They are used within one call, in which no other connection receives anything.
    """

    __slots__ = ("encrypted", "plain")

    def __init__(self) -> None:
        self.encrypted = memoryview(bytearray(BUFFER_BYTES))
        self.plain = memoryview(bytearray(BUFFER_BYTES))


class Handshaker(Protocol):
    """The owner of the handshakes of one listener."""

    def accepted(self, layer: TlsLayer) -> bool:
        """Register an accepted connection; return False if it must be closed."""

    def received(self, layer: TlsLayer) -> None:
        """Let the handshake go on with `TlsLayer.shake`, now or when there is time."""

    def new_object(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        """Return the TLS object of a new connection."""

    def completed(self, layer: TlsLayer, certificate: bytes | None) -> Principal | None:
        """Register a complete handshake; return the user of the client's certificate, if any.

        Raises PermissionError if the certificate has no user.
        """

    def failed(self, layer: TlsLayer, reason: str) -> None:
        """Report a failed handshake."""

    def misused(self, layer: TlsLayer, reason: str) -> None:
        """Report that a connection is closed because its peer misuses TLS."""

    def closed(self, layer: TlsLayer) -> None:
        """Forget a connection that was closed before its handshake was complete."""


class _TransportState(Enum):
    HANDSHAKE = auto()
    OPEN = auto()
    FAILED = auto()
    """The handshake failed; the peer reads why, and closes the connection."""
    CLOSING = auto()
    """The last bytes are sent; received bytes are dropped."""
    CLOSED = auto()


class _End(Enum):
    """Why nothing is read from an open connection any more."""

    CLOSED = auto()
    MISUSED = auto()


class TlsLayer(asyncio.BufferedProtocol):
    """TLS of one accepted connection."""

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_buffers",
        "_handshake_bytes",
        "_handshaker",
        "_high",
        "_incoming",
        "_is_raw_paused",
        "_is_reading",
        "_is_writing_paused",
        "_make_protocol",
        "_object",
        "_outgoing",
        "_protocol",
        "_raw",
        "_read_end",
        "_records",
        "_state",
        "began_ms",
        "connection_id",
        "host",
        "peer",
        "principal",
    )

    def __init__(
        self,
        handshaker: Handshaker,
        make_protocol: Callable[[int], asyncio.Protocol],
        buffers: Buffers,
        *,
        connection_id: int,
        now_ms: int,
    ) -> None:
        self._handshaker = handshaker
        self._make_protocol = make_protocol
        self._buffers = buffers
        self.connection_id = connection_id
        self.began_ms = now_ms
        self.host, self.peer = "", "unknown"
        self.principal: Principal | None = None
        """The user of the client's certificate; None without one."""
        self._raw: asyncio.Transport | None = None
        self._protocol: asyncio.Protocol | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._records = ReceivedRecords()
        self._object: ssl.SSLObject | None = None
        self._state = _TransportState.HANDSHAKE
        self._handshake_bytes = 0
        self._backlog: deque[Chunk] = deque()
        self._backlog_bytes = 0
        self._high = RAW_BUFFER_BYTES_MAX
        self._is_raw_paused = self._is_writing_paused = False
        self._is_reading = True
        self._read_end: _End | None = None
        """Why nothing follows what was decrypted; None if more may follow."""

    # What the limits on connections need to know (`admission.Admitted`).

    @property
    def idle_since_ms(self) -> int | None:
        """The time at which the handshake began: it may give way to a new connection."""
        return self.began_ms

    def close(self, reason: str) -> None:
        """End at once a handshake that takes too long or gives way to another connection."""
        if self._state is _TransportState.HANDSHAKE:
            self._handshaker.failed(self, reason)
        self.abort()

    # The protocol of the raw transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection; close it if there are too many."""
        # uvloop's transports have the methods of asyncio's class but do not inherit from it.
        self._raw = cast("asyncio.Transport", transport)
        self._raw.set_write_buffer_limits(high=RAW_BUFFER_BYTES_MAX)
        address = self._raw.get_extra_info("peername")
        if address:
            self.host, self.peer = address[0], f"{address[0]}:{address[1]}"
        if not self._handshaker.accepted(self):
            self._state = _TransportState.CLOSED
            self._raw.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        was_shaking = self._state is _TransportState.HANDSHAKE
        self._state = _TransportState.CLOSED
        self._backlog.clear()
        self._backlog_bytes = 0
        self._free_buffers()
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(exc)
            return
        if was_shaking:
            self._handshaker.failed(self, _CLOSED_BY_PEER)
        self._handshaker.closed(self)

    def _free_buffers(self) -> None:
        """Free what TLS holds, now and not when the garbage collector comes.

        A connection and its transports refer to each other.  The collector counts objects, of
        which a closed connection has few, and not the buffers of OpenSSL.
        """
        self._forget_session()
        self._object = None
        self._incoming = self._outgoing = ssl.MemoryBIO()
        self._records = ReceivedRecords()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  The signature of asyncio.
        return self._buffers.encrypted

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes; they are lost if the connection is closing."""
        if self._state is _TransportState.OPEN:
            self._records.feed(self._buffers.encrypted[:nbytes], self._incoming)
            self._read()
        elif self._state is _TransportState.HANDSHAKE:
            received = self._buffers.encrypted[:nbytes]
            if not self._handshake_bytes and received[0] != _HANDSHAKE_RECORD:
                self._fail("the peer sent bytes that are not TLS; does it use PLAINTEXT?")
                return
            self._handshake_bytes += nbytes
            if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
                self._fail(f"the TLS handshake has more than {HANDSHAKE_BYTES_MAX} bytes")
                return
            self._records.feed(received, self._incoming)
            self._handshaker.received(self)

    def pause_writing(self) -> None:
        self._is_raw_paused = True

    def resume_writing(self) -> None:
        self._is_raw_paused = False
        if self._state is _TransportState.CLOSING:
            self._finish()
        elif self._state is _TransportState.OPEN:
            self._encrypt()

    # The handshake.

    def wait(self) -> None:
        """Receive nothing until `shake` is called."""
        if self._raw is not None:
            self._raw.pause_reading()

    @property
    def is_shaking(self) -> bool:
        """Whether the handshake is neither complete nor failed."""
        return self._state is _TransportState.HANDSHAKE

    def shake(self) -> None:
        """Go on with the handshake, with the bytes that were received."""
        assert self._raw is not None
        if self._state is not _TransportState.HANDSHAKE or self._raw.is_closing():
            return  # The peer may have gone while the handshake waited for its turn.
        try:
            if self._object is None:  # Made late: peers that send nothing cost less memory.
                self._object = self._handshaker.new_object(self._incoming, self._outgoing)
            while not self._is_shaken():
                if self._records.count > HANDSHAKE_RECORDS_MAX:
                    self._fail(f"the TLS handshake has more than {HANDSHAKE_RECORDS_MAX} records")
                    return
                if not self._records.feed_more(self._incoming):
                    self._flush()
                    self._raw.resume_reading()
                    return
        except ssl.SSLError as error:
            self._flush()  # The alert says why, so that the client need not guess.
            self._fail(f"the TLS handshake failed: {_reason(error)}")
            return
        self._flush()
        self._open()

    def _is_shaken(self) -> bool:
        """Go on with the handshake; return whether it is complete."""
        assert self._object is not None
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._records.count = 0
        return True

    def _open(self) -> None:
        assert self._object is not None
        assert self._raw is not None
        try:
            certificate = self._object.getpeercert(binary_form=True)
            self.principal = self._handshaker.completed(self, certificate)
        except PermissionError as error:
            self._fail(str(error))
            return
        self._state = _TransportState.OPEN
        self._records.alerts_end = self._may_be_cached()
        self._protocol = self._make_protocol(self.connection_id)
        self._protocol.connection_made(TlsTransport(self))
        if self._is_reading:
            self._raw.resume_reading()
            self._read()

    def _fail(self, reason: str) -> None:
        """End the handshake, after the peer has received the alert, if any.

        A socket with unread bytes would be reset when it is closed, and the peer would lose the
        alert.  So this side of the connection is ended, and received bytes are dropped until the
        peer closes it, or `close` is called.
        """
        assert self._raw is not None
        self._state = _TransportState.FAILED
        self._raw.write_eof()
        self._raw.resume_reading()
        self._handshaker.failed(self, reason)

    # Decryption.

    def _read(self) -> None:
        """Give the protocol the received bytes, as many at a time as the buffer holds."""
        while self._state is _TransportState.OPEN and self._is_reading:
            if self._read_end is not None:
                self._end(self._read_end)
                return
            plain, self._read_end = self._decrypt()
            if plain:
                assert self._protocol is not None
                self._protocol.data_received(plain)
            # Not yet if the protocol reads nothing now: it has requests that wait.
            if self._read_end is None and len(plain) < BUFFER_BYTES:
                break
        if self._state is _TransportState.OPEN:
            self._flush()  # Tickets, and answers to changes of keys.

    def _end(self, end: _End) -> None:
        """Close a connection from which nothing follows."""
        if end is _End.MISUSED:
            self._handshaker.misused(
                self, f"more than {OTHER_RECORDS_MAX} TLS records without content"
            )
            self.abort()
        elif self._state is _TransportState.OPEN:
            self.close_gracefully()

    def _decrypt(self) -> tuple[bytes, _End | None]:
        """Return decrypted bytes, and why nothing follows; None if more may follow."""
        assert self._object is not None
        plain, read, incoming = self._buffers.plain, self._object.read, self._incoming
        records, pending = self._records, self._object.pending
        count, end = 0, None
        while end is None and count < BUFFER_BYTES:
            record_count = 0
            try:
                while count < BUFFER_BYTES:
                    length = cast("int", read(BUFFER_BYTES - count, cast("Any", plain[count:])))
                    count += length
                    if not length:
                        end = _End.CLOSED
                        break
                    record_count += 1
                    # An exception for want of bytes costs more than these questions.
                    if not incoming.pending and not pending():
                        break
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:  # Also the peer's notice that it ends the connection.
                end = _End.CLOSED
            if records.are_too_many(record_count):
                end = _End.MISUSED
            elif count < BUFFER_BYTES and not records.feed_more(incoming):
                if records.has_ended:
                    end = _End.CLOSED
                break
        return bytes(plain[:count]), end

    # Encryption.

    def _encrypt(self) -> None:
        """Encrypt and send the backlog until the peer does not read fast enough."""
        while self._backlog and not self._is_raw_paused:
            self._send_piece()
        self._adjust_writing()

    def _send_piece(self) -> None:
        """Encrypt and send a piece, one TLS record at a time.

        The buffer between never shrinks, so it gets no more than a record.
        """
        assert self._object is not None
        assert self._raw is not None
        piece, write, read = self._next_piece(), self._object.write, self._outgoing.read
        encrypted = []
        while len(piece):
            piece = piece[write(piece[:RECORD_BYTES]) :]
            encrypted.append(read())
        self._raw.writelines(encrypted)

    def _next_piece(self) -> memoryview:
        """Take the bytes to be encrypted next; small chunks are joined to a record."""
        backlog = self._backlog
        first = memoryview(backlog.popleft())
        if len(first) > PIECE_BYTES:
            backlog.appendleft(first[PIECE_BYTES:])
            first = first[:PIECE_BYTES]
        elif len(first) < RECORD_BYTES and backlog:
            joined, count = [first], len(first)
            while backlog and count < RECORD_BYTES:
                chunk = memoryview(backlog.popleft())
                room = RECORD_BYTES - count
                if len(chunk) > room:
                    backlog.appendleft(chunk[room:])
                    chunk = chunk[:room]
                joined.append(chunk)
                count += len(chunk)
            first = memoryview(b"".join(joined))
        self._backlog_bytes -= len(first)
        return first

    def _flush(self) -> None:
        """Send what the TLS object has to send by itself, unless the peer does not read."""
        if self._outgoing.pending and not self._is_raw_paused:
            assert self._raw is not None
            self._raw.write(self._outgoing.read())

    def _adjust_writing(self) -> None:
        """Tell the protocol when it should stop to write, and when it may go on."""
        waiting = self.unsent_bytes
        assert self._protocol is not None
        if waiting > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()
        elif waiting <= self._high // 4 and self._is_writing_paused:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    # What `TlsTransport` offers to the protocol.

    @property
    def unsent_bytes(self) -> int:
        """The bytes that were written and are not sent yet, encrypted or not."""
        if self._state is _TransportState.CLOSED or self._raw is None:
            return 0
        return self._backlog_bytes + self._outgoing.pending + self._raw.get_write_buffer_size()

    @property
    def is_closing(self) -> bool:
        return self._state is not _TransportState.OPEN

    def limit_unsent(self, high: int) -> None:
        """Set the number of unsent bytes above which the protocol is told to stop writing."""
        self._high = high

    def fact(self, name: str, default: Any) -> Any:
        """Return facts about the connection."""
        if name == "principal":
            return self.principal
        if name == "ssl_object":
            return self._object
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def write(self, chunks: Iterable[Chunk]) -> None:
        """Encrypt and send chunks; those that the peer does not read yet are kept."""
        if self._state is not _TransportState.OPEN:
            return
        for chunk in chunks:
            if len(chunk):
                self._backlog.append(chunk)
                self._backlog_bytes += len(chunk)
        self._encrypt()

    def set_reading(self, is_reading: bool) -> None:
        """Begin or stop to receive."""
        if self._state is not _TransportState.OPEN or is_reading is self._is_reading:
            return
        assert self._raw is not None
        self._is_reading = is_reading
        if is_reading:
            self._raw.resume_reading()
            # Not now: the protocol is in the middle of its own work.
            asyncio.get_running_loop().call_soon(self._read)
        else:
            self._raw.pause_reading()

    def close_gracefully(self) -> None:
        """Send what was written, and the notice that nothing follows; then close."""
        if self._state is not _TransportState.OPEN:
            return
        assert self._raw is not None
        self._state = _TransportState.CLOSING
        if not self._is_reading:
            self._raw.resume_reading()  # To notice that the peer has gone.
        self._finish()

    def _finish(self) -> None:
        assert self._object is not None
        assert self._raw is not None
        while self._backlog and not self._is_raw_paused:
            self._send_piece()
        if self._backlog:
            return
        if not self._may_be_cached():
            with contextlib.suppress(ssl.SSLError):  # Nobody waits for the peer's own notice.
                self._object.unwrap()
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())
        self._raw.close()

    def _may_be_cached(self) -> bool:
        """Return whether OpenSSL may keep the session in memory, for a client without tickets.

        It keeps up to 20,480 sessions for two hours, with a client certificate 11 KB each, and
        Python cannot turn that off.  The session itself cannot be asked: ``SSLObject.session``
        leaks a copy (CPython 3.11).
        """
        if self._object is None or self._object.version() != "TLSv1.2":
            return False  # Sessions of TLS 1.3 are in tickets, or nowhere.
        return self._object.context.session_stats()["number"] > 0

    def _forget_session(self) -> None:
        """Make OpenSSL forget a session that it may keep in memory.

        It does so after an error that ends the connection, unless one side has ended it before: so
        the peer's notice is kept from it (`ReceivedRecords.alerts_end`), and it gets what is no
        record.  Freeing a connection without a notice did the same (SSL_free(3)) until gh-116810:
        CPython 3.14, and late patch releases before it, mark each as ended when they free it.
        """
        if not self._may_be_cached():
            return
        assert self._object is not None
        self._incoming.write(_NO_RECORD)
        with contextlib.suppress(ssl.SSLError):  # The aim.  The answer is never sent.
            while self._object.read(RECORD_BYTES):  # What the protocol did not read before.
                pass

    def abort(self) -> None:
        """Close at once; unsent bytes are lost."""
        if self._raw is not None:
            self._state = _TransportState.CLOSED
            self._raw.abort()


class TlsTransport(asyncio.Transport):
    """The transport of a protocol whose bytes are encrypted."""

    __slots__ = ("_layer",)

    def __init__(self, layer: TlsLayer) -> None:
        super().__init__()
        self._layer = layer

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._layer.fact(name, default)

    def is_closing(self) -> bool:
        return self._layer.is_closing

    def close(self) -> None:
        self._layer.close_gracefully()

    def abort(self) -> None:
        self._layer.abort()

    def pause_reading(self) -> None:
        self._layer.set_reading(False)

    def resume_reading(self) -> None:
        self._layer.set_reading(True)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the upper limit; the lower one is a quarter of it."""
        assert high is not None
        assert low is None
        self._layer.limit_unsent(high)

    def get_write_buffer_size(self) -> int:
        return self._layer.unsent_bytes

    def write(self, data: Chunk) -> None:
        self._layer.write((data,))

    def writelines(self, list_of_data: Iterable[Chunk]) -> None:
        self._layer.write(list_of_data)


def _reason(error: ssl.SSLError) -> str:
    """Return the reason in words, such as "no shared cipher"."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not valid: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
