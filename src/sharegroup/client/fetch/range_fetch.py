"""Fetches offset ranges of partitions, round by round, until all their records are received.

    ranges          [3, 7) [7, 9)                [2000, 2100)
    log        0 ─────────────────────────────────────────────▶
    position        3 ─ ─ ─ ─ ─▶ 9, a hole: skip to 2000 ─▶ 2100, finished

A round sends one request to each partition leader, for all partitions that are not finished
(`partition_fetch`), and the next round continues behind the records received.  No request waits
for new records, because the ranges were in the logs when the caller determined them.

Offsets without a record, because of compaction or a control batch, lie within or between the
batches received, so a position simply moves over them.  If records are not in the log any more
(deleted by retention or a purge, lost with a leader, or in a topic that was deleted), the caller
decides (`Missing`).  All other retriable errors are retried with new metadata and the client's
backoff, until there was no progress for ``timeout_ms``.

The number of bytes to request is estimated from the earlier records of the partition.  A larger
number would make the broker read records that are not needed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from sharegroup.client.fetch.aborted_transactions import AbortedTransaction
from sharegroup.client.fetch.offsets import OffsetSpec, offset_of
from sharegroup.client.fetch.partition_fetch import (
    FetchPosition,
    NoRecords,
    OtherTopicId,
    RecordBatches,
    fetch_positions,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    KafkaError,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicId
from sharegroup.wire.batches.batches import Buffer

RESPONSE_BYTES_MAX = 8 * 1024 * 1024
"""Maximum size of one leader's response; a single batch may be larger."""
PARTITION_BYTES_MIN = 64 * 1024
PARTITION_BYTES_MAX = 4 * 1024 * 1024
RECORD_BYTES_GUESS = 256
HOLE_OFFSETS_MAX = 1_000
"""Maximum gap between two ranges that are fetched together."""
DENIALS_MAX = 3
"""Number of consecutive errors that deny the topic, after which the topic counts as deleted."""


OffsetRange: TypeAlias = tuple[int, int]
"""Offsets from the first (included) to the end (excluded)."""


class WantedRanges(NamedTuple):
    """The offset ranges to fetch of one partition; they ascend and do not overlap."""

    where: TopicPartition
    topic_id: TopicId | None
    """The id that the topic must have; None for any topic of this name."""
    ranges: Sequence[OffsetRange]


class FetchedBatches(NamedTuple):
    """Whole record batches that contain some of the wanted records."""

    wanted: WantedRanges
    first: int
    """The requested offset; records below it in the first batch are already read, or deleted."""
    records: Buffer
    batch_positions: Sequence[int]
    """The positions of the whole batches in ``records``."""
    aborted: Sequence[AbortedTransaction] = ()
    """The aborted transactions with records in these batches; empty without ``committed``."""


class MissingOffsets(NamedTuple):
    """The wanted offsets of a partition in [first, end), which the log does not have any more."""

    where: TopicPartition
    first: int
    end: int
    error: KafkaError
    """OffsetOutOfRange if the log starts after or ends before the offsets; otherwise the error that
    shows that the topic was deleted."""
    topic_id: TopicId | None
    """The id that the topic must have, as in `WantedRanges`."""


Missing = Callable[[MissingOffsets], None]
"""Called with missing offsets; raises an error, or returns to go on without them."""

RecordSizes = dict[tuple[TopicId | None, TopicPartition], float]
"""The bytes per offset of the records received last, by partition."""


