"""The transaction coordinator: transactional ids and their transactions, kept durable.

It runs `core.transactions.transactions.Transactions` over the topic ``__transaction_state``, in the
pattern of ADR 0005: decide, append, and answer when the records are durable.

The end of a transaction takes three writes, one after the other (ADR 0029)::

    PREPARE durable ──▶ the producer is answered
         └──▶ markers durable in all partitions ──▶ COMPLETE appended ──▶ waiting requests go on

A crash between two of them leaves a decided transaction, which `load` completes.  Until the markers
are durable, requests for the transactional id wait (`when_settled`) in their order.  The marker of
a transaction in one log is written together with PREPARE (`may_mark_at_once`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from sharegroup.broker.clock import Alarm, Clock, sleep_ms
from sharegroup.broker.cluster.catalog import CONSUMER_OFFSETS, TRANSACTION_STATE
from sharegroup.broker.cluster.coordinator_log import (
    CoordinatorLog,
    Durable,
    Marker,
    as_a_coordinator,
)
from sharegroup.broker.cluster.features import FinalizedFeatures
from sharegroup.broker.cluster.producer_ids import ProducerIds
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.groups.group_log import GroupLog
from sharegroup.broker.transactions.open_transactions import (
    UnknownOpenTransaction,
    report,
    unknown_open_transactions,
)
from sharegroup.broker.transactions.transaction_markers import (
    MARKERS_AT_ONCE,
    TransactionMarkers,
    may_mark_at_once,
)
from sharegroup.broker.transactions.transaction_records import decode, encode
from sharegroup.broker.transactions.waiting_requests import WaitingRequests, when_durable
from sharegroup.core.deadlines import Now
from sharegroup.core.security.principal import Principal
from sharegroup.core.transactions.records import (
    EPOCH_BUMPS,
    TransactionMetadata,
    TransactionPartition,
    TransactionRecord,
    TransactionState,
)
from sharegroup.core.transactions.transactions import Transactions
from sharegroup.errors import InvalidTransactionTimeout, KafkaError
from sharegroup.ids import (
    GroupId,
    ProducerIdAndEpoch,
    TopicIdPartition,
    transaction_state_partition,
)
from sharegroup.storage.sync.tickets import Ticket

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_MS = 1_000
"""Milliseconds until markers that could not be written are tried again."""

EXPIRED_AT_ONCE = 64
"""Transactional ids that are forgotten before other requests get their turn."""


class TransactionCoordinator:
    """Serves the requests of transactional producers and completes their transactions."""

    __slots__ = (
        "_agrees_with_logs",
        "_alarm",
        "_clock",
        "_completing",
        "_config",
        "_features",
        "_groups",
        "_is_stopped",
        "_log",
        "_markers",
        "_producer_ids",
        "_tasks",
        "_topics",
        "_transactions",
        "_waiting",
        "aborted_by_timeout",
        "ended",
    )

    def __init__(
        self,
        log_: CoordinatorLog,
        topics: Topics,
        clock: Clock,
        config: LiveConfig,
        *,
        features: FinalizedFeatures,
        groups: GroupLog,
        markers: TransactionMarkers,
        producer_ids: ProducerIds,
    ) -> None:
        self._log = log_
        self._topics = topics
        self._clock = clock
        self._config = config
        self._features = features
        self._groups = groups
        self._markers = markers
        self._producer_ids = producer_ids
        self._transactions = Transactions(user_percent=config.server.user_limits_percent)
        self._alarm = Alarm(clock, self._time_out)
        self._waiting = WaitingRequests(clock, self._is_settled)
        self._completing: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self._agrees_with_logs = True
        """Whether no log has an open transaction that its transactional id does not know."""
        self.ended = {True: 0, False: 0}
        """The number of decided transactions, by whether they were committed."""
        self.aborted_by_timeout = 0
        """The number of transactions that were aborted because they timed out."""

    @property
    def transactions(self) -> Transactions:
        """The transactional ids, for descriptions; only this class changes them."""
        return self._transactions

    def load(self) -> None:
        """Read the topic, then complete the transactions that were decided before a crash."""
        self._reload()
        self._begin_in_time()

    def _begin_in_time(self) -> None:
        """Complete what was decided, now or as soon as the disk takes writes.

        A broker starts on a full disk (ADR 0019), and perhaps no request comes that tries again.
        """
        if self._is_stopped:
            return
        try:
            self._begin()
        except KafkaError as error:
            log.warning("event=open_transactions_not_written error=%r", str(error))
            self._clock.call_at_ms(self._clock.now_ms() + RETRY_MS, self._begin_in_time)

    def stop(self) -> None:
        """Stop the timers, and fail the requests that wait."""
        self._is_stopped = True
        self._alarm.stop()
        for task in (*self._completing.values(), *self._tasks):
            task.cancel()
        self._waiting.cancel()

    # Producers

    def claim(self, transactional_id: str, user: Principal | None) -> None:
        """Give a transactional id that belongs to nobody to the user who uses it."""
        self._transactions.claim(transactional_id, user)

    async def init_producer(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        user: Principal | None,
    ) -> ProducerIdAndEpoch:
        """Give a transactional id to a producer; an open transaction of the id is aborted first.

        ``expected`` is the identity with which a producer continues after an error. ``user`` is the
        one whose part of all ids limits it, if any.
        """
        self._transactions.check_new(transactional_id)
        longest_ms = self._config.transactions.timeout_ms_max
        if not 0 < timeout_ms <= longest_ms:
            raise InvalidTransactionTimeout(
                f"transactional id {transactional_id!r}: a time-out of {timeout_ms} ms is not "
                f"between 1 and transaction.max.timeout.ms={longest_ms}"
            )
        # The id is asked for only after the abort, whose epoch may be the last one of the producer
        # id.
        await self._abort(transactional_id, expected=expected)
        fresh = await self._producer_id_for(transactional_id, None)

        def init() -> Awaitable[ProducerIdAndEpoch]:
            self._begin()
            record = self._transactions.init(
                transactional_id,
                expected=expected,
                fresh_producer_id=fresh,
                timeout_ms=timeout_ms,
                now=self._now(),
            )
            ticket = self._write(record, user)
            # After the write: before its record is replayed, a new transactional id has no owner to
            # set.
            self.claim(transactional_id, user)
            return Durable(ticket, record.producer)

        durable = await self.when_settled(transactional_id, init)
        identity = await durable
        log.info(
            "event=producer_initialised transactional_id=%r producer=%d epoch=%d",
            transactional_id,
            *identity,
        )
        return identity

    async def _abort(self, transactional_id: str, *, expected: ProducerIdAndEpoch | None) -> None:
        """Fence the producer of an open transaction, which aborts it; return when it is settled."""
        version = self._features.transaction_version
        # The producer id may need a durable write, so it is taken first: `fence` must not await
        # between its decision and the append.
        fresh = await self._producer_id_for(transactional_id, version)

        def fence() -> Awaitable[None]:
            # The action may run seconds later, when the state was read again after a failed write.
            self._begin()
            transaction = self._transactions.find(transactional_id)
            if transaction is not None and transaction.state is TransactionState.ONGOING:
                # Only the producer id is compared here, as in `isValidProducerId` of Kafka's
                # coordinator; `Transactions.init` compares the epoch, when the abort is complete.
                self._transactions.check_continues(transaction, expected)
            record = self._transactions.fence(
                transactional_id, version=version, fresh_producer_id=fresh, now=self._now()
            )
            return Durable(None if record is None else self._decide(record), None)

        await (await self.when_settled(transactional_id, fence))
        # The abort is decided; this waits for its markers.  Kafka answers CONCURRENT_TRANSACTIONS
        # instead, and the client asks again (docs/differences.md).
        await self.when_settled(transactional_id, lambda: None)

    async def _producer_id_for(self, transactional_id: str, version: int | None) -> int | None:
        if self._transactions.needs_producer_id(transactional_id, version=version):
            return await self._producer_ids.take()
        return None

    # Transactions

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TransactionPartition],
        *,
        client_version: int,
    ) -> Ticket | None:
        """Add partitions to a transaction; the ticket says when that is durable, if it is not."""
        self._begin()
        record = self._transactions.add_partitions(
            transactional_id,
            producer,
            partitions,
            client_version=client_version,
            now=self._now(),
        )
        if record is None:
            # The record that added them may not be durable yet.
            return self.last_write(transactional_id)
        # The records in the partitions are synced together with it.
        ticket = self._write(record, is_urgent=False)
        self._set_alarm()
        return ticket

    def add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TransactionPartition],
        *,
        client_version: int,
    ) -> asyncio.Future[Ticket | None]:
        """Add partitions to a transaction, at once or when the previous one is complete.

        The future is done before that is durable.  The answers to the records in these partitions,
        and to the end of the transaction, wait for it: see `last_write`.
        """
        return self.when_settled(
            transactional_id,
            lambda: self.add_partitions(
                transactional_id, producer, partitions, client_version=client_version
            ),
        )

    def partition_of_group(self, group_id: GroupId) -> TransactionPartition:
        """Return the partition that stores the group's offsets."""
        return TransactionPartition(CONSUMER_OFFSETS, self._groups.partition_of(group_id))

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TransactionPartition],
        *,
        is_abortable: bool,
    ) -> None:
        """Raise unless the partitions take part in the producer's transaction."""
        self._begin()
        self._transactions.verify(transactional_id, producer, partitions, is_abortable=is_abortable)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        is_commit: bool,
        client_version: int,
    ) -> Awaitable[ProducerIdAndEpoch]:
        """Commit or abort a transaction; return the identity with which the producer goes on.

        The transaction is decided at once if nothing has to be waited for; a `Durable` is the
        answer then.
        """

        def end(fresh: int | None) -> Durable[ProducerIdAndEpoch]:
            self._begin()
            outcome = self._transactions.end(
                transactional_id,
                producer,
                is_commit=is_commit,
                client_version=client_version,
                fresh_producer_id=fresh,
                now=self._now(),
            )
            # A repeated request: the decision that it repeats may not be durable yet.
            if outcome.record is None:
                ticket = self.last_write(transactional_id)
            else:
                ticket = self._decide(outcome.record)
            return Durable(ticket, outcome.producer)

        async def end_later() -> ProducerIdAndEpoch:
            fresh = await self._producer_id_for(transactional_id, client_version)
            return await (await self.when_settled(transactional_id, lambda: end(fresh)))

        # One in 32,766 transactions of a producer id uses up its epochs; only that one awaits here.
        if self._transactions.needs_producer_id(transactional_id, version=client_version):
            return end_later()
        ending = self.when_settled(transactional_id, lambda: end(None))
        # Nothing to wait for in most cases: the handler can answer without a task.
        return ending.result() if ending.done() else when_durable(ending)

    # Waiting for the end of a transaction

    def when_settled(self, transactional_id: str, action: Callable[[], T]) -> asyncio.Future[T]:
        """Call ``action`` at once, or when the id's decided transaction is complete, in order.

        The future has its result or its exception; ConcurrentTransactions after `WAIT_MS_MAX`.
        """
        return self._waiting.when_settled(transactional_id, action)

    def _is_settled(self, transactional_id: str) -> bool:
        return transactional_id not in self._completing and self._decided(transactional_id) is None

    # Completion

    def _decide(self, record: TransactionMetadata) -> Ticket:
        """Write a decision, and complete the transaction when it and its markers are durable."""
        ticket = self._write(record)
        self.ended[record.is_commit] += 1
        self._set_alarm()
        markers: list[Ticket] | None = None
        if may_mark_at_once(record, ticket):
            # If a log takes no marker now, `_complete` writes it later and reports the error.
            with contextlib.suppress(KafkaError):
                markers = self._append_markers(record, sorted(record.partitions))
        self._complete_later(record.transactional_id, markers=markers, was_read=False)
        return ticket

    def _go_on(self) -> None:
        """Complete what was decided, after the topic was read.

        Before, open transactions that are in logs alone are taken in.  If that cannot be written,
        the next request tries again: the next transaction of their producer must not begin before.
        """
        # A tuple, because `_take_in` changes the open transactions that the generator walks over.
        for unknown in tuple(unknown_open_transactions(self._topics, self._transactions)):
            self._take_in(unknown)
        self._agrees_with_logs = True
        for transactional_id in self._transactions.prepared_ids:
            self._complete_later(transactional_id)
        # A failed write may have lost the decision whose markers these requests waited for.
        self._waiting.run_all()
        self._set_alarm()

    def _take_in_next(self, transactional_id: str) -> None:
        """Take in what a crash left of the transaction after the one that is complete now."""
        # False until all is written: if a write below fails, `_begin` takes in what is left over.
        self._agrees_with_logs = False
        for unknown in tuple(unknown_open_transactions(self._topics, self._transactions)):
            if unknown.known.transactional_id == transactional_id:
                self._take_in(unknown)
        self._agrees_with_logs = True

    def _take_in(self, unknown: UnknownOpenTransaction) -> None:
        """Add a partition to the transaction that is open in it, or abort it there."""
        transaction, partition = unknown.known, unknown.partition
        report(unknown)
        if unknown.is_current:
            record = self._transactions.add_partitions(
                transaction.transactional_id,
                transaction.producer._replace(epoch=unknown.epoch),
                (partition,),
                client_version=transaction.client_version,
                now=self._now(),
            )
            if record is not None:
                self._write(record)
            return
        # The producer of these batches is fenced, so nobody else ends them.  The marker has the
        # current epoch, because logs refuse one that is lower than their newest
        # (`ProducerStates.check_marker`).
        epoch = transaction.producer_epoch
        marker = Marker(transaction.producer_id, epoch, False, self._epoch_of(transaction), 0)
        self._markers.append_all((partition,), marker)

    def _complete_later(
        self, transactional_id: str, *, markers: list[Ticket] | None = None, was_read: bool = True
    ) -> None:
        """Complete a decided transaction when its decision and its markers are durable.

        ``markers`` is None if they are not written yet; ``was_read`` says whether the decision was
        read from the topic.
        """
        # `_go_on` runs again after each reload, also while the task of an earlier run still tries.
        if self._is_stopped or transactional_id in self._completing:
            return
        completing = self._complete(
            transactional_id, self.last_write(transactional_id), markers, was_read=was_read
        )
        self._completing[transactional_id] = asyncio.get_running_loop().create_task(completing)

    async def _complete(
        self,
        transactional_id: str,
        decision: Ticket | None,
        markers: list[Ticket] | None,
        *,
        was_read: bool,
    ) -> None:
        """Write the markers of a decided transaction and complete it; try until that succeeds."""
        has_failed = False
        try:
            # After a failure once more even if nothing is decided: the completion may be written,
            # and `_begin` must succeed before the requests that wait may begin the next
            # transaction.
            while has_failed or self._decided(transactional_id) is not None:
                try:
                    if has_failed:
                        self._begin()
                        decision, markers, was_read = self.last_write(transactional_id), None, True
                        has_failed = False
                    decided = self._decided(transactional_id)
                    if decided is None:
                        break  # The decision was lost, or all is done.
                    # A marker that is durable without the decision could commit one partition while
                    # another one is aborted (ADR 0029); `may_mark_at_once` has the exceptions.
                    await Durable(decision, None)
                    if markers is None:
                        markers = await self._write_markers(decided)
                    for ticket in markers:
                        await ticket
                    self._begin()
                    # None if the decision was lost while the markers became durable.
                    record = self._transactions.complete(transactional_id, now=self._now())
                    if record is not None:
                        await self._write_completion(record)
                    # Only a crash or a failed write leaves batches of the next transaction without
                    # their record; a search of all logs for each transaction would cost too much.
                    if was_read:
                        self._take_in_next(transactional_id)
                except KafkaError as error:
                    log.warning(
                        "event=transaction_not_completed transactional_id=%r error=%r",
                        transactional_id,
                        str(error),
                    )
                    await sleep_ms(self._clock, RETRY_MS)
                    has_failed = True
        finally:
            # Before the requests run: `_is_settled`, which they ask, looks at this table.
            del self._completing[transactional_id]
        self._waiting.run(transactional_id)

    async def _write_completion(self, completed: TransactionMetadata) -> None:
        """Write a completion, and wait until it is durable if the producer keeps its epoch.

        If it is lost, a start writes the markers again.  They must not end the next transaction,
        whose batches may be durable already.  Logs refuse them if its epoch is higher (KIP-890).
        """
        if completed.client_version >= EPOCH_BUMPS:
            self._write(completed, is_urgent=False)
        else:
            await self._write(completed)

    def _decided(self, transactional_id: str) -> TransactionMetadata | None:
        transaction = self._transactions.find(transactional_id)
        return transaction if transaction is not None and transaction.state.is_prepared else None

    async def _write_markers(self, decided: TransactionMetadata) -> list[Ticket]:
        """Append the markers of a decided transaction, in turns with other requests."""
        partitions = sorted(decided.partitions)
        tickets: list[Ticket] = []
        for first in range(0, len(partitions), MARKERS_AT_ONCE):
            if first:
                await asyncio.sleep(0)
            tickets += self._append_markers(decided, partitions[first : first + MARKERS_AT_ONCE])
        return tickets

    def _append_markers(
        self, decided: TransactionMetadata, partitions: list[TransactionPartition]
    ) -> list[Ticket]:
        marker = Marker(
            decided.producer_id,
            decided.producer_epoch,
            decided.is_commit,
            self._epoch_of(decided),
            decided.client_version,
        )
        return self._markers.append_all(partitions, marker)

    def _epoch_of(self, transaction: TransactionMetadata) -> int:
        """Return the coordinator's epoch, which is the leader epoch of the id's partition."""
        topic = self._topics.catalog.topic(TRANSACTION_STATE)
        partition = self._partition(transaction.transactional_id)
        return self._topics.leader_epoch(TopicIdPartition(topic.topic_id, partition))

    # Time

    def _now(self) -> Now:
        return Now(self._clock.now_ms(), self._clock.wall_ms())

    def _set_alarm(self) -> None:
        if not self._is_stopped:
            self._alarm.set(self._transactions.next_timeout_ms())

    def _time_out(self) -> None:
        timed_out = self._transactions.timed_out(now=self._now())
        if not timed_out:
            # The alarm was set for a transaction that has ended; another one may be open.
            self._set_alarm()
        for transactional_id in timed_out:
            # A task, because the abort may have to wait until a producer id is durable.
            task = asyncio.get_running_loop().create_task(self._abort_late(transactional_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _abort_late(self, transactional_id: str) -> None:
        """Abort a transaction whose time-out has passed."""
        version = self._features.transaction_version
        try:
            fresh = await self._producer_id_for(transactional_id, version)
            self._begin()
            # The transaction may have ended, or was lost with a failed write, during the await.
            if transactional_id not in self._transactions.timed_out(now=self._now()):
                self._set_alarm()
                return
            record = self._transactions.fence(
                transactional_id, version=version, fresh_producer_id=fresh, now=self._now()
            )
            if record is not None:
                self._decide(record)
                self.aborted_by_timeout += 1
                log.info(
                    "event=transaction_timed_out transactional_id=%r timeout_ms=%d partitions=%d",
                    transactional_id,
                    record.timeout_ms,
                    len(record.partitions),
                )
        except KafkaError as error:
            log.warning(
                "event=timeout_not_written transactional_id=%r error=%r",
                transactional_id,
                str(error),
            )
            # The deadline is still set, so the alarm finds the transaction again.
            self._alarm.set(self._clock.now_ms() + RETRY_MS)

    async def forget_expired(self) -> None:
        """Forget the transactional ids that were idle for too long."""
        wall_ms = self._clock.wall_ms() - self._config.transactions.id_expiration_ms
        try:
            self._begin()
            while expired := self._transactions.expired(
                since_wall_ms=wall_ms, count_max=EXPIRED_AT_ONCE
            ):
                self._write_all(expired)
                log.info("event=transactional_ids_expired count=%d", len(expired))
                await asyncio.sleep(0)
                self._begin()
        except KafkaError as error:
            log.warning("event=transactional_ids_not_expired error=%r", str(error))

    # The log

    def _begin(self) -> None:
        """Read the topic again if records that were replayed were lost in a failed write."""
        if self._log.was_cut_anywhere():
            log.error("event=transactions_reloaded reason='a write of a transaction failed'")
            self._reload()
        if not self._agrees_with_logs:
            self._go_on()

    def _reload(self) -> None:
        # Read into a new object: if the topic cannot be read to its end, the present state stays
        # whole.
        transactions = self._transactions.restarted()
        now = self._now()
        for _, key, value in self._log.records():
            record = decode(key, value)
            if record is not None:
                transactions.replay(record, now=now)
        transactions.memory.forget_lost()
        self._transactions = transactions
        # The logs may have open transactions whose record was lost, at a start as after a failed
        # write.
        self._agrees_with_logs = False

    def _write(
        self, record: TransactionMetadata, user: Principal | None = None, *, is_urgent: bool = True
    ) -> Ticket:
        forgotten = self._transactions.forgotten_for(
            record, bytes_max=self._config.transactions.bytes_max, user=user
        )
        if forgotten:
            log.info("event=transactional_ids_forgotten count=%d", len(forgotten))
            self._write_all(forgotten)
        partition = self._partition(record.transactional_id)
        return self._append(partition, (record,), is_urgent=is_urgent)

    def _write_all(self, records: Iterable[TransactionRecord]) -> None:
        by_partition: dict[int, list[TransactionRecord]] = {}
        for record in records:
            partition = self._partition(record.transactional_id)
            by_partition.setdefault(partition, []).append(record)
        for partition, of_partition in by_partition.items():
            self._append(partition, of_partition)

    def _append(
        self, partition: int, records: Sequence[TransactionRecord], *, is_urgent: bool = True
    ) -> Ticket:
        version, now = self._features.transaction_version, self._now()
        # As in Kafka's `TransactionStateManager`: a producer looks for its coordinator and tries
        # again.
        with as_a_coordinator():
            ticket = self._log.append(
                partition,
                [encode(record, version=version) for record in records],
                is_urgent=is_urgent,
            )
        for record in records:
            self._transactions.replay(record, now=now)
        return ticket

    def last_write(self, transactional_id: str) -> Ticket | None:
        """Return a ticket that is durable when all writes for the transactional id are.

        None means that they are durable.
        """
        return self._log.last(self._partition(transactional_id))

    def _partition(self, transactional_id: str) -> int:
        return transaction_state_partition(transactional_id, self._log.partition_count)
