"""Transactional ids and offsets in transactions against a model, through crashes of the log.

The model knows for each transactional id who its producer is, what is open and how it ended; it has
none of the fields by which the real class recognises retries and fences producers.  For a group it
knows every offset that was written, in order: the valid one is the last that is committed.  A crash
makes both anew from their records.
Run longer: ``MODEL_EXAMPLES=5000 pytest tests/model/test_transactions.py``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sharegroup.broker.transactions.transaction_records import decode, encode
from sharegroup.core.deadlines import Now
from sharegroup.core.groups.classic.classic_groups import ClassicGroups
from sharegroup.core.groups.classic.offsets import OpenTransaction
from sharegroup.core.groups.classic.records import OffsetAndMetadata, OffsetCommit
from sharegroup.core.transactions.records import (
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
)
from sharegroup.core.transactions.transactions import Transactions
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, ProducerIdAndEpoch, TopicId, TopicName

EXAMPLES = os.environ.get("MODEL_EXAMPLES")
IDS = ("a", "b", "c")
PARTITIONS = [TransactionPartition(TopicName("t"), index) for index in range(3)]
GROUP, TOPIC = GroupId("g"), TopicName("t")
TOPIC_ID = TopicId(UUID(int=1))
NOW = Now(0, 1_000_000)

ids = st.sampled_from(IDS)
partitions = st.sampled_from(PARTITIONS)
# Most requests come from the newest producer, or nothing would ever be committed.
ages = st.sampled_from([0, 0, 0, 0, 1, 2])
versions = st.sampled_from([0, 2])


@dataclass
class Known:
    """What the model knows of a transactional id."""

    given: list[tuple[int, int]] = field(default_factory=list)
    """Every identity that a producer was given, the newest last."""
    open: set[TransactionPartition] = field(default_factory=set)
    prepared: bool | None = None
    """Whether the decided transaction, which is not complete, was committed."""
    outcomes: list[bool] = field(default_factory=list)
    """Of the transactions that had partitions."""


class TransactionsBesideModel(RuleBasedStateMachine):
    """Commands to both; what one refuses the other must refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.real = Transactions()
        self.model = {transactional_id: Known() for transactional_id in IDS}
        self.log: dict[str, TransactionMetadata] = {}
        self.taken = 0
        self.outcomes: dict[str, list[bool]] = {transactional_id: [] for transactional_id in IDS}

    def fresh(self, transactional_id: str, version: int | None) -> int | None:
        if not self.real.needs_producer_id(transactional_id, version=version):
            return None
        self.taken += 1
        return self.taken

    def write(self, record: TransactionMetadata | None) -> None:
        if record is None:
            return
        before = self.log.get(record.transactional_id)
        self.log[record.transactional_id] = record
        self.real.replay(record, now=NOW)
        was_prepared = before is not None and before.state.is_prepared
        if record.state.is_prepared and not was_prepared and record.partitions:
            self.outcomes[record.transactional_id].append(record.is_commit)

    @rule(name=ids, version=versions)
    def init(self, name: str, version: int) -> None:
        """As the coordinator does: abort what is open, complete it, then begin anew."""
        known = self.model[name]
        if known.prepared is not None:
            try:
                self.real.init(name, expected=None, fresh_producer_id=99, timeout_ms=1_000, now=NOW)
            except KafkaError:
                return
            raise AssertionError("a decision is not complete, and a producer began")
        if known.open:
            fresh = self.fresh(name, version)
            self.write(self.real.fence(name, version=version, fresh_producer_id=fresh, now=NOW))
            known.outcomes.append(False)
            known.open = set()
            self.write(self.real.complete(name, now=NOW))
        record = self.real.init(
            name,
            expected=None,
            fresh_producer_id=self.fresh(name, None),
            timeout_ms=1_000,
            now=NOW,
        )
        self.write(record)
        identity = record.producer_id, record.producer_epoch
        assert identity not in known.given, "an identity was given twice"
        known.given.append(identity)

    @rule(name=ids, partition=partitions, age=ages, version=versions)
    def add(self, name: str, partition: TransactionPartition, age: int, version: int) -> None:
        known = self.model[name]
        identity = self.identity(name, age)
        allowed = age == 0 and bool(known.given) and known.prepared is None
        try:
            record = self.real.add_partitions(
                name,
                ProducerIdAndEpoch(*identity),
                (partition,),
                client_version=version,
                now=NOW,
            )
        except KafkaError:
            assert not allowed
            return
        assert allowed
        assert (record is None) is (partition in known.open)
        self.write(record)
        known.open.add(partition)

    @rule(name=ids, age=ages, version=versions, is_commit=st.booleans())
    def end(self, name: str, age: int, version: int, is_commit: bool) -> None:
        known = self.model[name]
        identity = self.identity(name, age)
        is_newest = age == 0 and bool(known.given)
        try:
            found = self.real.end(
                name,
                ProducerIdAndEpoch(*identity),
                is_commit=is_commit,
                client_version=version,
                fresh_producer_id=self.fresh(name, version),
                now=NOW,
            )
        except KafkaError:
            assert not (is_newest and known.open), "the open transaction could not be ended"
            return
        assert known.prepared is None
        if found.record is None:
            assert not known.open, "a repeated request left the transaction open"
            return
        assert is_newest, "a fenced producer decided"
        self.write(found.record)
        if known.open:
            known.outcomes.append(is_commit)
        known.open = set()
        known.prepared = is_commit
        following = found.producer
        if following not in known.given:
            known.given.append(following)

    @rule(name=ids)
    def complete(self, name: str) -> None:
        record = self.real.complete(name, now=NOW)
        assert (record is None) is (self.model[name].prepared is None)
        self.write(record)
        self.model[name].prepared = None

    @rule(version=versions)
    def crash(self, version: int) -> None:
        """The records are read again, in the form of either version."""
        restarted = Transactions()
        for record in self.log.values():
            stored = decode(*encode(record, version=version))
            assert isinstance(stored, TransactionMetadata)
            restarted.replay(stored, now=NOW)
        self.real = restarted
        self.log = {known.transactional_id: known for known in restarted}

    def identity(self, name: str, age: int) -> tuple[int, int]:
        given = self.model[name].given
        return given[-1 - age] if age < len(given) else (-7, 0)

    @invariant()
    def both_agree(self) -> None:
        for name, known in self.model.items():
            real = self.real.find(name)
            assert self.outcomes[name] == known.outcomes
            if real is None:
                assert not known.given
                continue
            assert real.state.is_prepared is (known.prepared is not None)
            is_open = real.state is TransactionState.ONGOING
            assert (set(real.partitions) if is_open else set()) == known.open


