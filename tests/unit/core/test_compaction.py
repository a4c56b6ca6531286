"""The rules of compaction: which record stands for its key, and how long the others stay."""

from __future__ import annotations

import pytest

from sharegroup.core.log.compaction import (
    ENTRY_BYTES,
    Aborted,
    CompactionRules,
    Fate,
    LastOfProducer,
    LogTransactions,
    NewestOffsets,
)

NOW_MS = 10_000
LAST = {7: LastOfProducer(epoch=2, end_offset=50), 8: LastOfProducer(epoch=3, end_offset=None)}


def keeper(**newest: int) -> CompactionRules:
    """The newest offset of each key; what is at or above 100 is not known."""
    known = NewestOffsets(1 << 20, end_offset=100)
    for key, offset in newest.items():
        known.learn(key.encode(), offset)
    return CompactionRules(known, last=LAST, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("key", "offset", "stays"),
    [
        (b"a", 40, True),
        (b"a", 39, False),
        (b"a", 41, True),
        (b"other", 3, True),
        (b"other", 0, True),
        (None, 3, False),
    ],
)
def test_only_the_newest_record_of_a_key_is_kept(
    key: bytes | None, offset: int, stays: bool
) -> None:
    assert keeper(a=40).keeps(key, offset=offset, is_tombstone=False, horizon=None) is stays


@pytest.mark.parametrize(
    ("horizon", "stays"), [(None, True), (NOW_MS + 1, True), (NOW_MS, False), (1, False)]
)
def test_tombstone_is_kept_until_its_horizon(horizon: int | None, stays: bool) -> None:
    assert keeper(a=40).keeps(b"a", offset=40, is_tombstone=True, horizon=horizon) is stays
    assert keeper(a=40).keeps(b"a", offset=40, is_tombstone=False, horizon=horizon) is True


def test_records_beyond_the_learnt_offsets_are_kept() -> None:
    """If a tombstone were removed before the older value was read, the older value would return."""
    for key in (b"a", b"other", None):
        assert keeper(a=40).keeps(key, offset=100, is_tombstone=True, horizon=1)
    assert not keeper(a=40).keeps(b"other", offset=99, is_tombstone=True, horizon=1)


def test_memory_bounds_the_keys_but_never_stops_a_pass() -> None:
    newest = NewestOffsets(3 * ENTRY_BYTES, end_offset=0)
    assert newest.has_room(1_000)
    newest.learn(b"a", 0)
    assert (newest.has_room(2), newest.has_room(3)) == (True, False)
    newest.learn(b"a", 1)
    assert len(newest) == 1


@pytest.mark.parametrize("memory_bytes", [0, ENTRY_BYTES - 1, ENTRY_BYTES, 2 * ENTRY_BYTES - 1])
def test_least_memory_has_room_for_a_single_key(memory_bytes: int) -> None:
    newest = NewestOffsets(memory_bytes, end_offset=0)
    newest.learn(b"a", 0)
    assert (newest.has_room(0), newest.has_room(1)) == (True, False)


@pytest.mark.parametrize(
    ("must_stay", "is_void", "is_marker", "horizon", "fate"),
    [
        (False, False, False, None, Fate.FILTERED),
        (True, False, False, None, Fate.FILTERED_STAYS),
        (False, True, False, None, Fate.DROPPED),
        (True, True, False, None, Fate.EMPTIED),
        (False, True, True, None, Fate.FILTERED),
        (False, True, True, NOW_MS + 1, Fate.FILTERED),
        (False, True, True, NOW_MS, Fate.DROPPED),
        (True, True, True, NOW_MS, Fate.EMPTIED),
        (False, False, True, NOW_MS, Fate.FILTERED),
    ],
)
def test_the_fate_of_a_batch(
    must_stay: bool, is_void: bool, is_marker: bool, horizon: int | None, fate: Fate
) -> None:
    found = keeper().fate(
        must_stay=must_stay, is_void=is_void, is_marker=is_marker, horizon=horizon
    )
    assert found is fate


@pytest.mark.parametrize(
    ("producer_id", "epoch", "end_offset", "is_marker", "is_last"),
    [
        (7, 2, 50, False, True),
        (7, 2, 49, False, False),
        (8, 3, 60, True, True),
        (8, 2, 60, True, False),
        (8, 3, 60, False, False),
        (9, 0, 50, False, False),
    ],
)
def test_last_batch_of_a_producer_is_recognized(
    producer_id: int, epoch: int, end_offset: int, is_marker: bool, is_last: bool
) -> None:
    found = keeper().is_last_of_producer(
        producer_id, epoch=epoch, end_offset=end_offset, is_marker=is_marker
    )
    assert found is is_last


def test_marker_is_kept_while_a_batch_of_its_transaction_exists() -> None:
    transactions = LogTransactions([Aborted(1, 10, 14), Aborted(2, 20, 21)])
    assert transactions.records(1, end_offset=12, is_transactional=True)
    assert not transactions.records(1, end_offset=13, is_transactional=False)
    assert not transactions.records(3, end_offset=14, is_transactional=True)
    assert not transactions.marker(1, end_offset=15, is_commit=False)
    assert not transactions.marker(3, end_offset=16, is_commit=True)
    assert transactions.marker(3, end_offset=17, is_commit=True)
    assert transactions.marker(2, end_offset=22, is_commit=False)


def test_a_producers_next_transaction_is_another() -> None:
    transactions = LogTransactions([Aborted(1, 10, 14), Aborted(1, 30, 31)])
    assert transactions.records(1, end_offset=12, is_transactional=True)
    transactions.marker(1, end_offset=15, is_commit=False)
    assert not transactions.records(1, end_offset=21, is_transactional=True)
    assert not transactions.marker(1, end_offset=22, is_commit=True)
    assert transactions.records(1, end_offset=31, is_transactional=True)


def test_transactions_begin_in_the_order_of_their_offsets() -> None:
    """The ids of their producers and the order of the log's index do not matter."""
    for aborted in (
        [Aborted(2, 10, 14), Aborted(1, 20, 21)],
        [Aborted(1, 20, 21), Aborted(2, 10, 14)],
    ):
        transactions = LogTransactions(aborted)
        assert not transactions.records(1, end_offset=11, is_transactional=True)
        assert transactions.records(2, end_offset=12, is_transactional=True)
        assert not transactions.marker(2, end_offset=15, is_commit=False)
        assert transactions.records(1, end_offset=21, is_transactional=True)


def test_consecutive_aborted_transactions_of_a_producer_are_both_recognized() -> None:
    transactions = LogTransactions([Aborted(1, 10, 14), Aborted(1, 15, 18)])
    assert transactions.records(1, end_offset=12, is_transactional=True)
    assert not transactions.marker(1, end_offset=15, is_commit=False)
    assert transactions.records(1, end_offset=17, is_transactional=True)
    assert not transactions.marker(1, end_offset=19, is_commit=False)


def test_marker_of_an_unknown_transaction_is_not_needed() -> None:
    assert LogTransactions([]).marker(1, end_offset=15, is_commit=False)
    assert LogTransactions([]).marker(1, end_offset=15, is_commit=True)
