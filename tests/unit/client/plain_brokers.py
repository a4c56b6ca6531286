"""Brokers with logs in memory that answer Metadata, Fetch and ListOffsets, in place of a cluster.

They stand behind a real `Cluster`.  A test scripts the next refusals; without one they answer as
Kafka does: a broker that does not lead says so, and so does one that is asked with another epoch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from kio.schema.fetch.v18 import response as fetch
from kio.schema.list_offsets.v11 import response as list_offsets
from kio.schema.metadata.v13 import response as metadata
from kio.static.primitive import i32, i64

from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig
from sharegroup.errors import (
    FencedLeaderEpoch,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicId
from sharegroup.wire.batches.batches import parse_header, stamp
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.support.limits import HANGING_SECONDS

T = TypeVar("T")

EARLIEST, LATEST = -2, -1
CONFIG: dict[str, Any] = {
    "retry_backoff_ms": 1,
    "reconnect_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "default_api_timeout_ms": 5_000,
    "sasl_mechanism": "PLAIN",
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_plain_username": "ann",
    "sasl_plain_password": "secret",
}
ID = TopicId(UUID(int=7))

Refusal = KafkaError | type[KafkaError] | Callable[[], None]
"""An instance is raised by the connection; a class is the error code of the partitions.

A function is called, and then the request is answered.
"""


@dataclass
class Log:
    """The log of one partition: batches, and where it begins and ends."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    high_watermark: int = 0
    leader: int = 1
    epoch: int = 4
    follower: int | None = None
    """The broker that the leader names to consumers, and that answers fetches, too."""
    follower_batches: int | None = None
    """How many batches the follower has; None: all."""
    lie: bytes | None = None
    """The records of every fetch, in place of the batches."""

    def add(self, first: int, *values: bytes, control: bool = False) -> None:
        """Append a batch whose first record has this offset."""
        made = encode_batch([SimpleRecord(None, value, 1_000) for value in values])
        stamp(made, 0, base_offset=first, leader_epoch=self.epoch)
        if control:
            made[22] |= 0x20
        self.batches.append(bytes(made))
        self.high_watermark = parse_header(made).end_offset

    def diverging(self, node: int, offset: int, epoch: int) -> fetch.EpochEndOffset:
        """The end of the last common epoch if a record before the offset was of another one."""
        has_all = node != self.follower
        batches = self.batches if has_all else self.batches[: self.follower_batches]
        headers = [parse_header(batch) for batch in batches]
        known = max((h.leader_epoch for h in headers if h.leader_epoch <= epoch), default=epoch)
        later = [h.base_offset for h in headers if h.leader_epoch > known]
        end = min(later, default=max((h.end_offset for h in headers), default=self.start))
        if epoch < 0 or (known == epoch and end >= offset):
            return fetch.EpochEndOffset()
        return fetch.EpochEndOffset(epoch=i32(known), end_offset=i64(end))


class Brokers:
    """Brokers 1 and 2 and the logs of a topic."""

    def __init__(self, topic: str = "orders", partitions: int = 1) -> None:
        self.topic = topic
        self.topic_id: TopicId | None = ID
        self.is_there = True
        self.logs = [Log() for _ in range(partitions)]
        self.refusals: dict[str, deque[Refusal]] = {"Fetch": deque(), "ListOffsets": deque()}
        self.refused_for_ever: dict[str, Refusal] = {}
        self.session_id = 0
        """The id of every fetch session; 0: the brokers keep none."""
        self.failed_fetches: deque[int] = deque()
        """The error codes of the next fetches as a whole, which have no effect then; 0: none."""
        self.requests: list[tuple[int, str, Any]] = []

    def refuse(self, api: str, *refusals: Refusal) -> None:
        """Refuse the next requests of this kind."""
        self.refusals[api] += refusals

    def asked(self, api: str) -> list[tuple[int, Any]]:
        """The nodes that were asked, and the requests."""
        return [(node, request) for node, name, request in self.requests if name == api]


