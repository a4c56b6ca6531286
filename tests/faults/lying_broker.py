"""A broker that says whatever a test tells it to, byte by byte if need be.

It is honest until it is told a lie: it has one topic ``t`` of one partition that holds one
record, one group coordinator, and takes whatever is produced and acknowledged.

    async with LyingBroker() as broker:
        broker.lies[METADATA] = lambda request, honest: honest_but(honest, cluster_id="x" * 10**6)
        ...
        broker.lies.clear()       # From now on it tells the truth.

A lie gets the request and the honest answer, and returns a message, or the bytes of a whole
frame (with its length), or None for silence.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple, Self
from uuid import UUID

from sharegroup.wire.batches.records import encode_batch
from sharegroup.wire.codec.apis import (
    APIS,
    PEER_APIS,
    api_of,
    is_flexible,
    request_class,
    response_class,
)
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode_response
from sharegroup.wire.codec.headers import decode_request_header

PRODUCE, METADATA, FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 10, 18, 22
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79
LIST_OFFSETS, DESCRIBE_CONFIGS = 2, 32

TOPIC, TOPIC_ID = "t", UUID(int=7)
NODE = 1
NO_TIME = timedelta(0)
VALUE = b"the truth"


class Request(NamedTuple):
    key: int
    version: int
    correlation_id: int
    message: Any


Lie = Callable[[Request, Any], Any]
"""From a request and the honest answer to a message, a frame's bytes, or None."""


def made(key: int, part: str, /, **values: Any) -> Any:
    """A message, or a part of one, of the newest version of a response."""
    api = api_of(key)
    module = __import__(response_class(key, api.newest).__module__, fromlist=[part])
    return getattr(module, part)(**values)


def answer(key: int, **values: Any) -> Any:
    """A response of the newest version."""
    return response_class(key, api_of(key).newest)(throttle_time=NO_TIME, **values)


def honest_but(message: Any, **values: Any) -> Any:
    """The honest answer with other values in some fields."""
    return dataclasses.replace(message, **values)


def frame(payload: bytes, length: int | None = None) -> bytes:
    """A frame as on the wire; ``length`` is what it claims, if not the truth."""
    claimed = len(payload) if length is None else length
    return claimed.to_bytes(4, "big", signed=True) + payload


def header(request: Request) -> bytes:
    """What every answer to this request begins with."""
    flexible = request.key != API_VERSIONS and request.version >= api_of(request.key).flexible
    return request.correlation_id.to_bytes(4, "big") + (b"\0" if flexible else b"")


