"""Pieces of logs that are read before anybody asks, while their reader is at work.

A member takes some records, works on them and takes the next ones.  To read those, and to compare
checksums, there is time in between: what it asks for then is in memory.

    broker   | answer | read ahead |         | answer | read ahead |
    member            |   works on it    |            |   works on it    |

Whoever reads says what will probably be read next (`expect`), and who has sent the answers says
when there is time (`read_expected`).  A piece is known by its segment, position and size, and given
out once.  Nothing that can be read changes in place (compaction makes another segment), so a piece
is never out of date.  Few are kept, whatever the number of logs, for whoever does not come back.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol, TypeVar

from sharegroup.errors import CorruptMessage, KafkaStorageError
from sharegroup.storage.segment import Segment

K = TypeVar("K")
V = TypeVar("V")

PIECES_MAX = 4
PIECE_BYTES_MAX = 1024 * 1024

Place = tuple[Segment, int, int]
"""A segment, and a position and a size in its file."""


class Reader(Protocol):
    """Whose pieces they are."""

    def read_ahead(self, first: int, *, end: int) -> None:
        """Read what holds these offsets and `ReadAhead.keep` it."""


class ReadAhead:
    """The pieces of all logs of a data directory."""

    __slots__ = ("_expected", "_pieces")

    def __init__(self) -> None:
        self._expected: dict[Reader, tuple[int, int]] = {}
        self._pieces: dict[Place, bytes] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._pieces

    @property
    def is_due(self) -> bool:
        """Whether there is something to read as soon as there is time."""
        return bool(self._expected)

    def expect(self, reader: Reader, first: int, end: int) -> None:
        """The offsets ``[first, end)`` are probably what ``reader`` is asked for next."""
        self._expected[reader] = (first, end)
        _drop_oldest(self._expected)

    def forget(self, reader: Reader) -> None:
        """Nothing is read from it any more."""
        self._expected.pop(reader, None)

    def read_expected(self) -> None:
        """Read what is expected: all that was to be answered at once is on its way."""
        expected, self._expected = self._expected, {}
        for reader, (first, end) in expected.items():
            # Who asks for it will be told what is wrong with it.
            with suppress(CorruptMessage, KafkaStorageError):
                reader.read_ahead(first, end=end)

    def keep(self, place: Place, piece: bytes) -> None:
        """Keep what lies there, which is sound, in place of the oldest if there are too many."""
        self._pieces[place] = piece
        _drop_oldest(self._pieces)

    def take(self, place: Place) -> bytes | None:
        """What lies there, if it was read ahead; it is kept no longer."""
        return self._pieces.pop(place, None)


def _drop_oldest(some: dict[K, V]) -> None:
    if len(some) > PIECES_MAX:
        del some[next(iter(some))]
