"""A dead-letter topic, opened for reading, redrive and purge; and its summary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeVar, Unpack
from uuid import UUID

from sharegroup.client.admin.topics import delete_records, describe_topics
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.fetch.offsets import offsets_of
from sharegroup.client.fetch.record_reading import (
    Make,
    PartitionRange,
    Placed,
    TopicMadeAgain,
    Unreadable,
    partition_ranges,
    read_made,
    read_records,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ClientOptions, ReadingConfig, config_from
from sharegroup.dead_letters.ledger import Entry, Ledger
from sharegroup.dead_letters.letter import Letter, letter_of, time_of
from sharegroup.dead_letters.selection import EVERYTHING, Selection
from sharegroup.dead_letters.story_headers import NOWHERE
from sharegroup.errors import KafkaError, UnsupportedVersion
from sharegroup.ids import TopicId, topic_id_text
from sharegroup.wire.batches.records import DecodedRecord

CHUNK_LETTERS_MAX = 1_000
"""The default number of letters in a chunk."""


CLOCKS_APART_MS = 10 * 60 * 1000
"""Letters have the timestamps of their writers, so they may be out of order by this much."""
COMPLETED_LETTERS_MAX = 200
"""Chunk size for letters whose records must be read from other topics and may be large."""


Element = TypeVar("Element", bound=Placed)


class Chunk(NamedTuple, Generic[Element]):
    """Selected letters of one partition, or what was made of them, in the order of offsets."""

    partition: int
    letters: Sequence[Element]
    redriven: frozenset[int]
    """Offsets of the letters that were redriven before."""
    end: int
    """The offset up to which the partition is read, with the letters that do not match."""


class DeadLetterQueue:
    """The dead letters in one topic at the time it is opened.

    Example::

        async with DeadLetterQueue("orders.dead", bootstrap_servers=bootstrap_servers) as queue:
            async for chunk in queue.chunks(Selection(error_class="TimeoutError")):
                for letter in chunk.letters:
                    print(letter.death.error_message)
    """

    def __init__(self, topic: str, **options: Unpack[ClientOptions]) -> None:
        self.topic = topic
        self.cluster = Cluster(config_from(ReadingConfig, options))
        self.ranges: list[PartitionRange] = []
        """The offset ranges to read, as of opening; letters written later are not included."""
        self.ledger = Ledger(topic, "")
        self.noted: dict[int, Entry] = {}
        self._topic_id: UUID | None = None

    @property
    def topic_id(self) -> str:
        """The id of the topic, as text; another one means that it was created again."""
        assert self._topic_id is not None, "the queue is open"
        return topic_id_text(TopicId(self._topic_id))

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            # `__aexit__` is not called if this fails.
            self.cluster.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cluster.close()

    async def _open(self) -> None:
        described = (await describe_topics(self.cluster, [self.topic]))[self.topic]
        if not isinstance(described, TopicDescription):
            raise described
        if described.topic_id is None:
            raise UnsupportedVersion(
                f"topic {self.topic!r}: the broker reported no topic id for it"
            )
        self._topic_id = described.topic_id
        self.ledger = Ledger(self.topic, topic_id_text(TopicId(described.topic_id)))
        self.noted = await self.ledger.load(self.cluster)
        self.ranges = await partition_ranges(self.cluster, self.topic)

    def chunks(
        self,
        selection: Selection = EVERYTHING,
        *,
        size: int = CHUNK_LETTERS_MAX,
        complete: bool = False,
        empty: bool = False,
        unreadable: Unreadable | None = None,
    ) -> AsyncIterator[Chunk[Letter]]:
        """Return an iterator of the letters that match, as `chunks_of` yields them."""
        return self.chunks_of(
            _as_it_is, selection, size=size, complete=complete, empty=empty, unreadable=unreadable
        )

    async def chunks_of(
        self,
        make: Callable[[Letter], Element],
        selection: Selection = EVERYTHING,
        *,
        size: int = CHUNK_LETTERS_MAX,
        complete: bool = False,
        empty: bool = False,
        unreadable: Unreadable | None = None,
    ) -> AsyncGenerator[Chunk[Element], None]:
        """Read the letters that match, partition by partition, and yield what ``make`` returns.

        If nothing else is to be done with a letter before, it is made before the next record is
        decoded.

        ``empty`` yields chunks without a matching letter, too, because they show the progress.
        ``complete`` reads the original records for a broker's letters that lack them.
        Without ``unreadable`` a batch that cannot be decoded raises CorruptMessage.
        """
        selects = not selection.is_everything
        for log_range in await self._touched(selection):
            reader = _maker(log_range.where, make, complete=complete, selects=selects)
            async for read in read_made(self.cluster, log_range, reader, unreadable=unreadable):
                if not read:
                    continue
                done = self.ledger.done(
                    log_range.where.partition, read[0].offset, read[-1].offset + 1
                )
                lacking = complete and any(map(_lacks_its_record, read))
                # The records of their topics are in memory together, and each may have megabytes.
                step = min(size, COMPLETED_LETTERS_MAX) if lacking else size
                for low in range(0, len(read), step):
                    part = read[low : low + step]
                    end = part[-1].offset + 1
                    if lacking:
                        part = await completed(self.cluster, part)
                    if selects:
                        part = [
                            element
                            for element in part
                            if not isinstance(element, Letter)
                            or selection.matches(element, redriven=element.offset in done)
                        ]
                    if part or empty:
                        made = [
                            make(element) if isinstance(element, Letter) else element
                            for element in part
                        ]
                        redriven = frozenset(done).intersection(element.offset for element in made)
                        yield Chunk(log_range.where.partition, made, redriven, end)

    async def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete all letters below these offsets.

        Raises TopicMadeAgain if the topic was deleted and created again since it was opened.
        """
        described = (await describe_topics(self.cluster, [self.topic]))[self.topic]
        if not isinstance(described, TopicDescription):
            raise described
        if described.topic_id != self._topic_id:
            raise TopicMadeAgain(
                f"topic {self.topic!r} was deleted and created again while it was read; no "
                "letter was deleted"
            )
        for failed in (await delete_records(self.cluster, offsets)).values():
            if isinstance(failed, KafkaError):
                raise failed

    async def _touched(self, selection: Selection) -> list[PartitionRange]:
        """The ranges that can contain selected letters, narrowed by places or by time."""
        if selection.places:
            return [
                log_range._replace(
                    first=max(log_range.first, min(offsets)),
                    end=min(log_range.end, max(offsets) + 1),
                )
                for log_range in self.ranges
                if (offsets := _offsets_in(selection.places, log_range.where.partition))
            ]
        at_ms = -1 if selection.since_ms is None else selection.since_ms - CLOCKS_APART_MS
        if at_ms < 0:  # Kafka looks up no time before 1970.
            return self.ranges
        firsts = await offsets_of(self.cluster, (whole.where for whole in self.ranges), at_ms)
        return [_later(log_range, firsts[log_range.where]) for log_range in self.ranges]