class Connection:
    """A connection to one of the brokers."""

    is_open = True

    def __init__(self, brokers: Brokers, node: int) -> None:
        self._brokers = brokers
        self._node = node
        self.peer = f"broker{node}:909{node}"

    async def request(self, message: Any, *, timeout_ms: int | None = None) -> Any:
        name = type(message).__name__.removesuffix("Request")
        self._brokers.requests.append((self._node, name, message))
        queue = self._brokers.refusals.get(name)
        refusal = queue.popleft() if queue else self._brokers.refused_for_ever.get(name)
        if isinstance(refusal, KafkaError):
            self.is_open = False
            raise refusal
        code = 0
        if isinstance(refusal, type):
            code = refusal.code
        elif refusal is not None:
            refusal()
        await asyncio.sleep(0)
        return getattr(self, f"_{name.lower()}")(message, code)

    def close(self) -> None:
        self.is_open = False

    def _metadata(self, request: Any, code: int) -> Any:
        brokers = self._brokers
        partitions = [
            {
                "error_code": 0 if log.leader > 0 else 5, "partition_index": index,
                "leader_id": log.leader, "leader_epoch": log.epoch, "replica_nodes": (1, 2),
                "isr_nodes": (1, 2), "offline_replicas": (),
            }
            for index, log in enumerate(brokers.logs)
        ]  # fmt: skip
        topics = [
            made(
                metadata.MetadataResponseTopic,
                error_code=0 if there else UnknownTopicOrPartition.code,
                name=wanted.name,
                topic_id=brokers.topic_id if there else None,
                partitions=tuple(
                    made(metadata.MetadataResponsePartition, **partition)
                    for partition in partitions
                    if there
                ),
            )
            for wanted in request.topics
            for there in [brokers.is_there and wanted.name == brokers.topic]
        ]
        nodes = tuple(
            made(
                metadata.MetadataResponseBroker,
                node_id=node,
                host=f"broker{node}",
                port=9090 + node,
            )
            for node in (1, 2)
        )
        return made(
            metadata.MetadataResponse,
            throttle_time=None, brokers=nodes, cluster_id="c", controller_id=1,
            topics=tuple(topics), error_code=0,
        )  # fmt: skip

    def _fetch(self, request: Any, code: int) -> Any:
        failed = self._brokers.failed_fetches
        room = request.max_bytes
        topics = []
        if failed and (whole := failed.popleft()):
            return made(
                fetch.FetchResponse, throttle_time=timedelta(0), error_code=whole, responses=()
            )
        for topic in request.topics:
            partitions = []
            for wanted in topic.partitions:
                log = self._brokers.logs[wanted.partition]
                error = code
                if self._node != log.follower:
                    error = code or self._refusal(log, wanted.current_leader_epoch)
                if not error and topic.topic_id != self._brokers.topic_id:
                    error = UnknownTopicId.code
                diverging = fetch.EpochEndOffset()
                if not error and log.start <= wanted.fetch_offset:
                    diverging = log.diverging(
                        self._node, wanted.fetch_offset, wanted.last_fetched_epoch
                    )
                is_inside = log.start <= wanted.fetch_offset <= log.high_watermark
                if not error and diverging.end_offset < 0 and not is_inside:
                    error = OffsetOutOfRange.code
                sends = log.follower in (None, self._node) and diverging.end_offset < 0
                records = self._read(log, wanted, room) if sends and not error else b""
                room -= len(records)
                partitions.append(
                    made(
                        fetch.PartitionData,
                        partition_index=wanted.partition,
                        error_code=error,
                        high_watermark=-1 if error else log.high_watermark,
                        diverging_epoch=diverging,
                        preferred_read_replica=-1 if sends or error else log.follower or -1,
                        aborted_transactions=None,
                        records=records,
                    )
                )
            topics.append(
                made(
                    fetch.FetchableTopicResponse,
                    topic_id=topic.topic_id,
                    partitions=tuple(partitions),
                )
            )
        return made(
            fetch.FetchResponse,
            throttle_time=timedelta(0),
            error_code=0,
            session_id=self._brokers.session_id,
            responses=tuple(topics),
        )

    def _read(self, log: Log, wanted: Any, room: int) -> bytes:
        if log.lie is not None:
            return log.lie
        records = b""
        for batch in log.batches:
            if parse_header(batch).end_offset <= wanted.fetch_offset:
                continue
            if records and len(records) + len(batch) > min(room, wanted.partition_max_bytes):
                break
            if room <= 0:
                break
            records += batch
        return records

    def _listoffsets(self, request: Any, code: int) -> Any:
        topics = []
        for topic in request.topics:
            partitions = []
            for wanted in topic.partitions:
                log = self._brokers.logs[wanted.partition_index]
                error = code or self._refusal(log, wanted.current_leader_epoch)
                found = {EARLIEST: log.start, LATEST: log.high_watermark}.get(wanted.timestamp, -1)
                partitions.append(
                    made(
                        list_offsets.ListOffsetsPartitionResponse,
                        partition_index=wanted.partition_index,
                        error_code=error,
                        offset=-1 if error else found,
                        leader_epoch=log.epoch,
                    )
                )
            topics.append(
                made(
                    list_offsets.ListOffsetsTopicResponse,
                    name=topic.name,
                    partitions=tuple(partitions),
                )
            )
        return made(list_offsets.ListOffsetsResponse, throttle_time=None, topics=tuple(topics))

    def _refusal(self, log: Log, epoch: int) -> int:
        if log.leader != self._node:
            return NotLeaderOrFollower.code
        if epoch not in (-1, log.epoch):
            return FencedLeaderEpoch.code if epoch < log.epoch else UnknownLeaderEpoch.code
        return 0


def made(cls: type[Any], **values: Any) -> Any:
    """A message; types of numbers do not matter here."""
    return cls(**values)


@contextmanager
def connected(brokers: Brokers, **options: Any) -> Iterator[Cluster]:
    """A cluster whose connections lead to these brokers."""

    async def open_connection(address: tuple[str, int], *_: Any, **__: Any) -> Connection:
        return Connection(brokers, 2 if address[1] == 9092 and address[0] == "broker2" else 1)

    cluster = Cluster(ReadingConfig(**{**CONFIG, **options}), connect=open_connection)
    yield cluster
    cluster.close()


def play(brokers: Brokers, scene: Callable[[Cluster], Awaitable[T]], **options: Any) -> T:
    """Run a scene with a client of these brokers; it takes seconds at most."""

    async def run() -> T:
        with connected(brokers, **options) as cluster:
            async with asyncio.timeout(HANGING_SECONDS):
                return await scene(cluster)

    return asyncio.run(run())
