"""Sends Fetch requests: one round for any number of positions, one request to each leader.

    positions ──▶ leaders, from the metadata ──▶ one request per leader ──▶ outcome per position

Every position has its own outcome: record batches, or an error that names topic, partition, offset
and broker.  A round sends each request once.  An error outdates the metadata of its topic, so the
next round finds a new leader; `RangeFetch` does the rounds.  A request names the leader epoch of
the metadata (KIP-320), so a broker that has lost the leadership without knowing it refuses.

Fetch sessions (KIP-227) are not used: the readers of a client share its connections, and the
positions differ in every request.  Records of open and aborted transactions are included
(read_uncommitted), because most callers ask for records that a share group has already delivered.
With ``committed`` a leader returns no records from the first open transaction on, and names the
aborted ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic
from kio.static.primitive import i8, i32, i32Timedelta, i64

from sharegroup.client.fetch.aborted_transactions import AbortedTransaction
from sharegroup.client.net.cluster import NO_LEADER, Cluster, ConnectionPurpose, Topic
from sharegroup.client.net.connection import Connection
from sharegroup.client.net.refusals import meaning, refused
from sharegroup.client.records import TopicPartition
from sharegroup.client.together import together
from sharegroup.errors import (
    NONE,
    CorruptMessage,
    KafkaError,
    LeaderNotAvailable,
    NoAnswer,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from sharegroup.ids import TopicId
from sharegroup.wire.batches.batches import Buffer, batch_positions, parse_header

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
NO_WAIT = i32Timedelta.parse(timedelta(0))
NO_BYTES_MIN = i32(0)
"""The minimum size of a response.  A response without records is sent at once, too."""


class OtherTopicId(UnknownTopicId):
    """The metadata names another topic id: the topic was made again, or the metadata is old."""


class FetchPosition(NamedTuple):
    """The offset from which to fetch in one partition."""

    where: TopicPartition
    topic_id: TopicId | None
    """The id that the topic must have; None for any topic of this name."""
    offset: int
    bytes_max: int
    """The size limit of the partition's records; a larger first batch is returned nevertheless."""

    def __str__(self) -> str:
        """Return topic, partition and offset, for messages."""
        topic, partition = self.where
        return f"topic {topic!r} partition {partition} offset {self.offset}"


class RecordBatches(NamedTuple):
    """Whole record batches from a position on; ``records`` may end with a part of another one."""

    records: Buffer
    batch_positions: Sequence[int]
    """The positions of the whole batches in ``records``."""
    span: int
    """The number of offsets from the first batch to the end of the last whole one."""
    end_offset: int
    """The offset after the last whole batch, which is the next one to fetch."""
    high_watermark: int
    aborted: Sequence[AbortedTransaction] = ()
    """The aborted transactions with records in these batches; empty without ``committed``."""


class NoRecords(NamedTuple):
    """The leader returned no whole batch: the log ends, or other partitions filled the response."""

    high_watermark: int


FetchOutcome = RecordBatches | NoRecords | KafkaError


async def fetch_positions(
    cluster: Cluster,
    positions: Sequence[FetchPosition],
    *,
    bytes_max: int,
    committed: bool = False,
) -> list[FetchOutcome]:
    """Fetch once from every leader; return the outcomes in the order of the positions.

    ``bytes_max`` limits the response of one leader, except that one batch may be larger.  No
    two positions may name the same partition of the same topic id.
    """
    outcomes: dict[FetchPosition, FetchOutcome] = {}
    requests: dict[int, list[_Request]] = defaultdict(list)
    for position, request in zip(positions, await _requests(cluster, positions), strict=True):
        if isinstance(request, KafkaError):
            outcomes[position] = request
        else:
            requests[request.leader].append(request)
    for answered in await together(
        _ask(cluster, leader, group, bytes_max=bytes_max, committed=committed)
        for leader, group in requests.items()
    ):
        outcomes |= answered
    for position, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            cluster.outdate(position.where.topic)
    return [outcomes[position] for position in positions]


class _Request(NamedTuple):
    """A position with what the metadata says about its partition."""

    position: FetchPosition
    topic_id: TopicId
    leader: int
    leader_epoch: int


async def _requests(
    cluster: Cluster, positions: Sequence[FetchPosition]
) -> list[_Request | KafkaError]:
    """Find the leaders; request the metadata once for all topics for which it is not usable."""
    requests = [
        _request(position, cluster.known_topic(position.where.topic)) for position in positions
    ]
    outdated = {
        position.where.topic
        for position, request in zip(positions, requests, strict=True)
        if isinstance(request, KafkaError)
    }
    if not outdated:
        return requests
    refreshed: Mapping[str, Topic | KafkaError]
    try:
        refreshed = await cluster.refresh(outdated)
    except KafkaError as error:
        refreshed = dict.fromkeys(outdated, error)
    return [
        _request(position, refreshed.get(position.where.topic))
        if isinstance(request, KafkaError)
        else request
        for position, request in zip(positions, requests, strict=True)
    ]