class RangeFetch:
    """Fetches the ranges of partitions, round by round; each partition is named once.

    ``record_sizes`` keeps the sizes for the next `RangeFetch` of the same partitions.  With
    ``deleted_topics_are_missing`` a topic that brokers do not know, three times in a row, is
    reported as missing.  Without it only a topic that was made again is; an unknown topic is
    retried until the time is up.  With ``committed`` it waits, as long, for the end of open
    transactions, and the batches come with the aborted ones.
    """

    def __init__(
        self,
        cluster: Cluster,
        partitions: Iterable[WantedRanges],
        *,
        missing: Missing,
        deleted_topics_are_missing: bool = False,
        record_sizes: RecordSizes | None = None,
        timeout_ms: int | None = None,
        committed: bool = False,
    ) -> None:
        self._cluster = cluster
        self._committed = committed
        begun = (_Progress(partition) for partition in partitions if partition.ranges)
        self._unfinished = [progress for progress in begun if not progress.is_finished]
        self._missing = missing
        self._denials: tuple[type[KafkaError], ...] = (OtherTopicId,)
        if deleted_topics_are_missing:
            # `OtherTopicId` as well, which is a subclass.
            self._denials = (UnknownTopicId, UnknownTopicOrPartition)
        self._record_sizes = {} if record_sizes is None else record_sizes
        self._timeout_ms = timeout_ms
        self.response_bytes_max = RESPONSE_BYTES_MAX
        """Maximum size of one leader's response; a single batch may be larger; tests shorten it."""

    async def next_round(self) -> list[FetchedBatches]:
        """Fetch the next records from one or more leaders; empty when all are read.

        Raises RequestTimedOut, with the last error in its text, if there is no progress for
        ``timeout_ms``, by default ``default_api_timeout_ms``.
        """
        fetched: list[FetchedBatches] = []
        while self._unfinished and not fetched:
            position = self._position(self._unfinished[0])
            fetched = await self._cluster.retrying(
                self._round, subject=f"fetch of {position}", timeout_ms=self._timeout_ms
            )
        return fetched

    async def _round(self) -> list[FetchedBatches]:
        """Send one request to every leader.  Raises the first error if there was no progress."""
        before = [progress.offset for progress in self._unfinished]
        positions = [self._position(progress) for progress in self._unfinished]
        outcomes = await fetch_positions(
            self._cluster,
            positions,
            bytes_max=self.response_bytes_max,
            committed=self._committed,
        )
        failures: list[KafkaError] = []
        # Failures first: they may raise or be cancelled, and no records must be lost then.
        for progress, position, outcome in zip(self._unfinished, positions, outcomes, strict=True):
            if not isinstance(outcome, RecordBatches):
                failure = await self._failure(progress, position, outcome)
                failures += [] if failure is None else [failure]
        fetched = [
            self._take(progress, outcome)
            for progress, outcome in zip(self._unfinished, outcomes, strict=True)
            if isinstance(outcome, RecordBatches)
        ]
        has_moved = before != [progress.offset for progress in self._unfinished]
        # A leader always sends the next batch of the first partition, whatever its size, so every
        # partition makes progress in some round.
        self._unfinished = [progress for progress in self._unfinished if not progress.is_finished]
        # Then there is a failure, because records and missing offsets move an offset.
        if not has_moved:
            raise failures[0]
        return fetched

    def _take(self, progress: _Progress, batches: RecordBatches) -> FetchedBatches:
        wanted, first = progress.wanted, progress.offset
        size = len(batches.records) / batches.span
        self._record_sizes[wanted.topic_id, wanted.where] = size
        progress.denials = 0
        progress.advance(batches.end_offset)
        return FetchedBatches(
            wanted, first, batches.records, batches.batch_positions, batches.aborted
        )

    async def _failure(
        self, progress: _Progress, position: FetchPosition, outcome: NoRecords | KafkaError
    ) -> KafkaError | None:
        """Return the error to retry; None if the offsets are missing and the caller accepts it.

        Raises an error that no retry can change.
        """
        if isinstance(outcome, self._denials):
            progress.denials += 1
            if progress.denials < DENIALS_MAX:
                return outcome
            self._skip(progress, progress.end, outcome)
            return None
        if isinstance(outcome, KafkaError) and not isinstance(outcome, OffsetOutOfRange):
            return _retriable(outcome)
        progress.denials = 0
        if isinstance(outcome, NoRecords) and outcome.high_watermark > progress.offset:
            return OffsetNotAvailable(
                f"{position}: the leader returned no records below its high watermark "
                f"{outcome.high_watermark}" + "; a transaction is open there" * self._committed
            )
        try:
            end, gone = await self._end_of_missing(progress, position)
        except KafkaError as error:
            return _retriable(error)
        self._skip(progress, end, gone)
        return None

    async def _end_of_missing(
        self, progress: _Progress, position: FetchPosition
    ) -> tuple[int, KafkaError]:
        """Look up where the offsets that the log does not have end, and why it lacks them.

        Raises OffsetNotAvailable if the log has the position: the answer came from an old leader.
        """
        log_start = await offset_of(self._cluster, position.where, OffsetSpec.EARLIEST)
        if log_start > progress.offset:
            error = OffsetOutOfRange(f"the log begins at {log_start}")
            return min(log_start, progress.end), error
        log_end = await offset_of(self._cluster, position.where, OffsetSpec.LATEST)
        if log_end > progress.offset:
            raise OffsetNotAvailable(
                f"{position}: the leader returned no records below the end of the log, {log_end}"
            )
        return progress.end, OffsetOutOfRange(f"the log ends at {log_end}")

    def _skip(self, progress: _Progress, end: int, error: KafkaError) -> None:
        wanted = progress.wanted
        self._missing(MissingOffsets(wanted.where, progress.offset, end, error, wanted.topic_id))
        progress.advance(end)

    def _position(self, progress: _Progress) -> FetchPosition:
        wanted = progress.wanted
        record_bytes = self._record_sizes.get((wanted.topic_id, wanted.where), RECORD_BYTES_GUESS)
        guess = int(progress.offsets_ahead() * record_bytes) + PARTITION_BYTES_MIN
        bytes_max = min(guess, PARTITION_BYTES_MAX)
        return FetchPosition(wanted.where, wanted.topic_id, progress.offset, bytes_max)


class _Progress:
    """The progress of fetching the ranges of one partition."""

    __slots__ = ("_ends", "denials", "offset", "wanted")

    def __init__(self, wanted: WantedRanges) -> None:
        self.wanted = wanted
        self._ends = [end for _, end in wanted.ranges]
        self.offset = wanted.ranges[0][0]
        """The next offset to request; behind the last range when all ranges are read."""
        self.denials = 0
        """Number of errors that deny the topic since the last answer of its leader."""

    @property
    def end(self) -> int:
        """The end of the last range."""
        return self._ends[-1]

    @property
    def is_finished(self) -> bool:
        return self.offset >= self._ends[-1]

    def advance(self, offset: int) -> None:
        """Move to ``offset``, or to the next range: everything below is read or missing."""
        self.offset = max(self.offset, offset)
        index = bisect_right(self._ends, self.offset)
        if index < len(self._ends):
            self.offset = max(self.offset, self.wanted.ranges[index][0])

    def offsets_ahead(self) -> int:
        """Return the number of offsets to the end of the ranges that are fetched together."""
        index = bisect_right(self._ends, self.offset)
        end = self._ends[index]
        for next_first, next_end in self.wanted.ranges[index + 1 :]:
            if next_first - end > HOLE_OFFSETS_MAX:
                break
            end = next_end
        return end - self.offset


def _retriable(error: KafkaError) -> KafkaError:
    """Return the error if it is retriable, or raise it."""
    if not error.retriable:
        raise error
    return error
