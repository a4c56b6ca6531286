"""Reads and encodes the letters of the next slice while the last one is sent and committed.

    reader   read 1 │ read 2            │ read 3            │
    runner          │ send 1 ▪ commit 1 │ send 2 ▪ commit 2 │ send 3 ...

The reader writes and counts nothing.  Which letters are sent, and how far the job has come, is
decided when the runner takes them.  So letters that were only read are forgotten if the job ends,
and the next runner reads them again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from types import TracebackType
from typing import NamedTuple, Self

from sharegroup.client.fetch.record_reading import PartitionRange, Unreadable
from sharegroup.dead_letters.queue import Chunk
from sharegroup.dead_letters.redrive_copies import Copy
from sharegroup.errors import KafkaError

Unread = list[tuple[PartitionRange, KafkaError]]


class Portion(NamedTuple):
    """A chunk, or a part of one."""

    chunk: Chunk[Copy]
    bytes: int
    """What the portion keeps in memory, whether its copies are sent or not."""


class LettersAhead:
    """An iterator of portions that are read ahead, up to a number of letters or bytes.

    The chunk that reaches a limit is the last one read, so the limits are exceeded by less than a
    chunk.  No portion has more than ``bytes_max``, unless it is one letter.

    ``unreadable`` is called with batches that cannot be decoded, when the portions before them have
    been taken.
    """

    def __init__(
        self,
        chunks: Callable[[Unreadable], AsyncGenerator[Chunk[Copy], None]],
        unreadable: Unreadable,
        *,
        letters_max: int,
        bytes_max: int,
    ) -> None:
        self._chunks = chunks(lambda batch, error: self._unread.append((batch, error)))
        self._unreadable = unreadable
        self._letters_max = letters_max
        self._bytes_max = bytes_max
        self._ahead: deque[tuple[Unread, Portion]] = deque()
        self._letters = 0
        self._bytes = 0
        self._unread: Unread = []
        """Batches behind the last portion."""
        self._was_read = asyncio.Event()
        self._was_taken = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._reader = asyncio.create_task(self._read(), name="letters ahead")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reader.cancel()
        await asyncio.wait({self._reader})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Portion:
        """Return the next portion; an error of the reader is raised behind those before it."""
        while not self._ahead:
            if self._reader.done():
                self._reader.result()
                self._tell(self._unread)
                raise StopAsyncIteration
            self._was_read.clear()
            await self._was_read.wait()
        unread, portion = self._ahead.popleft()
        self._letters -= _count(portion)
        self._bytes -= portion.bytes
        self._was_taken.set()
        self._tell(unread)
        return portion

    async def _read(self) -> None:
        try:
            # Closed when the letters are not wanted any more, because it keeps a whole response.
            async with aclosing(self._chunks) as chunks:
                async for chunk in chunks:
                    self._add(chunk)
                    await asyncio.sleep(0)  # Answers for the slice that is being sent go first.
                    while self._letters >= self._letters_max or self._bytes >= self._bytes_max:
                        self._was_taken.clear()
                        await self._was_taken.wait()
        finally:
            self._was_read.set()

    def _add(self, chunk: Chunk[Copy]) -> None:
        for portion in _portions(chunk, self._bytes_max):
            self._ahead.append((self._unread, portion))
            self._unread = []
            self._letters += _count(portion)
            self._bytes += portion.bytes
        self._was_read.set()

    def _tell(self, unread: Unread) -> None:
        for batch, error in unread:
            self._unreadable(batch, error)


def _count(portion: Portion) -> int:
    """The number of letters; at least 1, because a filter may leave any number of empty chunks."""
    return max(1, len(portion.chunk.letters))


def _portions(chunk: Chunk[Copy], bytes_max: int) -> Iterator[Portion]:
    """Divide a chunk by the size of what it keeps; a larger copy is a portion of its own."""
    letters = chunk.letters
    # Hot path: each tuple is unpacked, because its fields are slower to look up by name.
    sizes = [
        len(target) + len(content) + (0 if key is None else len(key))
        for _, target, _, key, content, _, _, _ in letters
    ]
    size = sum(sizes)
    if size <= bytes_max:
        yield Portion(chunk, size)
        return
    first = size = 0
    for index, added in enumerate(sizes):
        if index > first and size + added > bytes_max:
            part = letters[first:index]
            yield Portion(chunk._replace(letters=part, end=part[-1].offset + 1), size)
            first, size = index, 0
        size += added
    yield Portion(chunk._replace(letters=letters[first:]), size)
