"""Letters of a redrive are read ahead, within limits, and what is taken is as it was read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest

from sharegroup.client.fetch.record_reading import PartitionRange, Unreadable
from sharegroup.client.records import TopicPartition
from sharegroup.dead_letters.queue import Chunk
from sharegroup.dead_letters.redrive_copies import Copy
from sharegroup.errors import KafkaError, UnknownTopicOrPartition, UnreadableBatch
from sharegroup.jobs.letters_ahead import LettersAhead
from tests.integration.worker.collecting import on_a_loop

DEAD = TopicPartition("orders.dead", 0)
BAD = PartitionRange(DEAD, 20, 30)
LETTERS_MAX = 5
BYTES_MAX = 1_000


def copy_of(offset: int, size: int = 10, key: bytes | None = None) -> Copy:
    return Copy((0, offset), "", None, key, b"x" * size, None, False, False)


def chunk(*letters: Copy) -> Chunk[Copy]:
    end = letters[-1].offset + 1 if letters else 0
    return Chunk(0, letters, frozenset(), end)


class Source:
    """Chunks to read, how many were read, and the unreadable batches that were told."""

    def __init__(self, *given: Chunk[Copy] | KafkaError) -> None:
        self._given = given
        self.read = 0
        self.is_closed = False
        self.told: list[PartitionRange] = []

    async def chunks(self, unreadable: Unreadable) -> AsyncGenerator[Chunk[Copy], None]:
        try:
            for given in self._given:
                if isinstance(given, UnreadableBatch):
                    unreadable(BAD, given)
                elif isinstance(given, KafkaError):
                    raise given
                else:
                    self.read += 1
                    yield given
        finally:
            self.is_closed = True

    def ahead(self) -> LettersAhead:
        return LettersAhead(
            self.chunks,
            lambda batch, _: self.told.append(batch),
            letters_max=LETTERS_MAX,
            bytes_max=BYTES_MAX,
        )


async def turns(count: int = 100) -> None:
    """What else the runner does, for example a commit."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("made", "read"),
    [
        (lambda n: chunk(copy_of(2 * n), copy_of(2 * n + 1)), 3),
        (lambda n: chunk(copy_of(n, 600)), 2),
        (lambda n: chunk(copy_of(n, 0, key=b"k" * 600)), 2),
        (lambda n: chunk(), 5),
    ],
    ids=["letters", "bytes", "keys of copies that are not sent", "chunks without letters"],
)
@on_a_loop
async def test_letters_are_read_ahead_up_to_a_limit(
    made: Callable[[int], Chunk[Copy]], read: int
) -> None:
    source = Source(*map(made, range(20)))
    async with source.ahead() as ahead:
        await turns()
        assert source.read == read
        await anext(ahead)
        await turns()
        assert source.read == read + 1, "what is taken makes room"
        rest = [portion async for portion in ahead]
    assert len(rest) == 19


@on_a_loop
async def test_chunk_is_divided_by_size_and_nothing_is_left_out() -> None:
    sizes = {2: 2_000, 3: 400, 4: 600, 7: 1, 8: 5_000, 9: 1}
    given = chunk(*(copy_of(offset, size) for offset, size in sizes.items()))._replace(end=15)
    async with Source(given).ahead() as ahead:
        portions = [portion async for portion in ahead]
    offsets = [[copy.offset for copy in portion.chunk.letters] for portion in portions]
    assert offsets == [[2], [3, 4], [7], [8], [9]]
    assert [portion.chunk.end for portion in portions] == [3, 5, 8, 9, 15]
    assert [portion.bytes for portion in portions] == [2_000, 1_000, 1, 5_000, 1]


@on_a_loop
async def test_unreadable_batches_are_told_in_their_turn_and_behind_the_last_letter() -> None:
    bad = UnreadableBatch(
        KafkaError(), topic="t", partition=0, first=20, end=30, batch=b"", action=""
    )
    source = Source(chunk(copy_of(1)), bad, chunk(copy_of(30)), bad, bad)
    async with source.ahead() as ahead:
        await turns()
        assert source.told == []
        told = [len(source.told) async for _ in ahead]
    assert (told, len(source.told)) == ([0, 1], 3)
    assert source.told[0] == BAD


@on_a_loop
async def test_error_is_raised_behind_the_letters_that_were_read_before_it() -> None:
    source = Source(chunk(copy_of(1)), chunk(copy_of(2)), UnknownTopicOrPartition("gone"))
    async with source.ahead() as ahead:
        await turns()
        assert [(await anext(ahead)).chunk.end for _ in range(2)] == [2, 3]
        with pytest.raises(UnknownTopicOrPartition, match="gone"):
            await anext(ahead)


@on_a_loop
async def test_who_stops_taking_stops_the_reading() -> None:
    source = Source(*(chunk(copy_of(n)) for n in range(20)))
    async with source.ahead() as ahead:
        await anext(ahead)
        await turns()
        assert not source.is_closed
    assert source.read <= LETTERS_MAX + 1
    assert source.is_closed, "it keeps a response, which is megabytes"
