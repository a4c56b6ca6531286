"""Produce (0): checks and appends whole record batches; the reply waits until they are durable.

The bytes of a batch stay as the producer sent them, except for its header.  There the broker writes
the base offset, the leader epoch and, with ``message.timestamp.type=LogAppendTime``, the timestamp.
Records are read only for topics that need it (`produced_batches`), such as one with a codec of its
own.
All partitions of a request are appended at once, in order, before the next request is handled.
This keeps the sequences of an idempotent producer in order.

Requests are handled in the version of the client, because a conversion would slow down this hot
path.  Topics have names before version 13, and ids from then on.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import Permission, TopicPermission, topic_permission
from sharegroup.broker.cluster.topics import LogSettings, Topics
from sharegroup.broker.handler_contract import (
    NO_REPLY,
    ApiHandler,
    CloseConnection,
    Encoded,
    Handling,
    Later,
    RequestContext,
    Result,
    error_code,
)
from sharegroup.broker.handlers.parts import (
    HasClock,
    HasProducedBatches,
    HasSlices,
    HasTopics,
    HasTransactions,
)
from sharegroup.broker.load.produced_batches import (
    RecordError,
    errors_of_records,
    has_valid_times,
    needed,
)
from sharegroup.broker.load.slices import Slices
from sharegroup.core.transactions.records import TransactionPartition
from sharegroup.errors import (
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    KafkaError,
    MessageTooLarge,
    TransactionalIdAuthorizationFailed,
)
from sharegroup.ids import TopicId, TopicName
from sharegroup.steps import STEP_ELEMENTS, Steps, Unfinished, attempt
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.batches.batches import (
    HEADER_BYTES,
    BatchHeader,
    Writable,
    parse_header,
    stamp_append_time,
    validate,
)
from sharegroup.wire.codec.apis import response_module

if TYPE_CHECKING:
    # The newest version stands for all.  At run time only those that clients use are imported.
    from kio.schema.produce.v13.request import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )
    from kio.schema.produce.v13.response import ProduceResponse

    from sharegroup.broker.transactions.produced import ProducedTransaction

LOG_START_VERSION = 5
ERROR_MESSAGE_VERSION = 8

ZERO_ID = UUID(int=0)

PIECE_PARTITIONS = 16
"""Partitions between two steps."""


class ProduceParts(HasClock, HasProducedBatches, HasSlices, HasTopics, HasTransactions, Protocol):
    """What these requests touch of the broker."""


class Appended(NamedTuple):
    """A batch that was appended to a log; it is durable when its ticket is."""

    ticket: Ticket
    log: PartitionLog
    append_time_ms: int | None


PartitionResult = Appended | KafkaError
WaitingAppend = asyncio.Task[PartitionResult]
"""An append of a batch whose records are checked or compressed before."""

Results = list[tuple["TopicProduceData", list[tuple[int, PartitionResult | WaitingAppend]]]]
"""The topics of a request, each with its partition indexes and their results."""


def handle(
    parts: ProduceParts, context: RequestContext, request: ProduceRequest
) -> Steps[Result[ProduceResponse]]:
    """Append all batches; as in Kafka, each append succeeds or fails on its own.

    With acks=0 nothing is awaited, and there is no reply.
    """
    if request.acks not in (-1, 0, 1):
        raise InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {request.acks}")
    write = _write_permission(parts.topics, context)
    if request.transactional_id is not None:
        transaction = _transaction(parts.topics, context, request, write)
        if transaction is not None:
            return (yield from _append_transaction(parts, context, request, transaction))
    results = yield from _append_all(parts, context, request, write, None)
    return (yield from _answer(parts.slices, request, results, None))


def _write_permission(topics: Topics, context: RequestContext) -> TopicPermission | None:
    return topic_permission(context.rights, required.WRITE_TOPICS, topics.catalog)


def _append_all(
    parts: ProduceParts,
    context: RequestContext,
    request: ProduceRequest,
    write: TopicPermission | None,
    transaction: ProducedTransaction | None,
) -> Steps[Results]:
    """Append all batches; a transaction may end between two steps, which raises its error."""
    results: Results = []
    appends = 0
    for topic in request.topic_data:
        denial = None if write is None else write.denial_of(topic)
        partitions: list[tuple[int, PartitionResult | WaitingAppend]] = []
        results.append((topic, partitions))
        for data in topic.partition_data:
            result = denial or _append(parts, context, topic, data, transaction)
            partitions.append((data.index, result))
            appends += 1
            if appends % PIECE_PARTITIONS == 0:
                yield
                if transaction is not None:
                    transaction.verify(parts.transaction_coordinator)
    return results


def _answer(
    slices: Slices, request: ProduceRequest, results: Results, entered: Ticket | None
) -> Steps[Result[ProduceResponse]]:
    """Answer when the batches are durable, and ``entered``, the place in a transaction."""
    if request.acks == 0:
        return _without_reply(results)
    # With `durability=os` all is durable already, and the reply needs no task.
    if (entered is None or entered.done) and _are_done(results):
        return (yield from _response(request.__version__, results))
    return Later(_when_durable(slices, request.__version__, results, entered))


def _are_done(results: Results) -> bool:
    """Return whether all batches are durable or refused."""
    for _, partitions in results:
        for _, result in partitions:
            is_durable = isinstance(result, Appended) and result.ticket.done
            if not (is_durable or isinstance(result, KafkaError)):
                return False
    return True


# Transactions


def _transaction(
    topics: Topics, context: RequestContext, request: ProduceRequest, write: TopicPermission | None
) -> ProducedTransaction | None:
    """Return the transaction of a request; None if no batch is part of one."""
    # Imported at first use, because brokers without transactions start faster without them.
    from sharegroup.broker.transactions.produced import produced_transaction

    assert request.transactional_id is not None
    write_id = Permission(context.rights, required.WRITE_TRANSACTIONAL_IDS)
    # As in `KafkaApis.handleProduceRequest`, only transactional records need the right on the id.
    # All batches are looked at, also those for topics that the principal may not write.
    if not write_id.is_unlimited and any(
        header.is_transactional for _, header in _headers(topics, request, None)
    ):
        write_id.require(request.transactional_id)
    return produced_transaction(
        request.transactional_id, _headers(topics, request, write), api_version=context.api_version
    )


def _headers(
    topics: Topics, request: ProduceRequest, write: TopicPermission | None
) -> Iterator[tuple[TransactionPartition, BatchHeader]]:
    """Yield the partition and the header of each batch that may be appended."""
    for topic in request.topic_data:
        # A refused batch is not appended, so its partition does not become a part of the
        # transaction.
        if write is not None and write.denial_of(topic) is not None:
            continue
        if hasattr(topic, "name"):
            name = TopicName(topic.name)
        else:
            catalog_topic = topics.catalog.by_id(TopicId(topic.topic_id or ZERO_ID))
            if catalog_topic is None:
                continue  # `_append` says so.
            name = catalog_topic.name
        for data in topic.partition_data:
            batch: Any = data.records
            if batch is not None and len(batch) >= HEADER_BYTES:
                yield TransactionPartition(name, data.index), parse_header(batch)


def _append_transaction(
    parts: ProduceParts,
    context: RequestContext,
    request: ProduceRequest,
    transaction: ProducedTransaction,
) -> Steps[Result[ProduceResponse]]:
    """Append batches of a transaction, at once or when the previous transaction is complete."""
    coordinator = parts.transaction_coordinator
    coordinator.claim(transaction.transactional_id, context.limited_user)

    def enter() -> _Entered:
        # A small request appends in the same step: a later one must not overtake it.
        entered = transaction.enter(coordinator)
        write = _write_permission(parts.topics, context)
        steps = _append_all(parts, context, request, write, transaction)
        return _Entered(entered, steps, attempt(steps))

    entering = coordinator.when_settled(transaction.transactional_id, enter)
    if not entering.done():
        return Later(_answer_later(parts.slices, request, transaction, entering))
    try:
        entered, steps, appended = entering.result()
        results = (yield from steps) if isinstance(appended, Unfinished) else appended
    except KafkaError as error:
        raise transaction.translated(error) from error
    return (yield from _answer(parts.slices, request, results, entered))


class _Entered(NamedTuple):
    """A transaction that a request takes part in; ``appended`` is the result of its first steps."""

    ticket: Ticket | None
    steps: Steps[Results]
    appended: Results | Unfinished


async def _answer_later(
    slices: Slices,
    request: ProduceRequest,
    transaction: ProducedTransaction,
    entering: asyncio.Future[_Entered],
) -> ProduceResponse | Encoded:
    try:
        entered, steps, appended = await entering
        if isinstance(appended, Unfinished):
            appended = await slices.finish(steps)
    except KafkaError as error:
        raise transaction.translated(error) from error
    answer = await slices.finish(_answer(slices, request, appended, entered))
    return await answer.response if isinstance(answer, Later) else answer


def _append(
    parts: ProduceParts,
    context: RequestContext,
    topic: TopicProduceData,
    data: PartitionProduceData,
    transaction: ProducedTransaction | None,
) -> PartitionResult | WaitingAppend:
    try:
        if hasattr(topic, "name"):
            catalog_topic, log = parts.topics.named(TopicName(topic.name), data.index)
        else:
            catalog_topic, log = parts.topics.identified(
                TopicId(topic.topic_id or ZERO_ID), data.index
            )
        if catalog_topic.is_internal:
            # As in Kafka's `ReplicaManager`: coordinators would replay the records of a client as
            # their own.
            raise InvalidTopic(f"{catalog_topic.name!r} is internal: only the broker writes to it")
        settings = parts.topics.settings(catalog_topic)
        batch: Any = data.records  # Dispatch has it decoded as a `Writable`, which kio cannot say.
        now_ms = parts.clock.wall_ms()
        where = f"{catalog_topic.name}-{data.index}"
        header = _check(batch, settings, where)
        if header.is_transactional:
            if transaction is None:
                raise TransactionalIdAuthorizationFailed(
                    f"{where}: a transactional batch in a request without a transactional id"
                )
            transaction.check_first(header, log.producers)
        # As in Kafka's `LogValidator`, timestamps that the broker replaces are not checked.
        times = None if settings.append_time else _times_to_check(header, settings, now_ms)
        # Also while any batch is being prepared, because it may be one of this partition, which
        # later batches must not overtake.
        if times or settings.reads_records or parts.produced_batches.last:
            later = _prepare(parts, context, log, batch, header, settings, times, transaction)
            if later is not None:
                return later
        return _written(log, batch, settings, now_ms)
    except KafkaError as error:
        # The traceback refers to the frames that hold the request and all results, with this error:
        # a cycle, which only the garbage collector would free (ADR 0025).
        return error.with_traceback(None)


def _written(log: PartitionLog, batch: Writable, settings: LogSettings, now_ms: int) -> Appended:
    if settings.append_time:
        stamp_append_time(batch, now_ms)
        return Appended(log.append(batch, now_ms=now_ms), log, now_ms)
    return Appended(log.append(batch, now_ms=now_ms), log, None)


def _check(batch: Writable | None, settings: LogSettings, where: str) -> BatchHeader:
    """Return the header of the only batch; raise if there is not exactly one valid batch."""
    if not batch:
        raise InvalidRecord(f"{where}: expected one record batch, found none")
    # Before `validate`, whose checksum takes longer the larger the batch is.
    if len(batch) > settings.message_bytes_max:
        raise MessageTooLarge(
            f"{where}: the batch has {len(batch)} bytes, max.message.bytes is "
            f"{settings.message_bytes_max}"
        )
    try:
        headers = validate(batch)
    except KafkaError as error:
        # Without its traceback, for the reason in `_append`.
        raise type(error)(f"{where}: {error}") from error.with_traceback(None)
    # As in Kafka (`ProduceRequest.validateRecords`): one ticket and one base offset answer for all.
    if len(headers) != 1:
        raise InvalidRecord(f"{where}: expected one record batch, found {len(headers)}")
    return headers[0]


def _times_to_check(
    header: BatchHeader, settings: LogSettings, now_ms: int
) -> tuple[int, int] | None:
    """Return the range in which each timestamp must lie, or None if the header proves that it does.

    The header has the largest timestamp.  A topic may limit the smallest one, too.
    """
    earliest = now_ms - settings.timestamp_before_ms_max
    latest = now_ms + settings.timestamp_after_ms_max
    if settings.limits_age or not has_valid_times(header, earliest, latest):
        return earliest, latest
    return None


def _prepare(
    parts: ProduceParts,
    context: RequestContext,
    log: PartitionLog,
    batch: Writable,
    header: BatchHeader,
    settings: LogSettings,
    times: tuple[int, int] | None,
    transaction: ProducedTransaction | None,
) -> WaitingAppend | None:
    """Read the records if the topic needs it, and compress them in its codec.

    Returns None if the batch can be appended now.  Later batches of a partition wait for those that
    are being prepared.
    """
    needs = needed(
        header,
        keys=settings.compaction is not None,
        target=settings.target,
        record_bytes_max=settings.record_bytes_max,
        times=times,
    )

    def append(prepared: Writable) -> Appended:
        # In another codec the batch may be larger than max.message.bytes.
        if prepared is not batch:
            _check(prepared, settings, _place(parts.topics, log))
        if transaction is not None:
            transaction.verify(parts.transaction_coordinator)  # It may have ended meanwhile.
        return _written(log, prepared, settings, parts.clock.wall_ms())

    return parts.produced_batches.prepare(
        log.key, batch, header, needs, append, user=context.limited_user
    )


def _place(topics: Topics, log: PartitionLog) -> str:
    topic = topics.catalog.by_id(log.key.topic_id)
    return f"{'a deleted topic' if topic is None else topic.name}-{log.key.partition}"


def _without_reply(results: Results) -> Encoded | Later[Encoded]:
    for _, partitions in results:
        for _, result in partitions:
            if isinstance(result, KafkaError):
                # As in `KafkaApis.handleProduceRequest`: without a response, only a closed
                # connection tells the producer of the error and lets it ask for new metadata.
                raise CloseConnection(f"produce with acks=0 failed: {result}") from result
            if isinstance(result, asyncio.Task):
                # The append may still fail, and then the connection must be closed, too.
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


async def _when_durable(
    slices: Slices, version: int, results: Results, entered: Ticket | None
) -> ProduceResponse:
    await _appended(results)
    # If the record that adds the partitions to the transaction is lost, the request fails.
    if entered is not None:
        await entered
    waits = 0
    for _, partitions in results:
        for position, (index, result) in enumerate(partitions):
            if isinstance(result, Appended):
                try:
                    await result.ticket
                except KafkaError as error:
                    partitions[position] = (index, error.with_traceback(None))  # As in `_append`.
            waits += 1
            if waits % STEP_ELEMENTS == 0:
                await slices.turn()
    return await slices.finish(_response(version, results))


def _response(version: int, results: Results) -> Steps[ProduceResponse]:
    messages = response_module(0, version)
    responses = []
    answers = 0
    for topic, partitions in results:
        partition_answers = []
        for index, result in partitions:
            partition_answers.append(
                messages.PartitionProduceResponse(**_fields(version, index, result))
            )
            answers += 1
            if answers % PIECE_PARTITIONS == 0:
                yield
        responses.append(
            messages.TopicProduceResponse(
                **_which(topic), partition_responses=tuple(partition_answers)
            )
        )
    response: ProduceResponse = messages.ProduceResponse(responses=tuple(responses))
    return response


def _which(topic: TopicProduceData) -> dict[str, Any]:
    """Return the fields that name the topic of a request in its response."""
    return {"name": topic.name} if hasattr(topic, "name") else {"topic_id": topic.topic_id}


def _fields(version: int, index: int, result: PartitionResult | WaitingAppend) -> dict[str, Any]:
    assert not isinstance(result, asyncio.Task), "answers come after all appends"
    if isinstance(result, KafkaError):
        fields: dict[str, Any] = {
            "index": index,
            "error_code": error_code(result),
            "base_offset": -1,
            "log_append_time": None,
        }
        start_offset, message, records = -1, str(result), errors_of_records(result)
    else:
        fields = {
            "index": index,
            "error_code": ErrorCode.none,
            "base_offset": result.ticket.base_offset,
            "log_append_time": _time(result.append_time_ms),
        }
        start_offset, message, records = result.log.start_offset, None, ()
    if version >= LOG_START_VERSION:
        fields["log_start_offset"] = start_offset
    if version >= ERROR_MESSAGE_VERSION:
        fields["record_errors"] = _record_errors(version, records) if records else ()
        fields["error_message"] = message
    return fields


def _record_errors(version: int, records: tuple[RecordError, ...]) -> tuple[Any, ...]:
    """Return the records that made the batch be refused, as the response names them (KIP-467)."""
    make = response_module(0, version).BatchIndexAndErrorMessage
    return tuple(
        make(batch_index=record.position, batch_index_error_message=record.text)
        for record in records
    )


def _time(milliseconds: int | None) -> dt.datetime | None:
    if milliseconds is None:
        return None
    seconds, rest_ms = divmod(milliseconds, 1000)
    exact = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    return exact + dt.timedelta(milliseconds=rest_ms)


SERVED = {
    0: ApiHandler(
        handle,
        handling=Handling.CHANGES_IN_STEPS,
        checks=(required.WRITE_TRANSACTIONAL_IDS, required.WRITE_TOPICS),
        refused={"base_offset": -1},
        is_native=True,
    )
}
