"""Every state that a transactional id can reach with few producers, and what is never true in one.

A search over the real class: in every state that was found each producer that was ever there asks
for everything, with every identity that was ever given out, in both protocols.  Markers are
written, time passes, and the coordinator restarts from its records.  «Never» is asserted at each
step; the kinds of transitions that were seen are compared with Kafka's table at the end.
``EXPLORE=all``, which is `make explore`, searches more deeply.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

from sharegroup.broker.transactions.transaction_records import decode, encode
from sharegroup.core.deadlines import Now
from sharegroup.core.transactions.records import (
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
)
from sharegroup.core.transactions.transactions import Transactions
from sharegroup.errors import KafkaError
from sharegroup.ids import ProducerIdAndEpoch, TopicName

ID = "t"
PARTITIONS = (TransactionPartition(TopicName("a"), 0), TransactionPartition(TopicName("a"), 1))
NOW = Now(10, 1_000_000)
STEPS_MAX = 14 if os.environ.get("EXPLORE") == "all" else 9
STATES_MIN = 3_000 if os.environ.get("EXPLORE") == "all" else 600
State = TransactionState

KAFKAS_TRANSITIONS = {
    # `TransactionState.VALID_PREVIOUS_STATES` of Kafka 4.4, without PREPARE_EPOCH_FENCE, which is
    # part of the abort here, and without DEAD, which is a tombstone.
    (State.EMPTY, State.EMPTY),
    (State.COMPLETE_COMMIT, State.EMPTY),
    (State.COMPLETE_ABORT, State.EMPTY),
    (State.ONGOING, State.ONGOING),
    (State.EMPTY, State.ONGOING),
    (State.COMPLETE_COMMIT, State.ONGOING),
    (State.COMPLETE_ABORT, State.ONGOING),
    (State.ONGOING, State.PREPARE_COMMIT),
    (State.ONGOING, State.PREPARE_ABORT),
    (State.EMPTY, State.PREPARE_ABORT),
    (State.COMPLETE_COMMIT, State.PREPARE_ABORT),
    (State.COMPLETE_ABORT, State.PREPARE_ABORT),
    (State.PREPARE_COMMIT, State.COMPLETE_COMMIT),
    (State.PREPARE_ABORT, State.COMPLETE_ABORT),
}

Identity = tuple[int, int]


class Situation(NamedTuple):
    """A coordinator, all identities that were given out, and the number of producer ids taken."""

    transactions: Transactions
    identities: tuple[Identity, ...]
    ids_taken: int

    @property
    def known(self) -> TransactionMetadata | None:
        return self.transactions.find(ID)

    def key(self) -> tuple[object, ...]:
        return self.known, self.identities


class Step(NamedTuple):
    """What was asked, by whom, and the situation after it."""

    event: str
    identity: Identity | None
    after: Situation


def fresh_id(situation: Situation, version: int | None) -> tuple[int | None, int]:
    taken = situation.ids_taken
    if situation.transactions.needs_producer_id(ID, version=version):
        return 100 + taken, taken + 1
    return None, taken


def applied(
    situation: Situation,
    record: TransactionMetadata | None,
    taken: int,
    identity: Identity | None = None,
) -> Situation:
    transactions = deepcopy(situation.transactions)
    if record is not None:
        transactions.replay(record, now=NOW)
    identities = situation.identities
    if identity is not None and identity not in identities:
        identities = (*identities, identity)
    return Situation(transactions, identities, taken)


def init(situation: Situation, expected: Identity | None) -> Step:
    fresh, taken = fresh_id(situation, None)
    record = situation.transactions.init(
        ID, expected=expected, fresh_producer_id=fresh, timeout_ms=1_000, now=NOW
    )
    given = record.producer_id, record.producer_epoch
    return Step("init", expected, applied(situation, record, taken, given))


def add(situation: Situation, identity: Identity, partition: TransactionPartition) -> Step:
    record = situation.transactions.add_partitions(
        ID,
        ProducerIdAndEpoch(*identity),
        (partition,),
        client_version=2,
        now=NOW,
    )
    return Step("add", identity, applied(situation, record, situation.ids_taken))


def end(situation: Situation, identity: Identity, *, is_commit: bool, version: int) -> Step:
    fresh, taken = fresh_id(situation, version)
    found = situation.transactions.end(
        ID,
        ProducerIdAndEpoch(*identity),
        is_commit=is_commit,
        client_version=version,
        fresh_producer_id=fresh,
        now=NOW,
    )
    given = found.producer
    after = applied(situation, found.record, taken, given)
    return Step("commit" if is_commit else "abort", identity, after)


def fence(situation: Situation, version: int) -> Step:
    fresh, taken = fresh_id(situation, version)
    record = situation.transactions.fence(ID, version=version, fresh_producer_id=fresh, now=NOW)
    return Step("fence", None, applied(situation, record, taken))


def restart(situation: Situation) -> Step:
    transactions = Transactions()
    if situation.known is not None:
        for version in (0, 1):
            stored = decode(*encode(situation.known, version=version))
            assert isinstance(stored, TransactionMetadata)
            if version == 1:
                assert stored == replace(situation.known, last_epoch=-1), "all else is stored"
                transactions.replay(stored, now=NOW)
    return Step("restart", None, Situation(transactions, situation.identities, situation.ids_taken))


def complete(situation: Situation) -> Step:
    record = situation.transactions.complete(ID, now=NOW)
    return Step("complete", None, applied(situation, record, situation.ids_taken))


def steps(situation: Situation) -> Iterator[Step]:
    """Everything that can be asked, as far as it is not refused."""
    known = situation.known
    calls = [lambda: restart(situation), lambda: complete(situation)]
    if known is None or known.state is not State.ONGOING:
        # The coordinator aborts an open transaction first.
        calls.append(lambda: init(situation, None))
        calls += [lambda who=who: init(situation, who) for who in situation.identities]
    for version in (0, 2):
        calls.append(lambda version=version: fence(situation, version))
    for who in situation.identities:
        for partition in PARTITIONS:
            calls.append(lambda who=who, partition=partition: add(situation, who, partition))
        for version in (0, 2):
            for is_commit in (True, False):
                calls.append(
                    lambda who=who, is_commit=is_commit, version=version: end(
                        situation, who, is_commit=is_commit, version=version
                    )
                )
    for call in calls:
        try:
            yield call()
        except KafkaError:
            continue


def check_never(before: TransactionMetadata | None, step: Step) -> None:
    after = step.after.known
    if before is None or after is None or before == after:
        return
    if before.state.is_prepared:
        assert step.event in ("complete", "restart"), f"{step.event} changed a decision"
        assert after.is_commit is before.is_commit
    if step.event in ("add", "commit", "abort"):
        assert step.identity == (before.producer_id, before.producer_epoch), "a fenced producer"
    if before.state is State.ONGOING and after.state is State.PREPARE_COMMIT:
        assert step.event == "commit"
    if before.state is State.ONGOING and after.state is not State.ONGOING:
        assert after.partitions == before.partitions, "every partition gets a marker"
    if after.producer_id == before.producer_id:
        assert after.producer_epoch >= before.producer_epoch, "an epoch was given out again"
    else:
        assert after.producer_epoch == 0
    assert (after.state is State.ONGOING) <= bool(after.partitions)


def test_every_state_of_a_transactional_id() -> None:
    first = Situation(Transactions(), (), 0)
    found, waiting = {first.key()}, [first]
    seen: set[tuple[State, State]] = set()
    for _ in range(STEPS_MAX):
        following = []
        for situation in waiting:
            before = situation.known
            for step in steps(situation):
                check_never(before, step)
                after = step.after.known
                if before is not None and after is not None and step.event != "restart":
                    seen |= {(before.state, after.state)} if before != after else set()
                key = step.after.key()
                if key not in found:
                    found.add(key)
                    following.append(step.after)
        waiting = following
    assert seen == KAFKAS_TRANSITIONS
    assert len(found) >= STATES_MIN, len(found)
