"""Transactional ids: fencing, the end of transactions in both protocols, retries, time and room."""

from __future__ import annotations

import pytest

from sharegroup.core.deadlines import Now
from sharegroup.core.transactions.records import (
    EPOCH_LAST,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    TransactionTombstone,
)
from sharegroup.core.transactions.transactions import (
    ID_CHARACTERS_MAX,
    PARTITIONS_MAX,
    TransactionEnd,
    Transactions,
    size_bytes,
)
from sharegroup.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    KafkaError,
    PolicyViolation,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdNotFound,
)
from sharegroup.ids import ProducerIdAndEpoch, TopicName

ID = "payments"
A0 = TransactionPartition(TopicName("a"), 0)
A1 = TransactionPartition(TopicName("a"), 1)
START = Now(1_000, 1_700_000_000_000)
OLD, NEW = 0, 2
"""The transaction versions of the two protocols."""

Identity = tuple[int, int]


class World:
    """Transactional ids whose records are replayed at once, and the producer ids that are left."""

    def __init__(self) -> None:
        self.transactions = Transactions()
        self.now = START
        self.next_id = 100

    def after(self, ms: int) -> World:
        self.now = Now(self.now.ms + ms, self.now.wall_ms + ms)
        return self

    def replay(self, record: TransactionMetadata | None) -> TransactionMetadata | None:
        if record is not None:
            self.transactions.replay(record, now=self.now)
        return record

    @property
    def known(self) -> TransactionMetadata:
        return self.transactions.describe(ID)

    @property
    def identity(self) -> Identity:
        return self.known.producer_id, self.known.producer_epoch

    def fresh(self, version: int | None) -> int | None:
        if not self.transactions.needs_producer_id(ID, version=version):
            return None
        self.next_id += 1
        return self.next_id

    def init(self, expected: Identity | None = None, timeout_ms: int = 60_000) -> Identity:
        self.replay(
            self.transactions.init(
                ID,
                expected=expected,
                fresh_producer_id=self.fresh(None),
                timeout_ms=timeout_ms,
                now=self.now,
            )
        )
        return self.identity

    def add(
        self, identity: Identity, *partitions: TransactionPartition, version: int = NEW
    ) -> TransactionMetadata | None:
        return self.replay(
            self.transactions.add_partitions(
                ID,
                ProducerIdAndEpoch(*identity),
                partitions,
                client_version=version,
                now=self.now,
            )
        )

    def decide(self, identity: Identity, *, is_commit: bool, version: int = NEW) -> TransactionEnd:
        found = self.transactions.end(
            ID,
            ProducerIdAndEpoch(*identity),
            is_commit=is_commit,
            client_version=version,
            fresh_producer_id=self.fresh(version),
            now=self.now,
        )
        self.replay(found.record)
        return found

    def complete(self) -> TransactionMetadata | None:
        return self.replay(self.transactions.complete(ID, now=self.now))

    def end(self, identity: Identity, *, is_commit: bool, version: int = NEW) -> Identity:
        found = self.decide(identity, is_commit=is_commit, version=version)
        self.complete()
        return found.producer

    def fence(self, version: int = NEW) -> TransactionMetadata | None:
        return self.replay(
            self.transactions.fence(
                ID, version=version, fresh_producer_id=self.fresh(version), now=self.now
            )
        )

    def set_epoch(self, epoch: int) -> Identity:
        """Put the producer into a late epoch, as after many transactions."""
        known = self.known
        self.transactions.replay(
            TransactionMetadata(
                ID,
                known.producer_id,
                epoch,
                known.timeout_ms,
                known.state,
                known.partitions,
                known.started_ms,
                known.updated_ms,
            ),
            now=self.now,
        )
        return self.identity


def test_a_new_id_gets_a_new_producer_id_with_epoch_0() -> None:
    world = World()
    assert world.init() == (101, 0)
    assert (world.known.state, world.known.timeout_ms) == (TransactionState.EMPTY, 60_000)


def test_each_new_producer_fences_the_one_before() -> None:
    world = World()
    first = world.init()
    second = world.init()
    assert second == (first[0], first[1] + 1)
    with pytest.raises(ProducerFenced, match="the epoch is 1, not 0; another producer"):
        world.add(first, A0)
    world.add(second, A0)
    with pytest.raises(ProducerFenced):
        world.decide(first, is_commit=True)


