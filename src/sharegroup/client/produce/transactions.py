"""The requests of a transactional producer to its coordinators, one after the other.

    begin, commit, abort, send_offsets --> operations, in order --> requests, retried --> outcome
                                                                       |
                                             sender: partitions to add, flushed batches

An operation goes on when its caller gives up waiting, because the outcome of a request that was
sent must be learnt: the caller gets it from the next call of the same method.  `transaction_state`
decides; this module sends, and retries until the producer is closed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from sharegroup.backoff import Backoff
from sharegroup.client.metrics.client_metrics import TransactionMetrics
from sharegroup.client.net.cluster import Cluster, CoordinatorType
from sharegroup.client.net.connection import Connection
from sharegroup.client.produce import transaction_requests as requests
from sharegroup.client.produce.partition_queue import Identity
from sharegroup.client.produce.transaction_requests import Read
from sharegroup.client.produce.transaction_state import (
    BEFORE_VERSION_2,
    CONCURRENT_PAUSE_MS,
    ProducerTransactions,
    TransactionPhase,
    TransactionRequest,
    Verdict,
    verdict_of,
)
from sharegroup.client.records import (
    ConsumerGroupMetadata,
    IllegalStateError,
    OffsetAndMetadata,
    TopicPartition,
)
from sharegroup.client.settings.client_config import ProducerConfig
from sharegroup.errors import KafkaError, RequestTimedOut, UnknownServerError

log = logging.getLogger(__name__)

TRANSACTION_VERSION = "transaction.version"
"""The feature whose level is the transaction version of the cluster."""
WRITE_ID = "WRITE"
"""The ACL operation on a transactional id that a producer needs."""


class _Operation(NamedTuple):
    phase: TransactionPhase | None
    """COMMITTING or ABORTING for the end of a transaction, otherwise None."""
    run: Callable[[], Awaitable[None]]
    done: asyncio.Future[None]


class Transactions:
    """Runs the operations of one transactional producer.

    ``flush`` waits until all records have an outcome and no request of the sender is left.
    ``abort_batches`` gives up the batches that wait to be sent, for the reason in its argument.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        state: ProducerTransactions,
        *,
        flush: Callable[[], Awaitable[None]],
        abort_batches: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self.state = state
        self._flush = flush
        self._abort_batches = abort_batches
        self._operations: deque[_Operation] = deque()
        self._wake = asyncio.Event()
        metrics = TransactionMetrics(cluster.metrics)
        self._waited_ns = {
            "init_transactions": metrics.init_ns,
            "commit_transaction": metrics.commit_ns,
            "abort_transaction": metrics.abort_ns,
            "send_offsets_to_transaction": metrics.send_offsets_ns,
        }
        self._unseen: _Operation | None = None
        """The end of a transaction whose outcome no caller has got yet."""

    async def run(self) -> None:
        """Run the operations until this task is cancelled."""
        while True:
            while not self._operations:
                self._wake.clear()
                await self._wake.wait()
            # It stays in the queue while it runs, so that `close` can fail it, too.
            operation = self._operations[0]
            try:
                await operation.run()
            except (KafkaError, IllegalStateError) as error:
                if not operation.done.done():
                    operation.done.set_exception(error)
                    # Mark it as retrieved, because the caller may have given up.
                    operation.done.exception()
            else:
                if not operation.done.done():
                    operation.done.set_result(None)
            self._operations.popleft()

    def close(self, error: KafkaError) -> None:
        """Fail the operations that have no outcome yet."""
        for operation in self._operations:
            if not operation.done.done():
                operation.done.set_exception(error)
                operation.done.exception()
        self._operations.clear()

    async def end_before_closing(self) -> None:
        """Abort the open transaction, or wait for the end of the one that is ending."""
        try:
            if self.state.is_open:
                await self.abort()
            elif self._unseen is not None:
                await self._join("close")
        except (KafkaError, IllegalStateError) as error:
            # The program closes the producer anyway, and the coordinator aborts at the timeout.
            log.info("event=transaction.not_ended error=%r", error)

    # Operations.

    async def initialize(self) -> None:
        """Get a producer id, which fences older producers of the transactional id.

        Does nothing if the producer has one.
        """
        if self.state.phase is TransactionPhase.UNINITIALIZED:
            self.state.begin_initializing()
            self._unseen = self._submit(self._initialize, TransactionPhase.INITIALIZING)
        if self.state.phase is TransactionPhase.INITIALIZING or self._is_unseen(
            TransactionPhase.INITIALIZING
        ):
            await self._join("init_transactions")
        if self.state.phase is TransactionPhase.FATAL_ERROR:
            raise self.state.fatal_error()

    async def begin(self) -> None:
        """Open a transaction, after an initialization and the end of an abort, if necessary."""
        await self.initialize()
        if self._is_unseen(TransactionPhase.ABORTING):
            await self._join("abort_transaction")
        if self._is_unseen(TransactionPhase.COMMITTING):
            raise IllegalStateError(
                f"transactional_id {self.state.transactional_id!r}: the last commit was not waited "
                f"for, so its outcome is unknown to the program: call commit_transaction() again"
            )
        self.state.begin()

    async def commit(self) -> None:
        """Send what is left, and commit; the error says whether to abort."""
        if not self._is_unseen(TransactionPhase.COMMITTING):
            self.state.begin_ending(is_commit=True)
            self._unseen = self._submit(self._end, TransactionPhase.COMMITTING)
        await self._join("commit_transaction")

    async def abort(self) -> None:
        """Give up what was not sent, and abort."""
        if not self._is_unseen(TransactionPhase.ABORTING):
            self.state.begin_ending(is_commit=False)
            self._abort_batches("the transaction was aborted")
            self._unseen = self._submit(self._end, TransactionPhase.ABORTING)
        await self._join("abort_transaction")

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: ConsumerGroupMetadata
    ) -> None:
        """Add offsets of a consumer group to the transaction."""
        self.state.check_open("send offsets")
        if not offsets:
            return
        operation = self._submit(lambda: self._send_offsets(offsets, member), None)
        await self._wait(operation, "send_offsets_to_transaction")
        operation.done.result()

    def _is_unseen(self, phase: TransactionPhase) -> bool:
        return self._unseen is not None and self._unseen.phase is phase

    def _submit(
        self, run: Callable[[], Awaitable[None]], phase: TransactionPhase | None
    ) -> _Operation:
        operation = _Operation(phase, run, asyncio.get_running_loop().create_future())
        self._operations.append(operation)
        self._wake.set()
        return operation

    async def _join(self, name: str) -> None:
        """Wait for the end of a transaction, and forget it when the caller gets its outcome.

        One that gives up at the moment of the outcome does not get it, and may ask again.
        """
        operation = self._unseen
        assert operation is not None, "an operation was submitted"
        await self._wait(operation, name)
        if self._unseen is operation:
            self._unseen = None
        operation.done.result()

    async def _wait(self, operation: _Operation, name: str) -> None:
        """Wait for the outcome; raises RequestTimedOut if there is none in time."""
        limit_ms = self._config.max_block_ms
        began_ns = time.perf_counter_ns()
        try:
            # A caller that gives up does not stop the operation: the coordinator may have carried
            # it out already, and the next call gets its outcome.
            await asyncio.wait((operation.done,), timeout=limit_ms / 1000)
        finally:
            if name in self._waited_ns:
                self._waited_ns[name].add(time.perf_counter_ns() - began_ns)
        if not operation.done.done():
            raise RequestTimedOut(
                f"transactional_id {self.state.transactional_id!r}: {name} has no outcome after "
                f"max_block_ms={limit_ms}; it goes on: call it again to wait for its outcome"
            )

    # Requests.

    async def _initialize(self) -> None:
        identity, is_version_2 = await self._new_identity(TransactionRequest.INIT_PRODUCER_ID)
        self.state.initialized(identity, is_version_2=is_version_2)

    async def _end(self) -> None:
        await self._flush()
        # After the flush: a record that has failed meanwhile makes this raise, so nothing is
        # committed.
        ending = self.state.ending()
        if ending.is_started:
            response, connection = await self._ask(
                ending.request,
                requests.end_request(
                    self.state.transactional_id, ending.identity, is_commit=ending.is_commit
                ),
                self._read_id_error(),
                version_max=None if ending.is_version_2 else BEFORE_VERSION_2["EndTxn"],
            )
            identity = Identity(int(response.producer_id), int(response.producer_epoch))
            self.state.answered(
                # Before version 5 the answer names no identity: both numbers are -1.
                identity if min(identity) >= 0 else None,
                is_version_2=_uses_version_2(connection),
            )
        if self.state.needs_epoch:
            try:
                await self._renew_epoch()
            except KafkaError:
                if ending.is_commit:
                    return  # It is committed; the next call reports why there can be no other.
                raise
        self.state.ended()

    async def _renew_epoch(self) -> None:
        request = TransactionRequest.RENEW_EPOCH
        identity, _ = await self._new_identity(request, self.state.identity)
        self.state.epoch_renewed(identity)

    async def _new_identity(
        self, request: TransactionRequest, *former: Identity
    ) -> tuple[Identity, bool]:
        message = requests.init_request(
            self.state.transactional_id, self._config.transaction_timeout_ms, *former
        )
        response, connection = await self._ask(request, message, self._read_id_error())
        identity = Identity(int(response.producer_id), int(response.producer_epoch))
        if min(identity) < 0:
            error = UnknownServerError(
                f"InitProducerId returned producer id {identity.producer_id}, epoch "
                f"{identity.epoch}; expected 0 or more"
            )
            self.state.failed(request, error)
            raise error
        return identity, _uses_version_2(connection)

    async def add_partitions(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Add partitions to the transaction, before version 2; an error fails the transaction."""
        message = requests.add_partitions_request(
            self.state.transactional_id, self.state.identity, partitions
        )
        try:
            await self._ask(
                TransactionRequest.ADD_PARTITIONS,
                message,
                requests.read_added(self._cluster.principal, partitions),
            )
        except KafkaError as error:
            self._abort_batches(f"the transaction failed: {error}")
        else:
            self.state.partitions_added(partitions)

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: ConsumerGroupMetadata
    ) -> None:
        state, principal = self.state, self._cluster.principal
        if state.is_lost:
            raise state.fatal_error() if state.phase is _FATAL else state.abortable_error()
        if not state.is_version_2:
            await self._ask(
                TransactionRequest.ADD_OFFSETS,
                requests.add_offsets_request(
                    state.transactional_id, state.identity, member.group_id
                ),
                requests.read_error(principal, operation="READ", group=member.group_id),
            )
        # Before the request: without an answer the offsets may be in the transaction, which then
        # needs an EndTxn.
        state.add_offsets()
        await self._ask(
            TransactionRequest.COMMIT_OFFSETS,
            requests.commit_offsets_request(
                state.transactional_id, state.identity, member, offsets
            ),
            requests.read_committed(principal, member.group_id, offsets),
            group_id=member.group_id,
            version_max=None if state.is_version_2 else BEFORE_VERSION_2["TxnOffsetCommit"],
        )

    async def _ask(
        self,
        request: TransactionRequest,
        message: Any,
        read: Read,
        *,
        group_id: str | None = None,
        version_max: int | None = None,
    ) -> tuple[Any, Connection]:
        """Ask the coordinator until it answers; fail the state if a retry would not help."""
        kind = CoordinatorType.TRANSACTION if group_id is None else CoordinatorType.GROUP
        key = self.state.transactional_id if group_id is None else group_id
        operation = WRITE_ID if group_id is None else "READ"
        backoff = self._cluster.backoff()
        while True:
            error = None
            try:
                node_id = await self._cluster.coordinator(key, kind=kind, operation=operation)
                connection = await self._cluster.connection(node_id)
                response = await connection.request(message, version_max=version_max)
            except KafkaError as failure:
                # Also when the broker cannot be reached: its coordinator moves elsewhere.
                self._cluster.forget_coordinator(key, kind=kind)
                error = failure
            else:
                errors = read(response)
                if not errors:
                    return response, connection
                error = _decisive(request, errors)
            await self._judge(request, error, backoff, key, kind)

    async def _judge(
        self,
        request: TransactionRequest,
        error: KafkaError,
        backoff: Backoff,
        key: str,
        kind: CoordinatorType,
    ) -> None:
        """Pause before a retry, or note the error and raise it."""
        verdict = verdict_of(request, error)
        if self.state.is_lost and request in _PARTS:
            # The transaction is being aborted, which waits for the end of this operation.
            self.state.outcome_unknown()
            raise error
        log.debug("event=transaction.error request=%s error=%r", request.value, error)
        match verdict:
            case Verdict.RETRY_SOON:
                await asyncio.sleep(CONCURRENT_PAUSE_MS / 1000)
            case Verdict.RETRY | Verdict.FIND_COORDINATOR:
                if verdict is Verdict.FIND_COORDINATOR:
                    self._cluster.forget_coordinator(key, kind=kind)
                await asyncio.sleep(backoff.next_ms() / 1000)
            case _:
                self.state.failed(request, error)
                self._abort_batches(f"the transaction failed: {error}")
                if self.state.phase is _FATAL:
                    raise self.state.fatal_error()
                raise error

    def _read_id_error(self) -> Read:
        return requests.read_error(
            self._cluster.principal,
            operation=WRITE_ID,
            transactional_id=self.state.transactional_id,
        )


_FATAL = TransactionPhase.FATAL_ERROR
_PARTS = frozenset(
    (
        TransactionRequest.ADD_PARTITIONS,
        TransactionRequest.ADD_OFFSETS,
        TransactionRequest.COMMIT_OFFSETS,
    )
)
"""The requests that add something to a transaction."""


def _decisive(request: TransactionRequest, errors: list[KafkaError]) -> KafkaError:
    """Return the error that decides about the whole request: the worst one."""
    order = (
        Verdict.FATAL, Verdict.ABORTABLE, Verdict.REFUSED, Verdict.FIND_COORDINATOR, Verdict.RETRY,
        Verdict.RETRY_SOON,
    )  # fmt: skip
    return min(errors, key=lambda error: order.index(verdict_of(request, error)))


def _uses_version_2(connection: Connection) -> bool:
    return connection.finalized_features.get(TRANSACTION_VERSION, 0) >= 2
