"""Gives received bytes to TLS in pieces of few records, and counts records without content.

TLS 1.3 has a message that makes both sides derive new keys (KeyUpdate, RFC 8446 section 4.6.3).
It has 27 bytes, costs the receiver 20 us, and may ask for an answer of the same size.  OpenSSL does
not limit its number, and handles everything that it was given within one call.  So a peer could
hold the event loop for 0.2 s with each 256 KB, and an answer that is not read stays in memory.

A connection may send a few such records, and one more for each `CONTENT_RECORDS` records with
content.  Ordinary clients send one after 16 million records, or none.

    record ::= type (1 byte), version (2), length (2), content

A peer ends a connection with a record of the type alert.  OpenSSL keeps the session of a connection
whose end it has read (`transport.TlsLayer`), so `alerts_end` keeps such a record from it.
"""

from __future__ import annotations

import ssl

PIECE_RECORDS = 32
"""Maximum number of records that TLS gets at once."""

PIECE_BYTES = 16 * 1024
"""TLS gets no further record at once after so many bytes.  It never frees the largest buffer that a
connection has needed: with pieces of 256 KiB, each open connection would keep 270 KB."""

OTHER_RECORDS_MAX = 64
"""Number of records without content that a connection may send; more end it."""

CONTENT_RECORDS = 1_000
"""Number of records with content after which a connection may send one more without."""

_HEADER_BYTES = 5
_ALERT = 21
"""The type of a record that ends a connection, or warns."""


class ReceivedRecords:
    """The records that one connection has received."""

    __slots__ = ("_header", "_others", "_skip", "_waiting", "alerts_end", "count", "has_ended")

    def __init__(self) -> None:
        self._waiting = bytearray()
        """Received bytes that TLS has not got yet."""
        self._header = b""
        """The first bytes of a header that is not complete."""
        self._skip = 0
        """The number of bytes before the next header."""
        self._others = 0
        """The records without content, in units of a thousandth record."""
        self.count = 0
        """The records that TLS got and `are_too_many` has not counted yet."""
        self.alerts_end = False
        """Whether TLS gets no alert, and nothing that follows one."""
        self.has_ended = False
        """Whether an alert was kept from TLS."""

    def feed(self, received: memoryview, incoming: ssl.MemoryBIO) -> None:
        """Give received bytes to TLS, up to a whole piece; the rest waits for `feed_more`."""
        if self.has_ended:
            return
        size = len(received)
        if self._waiting:
            self._waiting += received
        elif (
            size > _HEADER_BYTES
            and size == _HEADER_BYTES + (received[3] << 8 | received[4])
            and not (self._skip or self._header or self.alerts_end)
        ):  # The usual case: one record.
            self.count += 1
            incoming.write(received)
        else:
            end = self._end_of_piece(received)
            incoming.write(received[:end])
            if end < size:
                self._waiting += received[end:]

    def feed_more(self, incoming: ssl.MemoryBIO) -> bool:
        """Give TLS the next piece of the bytes that wait; return False if there are none."""
        if not self._waiting or self.has_ended:
            return False
        with memoryview(self._waiting) as waiting:
            end = self._end_of_piece(waiting)
            incoming.write(waiting[:end])
        del self._waiting[:end]
        return end > 0

    def are_too_many(self, content_count: int) -> bool:
        """Return whether too many records had no content; ``content_count`` records had some."""
        if self.count == content_count and not self._others:
            self.count = 0
            return False
        change = CONTENT_RECORDS * (self.count - content_count) - content_count
        self._others, self.count = max(0, self._others + change), 0
        return self._others > CONTENT_RECORDS * OTHER_RECORDS_MAX

    def _end_of_piece(self, received: memoryview) -> int:
        """Count the headers of records in the received bytes; return where the piece ends.

        An alert begins a piece: TLS may complete the handshake before it gets one.
        """
        at, size, end = self._skip, len(received), self.count + PIECE_RECORDS
        while at < min(size, PIECE_BYTES) and self.count < end:
            if (self._header or received[at : at + 1])[0] == _ALERT:
                self.has_ended = self.alerts_end
                if self.has_ended or (at and not self._header):
                    break
            header = self._header + received[at : at + _HEADER_BYTES - len(self._header)]
            at += len(header) - len(self._header)
            if len(header) < _HEADER_BYTES:
                self._header = header
                break
            self._header = b""
            at += header[3] << 8 | header[4]
            self.count += 1
        self._skip = max(0, at - size)
        return min(at, size)