def test_another_producer_id_is_another_error() -> None:
    world = World()
    world.init()
    with pytest.raises(
        InvalidProducerIdMapping, match="belongs to producer 101, not to producer 7"
    ):
        world.add((7, 0), A0)


@pytest.mark.parametrize("name", ["add", "end", "verify"])
def test_an_unknown_id_has_no_producer(name: str) -> None:
    world = World()
    calls = {
        "add": lambda: world.add((1, 0), A0),
        "end": lambda: world.decide((1, 0), is_commit=True),
        "verify": lambda: world.transactions.verify(
            ID, ProducerIdAndEpoch(1, 0), (A0,), is_abortable=True
        ),
    }
    with pytest.raises(InvalidProducerIdMapping, match="does not exist, or has expired"):
        calls[name]()


def test_a_producer_continues_with_the_next_epoch_and_may_repeat_the_request() -> None:
    world = World()
    first = world.init()
    second = world.init(expected=first)
    assert second == (first[0], 1)
    assert world.init(expected=first) == second, "a retry, whose first answer was lost"
    world.init()
    with pytest.raises(ProducerFenced, match="a producer with epoch 1 cannot continue"):
        world.init(expected=second)


def test_a_producer_with_another_producer_id_cannot_continue() -> None:
    world = World()
    world.init()
    with pytest.raises(ProducerFenced, match="belongs to producer 101, not to producer 9"):
        world.init(expected=(9, 0))


def test_a_transaction_begins_with_its_first_partition() -> None:
    world = World()
    identity = world.init()
    world.after(5).add(identity, A0)
    assert (world.known.state, world.known.started_ms) == (
        TransactionState.ONGOING,
        world.now.wall_ms,
    )
    begun_ms = world.known.started_ms
    assert world.after(5).add(identity, A0) is None, "nothing to write"
    world.after(5).add(identity, A1)
    assert (world.known.partitions, world.known.started_ms) == ({A0, A1}, begun_ms)


def test_with_epoch_bumps_each_end_gives_the_next_epoch() -> None:
    world = World()
    first = world.init()
    world.add(first, A0)
    found = world.decide(first, is_commit=True)
    assert found.producer == (first[0], 1)
    assert world.known.state is TransactionState.PREPARE_COMMIT
    done = world.complete()
    assert done is not None
    assert (done.state, done.partitions) == (TransactionState.COMPLETE_COMMIT, frozenset())
    with pytest.raises(ProducerFenced):
        world.add(first, A0)
    world.add((first[0], 1), A1)
    assert world.known.partitions == {A1}


def test_in_the_old_protocol_the_epoch_stays() -> None:
    world = World()
    identity = world.init()
    for is_commit in (True, False):
        world.add(identity, A0, version=OLD)
        assert world.end(identity, is_commit=is_commit, version=OLD) == identity


def test_nothing_is_decided_twice_while_markers_are_written() -> None:
    world = World()
    identity = world.init()
    world.add(identity, A0)
    world.decide(identity, is_commit=True)
    for call in (
        lambda: world.decide(identity, is_commit=True),
        lambda: world.decide(identity, is_commit=False),
        lambda: world.add(world.identity, A0),
        world.init,
    ):
        with pytest.raises(ConcurrentTransactions, match="in state PrepareCommit"):
            call()
    assert world.fence() is None


# The table in the comment of Kafka's `TransactionCoordinator.endTransaction`.
FENCED, WRONG_STATE, AGAIN, BUMP = ProducerFenced, InvalidTransactionState, "again", "bump"
TABLE = [
    ("empty", False, "retry", FENCED),
    ("empty", False, "current", BUMP),
    ("empty", True, "retry", FENCED),
    ("empty", True, "current", WRONG_STATE),
    ("aborted", False, "retry", AGAIN),
    ("aborted", False, "current", BUMP),
    ("aborted", True, "retry", WRONG_STATE),
    ("aborted", True, "current", WRONG_STATE),
    ("committed", False, "retry", WRONG_STATE),
    ("committed", False, "current", BUMP),
    ("committed", True, "retry", AGAIN),
    ("committed", True, "current", WRONG_STATE),
]


