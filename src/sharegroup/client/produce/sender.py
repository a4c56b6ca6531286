"""The producer's sender: sends ready batches to partition leaders and processes the answers.

It runs in one task, plus a task for each request; the queues change only between awaits.
`Sender._judge` decides what an error means for a batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any

from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.static.primitive import i32Timedelta

from sharegroup.backoff import Backoff
from sharegroup.client.metrics.client_metrics import ProducerMetrics
from sharegroup.client.net.cluster import NO_LEADER, Cluster, ConnectionPurpose
from sharegroup.client.net.refusals import refused
from sharegroup.client.produce.partition_queue import Batch, Identity, PartitionQueue, Written
from sharegroup.client.produce.produce_requests import PRODUCE, Answered, answers, produce_request
from sharegroup.client.produce.transaction_state import (
    BEFORE_VERSION_2,
    CONCURRENT_PAUSE_MS,
    ProducerTransactions,
    TransactionPhase,
    TransactionRequest,
)
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ProducerConfig
from sharegroup.client.together import event_within
from sharegroup.errors import (
    NONE,
    ClusterAuthorizationFailed,
    ConcurrentTransactions,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    KafkaError,
    NetworkException,
    NoAnswer,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionAborted,
    UnknownProducerId,
    UnknownServerError,
)
from sharegroup.wire.batches.compression import CODECS
from sharegroup.wire.batches.records import encode_batch, encode_contents
from sharegroup.wire.codec.schema import MILLISECOND

log = logging.getLogger(__name__)

# Kafka's max.in.flight.requests.per.connection: a broker recognises the last five batches of a
# producer, so with more under way a retry could be written twice.
REQUESTS_PER_NODE_MAX = 5
# Kafka's coordinator ignores it in a request without a transactional id.
TRANSACTION_TIMEOUT = timedelta(minutes=1)

NUMBERING_ERRORS = (OutOfOrderSequenceNumber, UnknownProducerId, InvalidProducerEpoch)
"""Errors that say the broker expects another sequence, producer id or epoch."""

LEADERS_OWN_ERRORS = (NotEnoughReplicas, NotEnoughReplicasAfterAppend, ConcurrentTransactions)
"""Errors that only the leader of a partition returns, so its metadata is right."""

UNKNOWN_POSITION = Written(-1, -1)

AddPartitions = Callable[[tuple[TopicPartition, ...]], Coroutine[Any, Any, None]]
"""Adds partitions to the open transaction, before transaction version 2."""


class Sender:
    """Sends the batches of a producer's partition queues, and reports their outcomes."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        *,
        finished: Callable[[Batch], None],
        monotonic: Callable[[], float],
        transaction: ProducerTransactions | None = None,
    ) -> None:
        self._cluster = cluster
        self._monotonic = monotonic
        self._config = config
        self._finished = finished
        self._transaction = transaction
        """The state of the transactional producer; None if the producer has no transactions."""
        self.add_partitions: AddPartitions | None = None
        self._adding: asyncio.Task[None] | None = None
        self._codec = CODECS[config.compression or "none"]
        self._active: dict[TopicPartition, PartitionQueue] = {}
        self._backoffs: dict[TopicPartition, Backoff] = {}
        self._metrics = ProducerMetrics(cluster.metrics)
        self._requests: dict[int, int] = defaultdict(int)
        self._wake = asyncio.Event()
        self._identity: Identity | None = None
        """The producer id, and the epoch that partitions begin with; None before the first."""
        self._identifying = False
        """Whether a request for a producer id is under way."""
        self._asking = False
        self._stopping = False
        self.flushing = 0
        """The number of waiting calls of `flush`; while there are any, batches do not linger."""

    @property
    def requests_under_way(self) -> int:
        """The number of requests without an answer yet."""
        return sum(self._requests.values())

    def wake(self) -> None:
        """Make the sender look for ready batches again."""
        self._wake.set()

    def activate(self, queue: PartitionQueue) -> None:
        """Add a queue that has batches to send, now or after lingering."""
        self._active[queue.where] = queue

    def stop(self) -> None:
        """End `run`; it waits for requests under way, so close the connections first."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Send until `stop`."""
        async with asyncio.TaskGroup() as tasks:
            while not self._stopping:
                self._wake.clear()
                # Both steps use one time: a batch that became due in between would be neither
                # sent now nor waited for.
                now = self._monotonic()
                self._send_ready(tasks, now)
                await event_within(self._wake, self._seconds_to_next(now))

    # Batches that are due.

    def _linger_seconds(self) -> float:
        return 0.0 if self.flushing else self._config.linger_ms / 1000

    def _seconds_to_next(self, now: float) -> float | None:
        """Return the seconds until a batch has lingered or a pause is over; None if none waits."""
        linger = self._linger_seconds()
        waits = [
            max(queue.waiting[0].created_at + linger, queue.not_before) - now
            for queue in self._active.values()
            if queue.waiting and not queue.is_ready(now=now, linger_seconds=linger)
        ]
        # A batch whose time has come waits for an answer, a leader or an id, each of which wakes
        # the sender. With a timeout of 0 the loop would spin meanwhile.
        positive_waits = [seconds for seconds in waits if seconds > 0]
        return min(positive_waits, default=None)

    def _send_ready(self, tasks: asyncio.TaskGroup, now: float) -> None:
        linger = self._linger_seconds()
        ready: dict[int, list[PartitionQueue]] = defaultdict(list)
        # All of them first: in a transaction, one that is too old takes the batches of all others
        # with it, also of queues that were found ready.
        for queue in self._active.values():
            self._give_up_old(queue, now)
        for queue in list(self._active.values()):
            if not queue.waiting:
                del self._active[queue.where]
            elif queue.is_ready(now=now, linger_seconds=linger):
                if not self._is_in_transaction(queue.where):
                    self._start_adding(tasks)
                elif not self._identified(queue):
                    self._start_identifying(tasks)
                elif (leader := self._leader(queue.where)) == NO_LEADER:
                    self._start_asking(tasks)
                else:
                    ready[leader].append(queue)
        if self._cluster.to_ask_again():
            # Records without a key need it, because they only go to partitions with a leader.
            self._start_asking(tasks)
        for node_id, queues in ready.items():
            while queues and self._requests[node_id] < REQUESTS_PER_NODE_MAX:
                batches = self._take(queues)
                self._requests[node_id] += 1
                tasks.create_task(self._send(node_id, batches))
                queues = [
                    candidate
                    for candidate in queues
                    if candidate.is_ready(now=now, linger_seconds=linger)
                ]

    def _take(self, queues: Sequence[PartitionQueue]) -> list[Batch]:
        """Take one batch of each queue, as many as fit into one request."""
        batches: list[Batch] = []
        room = self._config.request_bytes_max
        for queue in queues:
            # The first batch goes whatever its size, or it would wait for ever.
            if batches and queue.waiting[0].bytes > room:
                break
            batch = queue.take()
            room -= batch.bytes
            batches.append(batch)
        return batches

    def _leader(self, where: TopicPartition) -> int:
        topic = self._cluster.known_topic(where.topic)
        return NO_LEADER if topic is None else topic.leader_of(where.partition)

    def _give_up_old(self, queue: PartitionQueue, now: float) -> None:
        limit_ms = self._config.delivery_timeout_ms
        for batch in queue.expire(before=now - limit_ms / 1000):
            doubt = "it may have been written" if batch.sent else "it was never sent"
            text = (
                f"topic {batch.where.topic!r} partition {batch.where.partition}: "
                f"{len(batch.records)} records not delivered in {limit_ms} ms, {doubt}; "
                f"last error: {batch.error!r}"
            )
            error = RequestTimedOut(text)
            # If it was sent, its sequences are used up.  Unless it is written, the next batch is
            # refused as out of order, and `_judge` restarts the sequences.
            self._end(batch, error)
            if self._transaction is not None:
                self._transaction.failed(TransactionRequest.PRODUCE, error)
                self.abort_batches(f"the transaction failed: {error}")

    # Requests.

    async def _send(self, node_id: int, batches: Sequence[Batch]) -> None:
        try:
            answers = await self._produce(node_id, batches)
        except KafkaError as error:
            if isinstance(error, NoAnswer):
                self._cluster.doubt(node_id)
            # An answer without content for each, so that all batches come back to their queues, in
            # doubt.
            answers = {batch.where: Answered(UNKNOWN_POSITION, error) for batch in batches}
        finally:
            self._requests[node_id] -= 1
        for batch in batches:
            self._judge(node_id, batch, answers.get(batch.where) or _unanswered(batch))
        self._wake.set()

    async def _produce(
        self, node_id: int, batches: Sequence[Batch]
    ) -> dict[TopicPartition, Answered]:
        for batch in batches:
            # A batch that is sent again has its bytes; `PartitionQueue.take` drops them if its
            # number changes.
            if batch.encoded is None:
                self._encode(batch)
        connection = await self._cluster.connection(node_id, ConnectionPurpose.RECORDS)
        version = connection.version_of(PRODUCE)
        transaction = self._transaction
        if transaction is not None and not transaction.is_version_2:
            version = min(version, BEFORE_VERSION_2["Produce"])
        # After the last wait for a connection: meanwhile the topic may have been made again.
        topic_ids = {
            batch.where.topic: topic.topic_id
            for batch in batches
            if (topic := self._cluster.known_topic(batch.where.topic)) is not None
        }
        if len(topic_ids) < len({batch.where.topic for batch in batches}):
            # An error that is retried: the batches return to their queues, and `_send_ready` asks
            # again.
            raise NetworkException("the topic's metadata was outdated before the batch was sent")
        request = produce_request(
            batches,
            version,
            topic_ids,
            acks=self._config.acks_number,
            timeout_ms=self._config.request_timeout_ms,
            transactional_id=self._config.transactional_id,
        )
        self._metrics.records_per_request.observe(sum(len(batch.records) for batch in batches))
        # Requests without an answer take no slot, so only this bounds what waits in the connection.
        await connection.drained()
        # The broker answers nothing then, so the outcome counts as good without an offset.
        if self._config.acks_number == 0:
            connection.send_only(request)
            return {batch.where: Answered(UNKNOWN_POSITION, None) for batch in batches}
        response = await connection.request_as_is(request)
        self._metrics.throttle_ms.observe(response.throttle_time / MILLISECOND)
        return dict(answers(response, version, topic_ids, self._cluster.principal))

    def _encode(self, batch: Batch) -> None:
        encode = encode_contents if batch.has_contents else encode_batch
        batch.encoded = encode(
            batch.records,
            codec=self._codec,
            producer_id=batch.identity.producer_id,
            producer_epoch=batch.identity.epoch,
            base_sequence=batch.sequence,
            is_transactional=self._transaction is not None,
        )
        metrics = self._metrics
        metrics.batch_bytes.observe(len(batch.encoded))
        metrics.queue_ms.observe((self._monotonic() - batch.created_at) * 1000)
        if self._codec:
            metrics.compression_ratio.observe(len(batch.encoded) / batch.bytes)

    def _judge(self, node_id: int, batch: Batch, answered: Answered) -> None:
        """Complete, retry or fail a batch; restart the sequences if an error proves them wrong."""
        queue = batch.queue
        error = answered.error
        if isinstance(error, NUMBERING_ERRORS) and queue.is_written(batch):
            # The batch is written, but older than the batches in which a broker finds duplicates.
            log.info("event=producer.written where=%s sequence=%s", batch.where, batch.sequence)
            error = None
        if error is None or isinstance(error, DuplicateSequenceNumber):
            # DUPLICATE_SEQUENCE_NUMBER: an earlier attempt was written, and the broker has
            # forgotten where. Java's `Sender` reports success without an offset, too.
            queue.acknowledge(batch)
            self._backoffs.pop(batch.where, None)
            self._end(batch, answered.written)
            return
        batch.error, batch.record_errors = error, answered.record_errors
        if self._transaction is not None:
            self._judge_in_transaction(node_id, batch, error, self._transaction)
        elif isinstance(error, NUMBERING_ERRORS) and self._config.idempotent:
            if queue.is_oldest(batch):
                log.info(
                    "event=producer.new_epoch where=%s sequence=%s", batch.where, batch.sequence
                )
                queue.restart_numbers()
            self._retry(queue, batch)
        elif error.retriable:
            self._retry_elsewhere(node_id, batch, error)
        else:
            # Its sequences are used up and not written, so later batches need new ones.
            queue.restart_numbers(batch)
            queue.finish(batch)
            self._end(batch, error)

    def _judge_in_transaction(
        self, node_id: int, batch: Batch, error: KafkaError, transaction: ProducerTransactions
    ) -> None:
        """Retry a batch, or fail it, and its transaction with it.

        The epoch belongs to the coordinator, so sequences cannot restart within a transaction.
        """
        queue = batch.queue
        # A batch before it is missing: this one can be written after that one was sent again.
        is_behind = isinstance(error, OutOfOrderSequenceNumber) and not queue.is_oldest(batch)
        if not transaction.is_lost and (is_behind or error.retriable):
            self._retry_elsewhere(node_id, batch, error)
            return
        queue.finish(batch)
        if transaction.is_lost:
            transaction.outcome_unknown()
        transaction.failed(TransactionRequest.PRODUCE, error)
        self._end(batch, error)
        self.abort_batches(f"the transaction failed: {error}")

    def abort_batches(self, reason: str) -> None:
        """Give up the batches that wait to be sent, because their transaction is lost."""
        transaction = self._transaction
        assert transaction is not None, "only a producer with transactions aborts"
        for queue in self._active.values():
            for batch in queue.expire(before=float("inf")):
                if batch.sent:
                    transaction.outcome_unknown()
                where = batch.where
                text = f"topic {where.topic!r} partition {where.partition}: {reason}"
                is_fatal = transaction.phase is TransactionPhase.FATAL_ERROR
                self._end(
                    batch, transaction.fatal_error() if is_fatal else TransactionAborted(text)
                )
                # Mark it as retrieved: nobody has to look at the records of an aborted transaction.
                batch.done.exception()
        self._wake.set()

    def _retry_elsewhere(self, node_id: int, batch: Batch, error: KafkaError) -> None:
        if not isinstance(error, (*LEADERS_OWN_ERRORS, *NUMBERING_ERRORS)):
            self._cluster.outdate_leader(batch.where, node_id)
        self._retry(batch.queue, batch)

    def _retry(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.retry(batch)
        self._metrics.record_retry.add(len(batch.records))
        if isinstance(batch.error, ConcurrentTransactions):
            queue.not_before = self._monotonic() + CONCURRENT_PAUSE_MS / 1000
        else:
            self._pause(queue)
        # It may have been removed as empty while its last batch was under way.
        self._active[queue.where] = queue
        log.debug("event=producer.retry where=%s error=%r", batch.where, batch.error)

    def _end(self, batch: Batch, outcome: Written | KafkaError) -> None:
        self._finished(batch)
        if isinstance(outcome, KafkaError):
            self._metrics.record_error.add(len(batch.records))
            batch.done.set_exception(outcome)
        else:
            self._metrics.record_send.add(len(batch.records))
            batch.done.set_result(outcome)

    # Transactions.

    def _is_in_transaction(self, where: TopicPartition) -> bool:
        """Whether batches of this partition may be sent; always without transactions."""
        return self._transaction is None or self._transaction.may_send(where)

    def _start_adding(self, tasks: asyncio.TaskGroup) -> None:
        """Add all partitions of the open transaction that are not added yet."""
        assert self._transaction is not None
        partitions = self._transaction.partitions_to_add()
        if self._adding is None and partitions and self.add_partitions is not None:
            self._adding = tasks.create_task(self._add(self.add_partitions(partitions)))

    async def _add(self, adding: Coroutine[Any, Any, None]) -> None:
        try:
            await adding
        finally:
            self._adding = None
            self._wake.set()

    async def partitions_added(self) -> None:
        """Wait for the end of a request that adds partitions, if there is one."""
        if self._adding is not None:
            await asyncio.wait([self._adding])

    # Producer id and metadata.

    def _start_identifying(self, tasks: asyncio.TaskGroup) -> None:
        if not self._identifying:
            self._identifying = True
            tasks.create_task(self._identify())

    def _identified(self, queue: PartitionQueue) -> bool:
        """Give a queue the producer's identity if it has none; return whether it has one now.

        A partition that has used up all epochs of a producer id needs the next id.
        """
        if self._transaction is not None:
            if queue.identity != self._transaction.identity:
                queue.identify(self._transaction.identity)
            return True
        if queue.identity is not None:
            return True
        if self._identity is None or self._identity.producer_id == queue.exhausted_id:
            return False
        queue.identify(self._identity)
        return True

    async def _identify(self) -> None:
        """Request a producer id, for queues without one or with all epochs used up."""
        try:
            self._identity = await self._cluster.retrying(
                self._ask_identity,
                subject="InitProducerId",
                # No batch waits longer than that, so a later id would come for nothing.
                timeout_ms=self._config.delivery_timeout_ms,
            )
        except KafkaError as error:
            for queue in self._active.values():
                if not self._identified(queue):
                    for batch in queue.expire(before=float("inf")):
                        self._end(batch, self._without_identity(batch, error))
        finally:
            self._identifying = False
            self._wake.set()

    def _without_identity(self, batch: Batch, error: KafkaError) -> KafkaError:
        """Return the error of a batch that cannot be sent without a producer id.

        Every user who may write to any topic gets an id.  So a user who gets none may not write
        to this topic either.
        """
        if not isinstance(error, ClusterAuthorizationFailed):
            return error
        return refused(
            TopicAuthorizationFailed.code,
            None,
            operation="WRITE",
            principal=self._cluster.principal,
            topic=batch.where.topic,
        )

    async def _ask_identity(self) -> Identity:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout=i32Timedelta.parse(TRANSACTION_TIMEOUT)
        )
        # Brokers keep a stock of ids.  A broker without stock may wait long for a controller that
        # does not answer, so the next attempt asks another one.
        connection = await self._cluster.any_connection(in_turn="InitProducerId")
        response: InitProducerIdResponse = await connection.request(request)
        if response.error_code != NONE:
            raise refused(
                response.error_code,
                None,
                operation="WRITE on a topic, or IDEMPOTENT_WRITE",
                principal=self._cluster.principal,
                request="InitProducerId",
            )
        identity = Identity(int(response.producer_id), int(response.producer_epoch))
        if min(identity) < 0:
            # In a batch -1 means that it has no sequence.
            raise UnknownServerError(
                f"InitProducerId returned producer id {identity.producer_id}, epoch "
                f"{identity.epoch}; expected 0 or more"
            )
        return identity

    def _start_asking(self, tasks: asyncio.TaskGroup) -> None:
        if not self._asking:
            self._asking = True
            tasks.create_task(self._ask_metadata())

    async def _ask_metadata(self) -> None:
        try:
            topics = {where.topic for where in self._active}
            await self._cluster.refresh(topics | self._cluster.to_ask_again())
        except KafkaError as error:
            log.info("event=metadata.failed error=%r", error)
        finally:
            self._asking = False
        for queue in self._active.values():
            # Otherwise `_send_ready` would ask for metadata again at once.
            if self._leader(queue.where) == NO_LEADER:
                self._pause(queue)
        self._wake.set()

    def _pause(self, queue: PartitionQueue) -> None:
        backoff = self._backoffs.setdefault(queue.where, self._cluster.backoff())
        queue.not_before = self._monotonic() + backoff.next_ms() / 1000


def _unanswered(batch: Batch) -> Answered:
    text = f"the broker's response does not contain topic {batch.where.topic!r} partition "
    return Answered(UNKNOWN_POSITION, NetworkException(f"{text}{batch.where.partition}"))
