"""What a handler is told of its record, and what it decides by hand."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from sharegroup.worker import Context, Record, Reject, Release, RetryAfter
from sharegroup.worker.records.record import LOOP, AlreadyDecided
from sharegroup.worker.records.story import NEW, Attempt, RecordOrigin, Story
from tests.unit.worker.deliveries import FakeDelivery

ORIGIN = RecordOrigin("orders", 3, 44, 1_700_000_000_000)
ATTEMPT = Attempt(1, 1_700_000_000_500, "builtins.TimeoutError", "slow", "member-1")
HEADERS = (
    ("trace", b"1"),
    ("trace", b"2"),
    ("empty", None),
    ("__sharegroup.failures", b"1"),
)


class StillClock:
    def now(self) -> float:
        return 12.5


def record(story: Story = NEW, **delivery: Any) -> Record:
    return Record(FakeDelivery(**delivery), story, StillClock())


def test_new_record_lies_where_it_was_delivered_from() -> None:
    one = record(delivery_count=1)
    assert (one.topic, one.partition, one.offset) == ("orders", 2, 7)
    assert one.timestamp_ms == 1_767_225_600_000
    assert (one.key, one.value) == (b"customer-7", b"{}")
    assert (one.attempt, one.delivery_attempt, one.redelivered) == (1, 1, False)
    assert (one.history, one.redrives, one.redrive_id) == ((), 0, None)


def test_retried_record_lies_where_the_application_wrote_it() -> None:
    story = Story(origin=ORIGIN, failures=1, attempts=(ATTEMPT,), redrives=1, redrive_id="r-1")
    one = record(story, topic="billing.retry", partition=0, offset=99)
    assert (one.topic, one.partition, one.offset, one.timestamp_ms) == ORIGIN
    assert (one.attempt, one.delivery_attempt, one.redelivered) == (2, 1, True)
    assert (one.history, one.redrives, one.redrive_id) == ((ATTEMPT,), 1, "r-1")


def test_delivery_after_a_crash_is_told_from_a_retry() -> None:
    one = record(delivery_count=2)
    assert (one.attempt, one.delivery_attempt, one.redelivered) == (1, 2, True)


def test_headers_are_the_applications() -> None:
    one = record(headers=HEADERS)
    assert list(one.headers) == [("trace", b"1"), ("trace", b"2"), ("empty", None)]
    assert one.header("trace") == b"2"
    assert one.header("empty") is None
    assert one.header("other") is None


def test_deadline_follows_the_lock() -> None:
    one = record(deadline=30.0)
    assert (one.deadline, one.seconds_left) == (30.0, 17.5)
    one.delivery.deadline = 60.0
    assert (one.deadline, one.seconds_left) == (60.0, 47.5)


def test_renew_asks_at_once() -> None:
    one = record()
    one.renew()
    assert one.delivery.settled == ["renew"]


def test_renew_in_a_thread_asks_on_the_loop_that_keeps_the_lock() -> None:
    asked_in: list[int] = []

    class Renewed(FakeDelivery):
        def renew(self) -> None:
            asked_in.append(threading.get_ident())

    async def handled() -> None:
        LOOP.set(asyncio.get_running_loop())
        one = Record(Renewed(), NEW, StillClock())
        await asyncio.to_thread(one.renew)  # As a handler that is a plain function does.
        await asyncio.sleep(0)
        one.renew()

    asyncio.run(handled())
    assert asked_in == [threading.get_ident()] * 2


def test_verbs_decide_and_settle_nothing_yet() -> None:
    kept: list[Any] = []
    for verb in (Record.accept, Record.release, Record.reject):
        one = record()
        verb(one)
        assert one.delivery.settled == []
        kept.append(one.decision)
    assert kept[0] == "accept"
    assert [type(decision) for decision in kept[1:]] == [Release, Reject]


def test_verbs_keep_what_they_were_given() -> None:
    rejected, paused = record(), record()
    rejected.reject("too old")
    paused.pause("2m", "busy")
    assert str(rejected.decision) == "too old"
    assert isinstance(paused.decision, RetryAfter)
    assert (paused.decision.delay_seconds, str(paused.decision)) == (120.0, "busy")


def test_second_decision_is_refused_and_the_first_stands() -> None:
    one = record()
    one.accept()
    with pytest.raises(AlreadyDecided, match=r"offset=7.*: Reject\('no'\) after 'accept'"):
        one.reject("no")
    assert one.decision == "accept"


def test_pause_of_no_duration_decides_nothing() -> None:
    one = record()
    with pytest.raises(ValueError, match="got 'soon'"):
        one.pause("soon")
    assert one.decision is None


def test_context_is_a_record() -> None:
    assert Context is Record


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("ack", "accept()"),
        ("nack", "release(), or pause(delay)"),
        ("term", "reject(reason)"),
        ("in_progress", "renew()"),
        ("seek", "nothing: a share group has no position to move"),
        ("delivery_count", "delivery_attempt"),
    ],
)
def test_word_of_another_client_says_what_it_is_here(name: str, instead: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(record(), name)
    assert str(raised.value) == f"a record has no {name!r}; use {instead}"


def test_word_of_nobody_says_that_there_is_none() -> None:
    with pytest.raises(AttributeError, match=r"^a record has no 'colour'$"):
        record().colour  # noqa: B018  Looking at it is what raises.
    assert not hasattr(record(), "colour")
