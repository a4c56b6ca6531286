"""What a handler is told of its record, and what it decides by hand."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from sharegroup.dead_letters.story import NEW, Attempt, RecordOrigin, Story
from sharegroup.worker import Context, Record, Reject, Release, RetryAfter
from sharegroup.worker.records.record import LOOP, AlreadyDecided
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


def test_new_record_has_the_position_of_its_delivery() -> None:
    first = record(delivery_count=1)
    assert (first.topic, first.partition, first.offset) == ("orders", 2, 7)
    assert first.timestamp_ms == 1_767_225_600_000
    assert (first.key, first.value) == (b"customer-7", b"{}")
    assert (first.attempt, first.delivery_attempt, first.redelivered) == (1, 1, False)
    assert (first.history, first.redrives, first.redrive_id) == ((), 0, None)
    assert first.redrive_headers == ()
    assert first.id is None


def test_retried_record_has_its_original_position() -> None:
    story = Story(
        origin=ORIGIN, failures=1, attempts=(ATTEMPT,), redrives=1, redrive_id="r-1", id="f00"
    )
    retried = record(story, topic="billing.retry", partition=0, offset=99)
    assert (retried.topic, retried.partition, retried.offset, retried.timestamp_ms) == ORIGIN
    assert (retried.attempt, retried.delivery_attempt, retried.redelivered) == (2, 1, True)
    assert (retried.history, retried.redrives, retried.redrive_id) == ((ATTEMPT,), 1, "r-1")
    assert retried.id == "f00"
    assert retried.redrive_headers == (("__sharegroup.redrives", b"1"),)


def test_delivery_after_a_crash_is_distinguished_from_a_retry() -> None:
    seen = record(delivery_count=2)
    assert (seen.attempt, seen.delivery_attempt, seen.redelivered) == (1, 2, True)


def test_headers_are_the_applications() -> None:
    seen = record(headers=HEADERS)
    assert list(seen.headers) == [("trace", b"1"), ("trace", b"2"), ("empty", None)]
    assert seen.header("trace") == b"2"
    assert seen.header("empty") is None
    assert seen.header("other") is None


def test_deadline_follows_the_lock() -> None:
    seen = record(deadline=30.0)
    assert (seen.deadline, seen.seconds_left) == (30.0, 17.5)
    seen.delivery.deadline = 60.0
    assert (seen.deadline, seen.seconds_left) == (60.0, 47.5)


def test_renew_is_requested_immediately() -> None:
    seen = record()
    seen.renew()
    assert seen.delivery.settled == ["renew"]


def test_renew_in_a_thread_runs_on_the_event_loop() -> None:
    asked_in: list[int] = []

    class Renewed(FakeDelivery):
        def renew(self) -> None:
            asked_in.append(threading.get_ident())

    async def handled() -> None:
        LOOP.set(asyncio.get_running_loop())
        record = Record(Renewed(), NEW, StillClock())
        await asyncio.to_thread(record.renew)  # As in a handler that is a plain function.
        await asyncio.sleep(0)
        record.renew()

    asyncio.run(handled())
    assert asked_in == [threading.get_ident()] * 2


def test_decision_methods_do_not_settle_the_delivery_yet() -> None:
    kept: list[Any] = []
    for verb in (Record.accept, Record.release, Record.reject):
        seen = record()
        verb(seen)
        assert seen.delivery.settled == []
        kept.append(seen.decision)
    assert kept[0] == "accept"
    assert [type(decision) for decision in kept[1:]] == [Release, Reject]


def test_decision_methods_keep_their_arguments() -> None:
    rejected, paused, released = record(), record(), record()
    rejected.reject("too old")
    paused.pause("2m", "busy")
    assert str(rejected.decision) == "too old"
    assert isinstance(paused.decision, RetryAfter)
    assert (paused.decision.delay_seconds, str(paused.decision)) == (120.0, "busy")
    released.release(delay="2m")
    assert isinstance(released.decision, Release)
    assert released.decision.delay_seconds == 120.0


def test_second_decision_is_refused_and_the_first_is_kept() -> None:
    seen = record()
    seen.accept()
    with pytest.raises(AlreadyDecided, match=r"offset=7.*: Reject\('no'\) after 'accept'"):
        seen.reject("no")
    assert seen.decision == "accept"


def test_pause_of_no_duration_decides_nothing() -> None:
    seen = record()
    with pytest.raises(ValueError, match="got 'soon'"):
        seen.pause("soon")
    assert seen.decision is None


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
def test_method_name_of_another_client_is_refused_with_its_replacement(
    name: str, instead: str
) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(record(), name)
    assert str(raised.value) == f"a record has no {name!r}; use {instead}"


def test_unknown_attribute_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"^a record has no 'colour'$"):
        record().colour  # noqa: B018  Looking at it is what raises.
    assert not hasattr(record(), "colour")