def _request(position: FetchPosition, topic: Topic | KafkaError | None) -> _Request | KafkaError:
    """Return the request for a position, or why the metadata does not allow one."""
    if not isinstance(topic, Topic):
        return topic or UnknownTopicOrPartition(
            f"{position}: the broker's response does not contain the topic"
        )
    name, partition = position.where
    if topic.topic_id is None:
        return UnsupportedVersion(f"topic {name!r}: the broker does not support topic ids")
    if position.topic_id not in (None, topic.topic_id):
        return OtherTopicId(
            f"{position}: expected topic id {position.topic_id}, found {topic.topic_id}: the topic "
            "was deleted and created again"
        )
    if not 0 <= partition < len(topic.leaders):
        return UnknownTopicOrPartition(
            f"{position}: the topic has partitions 0 to {len(topic.leaders) - 1}"
        )
    leader = topic.leader_of(partition)
    if leader == NO_LEADER:
        return LeaderNotAvailable(f"{position}: the partition has no leader")
    return _Request(position, topic.topic_id, leader, topic.leader_epoch_of(partition))


async def _ask(
    cluster: Cluster,
    leader: int,
    requests: Sequence[_Request],
    *,
    bytes_max: int,
    committed: bool,
) -> dict[FetchPosition, FetchOutcome]:
    """Send a request to one leader and return the outcome for each of its positions."""
    pending = {
        (request.topic_id, request.position.where.partition): request.position
        for request in requests
    }
    try:
        connection = await cluster.connection(leader, ConnectionPurpose.RECORDS)
        response = await connection.request(_message(requests, bytes_max, committed))
        if response.error_code != NONE:
            raise refused(response.error_code, None, node=leader)
    except KafkaError as error:
        if isinstance(error, NoAnswer):
            cluster.doubt(leader)
        return dict.fromkeys(pending.values(), error)
    outcomes: dict[FetchPosition, FetchOutcome] = {}
    for topic in response.responses:
        for answer in topic.partitions:
            position = pending.pop((topic.topic_id, answer.partition_index), None)
            if position is not None:
                outcomes[position] = _outcome(cluster, connection, position, answer)
    for position in pending.values():
        outcomes[position] = LeaderNotAvailable(
            f"{position}: the response of broker {connection.peer} does not contain this partition"
        )
    return outcomes


def _message(requests: Iterable[_Request], bytes_max: int, committed: bool) -> FetchRequest:
    by_topic: dict[TopicId, list[FetchPartition]] = defaultdict(list)
    for request in requests:
        position = request.position
        by_topic[request.topic_id].append(
            FetchPartition(
                partition=i32(position.where.partition),
                current_leader_epoch=i32(request.leader_epoch),
                fetch_offset=i64(position.offset),
                partition_max_bytes=i32(position.bytes_max),
            )
        )
    return FetchRequest(
        max_wait=NO_WAIT,
        min_bytes=NO_BYTES_MIN,
        max_bytes=i32(bytes_max),
        isolation_level=i8(READ_COMMITTED if committed else READ_UNCOMMITTED),
        topics=tuple(
            FetchTopic(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in by_topic.items()
        ),
        forgotten_topics_data=(),
    )


def _outcome(
    cluster: Cluster, connection: Connection, position: FetchPosition, answer: Any
) -> FetchOutcome:
    if answer.error_code != NONE:
        return _refusal(cluster, connection, position, answer.error_code)
    records: Buffer = answer.records or b""
    try:
        positions = batch_positions(records)
    except CorruptMessage as error:
        return CorruptMessage(f"{position}: broker {connection.peer}: {error}")
    if not positions:
        return NoRecords(answer.high_watermark)
    first = parse_header(records, positions[0])
    last = parse_header(records, positions[-1])
    # The offset would not move, and a reader would fetch the same until its timeout.
    if last.end_offset <= position.offset:
        return CorruptMessage(
            f"{position}: broker {connection.peer}: the response ends before this offset, at "
            f"{last.end_offset}"
        )
    # It is divided by, and a broker may send any offsets.
    span = max(1, last.end_offset - first.base_offset)
    aborted = [
        AbortedTransaction(int(transaction.producer_id), int(transaction.first_offset))
        for transaction in answer.aborted_transactions or ()
    ]
    return RecordBatches(records, positions, span, last.end_offset, answer.high_watermark, aborted)


def _refusal(
    cluster: Cluster, connection: Connection, position: FetchPosition, code: int
) -> KafkaError:
    hint = "; see the log of the broker" if code == UnknownServerError.code else ""
    return refused(
        code,
        f"{position}: broker {connection.peer}: {meaning(code)}{hint}",
        operation="READ",
        principal=cluster.principal,
        topic=position.where.topic,
    )
