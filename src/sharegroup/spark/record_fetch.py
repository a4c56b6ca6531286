"""Plain Fetch of given offsets: what an executor reads again of what the driver acquired.

The offsets are known to be in the log, so nothing is waited for: a round asks every leader
once for all its partitions that are not finished, and the next round goes on behind what came.
Read uncommitted, because the driver's share group has decided already what is delivered.

How many bytes to ask for is a guess from the records of the partition seen before in this
process; asking for more would have the broker read what nobody wants.

Records may be gone, deleted by retention or with their topic between acquisition and fetch:
that is ``failOnDataLoss``.  Everything else that fails is tried again, with pauses, until a
round has made no progress for ``default_api_timeout_ms``.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic
from kio.static.primitive import i8, i32, i32Timedelta, i64

from sharegroup.client.admin_topics import list_offsets
from sharegroup.client.cluster import NO_LEADER, Cluster, Lane, Topic
from sharegroup.client.records import TopicPartition
from sharegroup.client.refusals import refused
from sharegroup.errors import (
    NONE,
    KafkaError,
    LeaderNotAvailable,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicId
from sharegroup.spark.partition import PartitionRuns
from sharegroup.wire.batches import Buffer, parse_header
from sharegroup.wire.columns import batch_positions

log = logging.getLogger(__name__)

EARLIEST = -2
READ_UNCOMMITTED = 0
ROUND_BYTES_MAX = 8 * 1024 * 1024
"""One leader's answer; a batch that is larger comes nevertheless."""
PARTITION_BYTES_MIN = 64 * 1024
PARTITION_BYTES_MAX = 4 * 1024 * 1024
RECORD_BYTES_GUESS = 256
HOLE_OFFSETS = 1_000
"""Runs that lie closer together than this are read in one go."""
DENIALS_MAX = 3
"""A partition that brokers deny so many times in a row does not exist any more."""
NO_WAIT = i32Timedelta.parse(timedelta(0))


class Fetched(NamedTuple):
    """Whole record batches, some of whose records are asked for."""

    part: PartitionRuns
    first: int
    """The offset that was asked for; what the first batch holds below it is read, or gone."""
    records: Buffer


class _Reading:
    """How far one partition has been read."""

    __slots__ = ("_ends", "denials", "part", "position")

    def __init__(self, part: PartitionRuns) -> None:
        self.part = part
        self._ends = [run.end for run in part.runs]
        self.position = part.runs[0].first
        """The next offset that is asked for; behind the last run when all is read."""
        self.denials = 0
        """How many times a broker said that there is no such partition."""

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.part.topic, self.part.partition)

    @property
    def finished(self) -> bool:
        return self.position >= self._ends[-1]

    def named(self) -> str:
        """For messages."""
        return f"topic {self.part.topic!r} partition {self.part.partition} offset {self.position}"

    def advance(self, offset: int) -> None:
        """Everything below ``offset`` is read, or gone."""
        self.position = max(self.position, offset)
        index = bisect_right(self._ends, self.position)
        if index < len(self._ends):
            self.position = max(self.position, self.part.runs[index].first)

    def offsets_ahead(self) -> int:
        """From here to the end of the runs that lie close together."""
        index = bisect_right(self._ends, self.position)
        end = self._ends[index]
        for run in self.part.runs[index + 1 :]:
            if run.first - end > HOLE_OFFSETS:
                break
            end = run.end
        return end - self.position


