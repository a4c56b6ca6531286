"""Reads pieces of logs ahead, while the members process the records before them.

A member fetches some records, processes them and fetches the next ones.  In the meantime the broker
reads the next records and compares their checksums, so they are in memory when they are fetched.

    broker   | answer | read ahead |         | answer | read ahead |
    member            |   works on it    |            |   works on it    |

The code that serves a fetch announces the offsets that will probably be read next (`expect`).  The
code that has sent the responses starts the reads (`read_expected`).  A piece is identified by its
segment, position and size, and returned once.  Readable bytes never change in place (compaction
creates another segment), so a piece is never out of date.  Only a few pieces are kept for all logs
together, because a member may never fetch its piece.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol, TypeVar

from sharegroup.errors import CorruptMessage, KafkaStorageError
from sharegroup.storage.segment.segment import Segment

K = TypeVar("K")
V = TypeVar("V")

PIECES_MAX = 4
PIECE_BYTES_MAX = 1024 * 1024

Place = tuple[Segment, int, int]
"""A segment, and a position and a size in its file."""


class PieceReader(Protocol):
    """The reader of a log, which reads pieces ahead."""

    def read_ahead(self, first: int, *, end: int) -> None:
        """Read the batches with the offsets ``[first, end)`` and call `ReadAhead.keep`."""


class ReadAhead:
    """The pieces that were read ahead for all logs of a data directory."""

    __slots__ = ("_expected", "_pieces")

    def __init__(self) -> None:
        self._expected: dict[PieceReader, tuple[int, int]] = {}
        self._pieces: dict[Place, bytes] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._pieces

    @property
    def is_due(self) -> bool:
        """Whether a read is expected and has not been done."""
        return bool(self._expected)

    def expect(self, reader: PieceReader, first: int, end: int) -> None:
        """Note that ``reader`` will probably be asked for the offsets ``[first, end)`` next."""
        self._expected[reader] = (first, end)
        _drop_oldest(self._expected)

    def forget(self, reader: PieceReader) -> None:
        """Drop the expected read of ``reader``, which is closed."""
        self._expected.pop(reader, None)

    def read_expected(self) -> None:
        """Do the expected reads; to be called after the pending responses were sent."""
        expected, self._expected = self._expected, {}
        for reader, (first, end) in expected.items():
            # The fetch of these offsets will report the error.
            with suppress(CorruptMessage, KafkaStorageError):
                reader.read_ahead(first, end=end)

    def keep(self, place: Place, piece: bytes) -> None:
        """Keep a sound piece; drop the oldest piece if there are more than `PIECES_MAX`."""
        self._pieces[place] = piece
        _drop_oldest(self._pieces)

    def take(self, place: Place) -> bytes | None:
        """Remove and return the piece at ``place``, or None if it was not read ahead."""
        return self._pieces.pop(place, None)


def _drop_oldest(kept: dict[K, V]) -> None:
    if len(kept) > PIECES_MAX:
        del kept[next(iter(kept))]
