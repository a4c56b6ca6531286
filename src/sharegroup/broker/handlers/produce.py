"""Produce (0): whole record batches are checked and appended; the reply waits for the disk.

Batches stay the bytes that the producer sent: the base offset, the leader epoch and, where the
topic wants the broker's time, the timestamp are written into their headers, nothing else.  All
partitions of a request are appended at once, in its order, before the next request is looked
at; that is what keeps an idempotent producer's sequences in order.

Requests are taken in the version they came in: topics are named before version 13 and have
ids from then on, and this is a path where every microsecond counts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from sharegroup.broker.cluster.topics import LogSettings
from sharegroup.broker.dispatch import NO_REPLY, CloseConnection, Context, Encoded, error_code
from sharegroup.broker.parts import Parts
from sharegroup.errors import (
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTopic,
    KafkaError,
    MessageTooLarge,
)
from sharegroup.ids import TopicId, TopicName
from sharegroup.storage.partition_log import PartitionLog
from sharegroup.storage.tickets import Ticket
from sharegroup.wire.apis import response_module
from sharegroup.wire.batches import Writable, stamp_append_time, validate
from sharegroup.wire.records import decode_records

NATIVE = True
TOPIC_ID_VERSION = 13
LOG_START_VERSION = 5
ERROR_MESSAGE_VERSION = 8


class Appended(NamedTuple):
    """One partition's batch is in the log; durable when the ticket is."""

    ticket: Ticket
    log: PartitionLog
    append_time_ms: int | None


Result = Appended | KafkaError
Results = list[tuple[Any, list[tuple[int, Result]]]]
"""For each topic of the request its partitions, and what became of each."""


def handle(parts: Parts, context: Context, request: Any) -> Awaitable[Any] | Any:
    if request.acks not in (-1, 0, 1):
        raise InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {request.acks}")
    if request.transactional_id is not None:
        raise InvalidRequest(
            f"transactional id {request.transactional_id!r}: transactions are not served"
        )
    results = [
        (topic, [(one.index, _append(parts, topic, one)) for one in topic.partition_data])
        for topic in request.topic_data
    ]
    if request.acks == 0:
        return _without_reply(results)
    if all(
        isinstance(result, KafkaError) or result.ticket.done
        for _, partitions in results
        for _, result in partitions
    ):
        return _response(context.api_version, results)
    return _when_durable(context.api_version, results)


def refuse(request: Any, error: KafkaError) -> Any:
    if request.acks == 0:
        # Nobody reads an answer; a closed connection is the only way to be heard.
        raise CloseConnection(str(error)) from error
    results: Results = [
        (topic, [(one.index, error) for one in topic.partition_data])
        for topic in request.topic_data
    ]
    return _response(request.__version__, results)


def _append(parts: Parts, topic: Any, data: Any) -> Result:
    try:
        if hasattr(topic, "name"):
            found, log = parts.topics.named(TopicName(topic.name), data.index)
        else:
            found, log = parts.topics.identified(TopicId(topic.topic_id), data.index)
        if found.is_internal:
            raise InvalidTopic(f"{found.name!r} is internal: only the broker writes to it")
        settings = parts.topics.settings(found)
        batch = data.records
        _check(batch, settings, f"{found.name}-{data.index}")
        now_ms = parts.clock.wall_ms()
        if settings.append_time:
            stamp_append_time(batch, now_ms)
        ticket = log.append(batch, now_ms=now_ms)
    except KafkaError as error:
        return error
    return Appended(ticket, log, now_ms if settings.append_time else None)


def _check(batch: Writable | None, settings: LogSettings, where: str) -> None:
    if not batch:
        raise InvalidRecord(f"{where}: one record batch is needed, none came")
    if len(batch) > settings.message_bytes_max:
        raise MessageTooLarge(
            f"{where}: the batch has {len(batch)} bytes, max.message.bytes is "
            f"{settings.message_bytes_max}"
        )
    try:
        headers = validate(batch)
    except KafkaError as error:
        raise type(error)(f"{where}: {error}") from error
    if len(headers) != 1:
        raise InvalidRecord(f"{where}: one record batch is allowed, {len(headers)} came")
    if settings.compaction is not None:
        _check_keys(batch, where)
    if headers[0].is_transactional:
        raise InvalidRecord(f"{where}: transactions are not served")


def _check_keys(batch: Writable, where: str) -> None:
    """A record without a key would be gone after the next compaction."""
    if any(record.key is None for record in decode_records(batch)):
        raise InvalidRecord(f"{where}: cleanup.policy=compact takes no record without a key")


def _without_reply(results: Results) -> Encoded:
    for _, partitions in results:
        for _, result in partitions:
            if isinstance(result, KafkaError):
                raise CloseConnection(f"produce with acks=0 failed: {result}") from result
    return NO_REPLY


async def _when_durable(version: int, results: Results) -> Any:
    for _, partitions in results:
        for position, (index, result) in enumerate(partitions):
            if isinstance(result, Appended):
                try:
                    await result.ticket
                except KafkaError as error:
                    partitions[position] = (index, error)
    return _response(version, results)


def _response(version: int, results: Results) -> Any:
    messages = response_module(0, version)
    responses = []
    for topic, partitions in results:
        which = (
            {"topic_id": topic.topic_id} if version >= TOPIC_ID_VERSION else {"name": topic.name}
        )
        answered = tuple(
            messages.PartitionProduceResponse(**_fields(version, index, result))
            for index, result in partitions
        )
        responses.append(messages.TopicProduceResponse(**which, partition_responses=answered))
    return messages.ProduceResponse(responses=tuple(responses))


def _fields(version: int, index: int, result: Result) -> dict[str, Any]:
    if isinstance(result, KafkaError):
        fields: dict[str, Any] = {
            "index": index,
            "error_code": error_code(result),
            "base_offset": -1,
            "log_append_time": None,
        }
        start_offset, message = -1, str(result)
    else:
        fields = {
            "index": index,
            "error_code": ErrorCode.none,
            "base_offset": result.ticket.base_offset,
            "log_append_time": _time(result.append_time_ms),
        }
        start_offset, message = result.log.start_offset, None
    if version >= LOG_START_VERSION:
        fields["log_start_offset"] = start_offset
    if version >= ERROR_MESSAGE_VERSION:
        fields["record_errors"] = ()
        fields["error_message"] = message
    return fields


def _time(milliseconds: int | None) -> dt.datetime | None:
    if milliseconds is None:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    exact = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    return exact + dt.timedelta(milliseconds=rest)