@pytest.mark.parametrize(("state", "is_commit", "who", "expected"), TABLE)
def test_end_of_a_transaction_that_is_not_there(
    state: str, is_commit: bool, who: str, expected: type[KafkaError] | str
) -> None:
    world = World()
    current = world.init()
    if state != "empty":
        world.add(current, A0)
        current = world.end(current, is_commit=state == "committed")
    identity = current if who == "current" else (current[0], current[1] - 1)
    if isinstance(expected, type):
        with pytest.raises(expected):
            world.decide(identity, is_commit=is_commit)
        return
    found = world.decide(identity, is_commit=is_commit)
    if expected == AGAIN:
        assert found == TransactionEnd(None, ProducerIdAndEpoch(*current))
    else:
        assert found.producer == (current[0], current[1] + 1)
        assert world.known.state is TransactionState.PREPARE_ABORT
        assert world.known.partitions == frozenset()


OLD_TABLE = [
    ("empty", True, WRONG_STATE),
    ("empty", False, WRONG_STATE),
    ("aborted", True, WRONG_STATE),
    ("aborted", False, AGAIN),
    ("committed", True, AGAIN),
    ("committed", False, WRONG_STATE),
]


@pytest.mark.parametrize(("state", "is_commit", "expected"), OLD_TABLE)
def test_end_of_a_transaction_that_is_not_there_in_the_old_protocol(
    state: str, is_commit: bool, expected: type[KafkaError] | str
) -> None:
    world = World()
    identity = world.init()
    if state != "empty":
        world.add(identity, A0, version=OLD)
        world.end(identity, is_commit=state == "committed", version=OLD)
    if isinstance(expected, type):
        with pytest.raises(expected):
            world.decide(identity, is_commit=is_commit, version=OLD)
    else:
        found = world.decide(identity, is_commit=is_commit, version=OLD)
        assert found == TransactionEnd(None, ProducerIdAndEpoch(*identity))


@pytest.mark.parametrize("version", [OLD, NEW])
def test_fencing_aborts_and_raises_the_epoch_by_one(version: int) -> None:
    world = World()
    identity = world.init()
    world.add(identity, A0, version=version)
    record = world.fence(version)
    assert record is not None
    assert (record.state, record.producer_epoch) == (TransactionState.PREPARE_ABORT, 1)
    assert record.partitions == {A0}, "the partitions that need a marker"
    world.complete()
    assert world.init() == (identity[0], 2), "the aborting epoch is nobody's"
    with pytest.raises(ProducerFenced):
        world.decide(identity, is_commit=True, version=OLD)


def test_when_epochs_are_used_up_the_next_transaction_has_a_new_producer_id() -> None:
    world = World()
    world.init()
    last = world.set_epoch(EPOCH_LAST - 1)
    world.add(last, A0)
    found = world.decide(last, is_commit=True)
    assert found.producer == (102, 0)
    assert world.known.producer_epoch == EPOCH_LAST, "the marker fences the last epoch"
    world.complete()
    assert world.identity == (102, 0)
    assert world.decide(last, is_commit=True) == TransactionEnd(None, ProducerIdAndEpoch(102, 0)), (
        "a retry"
    )
    with pytest.raises(InvalidProducerIdMapping):
        world.add(last, A0)


def test_when_epochs_are_used_up_a_new_producer_has_a_new_producer_id() -> None:
    world = World()
    world.init()
    last = world.set_epoch(EPOCH_LAST - 1)
    assert world.init() == (102, 0)
    with pytest.raises(InvalidProducerIdMapping):
        world.add(last, A0)


def test_a_producer_that_continues_with_used_up_epochs_may_repeat_the_request() -> None:
    world = World()
    world.init()
    last = world.set_epoch(EPOCH_LAST - 1)
    assert world.init(expected=last) == (102, 0)
    assert world.init(expected=last) == (102, 0)


def test_in_the_old_protocol_fencing_may_use_the_last_epoch() -> None:
    world = World()
    world.init()
    last = world.set_epoch(EPOCH_LAST - 1)
    world.add(last, A0, version=OLD)
    record = world.fence(OLD)
    assert record is not None
    assert record.producer_epoch == EPOCH_LAST
    world.complete()
    assert world.init() == (102, 0)


def test_partitions_are_verified_for_producers_that_add_them_before() -> None:
    world = World()
    identity = world.init()

    def verify(*partitions: TransactionPartition, is_abortable: bool = True) -> None:
        world.transactions.verify(
            ID,
            ProducerIdAndEpoch(*identity),
            partitions,
            is_abortable=is_abortable,
        )

    with pytest.raises(TransactionAbortable, match="partition a-0 of the request"):
        verify(A0)
    world.add(identity, A0, version=OLD)
    verify(A0)
    with pytest.raises(TransactionAbortable):
        verify(A0, A1)
    with pytest.raises(InvalidTransactionState):
        verify(A1, is_abortable=False)


