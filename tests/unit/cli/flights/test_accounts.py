"""From ledgers to the end of each record: every way in which a life can go, and a few wrong ones.

The stories below are told in lines; a line's time is its place in the story, and the worker
is named in each, so that a story reads as it happened.
"""

from __future__ import annotations

from typing import Any

from sharegroup.cli.flights.accounts import Account, Accounts, End

ACCEPT, RELEASE, REJECT = 1, 2, 3
LIMIT = 5


class Story:
    """Tells what happened to records of partition 0; one batch a worker at a time."""

    def __init__(self) -> None:
        self.accounts = Accounts(delivery_limit=LIMIT)
        self.now_us = 0

    def delivered(self, worker: str, offset: int, count: int, *, produced_ms: int = 0) -> None:
        self._feed(worker, what="delivered", records=[[0, offset, count, produced_ms]])

    def sent(self, worker: str, offset: int, outcome: int) -> None:
        self._feed(worker, what="sent", outcomes=[[0, offset, outcome]])

    def answered(self, worker: str, error: str | None = None, *, wall_ms: int = 0) -> None:
        self._feed(worker, what="answered", errors={"0": error}, wall_ms=wall_ms)

    def done(self, worker: str, offset: int, count: int, outcome: int) -> None:
        self.delivered(worker, offset, count)
        self.sent(worker, offset, outcome)
        self.answered(worker)

    def killed(self, worker: str) -> None:
        self.now_us += 1
        self.accounts.killed(worker, self.now_us)

    def account(self, offset: int) -> Account:
        return dict(self.accounts.items())[0, offset]

    def end(self, offset: int) -> End:
        return self.accounts.end_of(self.account(offset))

    def _feed(self, worker: str, **line: Any) -> None:
        self.now_us += 1
        self.accounts.feed(worker, {**line, "batch": 1, "at_us": self.now_us})


def test_confirmed_accept_and_reject_end_a_record() -> None:
    story = Story()
    story.done("a", 0, 1, ACCEPT)
    story.done("a", 1, 1, REJECT)
    assert story.accounts.ends() == {End.ACCEPTED: 1, End.REJECTED: 1}
    assert story.accounts.settled == 2


def test_record_is_open_until_its_release_at_the_limit() -> None:
    story = Story()
    for count in (1, 2, 3, 4):
        story.done("a", 0, count, RELEASE)
        assert story.end(0) is End.OPEN
    story.done("b", 0, 5, RELEASE)
    assert story.end(0) is End.ARCHIVED
    assert story.account(0).deliveries == 5
    assert story.accounts.settled == 1


def test_accept_without_an_answer_counts_when_the_record_never_comes_again() -> None:
    story = Story()
    story.delivered("a", 0, 1)
    story.sent("a", 0, ACCEPT)
    story.answered("a", "NetworkException: connection lost")
    assert story.account(0).in_doubt
    assert story.end(0) is End.ACCEPTED
    assert story.accounts.counters["in doubt"] == 1


def test_accept_without_an_answer_does_not_count_when_the_record_comes_again() -> None:
    story = Story()
    story.delivered("a", 0, 1)
    story.sent("a", 0, ACCEPT)
    story.answered("a", "NetworkException: connection lost")
    story.delivered("b", 0, 1)
    assert story.end(0) is End.OPEN
    assert not story.account(0).came_back


def test_refused_accept_leaves_the_record_open() -> None:
    story = Story()
    story.delivered("a", 0, 1)
    story.sent("a", 0, ACCEPT)
    story.answered("a", "InvalidRecordState: not acquired")
    assert story.end(0) is End.OPEN
    assert not story.account(0).in_doubt
    assert story.accounts.counters["refused"] == 1


def test_delivery_after_a_confirmed_accept_is_a_return() -> None:
    story = Story()
    story.done("a", 0, 1, ACCEPT)
    assert not story.account(0).came_back
    story.delivered("b", 0, 2)
    assert story.account(0).came_back


def test_return_is_seen_whichever_ledger_is_read_first() -> None:
    story = Story()
    story.now_us = 10
    story.delivered("b", 0, 2)
    story.now_us = 0
    story.done("a", 0, 1, ACCEPT)
    assert story.account(0).came_back


def test_delivery_between_sending_and_answer_of_a_confirmed_accept_is_a_return() -> None:
    story = Story()
    story.delivered("a", 0, 1)
    story.sent("a", 0, ACCEPT)
    story.delivered("b", 0, 2)
    story.answered("a")
    assert story.account(0).came_back


def test_second_confirmation_is_a_return() -> None:
    story = Story()
    story.delivered("a", 0, 1)
    story.delivered("b", 0, 1)
    story.sent("a", 0, ACCEPT)
    story.answered("a")
    story.sent("b", 0, ACCEPT)
    story.answered("b")
    assert story.account(0).came_back


def test_earlier_delivery_to_a_worker_that_lost_it_is_no_return() -> None:
    story = Story()
    story.delivered("a", 0, 1)
    story.done("b", 0, 2, ACCEPT)
    assert not story.account(0).came_back


def test_killed_worker_gives_back_what_it_held() -> None:
    story = Story()
    story.delivered("a", 0, LIMIT)
    assert story.accounts.held_by("a") == 1
    assert story.end(0) is End.OPEN
    story.killed("a")
    assert story.end(0) is End.ARCHIVED


def test_record_held_by_the_killed_worker_below_the_limit_is_open_until_it_comes_again() -> None:
    story = Story()
    story.delivered("a", 0, 1)
    story.killed("a")
    assert story.end(0) is End.OPEN
    story.done("b", 0, 2, ACCEPT)
    assert story.end(0) is End.ACCEPTED
    assert not story.account(0).came_back


def test_last_delivery_into_the_killed_workers_buffers_is_unseen() -> None:
    story = Story()
    story.done("b", 0, LIMIT - 1, RELEASE)
    story.killed("a")
    assert story.accounts.is_unseen(story.account(0))
    assert story.end(0) is End.ARCHIVED


def test_release_after_the_kill_can_not_be_unseen() -> None:
    story = Story()
    story.killed("a")
    story.done("b", 0, LIMIT - 1, RELEASE)
    assert not story.accounts.is_unseen(story.account(0))
    assert story.end(0) is End.OPEN


def test_latency_is_from_produce_to_the_answer_of_the_accept() -> None:
    story = Story()
    story.delivered("a", 0, 1, produced_ms=1_000)
    story.sent("a", 0, ACCEPT)
    story.answered("a", wall_ms=1_042)
    story.delivered("a", 1, 1, produced_ms=1_000)
    story.sent("a", 1, RELEASE)
    story.answered("a", wall_ms=1_099)
    assert list(story.accounts.latencies_ms) == [42]


def test_records_of_an_acknowledgement_under_way_are_not_held_but_in_doubt() -> None:
    story = Story()
    story.delivered("a", 0, 1)
    story.sent("a", 0, ACCEPT)
    assert story.accounts.held_by("a") == 0
    story.killed("a")
    assert story.accounts.counters["in doubt"] == 1
    assert story.end(0) is End.ACCEPTED
