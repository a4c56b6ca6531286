"""The newest records of a partition, and what is left out."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from sharegroup.client import TopicPartition
from sharegroup.errors import InvalidRecord
from sharegroup.schedules import schedule_log
from sharegroup.schedules.schedule import ScheduleDefinition, StoredSchedule, partition_of
from sharegroup.schedules.schedule_log import NewestRecords
from sharegroup.schedules.schedule_records import Entry, Owner, encoded, key_of, parsed
from sharegroup.schedules.timing import Cron, Interval

NIGHTLY = ScheduleDefinition(name="nightly", revision=1, timing=Interval(1_000), topic="reports")
HERE = TopicPartition("shop.schedules", partition_of("nightly"))
ELSEWHERE = TopicPartition("shop.schedules", (partition_of("nightly") + 1) % 4)
OWNER = Owner("host/7", 5)


def test_the_newest_record_of_each_key_counts() -> None:
    newest = NewestRecords(HERE)
    newest.put(key_of(NIGHTLY), b"{")
    newest.put(key_of(NIGHTLY), encoded(NIGHTLY))
    newest.put(key_of(OWNER), encoded(OWNER))
    newest.put(None, b"no key")
    assert newest.read(0).entries == (NIGHTLY, OWNER)

    newest.put(key_of(NIGHTLY), None)
    assert newest.read(0).entries == (OWNER,)


def test_a_schedule_in_the_wrong_partition_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Two owners would run it."""
    newest = NewestRecords(ELSEWHERE)
    newest.put(key_of(NIGHTLY), encoded(NIGHTLY))

    assert newest.read(0).entries == ()
    assert "belongs to partition" in caplog.text


def test_a_stored_schedule_that_cannot_be_read_is_remembered() -> None:
    stored = StoredSchedule(definition=NIGHTLY, last_due_ms=0)
    newest = NewestRecords(HERE)
    newest.put(key_of(stored), encoded(stored).replace(b'"format":1', b'"format":2'))
    newest.put(key_of(NIGHTLY), b"{")
    assert newest.read(7) == ((), 7, {b"schedule/nightly"})

    newest.put(key_of(stored), encoded(stored))
    assert newest.read(8) == ((stored,), 8, frozenset())


def test_an_expression_without_its_library_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cron = replace(NIGHTLY, timing=Cron("0 6 * * *"))
    newest = NewestRecords(HERE)
    newest.put(key_of(cron), encoded(cron))
    monkeypatch.setitem(sys.modules, "cronsim", None)

    assert newest.read(0).entries == ()
    with pytest.raises(ValueError, match="need cronsim"):
        parsed(key_of(cron), encoded(cron))


def test_an_unexpected_error_of_a_record_leaves_it_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(key: bytes, value: bytes) -> Entry:
        if value == b"hostile":
            raise ZeroDivisionError
        return parsed(key, value)

    monkeypatch.setattr(schedule_log, "parsed", fails)
    newest = NewestRecords(HERE)
    newest.put(b"schedule/x", b"hostile")
    newest.put(key_of(NIGHTLY), encoded(NIGHTLY))

    assert newest.read(0).entries == (NIGHTLY,)
    assert "event=schedules.unreadable" in caplog.text


def test_more_keys_than_the_limit_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_log, "ENTRIES_MAX", 2)
    newest = NewestRecords(HERE)
    newest.put(b"a", b"")
    newest.put(b"b", b"")
    with pytest.raises(InvalidRecord, match="more than 2 keys; another program writes to it"):
        newest.put(b"c", b"")
