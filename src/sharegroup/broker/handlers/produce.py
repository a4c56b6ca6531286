"""Produce (0): checks and appends whole record batches; the reply waits until they are durable.

The bytes of a batch stay as the producer sent them, except for its header.  There the broker writes
the base offset, the leader epoch and, with ``message.timestamp.type=LogAppendTime``, the timestamp.
All partitions of a request are appended at once, in order, before the next request is handled.
This keeps the sequences of an idempotent producer in order.

Requests are handled in the version of the client, because a conversion would slow down this hot
path.  Topics have names before version 13, and ids from then on.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from sharegroup.broker.cluster.topics import LogSettings
from sharegroup.broker.handler_contract import (
    NO_REPLY,
    CloseConnection,
    Encoded,
    Later,
    RequestContext,
    Wide,
    error_code,
)
from sharegroup.broker.parts import Parts
from sharegroup.errors import (
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTimestamp,
    InvalidTopic,
    KafkaError,
    MessageTooLarge,
)
from sharegroup.ids import TopicId, TopicName
from sharegroup.steps import STEP_MASK, Steps
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.apis import response_module
from sharegroup.wire.batches import (
    NO_TIMESTAMP,
    BatchHeader,
    Writable,
    stamp_append_time,
    validate,
)
from sharegroup.wire.record_walk import small_records

if TYPE_CHECKING:
    # At run time only the versions that clients use are imported.
    from sharegroup.broker.message_versions import (
        PartitionProduceData,
        ProduceRequest,
        ProduceResponse,
        TopicProduceData,
    )

LOG_START_VERSION = 5
ERROR_MESSAGE_VERSION = 8

ZERO_ID = UUID(int=0)

WIDE_MASK = 15
"""Bit mask: a step ends after every 16 partitions of a wide request."""


class Appended(NamedTuple):
    """A batch that was appended to a log; it is durable when its ticket is."""

    ticket: Ticket
    log: PartitionLog
    append_time_ms: int | None


Result = Appended | KafkaError
WaitingAppend = asyncio.Task[Result]
"""An append that waits for the check of the keys of a large batch."""

Results = list[tuple["TopicProduceData", list[tuple[int, Result | WaitingAppend]]]]
"""The topics of a request, each with its partition indexes and their results."""


def handle(
    parts: Parts, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Encoded | Later[ProduceResponse | Encoded]:
    """Append all batches now; a refused batch does not affect the others.

    With acks=0 nothing is awaited, and there is no reply.
    """
    _check_request(request)
    results: Results = []
    are_done = True
    for topic in request.topic_data:
        partitions: list[tuple[int, Result | WaitingAppend]] = []
        for data in topic.partition_data:
            result = _append(parts, topic, data)
            partitions.append((data.index, result))
            if type(result) is Appended:
                are_done = are_done and result.ticket.done
            elif isinstance(result, asyncio.Task):
                are_done = False
        results.append((topic, partitions))
    if request.acks == 0:
        return _without_reply(results)
    if are_done:
        return _response(context.api_version, results)
    return Later(_when_durable(context.api_version, results))


def handle_wide(
    parts: Parts, context: RequestContext, request: ProduceRequest
) -> Steps[Encoded | Later[Encoded | Wide[ProduceResponse]]]:
    """Append to many partitions in steps; as in Kafka, each append succeeds or fails on its own."""
    refused: KafkaError | None = None
    try:
        _check_request(request)
    except KafkaError as error:
        if request.acks == 0:
            raise
        refused = error.with_traceback(None)
    results: Results = []
    appends = 0
    for topic in request.topic_data:
        partitions: list[tuple[int, Result | WaitingAppend]] = []
        results.append((topic, partitions))
        for data in topic.partition_data:
            partitions.append((data.index, refused or _append(parts, topic, data)))
            appends += 1
            if appends & WIDE_MASK == WIDE_MASK:
                yield
    if request.acks == 0:
        return _without_reply(results)
    return Later(_when_all_durable(parts, context.api_version, results))


def _check_request(request: ProduceRequest) -> None:
    if request.acks not in (-1, 0, 1):
        raise InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {request.acks}")
    if request.transactional_id is not None:
        raise InvalidRequest(
            f"transactional id {request.transactional_id!r}: transactions are not supported"
        )


def refuse(request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    """Return the error for every partition; raise CloseConnection for a request with acks=0."""
    if request.acks == 0:
        # With acks=0 there is no response, so a closed connection is the only report of the error.
        raise CloseConnection(str(error)) from error
    results: Results = [
        (topic, [(partition.index, error) for partition in topic.partition_data])
        for topic in request.topic_data
    ]
    return _response(request.__version__, results)


def _append(
    parts: Parts, topic: TopicProduceData, data: PartitionProduceData
) -> Result | WaitingAppend:
    try:
        if hasattr(topic, "name"):
            found, log = parts.topics.named(TopicName(topic.name), data.index)
        else:
            found, log = parts.topics.identified(TopicId(topic.topic_id or ZERO_ID), data.index)
        if found.is_internal:
            raise InvalidTopic(f"{found.name!r} is internal: only the broker writes to it")
        settings = parts.topics.settings(found)
        batch: Any = data.records  # Dispatch has it decoded as a `Writable`, which kio cannot say.
        now_ms = parts.clock.wall_ms()
        header = _check(batch, settings, f"{found.name}-{data.index}", now_ms)
        if settings.compaction is not None or parts.key_checks.last:
            later = _check_keys(parts, log, batch, header, settings)
            if later is not None:
                return later
        return _written(log, batch, settings, now_ms)
    except KafkaError as error:
        return error


def _written(log: PartitionLog, batch: Writable, settings: LogSettings, now_ms: int) -> Appended:
    if settings.append_time:
        stamp_append_time(batch, now_ms)
        return Appended(log.append(batch, now_ms=now_ms), log, now_ms)
    return Appended(log.append(batch, now_ms=now_ms), log, None)


def _check(batch: Writable | None, settings: LogSettings, where: str, now_ms: int) -> BatchHeader:
    """Return the header of the only batch; raise if there is not exactly one valid batch."""
    if not batch:
        raise InvalidRecord(f"{where}: expected one record batch, found none")
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
        raise InvalidRecord(f"{where}: expected one record batch, found {len(headers)}")
    header = headers[0]
    if header.is_transactional:
        raise InvalidRecord(f"{where}: transactions are not supported")
    if not settings.append_time:
        # Only the timestamps in the header are checked, not those of each record.
        first, largest = header.first_timestamp, header.max_timestamp
        earliest = now_ms - settings.timestamp_before_ms_max
        latest = now_ms + settings.timestamp_after_ms_max
        if largest > latest or first > latest or (first < earliest and first != NO_TIMESTAMP):
            raise InvalidTimestamp(
                f"{where}: timestamps {first} (first) and {largest} (largest) must lie within "
                f"{earliest} and {latest} (message.timestamp.before.max.ms and .after.max.ms)"
            )
    return header


def _check_keys(
    parts: Parts, log: PartitionLog, batch: Writable, header: BatchHeader, settings: LogSettings
) -> WaitingAppend | None:
    """Check that all records have keys, because compaction would remove records without a key.

    Returns None if the batch can be appended now.  A large batch is checked in steps, and later
    batches of its partition wait for it.
    """
    if log.key not in parts.key_checks.last:
        if settings.compaction is None:
            return None
        records = small_records(batch, header)
        if records is not None:
            if any(record.key is None for record in records):
                raise InvalidRecord("cleanup.policy=compact does not allow records without a key")
            return None
    return parts.key_checks.append_later(
        log.key,
        batch,
        header,
        lambda: _written(log, batch, settings, parts.clock.wall_ms()),
    )


def _without_reply(results: Results) -> Encoded | Later[Encoded]:
    for _, partitions in results:
        for _, result in partitions:
            if isinstance(result, KafkaError):
                raise CloseConnection(f"produce with acks=0 failed: {result}") from result
            if isinstance(result, asyncio.Task):
                return Later(_without_reply_later(results))
    return NO_REPLY


async def _without_reply_later(results: Results) -> Encoded:
    await _appended(results)
    reply = _without_reply(results)
    assert isinstance(reply, Encoded), "no append waits any more"
    return reply


async def _appended(results: Results) -> None:
    """Wait for all waiting appends and replace them by their results."""
    for _, partitions in results:
        for position, (index, result) in enumerate(partitions):
            if isinstance(result, asyncio.Task):
                partitions[position] = (index, await result)


async def _when_durable(version: int, results: Results) -> ProduceResponse:
    await _appended(results)
    for _, partitions in results:
        for position, (index, result) in enumerate(partitions):
            if isinstance(result, Appended):
                try:
                    await result.ticket
                except KafkaError as error:
                    partitions[position] = (index, error)
    return _response(version, results)


async def _when_all_durable(parts: Parts, version: int, results: Results) -> Wide[ProduceResponse]:
    """Like `_when_durable`, for many partitions, in slices."""
    for topic in results:
        await _when_topic_durable(parts, topic)
    return Wide(await parts.slices.finish(_response_steps(version, results)))


async def _when_topic_durable(
    parts: Parts, topic: tuple[TopicProduceData, list[tuple[int, Result | WaitingAppend]]]
) -> None:
    await _appended([topic])
    partitions = topic[1]
    for position, (index, result) in enumerate(partitions):
        if isinstance(result, Appended):
            try:
                await result.ticket
            except KafkaError as error:
                partitions[position] = (index, error)
        if position & STEP_MASK == 0:
            await parts.slices.turn()


def _response(version: int, results: Results) -> ProduceResponse:
    messages = response_module(0, version)
    responses = []
    for topic, partitions in results:
        answered = []
        for index, result in partitions:
            answered.append(messages.PartitionProduceResponse(**_fields(version, index, result)))
        responses.append(
            messages.TopicProduceResponse(**_which(topic), partition_responses=tuple(answered))
        )
    response: ProduceResponse = messages.ProduceResponse(responses=tuple(responses))
    return response


def _response_steps(version: int, results: Results) -> Steps[ProduceResponse]:
    """Like `_response`, in steps."""
    messages = response_module(0, version)
    responses = []
    for topic, partitions in results:
        answered = []
        for index, result in partitions:
            answered.append(messages.PartitionProduceResponse(**_fields(version, index, result)))
            if len(answered) & WIDE_MASK == WIDE_MASK:
                yield
        responses.append(
            messages.TopicProduceResponse(**_which(topic), partition_responses=tuple(answered))
        )
        if len(responses) & WIDE_MASK == WIDE_MASK:
            yield
    response: ProduceResponse = messages.ProduceResponse(responses=tuple(responses))
    return response


def _which(topic: TopicProduceData) -> dict[str, Any]:
    """Return the fields that name the topic of a request in its response."""
    return {"name": topic.name} if hasattr(topic, "name") else {"topic_id": topic.topic_id}


def _fields(version: int, index: int, result: Result | WaitingAppend) -> dict[str, Any]:
    assert not isinstance(result, asyncio.Task), "answers come after all appends"
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
    seconds, rest_ms = divmod(milliseconds, 1000)
    exact = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    return exact + dt.timedelta(milliseconds=rest_ms)