def test_a_transaction_times_out_when_its_time_is_over() -> None:
    world = World()
    identity = world.init(timeout_ms=1_000)
    assert world.transactions.next_timeout_ms() is None, "nothing is open"
    world.add(identity, A0)
    world.after(500).add(identity, A1)
    assert world.transactions.next_timeout_ms() == START.ms + 1_000
    assert world.after(499).transactions.timed_out(now=world.now) == ()
    assert world.after(1).transactions.timed_out(now=world.now) == (ID,)
    world.fence()
    assert world.transactions.timed_out(now=world.now) == ()


def test_a_transaction_that_was_open_before_a_restart_keeps_its_time() -> None:
    world = World()
    world.add(world.init(timeout_ms=1_000), A0)
    record = world.known
    restarted = Transactions()
    restarted.replay(record, now=Now(0, START.wall_ms + 700))
    assert restarted.next_timeout_ms() == 300
    late = Transactions()
    late.replay(record, now=Now(50, START.wall_ms + 5_000))
    assert late.timed_out(now=Now(50, 0)) == (ID,)
    early = Transactions()
    early.replay(record, now=Now(0, START.wall_ms - 999_999))
    assert early.next_timeout_ms() == 1_000, "a clock that was set back holds up nobody for longer"


def test_idle_ids_expire_the_oldest_first() -> None:
    transactions = Transactions()
    for number in range(5):
        record = TransactionMetadata(
            f"t{number}", number, 0, 1_000, TransactionState.EMPTY, frozenset(), -1, number
        )
        transactions.replay(record, now=START)
    busy = TransactionMetadata("busy", 9, 0, 1_000, TransactionState.ONGOING, frozenset({A0}), 0, 0)
    transactions.replay(busy, now=START)
    expired = transactions.expired(since_wall_ms=2, count_max=10)
    assert [tombstone.transactional_id for tombstone in expired] == ["t0", "t1", "t2"]
    assert len(transactions.expired(since_wall_ms=4, count_max=2)) == 2
    for tombstone in expired:
        transactions.replay(tombstone, now=START)
    with pytest.raises(TransactionalIdNotFound):
        transactions.describe("t0")


def test_room_is_made_by_forgetting_idle_ids_and_never_busy_ones() -> None:
    transactions = Transactions()
    busy = TransactionMetadata("busy", 9, 0, 1_000, TransactionState.ONGOING, frozenset({A0}), 0, 0)
    idle = TransactionMetadata("idle", 8, 0, 1_000, TransactionState.EMPTY, frozenset(), -1, 1)
    for record in (busy, idle):
        transactions.replay(record, now=START)
    assert transactions.size_bytes == size_bytes(busy) + size_bytes(idle)
    added = TransactionMetadata("new", 7, 0, 1_000, TransactionState.EMPTY, frozenset(), -1, 2)
    enough = transactions.size_bytes + size_bytes(added)
    assert transactions.forgotten_for(added, bytes_max=enough) == ()
    forgotten = transactions.forgotten_for(added, bytes_max=enough - 1)
    assert forgotten == (TransactionTombstone("idle"),)
    with pytest.raises(CoordinatorNotAvailable, match="too few are idle"):
        transactions.forgotten_for(added, bytes_max=size_bytes(busy))
    transactions.replay(TransactionTombstone("idle"), now=START)
    assert transactions.size_bytes == size_bytes(busy)


def test_ids_and_transactions_have_limits() -> None:
    world = World()
    with pytest.raises(InvalidRequest, match="the transactional id is empty"):
        world.transactions.check_new("")
    with pytest.raises(InvalidRequest, match=f"at most {ID_CHARACTERS_MAX} characters"):
        world.transactions.check_new("x" * (ID_CHARACTERS_MAX + 1))
    many = [TransactionPartition(TopicName("m"), index) for index in range(PARTITIONS_MAX + 1)]
    identity = world.init()
    world.add(identity, *many[:-1])
    with pytest.raises(PolicyViolation, match=f"at most {PARTITIONS_MAX} partitions"):
        world.add(identity, many[-1])