def _as_it_is(letter: Letter) -> Letter:
    return letter


def _maker(
    where: TopicPartition, make: Callable[[Letter], Element], *, complete: bool, selects: bool
) -> Make[Letter | Element]:
    """Return the function that reads the letters of a batch, and makes what is made at once."""

    def element(record: DecodedRecord, is_vouched: bool) -> Letter | Element:
        letter = letter_of(*where, record, is_vouched=is_vouched)
        is_later = selects or (complete and letter.lacks_its_record)
        return letter if is_later else make(letter)

    def elements(records: Iterable[DecodedRecord], are_vouched: bool) -> list[Letter | Element]:
        return [element(record, are_vouched) for record in records]

    return elements


def _lacks_its_record(element: object) -> bool:
    return isinstance(element, Letter) and element.lacks_its_record


def _offsets_in(places: Iterable[tuple[int, int]], partition: int) -> list[int]:
    return [offset for number, offset in places if number == partition]


def _later(log_range: PartitionRange, first: int) -> PartitionRange:
    """The part of a range from this offset on; empty if the offset is -1, for no record."""
    return log_range._replace(first=max(log_range.first, first) if first >= 0 else log_range.end)


# Letters of a broker are completed with their records, read from the topics they came from.
#
# A letter of Apache Kafka has no headers of its record, and key and value only if the group is
# configured to copy them (KIP-1191). The record can be read as long as its topic retains it. If the
# topic was deleted and created again, another record is at its offset: it has another key or value
# than the letter, or is newer than a letter that has none.


HOLE_OFFSETS_MAX = 1_000
"""Offsets that are at most this far apart are read together."""


async def completed(
    cluster: Cluster, letters: Sequence[Letter | Element]
) -> list[Letter | Element]:
    """The letters, completed with their records; without one, `lacks_its_record` stays true."""
    offsets: dict[TopicPartition, set[int]] = defaultdict(set)
    for letter in letters:
        if isinstance(letter, Letter) and letter.lacks_its_record:
            assert letter.story.origin is not None, "a letter that lacks its record has an origin"
            origin = letter.story.origin
            # Whatever a letter claims: no log has the place of a record that was sent with a delay.
            if origin.partition != NOWHERE and origin.offset != NOWHERE:
                offsets[TopicPartition(origin.topic, origin.partition)].add(origin.offset)
    if not offsets:
        return list(letters)
    records = await _records_at(cluster, offsets)
    return [
        _with_record(letter, records) if isinstance(letter, Letter) else letter
        for letter in letters
    ]