class LyingBroker:
    """A broker that sends the responses that a test gives it."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.lies: dict[int, Lie] = {}
        self.seen: Counter[int] = Counter()
        self.order: list[int] = []
        """The keys of all requests in the order in which they came."""
        self.trickle: dict[int, float] = {}
        """Seconds between two bytes of answers to these requests; others come at once."""
        self.port = 0
        self._tls = tls
        self._next = {TOPIC: 0}
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def hang_up(self) -> None:
        """Cut every connection."""
        for task, writer in self._serving.items():
            writer.transport.abort()
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while True:
                    length = int.from_bytes(await reader.readexactly(4), "big")
                    await self._answer(await reader.readexactly(length), writer)
        finally:
            del self._serving[task]
            writer.transport.abort()

    async def _answer(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        head = decode_request_header(body)
        api = api_of(head.api_key)
        # Only the newest version is offered, but ApiVersions may come in any.
        cls = request_class(head.api_key, head.api_version)
        # A header of a request that our own broker does not serve is read without its tags.
        tags = head.api_key in PEER_APIS and is_flexible(head.api_key, head.api_version)
        message, _ = decode(cls, body, head.body_position + tags)
        request = Request(head.api_key, head.api_version, head.correlation_id, message)
        self.seen[request.key] += 1
        self.order.append(request.key)
        reply = self._honest(request)
        if (lie := self.lies.get(request.key)) is not None:
            reply = lie(request, reply)
        if reply is None:
            return
        if not isinstance(reply, bytes):
            assert api.newest == request.version or request.key == API_VERSIONS
            reply = encode_response(request.correlation_id, reply)
        pause = self.trickle.get(request.key)
        step = len(reply) if pause is None else 1
        for index in range(0, len(reply), step):
            writer.write(reply[index : index + step])
            await writer.drain()
            await asyncio.sleep(pause or 0)

    def _honest(self, request: Request) -> Any:
        match request.key:
            case 18:
                return api_versions(request)
            case 3:
                return self._metadata()
            case 10:
                return self._coordinators(request)
            case 17:
                return response_class(17, 1)(error_code=0, mechanisms=("PLAIN",))
            case 36:
                return response_class(36, 2)(
                    error_code=0, error_message=None, auth_bytes=b"", session_lifetime=NO_TIME
                )
            case 22:
                return answer(22, error_code=0, producer_id=5, producer_epoch=0)
            case 0:
                return produced(request)
            case 2:
                return listed(request)
            case 76:
                return self._heartbeat(request)
            case 78:
                return self._fetched(request)
            case 79:
                return acknowledged(request)
            case _:
                return None

    def _metadata(self) -> Any:
        broker = made(
            METADATA, "MetadataResponseBroker", node_id=NODE, host="127.0.0.1", port=self.port
        )
        partition = made(
            METADATA,
            "MetadataResponsePartition",
            error_code=0,
            partition_index=0,
            leader_id=NODE,
            replica_nodes=(NODE,),
            isr_nodes=(NODE,),
            offline_replicas=(),
        )
        topic = made(
            METADATA,
            "MetadataResponseTopic",
            error_code=0,
            name=TOPIC,
            topic_id=TOPIC_ID,
            partitions=(partition,),
        )
        return answer(
            METADATA,
            brokers=(broker,),
            cluster_id="c",
            controller_id=NODE,
            topics=(topic,),
            error_code=0,
        )

    def _coordinators(self, request: Request) -> Any:
        (key,) = request.message.coordinator_keys
        reply = made(
            FIND_COORDINATOR,
            "Coordinator",
            key=key,
            node_id=NODE,
            host="127.0.0.1",
            port=self.port,
            error_code=0,
            error_message=None,
        )
        return answer(FIND_COORDINATOR, coordinators=(reply,))

    def _heartbeat(self, request: Request) -> Any:
        part = made(HEARTBEAT, "TopicPartitions", topic_id=TOPIC_ID, partitions=(0,))
        return answer(
            HEARTBEAT,
            error_code=0,
            member_id=request.message.member_id,
            member_epoch=max(request.message.member_epoch, 1),
            heartbeat_interval=timedelta(milliseconds=50),
            assignment=made(HEARTBEAT, "Assignment", topic_partitions=(part,)),
        )

    def _fetched(self, request: Request) -> Any:
        """The one record, to each fetch that asks for records again and again."""
        offset = self._next[TOPIC]
        self._next[TOPIC] += 1
        batch = bytearray(record_batch(offset))
        return fetched((acquired(offset, offset),), bytes(batch))


def record_batch(offset: int, value: bytes = VALUE, *, codec: int = 0) -> bytes:
    """A batch of one record at this offset."""
    batch = encode_batch([(None, value, 0, ())], codec=codec)
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)


def acquired(first: int, last: int, count: int = 1) -> Any:
    return made(
        SHARE_FETCH, "AcquiredRecords", first_offset=first, last_offset=last, delivery_count=count
    )


def fetched(
    ranges: tuple[Any, ...], records: bytes | None, *, lock_ms: int = 30_000, partition: int = 0
) -> Any:
    """An answer to ShareFetch about the one partition."""
    part = made(
        SHARE_FETCH,
        "PartitionData",
        partition_index=partition,
        error_code=0,
        acknowledge_error_code=0,
        current_leader=made(SHARE_FETCH, "LeaderIdAndEpoch", leader_id=0, leader_epoch=0),
        records=records,
        acquired_records=ranges,
    )
    topic = made(SHARE_FETCH, "ShareFetchableTopicResponse", topic_id=TOPIC_ID, partitions=(part,))
    return answer(
        SHARE_FETCH,
        error_code=0,
        acquisition_lock_timeout=timedelta(milliseconds=lock_ms),
        responses=(topic,),
        node_endpoints=(),
    )


def acknowledged(request: Request) -> Any:
    topics = tuple(
        made(
            SHARE_ACKNOWLEDGE,
            "ShareAcknowledgeTopicResponse",
            topic_id=topic.topic_id,
            partitions=tuple(
                made(
                    SHARE_ACKNOWLEDGE,
                    "PartitionData",
                    partition_index=part.partition_index,
                    error_code=0,
                    current_leader=made(
                        SHARE_ACKNOWLEDGE, "LeaderIdAndEpoch", leader_id=0, leader_epoch=0
                    ),
                )
                for part in topic.partitions
            ),
        )
        for topic in request.message.topics
    )
    return answer(
        SHARE_ACKNOWLEDGE,
        error_code=0,
        acquisition_lock_timeout=timedelta(seconds=30),
        responses=topics,
        node_endpoints=(),
    )


def produced(request: Request) -> Any:
    topics = tuple(
        made(
            PRODUCE,
            "TopicProduceResponse",
            topic_id=topic.topic_id,
            partition_responses=tuple(
                made(
                    PRODUCE,
                    "PartitionProduceResponse",
                    index=part.index,
                    error_code=0,
                    base_offset=11,
                    record_errors=(),
                )
                for part in topic.partition_data
            ),
        )
        for topic in request.message.topic_data
    )
    return answer(PRODUCE, responses=topics)


def listed(request: Request) -> Any:
    topics = tuple(
        made(
            LIST_OFFSETS,
            "ListOffsetsTopicResponse",
            name=topic.name,
            partitions=tuple(
                made(
                    LIST_OFFSETS,
                    "ListOffsetsPartitionResponse",
                    partition_index=part.partition_index,
                    error_code=0,
                    timestamp=-1,
                    offset=12,
                )
                for part in topic.partitions
            ),
        )
        for topic in request.message.topics
    )
    return answer(LIST_OFFSETS, topics=topics)


def api_versions(request: Request, ranges: Any = None) -> Any:
    """Only the newest version of each API, so that no answer needs to be converted."""
    offered = ranges or [
        (api.key, api.newest, api.newest) for api in (*APIS.values(), *PEER_APIS.values())
    ]
    module = __import__(response_class(18, request.version).__module__, fromlist=["ApiVersion"])
    return response_class(18, request.version)(
        error_code=0,
        api_keys=tuple(
            module.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in offered
        ),
        throttle_time=NO_TIME,
    )
