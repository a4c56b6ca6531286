"""From a stream of bytes to frames: four bytes of length, then that many bytes.

A frame that lies whole in one received chunk is handed out as a view of it: no copy.  One
that spans chunks is joined once, when its last byte is there, so every byte of a large
produce request is copied once however many chunks it came in.  Both suit an asyncio Protocol
whose ``data_received`` hands over each chunk as ``bytes`` of its own; a BufferedProtocol
would have to own a buffer as large as the largest frame.

Nothing is ever allocated for a length that a peer claims: what is held is what came.  A
length outside the limits raises before a byte of its frame is kept.  A peer that sends single
bytes must not cost an object for each of them: runs of small chunks are joined as they come.
"""

from __future__ import annotations

from collections import deque
from struct import Struct

LENGTH_BYTES = 4
FRAME_BYTES_MIN = 8
"""The shortest header: key, version and correlation id of a request.

A response may be shorter, see ``Frames``.
"""

SMALL_CHUNK_BYTES = 1024
SMALL_CHUNKS_MAX = 64
"""So many chunks in a row, each smaller than the bytes above, become one."""

_read_length = Struct(">i").unpack_from


class FrameError(Exception):
    """The peer announced a frame that cannot be right; the connection has to be closed."""


class Frames:
    """The frames of one connection, in order: feed chunks, take frames until there is none.

    ``frame_bytes_min`` is 4 where responses are read: a correlation id and nothing else.
    """

    __slots__ = ("_at", "_buffered", "_bytes_max", "_bytes_min", "_chunks", "_length", "_small")

    def __init__(self, frame_bytes_max: int, frame_bytes_min: int = FRAME_BYTES_MIN) -> None:
        assert 0 < frame_bytes_min <= frame_bytes_max
        self._bytes_max = frame_bytes_max
        self._bytes_min = frame_bytes_min
        self._chunks: deque[memoryview] = deque()
        self._at = 0
        """Position in the first chunk of the first byte not yet taken."""
        self._buffered = 0
        """Bytes not yet taken, over all chunks."""
        self._length = -1
        """Length of the frame that is being received; -1 while the length itself is."""
        self._small = 0
        """How many small chunks came in a row since the last joint."""

    @property
    def partial(self) -> bool:
        """Whether the frame that comes next has begun and is not whole yet."""
        if self._length < 0:
            return 0 < self._buffered < LENGTH_BYTES
        return self._buffered < self._length

    @property
    def buffered_bytes(self) -> int:
        """How much is held at the moment."""
        return self._buffered

    def feed(self, chunk: bytes) -> None:
        """Add what was received.  The chunk is kept, not copied, and must not change."""
        if chunk:
            self._chunks.append(memoryview(chunk))
            self._buffered += len(chunk)
            self._small = self._small + 1 if len(chunk) < SMALL_CHUNK_BYTES else 0
            if self._small == SMALL_CHUNKS_MAX:
                self._join_small()

    def next(self) -> memoryview | None:
        """The next whole frame without its length, or None while it is incomplete.

        Raises FrameError for a length outside the limits; nothing can follow that.
        """
        if self._length < 0:
            if self._buffered < LENGTH_BYTES:
                return None
            self._length = self._checked(_read_length(self._take(LENGTH_BYTES))[0])
        if self._buffered < self._length:
            return None
        frame = self._take(self._length)
        self._length = -1
        return frame

    def _checked(self, length: int) -> int:
        if not self._bytes_min <= length <= self._bytes_max:
            raise FrameError(
                f"frame length {length}: expected {self._bytes_min} to {self._bytes_max} bytes"
            )
        return length

    def _take(self, count: int) -> memoryview:
        """The next ``count`` bytes, which must be there."""
        self._buffered -= count
        first = self._chunks[0]
        end = self._at + count
        if end <= len(first):
            taken = first[self._at : end]
            self._at = end
            self._drop_used()
            return taken
        return self._join(count)

    def _join(self, count: int) -> memoryview:
        """The next ``count`` bytes out of more than one chunk, copied together once.

        They may be written to: nobody else has this copy.
        """
        parts = []
        while count > 0:
            part = self._chunks[0][self._at : self._at + count]
            parts.append(part)
            count -= len(part)
            self._at += len(part)
            self._drop_used()
        return memoryview(bytearray().join(parts))

    def _join_small(self) -> None:
        """The first chunk stays as it is: a part of it may have been taken."""
        self._small = 0
        count = min(SMALL_CHUNKS_MAX, len(self._chunks) - 1)
        if count > 1:
            parts = [self._chunks.pop() for _ in range(count)]
            self._chunks.append(memoryview(b"".join(reversed(parts))))

    def _drop_used(self) -> None:
        if self._at == len(self._chunks[0]):
            self._chunks.popleft()
            self._at = 0
