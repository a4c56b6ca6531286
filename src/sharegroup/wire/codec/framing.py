"""Frames out of a stream of bytes: four bytes of length, then that many bytes.

A frame that lies whole in one received chunk is returned as a view of it, without a copy. A frame
that spans chunks is joined once when its last byte has arrived, so every byte of a large produce
request is copied once, in however many chunks it came. This suits an asyncio Protocol, whose
``data_received`` gets each chunk as ``bytes`` of its own. A BufferedProtocol would need a buffer as
large as the largest frame.

No memory is allocated for a length that a peer claims, only for received bytes. A length outside
the limits raises before a byte of its frame is kept. A peer that sends single bytes must not cost
an object for each of them, so chunks are joined on arrival if they are small on average: the
number of chunks is at most `SMALL_CHUNKS_MAX` and one for each `SMALL_CHUNK_BYTES` received.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import NoReturn

LENGTH_BYTES = 4
FRAME_BYTES_MIN = 8
"""The shortest header: key, version and correlation id of a request.

A response may be shorter, see ``Frames``.
"""

SMALL_CHUNK_BYTES = 1024
"""Average size of chunks below which they are joined; each costs 220 bytes beside its own."""
SMALL_CHUNKS_MAX = 64
"""Number of chunks that may be of any size, and number of chunks that are joined at a time."""

TLS_RECORDS = range(0x160300, 0x160304)
"""The first three bytes of a TLS handshake: its type and the version."""

_read_length = Struct(">i").unpack_from


class FrameError(Exception):
    """The peer announced a frame of invalid length; the connection has to be closed."""


class Frames:
    """The frames of one connection, in order: feed chunks, take frames until there is none.

    ``frame_bytes_min`` is 4 for a connection that receives responses: the correlation id alone.
    """

    __slots__ = (
        "_at",
        "_bytes_max",
        "_bytes_min",
        "_chunks",
        "buffered_bytes",
        "frame_bytes",
    )

    def __init__(self, frame_bytes_max: int, frame_bytes_min: int = FRAME_BYTES_MIN) -> None:
        assert 0 < frame_bytes_min <= frame_bytes_max
        self._bytes_max = frame_bytes_max
        self._bytes_min = frame_bytes_min
        self._chunks: deque[memoryview] = deque()
        self._at = 0
        """Position in the first chunk of the first byte that was not taken yet."""
        self.buffered_bytes = 0
        """Number of bytes that were received and not taken yet."""
        self.frame_bytes = -1
        """Length of the frame that is being received; -1 until the length is known."""

    def limit(self, frame_bytes_max: int, frame_bytes_min: int = FRAME_BYTES_MIN) -> None:
        """Change the limits for the frames whose length is not known yet."""
        assert 0 < frame_bytes_min <= frame_bytes_max
        self._bytes_max = frame_bytes_max
        self._bytes_min = frame_bytes_min

    @property
    def partial(self) -> bool:
        """Whether the next frame has begun and is incomplete."""
        if self.frame_bytes < 0:
            return 0 < self.buffered_bytes < LENGTH_BYTES
        return self.buffered_bytes < self.frame_bytes

    @property
    def needed_bytes(self) -> int:
        """Number of bytes that are held when the incomplete frame is complete."""
        return max(self.buffered_bytes, self.frame_bytes)

    def release_taken(self) -> None:
        """Copy a short rest of a chunk, so the taken bytes before it can be freed."""
        if self._at and self._chunks:
            first = self._chunks[0]
            # A view keeps its whole chunk alive; the copy pays if more than half of it was taken.
            if self._at > len(first) - self._at:
                self._chunks[0] = memoryview(bytes(first[self._at :]))
                self._at = 0

    def clear(self) -> None:
        """Free everything that was received; nothing may follow."""
        self._chunks.clear()
        self._at = self.buffered_bytes = 0
        self.frame_bytes = -1

    def feed(self, chunk: bytes) -> None:
        """Add a received chunk. It is kept, not copied, and must not change."""
        if chunk:
            chunks = self._chunks
            chunks.append(memoryview(chunk))
            self.buffered_bytes += len(chunk)
            surplus = len(chunks) - SMALL_CHUNKS_MAX
            if surplus > 0 and surplus > self.buffered_bytes // SMALL_CHUNK_BYTES:
                self._join_last()

    def next(self) -> memoryview | None:
        """Return the next whole frame without its length, or None while it is incomplete.

        Raises FrameError for a length outside the limits; no frame can follow that.
        """
        if self.frame_bytes < 0:
            if self.buffered_bytes < LENGTH_BYTES:
                return None
            first, at = self._chunks[0], self._at
            size = len(first)
            if size - at >= LENGTH_BYTES:  # The usual case: a whole frame.
                (length,) = _read_length(first, at)
                if not self._bytes_min <= length <= self._bytes_max:
                    self._refuse(length)
                begin = at + LENGTH_BYTES
                end = begin + length
                if end <= size:
                    self.buffered_bytes -= LENGTH_BYTES + length
                    if end == size:
                        self._chunks.popleft()
                        self._at = 0
                    else:
                        self._at = end
                    return first[begin:end]
            # Taken before the frame is whole, so a length is checked once, however many chunks
            # follow, and `needed_bytes` can tell how much memory the frame will take.
            (length,) = _read_length(self._take(LENGTH_BYTES))
            if not self._bytes_min <= length <= self._bytes_max:
                self._refuse(length)
            self.frame_bytes = length
        if self.buffered_bytes < self.frame_bytes:
            return None
        frame = self._take(self.frame_bytes)
        self.frame_bytes = -1
        return frame

    def _refuse(self, length: int) -> NoReturn:
        """Raise the error for a length outside the limits."""
        # Read as a length, a TLS handshake announces 369 MB, which a large limit would permit: so
        # this is only the explanation of a length that was refused.
        if length >> 8 in TLS_RECORDS:
            raise FrameError(
                "the bytes are the beginning of a TLS handshake; the listener is PLAINTEXT"
            )
        raise FrameError(
            f"frame length {length}: expected {self._bytes_min} to {self._bytes_max} bytes"
        )

    def _take(self, count: int) -> memoryview:
        """Return the next ``count`` bytes, which must have been received."""
        self.buffered_bytes -= count
        first = self._chunks[0]
        end = self._at + count
        if end <= len(first):
            taken = first[self._at : end]
            self._at = end
            self._drop_used()
            return taken
        return self._join(count)

    def _join(self, count: int) -> memoryview:
        """Return the next ``count`` bytes of several chunks, copied together once.

        The caller may write to them, because it alone has this copy.
        """
        parts = []
        while count > 0:
            part = self._chunks[0][self._at : self._at + count]
            parts.append(part)
            count -= len(part)
            self._at += len(part)
            self._drop_used()
        return memoryview(bytearray().join(parts))

    def _join_last(self) -> None:
        """Join the last chunks, but not the first chunk, of which a part may have been taken.

        A joined chunk is joined again until it is larger than `SMALL_CHUNK_BYTES`, so a byte is
        copied a few times and not once for each later byte.
        """
        parts = [self._chunks.pop() for _ in range(SMALL_CHUNKS_MAX)]
        self._chunks.append(memoryview(b"".join(reversed(parts))))

    def _drop_used(self) -> None:
        if self._at == len(self._chunks[0]):
            self._chunks.popleft()
            self._at = 0