TestTransactions = TransactionsBesideModel.TestCase
TestTransactions.settings = settings(
    max_examples=int(EXAMPLES or 30), stateful_step_count=40, deadline=None
)


class OffsetsBesideModel(RuleBasedStateMachine):
    """Offsets of one group, committed plainly and in transactions of three producers."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, object, object]] = []
        self.real = ClassicGroups(lambda _: None)
        self.count = 0

    def commit(self, partition: int) -> OffsetCommit:
        self.count += 1
        committed = OffsetAndMetadata(self.count, -1, "", 0, None, TOPIC_ID)
        return OffsetCommit(GROUP, TOPIC, partition, committed)

    def happen(self, kind: str, first: object, second: object) -> None:
        self.log.append((kind, first, second))
        apply(self.real, kind, first, second)

    @rule(partition=st.integers(0, 1))
    def plain(self, partition: int) -> None:
        self.happen("plain", self.commit(partition), None)

    @rule(partition=st.integers(0, 1), producer=st.integers(1, 3))
    def pending(self, partition: int, producer: int) -> None:
        self.happen("pending", producer, self.commit(partition))

    @rule(producer=st.integers(1, 3), is_commit=st.booleans())
    def marker(self, producer: int, is_commit: bool) -> None:
        self.happen("marker", producer, is_commit)

    @rule()
    def crash(self) -> None:
        self.real = ClassicGroups(lambda _: None)
        for entry in self.log:
            apply(self.real, *entry)

    @invariant()
    def the_last_committed_offset_is_valid(self) -> None:
        valid: dict[int, int] = {}
        waiting: dict[int, list[OffsetCommit]] = {}
        written: dict[int, int] = {}
        for kind, first, second in self.log:
            if kind == "plain":
                assert isinstance(first, OffsetCommit)
                valid[first.partition] = first.committed.offset
                written[first.partition] = first.committed.offset
            elif kind == "pending":
                assert isinstance(second, OffsetCommit)
                assert isinstance(first, int)
                waiting.setdefault(first, []).append(second)
            else:
                assert isinstance(first, int)
                for commit in waiting.pop(first, ()):
                    # Offsets here are numbered in the order in which they were written.
                    if second and commit.committed.offset > written.get(commit.partition, 0):
                        valid[commit.partition] = commit.committed.offset
                        written[commit.partition] = commit.committed.offset
        found = self.real.offsets(GROUP).get(TOPIC, {})
        assert {index: committed.offset for index, committed in found.items()} == valid
        unstable = {commit.partition for commits in waiting.values() for commit in commits}
        for partition in (0, 1):
            assert self.real.is_unstable(GROUP, TOPIC, partition) is (partition in unstable)


def apply(groups: ClassicGroups, kind: str, first: object, second: object) -> None:
    if kind == "plain":
        assert isinstance(first, OffsetCommit)
        groups.replay(first)
        return
    assert isinstance(first, int)
    transaction = OpenTransaction(0, first)
    if kind == "pending":
        assert isinstance(second, OffsetCommit)
        groups.replay_pending(transaction, second)
    else:
        groups.end_transaction(transaction, is_commit=bool(second))


TestOffsets = OffsetsBesideModel.TestCase
TestOffsets.settings = settings(
    max_examples=int(EXAMPLES or 30), stateful_step_count=40, deadline=None
)
