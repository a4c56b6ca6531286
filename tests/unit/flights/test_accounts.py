"""From ledgers to the end of each flight: every way in which it can go, and a few wrong ones.

The stories below are told in lines; a line's time is told with it, in seconds, and so is the
worker, so that a story reads as it happened.
"""

from __future__ import annotations

from typing import Any

from examples.flights.accounts import Account, Accounts, End


class Story:
    """Tells what happened to flights of partition 0; one batch a worker at a time."""

    def __init__(self) -> None:
        self.accounts = Accounts()

    def begun(
        self, at: float, worker: str, *offsets: int, attempt: int = 1, deliveries: int = 1
    ) -> None:
        records = [[0, offset, attempt, deliveries, 1_000] for offset in offsets]
        self._feed(at, worker, what="begun", batch=1, records=records)

    def ended(self, at: float, worker: str, ends: dict[int, bool], *, wall_ms: int = 0) -> None:
        told = [[0, offset, done] for offset, done in ends.items()]
        self._feed(at, worker, what="ended", batch=1, ends=told, wall_ms=wall_ms)

    def done(self, at: float, worker: str, offset: int) -> None:
        self.begun(at, worker, offset)
        self.ended(at, worker, {offset: True})

    def buried(self, at: float, worker: str, offset: int, reason: str) -> None:
        self._feed(at, worker, what="buried", record=[0, offset], reason=reason)

    def account(self, offset: int) -> Account:
        return dict(self.accounts.items())[0, offset]

    def interrupted(self, offset: int) -> bool:
        return self.accounts.interrupted(self.account(offset))

    def _feed(self, at: float, worker: str, **line: Any) -> None:
        self.accounts.feed(worker, {**line, "at_us": round(at * 1e6)})


def test_flight_that_a_handler_returned_is_done() -> None:
    story = Story()
    story.begun(1, "a", 0, 1)
    assert story.account(0).end is End.OPEN
    assert story.accounts.held_by("a") == 2
    story.ended(2, "a", {0: True, 1: False}, wall_ms=1_250)
    assert story.accounts.held_by("a") == 0
    assert (story.account(0).end, story.account(1).end) == (End.DONE, End.OPEN)
    assert list(story.accounts.latencies_ms) == [250]
    assert story.accounts.settled == 1


def test_buried_flight_is_dead() -> None:
    story = Story()
    for attempt in (1, 2):
        story.begun(attempt, "a", 0, attempt=attempt)
        story.ended(attempt, "a", {0: False})
    story.buried(3, "a", 0, "attempts-exhausted")
    assert (story.account(0).end, story.account(0).runs) == (End.DEAD, 2)
    assert story.accounts.ends() == {End.DEAD: 1}
    assert story.accounts.counters == {"handled": 2, "retries": 1, "redelivered": 0}


def test_flight_that_no_handler_saw_can_be_dead() -> None:
    story = Story()
    story.buried(1, "a", 0, "unreadable")
    assert (story.account(0).end, story.account(0).runs) == (End.DEAD, 0)


def test_flight_is_settled_once_even_if_it_ends_repeatedly() -> None:
    story = Story()
    story.done(1, "a", 0)
    story.done(2, "b", 0)
    story.buried(3, "b", 1, "unreadable")
    story.buried(4, "b", 1, "unreadable")
    assert story.accounts.settled == 2
    assert (story.account(0).done, story.account(1).buried) == (2, 2)


def test_flight_handled_after_it_was_done_came_back() -> None:
    story = Story()
    story.done(1, "a", 0)
    assert not story.account(0).came_back
    story.begun(2, "b", 0, deliveries=2)
    assert story.account(0).came_back
    assert story.accounts.counters["redelivered"] == 1


def test_ledgers_may_be_read_in_any_order() -> None:
    story = Story()
    story.done(5, "b", 0)
    story.done(1, "a", 0)
    assert (story.account(0).done_us, story.account(0).done_by) == (1_000_000, "a")
    assert story.account(0).came_back


def test_death_of_a_worker_interrupts_its_latest_flights() -> None:
    story = Story()
    story.done(10, "a", 0)
    story.done(10, "b", 1)
    story.done(7, "a", 2)
    story.accounts.worker_killed("a", 11_000_000)
    assert [story.interrupted(offset) for offset in (0, 1, 2)] == [True, False, False]


def test_death_of_the_broker_interrupts_all_workers_until_it_is_back() -> None:
    story = Story()
    for offset, at in enumerate((7, 9, 13, 17)):
        story.done(at, "ab"[offset % 2], offset)
    story.accounts.broker_killed(10_000_000, 14_000_000)
    assert [story.interrupted(offset) for offset in range(4)] == [False, True, True, False]


def test_started_workers_are_recorded() -> None:
    accounts = Accounts()
    accounts.feed("a", {"what": "started", "at_us": 1})
    assert accounts.started == {"a"}
