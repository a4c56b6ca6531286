"""A topic of dead letters, open for looking, sending back and giving up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self, Unpack

from sharegroup.client.admin_topics import delete_records, describe_topics, list_offsets
from sharegroup.client.admin_types import ListedOffset, TopicDescription
from sharegroup.client.cluster import Cluster
from sharegroup.client.config import ClientConfig, ClientOptions, config_from
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError, UnsupportedVersion
from sharegroup.ids import TopicId, topic_id_text
from sharegroup.worker.dead_letters.ledger import Entry, Ledger
from sharegroup.worker.dead_letters.letter import Letter, letter_of
from sharegroup.worker.dead_letters.log_reading import Span, read, spans_of
from sharegroup.worker.dead_letters.originals import completed
from sharegroup.worker.dead_letters.selection import EVERYTHING, Selection

CHUNK_LETTERS_MAX = 1_000
"""What is worked on at a time."""


CLOCKS_APART_MS = 10 * 60 * 1000
"""Letters have the times of those who wrote them, and so may be out of order by as much."""
COMPLETED_LETTERS_MAX = 200
"""Of letters that lack their records: these may be large, and come from elsewhere."""


class Chunk(NamedTuple):
    """Letters of one partition, in order, that a selection chose."""

    partition: int
    letters: Sequence[Letter]
    redriven: frozenset[int]
    """Offsets of those that were sent back before."""


class DeadLetterQueue:
    """The letters in one topic, as they are now.

    Example::

        async with DeadLetterQueue("orders.dead", bootstrap_servers=bootstrap) as queue:
            async for chunk in queue.chunks(Selection(error_class="TimeoutError")):
                for letter in chunk.letters:
                    print(letter.death.error_message)
    """

    def __init__(self, topic: str, **options: Unpack[ClientOptions]) -> None:
        self.topic = topic
        self.cluster = Cluster(config_from(ClientConfig, options))
        self.spans: list[Span] = []
        """What there is to look at: later letters are the next one's."""
        self.ledger = Ledger(topic, "")
        self.noted: list[Entry] = []

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            self.cluster.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cluster.close()

    async def _open(self) -> None:
        described = (await describe_topics(self.cluster, [self.topic]))[self.topic]
        if not isinstance(described, TopicDescription):
            raise described
        if described.topic_id is None:
            raise UnsupportedVersion(f"topic {self.topic!r}: its broker knows no topic ids")
        self.ledger = Ledger(self.topic, topic_id_text(TopicId(described.topic_id)))
        self.noted = await self.ledger.load(self.cluster)
        self.spans = await spans_of(self.cluster, self.topic)

    async def chunks(
        self,
        selection: Selection = EVERYTHING,
        *,
        size: int = CHUNK_LETTERS_MAX,
        complete: bool = False,
    ) -> AsyncIterator[Chunk]:
        """The letters that match, partition by partition.

        ``complete`` looks for the records themselves where a broker's letters lack them.
        """
        for span in await self._touched(selection):
            async for records in read(self.cluster, span):
                if not records:
                    continue
                ends = records[0].offset, records[-1].offset + 1
                done = self.ledger.done(span.where.partition, *ends)
                letters = [letter_of(*span.where, record) for record in records]
                lacking = complete and any(one.lacks_its_record for one in letters)
                step = min(size, COMPLETED_LETTERS_MAX) if lacking else size
                for low in range(0, len(letters), step):
                    some = letters[low : low + step]
                    if lacking:
                        some = await completed(self.cluster, some)
                    if selection is not EVERYTHING:
                        some = [x for x in some if selection.matches(x, redriven=x.offset in done)]
                    if some:
                        again = frozenset(one.offset for one in some if one.offset in done)
                        yield Chunk(span.where.partition, some, again)

    async def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete all letters below these offsets."""
        for failed in (await delete_records(self.cluster, offsets)).values():
            if isinstance(failed, KafkaError):
                raise failed

    async def _touched(self, selection: Selection) -> list[Span]:
        """The spans that can hold what is selected; single places need no whole log."""
        if selection.places:
            return [
                Span(span.where, max(span.first, min(offsets)), min(span.end, max(offsets) + 1))
                for span in self.spans
                if (offsets := _offsets_in(selection.places, span.where.partition))
            ]
        if selection.since_ms is None:
            return self.spans
        at_ms = max(0, selection.since_ms - CLOCKS_APART_MS)
        firsts = await list_offsets(
            self.cluster, dict.fromkeys((one.where for one in self.spans), at_ms)
        )
        return [_later(span, firsts[span.where]) for span in self.spans]


def _offsets_in(places: Iterable[tuple[int, int]], partition: int) -> list[int]:
    return [offset for number, offset in places if number == partition]


def _later(span: Span, first: ListedOffset | KafkaError) -> Span:
    """The part of a span from here on; none of it where the broker knows no such offset."""
    if isinstance(first, KafkaError):
        raise first
    return span._replace(first=max(span.first, first.offset) if first.offset >= 0 else span.end)
