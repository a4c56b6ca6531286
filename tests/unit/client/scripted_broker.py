"""A broker that answers ShareFetch and ShareAcknowledge by a script, in place of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.share_acknowledge.v2 import response as acknowledge

from sharegroup.backoff import Backoff
from sharegroup.errors import KafkaError, NetworkException
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.wire.batches.batches import stamp
from sharegroup.wire.batches.records import encode_batch
from sharegroup.wire.messages import share_fetch_v2 as fetch

TOPIC = TopicId(UUID(int=9))
KEY = TopicIdPartition(TOPIC, 0)
LOCK_SECONDS = 30

Answer = Any
"""A response, an exception that the connection raises instead, or a future of either."""


class ScriptedConnection:
    peer = "scripted:9092"
    reads_delays = False

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.requests: list[Any] = []
        self.is_open = True

    def version_of(self, key: int) -> int:
        return self.broker.version

    async def request(self, message: Any, *, timeout_ms: int) -> Any:
        self.requests.append(message)
        answer = self.broker.answers.pop(0)
        if isinstance(answer, asyncio.Future):
            answer = await answer  # The broker says nothing for now.
        if isinstance(answer, KafkaError):
            self.is_open = False
            raise answer
        return answer

    def fail(self, error: Exception) -> None:
        self.is_open = False


class ScriptedBroker:
    """Every new connection goes on with the script."""

    def __init__(self, *answers: Answer, version: int = 2) -> None:
        self.answers = list(answers)
        self.connections: list[ScriptedConnection] = []
        self.refuses = False
        self.doubted: list[int] = []
        self.version = version

    async def connection(self, node_id: int, purpose: object) -> ScriptedConnection:
        if self.refuses:
            raise NetworkException("connection refused")
        self.connections.append(ScriptedConnection(self))
        return self.connections[-1]

    principal = None

    def doubt(self, node_id: int) -> None:
        self.doubted.append(node_id)

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        return TopicName("t") if topic_id == TOPIC else None

    def backoff(self) -> Backoff:
        return Backoff(100, 1_000, chance=lambda: 0.5)

    @property
    def requests(self) -> list[Any]:
        return [request for connection in self.connections for request in connection.requests]


def batch(*values: bytes, first: int = 0) -> bytes:
    """A log batch with one record for each value, from offset ``first`` on."""
    made = encode_batch([(None, value, 0, ()) for value in values])
    stamp(made, 0, base_offset=first, leader_epoch=0)
    return bytes(made)


def fetched(
    *values: bytes,
    first: int = 0,
    error: int = 0,
    ack_error: int | None = None,
    acquired: Sequence[tuple[int, int]] | None = None,
) -> fetch.ShareFetchResponse:
    """An answer with these records, all acquired; an entry without records for an ack alone."""
    ranges = [(first, first + len(values))] if acquired is None and values else acquired or ()
    part: dict[str, Any] = {
        "partition_index": 0,
        "error_code": error,
        "acknowledge_error_code": ack_error or 0,
        "current_leader": fetch.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),  # type: ignore[arg-type]
        "records": batch(*values, first=first) if values else b"",
        "acquired_records": tuple(
            fetch.AcquiredRecords(first_offset=low, last_offset=end - 1, delivery_count=1)  # type: ignore[arg-type]
            for low, end in ranges
        ),
    }
    said = values or error or ranges or ack_error is not None
    topic = fetch.ShareFetchableTopicResponse(
        topic_id=TOPIC, partitions=(fetch.PartitionData(**part),)
    )
    whole: dict[str, Any] = {"responses": (topic,) if said else (), "error_code": 0}
    return fetch.ShareFetchResponse(
        **whole,
        throttle_time=timedelta(0),  # type: ignore[arg-type]
        acquisition_lock_timeout=timedelta(seconds=LOCK_SECONDS),  # type: ignore[arg-type]
        node_endpoints=(),
    )


def acknowledged(
    *, error: int = 0, top: int = 0, silent: bool = False, message: str = "says the broker"
) -> acknowledge.ShareAcknowledgeResponse:
    part: dict[str, Any] = {
        "partition_index": 0,
        "error_code": error,
        "error_message": message,
        "current_leader": acknowledge.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),  # type: ignore[arg-type]
    }
    topic = acknowledge.ShareAcknowledgeTopicResponse(
        topic_id=TOPIC, partitions=(acknowledge.PartitionData(**part),)
    )
    whole: dict[str, Any] = {"error_code": top, "responses": () if top or silent else (topic,)}
    return acknowledge.ShareAcknowledgeResponse(
        **whole,
        throttle_time=timedelta(0),  # type: ignore[arg-type]
        acquisition_lock_timeout=timedelta(seconds=LOCK_SECONDS),  # type: ignore[arg-type]
        node_endpoints=(),
    )


def ack_batches(request: Any) -> list[tuple[int, int, Sequence[int]]]:
    """First and last offset and types of everything that a request acknowledges."""
    return [
        (batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
        for topic in request.topics
        for partition in topic.partitions
        for batch in partition.acknowledgement_batches
    ]