async def _records_at(
    cluster: Cluster, offsets_of_partitions: dict[TopicPartition, set[int]]
) -> dict[tuple[str, int, int], DecodedRecord]:
    described = await describe_topics(
        cluster, {partition.topic for partition in offsets_of_partitions}
    )
    records_by_place: dict[tuple[str, int, int], DecodedRecord] = {}
    for partition, offsets in offsets_of_partitions.items():
        topic = described[partition.topic]
        if not isinstance(topic, TopicDescription) or partition.partition >= topic.partition_count:
            continue  # The topic is deleted, so its records are lost.
        for first, end in _close_together(offsets):
            # A record in a batch that cannot be decoded counts as not found.
            async for records in read_records(
                cluster, PartitionRange(partition, first, end), unreadable=_pass_over
            ):
                for record in records:
                    if record.offset in offsets:
                        records_by_place[(*partition, record.offset)] = record
    return records_by_place


def _pass_over(_: PartitionRange, __: KafkaError) -> None:
    """Skip a batch that cannot be decoded."""


def _close_together(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    first, end = -1, -1
    for offset in sorted(offsets):
        if first >= 0 and offset - end <= HOLE_OFFSETS_MAX:
            end = offset + 1
            continue
        if first >= 0:
            yield first, end
        first, end = offset, offset + 1
    yield first, end


def _with_record(letter: Letter, records: dict[tuple[str, int, int], DecodedRecord]) -> Letter:
    origin = letter.story.origin
    if not letter.lacks_its_record or origin is None:
        return letter
    record = records.get((origin.topic, origin.partition, origin.offset))
    if record is None:
        return letter
    if letter.has_payload:
        # Not by time: the clock of a producer may be ahead of the broker's.
        is_same = (record.key, record.value) == (letter.key, letter.value)
    else:
        is_same = time_of(record) <= letter.timestamp_ms
    return letter.with_record(record) if is_same else letter


# The summary: counts of letters by group, handler, reason and error class.


KINDS_MAX = 1_000
"""Kinds counted separately.  Error classes made at run time would otherwise fill the memory."""


class LetterKind(NamedTuple):
    """The common properties of the letters in one line of the summary."""

    group: str
    handler: str
    reason: str
    error_class: str


OTHERS = LetterKind("(others)", "", "", "")


@dataclass(slots=True)
class Deaths:
    """Counts of the letters of one kind; times are the timestamps of the letters."""

    letters: int = 0
    claimed: int = 0
    """Letters whose origin may be from a producer (`Letter.is_origin_claimed`)."""
    redriven: int = 0
    first_ms: int = 0
    last_ms: int = 0
    last_message: str = ""


async def summary(
    queue: DeadLetterQueue, selection: Selection, *, unreadable: Unreadable | None = None
) -> dict[LetterKind, Deaths]:
    """Count the selected letters by kind, the most frequent kind first."""
    deaths: dict[LetterKind, Deaths] = {}
    needs_records = bool(selection.where or selection.headers or selection.key is not None)
    async for chunk in queue.chunks(selection, complete=needs_records, unreadable=unreadable):
        _count(deaths, chunk.letters, chunk.redriven)
    return dict(sorted(deaths.items(), key=lambda item: (-item[1].letters, item[0])))


def _count(
    deaths_by_kind: dict[LetterKind, Deaths], letters: Iterable[Letter], redriven: frozenset[int]
) -> None:
    for letter in letters:
        death = letter.death
        kind = LetterKind(death.group, death.handler, death.reason, death.error_class)
        if kind not in deaths_by_kind and len(deaths_by_kind) >= KINDS_MAX:
            kind = OTHERS
        deaths = deaths_by_kind.setdefault(kind, Deaths(first_ms=letter.timestamp_ms))
        deaths.letters += 1
        deaths.claimed += letter.is_origin_claimed
        deaths.redriven += letter.offset in redriven
        deaths.first_ms = min(deaths.first_ms, letter.timestamp_ms)
        if letter.timestamp_ms >= deaths.last_ms:
            deaths.last_ms = letter.timestamp_ms
            deaths.last_message = death.error_message or death.message
