"""All transactional ids: the transaction coordinator's decisions (KIP-98, KIP-890).

A command checks a request and returns the record to write; `replay` alone changes the state.
While the markers of a decided transaction are written, nearly every command raises
ConcurrentTransactions.

The memory of all ids has a limit.  At the limit the ids that were idle for longest are forgotten,
as if they had expired.  An id with a transaction under way is never forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sharegroup.core.deadlines import Deadlines, Now
from sharegroup.core.security.principal import Principal
from sharegroup.core.shared_totals import SharedTotal
from sharegroup.core.transactions import transitions
from sharegroup.core.transactions.records import (
    EPOCH_BUMPS,
    TransactionMetadata,
    TransactionPartition,
    TransactionRecord,
    TransactionState,
    TransactionTombstone,
    is_used_up,
)
from sharegroup.errors import (
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidRequest,
    PolicyViolation,
    TransactionalIdNotFound,
)
from sharegroup.ids import ProducerIdAndEpoch

ID_CHARACTERS_MAX = 1_024
"""Maximum length of a new transactional id."""

PARTITIONS_MAX = 2_000
"""Maximum number of partitions in one transaction, because its record names all of them."""

ID_BYTES = 900
"""Memory of one more transactional id, without its characters."""

PARTITION_BYTES = 1_300
"""Memory of one more partition in a transaction, with the state of its producer there.

