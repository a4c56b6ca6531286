"""Fetch (1): record batches from given offsets on, for consumers without a share group.

Whole batches are sent as they lie in the log, from the one that holds the offset; nothing at
or above the high watermark.  Who reads committed records only gets nothing at or above the last
stable offset, and a list of the aborted transactions among what it gets: it leaves their
records out itself.  With nothing to send, the request waits until there are
``min_bytes`` or its time is up.  Sessions (KIP-227) are `sharegroup.core.fetch_session`.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.handlers.share_fetch import WAIT_MS_MAX
from sharegroup.broker.parts import Parts
from sharegroup.broker.waiting import OfConnection
from sharegroup.core.fetch_session import (
    FINAL_EPOCH,
    FetchKey,
    FetchPlan,
    Picture,
    Wanted,
)
from sharegroup.errors import (
    KafkaError,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from sharegroup.ids import TopicId, TopicName, TopicPartition
from sharegroup.storage.partition_log import PartitionLog
from sharegroup.wire.apis import response_module
from sharegroup.wire.batches import scan

NATIVE = True
TOPIC_ID_VERSION = 13
ERROR_VERSION = 7
LEADER_EPOCH = 0
LOG_START_VERSION = 5
READ_COMMITTED = 1

Aborted = tuple[tuple[int, int], ...]
"""Producer ids, each with the first offset of an aborted transaction."""


class Read(NamedTuple):
    """What one look at a partition brought."""

    error: KafkaError | None
    high_watermark: int
    last_stable_offset: int
    start_offset: int
    records: bytes
    aborted: Aborted | None
    """None for who reads uncommitted records too."""


def handle(parts: Parts, context: Context, request: Any) -> Any:
    plan = parts.fetch_sessions.plan(
        getattr(request, "session_id", 0),
        getattr(request, "session_epoch", FINAL_EPOCH),
        connection_id=context.connection_id,
        named=_named(request),
        forgotten=_forgotten(request),
    )
    fetch = _Fetch(parts, context, request, plan)
    found = fetch.look(last=request.max_wait <= timedelta(0))
    return found if found is not None else fetch.wait()


def refuse(request: Any, error: KafkaError) -> Any:
    messages = _messages(request.__version__)
    fields: dict[str, Any] = {"throttle_time": NO_THROTTLE, "responses": ()}
    if request.__version__ >= ERROR_VERSION:
        fields["error_code"] = error_code(error)
    return messages.FetchResponse(**fields)


class _Fetch:
    """One request, looked at now and maybe again."""

    __slots__ = ("_committed_only", "_connection", "_found", "_parts", "_plan", "_request")

    def __init__(self, parts: Parts, context: Context, request: Any, plan: FetchPlan) -> None:
        self._parts = parts
        self._connection = OfConnection(context.connection_id)
        self._request = request
        self._committed_only = getattr(request, "isolation_level", 0) == READ_COMMITTED
        self._plan = plan
        self._found: dict[FetchKey, TopicPartition] = {}  # What may wake it.

    def look(self, *, last: bool) -> Any:
        """The response, or None while there is too little to answer."""
        server_bytes = self._parts.config.server.fetch_bytes_max
        bytes_left = min(self._request.max_bytes, server_bytes)
        reads: dict[FetchKey, Read] = {}
        total = 0
        for key, wanted in self._plan.wanted.items():
            limit = min(wanted.bytes_max, bytes_left - total)
            # The first batch of a request is sent whole however large it is, later ones fit.
            reads[key] = self._read(key, wanted, bytes_max=limit, whole_batch=total == 0)
            total += len(reads[key].records)
        failed = any(read.error is not None for read in reads.values())
        if total < self._request.min_bytes and not failed and not last and reads:
            return None
        return self._respond(reads)

    def wait(self) -> asyncio.Future[Any]:
        wait_ms = self._request.max_wait // timedelta(milliseconds=1)
        return self._parts.waiting.park(
            lambda last: self.look(last=last),
            keys=(self._connection, *self._found.values()),
            deadline_ms=self._parts.clock.now_ms() + min(max(0, wait_ms), WAIT_MS_MAX),
        )

    def _log(self, key: FetchKey) -> PartitionLog:
        topic, partition = key
        if isinstance(topic, UUID):
            return self._parts.topics.identified(TopicId(topic), partition)[1]
        return self._parts.topics.named(TopicName(topic), partition)[1]

    def _read(self, key: FetchKey, wanted: Wanted, *, bytes_max: int, whole_batch: bool) -> Read:
        try:
            log = self._log(key)
            self._found[key] = log.key
            _check_epoch(key, wanted.leader_epoch)
            offset, end = wanted.fetch_offset, log.high_watermark
            if not log.start_offset <= offset <= log.end_offset:
                raise OffsetOutOfRange(
                    f"{key[0]}-{key[1]}: offset {offset} is outside the log, which "
                    f"holds {log.start_offset} to {end}"
                )
            stable = log.last_stable_offset
            if self._committed_only:
                end = stable
            records = b""
            if offset < end and (bytes_max > 0 or whole_batch):
                records = log.read(offset, end=end, bytes_max=max(0, bytes_max))
                if len(records) > bytes_max and not whole_batch:
                    records = b""
            aborted = _aborted(log, offset, end, records) if self._committed_only else None
        except KafkaError as error:
            return Read(error, -1, -1, -1, b"", None)
        return Read(None, log.high_watermark, stable, log.start_offset, records, aborted)

    def _respond(self, reads: dict[FetchKey, Read]) -> Any:
        messages = _messages(self._request.__version__)
        sessions, session_id = self._parts.fetch_sessions, self._plan.session_id
        topics: dict[UUID | str, list[Any]] = {}
        for key, read in reads.items():
            picture = Picture(read.high_watermark, read.start_offset)
            news = sessions.news(session_id, key, picture) or bool(read.records or read.error)
            if news or not self._plan.incremental:
                topics.setdefault(key[0], []).append(messages.partition(key[1], read))
        sessions.records_returned(session_id, [key for key, read in reads.items() if read.records])
        return messages.response(session_id, topics)


class _Messages:
    """The response classes of one version, and how to fill them."""

    def __init__(self, version: int) -> None:
        module = response_module(1, version)
        self.FetchResponse = module.FetchResponse
        self._topic = module.FetchableTopicResponse
        self._partition = module.PartitionData
        self._aborted = getattr(module, "AbortedTransaction", None)
        self._version = version

    def partition(self, index: int, read: Read) -> Any:
        fields = {
            "partition_index": index,
            "error_code": ErrorCode.none if read.error is None else error_code(read.error),
            "high_watermark": read.high_watermark,
            "last_stable_offset": read.last_stable_offset,
            "log_start_offset": read.start_offset,
            "aborted_transactions": self._transactions(read.aborted),
            "records": read.records,
        }
        if self._version < LOG_START_VERSION:
            del fields["log_start_offset"]
        return self._partition(**fields)

    def _transactions(self, aborted: Aborted | None) -> tuple[Any, ...] | None:
        if aborted is None or self._aborted is None:
            return None
        return tuple(
            self._aborted(producer_id=producer_id, first_offset=first)
            for producer_id, first in aborted
        )

    def response(self, session_id: int, topics: dict[UUID | str, list[Any]]) -> Any:
        which = "topic_id" if self._version >= TOPIC_ID_VERSION else "topic"
        responses = tuple(
            self._topic(**{which: topic, "partitions": tuple(partitions)})
            for topic, partitions in topics.items()
        )
        fields: dict[str, Any] = {"throttle_time": NO_THROTTLE, "responses": responses}
        if self._version >= ERROR_VERSION:
            fields |= {"error_code": ErrorCode.none, "session_id": session_id}
        return self.FetchResponse(**fields)


@cache
def _messages(version: int) -> _Messages:
    return _Messages(version)


def _named(request: Any) -> dict[FetchKey, Wanted]:
    return {
        (_topic(one), partition.partition): Wanted(
            fetch_offset=partition.fetch_offset,
            bytes_max=partition.partition_max_bytes,
            leader_epoch=getattr(partition, "current_leader_epoch", -1),
        )
        for one in request.topics
        for partition in one.partitions
    }


def _forgotten(request: Any) -> list[FetchKey]:
    return [
        (_topic(one), partition)
        for one in getattr(request, "forgotten_topics_data", ())
        for partition in one.partitions
    ]


def _topic(one: Any) -> UUID | str:
    """A topic's name, or from version 13 on its id; no id is an id that nobody has."""
    if hasattr(one, "topic"):
        name: str = one.topic
        return name
    return one.topic_id or UUID(int=0)


def _aborted(log: PartitionLog, offset: int, end: int, records: bytes) -> Aborted:
    """The aborted transactions that reach into what was read."""
    found = log.aborted_transactions(offset, end) if records else ()
    if not found:
        return ()  # Only otherwise it is worth looking where the records end.
    end = max(header.end_offset for _, header in scan(records))
    return tuple((producer_id, first) for producer_id, first, _ in found if first < end)


def _check_epoch(key: FetchKey, epoch: int) -> None:
    """There never was an older epoch than ours, so none is fenced; -1 does not say any."""
    if epoch > LEADER_EPOCH:
        raise UnknownLeaderEpoch(
            f"{key[0]}-{key[1]}: the leader epoch is {LEADER_EPOCH}, not {epoch}"
        )