class RecordFetch:
    """Fetches the runs of one task, round by round; all rounds use one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        parts: Iterable[PartitionRuns],
        *,
        record_bytes: dict[tuple[TopicId, int], float],
        fail_on_data_loss: bool,
    ) -> None:
        self._cluster = cluster
        self._readings = [_Reading(part) for part in parts if part.runs]
        self._record_bytes = record_bytes
        self._fail_on_data_loss = fail_on_data_loss

    async def next_round(self) -> list[Fetched]:
        """What comes next, from one leader or several; empty when all is read."""
        fetched: list[Fetched] = []
        while self._readings and not fetched:
            fetched = await self._cluster.retrying(
                self._round, what=f"fetch of {self._readings[0].named()}"
            )
        return fetched

    async def _round(self) -> list[Fetched]:
        """One request to every leader; raises what failed if nothing came of any."""
        before = [one.position for one in self._readings]
        by_leader: dict[int, list[_Reading]] = defaultdict(list)
        failures: list[KafkaError] = []
        for reading in self._readings:
            try:
                by_leader[await self._leader(reading)].append(reading)
            except KafkaError as error:
                self._failed(reading, error, failures)
        outcomes = await asyncio.gather(
            *(self._ask(leader, some, failures) for leader, some in by_leader.items())
        )
        moved = before != [one.position for one in self._readings]
        # A leader sends the first one's next batch however large it is, so all get their turn.
        self._readings = [one for one in self._readings if not one.finished]
        if failures and not moved:
            raise failures[0]
        return [one for some in outcomes for one in some]

    async def _leader(self, reading: _Reading) -> int:
        """Who leads the partition as far as is known; asks if nothing is."""
        name, partition = reading.where
        topic = self._cluster.known_topic(name)
        if topic is None or topic.topic_id != reading.part.topic_id:
            found = (await self._cluster.refresh([name])).get(name)
            if not isinstance(found, Topic):
                raise found or UnknownTopicOrPartition(f"{reading.named()}: does not exist")
            topic = found
        if topic.topic_id != reading.part.topic_id:
            raise UnknownTopicId(
                f"{reading.named()}: expected topic id {reading.part.topic_id}, found "
                f"{topic.topic_id}: the topic was deleted and made again"
            )
        leader = topic.leader_of(partition)
        if leader == NO_LEADER:
            raise LeaderNotAvailable(f"{reading.named()}: the partition has no leader")
        return leader

    async def _ask(
        self, leader: int, readings: Sequence[_Reading], failures: list[KafkaError]
    ) -> list[Fetched]:
        """One leader's answer."""
        try:
            connection = await self._cluster.connection(leader, Lane.RECORDS)
            response = await connection.request(self._request(readings))
            if response.error_code != NONE:
                raise refused(response.error_code, None, node=leader)
        except KafkaError as error:
            for reading in readings:
                self._failed(reading, error, failures)
            return []
        asked = {(one.part.topic_id, one.part.partition): one for one in readings}
        fetched = []
        for topic in response.responses:
            for answer in topic.partitions:
                found = asked.get((topic.topic_id, answer.partition_index))
                if found is not None:
                    fetched += await self._taken(found, answer, failures)
        return fetched

    def _request(self, readings: Sequence[_Reading]) -> FetchRequest:
        by_topic: dict[TopicId, list[_Reading]] = defaultdict(list)
        for reading in readings:
            by_topic[reading.part.topic_id].append(reading)
        return FetchRequest(
            max_wait=NO_WAIT,
            min_bytes=i32(0),
            max_bytes=i32(ROUND_BYTES_MAX),
            isolation_level=i8(READ_UNCOMMITTED),
            topics=tuple(
                FetchTopic(
                    topic_id=topic_id,
                    partitions=tuple(
                        FetchPartition(
                            partition=i32(one.part.partition),
                            fetch_offset=i64(one.position),
                            partition_max_bytes=i32(self._bytes_max(one)),
                        )
                        for one in some
                    ),
                )
                for topic_id, some in by_topic.items()
            ),
            forgotten_topics_data=(),
        )

    def _bytes_max(self, reading: _Reading) -> int:
        each = self._record_bytes.get(
            (reading.part.topic_id, reading.part.partition), RECORD_BYTES_GUESS
        )
        guess = int(reading.offsets_ahead() * each) + PARTITION_BYTES_MIN
        return min(guess, PARTITION_BYTES_MAX)

    async def _taken(
        self, reading: _Reading, answer: Any, failures: list[KafkaError]
    ) -> list[Fetched]:
        """What one partition's part of an answer brings, which may be nothing for now."""
        try:
            if answer.error_code == OffsetOutOfRange.code:
                await self._skip_deleted(reading)
                return []
            if answer.error_code != NONE:
                raise refused(answer.error_code, reading.named())
            reading.denials = 0
            return self._whole_batches(reading, answer.records or b"", answer.high_watermark)
        except KafkaError as error:
            self._failed(reading, error, failures)
            return []

    def _whole_batches(
        self, reading: _Reading, records: Buffer, high_watermark: int
    ) -> list[Fetched]:
        positions = batch_positions(records)
        if not positions.size:
            if high_watermark <= reading.position:
                raise OffsetNotAvailable(f"{reading.named()}: the log ends at {high_watermark}")
            return []  # The answer was full before it was this partition's turn.
        first = parse_header(records, int(positions[0]))
        last = parse_header(records, int(positions[-1]))
        span = max(1, last.end_offset - first.base_offset)
        key = reading.part.topic_id, reading.part.partition
        self._record_bytes[key] = len(records) / span
        asked = reading.position
        reading.advance(last.end_offset)
        return [Fetched(reading.part, asked, records)]

    def _failed(self, reading: _Reading, error: KafkaError, failures: list[KafkaError]) -> None:
        """Note what may work the next time; raise what will not."""
        if not error.retriable:
            raise error
        self._cluster.outdate(reading.part.topic)
        if isinstance(error, UnknownTopicId | UnknownTopicOrPartition):
            reading.denials += 1
            if reading.denials >= DENIALS_MAX:
                self._lost(reading, reading.part.runs[-1].end, str(error))
                return
        failures.append(error)

    async def _skip_deleted(self, reading: _Reading) -> None:
        """The offset is outside of the log: go on where the log begins now, if that may be."""
        found = await list_offsets(self._cluster, {reading.where: EARLIEST})
        earliest = found[reading.where]
        if isinstance(earliest, KafkaError):
            raise earliest
        if earliest.offset > reading.position:
            self._lost(reading, earliest.offset, f"the log begins at {earliest.offset}")
        else:
            self._lost(reading, reading.part.runs[-1].end, "the log ends before")

    def _lost(self, reading: _Reading, end: int, why: str) -> None:
        end = min(end, reading.part.runs[-1].end)
        text = f"{reading.named()}: records up to offset {end} are gone: {why}"
        if self._fail_on_data_loss:
            raise OffsetOutOfRange(text + "; the option failOnDataLoss=false goes on without them")
        log.warning("%s", text)
        reading.advance(end)
