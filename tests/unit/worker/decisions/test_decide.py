"""What becomes of a record: the table of docs/worker.md, row by row.

Each test names its row.  Rows that a worker decides by itself (16 to 23) are tested where it runs.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sharegroup.dead_letters.story import NEW, Attempt, RecordOrigin, Story
from sharegroup.worker import Record, Reject, Release, Retry, RetryAfter, UnreadablePayload
from sharegroup.worker.decisions.decide import (
    ASIDE_MS,
    Accept,
    Bury,
    Hold,
    Postpone,
    Redeliver,
    Step,
    decide,
    may_run,
    moved,
    put_aside,
    stay,
)
from sharegroup.worker.declarations.handler import shape_of
from sharegroup.worker.declarations.route import Route
from tests.unit.worker.deliveries import FakeDelivery

NOW_MS = 1_767_225_600_000
RETRY = Retry(
    max_attempts=3,
    initial_delay="10s",
    multiplier=2,
    max_delay="1h",
    jitter=0.1,
    retry_on=(TimeoutError, ConnectionError),
    dont_retry_on=ConnectionRefusedError,
)


async def bill(order: dict) -> None: ...


def route(**options: Any) -> Route:
    return Route(
        **{
            "group": "billing",
            "topics": ("orders",),
            "shape": shape_of(bill),
            "retry": RETRY,
            **options,
        }
    )


def decided(
    error: BaseException | None,
    story: Story = NEW,
    *,
    holding_allowed_seconds: float = 0.0,
    chance: float = 0.5,
    **options: Any,
) -> Step:
    return decide(
        route(**options),
        error,
        story,
        now_ms=NOW_MS,
        chance=chance,
        holding_allowed_seconds=holding_allowed_seconds,
        member="member-1",
    )


def failed(number: int, error: str, message: str = "") -> Attempt:
    return Attempt(number, NOW_MS, error, message, "member-1")


TIMEOUT = "builtins.TimeoutError"
ONCE = Story(failures=1, attempts=(failed(1, TIMEOUT),))
TWICE = Story(failures=2, attempts=(failed(1, TIMEOUT), failed(2, TIMEOUT)))


def test_row_1_returning_accepts() -> None:
    assert decided(None) == Accept()
    assert decided(None, TWICE) == Accept()


def test_row_2_reject_buries_without_another_try() -> None:
    error = Reject("negative total")
    assert decided(error) == Bury(
        Story(
            failures=1,
            attempts=(failed(1, "sharegroup.worker.Reject", "negative total"),),
        ),
        "rejected",
        error,
    )


def test_row_3_release_redelivers_and_is_no_failure() -> None:
    assert decided(Release()) == Redeliver()
    assert decided(Release(), TWICE) == Redeliver()
    assert decided(Release(), retry=None) == Redeliver()


def test_row_3_release_may_name_a_delay_of_up_to_a_day() -> None:
    assert decided(Release(delay="90s"), TWICE) == Redeliver(90_000)
    assert decided(Release(delay=0)) == Redeliver(0)
    assert decided(Release("busy", delay="1d")) == Redeliver(86_400_000)
    with pytest.raises(ValueError, match="0 to 24 hours, found 25h; a RetryAfter may"):
        Release(delay="25h")


@pytest.mark.parametrize("delay", [1e300, -5.0])
def test_row_3_delay_of_a_subclass_is_bounded(delay: float) -> None:
    error = type("Later", (Release,), {"delay_seconds": delay})()
    assert decided(error) == Redeliver(86_400_000 if delay > 0 else 0)


def test_row_4_retry_after_waits_for_its_delay_and_counts_as_an_attempt() -> None:
    attempts = (failed(1, "sharegroup.worker.RetryAfter", "busy"),)
    story = Story(failures=1, attempts=attempts, due_ms=NOW_MS + 90_000)
    assert decided(RetryAfter("1m30s", "busy")) == Postpone(story)
    assert decided(RetryAfter("1m30s", "busy"), holding_allowed_seconds=90) == Hold(story)


def test_row_4_retry_after_is_retried_even_if_the_policy_lists_no_error() -> None:
    assert isinstance(decided(RetryAfter(1), retry=Retry(retry_on=())), Postpone)


def test_row_5_retriable_failure_waits_for_the_delay_of_the_policy() -> None:
    story = Story(failures=1, attempts=(failed(1, TIMEOUT, "slow"),), due_ms=NOW_MS + 10_000)
    assert decided(TimeoutError("slow")) == Postpone(story)


def test_row_5_each_retry_waits_longer() -> None:
    step = decided(TimeoutError(), ONCE)
    assert isinstance(step, Postpone)
    assert step.story.due_ms == NOW_MS + 20_000
    assert step.story.failures == 2


def test_row_5_chance_moves_the_delay_by_the_jitter() -> None:
    step = decided(TimeoutError(), chance=0.0)
    assert isinstance(step, Postpone)
    assert step.story.due_ms == NOW_MS + 9_000


def test_row_5_short_delay_is_held_and_a_longer_one_is_postponed() -> None:
    assert isinstance(decided(TimeoutError(), holding_allowed_seconds=10.0), Hold)
    assert isinstance(decided(TimeoutError(), holding_allowed_seconds=9.9), Postpone)


def test_row_5_without_room_even_an_immediate_retry_is_postponed() -> None:
    at_once = Retry(initial_delay=0)
    assert isinstance(decided(TimeoutError(), retry=at_once, holding_allowed_seconds=0), Postpone)
    assert isinstance(decided(TimeoutError(), retry=at_once, holding_allowed_seconds=0.1), Hold)


@pytest.mark.parametrize("error", [TimeoutError("slow"), RetryAfter("1s", "slow")])
def test_row_6_last_attempt_that_fails_buries(error: Exception) -> None:
    step = decided(error, replace(TWICE, due_ms=NOW_MS - 1))
    assert isinstance(step, Bury)
    assert (step.reason, step.error) == ("attempts-exhausted", error)
    assert [attempt.number for attempt in step.story.attempts] == [1, 2, 3]
    assert step.story.due_ms is None


def test_row_7_failure_not_in_the_policy_is_buried_immediately() -> None:
    error = ValueError("no such customer")
    story = Story(failures=1, attempts=(failed(1, "builtins.ValueError", "no such customer"),))
    assert decided(error) == Bury(story, "not-retried", error)


def test_row_8_failure_that_is_never_retried_buries_at_once() -> None:
    step = decided(ConnectionRefusedError())
    assert isinstance(step, Bury)
    assert step.reason == "not-retried"


@pytest.mark.parametrize("error", [TimeoutError(), RetryAfter("1s")])
def test_row_9_without_a_policy_every_failure_buries(error: Exception) -> None:
    step = decided(error, retry=None)
    assert isinstance(step, Bury)
    assert step.reason == "not-retried"


def test_row_10_unreadable_record_is_buried_and_had_no_run() -> None:
    error = UnreadablePayload("expected Order, got 3 bytes that cannot be decoded")
    assert decided(error, ONCE) == Bury(ONCE, "unreadable", error)


def test_row_11_unreadable_record_may_be_rejected_without_a_dead_letter() -> None:
    error = UnreadablePayload("expected Order")
    assert decided(error, unreadable="reject") == Bury(NEW, "unreadable", error, is_kept=False)


def test_row_12_unreadable_record_may_be_released() -> None:
    assert decided(UnreadablePayload("expected Order"), unreadable="release") == Redeliver()


SUSPECT = Story(failures=1, suspicions=1)


@pytest.mark.parametrize(
    ("suspicions", "suspected_from", "runs"),
    [
        (0, 5, [1, 2, 3, 4]),  # Put aside at the fifth delivery.
        (0, 2, [1]),
        (1, 5, [1, 2]),  # A dead letter at the third delivery: two crashes.
        (2, 5, [1]),  # One of them before it was put aside again.
        (1, 3, [1, 2]),
        (1, 2, [1]),  # A group that allows two or three deliveries.
        (2, 2, [1]),
        (2**63 - 1, 5, [1]),  # Forged: it may run all the same.
    ],
)
def test_rows_13_and_24_deliveries_in_which_a_record_runs(
    suspicions: int, suspected_from: int, runs: list[int]
) -> None:
    story = Story(suspicions=suspicions)
    assert [
        count
        for count in range(1, 9)
        if may_run(story, delivery_count=count, suspected_from=suspected_from)
    ] == runs


def test_row_13_suspect_that_ended_two_processes_becomes_a_dead_letter() -> None:
    letter = Bury(SUSPECT, "deliveries-exhausted")
    assert aside(SUSPECT, delivery_count=3) == letter
    assert aside(SUSPECT, delivery_count=3, by_stop=True) == letter
    assert isinstance(aside(replace(SUSPECT, suspicions=2**63 - 1), delivery_count=2), Bury)


@pytest.mark.parametrize(
    ("errors", "kind", "decisive"),
    [
        ([Release(), RetryAfter(1), TimeoutError(), ValueError(), Reject()], Bury, "Reject"),
        ([Release(), RetryAfter(1), TimeoutError(), ValueError()], Bury, "ValueError"),
        ([Release(), RetryAfter(1), TimeoutError()], Postpone, "TimeoutError"),
        ([Release(), RetryAfter(1)], Postpone, "RetryAfter"),
        ([Release()], Redeliver, ""),
    ],
)
def test_row_14_gravest_of_a_group_decides(
    errors: list[Exception], kind: type[Step], decisive: str
) -> None:
    nested = (
        ExceptionGroup("outer", [ExceptionGroup("inner", errors[:1]), *errors[1:]])
        if len(errors) > 1
        else ExceptionGroup("outer", errors)
    )
    step = decided(nested)
    assert type(step) is kind
    if not isinstance(step, Redeliver | Accept):
        assert step.story.attempts[-1].error.endswith(f".{decisive}")


def test_row_14_longest_wait_of_a_group_decides() -> None:
    step = decided(ExceptionGroup("both", [RetryAfter("1s"), RetryAfter("1h"), RetryAfter("1m")]))
    assert isinstance(step, Postpone)
    assert step.story.due_ms == NOW_MS + 3_600_000
    both = [Release(delay="1s"), Release(delay="1m"), Release()]
    assert decided(ExceptionGroup("all", both)) == Redeliver(60_000)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt()])
def test_row_15_base_exception_is_a_failure_like_an_exception(error: BaseException) -> None:
    assert isinstance(decided(error, retry=Retry()), Postpone)
    step = decided(error)  # Its policy names other classes.
    assert isinstance(step, Bury)
    assert step.reason == "not-retried"


def aside(story: Story, *, delivery_count: int, by_stop: bool = False) -> Step:
    return put_aside(
        story, delivery_count=delivery_count, suspected_from=5, now_ms=NOW_MS, by_stop=by_stop
    )


@pytest.mark.parametrize(
    ("suspicions", "delivery_count", "by_stop", "expected"),
    [
        (0, 5, False, 1),
        (0, 4, False, 1),  # Another record runs alone.
        (0, 4, True, 0),
        (0, 5, True, 1),
        (1, 1, False, 1),
        (1, 2, True, 2),  # It has ended one process alone: moving it does not undo that.
        (2, 1, False, 2),
        (2**63 - 1, 1, True, 2),
    ],
)
def test_row_24_record_put_aside_is_due_now_as_a_suspect_with_its_history(
    suspicions: int, delivery_count: int, *, by_stop: bool, expected: int
) -> None:
    story = Story(failures=2, redrives=1, suspicions=suspicions)
    assert aside(story, delivery_count=delivery_count, by_stop=by_stop) == Postpone(
        replace(story, due_ms=NOW_MS, suspicions=expected)
    )


@pytest.mark.parametrize(
    ("delivery_count", "by_stop", "expected"),
    [(4, False, Hold), (6, False, Hold), (6, True, Redeliver), (7, False, Bury), (7, True, Bury)],
)
def test_record_whose_order_counts_stays_in_its_place(
    delivery_count: int, *, by_stop: bool, expected: type
) -> None:
    step = stay(
        ONCE, delivery_count=delivery_count, suspected_from=5, now_ms=NOW_MS, by_stop=by_stop
    )
    assert isinstance(step, expected)
    if isinstance(step, Hold):
        assert step.story == replace(ONCE, due_ms=NOW_MS + ASIDE_MS)
    assert may_run(ONCE, delivery_count=delivery_count, suspected_from=5, in_place=True) is (
        delivery_count < 7
    )


def test_record_that_nobody_suspects_moves_unchanged() -> None:
    assert moved(ONCE, delivery_count=4) is ONCE


def test_run_that_ends_clears_the_suspicion() -> None:
    step = decided(TimeoutError(), SUSPECT)
    assert isinstance(step, Postpone)
    assert (step.story.failures, step.story.suspicions) == (2, 0)


def test_record_keeps_its_origin_and_redrives_through_a_failure() -> None:
    origin = RecordOrigin("orders", 3, 44, NOW_MS - 1)
    step = decided(TimeoutError(), Story(origin=origin, redrives=2, redrive_id="r-1", due_ms=5))
    assert isinstance(step, Postpone)
    assert (step.story.origin, step.story.redrives, step.story.redrive_id) == (origin, 2, "r-1")


def test_story_keeps_the_last_twenty_attempts_and_counts_all() -> None:
    story = NEW
    for _ in range(25):
        step = decided(TimeoutError(), story, retry=Retry(max_attempts=100))
        assert isinstance(step, Postpone)
        story = step.story
    assert story.failures == 25
    assert [attempt.number for attempt in story.attempts] == list(range(6, 26))


def test_message_of_a_failure_is_cut() -> None:
    step = decided(TimeoutError("x" * 10_000))
    assert isinstance(step, Postpone)
    assert step.story.attempts[0].message == "x" * 500


class Unspeakable(TimeoutError):
    def __str__(self) -> str:
        raise KeyError("no text")


def test_failure_without_a_text_is_a_failure_all_the_same() -> None:
    step = decided(Unspeakable())
    assert isinstance(step, Postpone)
    assert (
        step.story.attempts[0].message
        == "(the exception text is not available: KeyError in __str__)"
    )


@pytest.mark.parametrize(
    ("by_hand", "step"),
    [
        (lambda record: record.accept(), Accept),
        (lambda record: record.release(), Redeliver),
        (lambda record: record.reject("old"), Bury),
        (lambda record: record.pause("1h"), Postpone),
    ],
)
def test_row_16_verb_is_the_same_as_its_outcome(by_hand: Any, step: type[Step]) -> None:
    record = Record(FakeDelivery(), NEW, clock=None)
    by_hand(record)
    error = None if record.decision == "accept" else record.decision
    assert type(decided(error)) is step