The state of a producer with an open transaction is not forgotten, so it must be counted here.
"""


def size_bytes(metadata: TransactionMetadata) -> int:
    """Return the estimated memory of a transactional id, rounded up."""
    return (
        ID_BYTES
        + metadata.transactional_id.__sizeof__()
        + PARTITION_BYTES * len(metadata.partitions)
    )


class TransactionEnd(NamedTuple):
    """The result of EndTxn: a decision to write, or None for a repeated request.

    ``producer`` is the identity with which the producer goes on.
    """

    record: TransactionMetadata | None
    producer: ProducerIdAndEpoch


class Transactions:
    """The transactional ids of the broker, with their producers and transactions."""

    __slots__ = ("_deadlines", "_known", "_prepared", "memory")

    def __init__(self, *, user_percent: int = 100) -> None:
        self._known: dict[str, TransactionMetadata] = {}
        """By transactional id; the one that was updated last comes last."""
        self._prepared: dict[str, None] = {}
        self._deadlines: Deadlines[tuple[str]] = Deadlines()
        self.memory = SharedTotal[str](
            "bytes of transactional ids", "transactional id", CoordinatorNotAvailable, user_percent
        )

    def restarted(self) -> Transactions:
        """Return transactional ids for a new reading of the log, with the same owners.

        Call ``memory.forget_lost`` after the reading.
        """
        transactions = Transactions()
        transactions.memory = self.memory.restarted()
        return transactions

    @property
    def size_bytes(self) -> int:
        """Estimated memory of all transactional ids."""
        return self.memory.used

    def claim(self, transactional_id: str, user: Principal | None) -> None:
        """Give a transactional id that belongs to nobody to the user who uses it."""
        metadata = self._known.get(transactional_id)
        if user is not None and metadata is not None:
            self.memory.claim(transactional_id, user, size_bytes(metadata))

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[TransactionMetadata]:
        return iter(self._known.values())

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of a transactional id, or None if there is no such id."""
        return self._known.get(transactional_id)

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Return the state of a transactional id; raise TransactionalIdNotFound."""
        _check_id(transactional_id)
        metadata = self._known.get(transactional_id)
        if metadata is None:
            raise TransactionalIdNotFound(
                f"transactional id {transactional_id!r} does not exist, or has expired"
            )
        return metadata

    @property
    def prepared_ids(self) -> tuple[str, ...]:
        """The ids whose transaction is decided and not complete."""
        return tuple(self._prepared)

    @property
    def ongoing_count(self) -> int:
        """The number of transactions that are not decided."""
        return len(self._deadlines)

    # Commands

    def needs_producer_id(self, transactional_id: str, *, version: int | None) -> bool:
        """Return whether the next command needs a new producer id.

        ``version`` is the transaction version with which a transaction would end; None is for
        InitProducerId.
        """
        metadata = self._known.get(transactional_id)
        if metadata is None:
            # Only InitProducerId makes an id; every other request for an unknown one is refused.
            return version is None
        return metadata.has_used_up_epochs and version in (None, EPOCH_BUMPS)

    def init(
        self,
        transactional_id: str,
        *,
        expected: tuple[int, int] | None,
        fresh_producer_id: int | None,
        timeout_ms: int,
        now: Now,
    ) -> TransactionMetadata:
        """Give a transactional id to a producer; its transaction under way was aborted before."""
        metadata = self._known.get(transactional_id)
        if metadata is None:
            self.check_new(transactional_id)
            assert fresh_producer_id is not None, "the caller asked `needs_producer_id`"
            return transitions.created(
                transactional_id,
                producer_id=fresh_producer_id,
                timeout_ms=timeout_ms,
                now_ms=now.wall_ms,
            )
        return transitions.next_epoch(
            metadata,
            expected=expected,
            fresh_producer_id=fresh_producer_id,
            timeout_ms=timeout_ms,
            now_ms=now.wall_ms,
        )

    def check_continues(self, known: TransactionMetadata, expected: tuple[int, int] | None) -> None:
        """Raise ProducerFenced if this producer may not abort the open transaction and go on."""
        transitions.check_expected(known, expected)

    def check_new(self, transactional_id: str) -> None:
        """Raise InvalidRequest for a transactional id that no new producer may have."""
        _check_id(transactional_id)
        if len(transactional_id) > ID_CHARACTERS_MAX:
            raise InvalidRequest(
                f"a transactional id has at most {ID_CHARACTERS_MAX} characters, not "
                f"{len(transactional_id)}"
            )

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TransactionPartition],
        *,
        client_version: int,
        now: Now,
    ) -> TransactionMetadata | None:
        """Add partitions to a transaction; None if it has them already."""
        metadata = self._of_producer(transactional_id, producer)
        record = transitions.with_partitions(
            metadata, partitions, client_version=client_version, now_ms=now.wall_ms
        )
        if record is not None and len(record.partitions) > PARTITIONS_MAX:
            raise PolicyViolation(
                f"transactional id {transactional_id!r}: a transaction has at most "
                f"{PARTITIONS_MAX} partitions, this one would have {len(record.partitions)}"
            )
        return record

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TransactionPartition],
        *,
        is_abortable: bool,
    ) -> None:
        """Raise unless the partitions take part in the producer's transaction."""
        metadata = self._of_producer(transactional_id, producer)
        transitions.check_member(metadata, partitions, is_abortable=is_abortable)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        is_commit: bool,
        client_version: int,
        fresh_producer_id: int | None,
        now: Now,
    ) -> TransactionEnd:
        """Decide a transaction."""
        metadata = self._existing(transactional_id)
        # First, as in Kafka: the producer may already use the producer id of the next transaction,
        # which the checks below know only after the completion.
        transitions.check_settled(metadata)
        bumps = client_version >= EPOCH_BUMPS
        # Before the check of the producer, which would fence the epoch of a repeated request
        # (KIP-890).
        if bumps and _is_repeated(metadata, producer):
            if is_commit is not metadata.is_commit:
                raise transitions.wrong_state(metadata, is_commit=is_commit)
            return TransactionEnd(None, metadata.producer)
        transitions.check_producer(metadata, producer)
        # TransactionCoordinator.scala has the table of these cases. Without a new epoch for each
        # transaction, a repeated request is told by the state alone.
        if metadata.state is not TransactionState.ONGOING:
            if not bumps and metadata.state is not TransactionState.EMPTY:
                if is_commit is metadata.is_commit:
                    return TransactionEnd(None, metadata.producer)
            elif bumps and not is_commit:
                return self._decided(metadata, is_commit, client_version, fresh_producer_id, now)
            raise transitions.wrong_state(metadata, is_commit=is_commit)
        return self._decided(metadata, is_commit, client_version, fresh_producer_id, now)

    def _decided(
        self,
        metadata: TransactionMetadata,
        is_commit: bool,
        client_version: int,
        fresh_producer_id: int | None,
        now: Now,
    ) -> TransactionEnd:
        record = transitions.prepared(
            metadata,
            is_commit=is_commit,
            client_version=client_version,
            fresh_producer_id=fresh_producer_id,
            now_ms=now.wall_ms,
        )
        return TransactionEnd(record, transitions.answered_producer(record))

    def fence(
        self, transactional_id: str, *, version: int, fresh_producer_id: int | None, now: Now
    ) -> TransactionMetadata | None:
        """Abort an open transaction and fence its producer; None if there is none."""
        metadata = self._known.get(transactional_id)
        if metadata is None or metadata.state is not TransactionState.ONGOING:
            return None
        return transitions.fence(
            metadata, version=version, fresh_producer_id=fresh_producer_id, now_ms=now.wall_ms
        )

    def complete(self, transactional_id: str, *, now: Now) -> TransactionMetadata | None:
        """Complete a decided transaction whose markers are durable; None if it is not decided."""
        if transactional_id not in self._prepared:
            return None
        return transitions.completed(self._known[transactional_id], now_ms=now.wall_ms)

    # Time and room

    def next_timeout_ms(self) -> int | None:
        """Return the monotonic time at which the first open transaction times out, or None."""
        return self._deadlines.next_ms()

    def timed_out(self, *, now: Now) -> tuple[str, ...]:
        """Return the ids whose transactions have timed out."""
        return tuple(key[0] for key in self._deadlines.passed(now.ms))

    def expired(self, *, since_wall_ms: int, count_max: int) -> tuple[TransactionTombstone, ...]:
        """Return tombstones for ids that have been idle since that time, the oldest first."""
        expired: list[TransactionTombstone] = []
        for metadata in self._known.values():
            # The ids are in the order of their updates, so all that follow are younger.
            if metadata.updated_ms > since_wall_ms or len(expired) == count_max:
                break
            if metadata.state.is_idle:
                expired.append(TransactionTombstone(metadata.transactional_id))
        return tuple(expired)

    def forgotten_for(
        self, record: TransactionMetadata, *, bytes_max: int, user: Principal | None = None
    ) -> tuple[TransactionTombstone, ...]:
        """Return tombstones for idle ids that make room for a record.

        ``user`` is the one who asks.  If its part is used up, its own ids are forgotten.  Raises
        CoordinatorNotAvailable if there is no room for the record, because too many transactions
        are under way.
        """
        stored = self._known.get(record.transactional_id)
        more = size_bytes(record) - (0 if stored is None else size_bytes(stored))
        own_excess = self.memory.excess(record.transactional_id, user, more, limit=bytes_max)
        if own_excess > 0:
            return self._own_forgotten_for(record, user, more, own_excess, bytes_max)
        excess = self.size_bytes + more - bytes_max
        if excess <= 0:
            return ()
        forgotten: list[TransactionTombstone] = []
        for oldest in self._known.values():
            # Its own id stays: the record is its next state.
            if oldest.state.is_idle and oldest is not stored:
                forgotten.append(TransactionTombstone(oldest.transactional_id))
                excess -= size_bytes(oldest)
                if excess <= 0:
                    return tuple(forgotten)
        raise CoordinatorNotAvailable(
            f"transactional id {record.transactional_id!r}: the {len(self._known)} transactional "
            f"ids take {self.size_bytes} of {bytes_max} bytes, and too few are idle; try later"
        )

    def _own_forgotten_for(
        self,
        record: TransactionMetadata,
        user: Principal | None,
        more: int,
        excess: int,
        bytes_max: int,
    ) -> tuple[TransactionTombstone, ...]:
        """Return tombstones for idle ids of a record's user, whose part is used up."""
        transactional_id, memory = record.transactional_id, self.memory
        # As in `SharedTotal.excess`: the part of the owner counts, not that of the user who asks.
        user = memory.owner(transactional_id) or user
        forgotten: list[TransactionTombstone] = []
        for oldest in self._known.values():
            other_id = oldest.transactional_id
            if (
                oldest.state.is_idle
                and other_id != transactional_id
                and memory.owner(other_id) == user
            ):
                forgotten.append(TransactionTombstone(other_id))
                excess -= size_bytes(oldest)
                if excess <= 0:
                    return tuple(forgotten)
        raise memory.refusal(transactional_id, user, more, limit=bytes_max)

    # Replay

    def replay(self, record: TransactionRecord, *, now: Now) -> None:
        """Apply a record."""
        # Removed and put again, so that it comes last: expiry relies on the order of updates.
        before = self._known.pop(record.transactional_id, None)
        before_bytes = 0 if before is None else size_bytes(before)
        if isinstance(record, TransactionTombstone):
            self.memory.change(record.transactional_id, -before_bytes)
            self._deadlines.cancel((record.transactional_id,))
            self._prepared.pop(record.transactional_id, None)
            return
        self._known[record.transactional_id] = record
        self.memory.change(record.transactional_id, size_bytes(record) - before_bytes)
        if record.state.is_prepared:
            self._prepared[record.transactional_id] = None
        else:
            self._prepared.pop(record.transactional_id, None)
        if record.state is not TransactionState.ONGOING:
            self._deadlines.cancel((record.transactional_id,))
        # Only at the beginning: a partition that is added later does not prolong the transaction.
        elif before is None or before.state is not TransactionState.ONGOING:
            remaining_ms = record.started_ms + record.timeout_ms - now.wall_ms
            # Never more than the whole timeout, which a wall clock that was set back would give.
            self._deadlines.set(
                (record.transactional_id,), due_ms=now.ms + min(remaining_ms, record.timeout_ms)
            )

    def _existing(self, transactional_id: str) -> TransactionMetadata:
        _check_id(transactional_id)
        metadata = self._known.get(transactional_id)
        if metadata is None:
            raise InvalidProducerIdMapping(
                f"transactional id {transactional_id!r} does not exist, or has expired; "
                "initialise the producer again"
            )
        return metadata

    def _of_producer(
        self, transactional_id: str, producer: ProducerIdAndEpoch
    ) -> TransactionMetadata:
        metadata = self._existing(transactional_id)
        transitions.check_producer(metadata, producer)
        return metadata


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty")


def _is_repeated(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Return whether this producer ended the last transaction, and repeats the request."""
    if metadata.state not in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        return False
    if metadata.producer_id == producer.producer_id:
        return producer.epoch == metadata.producer_epoch - 1
    # After the last epoch of its id, the producer was answered a new id with epoch 0.
    return (
        metadata.previous_producer_id == producer.producer_id
        and is_used_up(producer.epoch)
        and metadata.producer_epoch == 0
    )
